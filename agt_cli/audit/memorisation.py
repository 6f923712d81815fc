"""agt audit memorisation: which records the model learns by heart, and which one record decides the answer to another."""

from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from matplotlib.ticker import StrMethodFormatter
from pydantic import Field

from agt.audit.findings import Finding, Outcome, counterexamples
from agt.audit.membership import Contrast, memorisation, needed, strongest
from agt.audit.neighbours import Edited, neighbours_of
from agt.audit.shadows import Pool, ShadowConfig
from agt.errors import AgtError
from agt.models.model import Model
from agt.settings import schema
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.audit.membership import SIZES, check_shadows, short, trained_shadows
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import certifying

NOTES = (
    "for the data owner alone: this report names records, and says how much the model learnt of each",
    "tables and figure are of other models than the run's, on random halves of the data, and most of them are estimates by "
    "few models, the largest of many: chance alone gives some that are large (as many as lie as far below 0), and only "
    "at_least, the rigorous bound over all of them, is sure where it is above 0. The run's certificate says nothing of "
    "them: it says that a label of the run's own training stays where that record alone is left out",
    SIZES,
    "of those left out in turn, half are certified and nearest to not being so, half are not certified",
)
COLOURS = {"certified": "#2c7fb8", "not certified": "#d95f0e"}
QUARTER = 0.25


@schema
class Memorisation:
    """Memorisation and influence from models on random halves; and exactly, leaving records out one at a time.

    Attributes:
        shadows: how many models, an even number; those of ``agt audit membership`` are used again.
        workers: processes that train them; null: as many as there are processors.
        left_out: how many units are left out in turn.
        targets: how many test records' answers are looked at for influence.
        shown: how many records and pairs the owner is shown.
    """

    name: ClassVar[str] = "memorisation"
    shadows: Annotated[int, Field(ge=2, le=4096)] = 64
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    left_out: Annotated[int, Field(ge=0)] = 40
    targets: Annotated[int, Field(ge=0)] = 200
    shown: Annotated[int, Field(ge=1)] = 50

    def check(self, given: AuditInputs) -> None:
        """A run is needed, whose neighbours can be trained."""
        check_shadows(given, self.shadows)
        given.check_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train, count, and say who is memorised."""
        opened = given.open_with_data(record, console, "nothing of this audit")
        model, dataset, pool, confidence = opened.model, opened.dataset, Pool.of(opened.dataset), given.confidence
        config = ShadowConfig(self.shadows, given.seed, self.workers)
        shadows = trained_shadows(given, opened.kept.problem, pool, config, console)
        right = shadows.logits.argmax(axis=2) == pool.records.labels
        learnt, members = memorisation(shadows.included, right), np.flatnonzero(pool.member)
        with certifying(model, console) as report:
            distance = model.certify(pool.records.features, on_progress=report).stable_distance
        targets = np.random.default_rng(given.seed).permutation(np.flatnonzero(~pool.member))[: self.targets]
        pairs, decided = strongest(shadows.included, right, members, targets, self.shown)
        looks = len(members) * len(targets)
        findings = (
            _memorised(learnt.take(members), len(shadows), confidence),
            influence_finding(decided, looks, len(targets), len(shadows), confidence),
            self._left_out(model, pool, distance, console),
        )
        table = pd.DataFrame({"id": pool.records.ids, "label": [dataset.classes[y] for y in pool.records.labels]})
        table["stable_distance"] = distance
        table["estimate_over_halves"], table["standard_error"] = learnt.value, learnt.error
        table["at_least"] = learnt.bounds(confidence, len(members))[0]
        table["right_with"], table["models_with"] = learnt.right_with, learnt.having
        table["right_without"], table["models_without"] = learnt.right_without, learnt.without
        most = table.iloc[members].sort_values("estimate_over_halves", ascending=False, kind="stable").head(self.shown)
        ids = pool.records.ids
        influence = pd.DataFrame({"training_record": ids[pairs[:, 0]], "test_record": ids[pairs[:, 1]]})
        influence["influence"], influence["standard_error"] = decided.value, decided.error
        tables = {"memorised": most.map(short), "influence": influence.map(short)}
        captions = draw_histogram(record, learnt.value[members], distance[members] >= 1, dataset.name)
        failed = (f"{len(shadows.failed)} models failed; the first: {shadows.failed[0][1]}",) if shadows.failed else ()
        run, counts = opened.trained.finished, {"shadows": len(shadows), "shadows_reused": shadows.reused}
        return Audited(run.folder.name, run.digest, findings, (*NOTES, *failed), tables, captions, counts)

    def _left_out(self, model: Model, pool: Pool, distance: np.ndarray, console: Console) -> Finding:
        """Labels of records whose unit alone is left out, half of them certified, half not."""
        members, train = np.flatnonzero(pool.member), model.problem.dataset.train
        order = members[np.argsort(distance[members], kind="stable")]
        near, loose = order[distance[order] >= 1], order[distance[order] < 1]
        chosen = np.concatenate([near[: self.left_out - self.left_out // 2], loose[: self.left_out // 2]])
        private = np.flatnonzero(~train.public)  # in the order of the pool, whose first records they are
        edits = [Edited(train, np.flatnonzero(train.units == train.units[row])) for row in private[chosen]]
        changed, refused = {True: list[bool](), False: list[bool]()}, list[str]()
        with console.progress("leaving records out", "record") as report:
            for done, (place, other) in enumerate(zip(chosen, neighbours_of(model, edits), strict=True), 1):
                report(done, len(edits), done, len(edits))
                if isinstance(other, AgtError):
                    refused.append(str(other))
                    continue
                asked = train.features[private[place] : private[place] + 1]
                right = [of.predict(asked)[0] == train.labels[private[place]] for of in (model, other)]
                changed[bool(distance[place] >= 1)].append(right[0] != right[1])
        return _exactly(changed[True], changed[False], refused)


def draw_histogram(record: RunRecord, values: np.ndarray, certified: np.ndarray, dataset: str) -> dict[str, str]:
    """Memorisation, split by whether the record's own label is certified; the caption by its name."""
    edges, known = np.linspace(-1, 1, 41), np.isfinite(values)
    sides = zip(COLOURS, (certified, ~certified), strict=True)
    counts = {name: np.histogram(values[known & side], edges)[0] for name, side in sides}
    with drawing(record, "memorisation", pd.DataFrame({"from": edges[:-1], **counts}), (WIDTH, 4.2)) as figure:
        axes = figure.subplots()
        for name, colour in COLOURS.items():
            label = f"{name} ({int(counts[name].sum()):,})"
            axes.stairs(counts[name], edges, label=label, color=colour, fill=True, alpha=0.6)
        axes.set(xlabel="right when trained on it, less right when not", ylabel="training records", yscale="symlog")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))  # text is drawn as it is, formulas too
        keys(figure, [axes])
        high = int((values[known] >= QUARTER).sum())
        headline(figure, f"Estimates of a quarter or more: {high:,} of {len(values):,} training records", dataset)
    return {
        "memorisation": "Estimates over random halves, by whether the run's own label of the record is certified (stable "
        "distance 1 or more), which says nothing of models on halves: they lie on both sides of 0 by chance, too."
    }


def _memorised(learnt: Contrast, models: int, confidence: float) -> Finding:
    looks = len(learnt.value)
    few, surely = _too_few(learnt, looks, confidence, "record", 2), _surely(learnt, confidence, looks)
    sure = (
        few or f"{surely:,} of {looks:,} training records are surely labelled right more often where they were trained on"
    )
    meaning = (
        f"over random halves: {sure}; of {int((learnt.value >= QUARTER).sum()):,} the probability to be labelled right is "
        "estimated to be a quarter or more higher where they were trained on, some of them by chance"
    )
    return Finding(
        subject="memorisation",
        claim="nothing: P(label right | trained on it) - P(label right | not)",
        attack="models on random halves, those with a record against those without it",
        effort=f"{models} models, {looks:,} records",
        outcome=Outcome.UNTESTED if few else Outcome.REPORTED,
        meaning=meaning,
        measure="records memorised",
        found=None if few else float(surely),
        confidence=None if few else confidence,
        noticeable="a record that every model with it has right and none without it, if there are that many models"
        if few
        else f"a difference in probability of {_smallest(learnt, confidence, looks):.2g}, if all with it have it right",
        estimator="Clopper-Pearson, the error shared among all records",
    )


def influence_finding(decided: Contrast, looks: int, targets: int, models: int, confidence: float) -> Finding:
    """Of the models without the test record, which are half, half were trained on the training record."""
    few = _too_few(decided, looks, confidence, "pair", 4) if len(decided.value) else "no test record was looked at"
    surely = _surely(decided, confidence, looks)
    sure = few or f"{surely:,} pairs have influence for sure, of those with the greatest estimates"
    top = f"; the strongest is estimated at {decided.value[0]:.3g}" if len(decided.value) else ""
    return Finding(
        subject="influence of a training record on a test record's answer",
        claim="nothing: P(right | record trained on) - P(right | not), of models without the test record",
        attack="models on random halves, those with the training record against those without it",
        effort=f"{models} models, {looks:,} pairs with {targets:,} test records drawn by audit.seed",
        outcome=Outcome.UNTESTED if few else Outcome.REPORTED,
        meaning=f"{sure}{top}",
        measure="pairs",
        found=None if few else float(surely),
        confidence=None if few else confidence,
        noticeable="a pair right in every model with the record and in none without it, if there are that many models"
        if few
        else f"influence of {_smallest(decided, confidence, looks):.2g}, if every model with the record is right",
        estimator="Clopper-Pearson, the error shared among all pairs",
    )


def _exactly(certified: list[bool], others: list[bool], refused: list[str]) -> Finding:
    why = f"; {len(refused)} could not be left out: {refused[0]}" if refused else ""
    asked = (
        f"labels that change when that record alone is left out: {sum(certified)} of the {len(certified)} certified asked"
    )
    return counterexamples(
        "memorisation of certified records",
        "a record's own label stays where its stable distance is 1 or more and it alone is left out",
        "training again without a record's unit, all else as it was",
        f"{len(certified)} certified records, nearest to not being so, and {len(others)} others",
        "certified records memorised", float(sum(certified)) if certified else None,
        f"{asked if certified else 'no certified record was left out'}; {sum(others)} of the {len(others)} uncertified "
        f"asked{why}",
        "one record, among those left out",
    )  # fmt: skip


def _surely(contrast: Contrast, confidence: float, looks: int) -> int:
    return int((contrast.bounds(confidence, looks)[0] > 0).sum()) if len(contrast.value) else 0


def _too_few(contrast: Contrast, looks: int, confidence: float, one: str, parts: int) -> str:
    """Why not even the clearest contrast would be sure; empty: it would.

    Args:
        looks: among which the error is shared.
        parts: into how many equal parts of the models a contrast's two sides fall.
    """
    fewest = needed(looks, confidence)
    if min(int(side.max(initial=0)) for side in (contrast.having, contrast.without)) >= fewest:
        return ""
    return f"too few subset models to be sure of any {one}: {parts * fewest} are the least for {looks:,} (audit.shadows)"


def _smallest(learnt: Contrast, confidence: float, looks: int) -> float:
    """The least estimate that would have been called memorised, of a record that all models with it have right."""
    with_it, without = int(np.median(learnt.having)), int(np.median(learnt.without))
    hits = np.arange(without + 1)
    ends = Contrast(np.full(without + 1, with_it), np.full(without + 1, with_it), hits, np.full(without + 1, without))
    shown = ends.bounds(confidence, looks)[0] > 0
    return float(ends.value[shown].min()) if shown.any() else 1.0
