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

Labels are released as in agt_audit/release_sandbox.py.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from agt.data.records import Records
from agt.errors import ConfigError, DataError, counted
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.labelling import AnyLabelling
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.totals import totals_of_labels
from agt.relations import RELATIONS
from agt.release import judge_labelling
from agt.settings import ComputeConfig, schema, validate
from agt_audit.claims import Claimed, TestedClaim
from agt_audit.events import AnswerEvent, event_of_sum
from agt_audit.influence import influential_units, unit_edited
from agt_audit.job import SILENT, Audited, AuditInputs, AuditKind, counted_progress
from agt_audit.kind_settings import PredictionAuditSettings
from agt_audit.lines import points_between_labels
from agt_audit.pairs import AnyPair, ChosenQuery, choose_query, pair_of, similar_queries
from agt_audit.release_sandbox import ReleaseSandbox
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.prepare import Prepared, RunSettings, prepare
from agt_cli.runs.queries import OpenedRun, TrainedRun

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


def tried_note(neighbours: int, queries: int) -> str:
    """Return a sentence that says among how many datasets and queries the attack was chosen."""
    datasets = counted(neighbours, "neighbouring dataset")
    return (
        f"the attack was chosen among {datasets} and {queries:,} queries from the data, with "
        "further queries between the two models. This audit shows nothing about other people's "
        "records, nor about other queries"
    )


def untested_because_equal(claim: TestedClaim, effort: str = "nothing was drawn") -> Finding:
    """Return the finding of an untested claim: both models release the same labels.

    Args:
        claim: the claim.
        effort: what was drawn, in words.
    """
    meaning = "the two models answer all tested queries alike, so nothing could be tested"
    return replace(claim, effort=effort).finding(Outcome.UNTESTED, meaning)


@dataclass(frozen=True)
class PlannedAttack:
    """The models, the query and the event of an attack, chosen before anything is drawn.

    Attributes:
        pairs_tried: from how many pairs of runs this one was chosen.
        sides: the run with the unit, and the run without it.
        pair: the models of these runs, with the mechanism.
        chosen: the query, and the event about a single answer that is counted.
    """

    pairs_tried: int
    sides: tuple[OpenedRun, OpenedRun]
    pair: AnyPair
    chosen: ChosenQuery


@schema
class PredictionAudit(PredictionAuditSettings, AuditKind):
    """Attacks ``agt predict`` with its mechanism and ledger.

    Attributes:
        trials: N, how many labels are drawn from each side.
        together: Q, how many answers make one trial in the test of the composed guarantee.
        targets: how many records of the data are left out of training, one at a time.
    """

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
        with TemporaryDirectory(
            dir=record.folder, prefix=".stage-", ignore_cleanup_errors=True
        ) as folder:
            sandbox = ReleaseSandbox(Path(folder), given.config)
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
    """Return the privacy claims that composition gives for several queries, each as a sentence.

    There is one claim for Gaussian guarantees. Otherwise the first claim is that of basic
    composition; others are included if their epsilon is below 95 % of the first one.

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
        console: the console, which shows progress.

    Attributes:
        mechanism: the mechanism, with the budget of one query.
        claimed: the claimed loss of one answer.
        claim: the claim of one answer, as ``agt predict`` makes it.
        totals: the claims about several answers together, each with its sentence.
        confidence: the confidence level of each bound. The bounds about a single answer and about
            each of ``totals`` share the error probability.

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
        attack = self._plan_attack()
        findings = self._make_attack(attack)
        notes = [DRAWN, TRIALS, tried_note(attack.pairs_tried, len(self.own_queries))]
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

        Those come first that are likely to move an answer on a line between queries; others are
        drawn.

        Args:
            records: the run's training records.

        Raises:
            ConfigError: no record is private.
        """
        private = np.flatnonzero(~records.public)
        if not len(private):
            raise ConfigError(
                f"run={self.opened.trained.finished.folder}: every training record is public, so "
                "there is nothing to attack. Audit a run with private records"
            )
        model = self.opened.model
        points = points_between_labels(model, self.own_queries, self.config.targets, self.rng)
        units = [*influential_units(model, points), *self.rng.permutation(records.units[private])]
        distinct_units = list(dict.fromkeys(units))[: self.config.targets]
        return [int(np.argmax(records.units == unit)) for unit in distinct_units]

    def _train_without_unit(self, base: Prepared, records: Records, row: int) -> OpenedRun | None:
        """Train a run on the data without a unit, which is left out as erased records are.

        If edits of the relation change two members, another record is added (``unit_edited``).

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
            return self._train_on(base, unit_edited(self.opened.stored.problem, records, row))
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
            differing = pair.chosen_queries(self.own_queries, self.rng)
            queries = np.concatenate([self.own_queries, differing])
            chosen = choose_query(pair, queries, self.claimed, trials, self.confidence)
            attacks.append(PlannedAttack(len(pairs), sides, pair, chosen))
        return max(
            attacks,
            key=lambda attack: attack.chosen.event.strength(self.claimed, trials, self.confidence),
        )

    # -- draws
    # ----------------------------------------------------------------------------------------------

    def _make_attack(self, attack: PlannedAttack) -> list[Finding]:
        """Draw labels from both models, and return a finding about each claim of ``_claims``.

        Nothing is drawn if both models have the same probabilities of all labels.
        """
        claims = self._claims(attack)  # which fixes all events before anything is drawn
        event = attack.chosen.event
        if event.hit == event.alarm:
            return [untested_because_equal(claim) for claim, _ in claims]
        queries = similar_queries(attack.pair, attack.chosen.query, self.config.trials, self.rng)
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
        return [event.judge(claim, with_unit, without_unit) for claim, event in claims]

    def _claims(self, attack: PlannedAttack) -> list[tuple[TestedClaim, AnswerEvent]]:
        """Return the claims about one released label and about several, each with its event."""
        together = self.config.together
        claims = [(self._claim(self.claim.text, self.claimed), attack.chosen.event)]
        for claimed, sentence in self.totals:
            event = event_of_sum(
                attack.chosen.event,
                together,
                claimed,
                self.config.trials // together,
                self.confidence,
            )
            claim = self._claim(f"{together} queries together: {sentence}", claimed)
            claims.append((replace(claim, together=together), event))
        return claims

    def _claim(self, claim: str, claimed: Claimed) -> TestedClaim:
        """Return a privacy claim of the release in the form in which an audit tests it.

        Args:
            claim: the claim, as a sentence.
            claimed: the claimed bound on the privacy loss.
        """
        subject = (
            f"agt predict mechanism={self.mechanism.name}, {self.mechanism.guarantee} per query"
        )
        return TestedClaim(subject, claim, ATTACKER, "", claimed, self.confidence)
