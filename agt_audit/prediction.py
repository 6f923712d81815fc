"""agt audit prediction: agt predict end to end, on neighbouring runs and test ledgers.

Two adversaries attack: one asks natural queries, the other chooses them between the decision lines
of both models (Chadha et al. 2024). The guarantee is the same for both. The unit that is left out
has most influence on a natural query (``influences`` in agt_audit/pairs.py).

Formal guarantees
    * The event, "the label is one of S" or "at least t of Q labels are", follows from both models'
      evidence, before anything is drawn (Lemma 2 of docs/proofs/attack_bounds.md).
    * Trials are queries that differ in their last digits, because an identical one gets its stored
      label. They were checked to have the query's label and evidence on both sides. If the release
      treated them differently all the same, the bound would hold: each query's rates satisfy the
      claim, which is linear in them, so their means do; and a count of unlike trials has lighter
      tails than the binomial of the same mean (Hoeffding 1956).

No ledger pays for what is drawn here, because nobody sees it: answers lie in a folder below the
audit's own record, which is removed when the audit ends. If the process is killed, the folder
stays; its name begins with a dot, and it lies too deep to be listed as a run. Test ledgers are made
in it; ledgers of the working directory, ``ledger=`` and AGT_LEDGER_HEAD are not read.
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
from agt_audit.neighbours import attack_records, labels_of, other_label, with_added, without
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

# how far trials lie from their query, over its largest feature; the first that suits is taken
SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64  # queries of one scale that are looked at
MIN_SHARE_ALIKE = 0.9  # of the probed queries, before more are made at that scale
NAMES_AT_ONCE = 64  # that are tried for a shard


# -- which query
# --------------------------------------------------------------------------------------------------


def most_telling(
    pair: AnyPair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float
) -> tuple[int, AnswerEvent]:
    """Return the query at which trials are expected to show most, and its event.

    Of queries that show as much, it is the first.

    Args:
        pair: the two models.
        queries: [n, ...].
        claimed: in which measure.
        trials: how many there are on each side.
        confidence: of the bound.
    """
    # queries of the same evidence have the same event, so each evidence is looked at once
    evidence, first = np.unique(pair.evidence(queries), axis=1, return_index=True)
    events = pair.events(evidence)

    def strength(index: int) -> tuple[float, float, int]:
        event = events[index]
        bound = event.expected(claimed, trials, confidence, 1)
        return bound, event.hit - event.alarm, -first[index]

    best = max(range(len(events)), key=strength)
    return int(first[best]), events[best]


def alike(pair: AnyPair, query: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return queries that both models treat as they treat one query, [count, ...] float64.

    They differ from it, and from each other, in their last digits.

    Args:
        pair: the two models.
        query: [1, ...].
        count: how many.
        rng: of the digits.

    Raises:
        ConfigError: the models treat even the nearest queries differently.
    """
    query = np.asarray(query, dtype=np.float64)
    size = max(float(np.abs(query).max()), 1e-300)
    evidence = pair.evidence(query)

    def make(scale: float, tried: int) -> tuple[np.ndarray, float]:
        """Return those of some queries that have the same evidence, and their share."""
        shift = rng.uniform(-1, 1, size=(tried, *query.shape[1:]))
        queries = query + scale * size * shift
        same = (pair.evidence(queries) == evidence).all(axis=0)
        return queries[same], float(same.mean())

    for scale in SCALES:
        _, share_alike = make(scale, PROBES)
        if share_alike < MIN_SHARE_ALIKE:
            continue
        queries, _ = make(scale, math.ceil(1.3 * count))
        if len(np.unique(queries[:count], axis=0)) == count:
            return queries[:count]
    raise ConfigError(
        "audit.trials: each trial needs a query of its own, which differs from the chosen query "
        "only in the last digits and gets the same answers. Not enough such queries were found: "
        "give another seed=NUMBER"
    )


# -- what was found
# --------------------------------------------------------------------------------------------------


def judged(
    attacked: TestedClaim, event: AnswerEvent, with_unit: np.ndarray, without_unit: np.ndarray
) -> Finding:
    """Return what labels drawn on each side say of a claim.

    Args:
        attacked: the claim; the event and the number of trials are added to its words.
        event: that is counted.
        with_unit: [n] labels of the side with the unit.
        without_unit: [n] labels of the side without it.
    """
    mistakes = event.mistakes(with_unit, without_unit)
    parts = [f"{len(with_unit):,} labels were drawn from each of the two models"]
    if event.answers > 1:
        parts.append(
            f"the labels were counted in {mistakes.trials_with:,} trials of {event.answers} "
            "labels each"
        )
    if attacked.events > 1:
        parts.append(
            f"{attacked.events} bounds share the error probability, so all of them hold together"
        )
    # each bound has its share of the error, so that all hold with the confidence asked for
    confidence = 1 - (1 - attacked.confidence) / attacked.events
    alone = replace(
        attacked,
        attack=f"{attacked.attack}; {event.words}",
        effort="; ".join(parts),
        confidence=confidence,
        events=1,
    )
    return alone.judge(mistakes)


def nothing_to_tell(attacked: TestedClaim, effort: str = "nothing was drawn") -> Finding:
    """Return the finding of a claim that could not be tested, because both models answer alike.

    Args:
        attacked: the claim.
        effort: what was drawn, in words.
    """
    meaning = "the two models answer all tested queries alike, so nothing could be tested"
    return replace(attacked, effort=effort).finding(Outcome.UNTESTED, meaning)


# -- neighbours
# --------------------------------------------------------------------------------------------------


def edited(problem: Problem, records: Records, row: int) -> Records:
    """Return records without the unit of one record.

    If the relation replaces units, that record comes in its place, with another label and a name
    that an ensemble deals to another shard.

    Args:
        problem: of the run.
        records: all of them.
        row: the record.
    """
    remaining = without(records, records.units == records.units[row])
    if RELATIONS[problem.settings.relation.name].members_changed_per_edit == 1:
        return remaining
    ensemble = problem.settings.ensemble
    shard = int(assign_shards(records.units[[row]], ensemble)[0])
    other_shard = (shard + 1) % ensemble.members
    label = other_label(problem.dataset.target, records.labels[row])
    added = newcomer(records, records.features[[row]], label, other_shard, ensemble)
    return with_added(remaining, added)


def newcomer(
    records: Records, features: np.ndarray, label: float, shard: int, ensemble: EnsembleConfig
) -> Records:
    """Return a private record, a unit of its own, that an ensemble deals to a shard.

    Args:
        records: whose number formats it has, and whose kind of ids.
        features: [1, ...].
        label: its label.
        shard: where it goes.
        ensemble: how units are dealt to shards.
    """
    some_ids = records.ids[:NAMES_AT_ONCE].tolist()
    ids_are_hashes = all(CONTENT.fullmatch(str(name)) for name in some_ids)
    ids = np.array([next(names_into(shard, ensemble, ids_are_hashes))])
    return attack_records(features, np.array([label]), ids, like=records)


def names_into(shard: int, ensemble: EnsembleConfig, hashes: bool = False) -> Iterator[str]:
    """Yield names that the keyed hash deals to a shard, without end.

    Args:
        shard: which shard.
        ensemble: how units are dealt to shards.
        hashes: the names look like ids that follow from a record's content: whoever varies a
            record's last digits draws such ids.
    """
    for turn in count():
        numbers = range(turn * NAMES_AT_ONCE, (turn + 1) * NAMES_AT_ONCE)
        names = [f"replacing-{number}" for number in numbers]
        if hashes:
            names = [blake2b(name.encode(), digest_size=16).hexdigest() for name in names]
        shards = assign_shards(np.array(names), ensemble)
        for name, shard_of_name in zip(names, shards.tolist(), strict=True):
            if shard_of_name == shard:
                yield name


# -- who decides what
# --------------------------------------------------------------------------------------------------


def deciding_records(model: Model, records: Records, queries: np.ndarray, most: int) -> list[int]:
    """Return rows of private records with most influence on queries that are close to a change.

    The queries nearest to a change of label come first. Of an ensemble, and of votes, only queries
    count that one member decides. Of numbers, the records that are likely to move answers most are
    returned.

    Args:
        model: of the run.
        records: all of them.
        queries: [n, ...].
        most: how many rows are returned at most.
    """
    if model.number_votes is not None:
        influence = influences(model, records, queries).max(axis=0)
        influence = influence * np.abs(records.labels - model.predict(records.features))
        influence[records.public] = 0
        strongest: list[int] = np.argsort(-influence, kind="stable")[:most].tolist()
        return strongest
    ensemble = model.problem.settings.ensemble
    members = model.member_models
    if not model.problem.settings.ensembled:
        members = (model,) * ensemble.members
    shard_of_row = assign_shards(records.units, ensemble)
    margins = model.member_margins(queries)
    distance = np.stack([_distance_to_change(of_member) for of_member in margins])
    is_decided = _decided_by_member(margins, model.problem.classes)
    distance = np.where(is_decided, distance, np.inf)  # [T, n]
    rows_found: list[int] = []
    for index in np.argsort(distance, axis=None, kind="stable")[:most].tolist():
        member, query = divmod(index, distance.shape[1])
        rows = np.flatnonzero((shard_of_row == member) & ~records.public)
        if np.isfinite(distance[member, query]) and len(rows):
            one_query = queries[query : query + 1]
            influence = influences(members[member], records.take(rows), one_query)[0]
            rows_found.append(int(rows[int(np.argmax(influence))]))
    return rows_found


def _distance_to_change(margins: np.ndarray) -> np.ndarray:
    """Return how far each query is from another label, [n].

    Args:
        margins: [lines, n] of one member; one line for two classes.
    """
    if len(margins) == 1:
        return np.abs(margins[0])
    return margins.max(axis=0)


def _decided_by_member(margins: np.ndarray, classes: int) -> np.ndarray:
    """Return where the vote's winner changes if a member takes its second label, [T, n] bool.

    Args:
        margins: [T, lines, n] of T members.
        classes: how many labels there are.
    """
    labels = labels_of(margins)
    second = 1 - labels if classes == 2 else np.argsort(margins, axis=1)[:, -2]
    counts = count_votes(labels, classes)
    winner = counts.argmax(axis=0)
    queries = np.arange(labels.shape[1])
    decides = np.zeros(labels.shape, dtype=bool)
    for member in range(len(labels)):
        moved = counts.copy()
        moved[labels[member], queries] -= 1
        moved[second[member], queries] += 1
        decides[member] = moved.argmax(axis=0) != winner
    return decides


SILENT = Console(json=True, quiet=True)  # nothing that is drawn is said
TEST_DELTA = 0.01  # of a test ledger for Gaussian releases
MAX_DELTAS = 0.2  # the deltas of all answers on one test ledger add up to at most this
MAX_QUERIES = 1000  # natural queries that are looked at
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
"""What one call of the release path gave: [n] labels or numbers, private, for counting and never
for showing (``unlabelled`` of the target if the budget was spent); and why some were refused,
empty if all were answered.
"""


class ReleaseSandbox:
    """A scratch folder in which runs are trained and labels are released, as by the commands.

    Args:
        folder: the folder.
        config: of the audit: its compute, accounting and counting.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.compute = config.get("compute")
        self.calls = count(1)
        self.config = {"output_dir": str(folder), "compute": self.compute}
        self.accounting: Accounting = config.get("accounting", "rigorous")
        self.counting: Counting = config.get("counting", "distance")

    @classmethod
    @contextmanager
    def below(cls, place: Path, config: Mapping[str, Any]) -> Iterator["ReleaseSandbox"]:
        """Make a sandbox below a folder, and remove it at the end.

        Raises:
            ConfigError: nothing can be written there.
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
        """Train a run as ``agt train`` does, write its record, and open it.

        Raises:
            AgtError: training refuses the data.
        """
        with RunRecord(self._next_folder("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run by its folder alone.

        ``agt predict`` does so for queries that are brought along.
        """
        config = {"run": str(run), "digest": digest, "inputs": str(LINES), "compute": self.compute}
        with RunRecord(self._next_folder("open"), "predict", self.config) as record:
            return TrainedRun.of(config).open(record, SILENT)

    def ask(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        ledger: Ledger | None,
    ) -> Answers:
        """Release labels of queries as ``agt predict`` does, drawn by the operating system.

        Args:
            opened: the run.
            mechanism: that draws the labels.
            queries: [n, ...].
            ledger: that pays; None: none does, as for a guarantee that is not proved.
        """
        target = opened.dataset.target
        unlabelled = np.full(len(queries), target.unlabelled)
        names = np.array([f"q{row}" for row in range(len(queries))])
        is_public = np.zeros(len(queries), dtype=bool)
        asked = replace(
            opened, queries=Records(queries, unlabelled, names, names.copy(), is_public)
        )
        settings = {name: value for name, value in asdict(mechanism).items() if value is not None}
        config = MechanismConfig(type(mechanism), settings, TotalConfig())
        folder = self._next_folder("predict")
        refused = ""
        try:
            self._release(asked, config, folder, ledger)
        except CheckError as error:
            refused = str(error)
        labels = unlabelled.copy()
        if (folder / "labels.csv").exists():
            table = pd.read_csv(folder / "labels.csv", dtype=str, keep_default_na=False)
            rows = [int(name[1:]) for name in table["record_id"]]  # the names are q0, q1, ...
            labels[rows] = target.labels_of(table["label"].tolist())
        shutil.rmtree(folder)
        return labels, refused

    def _release(
        self, asked: OpenedRun, config: MechanismConfig, folder: Path, ledger: Ledger | None
    ) -> None:
        """Release labels of a run's queries into a folder.

        Raises:
            CheckError: the ledger refused some of them.
        """
        with RunRecord(folder, "predict", self.config) as record:
            trained = asked.trained.finished
            payer: LedgerPayer | NoPayer = NoPayer()
            if ledger is not None:
                payer = LedgerPayer(ledger, people_of_run(trained), trained.digest)
            terms = ReleaseTerms(
                conditions=asked.conditions,
                accounting=self.accounting,
                counting=self.counting,
                payer=payer,
            )
            release_file(PredictRequest(config, terms, payer, asked, record, SILENT, force=True))

    @contextmanager
    def ledger(self, opened: OpenedRun, allowance: Allowance) -> Iterator[Ledger]:
        """Make a new ledger that admits the run's data."""
        subject = people_of_run(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, allowance)
        path = self._next_folder("ledger") / "audit.ledger"
        with Ledger.create(path, population, tables=[subject.table]) as ledger:
            yield ledger

    def draw_labels(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        payable: bool,
    ) -> np.ndarray:
        """Return labels of queries, each a question of its own, [n].

        They are paid for by as few fresh test ledgers as hold them.

        Args:
            opened: the run.
            mechanism: that draws the labels.
            queries: [n, ...].
            payable: a ledger takes it: the guarantee is proved.

        Raises:
            CheckError: a ledger with room for all of them refused one.
        """
        if not payable:
            labels, _ = self.ask(opened, mechanism, queries, None)
            return labels
        guarantee = mechanism.guarantee
        per_ledger = most_of(guarantee, len(queries))
        parts = []
        for start in range(0, len(queries), per_ledger):
            chunk = queries[start : start + per_ledger]
            with self.ledger(opened, room_for(guarantee, len(chunk))) as ledger:
                labels, refused = self.ask(opened, mechanism, chunk, ledger)
            if refused:
                labels_paid = len(chunk)
                raise CheckError(
                    f"a test ledger refused some of {labels_paid} labels, although its budget "
                    f"covers all of them. This is an error in agt: please report it ({refused})"
                )
            parts.append(labels)
        return np.concatenate(parts)

    def _next_folder(self, name: str) -> Path:
        """Return a folder of a new name; it is not made."""
        return self.folder / f"{name}-{next(self.calls)}"


def most_of(guarantee: Guarantee, wanted: int) -> int:
    """Return how many answers one test ledger pays for: those whose deltas add up to little.

    Args:
        guarantee: of each answer.
        wanted: how many there are; it is never more than these.
    """
    if not isinstance(guarantee, ApproximateDP):
        return wanted
    return max(1, min(wanted, int(MAX_DELTAS / guarantee.delta)))


def room_for(guarantee: Guarantee, size: int) -> Allowance:
    """Return a budget that holds so many releases in one lot, and hardly more.

    Args:
        guarantee: of each release.
        size: how many releases.

    Raises:
        ConfigError: no budget does.
    """
    cost = Lot(guarantee, size).cost
    if isinstance(guarantee, PureDP):
        allowance = Allowance(float(cost.pure))
    elif isinstance(guarantee, GaussianDP):
        mu = math.sqrt(cost.square) * (1 + UP)
        allowance = Allowance(gaussian_epsilon(mu, TEST_DELTA), TEST_DELTA, 0.0)
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
    """One adversary's pair of models and query, found before anything is drawn.

    Attributes:
        adversary: in words.
        sides: the runs with the unit and without it.
        pair: the same as the mechanism sees them.
        query: [1, ...].
        event: that is counted, about a single label.
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
        trials: labels that are drawn for each side and adversary, N.
        together: answers that are counted together against the composed claim, Q.
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
        """Refuse what needs no data to be refused.

        Raises:
            ConfigError: by key.
        """
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
        """Find pairs and queries, draw on both sides of each, and count.

        Raises:
            ConfigError: too few trials, or no pair of models can be made.
        """
        opened = TrainedRun.of({**given.config, "inputs": None}).open(record, console)
        queries = opened.queries.features
        if given.config.get("inputs") is not None:
            queries = given.open(record, console).queries.features
        rows = np.arange(len(queries))
        if len(rows) > MAX_QUERIES:
            rng = np.random.default_rng(given.seed)
            rows = np.sort(rng.choice(rows, MAX_QUERIES, replace=False))
        natural = np.stack([np.asarray(queries[row], dtype=np.float64) for row in rows.tolist()])
        scratch = record.folder if self.scratch is None else Path(self.scratch)
        with ReleaseSandbox.below(scratch, given.config) as sandbox:
            return _Audit(self, given, opened, natural, sandbox, console).audited()


def composed(guarantee: Guarantee, queries: int) -> list[tuple[Claimed, str]]:
    """Return what is claimed of several queries together, and that in words.

    It has a claim for each composition theorem that claims clearly less than the first one.

    Args:
        guarantee: of each query.
        queries: how many are taken together.
    """
    if isinstance(guarantee, GaussianDP):
        total = GaussianDP(guarantee.mu * math.sqrt(queries))
        return [(Claimed.of(total), f"{total}")]
    first, *others = totals_of_labels(guarantee, queries, 0.0)
    # a delta must save something; otherwise its total is not attacked as well
    totals = [first, *(total for total in others if total.eps < 0.95 * first.eps)]
    return [(Claimed("epsilon", total.eps, total.delta), f"{total}") for total in totals]


class _Audit:
    """One audit at work.

    Args:
        config: of this kind of audit.
        given: the settings that all kinds share.
        opened: the run.
        natural: [n, ...] natural queries.
        sandbox: where runs are trained and labels are released.
        console: for progress.

    Attributes:
        notes: what could not be done, in words.
        claim: of one label, as the product makes it.
        totals: claims of several labels together, with their words.
        events: how many bounds share the error probability: of both adversaries, each of one label
            and of the totals.

    Raises:
        ConfigError: the trials are too few to contradict the claim.
    """

    def __init__(
        self,
        config: PredictionAudit,
        given: AuditInputs,
        opened: OpenedRun,
        natural: np.ndarray,
        sandbox: ReleaseSandbox,
        console: Console,
    ) -> None:
        self.config = config
        self.given = given
        self.opened = opened
        self.natural = natural
        self.sandbox = sandbox
        self.console = console
        self.rng = np.random.default_rng(given.seed)
        self.notes: list[str] = []
        mechanism = given.mechanism().mechanism(opened.dataset.target.class_count, 1)
        check_audited(mechanism)
        assert isinstance(mechanism, Mechanism | LaplaceMean)  # ``check`` refused others
        self.mechanism = mechanism
        self.claimed = Claimed.of(mechanism.guarantee)
        self.claim = self._labelling(opened).claim
        self.totals = composed(mechanism.guarantee, config.together)
        self.events = 2 * (1 + len(self.totals))
        self._check_trials()

    def _check_trials(self) -> None:
        """Raise ConfigError if the trials could not contradict the claim, whatever they show."""
        needed = self.claimed.needed(self.given.confidence, self.events)
        measure = self.claimed.measure
        claimed_value = self.claimed.value
        if self.config.trials < needed:
            raise ConfigError(
                f"audit.trials={self.config.trials} is too few to contradict the claimed {measure} "
                f"of {claimed_value:g} with confidence {self.given.confidence:g} over "
                f"{self.events} events: set audit.trials={needed} or more"
            )

    def audited(self) -> Audited:
        """Attack as both adversaries, and return what was found."""
        scenes = list(self._scenes())
        findings: list[Finding] = []
        rows = []
        with self.console.progress("releases on both sides", "adversary") as report:
            for done, scene in enumerate(scenes, 1):
                of_scene = self._attacked(scene)
                findings += of_scene
                rows.append(self._row(scene, of_scene))
                report(done, len(scenes), done, len(scenes))
        if not self.claim.proved:
            self.notes.append(
                "no test ledger was charged, because the guarantee of this release is not "
                "proved (unproved=allow)"
            )
        return Audited.of(
            self.opened.trained.finished,
            findings,
            (DRAWN, TRIALS, *self.notes),
            tables={"adversaries": pd.DataFrame(rows)},
            metrics={"trials": self.config.trials, "adversaries": len(scenes)},
        )

    def _labelling(self, opened: OpenedRun) -> AnyLabelling:
        """Return what answers queries of a run, judged as the product judges it."""
        return judge_labelling(opened.model, self.mechanism, self.given.release_terms(opened))

    @cached_property
    def settings(self) -> RunSettings:
        """The run's settings, with the threads and the device that it was trained with.

        The bits of a model depend on these.
        """
        trained = self.opened.trained
        compute = validate(ComputeConfig, trained.finished.config.get("compute"), "compute")
        return replace(trained.settings, compute=compute)

    # -- pairs and queries
    # ----------------------------------------------------------------------------------------------

    def _scenes(self) -> Iterator[Scene]:
        """Yield what each of the two adversaries attacks.

        Raises:
            ConfigError: no record is private, or training refused all neighbouring datasets.
        """
        finished = self.opened.trained.finished
        with_unit = self.sandbox.open(finished.folder, finished.digest)
        records = self.opened.dataset.train
        base = prepare(self.settings, SILENT, gone_of(finished))
        pairs: list[tuple[OpenedRun, OpenedRun]] = []
        with self.console.progress("neighbouring runs", "run") as report:
            targets = self._targets(records)
            for done, row in enumerate(targets, 1):
                without_unit = self._without_unit(base, records, row)
                if without_unit is not None:
                    pairs.append((with_unit, without_unit))
                report(done, len(targets), done, len(targets))
        if not pairs:
            raise ConfigError(
                f"run={finished.folder}: training refused the data each time that one of the "
                "tried records was left out, so there is nothing to compare with. Raise "
                "audit.targets, or audit a run with more records"
            )
        yield self._best_scene(
            "an attacker who takes the record and the query from the run's data",
            pairs,
            chosen=False,
        )
        yield self._best_scene(
            "an attacker who takes the record from the run's data and chooses the query freely",
            pairs,
            chosen=True,
        )

    def _targets(self, records: Records) -> list[int]:
        """Return rows of records that could decide a natural query, then any private ones.

        Raises:
            ConfigError: no record is private.
        """
        rows = deciding_records(self.opened.model, records, self.natural, 4 * self.config.targets)
        private = np.flatnonzero(~records.public)
        if not len(private):
            raise ConfigError(
                f"run={self.opened.trained.finished.folder}: every training record is public, so "
                "there is nothing to attack. Audit a run with private records"
            )
        rows += self.rng.permutation(private).tolist()
        return list(dict.fromkeys(rows))[: self.config.targets]

    def _without_unit(self, base: Prepared, records: Records, row: int) -> OpenedRun | None:
        """Return a run on data without a unit, read as erased records are left out.

        Args:
            base: the run's data.
            records: its training records.
            row: a record of the unit.

        Returns:
            The run; None: such data cannot be read.
        """
        finished = self.opened.trained.finished
        settings = self.settings
        if RELATIONS[settings.relation.name].members_changed_per_edit > 1:
            return self._train_on(base, edited(self.opened.kept.problem, records, row))
        is_removed_before = gone_of(finished)
        unit = records.units[row]

        def is_removed(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            return is_removed_before(ids, units) | (units == unit)

        try:
            prepared = prepare(settings, SILENT, is_removed)
        except DataError:  # a copy that is not the last, or the last of its class
            return None
        return self.sandbox.train(finished.config, prepared, settings)

    def _train_on(self, base: Prepared, records: Records) -> OpenedRun:
        """Return a run on other training records, with the same test records."""
        dataset = replace(base.dataset, train=records, plane=None)
        prepared = replace(base, loaded=dataset, dataset=dataset)
        return self.sandbox.train(self.opened.trained.finished.config, prepared, self.settings)

    def _best_scene(
        self, adversary: str, pairs: list[tuple[OpenedRun, OpenedRun]], chosen: bool
    ) -> Scene:
        """Return the pair and the query of which most is expected.

        Args:
            adversary: in words.
            pairs: runs with a unit and without it.
            chosen: the query is chosen freely; False: it is a natural one.
        """
        trials = self.config.trials
        confidence = self.given.confidence
        scenes = []
        for with_unit, without_unit in pairs:
            pair = pair_of(self._labelling(with_unit), self._labelling(without_unit))
            queries = self.natural
            if chosen:
                found = pair.chosen_queries(self.natural, self.rng)
                if len(found):
                    queries = found
            row, event = most_telling(pair, queries, self.claimed, trials, confidence)
            query = queries[row : row + 1]
            scenes.append(Scene(adversary, (with_unit, without_unit), pair, query, event))

        def strength(scene: Scene) -> tuple[float, float]:
            bound = scene.event.expected(self.claimed, trials, confidence, self.events)
            return bound, scene.event.hit - scene.event.alarm

        return max(scenes, key=strength)

    # -- draws
    # ----------------------------------------------------------------------------------------------

    def _attacked(self, scene: Scene) -> list[Finding]:
        """Draw on both sides, and return the finding of each claim.

        All events were fixed before. If both sides answer alike, nothing is drawn.
        """
        claims = self._claims(scene)
        if scene.event.hit == scene.event.alarm:
            return [nothing_to_tell(claim) for claim, _ in claims]
        queries = alike(scene.pair, scene.query, self.config.trials, self.rng)
        with_unit, without_unit = (
            self.sandbox.draw_labels(side, self.mechanism, queries, self.claim.proved)
            for side in scene.sides
        )
        if len(np.unique(np.concatenate([with_unit, without_unit]))) == 1:
            effort = (
                f"{len(with_unit):,} labels were drawn from each of the two models, and all of "
                "them were the same"
            )
            return [nothing_to_tell(claim, effort) for claim, _ in claims]
        return [judged(claim, event, with_unit, without_unit) for claim, event in claims]

    def _claims(self, scene: Scene) -> list[tuple[TestedClaim, AnswerEvent]]:
        """Return the claims about one label and about several, each with its event."""
        together = self.config.together
        claims = [(self._claim(scene, self.claim.text, self.claimed), scene.event)]
        for claimed, words in self.totals:
            event = event_of_sum(
                scene.event,
                together,
                claimed,
                self.config.trials // together,
                self.given.confidence,
                self.events,
            )
            claim = self._claim(scene, f"{together} queries together: {words}", claimed)
            claims.append((replace(claim, together=together), event))
        return claims

    def _claim(self, scene: Scene, claim: str, claimed: Claimed) -> TestedClaim:
        """Return a claim that is to be attacked by the scene's adversary."""
        subject = (
            f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        )
        return TestedClaim(
            subject, claim, scene.adversary, "", claimed, self.given.confidence, self.events
        )

    def _row(self, scene: Scene, findings: list[Finding]) -> dict[str, object]:
        """Return an adversary's row of the table.

        Args:
            scene: what was attacked.
            findings: of one label, then of the totals.
        """
        of_one_label, *of_totals = findings
        row: dict[str, object] = {
            "adversary": scene.adversary,
            "measure": self.claimed.measure,
            "claimed": self.claimed.value,
            "this pair": scene.event.loss(self.claimed),
            "found": of_one_label.found,
        }
        for finding, (claimed, _) in zip(of_totals, self.totals, strict=True):
            name = f"{self.config.together} together"
            if claimed.delta:
                name = f"{name}, delta {claimed.delta:.2g}"
            row[f"claimed of {name}"] = finding.claimed
            row[f"found of {name}"] = finding.found
        row["outcome"] = " / ".join(dict.fromkeys(finding.outcome.value for finding in findings))
        return row
