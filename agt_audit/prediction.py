"""agt audit prediction: the whole of agt predict, on runs of neighbouring datasets with test
ledgers.

The attacker chooses among queries from the data and queries between the decision boundaries of both
models (Chadha et al. 2024). The unit that is left out has the largest influence on a query from the
data (``influences`` in agt_audit/pairs.py).

Formal guarantees
    * The event ("the label is one of S", or "at least t of Q labels are") is computed from both
      models' evidence, before anything is drawn (Lemma 2 of docs/proofs/attack_bounds.md).
    * Trials are queries that differ in their last digits, because an identical query would get its
      stored label. On both sides they have the label and the evidence of the chosen query, which is
      checked. The bound would hold even if the release treated them differently: the rates of each
      query satisfy the claim, which is linear in them, so the mean rates do, too; and a count of
      trials with different rates has lighter tails than the binomial of the same mean (Hoeffding
      1956).

What is drawn here is not published, so no ledger of the user is charged. Answers are written into a
folder within the audit's own record, which is removed when the audit ends. If the process is
killed, the folder stays; its name begins with a dot, and it is too deep to be listed as a run. Test
ledgers are created in this folder. Ledgers of the working directory, ``ledger=`` and
AGT_LEDGER_HEAD are not read.
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
from typing import Any

import numpy as np
import pandas as pd

from agt.certificates.vote_costs import count_votes
from agt.data.ids import CONTENT
from agt.data.records import Records
from agt.errors import CheckError, ConfigError, DataError
from agt.ledger.book import Population
from agt.ledger.ledger import Ledger
from agt.ledger.payer import LedgerPayer, NoPayer
from agt.mechanisms.budget import Allowance, Cost
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.labelling import AnyLabelling
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism, MechanismConfig
from agt.mechanisms.totals import totals_of_labels
from agt.models.fitting import fit
from agt.models.model import Model
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.release import ReleaseTerms, judge_labelling
from agt.release_settings import MAX_TOTAL_EPS
from agt.settings import Accounting, ComputeConfig, Counting, TotalConfig, schema, validate
from agt.training.ensemble import assign_shards
from agt.training.settings import EnsembleConfig
from agt_audit.estimates import Claimed, TestedClaim
from agt_audit.events import AnswerEvent, event_of_sum
from agt_audit.job import SILENT, Audited, AuditInputs, AuditKind, counted_progress
from agt_audit.kind_settings import PredictionAuditSettings
from agt_audit.neighbours import attack_records, labels_of, other_label, with_added, without
from agt_audit.pairs import AnyPair, influences, pair_of
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.releasing.file import release_file
from agt_cli.releasing.ledgers import people_of_run
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.prepare import Prepared, RunSettings, prepare, write_trained
from agt_cli.runs.queries import OpenedRun, TrainedRun

# how far trials may lie from the chosen query, divided by its largest feature; of these distances,
# the first is used at which enough queries get the same answers
SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64  # queries that are tried at one distance
MIN_SHARE_ALIKE = 0.9  # of these, the share that must get the same answers
NAMES_AT_ONCE = 64  # names whose shards are computed together


# -- which query
# --------------------------------------------------------------------------------------------------


def choose_query(
    pair: AnyPair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float
) -> tuple[int, AnswerEvent]:
    """Choose the query whose event has the largest expected lower bound on the loss.

    Of equal bounds (all may be 0), the larger advantage decides, and then the lower row.

    Args:
        pair: the two models.
        queries: [n, ...] the queries to choose from, at least one.
        claimed: the claim, whose measure the bound has.
        trials: how many trials there are on each side.
        confidence: the probability with which the bound holds.

    Returns:
        The row of the query, and its event.
    """
    # queries with the same evidence have the same event, which is computed once
    evidence, first = np.unique(pair.evidence(queries), axis=1, return_index=True)
    events = pair.events(evidence)

    def strength(index: int) -> tuple[float, float, int]:
        event = events[index]
        bound = event.expected(claimed, trials, confidence)
        return bound, event.hit - event.alarm, -first[index]

    best = max(range(len(events)), key=strength)
    return int(first[best]), events[best]


def similar_queries(
    pair: AnyPair, query: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return distinct queries with the same labels and evidence as a query, [count, ...] float64.

    They differ from it, and from each other, in their last digits.

    Args:
        pair: the two models, on both of which labels and evidence are the same.
        query: [1, ...] the query.
        count: how many queries to make.
        rng: draws the digits.

    Raises:
        ConfigError: not enough such queries were found, even very close to the query.
    """
    query = np.asarray(query, dtype=np.float64)
    size = max(float(np.abs(query).max()), 1e-300)
    evidence = pair.evidence(query)

    def make(scale: float, tried: int) -> tuple[np.ndarray, float]:
        """Draw ``tried`` queries; return those with the same evidence, and their share."""
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


def judge_answers(
    claim: TestedClaim, event: AnswerEvent, with_unit: np.ndarray, without_unit: np.ndarray
) -> Finding:
    """Count an event in the answers of both sides, and return the verdict about a claim.

    Args:
        claim: the claim; sentences about the event and the numbers of trials are added to it.
        event: the event, which was fixed before the answers were drawn.
        with_unit: [n] answers of the model with the unit.
        without_unit: [n] answers of the model without it.
    """
    mistakes = event.mistakes(with_unit, without_unit)
    parts = [f"{len(with_unit):,} labels were drawn from each of the two models"]
    if event.answers > 1:
        parts.append(
            f"the labels were counted in {mistakes.trials_with:,} trials of {event.answers} "
            "labels each"
        )
    attack = f"{claim.attack}; {event.sentence}"
    return replace(claim, attack=attack, effort="; ".join(parts)).judge(mistakes)


def untested_because_equal(claim: TestedClaim, effort: str = "nothing was drawn") -> Finding:
    """Return the finding of a claim that is untested, because both models give the same answers.

    Args:
        claim: the claim.
        effort: what was drawn, in words.
    """
    meaning = "the two models answer all tested queries alike, so nothing could be tested"
    return replace(claim, effort=effort).finding(Outcome.UNTESTED, meaning)


# -- neighbours
# --------------------------------------------------------------------------------------------------


def edited(problem: Problem, records: Records, row: int) -> Records:
    """Return the training records of a neighbouring dataset, without the unit of one record.

    If one edit of the relation can change two members of an ensemble, a copy of the record is added
    in the unit's place, with another label and a name that belongs to another shard.

    Args:
        problem: the run's problem.
        records: the run's training records.
        row: the row of the record.
    """
    remaining = without(records, records.units == records.units[row])
    if RELATIONS[problem.settings.relation.name].members_changed_per_edit == 1:
        return remaining
    ensemble = problem.settings.ensemble
    shard = int(assign_shards(records.units[[row]], ensemble)[0])
    other_shard = (shard + 1) % ensemble.members
    label = other_label(problem.dataset.target, records.labels[row])
    some_ids = records.ids[:NAMES_AT_ONCE].tolist()
    ids_are_hashes = all(CONTENT.fullmatch(str(name)) for name in some_ids)
    name = next(names_in_shard(other_shard, ensemble, ids_are_hashes))
    features = records.features[[row]]
    added = attack_records(features, np.array([label]), np.array([name]), like=records)
    return with_added(remaining, added)


def names_in_shard(shard: int, ensemble: EnsembleConfig, hashes: bool = False) -> Iterator[str]:
    """Yield names that the public keyed hash assigns to a shard, without end.

    Args:
        shard: the index of the shard.
        ensemble: assigns units to shards.
        hashes: whether the names look like hashes of a record's content, as the ids of the run's
            records do. An attacker who varies a record's last digits can choose among such ids.
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


def deciding_records(
    model: Model, records: Records, queries: np.ndarray, max_rows: int
) -> list[int]:
    """Return rows of private records that are likely to change the answer to a query.

    Each row is of the record with the largest influence on a query whose label is close to a
    change; the closest query comes first. For ensembles and votes, only queries are used whose
    label one member decides. For numbers, records with a large influence and a large error are
    returned.

    Args:
        model: the run's model.
        records: the run's training records.
        queries: [n, ...] the queries.
        max_rows: the largest number of rows to return.

    Returns:
        Row numbers, among which one record may be several times; empty if no label is decided by
        one member.
    """
    if model.number_votes is not None:
        influence = influences(model, records, queries).max(axis=0)
        influence = influence * np.abs(records.labels - model.predict(records.features))
        influence[records.public] = 0
        strongest: list[int] = np.argsort(-influence, kind="stable")[:max_rows].tolist()
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
    for index in np.argsort(distance, axis=None, kind="stable")[:max_rows].tolist():
        member, query = divmod(index, distance.shape[1])
        rows = np.flatnonzero((shard_of_row == member) & ~records.public)
        if np.isfinite(distance[member, query]) and len(rows):
            one_query = queries[query : query + 1]
            influence = influences(members[member], records.take(rows), one_query)[0]
            rows_found.append(int(rows[int(np.argmax(influence))]))
    return rows_found


def _distance_to_change(margins: np.ndarray) -> np.ndarray:
    """Return how far each query is from another label, [n]; smaller is closer.

    Args:
        margins: one member's margins at n queries: [1, n] for two classes, otherwise [classes, n].
    """
    if len(margins) == 1:
        return np.abs(margins[0])
    return margins.max(axis=0)


def _decided_by_member(margins: np.ndarray, classes: int) -> np.ndarray:
    """Return whether a vote's winner changes if a member gives its second label, [T, n] bool.

    Args:
        margins: the margins of T members at n queries: [T, 1, n] for two classes, otherwise
            [T, classes, n].
        classes: how many classes there are.
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


TEST_BUDGET = Allowance(MAX_TOTAL_EPS / 2, 0.99, 0.5)  # of each test ledger
MAX_QUERIES = 1000  # queries from the data that are examined
ATTACKER = "an attacker takes the record from the run's data and chooses the query freely"
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
# --------------------------------------------------------------------------------------------------


class ReleaseSandbox:
    """A temporary folder in which runs are trained and labels are released as by the commands.

    Args:
        folder: the folder, which exists.
        config: the configuration of the audit, of which compute, accounting and counting are used.
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
    def in_new_folder(cls, parent: Path, config: Mapping[str, Any]) -> Iterator["ReleaseSandbox"]:
        """Create a sandbox in a new folder within ``parent``, and remove the folder at the end.

        Raises:
            ConfigError: the folder cannot be created.
        """
        try:
            folder = Path(mkdtemp(prefix=".stage-", dir=parent))
        except OSError as error:
            reason = error.strerror
            raise ConfigError(
                f"audit.scratch={parent}: the audit cannot write into this folder ({reason}). "
                "Give a writable folder on a local disk"
            ) from None
        try:
            yield cls(folder, config)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def train(
        self, config: Mapping[str, Any], prepared: Prepared, settings: RunSettings
    ) -> OpenedRun:
        """Train a run as ``agt train`` does, write its run folder, and open it.

        Args:
            config: the configuration that the run folder records.
            prepared: the data to train on.
            settings: the settings of the training.

        Raises:
            AgtError: training refuses the data.
        """
        with RunRecord(self._next_folder("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run as ``agt predict`` does, without queries of its own.

        Args:
            run: the run's folder.
            digest: the digest that the run must have; None: any.
        """
        config = {
            "run": str(run),
            "digest": digest,
            "inputs": str(STANDARD_INPUT),
            "compute": self.compute,
        }
        with RunRecord(self._next_folder("open"), "predict", self.config) as record:
            return TrainedRun.from_config(config).open(record, SILENT)

    def ask(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        ledger: Ledger | None,
    ) -> tuple[np.ndarray, str]:
        """Release answers to queries as ``agt predict`` does, and read them from its files.

        Args:
            opened: the run.
            mechanism: the mechanism that draws the answers.
            queries: [n, ...] the queries.
            ledger: the ledger that pays; None: none does, as for a guarantee that is not proved.

        Returns:
            The answers [n], labels or numbers, which are private; where the ledger refused one, it
            is ``unlabelled`` of the target. And the message of the refusal; "": all were answered.
        """
        target = opened.dataset.target
        unlabelled = np.full(len(queries), target.unlabelled)
        names = np.array([f"q{row}" for row in range(len(queries))])
        is_public = np.zeros(len(queries), dtype=bool)
        records = Records(queries, unlabelled, names, names.copy(), is_public)
        with_queries = replace(opened, queries=records)
        settings = {name: value for name, value in asdict(mechanism).items() if value is not None}
        config = MechanismConfig(type(mechanism), settings, TotalConfig())
        folder = self._next_folder("predict")
        refused = ""
        try:
            self._release(with_queries, config, folder, ledger)
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
        self, opened: OpenedRun, config: MechanismConfig, folder: Path, ledger: Ledger | None
    ) -> None:
        """Release answers to the queries of an opened run into a new run folder.

        Other arguments as of ``ask``.

        Raises:
            CheckError: the ledger refused some of the answers; the others were written.
        """
        with RunRecord(folder, "predict", self.config) as record:
            trained = opened.trained.finished
            payer: LedgerPayer | NoPayer = NoPayer()
            if ledger is not None:
                payer = LedgerPayer(ledger, people_of_run(trained), trained.digest)
            terms = ReleaseTerms(
                conditions=opened.conditions,
                accounting=self.accounting,
                counting=self.counting,
                payer=payer,
            )
            release_file(PredictRequest(config, terms, payer, opened, record, SILENT, force=True))

    @contextmanager
    def ledger(self, opened: OpenedRun) -> Iterator[Ledger]:
        """Create a test ledger with ``TEST_BUDGET`` for the run's data, and close it at the end."""
        subject = people_of_run(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, TEST_BUDGET)
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
        """Release an answer to each query, paid for by new test ledgers, and return all, [n].

        Args:
            opened: the run.
            mechanism: the mechanism that draws the answers.
            queries: [n, ...] distinct queries, so that none gets a stored answer.
            payable: whether test ledgers pay; False: none does, because ledgers refuse a guarantee
                that is not proved.

        Raises:
            CheckError: a ledger whose budget covers all of its answers refused one.
        """
        if not payable:
            labels, _ = self.ask(opened, mechanism, queries, None)
            return labels
        affordable = TEST_BUDGET.max_lot_size(Cost(), mechanism.guarantee, len(queries))
        per_ledger = max(1, affordable)
        parts = []
        for start in range(0, len(queries), per_ledger):
            chunk = queries[start : start + per_ledger]
            with self.ledger(opened) as ledger:
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
        """Return the path of a folder that does not exist yet, within the sandbox."""
        return self.folder / f"{name}-{next(self.calls)}"


# -- the audit
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedAttack:
    """The models, the query and the event of an attack, chosen before anything is drawn.

    Attributes:
        sides: the run with the unit, and the run without it.
        pair: the models of these runs, with the mechanism.
        query: [1, ...] the query.
        event: the event about a single answer that is counted.
    """

    sides: tuple[OpenedRun, OpenedRun]
    pair: AnyPair
    query: np.ndarray
    event: AnswerEvent


@schema
class PredictionAudit(PredictionAuditSettings, AuditKind):
    """Attacks ``agt predict`` with its mechanism and ledger.

    Attributes:
        trials: N, how many labels are drawn from each side.
        together: Q, how many answers make one trial in the test of the composed guarantee.
        targets: how many records of the data are left out of training, one at a time.
        scratch: a folder on a local disk for neighbouring runs and test ledgers; None: the audit's
            own run folder.
    """

    def check(self, given: AuditInputs) -> None:
        """Check the run, the mechanism, its budget and the settings, before any data is read.

        Raises:
            ConfigError: one of them is missing or wrong; the error names the key.
        """
        super().check(given)
        self.check_kind_of_mechanism(given.mechanism().kind)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train neighbouring runs, draw answers of both sides, and count.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the data was changed, there are too few trials to contradict the claim, or
                no neighbouring run can be trained.
        """
        opened = TrainedRun.from_config({**given.config, "inputs": None}).open(record, console)
        queries = opened.queries.features
        if given.config.get("inputs") is not None:
            queries = given.open(record, console).queries.features
        rows = np.arange(len(queries))
        if len(rows) > MAX_QUERIES:
            rng = np.random.default_rng(given.seed)
            rows = np.sort(rng.choice(rows, MAX_QUERIES, replace=False))
        own_queries = np.asarray(queries[rows], dtype=np.float64)
        scratch = record.folder if self.scratch is None else Path(self.scratch)
        with ReleaseSandbox.in_new_folder(scratch, given.config) as sandbox:
            return _Audit(self, given, opened, own_queries, sandbox, console).carry_out()


def _check_has_table(mechanism: AnyMechanism) -> None:
    """Raise ConfigError if a mechanism adds noise to the vote counts of more than two classes.

    Such a mechanism has no table of probabilities, from which events are chosen.
    """
    if isinstance(mechanism, Mechanism) and mechanism.needs == "votes" and mechanism.classes > 2:
        raise ConfigError(
            f"mechanism={mechanism.name}: this audit cannot test noise on the votes of "
            f"{mechanism.classes} classes, because it computes probabilities from a table. Give a "
            "run with two classes, or type `agt audit replay`"
        )


def composed_claims(guarantee: Guarantee, queries: int) -> list[tuple[Claimed, str]]:
    """Return the claims about several queries together, each with its sentence.

    There is one for Gaussian guarantees. Otherwise the first claim is that of basic composition;
    others are included if their epsilon is below 95 % of the first one.

    Args:
        guarantee: the guarantee of each query.
        queries: how many queries are taken together.
    """
    if isinstance(guarantee, GaussianDP):
        total = GaussianDP(guarantee.mu * math.sqrt(queries))
        return [(Claimed.of(total), f"{total}")]
    first, *others = totals_of_labels(guarantee, queries, 0.0)
    # a claim with a further delta is attacked only if its epsilon is clearly smaller
    totals = [first, *(total for total in others if total.eps < 0.95 * first.eps)]
    return [(Claimed("epsilon", total.eps, total.delta), f"{total}") for total in totals]


class _Audit:
    """One audit of a run's releases.

    Args:
        config: the settings of this kind of audit.
        given: the settings that all kinds of audit share.
        opened: the run.
        own_queries: [n, ...] queries from the data.
        sandbox: where runs are trained and labels are released.
        console: for progress.

    Attributes:
        mechanism: the mechanism, with the budget of one query.
        claimed: the claimed loss of one answer.
        claim: the claim of one answer, as ``agt predict`` makes it.
        totals: the claims about several answers together, each with its sentence.
        confidence: of each bound. The bounds about a single answer and about each of ``totals``
            share the error probability.

    Raises:
        ConfigError: the trials are too few to contradict the claim.
    """

    def __init__(
        self,
        config: PredictionAudit,
        given: AuditInputs,
        opened: OpenedRun,
        own_queries: np.ndarray,
        sandbox: ReleaseSandbox,
        console: Console,
    ) -> None:
        self.config = config
        self.given = given
        self.opened = opened
        self.own_queries = own_queries
        self.sandbox = sandbox
        self.console = console
        self.rng = np.random.default_rng(given.seed)
        mechanism = given.mechanism().mechanism(opened.dataset.target.class_count, 1)
        _check_has_table(mechanism)
        assert isinstance(mechanism, Mechanism | LaplaceMean)  # ``check`` refused others
        self.mechanism = mechanism
        self.claimed = Claimed.of(mechanism.guarantee)
        self.claim = self._labelling(opened).claim
        self.totals = composed_claims(mechanism.guarantee, config.together)
        bounds = 1 + len(self.totals)
        self.confidence = 1 - (1 - given.confidence) / bounds
        self._check_trials()

    def _check_trials(self) -> None:
        """Raise ConfigError if no results of the trials could contradict the claim."""
        needed = self.claimed.needed(self.confidence)
        measure = self.claimed.measure
        claimed_value = self.claimed.value
        if self.config.trials < needed:
            raise ConfigError(
                f"audit.trials={self.config.trials} is too few to contradict the claimed {measure} "
                f"of {claimed_value:g} with confidence {self.confidence:g}: set "
                f"audit.trials={needed} or more"
            )

    def carry_out(self) -> Audited:
        """Choose an attack, make it, and return the findings."""
        findings = self._make_attack(self._plan_attack())
        notes = [DRAWN, TRIALS]
        if not self.claim.proved:
            notes.append(
                "no test ledger was charged, because the guarantee of this release is not "
                "proved (unproved=allow)"
            )
        finished = self.opened.trained.finished
        return Audited.of(finished, findings, notes, metrics={"trials": self.config.trials})

    def _labelling(self, opened: OpenedRun) -> AnyLabelling:
        """Return releases of a run's answers by the mechanism, judged as by ``agt predict``."""
        return judge_labelling(opened.model, self.mechanism, self.given.release_terms(opened))

    @cached_property
    def settings(self) -> RunSettings:
        """The run's settings, with the threads and the device with which it was trained.

        A model's bits depend on these, so neighbours must be trained in the same way.
        """
        trained = self.opened.trained
        compute = validate(ComputeConfig, trained.finished.config.get("compute"), "compute")
        return replace(trained.settings, compute=compute)

    # -- pairs and queries
    # ----------------------------------------------------------------------------------------------

    def _plan_attack(self) -> PlannedAttack:
        """Train neighbouring runs, and choose models, query and event.

        Raises:
            ConfigError: no record is private, or training refused all neighbouring datasets.
        """
        finished = self.opened.trained.finished
        with_unit = self.sandbox.open(finished.folder, finished.digest)
        records = self.opened.dataset.train
        base = prepare(self.settings, SILENT, erased_predicate(finished))
        pairs: list[tuple[OpenedRun, OpenedRun]] = []
        targets = self._rows_to_leave_out(records)
        with counted_progress(self.console, "neighbouring runs", "run", len(targets)) as report:
            for done, row in enumerate(targets, 1):
                without_unit = self._train_without_unit(base, records, row)
                if without_unit is not None:
                    pairs.append((with_unit, without_unit))
                report(done)
        if not pairs:
            raise ConfigError(
                f"run={finished.folder}: training refused the data each time that one of the "
                "tried records was left out, so there is nothing to compare with. Raise "
                "audit.targets, or audit a run with more records"
            )
        return self._best_attack(pairs)

    def _rows_to_leave_out(self, records: Records) -> list[int]:
        """Return rows of private records whose units are left out, at most ``config.targets``.

        Those that are likely to decide a query from the data come first; others are drawn.

        Args:
            records: the run's training records.

        Raises:
            ConfigError: no record is private.
        """
        model = self.opened.model
        rows = deciding_records(model, records, self.own_queries, 4 * self.config.targets)
        private = np.flatnonzero(~records.public)
        if not len(private):
            raise ConfigError(
                f"run={self.opened.trained.finished.folder}: every training record is public, so "
                "there is nothing to attack. Audit a run with private records"
            )
        rows += self.rng.permutation(private).tolist()
        return list(dict.fromkeys(rows))[: self.config.targets]

    def _train_without_unit(self, base: Prepared, records: Records, row: int) -> OpenedRun | None:
        """Train a run on the data without a unit, which is left out as erased records are.

        If edits of the relation change two members, another record is added (``edited``).

        Args:
            base: the run's data.
            records: its training records.
            row: the row of a record of the unit.

        Returns:
            The run; None: the data cannot be read without the unit.
        """
        finished = self.opened.trained.finished
        settings = self.settings
        if RELATIONS[settings.relation.name].members_changed_per_edit > 1:
            return self._train_on(base, edited(self.opened.stored.problem, records, row))
        is_removed_before = erased_predicate(finished)
        unit = records.units[row]

        def is_removed(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            return is_removed_before(ids, units) | (units == unit)

        try:
            prepared = prepare(settings, SILENT, is_removed)
        except DataError:  # the unit has identical records beside it, or the last of a class
            return None
        return self.sandbox.train(finished.config, prepared, settings)

    def _train_on(self, base: Prepared, records: Records) -> OpenedRun:
        """Train a run on other training records, with the same test records."""
        dataset = replace(base.dataset, train=records, plane=None)
        prepared = replace(base, loaded=dataset, dataset=dataset)
        return self.sandbox.train(self.opened.trained.finished.config, prepared, self.settings)

    def _best_attack(self, pairs: list[tuple[OpenedRun, OpenedRun]]) -> PlannedAttack:
        """Return the attack with the largest expected lower bound on the loss.

        Args:
            pairs: runs with a unit and without it, at least one pair.
        """
        trials = self.config.trials
        attacks = []
        for sides in pairs:
            pair = pair_of(*map(self._labelling, sides))
            chosen = pair.chosen_queries(self.own_queries, self.rng)
            queries = np.concatenate([self.own_queries, chosen])
            row, event = choose_query(pair, queries, self.claimed, trials, self.confidence)
            attacks.append(PlannedAttack(sides, pair, queries[row : row + 1], event))

        def strength(attack: PlannedAttack) -> tuple[float, float]:
            bound = attack.event.expected(self.claimed, trials, self.confidence)
            return bound, attack.event.hit - attack.event.alarm

        return max(attacks, key=strength)

    # -- draws
    # ----------------------------------------------------------------------------------------------

    def _make_attack(self, attack: PlannedAttack) -> list[Finding]:
        """Draw answers of both sides, and return the findings about ``_claims``, in their order.

        Nothing is drawn if both sides have the same probabilities of all answers.
        """
        claims = self._claims(attack)  # which fixes all events before anything is drawn
        if attack.event.hit == attack.event.alarm:
            return [untested_because_equal(claim) for claim, _ in claims]
        queries = similar_queries(attack.pair, attack.query, self.config.trials, self.rng)
        is_payable = self.claim.proved
        labels_of_sides = [
            self.sandbox.draw_labels(side, self.mechanism, queries, is_payable)
            for side in attack.sides
        ]
        with_unit, without_unit = labels_of_sides
        if len(np.unique(np.concatenate([with_unit, without_unit]))) == 1:
            effort = (
                f"{len(with_unit):,} labels were drawn from each of the two models, and all of "
                "them were the same"
            )
            return [untested_because_equal(claim, effort) for claim, _ in claims]
        return [judge_answers(claim, event, with_unit, without_unit) for claim, event in claims]

    def _claims(self, attack: PlannedAttack) -> list[tuple[TestedClaim, AnswerEvent]]:
        """Return the claim about one answer and those about several, each with its event."""
        together = self.config.together
        claims = [(self._claim(self.claim.text, self.claimed), attack.event)]
        for claimed, sentence in self.totals:
            event = event_of_sum(
                attack.event,
                together,
                claimed,
                self.config.trials // together,
                self.confidence,
            )
            claim = self._claim(f"{together} queries together: {sentence}", claimed)
            claims.append((replace(claim, together=together), event))
        return claims

    def _claim(self, claim: str, claimed: Claimed) -> TestedClaim:
        """Return a claim that is to be tested.

        Args:
            claim: the claim, as a sentence.
            claimed: the claimed loss.
        """
        subject = (
            f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        )
        return TestedClaim(subject, claim, ATTACKER, "", claimed, self.confidence)
