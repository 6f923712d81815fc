"""agt audit prediction: agt predict end to end, on neighbouring runs and test ledgers, by two
adversaries.

One looks at natural queries, the other chooses them between the decision lines of both models
(Chadha et al. 2024). The guarantee is the same for both. The record that is taken out is one of
most influence on a natural query (mechanism.py, ``influences``).

Formal guarantees
    The event, "the label is one of S" or "at least t of Q labels are", follows from what both
    models see of the query, before anything is drawn. The draws are independent, so that its rates
    are bounded by estimates.py.
    Trials are rows that differ from the query in their last digits (an identical one is told its
    stored label). They were checked to have the query's nominal label and evidence on both sides,
    so a mechanism treats them alike. Were the release to treat them otherwise all the same, the
    bound would hold: each row's rates satisfy the claim, which is linear in them (alpha + e^eps
    beta >= 1 - delta, or a supporting line of a Gaussian trade-off), hence so do the means over
    rows; and a count of unlike trials has lighter tails than the binomial of the same mean
    (Hoeffding 1956), so that the Clopper-Pearson limits, which are tails far below one half, cover
    those means.

    Nobody's ledger pays for what is drawn here, as nobody is told it: answers lie in this folder
    alone, below the audit's own record, and the folder is removed when the audit ends, however it
    ends. Only a process that is killed outright leaves it, until the next audit below the same
    folder removes it; its name begins with a dot and it lies too deep to be listed as a run. Test
    ledgers are made in it, each in a folder of its own; ledgers of the working directory,
    ``ledger=`` and AGT_LEDGER_HEAD are not looked at.
"""

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from agt.certificates.vote_costs import count_votes
from agt.data.ids import CONTENT
from agt.data.records import Records
from agt.errors import CheckError, ConfigError, DataError
from agt.ledger.book import Population
from agt.ledger.ledger import Ledger
from agt.ledger.payer import LedgerPayer, NoPayer
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.labelling import AnyLabelling
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.mechanisms.output import Output
from agt.mechanisms.totals import totals_of_labels
from agt.models.fitting import fit
from agt.models.model import Model
from agt.numeric import UP, gaussian_epsilon
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.release import ReleaseTerms, judge_labelling
from agt.settings import Accounting, ComputeConfig, Counting, TotalConfig, schema, validate
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt_audit.estimates import Claimed, TestedClaim
from agt_audit.events import AnswerEvent, event_of_sum
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.mechanism import check_audited
from agt_audit.neighbours import labels_of, other_label, with_added, without
from agt_audit.pairs import AnyPair, influences, pair_of
from agt_cli.command_settings.on_run import LINES
from agt_cli.releasing.file import release_file
from agt_cli.releasing.ledgers import people_of_run
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import gone_of
from agt_cli.runs.prepare import Prepared, RunSettings, prepare, write_trained
from agt_cli.runs.queries import OpenedRun, TrainedRun

SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64
MIN_SHARE_ALIKE = 0.9  # of the probed rows
NAMES_AT_ONCE = 64


# -- which query
# --------------------------------------------------------------------------------------------------


def most_telling(
    pair: AnyPair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float
) -> tuple[int, AnswerEvent]:
    """(the query at which trials are expected to show most, its event); the first of those that
    show as much.
    """
    seen = pair.evidence(queries)
    kinds, first = np.unique(seen, axis=1, return_index=True)
    events = pair.events(kinds)
    shown = [
        (event.expected(claimed, trials, confidence, 1), event.hit - event.alarm)
        for event in events
    ]
    best = max(range(len(events)), key=lambda at: (shown[at], -first[at]))
    return int(first[best]), events[best]


def alike(pair: AnyPair, query: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count, ...] float64 rows that differ from the query, and from each other, in their last
    digits, and of which both models see just what they see of it.

    Args:
        query: [1, ...].

    Raises:
        ConfigError: both models tell apart even the nearest rows.
    """
    query = np.asarray(query, dtype=np.float64)
    size, seen = max(float(np.abs(query).max()), 1e-300), pair.evidence(query)

    def rows(scale: float, many: int) -> tuple[np.ndarray, float]:
        made = query + scale * size * rng.uniform(-1, 1, size=(many, *query.shape[1:]))
        same = (pair.evidence(made) == seen).all(axis=0)
        return made[same], float(same.mean())

    for scale in SCALES:
        if rows(scale, PROBES)[1] >= MIN_SHARE_ALIKE:
            made, _ = rows(scale, math.ceil(1.3 * count))
            if len(np.unique(made[:count], axis=0)) == count:
                return made[:count]
    raise ConfigError(
        "audit.trials: each trial needs a query of its own, which differs from the chosen query "
        "only in the last digits and gets the same answers. Not enough such queries were found: "
        "give another seed=NUMBER"
    )


# -- what was found
# --------------------------------------------------------------------------------------------------


def judged(
    attacked: TestedClaim, event: AnswerEvent, having: np.ndarray, lacking: np.ndarray
) -> Finding:
    """What labels drawn on each side, [n] each, say of a claim.

    Args:
        attacked: what was; the event and the number of trials are added to its words.
    """
    mistakes = event.mistakes(having, lacking)
    parts = [f"{len(having):,} labels were drawn from each of the two models"]
    if event.answers > 1:
        parts.append(
            f"the labels were counted in {mistakes.having:,} trials of {event.answers} labels each"
        )
    if attacked.events > 1:
        parts.append(
            f"{attacked.events} bounds share the error probability, so all of them hold together"
        )
    # so that all of them hold with the confidence asked for
    each = 1 - (1 - attacked.confidence) / attacked.events
    told = replace(
        attacked,
        attack=f"{attacked.attack}; {event.words}",
        effort="; ".join(parts),
        confidence=each,
        events=1,
    )
    return told.judge(mistakes)


def nothing_to_tell(attacked: TestedClaim, effort: str = "nothing was drawn") -> Finding:
    """Of a claim that was not attacked, as both models have the same law of labels at every query
    that was looked at, or gave the same label every time.
    """
    nowhere = "the two models answer all tested queries alike, so nothing could be tested"
    return replace(attacked, effort=effort).finding(Outcome.UNTESTED, nowhere)


# -- neighbours
# --------------------------------------------------------------------------------------------------


def edited(problem: Problem, records: Records, row: int) -> Records:
    """Without the unit of a record; where the relation replaces units, with its first record under
    another label in its place, named so that an ensemble deals it to another shard.
    """
    gone = records.units == records.units[row]
    rest = without(records, gone)
    if RELATIONS[problem.settings.relation.name].members_changed_per_edit == 1:
        return rest
    ensemble = problem.settings.ensemble
    home = int(assign_shards(records.units[[row]], ensemble)[0])
    label = other_label(problem.dataset.target, records.labels[row])
    place = (home + 1) % ensemble.members
    return with_added(rest, newcomer(records, records.features[[row]], label, place, ensemble))


def newcomer(
    records: Records, features: np.ndarray, label: float, shard: int, ensemble: EnsembleConfig
) -> Records:
    """A private record, a unit of its own, that an ensemble deals to this shard; features [1,
    ...].
    """
    hashes = all(CONTENT.fullmatch(str(name)) for name in records.ids[:NAMES_AT_ONCE].tolist())
    ids = np.array([next(names_into(shard, ensemble, hashes))])
    features = np.asarray(features, dtype=records.features.dtype)
    return Records(
        features,
        np.array([label], dtype=records.labels.dtype),
        ids,
        ids.copy(),
        np.zeros(1, dtype=bool),
    )


def names_into(shard: int, ensemble: EnsembleConfig, hashes: bool = False) -> Iterator[str]:
    """Names that the keyed hash deals to this shard, as many as are wanted.

    Args:
        hashes: they look like the ids that content has: whoever varies a record's last digits draws
            such ids.
    """
    for turn in count():
        tried = [f"replacing-{turn * NAMES_AT_ONCE + each}" for each in range(NAMES_AT_ONCE)]
        if hashes:
            tried = [blake2b(each.encode(), digest_size=16).hexdigest() for each in tried]
        home = assign_shards(np.array(tried), ensemble)
        yield from (each for each, at in zip(tried, home.tolist(), strict=True) if at == shard)


# -- who decides what
# --------------------------------------------------------------------------------------------------


def deciding_records(model: Model, records: Records, queries: np.ndarray, most: int) -> list[int]:
    """Rows of the private records that have most influence on the queries nearest to a change of
    label, the nearest first. Of an ensemble, and of votes, on those that one member decides alone.
    Of numbers, the records that are likely to move answers most.
    """
    if model.number_votes is not None:
        moved = influences(model, records, queries).max(axis=0)
        moved = moved * np.abs(records.labels - model.predict(records.features))
        moved[records.public] = 0
        strongest: list[int] = np.argsort(-moved, kind="stable")[:most].tolist()
        return strongest
    ensemble = model.problem.settings.ensemble
    members = (
        model.member_models if model.problem.settings.ensembled else (model,) * ensemble.members
    )
    margins, home = model.member_margins(queries), assign_shards(records.units, ensemble)
    deciding = _deciding(margins, model.problem.classes)
    least = np.where(deciding, np.stack([_distance_to_change(each) for each in margins]), np.inf)
    made = list[int]()
    for place in np.argsort(least, axis=None, kind="stable")[:most].tolist():
        member, at = divmod(place, least.shape[1])
        rows = np.flatnonzero((home == member) & ~records.public)
        if np.isfinite(least[member, at]) and len(rows):
            moves = influences(members[member], records.take(rows), queries[at : at + 1])[0]
            made.append(int(rows[int(np.argmax(moves))]))
    return made


def _distance_to_change(margins: np.ndarray) -> np.ndarray:
    """[n] how far each query is from another label."""
    return np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)


def _deciding(margins: np.ndarray, classes: int) -> np.ndarray:
    """[T, n] bool: the winner changes if this member takes its second label instead.

    Of margins [T, lines, n].
    """
    labels = labels_of(margins)
    second = 1 - labels if classes == 2 else np.argsort(margins, axis=1)[:, -2]
    counts = count_votes(labels, classes)
    winner, decides, at = (
        counts.argmax(axis=0),
        np.zeros(labels.shape, dtype=bool),
        np.arange(labels.shape[1]),
    )
    for member in range(len(labels)):
        moved = counts.copy()
        moved[labels[member], at] -= 1
        moved[second[member], at] += 1
        decides[member] = moved.argmax(axis=0) != winner
    return decides


SILENT = Console(json=True, quiet=True)  # nothing that is drawn is said
TEST_DELTA = 0.01  # of a test ledger for Gaussian releases
MAX_DELTAS = 0.2  # of the answers on one test ledger, added up
MAX_QUERIES = 1000  # natural ones that are looked at
DRAWN = (
    "this audit drew labels about the real data as `agt predict` does, but published none: they "
    "were kept in a folder of this audit, which was deleted. So they spend no privacy budget, "
    "and none of your ledgers was opened"
)
TRIALS = (
    "each trial is a different query, because a repeated query would get its stored answer. The "
    "queries differ only in their last digits, and both models give the same evidence (stable "
    "distance or votes) for all of them"
)


# -- test ledgers and neighbouring runs
# ----------------------------------------------------------------------------------


Answers = tuple[np.ndarray, str]
"""What one call of the release path gave: [n] labels or numbers, ``unlabelled`` of the target where
the budget held no more, private, for counting and never for showing; what was said of those, or of
all of them, empty: all were answered.
"""


class Stage:
    """A scratch folder.

    Args:
        folder: the folder.
        config: of the audit: its compute, accounting and counting.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder, self.compute, self.calls = folder, config.get("compute"), count(1)
        self.config = {"output_dir": str(folder), "compute": self.compute}
        self.accounting: Accounting = config.get("accounting", "rigorous")
        self.counting: Counting = config.get("counting", "distance")

    @classmethod
    @contextmanager
    def below(cls, place: Path, config: Mapping[str, Any]) -> Iterator["Stage"]:
        """Make one below a folder, and remove it at the end.

        Raises ConfigError: nothing can be written there.
        """
        try:
            folder = Path(mkdtemp(prefix=".stage-", dir=place))
        except OSError as error:
            reason = error.strerror
            raise ConfigError(
                f"audit.scratch={place}: the audit cannot write into this folder ({reason}). "
                "Give a writable folder on a local disk"
            ) from None
        try:
            yield cls(folder, config)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def train(
        self, config: Mapping[str, Any], prepared: Prepared, settings: RunSettings
    ) -> OpenedRun:
        """Train a run as ``agt train`` does, write its record, and open that; raises as training
        does.
        """
        with RunRecord(self._next("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run by its folder alone, as ``agt predict`` does for queries that are
        brought along.
        """
        config = {"run": str(run), "digest": digest, "inputs": str(LINES), "compute": self.compute}
        with RunRecord(self._next("open"), "predict", self.config) as record:
            return TrainedRun.of(config).open(record, SILENT)

    def ask(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        ledger: Ledger | None,
    ) -> Answers:
        """Release labels of queries [n, ...] as ``agt predict`` does, drawn by the operating
        system.

        Args:
            ledger: that pays; None: none does, as of what is not proved.
        """
        names, private = (
            np.array([f"q{row}" for row in range(len(queries))]),
            np.zeros(len(queries), dtype=bool),
        )
        target = opened.dataset.target
        unlabelled = np.full(len(queries), target.unlabelled)
        named = Records(queries, unlabelled, names, names.copy(), private)
        asked = replace(opened, queries=named)
        given = {name: value for name, value in asdict(mechanism).items() if value is not None}
        config, folder = (
            MechanismConfig(type(mechanism), given, TotalConfig()),
            self._next("predict"),
        )
        refused = ""
        try:
            with RunRecord(folder, "predict", self.config) as record:
                trained = opened.trained.finished
                payer = (
                    NoPayer()
                    if ledger is None
                    else LedgerPayer(ledger, people_of_run(trained), trained.digest)
                )
                terms = ReleaseTerms(
                    conditions=asked.conditions,
                    accounting=self.accounting,
                    counting=self.counting,
                    payer=payer,
                )
                release_file(
                    PredictRequest(config, terms, payer, asked, record, SILENT, force=True)
                )
        except CheckError as error:
            refused = str(error)
        labels = np.full(len(queries), target.unlabelled)
        if (folder / "labels.csv").exists():
            table = pd.read_csv(folder / "labels.csv", dtype=str, keep_default_na=False)
            rows = [int(name[1:]) for name in table["record_id"]]
            labels[rows] = target.labels_of(table["label"].tolist())
        shutil.rmtree(folder)
        return labels, refused

    @contextmanager
    def ledger(self, opened: OpenedRun, allowance: Allowance) -> Iterator[Ledger]:
        """A new ledger that admits the run's data."""
        subject = people_of_run(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, allowance)
        with Ledger.create(
            self._next("ledger") / "audit.ledger", population, tables=[subject.table]
        ) as ledger:
            yield ledger

    def drawn(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        payable: bool,
    ) -> np.ndarray:
        """[n] labels of queries, each a question of its own, on as few fresh test ledgers as hold
        them.

        Args:
            payable: a ledger takes it: the guarantee is proved.

        Raises:
            CheckError: a ledger with room for all of them refused one.
        """
        if not payable:
            return self.ask(opened, mechanism, queries, None)[0]
        guarantee, parts = mechanism.guarantee, []
        for start in range(0, len(queries), most_of(guarantee, len(queries))):
            some = queries[start : start + most_of(guarantee, len(queries))]
            with self.ledger(opened, room_for(guarantee, len(some))) as ledger:
                labels, refused = self.ask(opened, mechanism, some, ledger)
            if refused:
                labels_paid = len(some)
                raise CheckError(
                    f"a test ledger refused some of {labels_paid} labels, although its budget "
                    f"covers all of them. This is an error in agt: please report it ({refused})"
                )
            parts.append(labels)
        return np.concatenate(parts)

    def _next(self, name: str) -> Path:
        return self.folder / f"{name}-{next(self.calls)}"


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
        allowance = Allowance(
            gaussian_epsilon(math.sqrt(cost.square) * (1 + UP), TEST_DELTA), TEST_DELTA, 0.0
        )
    else:
        allowance = Allowance(float(cost.pure), min(0.99, 1.01 * float(cost.leak)), 1.0)
    if allowance.max_lot_size(Cost(), guarantee, size) < size:
        raise ConfigError(
            f"audit.trials: no privacy budget covers {size} releases that are {guarantee} each. "
            "Give a smaller audit.trials"
        )
    return allowance


# -- the audit
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """One adversary's pair and query, both found before anything is drawn.

    Attributes:
        adversary: in words.
        sides: the runs with the unit and without it.
        pair: the same as the mechanism sees them.
        query: [1, ...].
        event: per label.
    """

    adversary: str
    sides: tuple[OpenedRun, OpenedRun]
    pair: AnyPair
    query: np.ndarray
    event: AnswerEvent


@schema
class PredictionAudit(AuditKind):
    """Attacks ``agt predict``, the mechanism and the ledger together.

    Attributes:
        trials: N, labels a side and adversary.
        together: Q, answers that are counted together against the composed claim.
        targets: natural records that are taken out in turn.
        scratch: a folder on a local disk for neighbouring runs and test ledgers; null: the audit's
            own.
    """

    trials: Annotated[int, Field(ge=10)] = 10_000
    together: Annotated[int, Field(ge=2)] = 4
    targets: Annotated[int, Field(ge=1)] = 3
    scratch: str | None = None

    name: ClassVar[str] = "prediction"

    def check(self, given: AuditInputs) -> None:
        """Refuse what needs no data to be refused."""
        given.check_run(inputs=True)
        config = given.mechanism()
        if config.kind.output is not Output.LABELS:
            label_mechanisms = " or ".join([*MECHANISMS, LaplaceMean.name])
            raise ConfigError(
                f"mechanism={config.kind.name}: `agt audit prediction` can only audit mechanisms "
                f"that release labels. Give mechanism={label_mechanisms}"
            )
        if str(given.config.get("inputs")) == str(LINES):
            raise ConfigError(
                "inputs=-: this audit chooses its own queries and does not read standard input. "
                "Leave inputs=- out, or give inputs=FILE with typical queries"
            )
        if self.together > self.trials:
            raise ConfigError(
                f"audit.together={self.together} exceeds audit.trials={self.trials}: set "
                f"audit.trials={self.together} or more"
            )
        if config.total.eps is not None and config.total.queries is None:
            raise ConfigError(
                "total.eps is divided among the queries: give their number too, with "
                "total.queries=NUMBER"
            )

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Find pairs and queries, draw on both sides of each, and count."""
        opened = TrainedRun.of({**given.config, "inputs": None}).open(record, console)
        natural = opened.queries.features
        if given.config.get("inputs") is not None:
            natural = given.open(record, console).queries.features
        rows = np.arange(len(natural))
        if len(rows) > MAX_QUERIES:
            rows = np.sort(
                np.random.default_rng(given.seed).choice(rows, MAX_QUERIES, replace=False)
            )
        natural = np.stack([np.asarray(natural[row], dtype=np.float64) for row in rows.tolist()])
        room = record.folder if self.scratch is None else Path(self.scratch)
        with Stage.below(room, given.config) as stage:
            return _Audit(self, given, opened, natural, stage, console).audited()


def composed(guarantee: Guarantee, queries: int) -> list[tuple[Claimed, str]]:
    """What is claimed of queries together, and in words: by each composition that says less than
    those before.
    """
    if isinstance(guarantee, GaussianDP):
        both = GaussianDP(guarantee.mu * math.sqrt(queries))
        return [(Claimed.of(both), f"{both}")]
    first, *others = totals_of_labels(guarantee, queries, 0.0)
    # a delta must save something: else its total is not attacked as well
    kept = [first, *(total for total in others if total.eps < 0.95 * first.eps)]
    return [(Claimed("epsilon", total.eps, total.delta), f"{total}") for total in kept]


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
        mechanism = given.mechanism().mechanism(opened.dataset.target.class_count, 1)
        check_audited(mechanism)
        assert isinstance(mechanism, Mechanism | LaplaceMean)  # ``check`` refused others
        self.mechanism, self.claimed = mechanism, Claimed.of(mechanism.guarantee)
        self.claim = self._labelling(opened).claim
        self.totals = composed(mechanism.guarantee, config.together)
        self.events = 2 * (1 + len(self.totals))
        needed = self.claimed.needed(given.confidence, self.events)
        measure = self.claimed.measure
        claimed_value = self.claimed.value
        if config.trials < needed:
            raise ConfigError(
                f"audit.trials={config.trials} is too few to contradict the claimed {measure} of "
                f"{claimed_value:g} with confidence {given.confidence:g} over {self.events} "
                f"events: set audit.trials={needed} or more"
            )

    def audited(self) -> Audited:
        """All of it."""
        scenes = list(self._scenes())
        findings = list[Finding]()
        rows = []
        with self.console.progress("releases on both sides", "adversary") as report:
            for done, scene in enumerate(scenes, 1):
                made = self._attacked(scene)
                findings += made
                rows.append(self._row(scene, made))
                report(done, len(scenes), done, len(scenes))
        if not self.claim.proved:
            self.missing.append(
                "no test ledger was charged, because the guarantee of this release is not "
                "proved (accounting=paper)"
            )
        metrics = {"trials": self.config.trials, "adversaries": len(scenes)}
        about = {"tables": {"adversaries": pd.DataFrame(rows)}, "metrics": metrics}
        return Audited.of(
            self.opened.trained.finished, findings, (DRAWN, TRIALS, *self.missing), **about
        )

    def _labelling(self, opened: OpenedRun) -> AnyLabelling:
        terms = ReleaseTerms(
            conditions=opened.conditions,
            accounting=self.stage.accounting,
            counting=self.stage.counting,
        )
        return judge_labelling(opened.model, self.mechanism, terms)

    @cached_property
    def settings(self) -> RunSettings:
        """The run's own, with the threads and the device that it was trained with: its bits
        depend on them.
        """
        trained = self.opened.trained
        compute = validate(ComputeConfig, trained.finished.config.get("compute"), "compute")
        return replace(trained.settings, compute=compute)

    # -- pairs and queries
    # ----------------------------------------------------------------------------------------------

    def _scenes(self) -> Iterator[Scene]:
        finished = self.opened.trained.finished
        having, records = (
            self.stage.open(finished.folder, finished.digest),
            self.opened.dataset.train,
        )
        base = prepare(self.settings, SILENT, gone_of(finished))
        made = list[tuple[OpenedRun, OpenedRun]]()
        with self.console.progress("neighbouring runs", "run") as report:
            targets = self._targets(records)
            for done, row in enumerate(targets, 1):
                lacking = self._without(base, records, row)
                made += [(having, lacking)] if lacking is not None else []
                report(done, len(targets), done, len(targets))
        if not made:
            raise ConfigError(
                f"run={finished.folder}: training refused the data each time that one of the "
                "tried records was left out, so there is nothing to compare with. Raise "
                "audit.targets, or audit a run with more records"
            )
        yield self._best(
            "an attacker who takes the record and the query from the run's data", made, chosen=False
        )
        yield self._best(
            "an attacker who takes the record from the run's data and chooses the query freely",
            made,
            chosen=True,
        )

    def _targets(self, records: Records) -> list[int]:
        """Rows of records that could decide a natural query; any private ones where none stands
        out.
        """
        found = deciding_records(self.opened.model, records, self.natural, 4 * self.config.targets)
        private = np.flatnonzero(~records.public)
        if not len(private):
            raise ConfigError(
                f"run={self.opened.trained.finished.folder}: every training record is public, so "
                "there is nothing to attack. Audit a run with private records"
            )
        found += self.rng.permutation(private).tolist()
        return list(dict.fromkeys(found))[: self.config.targets]

    def _without(self, base: Prepared, records: Records, row: int) -> OpenedRun | None:
        """A run on data without a unit, read as erased records are left out; None: such data
        cannot be read.
        """
        finished, settings = self.opened.trained.finished, self.settings
        if RELATIONS[settings.relation.name].members_changed_per_edit > 1:
            return self._trained(base, edited(self.opened.kept.problem, records, row))
        gone, unit = gone_of(finished), records.units[row]
        try:
            prepared = prepare(
                settings, SILENT, lambda ids, units: gone(ids, units) | (units == unit)
            )
        except DataError:  # a copy that is not the last, or the last of its class
            return None
        return self.stage.train(finished.config, prepared, settings)

    def _trained(self, base: Prepared, records: Records) -> OpenedRun:
        """A run on other records, beside the same test records."""
        dataset = replace(base.dataset, train=records, plane=None)
        prepared = replace(base, loaded=dataset, dataset=dataset)
        return self.stage.train(self.opened.trained.finished.config, prepared, self.settings)

    def _best(self, adversary: str, made: list[tuple[OpenedRun, OpenedRun]], chosen: bool) -> Scene:
        """The pair and the query of which most is expected."""
        scenes = []
        for sides in made:
            pair, queries = pair_of(*map(self._labelling, sides)), self.natural
            if chosen:
                found = pair.chosen_queries(self.natural, self.rng)
                queries = found if len(found) else queries
            at, event = most_telling(
                pair, queries, self.claimed, self.config.trials, self.given.confidence
            )
            scenes.append(Scene(adversary, sides, pair, queries[at : at + 1], event))
        hard = (self.claimed, self.config.trials, self.given.confidence, self.events)
        return max(
            scenes,
            key=lambda scene: (scene.event.expected(*hard), scene.event.hit - scene.event.alarm),
        )

    # -- draws
    # ----------------------------------------------------------------------------------------------

    def _attacked(self, scene: Scene) -> list[Finding]:
        """Draw on both sides, then ask each event; all were fixed before.

        Where both answer alike, nothing is drawn.
        """
        config, confidence = self.config, self.given.confidence
        attacks = [(self._attack(scene, self.claim.text, self.claimed), scene.event)]
        for claimed, words in self.totals:
            groups = config.trials // config.together
            event = event_of_sum(
                scene.event, config.together, claimed, groups, confidence, self.events
            )
            attack = self._attack(scene, f"{config.together} queries together: {words}", claimed)
            attacks.append((replace(attack, together=config.together), event))
        if scene.event.hit == scene.event.alarm:
            return [nothing_to_tell(attacked) for attacked, _ in attacks]
        queries = alike(scene.pair, scene.query, config.trials, self.rng)
        having, lacking = (
            self.stage.drawn(side, self.mechanism, queries, self.claim.proved)
            for side in scene.sides
        )
        if len(np.unique(np.concatenate([having, lacking]))) == 1:
            return [
                nothing_to_tell(
                    attacked,
                    f"{len(having):,} labels were drawn from each of the two models, and all of "
                    "them were the same",
                )
                for attacked, _ in attacks
            ]
        return [judged(attacked, event, having, lacking) for attacked, event in attacks]

    def _attack(self, scene: Scene, claim: str, claimed: Claimed) -> TestedClaim:
        subject = (
            f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        )
        return TestedClaim(
            subject, claim, scene.adversary, "", claimed, self.given.confidence, self.events
        )

    def _row(self, scene: Scene, made: list[Finding]) -> dict[str, object]:
        """Of the table: what each adversary reached."""
        row: dict[str, object] = {"adversary": scene.adversary, "measure": self.claimed.measure}
        row |= {
            "claimed": self.claimed.value,
            "this pair": scene.event.loss(self.claimed),
            "found": made[0].found,
        }
        for finding, (claimed, _) in zip(made[1:], self.totals, strict=True):
            name = f"{self.config.together} together" + (
                f", delta {claimed.delta:.2g}" if claimed.delta else ""
            )
            row |= {f"claimed of {name}": finding.claimed, f"found of {name}": finding.found}
        return row | {
            "outcome": " / ".join(dict.fromkeys(finding.outcome.value for finding in made))
        }
