"""A release of labels, a number, weights or constants: judged, then reserved, then drawn.

    release = LabelRelease.judged(model, features, mechanism, ReleaseTerms(payer=payer))
    release.claim.lines()              what will be guaranteed; nothing private was computed yet
    release.reserve()                  charged to the ledger, durably
    labels = release.draw()            only what was reserved
    release.reserved_claim.lines()     what is guaranteed of what was drawn

Formal guarantees
    * Judging reads only public values: settings, conditions, the number of queries, and which of
      them a ledger has answered before.
    * ``draw`` raises unless ``reserve`` returned before. Each can be called once.
    * Which queries are answered when a budget runs out depends only on their order, on earlier
      answers, and on the ledger's total.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.arrays import gathered, selected
from agt.errors import ConfigError
from agt.ledger.ledger import Exhausted
from agt.ledger.payer import NoPayer, Payer, Reservation
from agt.ledger.questions import Questions
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.judging import Voting, judge_claim
from agt.mechanisms.labelling import AnyLabelling, Labelling, evidence_of
from agt.mechanisms.laplace_mean import LaplaceMean, NumberLabelling
from agt.mechanisms.measurement import Measurement, TableConstants, TableValues
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.output import Output
from agt.mechanisms.planning import QueryEvidence
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.mechanisms.totals import claim_of_labels, total_of_weights
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.messages import Message
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.number_votes import NumberVotes
from agt.numeric import Randomness, SystemRandomness
from agt.release_settings import distances_of_numbers
from agt.settings import Accounting, Counting
from agt.training.loop import OnProgress, ignore_progress

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, kw_only=True)
class ReleaseTerms:
    """The public terms of a release: how it is judged, paid for and drawn.

    Attributes:
        conditions: the seven assumptions of the privacy proof (docs/reference.md, section 3), as
            assessed; None: the model's own.
        accounting: "rigorous" refuses a release if a required condition does not hold; "paper" also
            takes an ensemble's published vote, and says where nothing is proved. Weights are always
            judged as "rigorous".
        counting: what the evidence of a query counts: "distance": how many edits of the training
            data certainly leave its label; "index": how many values of a sparse grid of such
            numbers are certified.
        delta: the delta at which total privacy losses are shown; 0: one is chosen.
        payer: what pays for the release (a ledger, which debits it); by default nothing does, and
            the claim says so.
        randomness: the source of the noise; anything but ``SystemRandomness`` makes a simulation.
    """

    conditions: Sequence[Condition] | None = None
    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    delta: float = 0.0
    payer: Payer = field(default_factory=lambda: NoPayer(Uncounted("call")))
    randomness: Randomness = field(default_factory=SystemRandomness)

    def conditions_of(self, model: Model | NumberVotes) -> Sequence[Condition]:
        """Return the conditions of these terms, or the model's own if the terms have none."""
        return model.conditions if self.conditions is None else self.conditions


@dataclass(kw_only=True)
class Release(Generic[Drawn]):
    """One release: subclasses define how it is judged and what is drawn.

    Attributes:
        terms: the conditions, the accounting, the payer and the randomness of the release.
        claim: the privacy claim for each part of the release, such as each label.
        conditions: a to g, the assumptions of the privacy proof, as assessed for this release.
        requested: the number of parts, such as labels, that have to be paid for; 0: everything was
            released before.
        reservation: the releases that were paid for; None: ``reserve`` was not called yet.
        may_be_partial: fewer things than requested may be reserved and drawn.
    """

    may_be_partial: ClassVar[bool] = False

    terms: ReleaseTerms
    claim: Claim
    conditions: Sequence[Condition]
    requested: int = 1
    reservation: Reservation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if the terms name a ledger that cannot pay for this release.

        A ledger (the file of one population's budget) does not pay for a simulation, for a claim
        that is not proved, for a model that was trained with noise, or under another definition of
        neighbouring datasets than its own. ``claim`` is marked as simulated if the draws come from
        a seed.
        """
        payer = self.terms.payer
        self.claim = replace(self.claim, simulated=self.terms.randomness.simulated)
        if self.simulated and payer.name:
            # The ledger would remember labels that anybody who knows the seed can compute, and
            # would repeat them as private ones.
            raise ConfigError(
                Message(
                    "{config:ledger}={name}: this release is drawn from a seed, so it is only a "
                    "simulation, which no ledger counts: leave out {config:simulate} or "
                    "{config:ledger}",
                    name=payer.name,
                )
            )
        payer.check(self.claim)

    @property
    def simulated(self) -> bool:
        """Whether the noise is drawn from a seed, so that it can be predicted."""
        return self.claim.simulated

    @property
    def requested_claim(self) -> Claim:
        """The privacy claim of all requested releases, with their total privacy loss."""
        return self.claim

    @property
    def reserved_claim(self) -> Claim:
        """The privacy claim of all releases that were paid for, with their total privacy loss.

        Call ``reserve`` first; before, the ledger's account says that nothing was paid for.
        """
        return self.claim.with_account(self._account)

    @property
    def _account(self) -> Account | Uncounted | None:
        """The ledger that counts the release, or why none does; None: a simulation."""
        return self.terms.payer.account(self.reservation or Reservation(0))

    def reserve(self) -> Reservation:
        """Reserve budget for the requested releases, or for as many as the budget still covers.

        The ledger is debited durably before this returns. ``draw`` may then be called.

        Raises:
            Exhausted: the budget does not suffice for any of it.
            RuntimeError: the release was reserved before.
        """
        if self.reservation is not None:
            raise RuntimeError(
                "this release is already reserved (paid for), and cannot be reserved a second "
                "time: make a new release"
            )
        reservation = Reservation(0)
        if self.requested:
            reservation = self.terms.payer.reserve(self.claim, self.requested)
        self.reservation = reservation
        return reservation

    def draw(self, on_progress: OnProgress = ignore_progress) -> Drawn:
        """Draw the releases that ``reserve`` paid for. It can be called once.

        Args:
            on_progress: called while queries are certified.

        Raises:
            RuntimeError: nothing was reserved, less was reserved than this kind of release needs,
                or it was drawn before.
            AgtError: a solver missed its tolerance; nothing was drawn.
        """
        reservation = self.reservation
        if reservation is None:
            raise RuntimeError(
                "this release is not reserved (paid for) yet, so it cannot be drawn: call its "
                "method reserve() first"
            )
        if reservation.size < self.requested and not self.may_be_partial:
            raise RuntimeError(
                "the budget covered only a part of this release, so the release cannot be "
                "drawn: make one with fewer labels"
            )
        if not reservation.mark_drawn():  # True once, for the first caller in any thread
            raise RuntimeError(
                "this release was already drawn, and neither the release nor a copy of it can "
                "be drawn a second time: make a new release"
            )
        return self._draw(reservation, on_progress)

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> Drawn:
        """Draw what was reserved; ``draw`` has checked that this is allowed.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            reservation: the reservation that was paid for.
            on_progress: called while queries are certified.
        """
        raise NotImplementedError

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        """Return the expected accuracy of what is released on some queries; it is private.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            model: the model that the release is drawn from.
            evidence: the queries' true labels, and what mechanisms read of them.
            features: [n, ...] the same queries.
        """
        raise NotImplementedError


@dataclass(kw_only=True)
class LabelRelease(Release[Iterable[np.ndarray]]):
    """A release of one label for each query.

    A ledger remembers its answers: a query that was answered before gets the same label again,
    which costs nothing.

    ``draw`` returns the labels of all queries in their order, int64, as arrays of consecutive
    queries, n labels in all. A query that could not be paid for has ``UNANSWERED``. If no ledger
    remembers the labels, each array is drawn when it is asked for. ``draw`` raises AgtError if a
    solver missed its tolerance; nothing was drawn then.

    Attributes:
        labelling: the model and the mechanism. Labels are indices of classes; or, if they are
            numbers, sums that ``NumberVotes.mean_of`` turns into numbers.
        features: [n, ...] the queries, as the model takes them.
        questions: the queries that were answered before, and the new ones.
    """

    may_be_partial = True

    labelling: AnyLabelling
    features: np.ndarray
    questions: Questions

    @classmethod
    def judged(
        cls,
        model: Model,
        features: np.ndarray,
        mechanism: Mechanism | LaplaceMean,
        terms: ReleaseTerms,
    ) -> "LabelRelease":
        """Return a release of labels for queries, with the guarantee that may be claimed.

        Nothing private is computed, and nothing is paid for yet.

        Args:
            model: the model that answers.
            features: [n, ...] the queries, as the model takes them; they are taken to be
                public.
            mechanism: draws the labels; for as many classes as the model has.
            terms: the conditions, the accounting, the payer and the randomness of the release.

        Raises:
            ConfigError: the claim is refused, the mechanism or the queries do not fit the model, or
                ``terms.delta`` is less than the sum of the labels' own deltas.
            UnsoundError: a query is not finite in the model's precision.
        """
        release = cls.from_labelling(judge_labelling(model, mechanism, terms), features, terms)
        _ = release.requested_claim  # it raises ConfigError if terms.delta is too small
        return release

    @classmethod
    def from_labelling(
        cls, labelling: AnyLabelling, features: np.ndarray, terms: ReleaseTerms
    ) -> "LabelRelease":
        """Return a release of labels for queries, under a claim that was judged before.

        Args:
            labelling: the model, the mechanism, and the claim of each label.
            features: [n, ...] the queries, as the model takes them.
            terms: the payer and the randomness of the release.

        Raises:
            ConfigError: the queries do not fit the model.
            UnsoundError: a query is not finite in the model's precision.
        """
        labelling.model.check(features)
        questions = terms.payer.questions(labelling, features)
        return cls(
            terms=terms,
            claim=labelling.claim,
            conditions=terms.conditions_of(labelling.model),
            requested=len(questions.new_rows),
            labelling=labelling,
            features=features,
            questions=questions,
        )

    @property
    def rows_to_label(self) -> np.ndarray | range:
        """The row numbers of the queries that get a newly drawn label.

        Before ``reserve`` these are all that were not answered before; afterwards only those that
        were paid for, in the order of the file.
        """
        if self.reservation is None:
            return self.questions.new_rows
        return self.questions.new_rows[: self.reservation.size]

    @property
    def requested_claim(self) -> Claim:
        """The privacy claim of all labels that have to be paid for, with their total loss."""
        return self._claim_of(self.requested)

    @property
    def reserved_claim(self) -> Claim:
        """The privacy claim of the labels that were paid for, with their total privacy loss.

        Call ``reserve`` first; before, it is the claim of no labels.
        """
        size = 0 if self.reservation is None else self.reservation.size
        return self._claim_of(size).with_account(self._account)

    def _claim_of(self, labels: int) -> Claim:
        """Return the privacy claim of some number of new labels, with their total privacy loss.

        For 0 labels it is the claim of one label, without a total.
        """
        return claim_of_labels(self.claim, labels, self.terms.delta) if labels else self.claim

    def reserve(self) -> Reservation:
        """Reserve budget for the queries without an earlier answer, or for as many as it covers.

        If the budget is used up but some queries were answered before, nothing is reserved, and
        those answers can still be repeated.

        Raises:
            Exhausted: the budget does not suffice for any, and no query was answered before.
            RuntimeError: the release was reserved before.
        """
        try:
            return super().reserve()
        except Exhausted as error:
            if not self.questions.known:
                count = len(self.questions.keys)
                raise Exhausted(
                    f"none of the {count} queries was answered, and nothing was released: {error}"
                ) from None
            self.reservation = Reservation(0)
            return self.reservation

    def reserve_all(self) -> Reservation:
        """Reserve budget for all queries without an earlier answer, or for none of them.

        Raises:
            Exhausted: the budget does not suffice for all of them; nothing was paid.
            RuntimeError: the release was reserved before.
        """
        covered = None  # no limit
        if self.requested:
            covered = self.terms.payer.remaining(self.claim.guarantee, self.requested)
        if covered == 0:
            # Raises Exhausted with the reason, because the rest of a budget never becomes more.
            return super().reserve()
        if covered is not None and covered < self.requested:
            raise Exhausted(
                f"the budget of {self.terms.payer.name} covers only {covered} of the "
                f"{self.requested} requested labels (each label would be {self.claim.guarantee}), "
                "so nothing was released: request fewer labels"
            )
        return self.reserve()

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> Iterable[np.ndarray]:
        """Draw the labels that were paid for, and return those of all queries.

        Args:
            reservation: the reservation that was paid for; the payer stores the labels under it.
            on_progress: called while queries are certified.

        Returns:
            int64 labels of consecutive queries, n in all; ``UNANSWERED`` where nothing was paid.
        """
        rows = self.rows_to_label
        if not len(rows):  # only earlier answers are repeated
            return [self.questions.labels({})]
        queries = selected(self.features, rows)
        drawn = self.labelling.draw_in_pieces(queries, self.terms.randomness, on_progress)
        if not self.questions.has_ledger and len(rows) == len(self.features):
            return drawn
        labels = gathered(drawn, len(rows)).tolist()
        keys = (self.questions.keys[row] for row in rows)
        answers = dict(zip(keys, labels, strict=True))
        # Another process may have answered a question meanwhile. What the payer stored counts.
        stored = self.terms.payer.store_answers(reservation, answers)
        return [self.questions.labels(stored)]

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        """Return the expected accuracy of labels with this release's guarantee; it is private.

        Args:
            model: not read, because the evidence is enough.
            evidence: the queries' true labels, and what mechanisms read of them.
            features: not read.
        """
        kind = MECHANISMS[self.claim.mechanism]
        return evidence.expected(kind.with_guarantee(self.claim.guarantee, evidence.classes))


@dataclass(kw_only=True)
class NumberRelease(Release[int]):
    """A release of one number: up to how many edits a given fraction of all queries is certified.

    Attributes:
        model: the model that answers.
        features: [n, ...] the queries, as the model takes them.
        mechanism: draws the number, and says which fraction.
    """

    model: Model
    features: np.ndarray
    mechanism: CertifiedQuantile

    @classmethod
    def judged(
        cls, model: Model, features: np.ndarray, mechanism: CertifiedQuantile, terms: ReleaseTerms
    ) -> "NumberRelease":
        """Return a release of one number about queries, with the guarantee that may be claimed.

        Nothing private is computed, and nothing is paid for yet.

        Args:
            model: the model that answers.
            features: [n, ...] the queries, as the model takes them; they are taken to be
                public.
            mechanism: draws the number, and says which fraction of the queries it is about.
            terms: the conditions, the accounting, the payer and the randomness of the release.

        Raises:
            ConfigError: the claim is refused, or the queries do not fit the model.
            UnsoundError: a query is not finite in the model's precision.
        """
        if model.problem.dataset.target.numeric is not None:
            raise distances_of_numbers(mechanism.name)
        settings = model.problem.settings
        voting: Voting = "certified" if settings.ensemble.members > 1 else "none"
        conditions = terms.conditions_of(model)
        release_claim = judge_claim(
            conditions,
            settings.relation,
            mechanism,
            accounting=terms.accounting,
            counting=terms.counting,
            voting=voting,
            output=Output.NUMBER,
            noisy=settings.noise is not None,
        )
        release_claim = replace(release_claim, answers=len(features) or None)
        model.check(features)
        return cls(
            terms=terms,
            claim=release_claim,
            conditions=conditions,
            model=model,
            features=features,
            mechanism=mechanism,
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> int:
        """Draw the number: a noisy quantile of the numbers of edits that leave each query's label.

        Args:
            reservation: the reservation that was paid for; it is not read.
            on_progress: called while queries are certified, that is while the edits are counted.
        """
        certificates = self.model.certify(self.features, on_progress=on_progress)
        evidence = evidence_of(certificates, self.terms.counting)
        mechanism = self.mechanism
        return release_quantile(
            evidence,
            mechanism.fraction,
            self.model.max_distance,
            mechanism.guarantee,
            self.terms.randomness,
        )


@dataclass(kw_only=True)
class WeightsRelease(Release[ReleasedWeights]):
    """A release of the weights of a linear head, which can label any number of queries.

    Attributes:
        head: the linear head whose weights are released.
        mechanism: draws private weights.
    """

    head: LinearModel
    mechanism: WeightsMechanism

    @classmethod
    def judged(
        cls, model: Model, mechanism: WeightsMechanism, terms: ReleaseTerms
    ) -> "WeightsRelease":
        """Return a release of a model's weights, with the guarantee that may be claimed.

        Every condition of the privacy proof is required, under either accounting. Nothing private
        is computed, and nothing is paid for yet.

        Args:
            model: a fitted model with a linear head.
            mechanism: draws the weights.
            terms: the conditions, the accounting, the payer and the randomness of the release.

        Raises:
            ConfigError: the model has no single linear head, or one that the mechanism's proof does
                not cover, or a condition does not hold.
        """
        head = mechanism.releasable_head(model)
        # The head's own conditions count as well as the model's. A head that is trained beside an
        # ensemble that votes has other batches than its members, and needs a declared size, which
        # votes do not.
        conditions = weaker_conditions(head.conditions, terms.conditions_of(model))
        settings = head.settings
        noisy = settings.noise is not None
        release_claim = judge_claim(
            conditions, settings.relation, mechanism, output=Output.WEIGHTS, noisy=noisy
        )
        release_claim = replace(
            release_claim, totals=(total_of_weights(mechanism.guarantee, terms.delta),)
        )
        mechanism.check(head)
        return cls(
            terms=terms, claim=release_claim, conditions=conditions, head=head, mechanism=mechanism
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> ReleasedWeights:
        """Draw private weights of the head.

        Args:
            reservation: the reservation that was paid for; it is not read.
            on_progress: not called, because no query is certified.
        """
        return self.mechanism.draw(self.head, self.terms.randomness)

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        """Return the expected accuracy of labels from the weights on some queries; it is private.

        Args:
            model: the model whose head is released.
            evidence: the queries' true labels.
            features: [n, ...] the same queries.
        """
        head = self.mechanism.releasable_head(model)
        return self.mechanism.expected_accuracy(head, features, evidence.labels)


@dataclass(kw_only=True)
class ConstantsRelease(Release[TableConstants]):
    """A release of constants of a table, such as ranges and sizes, measured with noise.

    Attributes:
        mechanism: measures the constants.
        values: the private values of the table.
    """

    mechanism: Measurement
    values: TableValues

    @classmethod
    def judged(
        cls,
        values: TableValues,
        mechanism: Measurement,
        conditions: Sequence[Condition],
        terms: ReleaseTerms,
    ) -> "ConstantsRelease":
        """Return a release of a table's constants, with the guarantee that may be claimed.

        Args:
            values: the private values of the table.
            mechanism: measures the constants.
            conditions: a to g, the assumptions of the privacy proof, as assessed for the table.
            terms: the payer and the randomness of the release.

        Raises:
            ConfigError: a condition that noisy counts require does not hold.
        """
        release_claim = judge_claim(
            conditions, mechanism.relation, mechanism, output=Output.CONSTANTS
        )
        return cls(
            terms=terms,
            claim=release_claim,
            conditions=conditions,
            mechanism=mechanism,
            values=values,
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> TableConstants:
        """Measure the constants with noise.

        Args:
            reservation: the reservation that was paid for; it is not read.
            on_progress: not called, because no query is certified.
        """
        return self.mechanism.draw(self.values, self.terms.randomness)


def judge_labelling(
    model: Model, mechanism: Mechanism | LaplaceMean, terms: ReleaseTerms
) -> AnyLabelling:
    """Return the labelling of a model by classes or by numbers, with the claim of each label.

    Args:
        model: the model that answers.
        mechanism: draws the labels.
        terms: the conditions, the accounting and the counting of the release.

    Raises:
        ConfigError: the claim is refused, or the mechanism does not fit the model.
    """
    if isinstance(mechanism, LaplaceMean):
        return NumberLabelling.judged(
            model, mechanism, terms.conditions, terms.accounting, terms.counting
        )
    return Labelling.judged(model, mechanism, terms.conditions, terms.accounting, terms.counting)


AnyRelease = LabelRelease | NumberRelease | WeightsRelease


def judge(
    model: Model, features: np.ndarray, mechanism: AnyMechanism, terms: ReleaseTerms
) -> AnyRelease:
    """Return the release of labels, a number or weights that a mechanism draws.

    Args:
        model: the model that is released from.
        features: [n, ...] the queries; not read if weights are released.
        mechanism: draws the release.
        terms: the conditions, the accounting, the payer and the randomness of the release.

    Raises:
        ConfigError: the claim is refused, or the mechanism or the queries do not fit the model.
        UnsoundError: a query is not finite in the model's precision.
    """
    if isinstance(mechanism, WeightsMechanism):
        return WeightsRelease.judged(model, mechanism, terms)
    if isinstance(mechanism, CertifiedQuantile):
        return NumberRelease.judged(model, features, mechanism, terms)
    return LabelRelease.judged(model, features, mechanism, terms)
