"""agt audit memorisation: which records the model learns by heart, and which one record decides the answer to another."""

from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from matplotlib.ticker import StrMethodFormatter
from pydantic import Field

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.memorisation import Contrast, LeftOut, left_out, memorisation, needed, strongest
from agt.audit.shadows import SHADOWS, Pool, ShadowConfig, Shadows, train_shadows
from agt.errors import ConfigError
from agt.models.model import Model
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.membership_tables import SIZES
from agt_cli.audit.opening import check_run, open_with_data
from agt_cli.report.console import Console
from agt_cli.report.figures import WIDTH, drawing, headline, keys
from agt_cli.report.record import RunRecord
from agt_cli.runs.model import certifying
from agt_cli.runs.queries import OpenedRun

OWNER = "for the data owner alone: this report names records, and says how much the model learnt of each"
HALVES = (
    "tables and figure are of other models than the run's, on random halves of the data, and most of them are estimates by "
    "few models, the largest of many: chance alone gives some that are large (as many as lie as far below 0), and only "
    "at_least, the rigorous bound over all of them, is sure where it is above 0. The run's certificate says nothing of "
    "them: it says that a label of the run's own training stays where that record alone is left out"
)
NEAREST = "of those left out in turn, half are certified and nearest to not being so, half are not certified"
COLOURS = {"certified": "#2c7fb8", "not certified": "#d95f0e"}


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

    def check(self, given: Given) -> None:
        """A run is needed."""
        if given.run is None:
            raise ConfigError("run=null: give the folder of a finished training run, or run=latest")
        if self.shadows % 2:
            raise ConfigError(f"audit.shadows={self.shadows}: they come in pairs, one on each half: give an even number")
        check_run(given)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Train, count, and say who is memorised."""
        opened = open_with_data(given, record, console, "nothing of this audit")
        pool, confidence = Pool.of(opened.dataset), given.confidence
        shadows = self._shadows(given, opened, pool, console)
        right = shadows.logits.argmax(axis=2) == pool.records.labels
        learnt = memorisation(shadows.included, right)
        distance = _distances(opened.model, pool, console)
        members = np.flatnonzero(pool.member)
        targets = np.random.default_rng(given.seed).permutation(np.flatnonzero(~pool.member))[: self.targets]
        pairs, decided = strongest(shadows.included, right, members, targets, self.shown)
        gone = self._left_out(opened, pool, distance, console)
        findings = (
            _memorised(learnt, members, len(shadows), confidence),
            _influence(decided, len(members) * len(targets), len(targets), len(shadows), confidence),
            _exactly(gone, distance[gone.rows] >= 1),
        )
        tables = {"memorised": self._most(opened, pool, learnt, distance, members, confidence)}
        tables["influence"] = _pairs(pool, pairs, decided)
        captions = drawn(record, learnt.value[members], distance[members] >= 1, opened.dataset.name)
        failed = (f"{len(shadows.failed)} models failed; the first: {shadows.failed[0][1]}",) if shadows.failed else ()
        notes = (OWNER, HALVES, SIZES, NEAREST, *failed)
        run = opened.trained.finished
        counts = {"shadows": len(shadows), "shadows_reused": shadows.reused}
        return Audited(run.folder.name, run.digest, findings, notes, tables, captions, counts)

    def _shadows(self, given: Given, opened: OpenedRun, pool: Pool, console: Console) -> Shadows:
        config = ShadowConfig(self.shadows, given.seed, self.workers)
        with console.progress(f"training {self.shadows} subset models", "model") as report:
            return train_shadows(
                opened.kept.problem,
                pool,
                config,
                given.output_dir / SHADOWS,
                lambda done: report(done, self.shadows, done, self.shadows),
            )

    def _left_out(self, opened: OpenedRun, pool: Pool, distance: np.ndarray, console: Console) -> LeftOut:
        """Rows of the pool, whose first ones are the private training records in their order."""
        members = np.flatnonzero(pool.member)
        order = members[np.argsort(distance[members], kind="stable")]
        near, loose = order[distance[order] >= 1], order[distance[order] < 1]
        chosen = [*near[: self.left_out - self.left_out // 2].tolist(), *loose[: self.left_out // 2].tolist()]
        private = np.flatnonzero(~opened.dataset.train.public)
        with console.progress("leaving records out", "record") as report:
            gone = left_out(
                opened.model,
                private[chosen].tolist(),
                lambda done: report(done, len(chosen), done, len(chosen)),
            )
        return LeftOut(np.searchsorted(private, gone.rows), gone.value, gone.changed, gone.refused)

    def _most(
        self, opened: OpenedRun, pool: Pool, learnt: Contrast, distance: np.ndarray, members: np.ndarray, confidence: float
    ) -> pd.DataFrame:
        """The most memorised training records, the most first."""
        least, _ = learnt.bounds(confidence, len(members))
        table = pd.DataFrame({"id": pool.records.ids, "label": [opened.dataset.classes[y] for y in pool.records.labels]})
        table["stable_distance"] = distance
        table["estimate_over_halves"], table["standard_error"] = learnt.value, learnt.error
        table["at_least"] = least
        table["right_with"], table["models_with"] = learnt.right_with, learnt.having
        table["right_without"], table["models_without"] = learnt.right_without, learnt.without
        shown = table.iloc[members].sort_values("estimate_over_halves", ascending=False, kind="stable").head(self.shown)
        return shown.map(_short)


def drawn(record: RunRecord, values: np.ndarray, certified: np.ndarray, dataset: str) -> dict[str, str]:
    """A histogram of memorisation, split by whether the record's own label is certified."""
    edges = np.linspace(-1, 1, 41)
    known = np.isfinite(values)
    counts = {
        name: np.histogram(values[known & side], edges)[0]
        for name, side in zip(COLOURS, (certified, ~certified), strict=True)
    }
    with drawing(record, "memorisation", pd.DataFrame({"from": edges[:-1], **counts}), (WIDTH, 4.2)) as figure:
        axes = figure.subplots()
        for name, colour in COLOURS.items():
            axes.stairs(
                counts[name], edges, label=f"{name} ({int(counts[name].sum()):,})", color=colour, fill=True, alpha=0.6
            )
        axes.set(xlabel="right when trained on it, less right when not", ylabel="training records", yscale="symlog")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))  # text is drawn as it is, formulas too
        keys(figure, [axes])
        high = int((values[known] >= 0.25).sum())
        headline(figure, f"Estimates of a quarter or more: {high:,} of {len(values):,} training records", dataset)
    return {
        "memorisation": "Estimates over random halves, by whether the run's own label of the record is certified (stable "
        "distance 1 or more), which says nothing of models on halves: they lie on both sides of 0 by chance, too."
    }


def _distances(model: Model, pool: Pool, console: Console) -> np.ndarray:
    with certifying(model, console) as report:
        distance: np.ndarray = model.certify(pool.records.features, on_progress=report).stable_distance
    return distance


def _memorised(learnt: Contrast, members: np.ndarray, models: int, confidence: float) -> Finding:
    of_members, looks = learnt.take(members), len(members)
    few = _too_few(of_members, looks, confidence, "record", 2)
    surely, quarter = _surely(of_members, confidence, looks), int((of_members.value >= 0.25).sum())
    sure = (
        few or f"{surely:,} of {looks:,} training records are surely labelled right more often where they were trained on"
    )
    return Finding(
        subject="memorisation",
        claim="nothing: P(label right | trained on it) - P(label right | not)",
        attack="models on random halves, those with a record against those without it",
        effort=f"{models} models, {looks:,} records",
        outcome=Outcome.UNTESTED if few else Outcome.REPORTED,
        meaning=(
            f"over random halves: {sure}; of {quarter:,} the probability to be labelled right is estimated to be a quarter "
            "or more higher where they were trained on, some of them by chance"
        ),
        measure="records memorised",
        found=None if few else float(surely),
        confidence=None if few else confidence,
        noticeable="a record that every model with it has right and none without it, if there are that many models"
        if few
        else f"a difference in probability of {_least(of_members, confidence, looks):.2g}, if all with it have it right",
        estimator="Clopper-Pearson, the error shared among all records",
    )


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


def _least(learnt: Contrast, confidence: float, looks: int) -> float:
    """The least estimate that would have been called memorised, of a record that all models with it have right."""
    with_it, without = int(np.median(learnt.having)), int(np.median(learnt.without))
    hits = np.arange(without + 1)
    ends = Contrast(np.full(without + 1, with_it), np.full(without + 1, with_it), hits, np.full(without + 1, without))
    shown = ends.bounds(confidence, looks)[0] > 0
    return float(ends.value[shown].min()) if shown.any() else 1.0


def _influence(decided: Contrast, looks: int, targets: int, models: int, confidence: float) -> Finding:
    """Of the models without the test record, which are half, half were trained on the training record."""
    values = decided.value
    few = _too_few(decided, looks, confidence, "pair", 4) if len(values) else "no test record was looked at"
    surely = _surely(decided, confidence, looks)
    sure = few or f"{surely:,} pairs have influence for sure, of those with the greatest estimates"
    top = f"; the strongest is estimated at {values[0]:.3g}" if len(values) else ""
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
        else f"influence of {_least(decided, confidence, looks):.2g}, if every model with the record is right",
        estimator="Clopper-Pearson, the error shared among all pairs",
    )


def _exactly(gone: LeftOut, certified: np.ndarray) -> Finding:
    held, broken = int(certified.sum()), int((gone.value[certified] != 0).sum()) if len(gone.value) else 0
    loose = int((gone.value[~certified] != 0).sum()) if len(gone.value) else 0
    refused = f"; {len(gone.refused)} could not be left out: {gone.refused[0]}" if gone.refused else ""
    return Finding(
        subject="memorisation of certified records",
        claim="a record's own label stays where its stable distance is 1 or more and it alone is left out",
        attack="training again without a record's unit, all else as it was",
        effort=f"{held} certified records, nearest to not being so, and {len(certified) - held} others",
        outcome=Outcome.VIOLATED if broken else Outcome.STANDS if held else Outcome.UNTESTED,
        meaning=(
            f"labels that change when that record alone is left out: {broken} of the {held} certified asked"
            if held
            else "no certified record was left out"
        )
        + f"; {loose} of the {len(certified) - held} uncertified asked{refused}",
        measure="certified records memorised",
        claimed=0.0,
        found=float(broken) if held else None,
        strength=Strength.CERTAIN,
        noticeable="one record, among those left out",
    )


def _pairs(pool: Pool, pairs: np.ndarray, decided: Contrast) -> pd.DataFrame:
    """The pairs of greatest influence."""
    ids = pool.records.ids
    table = pd.DataFrame({"training_record": ids[pairs[:, 0]], "test_record": ids[pairs[:, 1]]})
    table["influence"], table["standard_error"] = decided.value, decided.error
    return table.map(_short)


def _short(cell: object) -> object:
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell
