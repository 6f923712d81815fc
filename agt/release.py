"""A release: judged, reserved, drawn, in this order, each once.

    release = LabelRelease.judged(model, features, mechanism, ReleaseTerms(payer=payer))
    release.claim.lines()              what will be guaranteed; nothing private was computed yet
    release.reserve()                  debited, on the disk of the ledger
    labels = release.draw()            only what was reserved
    release.reserved_claim.lines()     what is guaranteed of that, and who counts it

Formal guarantees
    * Judging reads public values: settings, conditions, how many queries there are, which of them a
      ledger has answered. It computes nothing private about a query.
    * ``draw`` raises unless ``reserve`` returned before, and raises when it is called again: what
      is drawn was paid for, once.
    * Where a ledger ends, which queries are answered depends on their order, on what was answered
      before, and on the ledger's counter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.arrays import gathered, selected
from agt.errors import ConfigError
from agt.ledger.ledger import Exhausted, Questions
from agt.ledger.payer import NoPayer, Payer, Reservation
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Accounting, Claim, Counting
from agt.mechanisms.judging import Voting, claim
from agt.mechanisms.labelling import Labelling, evidence_of
from agt.mechanisms.measurement import Measurement, TableConstants, TableValues
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.output import Output
from agt.mechanisms.planning import QueryEvidence
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.mechanisms.totals import claim_of_labels, total_of_weights
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import Randomness, SystemRandomness
from agt.training.loop import OnProgress

Drawn = TypeVar("Drawn")


@dataclass(frozen=True, kw_only=True)
class ReleaseTerms:
    """How releases are judged, paid for and drawn; all of it is public.

    Attributes:
        conditions: a to g, as they stand; None: the model's own.
        accounting: rigorous refuses where a condition does not hold; paper takes an ensemble's
            published vote too, and says where nothing is proved. Weights are always rigorous.
        counting: what evidence counts: records, or steps of the grid, as a sparse one needs.
        delta: at which the total is shown; 0: one is chosen.
        payer: what pays; by default no ledger does, which the claim says.
        randomness: of the draws; anything but ``SystemRandomness`` is a simulation.
    """

    conditions: Sequence[Condition] | None = None
    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    delta: float = 0.0
    payer: Payer = field(default_factory=lambda: NoPayer(Uncounted("call")))
    randomness: Randomness = field(default_factory=SystemRandomness)

    def conditions_of(self, model: Model) -> Sequence[Condition]:
        """Return a to g."""
        return model.conditions if self.conditions is None else self.conditions


@dataclass(kw_only=True)
class Release(Generic[Drawn]):
    """One release. A subclass says how it is judged, and what is drawn.

    Attributes:
        terms: how it is paid for and drawn.
        claim: what may be said of each thing that is released.
        conditions: a to g, as they stand for this release.
        wanted: how many things have to be paid for; 0: nothing new is drawn.
        reservation: what was paid; None: nothing yet.
        may_be_partial: whether less than what is wanted may be reserved and drawn.
    """

    may_be_partial: ClassVar[bool] = False

    terms: ReleaseTerms
    claim: Claim
    conditions: Sequence[Condition]
    wanted: int = 1
    reservation: Reservation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError where a ledger would pay, and cannot count this claim."""
        payer = self.terms.payer
        self.claim = replace(self.claim, simulated=self.terms.randomness.simulated)
        if self.simulated and payer.name:
            # It would remember labels that whoever knows the seed can work out, and repeat them as
            # private.
            raise ConfigError(
                f"ledger={payer.name}: a release from a seed is only a simulation, for which "
                "a ledger does not pay: leave out the seed, or the ledger"
            )
        payer.check(self.claim)

    @property
    def simulated(self) -> bool:
        """Whether it is drawn from a seed, and so guarantees nothing."""
        return self.claim.simulated

    @property
    def wanted_claim(self) -> Claim:
        """The claim of all that is wanted, with its totals."""
        return self.claim

    @property
    def reserved_claim(self) -> Claim:
        """The claim of what was reserved, with its totals, and who counts it."""
        return self.claim.counted_by(self._account)

    @property
    def _account(self) -> Account | Uncounted | None:
        return self.terms.payer.account(self.reservation or Reservation(0))

    def reserve(self) -> Reservation:
        """Pay for what is wanted, or for as much of it as the budget holds.

        Raises:
            Exhausted: it holds none of it.
            RuntimeError: it was called before.
        """
        if self.reservation is not None:
            raise RuntimeError(
                "this release is already reserved, and cannot be reserved a second time"
            )
        reservation = Reservation(0)
        if self.wanted:
            reservation = self.terms.payer.reserve(self.claim, self.wanted)
        self.reservation = reservation
        return reservation

    def draw(self, on_progress: OnProgress = lambda progress: None) -> Drawn:
        """Draw what was reserved.

        Args:
            on_progress: called as queries are certified.

        Raises:
            RuntimeError: nothing was reserved, or it was drawn before.
            AgtError: a solver missed its tolerance; nothing was drawn.
        """
        reservation = self.reservation
        if reservation is None:
            raise RuntimeError("a release must be reserved before it is drawn")
        if reservation.size < self.wanted and not self.may_be_partial:
            raise RuntimeError("this release was not paid for, so it cannot be drawn")
        if not reservation.take():
            raise RuntimeError(
                "this release was already drawn, and neither it nor a copy of it can be drawn "
                "a second time"
            )
        return self._draw(reservation, on_progress)

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> Drawn:
        raise NotImplementedError

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        """Return the expected accuracy of what is released; private.

        Args:
            model: that evidence came from.
            evidence: of queries whose labels are known, with these.
            features: [n, ...] of the same queries.
        """
        raise NotImplementedError


@dataclass(kw_only=True)
class LabelRelease(Release[Iterable[np.ndarray]]):
    """One label for each query; what a ledger has answered before is repeated, which costs nothing.

    Attributes:
        labelling: the model and the mechanism.
        features: [n, ...] the queries, as the head takes them.
        questions: which queries were answered before, and which are new.
    """

    may_be_partial: ClassVar[bool] = True

    labelling: Labelling
    features: np.ndarray
    questions: Questions

    @classmethod
    def judged(
        cls, model: Model, features: np.ndarray, mechanism: Mechanism, terms: ReleaseTerms
    ) -> "LabelRelease":
        """Judge the labels of a file of queries.

        Args:
            model: what answers.
            features: [n, ...] the queries, as the head takes them; they are taken to be public.
            mechanism: for as many classes as the model has.
            terms: how they are paid for and drawn.

        Raises:
            ConfigError: the claim is refused, the mechanism or the queries do not fit the model, or
                ``terms.delta`` is less than the labels' own.
            UnsoundError: a query is not finite in the model's precision.
        """
        labelling = Labelling.judged(
            model, mechanism, terms.conditions, terms.accounting, terms.counting
        )
        release = cls.asked(labelling, features, terms)
        _ = release.wanted_claim  # because it raises for a delta that is too small
        return release

    @classmethod
    def asked(
        cls, labelling: Labelling, features: np.ndarray, terms: ReleaseTerms
    ) -> "LabelRelease":
        """Ask for the labels of queries, under a claim that was judged.

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
            wanted=len(questions.new),
            labelling=labelling,
            features=features,
            questions=questions,
        )

    @property
    def rows(self) -> np.ndarray | range:
        """The queries that a label is to be drawn for; once it is reserved, for which one is."""
        if self.reservation is None:
            return self.questions.new
        return self.questions.new[: self.reservation.size]

    @property
    def wanted_claim(self) -> Claim:
        return self._claim_of(self.wanted)

    @property
    def reserved_claim(self) -> Claim:
        size = 0 if self.reservation is None else self.reservation.size
        return self._claim_of(size).counted_by(self._account)

    def _claim_of(self, labels: int) -> Claim:
        return claim_of_labels(self.claim, labels, self.terms.delta) if labels else self.claim

    def reserve(self) -> Reservation:
        """Pay for the queries that were not answered before, or for as many of them as the budget
        holds.

        Raises:
            Exhausted: it holds none, and none was answered before.
            RuntimeError: it was called before.
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
        """Pay for all queries that were not answered before, or for none of them.

        Raises:
            Exhausted: the budget does not hold them all; nothing was paid.
        """
        held = (
            self.terms.payer.remaining(self.claim.guarantee, self.wanted) if self.wanted else None
        )
        if held is not None and held < self.wanted:
            raise Exhausted(
                f"the budget of {self.terms.payer.name} covers only {held} of {self.wanted} "
                f"labels, each of which would be {self.claim.guarantee}: nothing was released"
            )
        return self.reserve()

    def draw(self, on_progress: OnProgress = lambda progress: None) -> Iterable[np.ndarray]:
        """Draw a label for each query that was reserved.

        Returns:
            The labels of all queries, [n] int64 in pieces; ``UNANSWERED`` where nothing was left to
            pay with. Where no ledger remembers them, each piece is drawn when it is asked for.
        """
        return super().draw(on_progress)

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> Iterable[np.ndarray]:
        rows = self.rows
        if not len(rows):
            return [self.questions.labels({})]
        queries = selected(self.features, rows)
        drawn = self.labelling.drawn(queries, self.terms.randomness, on_progress)
        if not self.questions.remembered and len(rows) == len(self.features):
            return drawn
        labels = gathered(drawn, len(rows)).tolist()
        keys = (self.questions.keys[row] for row in rows)
        answers = dict(zip(keys, labels, strict=True))
        return [self.questions.labels(self.terms.payer.keep(reservation, answers))]

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        kind = MECHANISMS[self.claim.mechanism]
        return evidence.expected_accuracy(kind.of(self.claim.guarantee, evidence.classes))


@dataclass(kw_only=True)
class NumberRelease(Release[int]):
    """One number about all queries: up to which distance a fraction of them is certified.

    Attributes:
        model: what answers.
        features: [n, ...] the queries, as the head takes them.
        mechanism: says which fraction.
    """

    model: Model
    features: np.ndarray
    mechanism: CertifiedQuantile

    @classmethod
    def judged(
        cls, model: Model, features: np.ndarray, mechanism: CertifiedQuantile, terms: ReleaseTerms
    ) -> "NumberRelease":
        """Judge the number. Arguments and errors as of ``LabelRelease.judged``."""
        settings = model.problem.settings
        voting: Voting = "certified" if settings.ensemble.members > 1 else "none"
        conditions = terms.conditions_of(model)
        granted = claim(
            conditions,
            settings.relation,
            mechanism,
            terms.accounting,
            terms.counting,
            voting,
            Output.NUMBER,
            noisy=settings.noise is not None,
        )
        granted = replace(granted, answers=len(features) or None)
        model.check(features)
        return cls(
            terms=terms,
            claim=granted,
            conditions=conditions,
            model=model,
            features=features,
            mechanism=mechanism,
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> int:
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
    """The weights of a linear head, from which any number of queries is answered (``labels_from``).

    Attributes:
        head: whose weights are released.
        mechanism: that draws them.
    """

    head: LinearModel
    mechanism: WeightsMechanism

    @classmethod
    def judged(
        cls, model: Model, mechanism: WeightsMechanism, terms: ReleaseTerms
    ) -> "WeightsRelease":
        """Judge the weights, for which every condition counts.

        Raises:
            ConfigError: the model is no single linear head, or one that no proof of the mechanism
                covers, or a condition does not hold.
        """
        head = mechanism.releasable_head(model)
        # The head's own reasons come first, as its weights are released: a head beside votes has
        # other batches than they, and needs a declared size, as votes know no normaliser.
        conditions = weaker_conditions(head.conditions, terms.conditions_of(model))
        settings = head.settings
        noisy = settings.noise is not None
        granted = claim(
            conditions, settings.relation, mechanism, output=Output.WEIGHTS, noisy=noisy
        )
        granted = replace(granted, totals=(total_of_weights(mechanism.guarantee, terms.delta),))
        mechanism.check(head)
        return cls(
            terms=terms, claim=granted, conditions=conditions, head=head, mechanism=mechanism
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> ReleasedWeights:
        return self.mechanism.draw(self.head, self.terms.randomness)

    def expected_accuracy(
        self, model: Model, evidence: QueryEvidence, features: np.ndarray
    ) -> float:
        head = self.mechanism.releasable_head(model)
        return self.mechanism.expected_accuracy(head, features, evidence.labels)


@dataclass(kw_only=True)
class ConstantsRelease(Release[TableConstants]):
    """The constants of a table that nobody knows in public, measured from its records.

    Attributes:
        mechanism: that measures them.
        values: of the table.
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
        """Judge the constants.

        Raises:
            ConfigError: a condition that counts with noise rest on does not hold.
        """
        granted = claim(conditions, mechanism.relation, mechanism, output=Output.CONSTANTS)
        return cls(
            terms=terms, claim=granted, conditions=conditions, mechanism=mechanism, values=values
        )

    def _draw(self, reservation: Reservation, on_progress: OnProgress) -> TableConstants:
        return self.mechanism.draw(self.values, self.terms.randomness)


AnyRelease = LabelRelease | NumberRelease | WeightsRelease


def judge(
    model: Model, features: np.ndarray, mechanism: AnyMechanism, terms: ReleaseTerms
) -> AnyRelease:
    """Judge what a mechanism puts out: labels, a number, or weights.

    Arguments and errors as of their ``judged``.
    """
    if isinstance(mechanism, WeightsMechanism):
        return WeightsRelease.judged(model, mechanism, terms)
    if isinstance(mechanism, CertifiedQuantile):
        return NumberRelease.judged(model, features, mechanism, terms)
    return LabelRelease.judged(model, features, mechanism, terms)


def drawn_now(release: Release[Drawn]) -> Drawn:
    """Reserve a release and draw it: for programs that look at nothing in between."""
    release.reserve()
    return release.draw()
