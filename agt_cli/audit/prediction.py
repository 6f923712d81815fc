"""agt audit prediction: agt predict end to end, on neighbouring runs and test ledgers, by adversaries of growing strength.

Each may do more than the one before: it looks at natural queries; it chooses them between the decision lines of both
models; it has put records of its own into the data beforehand (Chadha et al. 2024). The guarantee is the same for all.

Formal guarantees
    Nobody's ledger pays for what is drawn here, as nobody is told it: answers lie in this folder alone, below the audit's
    own record, and the folder is removed when the audit ends, however it ends. Only a process that is killed outright
    leaves it, until the next audit below the same folder removes it; its name begins with a dot and it lies too deep to be
    listed as a run. Test ledgers are made in it, each in a
    folder of its own; ledgers of the working directory, ``ledger=`` and AGT_LEDGER_HEAD are not looked at.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.audit.estimates import Claimed, TestedClaim
from agt.audit.findings import Finding, counterexamples
from agt.audit.prediction import (
    LabelEvent,
    LabellingPair,
    Poisoner,
    aims,
    alike,
    between_roots,
    edited,
    event_of_sum,
    judged,
    most_telling,
    nothing_to_tell,
)
from agt.data.dataset import UNLABELLED, DataError, Records
from agt.errors import CheckError, ConfigError
from agt.ledger.book import Population
from agt.ledger.ledger import UNANSWERED, Exhausted, Ledger
from agt.mechanisms.claims import Accounting, Counting, Labelling, totals_of
from agt.mechanisms.composition import Allowance, ApproximateDP, Cost, GaussianDP, Guarantee, Lot, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.models.model import fit
from agt.numeric import UP, SystemRandomness, gaussian_epsilon
from agt.relations import RELATIONS
from agt.settings import ComputeConfig, schema, validate
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.releasing.ledgers import ProtectedPeople
from agt_cli.releasing.payer import LedgerPayer, NoLedger
from agt_cli.releasing.release import MechanismConfig, ReleaseRequest, TotalConfig, release_file
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import gone_of
from agt_cli.runs.prepare import Prepared, RunSettings, prepare, write_trained
from agt_cli.runs.queries import LINES, OpenedRun, TrainedRun

SILENT = Console(json=True, quiet=True)  # nothing that is drawn is said
TEST_DELTA = 0.01  # of a test ledger for Gaussian releases
MAX_DELTAS = 0.2  # of the answers on one test ledger, added up
TEST_ANSWERS = 8  # that a small budget holds
MAX_QUERIES = 1000  # natural ones that are looked at
DELTA_MUST_SAVE = 0.95  # of a total without a delta: one with a delta that is no less is not attacked as well
DRAWN = (
    "labels about the real data were drawn as agt predict draws them; nobody was told them: they lay in a folder of this "
    "audit alone, which was removed, so they spend nothing, and no ledger of yours was opened"
)
TRIALS = (
    "trials are distinct questions, as a repeated one is told its stored answer: rows that differ from the chosen query in "
    "their last digits, of which both models were checked to see the same"
)
OWNER = "for the data owner alone: pairs and queries were searched in the private data"


# -- test ledgers and neighbouring runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenedAnswers:
    """What one call of the release path gave.

    Attributes:
        labels: [n] int64; ``UNANSWERED`` where the budget held no more. Private: for counting, never for showing.
        refused: what was said of those, or of all of them; empty: all were answered.
        claim: what was said to be guaranteed of each.
    """

    labels: np.ndarray
    refused: str
    claim: str = ""


@dataclass
class Stage:
    """A scratch folder.

    Attributes:
        folder: the folder.
        compute: as in the command's configuration.
        accounting, counting: of every release.
    """

    folder: Path
    compute: Any
    accounting: Accounting
    counting: Counting
    _calls: int = field(default=0, init=False)

    @classmethod
    @contextmanager
    def below(cls, place: Path, config: Mapping[str, Any]) -> Iterator["Stage"]:
        """Make one below a folder, and remove it at the end.

        Args:
            config: of the audit: its compute, accounting and counting.

        Raises:
            ConfigError: nothing can be written there.
        """
        try:
            folder = Path(mkdtemp(prefix=".stage-", dir=place))
        except OSError as error:
            raise ConfigError(
                f"audit.scratch={place}: neighbouring runs and test ledgers cannot be written there ({error.strerror}): "
                "give a folder on a local disk that can be written"
            ) from None
        try:
            accounting, counting = config.get("accounting", "rigorous"), config.get("counting", "distance")
            yield cls(folder, config.get("compute"), accounting, counting)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def train(self, config: Mapping[str, Any], prepared: Prepared, settings: RunSettings) -> OpenedRun:
        """Train a run as ``agt train`` does, write its record, and open that; raises as training does."""
        with RunRecord(self._next("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run by its folder alone, as ``agt predict`` does for queries that are brought along."""
        config = {"run": str(run), "digest": digest, "inputs": str(LINES), "compute": self.compute}
        with RunRecord(self._next("open"), "predict", self._config) as record:
            return TrainedRun.of(config).open(record, SILENT)

    def ask(self, opened: OpenedRun, mechanism: Mechanism, queries: np.ndarray, ledger: Ledger | None) -> OpenedAnswers:
        """Release labels of queries [n, ...] as ``agt predict`` does, drawn by the operating system.

        Args:
            ledger: that pays; None: none does, as of what is not proved.
        """
        asked = replace(opened, queries=_named(queries))
        given = {name: value for name, value in asdict(mechanism).items() if value is not None}
        config, folder = MechanismConfig(type(mechanism), given, TotalConfig()), self._next("predict")
        refused, claim = "", ""
        try:
            with RunRecord(folder, "predict", self._config) as record:
                payer = NoLedger() if ledger is None else LedgerPayer(ledger)
                request = ReleaseRequest(config, self.accounting, self.counting, asked, payer, record, SILENT)
                claim = release_file(request, SystemRandomness())["claim"]
        except Exhausted as error:
            refused = str(error)
        except CheckError as error:
            refused, claim = str(error), error.result.get("claim", "")
        labels = _read(folder / "labels.csv", opened.dataset.classes, len(queries))
        shutil.rmtree(folder)
        return OpenedAnswers(labels, refused, claim)

    @contextmanager
    def ledger(self, opened: OpenedRun, allowance: Allowance) -> Iterator[Ledger]:
        """A new ledger that admits the run's data."""
        subject = ProtectedPeople.of_finished(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, allowance)
        with Ledger.create(self._next("ledger") / "audit.ledger", population, tables=[subject.table]) as ledger:
            yield ledger

    def drawn(self, opened: OpenedRun, mechanism: Mechanism, queries: np.ndarray, payable: bool) -> np.ndarray:
        """[n] labels of queries, each a question of its own, on as few fresh test ledgers as hold them.

        Args:
            payable: a ledger takes it: the guarantee is proved.

        Raises:
            CheckError: a ledger with room for all of them refused one.
        """
        if not payable:
            return self.ask(opened, mechanism, queries, None).labels
        guarantee, parts = mechanism.guarantee, []
        for start in range(0, len(queries), most_of(guarantee, len(queries))):
            some = queries[start : start + most_of(guarantee, len(queries))]
            with self.ledger(opened, room_for(guarantee, len(some))) as ledger:
                answers = self.ask(opened, mechanism, some, ledger)
            if answers.refused:
                raise CheckError(f"a test ledger with room for {len(some)} labels refused some: {answers.refused}")
            parts.append(answers.labels)
        return np.concatenate(parts)

    def _next(self, name: str) -> Path:
        self._calls += 1
        return self.folder / f"{name}-{self._calls}"

    @property
    def _config(self) -> dict[str, Any]:
        return {"output_dir": str(self.folder), "compute": self.compute}


def most_of(guarantee: Guarantee, wanted: int) -> int:
    """How many answers one test ledger pays for: those whose deltas add up to little."""
    if not isinstance(guarantee, ApproximateDP):
        return wanted
    return max(1, min(wanted, int(MAX_DELTAS / guarantee.delta)))


def room_for(guarantee: Guarantee, size: int) -> Allowance:
    """A budget that holds so many releases in one lot, and hardly more.

    Raises:
        ConfigError: none does.
    """
    cost = Lot(guarantee, size).cost
    if isinstance(guarantee, PureDP):
        allowance = Allowance(float(cost.pure))
    elif isinstance(guarantee, GaussianDP):
        allowance = Allowance(gaussian_epsilon(math.sqrt(cost.square) * (1 + UP), TEST_DELTA), TEST_DELTA, 0.0)
    else:
        allowance = Allowance(float(cost.pure), min(0.99, 1.01 * float(cost.leak)), 1.0)
    if allowance.fitting(Cost(), guarantee, size) < size:
        raise ConfigError(f"audit.trials: no budget holds {size} releases, each {guarantee}: ask for fewer")
    return allowance


def _named(queries: np.ndarray) -> Records:
    names = np.array([f"q{row}" for row in range(len(queries))])
    labels, private = np.full(len(queries), UNLABELLED), np.zeros(len(queries), dtype=bool)
    return Records(queries, labels, names, names.copy(), private)


def _read(path: Path, classes: tuple[str, ...], count: int) -> np.ndarray:
    labels = np.full(count, UNANSWERED)
    if path.exists():
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        index = {name: label for label, name in enumerate(classes)}
        labels[[int(name[1:]) for name in table["record_id"]]] = [index[name] for name in table["label"]]
    return labels


# -- what the ledger counts ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counters:
    """Test ledgers on both sides of a pair.

    Attributes:
        stage: where.
        sides: the run with the unit, and the one without.
        mechanism: that answers.
        queries: [n, ...], at least 2 ``TEST_ANSWERS`` distinct ones.
    """

    stage: Stage
    sides: tuple[OpenedRun, OpenedRun]
    mechanism: Mechanism
    queries: np.ndarray

    def findings(self) -> list[Finding]:
        """Each rule, on both sides."""
        books = [self._book(side) for side in self.sides]
        return [
            self._finding(
                "the ledger is debited exactly what is claimed", [one[0] for one in books], "a call with queries twice"
            ),
            self._finding(
                "a repeated question is answered as before, and free", [one[1] for one in books], "the same call again"
            ),
            self._finding(
                "a second mechanism's cost is added to the first's",
                [one[2] for one in books],
                "the same queries under another budget per query",
            ),
            self._refusals(),
        ]

    def _book(self, side: OpenedRun) -> tuple[int, int, int]:
        """Differences from what was claimed: (of the debit; of the repeat; of the second mechanism's debit)."""
        once, guarantee, other = self.queries[:TEST_ANSWERS], self.mechanism.guarantee, self._other
        calls = np.concatenate([once, once[: TEST_ANSWERS // 2]])
        one, two = Lot(guarantee, TEST_ANSWERS).cost, Lot(other.guarantee, TEST_ANSWERS).cost
        with self.stage.ledger(
            side, _wide(room_for(guarantee, TEST_ANSWERS), room_for(other.guarantee, TEST_ANSWERS))
        ) as ledger:
            first = self.stage.ask(side, self.mechanism, calls, ledger)
            debited = _different(
                ledger.book.spent != one,
                first.labels[: TEST_ANSWERS // 2] != first.labels[TEST_ANSWERS:],
                str(guarantee) not in first.claim,
            )
            again = self.stage.ask(side, self.mechanism, calls, ledger)
            repeated = _different(ledger.book.spent != one, again.labels != first.labels)
            self.stage.ask(side, other, once, ledger)
            added = _different(ledger.book.spent != one.plus(two))
            ledger.verify()
        return debited, repeated, added

    @cached_property
    def _other(self) -> Mechanism:
        """The same mechanism at half the budget."""
        halved = {name: value / 2 for name, value in self.mechanism.guarantee.parameters.items() if name in ("eps", "mu")}
        return type(self.mechanism)(**asdict(self.mechanism) | halved)

    def _refusals(self) -> Finding:
        """Exhaust a small budget on both sides."""
        guarantee, wanted = self.mechanism.guarantee, self.queries[: 2 * TEST_ANSWERS]
        allowance = room_for(guarantee, TEST_ANSWERS)
        held = allowance.fitting(Cost(), guarantee, len(wanted))
        seen = []
        for side in self.sides:
            with self.stage.ledger(side, allowance) as ledger:
                first = self.stage.ask(side, self.mechanism, wanted, ledger)
                then = self.stage.ask(side, self.mechanism, wanted[held:], ledger)
                seen.append((first.labels == UNANSWERED, then.labels == UNANSWERED, ledger.book.spent))
        due = np.arange(len(wanted)) >= held
        wrong = [_different(first != due, ~then, spent != Lot(guarantee, held).cost) for first, then, spent in seen]
        return self._finding(
            "which questions are refused follows from the counter alone",
            wrong,
            f"{len(wanted)} questions on a budget of {held}, then the refused ones again",
        )

    def _finding(self, claim: str, wrong: Sequence[int], attack: str) -> Finding:
        many = sum(wrong)
        return counterexamples(
            f"{self.mechanism.name}: the ledger of agt predict", claim, f"{attack}, with the unit and without it",
            f"{len(wrong)} test ledgers of their own", "differences", float(many),
            f"{claim}: {f'{many} differences' if many else 'so it was, on both sides'}", "a single one",
        )  # fmt: skip


def _different(*wrong: bool | np.ndarray) -> int:
    return sum(int(np.sum(each)) for each in wrong)


def _wide(one: Allowance, other: Allowance) -> Allowance:
    """A budget that holds what each of two holds, together."""
    return Allowance(2 * (one.eps + other.eps), min(0.99, one.delta + other.delta), one.leaks)


# -- the audit -----------------------------------------------------------------------------------------------------------


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
    pair: LabellingPair
    query: np.ndarray
    event: LabelEvent
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

    def check(self, given: AuditInputs) -> None:
        """Refuse what needs no data to be refused."""
        if given.run is None:
            raise ConfigError("run: a value is required; give run=FOLDER of a finished agt train, or run=latest")
        if given.config.get("mechanism") is None:
            raise ConfigError("mechanism: give what answers, mechanism=randomized_response mechanism.eps=1 say")
        config = given.mechanism()
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

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Find pairs and queries, draw on both sides of each, and count."""
        trained = TrainedRun.of({**given.config, "inputs": None})
        opened = trained.open(record, console)
        natural = opened.queries.features
        if given.config.get("inputs") is not None:
            natural = TrainedRun.of(given.config).open(record, console).queries.features
        room = record.folder if self.scratch is None else Path(self.scratch)
        with Stage.below(room, given.config) as stage:
            return _Audit(self, given, opened, _some(natural, given.seed), stage, console).audited()


def composed(guarantee: Guarantee, queries: int) -> list[tuple[Claimed, str]]:
    """What is claimed of queries together, and in words: by each composition that says less than those before."""
    if isinstance(guarantee, GaussianDP):
        both = GaussianDP(guarantee.mu * math.sqrt(queries))
        return [(Claimed.of(both), f"{both}")]
    first, *others = totals_of(guarantee, queries, 0.0)
    kept = [first, *(total for total in others if total.eps < DELTA_MUST_SAVE * first.eps)]
    return [(Claimed("epsilon", total.eps, total.delta), f"{total}") for total in kept]


def _some(queries: np.ndarray, seed: int) -> np.ndarray:
    """At most ``MAX_QUERIES``, in memory."""
    rows = np.arange(len(queries))
    if len(rows) > MAX_QUERIES:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MAX_QUERIES, replace=False))
    return np.stack([np.asarray(queries[row], dtype=np.float64) for row in rows.tolist()])


class _Audit:
    """One audit at work."""

    def __init__(
        self,
        config: PredictionAudit,
        given: AuditInputs,
        opened: OpenedRun,
        natural: np.ndarray,
        stage: Stage,
        console: Console,
    ) -> None:
        self.config, self.given, self.opened, self.natural = config, given, opened, natural
        self.stage, self.console, self.rng = stage, console, np.random.default_rng(given.seed)
        self.missing = list[str]()
        mechanism = given.mechanism().mechanism(opened.model.problem.classes, 1)
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
        config = self.config
        found = Poisoner(self.opened.model, self.natural, config.poisons, config.retrainings).search()
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
            pair = LabellingPair(*map(self._labelling, sides))
            queries = self.natural if natural is None else natural
            if chosen:
                found = between_roots(pair, self.natural, self.rng)
                queries = found if len(found) else queries
            at, event = most_telling(pair, queries, self.claimed, self.config.trials, self.given.confidence)
            scenes.append(Scene(adversary, sides, pair, queries[at : at + 1], event))
        return max(scenes, key=lambda scene: (self._expected(scene.event), scene.event.hit - scene.event.alarm))

    def _expected(self, event: LabelEvent) -> float:
        return event.expected(self.claimed, self.config.trials, self.given.confidence, self.events)

    def _distinct(self, pair: LabellingPair) -> list[np.ndarray]:
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
            return [nothing_to_tell(attacked) for attacked, _ in attacks]
        queries = alike(scene.pair, scene.query, config.trials, self.rng)
        having, lacking = (self.stage.drawn(side, self.mechanism, queries, self.claim.proved) for side in scene.sides)
        if len(np.unique(np.concatenate([having, lacking]))) == 1:
            return [nothing_to_tell(attacked, f"{len(having):,} labels a side, all the same") for attacked, _ in attacks]
        return [judged(attacked, event, having, lacking) for attacked, event in attacks]

    def _attack(self, scene: Scene, claim: str, claimed: Claimed) -> TestedClaim:
        subject = f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        return TestedClaim(subject, claim, scene.adversary, "", claimed, self.given.confidence, self.events)

    def _row(self, scene: Scene, made: list[Finding]) -> dict[str, object]:
        """Of the table: what each adversary reached."""
        row: dict[str, object] = {"adversary": scene.adversary, "poisons": scene.poisons, "measure": self.claimed.measure}
        row |= {"claimed": self.claimed.value, "this pair": scene.event.loss(self.claimed), "found": made[0].found}
        for finding, (claimed, _) in zip(made[1:], self.totals, strict=True):
            name = f"{self.config.together} together" + (f", delta {claimed.delta:.2g}" if claimed.delta else "")
            row |= {f"claimed of {name}": finding.claimed, f"found of {name}": finding.found}
        return row | {"outcome": " / ".join(dict.fromkeys(finding.outcome.value for finding in made))}
