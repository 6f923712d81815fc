"""agt audit prediction: agt predict end to end, on neighbouring runs and test ledgers, by adversaries of growing strength.

Each may do more than the one before: it looks at natural queries; it chooses them between the decision lines of both
models; it has put records of its own into the data beforehand (Chadha et al. 2024). The guarantee is the same for all.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.estimates import Claimed
from agt.audit.findings import Finding
from agt.audit.poisoning import aims, edited, poisoned
from agt.audit.prediction import Event, Pair, alike, alike_everywhere, between_roots, event_of_sum, judged, most_telling
from agt.audit.verdict import Attacked
from agt.data.dataset import DataError, Records
from agt.errors import ConfigError
from agt.mechanisms.guarantee import GaussianDP, Guarantee
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.release import Labelling, totals_of
from agt.relations import RELATIONS
from agt.settings import ComputeConfig, schema, validate
from agt_cli.audit.counters import Counters
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.stage import SILENT, Stage
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import gone_of
from agt_cli.runs.mechanisms import MechanismConfig, TotalConfig
from agt_cli.runs.prepare import Prepared, RunSettings, prepare
from agt_cli.runs.queries import LINES, OpenedRun, TrainedRun

MOST_QUERIES = 1000  # natural ones that are looked at
WORTH = 0.95  # of a total without a delta: one with a delta that is no less is not attacked as well
DRAWN = (
    "labels about the real data were drawn as agt predict draws them; nobody was told them: they lay in a folder of this "
    "audit alone, which was removed, so they spend nothing, and no ledger of yours was opened"
)
TRIALS = (
    "trials are distinct questions, as a repeated one is told its stored answer: rows that differ from the chosen query in "
    "their last digits, of which both models were checked to see the same"
)
OWNER = "for the data owner alone: pairs and queries were searched in the private data"


@dataclass(frozen=True)
class Scene:
    """One adversary's pair and query, both found before anything is drawn.

    Attributes:
        adversary: in words.
        sides: the runs with the unit and without it.
        pair: the same as the mechanism sees them.
        query: [1, ...].
        event: per label.
        poisons: how many records were the adversary's.
    """

    adversary: str
    sides: tuple[OpenedRun, OpenedRun]
    pair: Pair
    query: np.ndarray
    event: Event
    poisons: int = 0


@schema
class PredictionAudit:
    """Attacks ``agt predict``, the mechanism and the ledger together.

    Attributes:
        trials: N, labels a side and adversary.
        together: Q, answers that are counted together against the composed claim.
        targets: natural records that are taken out in turn.
        poisons: a, records of the adversary; 0: none.
        retrainings: at most so many models are trained to find poisons.
        scratch: a folder on a local disk for neighbouring runs and test ledgers; null: the audit's own.
    """

    trials: Annotated[int, Field(ge=10)] = 10_000
    together: Annotated[int, Field(ge=2)] = 4
    targets: Annotated[int, Field(ge=1)] = 3
    poisons: Annotated[int, Field(ge=0)] = 8
    retrainings: Annotated[int, Field(ge=2)] = 40
    scratch: str | None = None

    name: ClassVar[str] = "prediction"

    def check(self, given: Given) -> None:
        """Refuse what needs no data to be refused."""
        if given.run is None:
            raise ConfigError("run: a value is required; give run=FOLDER of a finished agt train, or run=latest")
        if given.config.get("mechanism") is None:
            raise ConfigError("mechanism: give what answers, mechanism=randomized_response mechanism.eps=1 say")
        config = _configured(given)
        if not issubclass(config.kind, Mechanism):
            raise ConfigError(
                f"mechanism={config.kind.name}: audit prediction is of labels: give a mechanism that draws them"
            )
        if str(given.config.get("inputs")) == str(LINES):
            raise ConfigError("inputs=-: an audit draws its own questions: give a file of natural ones, or leave it out")
        if self.together > self.trials:
            raise ConfigError(
                f"audit.together={self.together}: more answers together than are drawn (audit.trials={self.trials})"
            )
        if config.total.eps is not None and config.total.queries is None:
            raise ConfigError("total.eps is shared out over questions: give total.queries, too, or mechanism.eps")

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Find pairs and queries, draw on both sides of each, and count."""
        trained = TrainedRun.of({**given.config, "inputs": None})
        opened = trained.open(record, console)
        natural = opened.queries.features
        if given.config.get("inputs") is not None:
            natural = TrainedRun.of(given.config).open(record, console).queries.features
        room = record.folder if self.scratch is None else Path(self.scratch)
        with Stage.below(room, given.config) as stage:
            return _Audit(self, given, opened, _some(natural, given.seed), stage, console).audited()


def _configured(given: Given) -> MechanismConfig:
    return MechanismConfig.of(given.config.get("mechanism"), validate(TotalConfig, given.config.get("total"), "total"))


def composed(guarantee: Guarantee, queries: int) -> list[tuple[Claimed, str]]:
    """What is claimed of queries together, and in words: by each composition that says less than those before."""
    if isinstance(guarantee, GaussianDP):
        both = GaussianDP(guarantee.mu * math.sqrt(queries))
        return [(Claimed.of(both), f"{both}")]
    first, *others = totals_of(guarantee, queries, 0.0)
    kept = [first, *(total for total in others if total.eps < WORTH * first.eps)]
    return [(Claimed("epsilon", total.eps, total.delta), f"{total}") for total in kept]


def _some(queries: np.ndarray, seed: int) -> np.ndarray:
    """At most ``MOST_QUERIES``, in memory."""
    rows = np.arange(len(queries))
    if len(rows) > MOST_QUERIES:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_QUERIES, replace=False))
    return np.stack([np.asarray(queries[row], dtype=np.float64) for row in rows.tolist()])


class _Audit:
    """One audit at work."""

    def __init__(
        self, config: PredictionAudit, given: Given, opened: OpenedRun, natural: np.ndarray, stage: Stage, console: Console
    ) -> None:
        self.config, self.given, self.opened, self.natural = config, given, opened, natural
        self.stage, self.console, self.rng = stage, console, np.random.default_rng(given.seed)
        self.missing = list[str]()
        mechanism = _configured(given).mechanism(opened.model.problem.classes, 1)
        assert isinstance(mechanism, Mechanism)
        self.mechanism, self.claimed = mechanism, Claimed.of(mechanism.guarantee)
        self.claim = self._labelling(opened).claim
        if opened.model.problem.settings.noise is not None:
            raise ConfigError(
                f"run={opened.trained.finished.folder}: its training drew noise, which a neighbour would draw anew: agt "
                "audit dpsgd is for such runs"
            )
        self.totals = composed(mechanism.guarantee, config.together)
        self.events = (4 if config.poisons else 2) * (1 + len(self.totals))
        needed = self.claimed.needed(given.confidence, self.events)
        if config.trials < needed:
            raise ConfigError(
                f"audit.trials={config.trials}: too few to contradict {self.claimed.measure} {self.claimed.value:g} with "
                f"confidence {given.confidence:g} over {self.events} events: give {needed} at least, and more for a margin"
            )

    def audited(self) -> Audited:
        """All of it."""
        scenes = list(self._scenes())
        first = scenes[0]
        findings = list[Finding]()
        if self.claim.proved:
            queries = np.concatenate([first.query, *self._distinct(first.pair)])
            findings += Counters(self.stage, first.sides, self.mechanism, queries).findings()
        rows = []
        with self.console.progress("releases on both sides", "adversary") as report:
            for done, scene in enumerate(scenes, 1):
                made = self._attacked(scene)
                findings += made
                rows.append(self._row(scene, made))
                report(done, len(scenes), done, len(scenes))
        finished = self.opened.trained.finished
        if not self.claim.proved:
            self.missing.append(
                "nothing is proved of this release (accounting=paper): no ledger takes it, and none was audited"
            )
        notes = (OWNER, DRAWN, TRIALS, *self.missing)
        return Audited(
            finished.folder.name,
            finished.digest,
            tuple(findings),
            notes,
            {"adversaries": pd.DataFrame(rows)},
            metrics={"trials": self.config.trials, "adversaries": len(scenes)},
        )

    def _labelling(self, opened: OpenedRun) -> Labelling:
        accounting, counting = self.stage.accounting, self.stage.counting
        return Labelling.of(opened.model, self.mechanism, opened.conditions, accounting, counting)

    @cached_property
    def settings(self) -> RunSettings:
        """The run's own, with the threads and the device that it was trained with: its bits depend on them."""
        trained = self.opened.trained
        compute = validate(ComputeConfig, trained.finished.config.get("compute"), "compute")
        return replace(trained.settings, compute=compute)

    # -- pairs and queries -------------------------------------------------------------------------------------------------

    def _scenes(self) -> Iterator[Scene]:
        finished = self.opened.trained.finished
        having, records = self.stage.open(finished.folder, finished.digest), self.opened.dataset.train
        base = prepare(self.settings, SILENT, gone_of(finished))
        made = list[tuple[OpenedRun, OpenedRun]]()
        with self.console.progress("neighbouring runs", "run") as report:
            targets = self._targets(records)
            for done, row in enumerate(targets, 1):
                lacking = self._without(base, records, row)
                made += [(having, lacking)] if lacking is not None else []
                report(done, len(targets), done, len(targets))
        if not made:
            raise ConfigError(f"run={finished.folder}: no record of it can be taken out and leave data that trains")
        yield self._best("natural records, natural query", made, chosen=False)
        yield self._best("natural records, chosen query", made, chosen=True)
        if self.config.poisons:
            yield from self._poisoned(base)

    def _poisoned(self, base: Prepared) -> Iterator[Scene]:
        config, kept = self.config, self.opened.kept.problem
        found = poisoned(kept, self.opened.model, self.natural, config.poisons, config.retrainings)
        if found is None:
            self.missing.append("no record decides a natural query: the adversary who poisons was not played")
            return
        if not found.decided:
            more = "" if found.needed is None else f": about {found.needed} would"
            self.missing.append(
                f"{found.poisons} poisoned records turned no natural query's label within {found.trained} trainings{more} "
                "(audit.poisons, audit.retrainings)"
            )
        sides = self._trained(base, found.having), self._trained(base, found.lacking)
        words, natural = f"{found.poisons} poisoned records", found.query if found.decided else None
        yield replace(self._best(f"{words}, natural query", [sides], False, natural), poisons=found.poisons)
        yield replace(self._best(f"{words}, chosen query", [sides], True), poisons=found.poisons)

    def _targets(self, records: Records) -> list[int]:
        """Rows of records that could decide a natural query; any private ones where none stands out."""
        found = [aim.target for aim in aims(self.opened.model, records, self.natural, 4 * self.config.targets)]
        private = np.flatnonzero(~records.public)
        if not len(private):
            raise ConfigError(
                f"run={self.opened.trained.finished.folder}: every training record is public: nothing to attack"
            )
        found += self.rng.permutation(private).tolist()
        return list(dict.fromkeys(found))[: self.config.targets]

    def _without(self, base: Prepared, records: Records, row: int) -> OpenedRun | None:
        """A run on data without a unit, read as erased records are left out; None: such data cannot be read."""
        finished, settings = self.opened.trained.finished, self.settings
        if RELATIONS[settings.relation.name].touches > 1:
            return self._trained(base, edited(self.opened.kept.problem, records, row))
        gone, unit = gone_of(finished), records.units[row]
        try:
            prepared = prepare(settings, SILENT, lambda ids, units: gone(ids, units) | (units == unit))
        except DataError:  # a copy that is not the last, or the last of its class
            return None
        return self.stage.train(finished.config, prepared, settings)

    def _trained(self, base: Prepared, records: Records) -> OpenedRun:
        """A run on other records, beside the same test records."""
        dataset = replace(base.dataset, train=records, plane=None)
        prepared = replace(base, loaded=dataset, dataset=dataset)
        return self.stage.train(self.opened.trained.finished.config, prepared, self.settings)

    def _best(
        self, adversary: str, made: list[tuple[OpenedRun, OpenedRun]], chosen: bool, natural: np.ndarray | None = None
    ) -> Scene:
        """The pair and the query of which most is expected."""
        scenes = []
        for sides in made:
            pair = Pair(*map(self._labelling, sides))
            queries = self.natural if natural is None else natural
            if chosen:
                found = between_roots(pair, self.natural, self.rng)
                queries = found if len(found) else queries
            at, event = most_telling(pair, queries, self.claimed, self.config.trials, self.given.confidence)
            scenes.append(Scene(adversary, sides, pair, queries[at : at + 1], event))
        return max(scenes, key=lambda scene: (self._expected(scene.event), scene.event.hit - scene.event.alarm))

    def _expected(self, event: Event) -> float:
        return event.expected(self.claimed, self.config.trials, self.given.confidence, self.events)

    def _distinct(self, pair: Pair) -> list[np.ndarray]:
        """Queries for what the ledger counts: natural ones, and others around them where there are few."""
        size = max(float(np.abs(self.natural).max()), 1.0)
        moved = self.natural[self.rng.integers(len(self.natural), size=32)]
        return [moved + 0.01 * size * self.rng.normal(size=moved.shape)]

    # -- draws -------------------------------------------------------------------------------------------------------------

    def _attacked(self, scene: Scene) -> list[Finding]:
        """Draw on both sides, then ask each event; all were fixed before. Where both answer alike, nothing is drawn."""
        config, confidence = self.config, self.given.confidence
        attacks = [(self._attack(scene, self.claim.text, self.claimed), scene.event)]
        for claimed, words in self.totals:
            groups = config.trials // config.together
            event = event_of_sum(scene.event, config.together, claimed, groups, confidence, self.events)
            attack = self._attack(scene, f"{config.together} queries together: {words}", claimed)
            attacks.append((replace(attack, together=config.together), event))
        if scene.event.hit == scene.event.alarm:
            return [alike_everywhere(attacked) for attacked, _ in attacks]
        queries = alike(scene.pair, scene.query, config.trials, self.rng)
        having, lacking = (self.stage.drawn(side, self.mechanism, queries, self.claim.proved) for side in scene.sides)
        if len(np.unique(np.concatenate([having, lacking]))) == 1:
            return [alike_everywhere(attacked, f"{len(having):,} labels a side, all the same") for attacked, _ in attacks]
        return [judged(attacked, event, having, lacking) for attacked, event in attacks]

    def _attack(self, scene: Scene, claim: str, claimed: Claimed) -> Attacked:
        subject = f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        return Attacked(subject, claim, scene.adversary, "", claimed, self.given.confidence, self.events)

    def _row(self, scene: Scene, made: list[Finding]) -> dict[str, object]:
        """Of the table: what each adversary reached."""
        row: dict[str, object] = {"adversary": scene.adversary, "poisons": scene.poisons, "measure": self.claimed.measure}
        row |= {"claimed": self.claimed.value, "this pair": scene.event.loss(self.claimed), "found": made[0].found}
        for finding, (claimed, _) in zip(made[1:], self.totals, strict=True):
            name = f"{self.config.together} together" + (f", delta {claimed.delta:.2g}" if claimed.delta else "")
            row |= {f"claimed of {name}": finding.claimed, f"found of {name}": finding.found}
        return row | {"outcome": " / ".join(dict.fromkeys(finding.outcome.value for finding in made))}
