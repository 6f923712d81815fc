"""Private numbers: the mean of an ensemble's answers with discrete Laplace noise, eps-DP.

    labelling = NumberLabelling.judged(model, LaplaceMean(eps=0.1))
    sums = labelling.labels(features, SystemRandomness())      [n] integers; each spends eps
    model.mean_of(sums)                                        [n] the numbers that they stand for

The T members answer with integers from 0 to N, the points of a public lattice, and their sum is
released with exact noise in integers. T, N and the range are public constants, so the sensitivity
is known without looking at the records. The proofs are in docs/proofs/numbers.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.mechanism_settings import LaplaceMeanSettings
from agt.mechanisms.guarantees import Guarantee, PureDP
from agt.mechanisms.judging import judge_claim
from agt.mechanisms.labelling import AnyLabelling
from agt.mechanisms.output import Output
from agt.mechanisms.quantile import noisy_integers
from agt.models.model import Model
from agt.models.number_votes import NumberVotes
from agt.numeric import Randomness
from agt.release_settings import numbers_for_classes
from agt.settings import Accounting, Counting, schema, validate
from agt.training.lattice import LATTICE_STEPS
from agt.training.loop import OnProgress


@schema
class LaplaceMean(LaplaceMeanSettings):
    """Release the mean of an ensemble's numbers with discrete Laplace noise: eps-DP for each query.

    Attributes:
        eps: the eps of one query.

    Formal guarantees
        - Each answer is eps-DP with delta = 0, if one edit changes at most ``touches`` members and
          a member depends on its own shard alone (Lemma 7 of docs/proofs/numbers.md).
        - It holds for all records: members with empty shards, outliers and ties included.

    Source: Canonne, Kamath and Steinke (2020), the discrete Laplace mechanism.
    """

    output: ClassVar[Output] = Output.LABELS
    spends: ClassVar[type[PureDP]] = PureDP

    @classmethod
    def with_guarantee(cls, guarantee: Guarantee, classes: int = 0) -> Self:
        """Return the mechanism that has a given guarantee per query.

        Args:
            guarantee: the guarantee of one query's answer.
            classes: not read, because numbers have none.

        Raises:
            ConfigError: the guarantee is not pure DP.
        """
        return validate(cls, guarantee.parameters, f"mechanism={cls.name}")

    @property
    def guarantee(self) -> PureDP:
        """The guarantee of one answer."""
        return PureDP(self.eps)

    def release(
        self, sums: np.ndarray, members: int, touches: int, source: Randomness
    ) -> np.ndarray:
        """Draw a private sum for each query; each draw spends the guarantee once.

        Args:
            sums: [n] int64, the sums of the members' answers, from 0 to T N.
            members: T, the public number of members, whether or not they have records.
            touches: m, the number of members that one edit can change.
            source: SystemRandomness for a private release; any other source makes a simulation.

        Returns:
            [n] int64, from 0 to T N.
        """
        largest = members * LATTICE_STEPS
        # Lemma 5 of docs/proofs/numbers.md: one edit moves a sum by at most m N.
        sensitivity = touches * LATTICE_STEPS
        released = np.empty(len(sums), dtype=np.int64)
        for query, exact in enumerate(sums.tolist()):
            (noised,) = noisy_integers([exact], self.eps, source, sensitivity)
            released[query] = min(max(noised, 0), largest)  # post-processing
        return released

    def expected_rmse(
        self, means: np.ndarray, numbers: np.ndarray, members: int, touches: int
    ) -> float:
        """Return the expected root mean square distance of released answers from some numbers.

        It depends on the records, so it is for the data owner only. Noise and clamping are those of
        ``release``; the steps of the lattice, 2^-20 of the range, are neglected.

        Args:
            means: [n] the means of the members' answers, from 0 to 1 (shares of the range).
            numbers: [n] what answers are compared with, from 0 to 1.
            members: T, the public number of members.
            touches: m, the number of members that one edit can change.
        """
        scale = touches / (members * self.eps)  # of the Laplace noise, as a share of the range
        below = means / scale
        above = (1 - means) / scale
        offset = means - numbers
        # With g(x) = (clamped x - number)^2, the expectation of g(mean + noise) is g(mean), plus
        # the integral of g' times the probability of more noise, above and below the mean.
        spread = 2 - np.exp(-below) * (1 + below) - np.exp(-above) * (1 + above)
        pull = np.exp(-below) - np.exp(-above)  # clamping moves answers away from the nearer end
        squares = offset**2 + scale**2 * spread + offset * scale * pull
        return math.sqrt(float(np.maximum(squares, 0.0).mean()))

    def expected_rmse_of(
        self, model: NumberVotes, answers: np.ndarray, numbers: np.ndarray
    ) -> float:
        """Return the expected root mean square distance of a model's answers from some numbers.

        It is ``expected_rmse`` in the units of the labels, and is for the data owner only.

        Args:
            model: the model that answers.
            answers: [n] the means of its members.
            numbers: [n] what released answers are compared with; those outside of the range are
                clipped into it, as labels are.
        """
        target = model.target
        clipped = np.clip(numbers, target.low, target.high)
        rmse_as_share = self.expected_rmse(
            means=(answers - target.low) / target.width,
            numbers=(clipped - target.low) / target.width,
            members=model.settings.ensemble.members,
            touches=model.members_per_edit,
        )
        return rmse_as_share * target.width


@dataclass(frozen=True)
class NumberLabelling(AnyLabelling):
    """A model of numbers, and the mechanism that draws a private answer to each query.

    Its drawn labels are sums of the members' answers, from 0 to T N; ``model.mean_of`` turns them
    into numbers.
    """

    model: NumberVotes
    mechanism: LaplaceMean

    @classmethod
    def judged(
        cls,
        model: Model,
        mechanism: LaplaceMean,
        conditions: Sequence[Condition] | None = None,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
    ) -> "NumberLabelling":
        """Return the labelling of a model, with the claim that each of its answers may have.

        Args:
            model: the model that answers.
            mechanism: draws the answers.
            conditions: the seven assumptions of the privacy proof (docs/reference.md, section 3),
                as assessed; None: the model's own.
            accounting: "rigorous" refuses where a required condition does not hold.
            counting: not read by the mechanism; only "distance" is accepted.

        Raises:
            ConfigError: the claim is refused, or the model answers with classes.
        """
        votes = model.number_votes
        if votes is None:
            raise numbers_for_classes()
        if counting != "distance":
            raise ConfigError(
                f"counting={counting} has no effect, because mechanism={mechanism.name} does not "
                "use stable distances: leave counting=... out"
            )
        if conditions is None:
            conditions = votes.conditions
        claim_of_one_answer = judge_claim(
            conditions,
            votes.settings.relation,
            mechanism,
            accounting=accounting,
            counting=counting,
            voting="certified",
        )
        return cls(votes, mechanism, claim_of_one_answer)

    def _draw(
        self, features: np.ndarray, randomness: Randomness, on_progress: OnProgress
    ) -> np.ndarray:
        """Draw a sum of the members' answers for each query, [n] int64, from 0 to T N.

        Args:
            features: [n, ...] the queries, as the model takes them.
            randomness: ``SystemRandomness`` for a private release; anything else is a simulation.
            on_progress: called while the members are asked.
        """
        members = self.model.settings.ensemble.members
        sums = self.model.sums(features, on_progress)
        return self.mechanism.release(sums, members, self.model.members_per_edit, randomness)

    def published(self, labels: np.ndarray) -> np.ndarray:
        """Return the numbers [n] float64 that are published for drawn sums [n]."""
        return self.model.mean_of(labels)
