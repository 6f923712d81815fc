"""Replay a release on a neighbour, with every draw answered from the record of the first.

    pair = ReplayedPair.of(SystemRandomness(), publish, publish_of_neighbour, where)
    equal, inputs = pair.findings(subject, guarantee)

Formal guarantees
    Everything that a release publishes is a function of its draws and of the private data. In the
    replay each draw has the answer that it had on D, so whatever is published besides must be
    equal, bit for bit: values, claim, error messages, and the number, order and distribution of
    the draws. A difference is a violation, found by one pair.
    Given the same earlier answers, each draw loses what its two private inputs are apart, in units
    of its noise (Gaussian: l2; geometric: l1; a label's table: steps between neighbouring states).
    These are added up as adaptive composition adds them, and held against the claimed guarantee. So
    a replay checks the sensitivity that the noise was made for, on this pair, whatever the
    mechanism says of it. It does not check that a draw has the distribution that it names.
    Objective perturbation draws its random linear term b before it sees data, and publishes a
    function of it. The replay answers with the b' at which the neighbour has the same minimiser, b'
    = b + grad F(theta) - grad F'(theta), and holds |b' - b| and the determinants against the claim.

Distances, losses and the noise that a guarantee asks for are computed here by formulas of this
module's own, which share nothing with the mechanisms that they check.

Source: Replaying audits (2602.17454), for the idea.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import joblib
import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from agt.audit.findings import Finding, counterexamples
from agt.mechanisms.composition import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.numeric import Answer, Draw, ObservedRandomness, Randomness
from agt.training.erm import TiltedErm

ROUNDING = 1e-6  # relative; more than double precision loses in the formulas of this module
FAR = 2.0**64  # a share of what is claimed that says "no bound covers this"
SOLVER_SHARE = 0.01  # of epsilon and delta: what objective perturbation spends on its solver's error

Publish = Callable[[Randomness], Mapping[str, object]]
Composed = Literal["answer", "trial", "release"]


class ReplayDiverged(Exception):
    """The replay asked for another draw than the record has."""


class RecordedRandomness(ObservedRandomness):
    """Draws from a source, and keeps every draw with its answer.

    Attributes:
        source: where draws come from.
        draws, answers: in order.
    """

    def __init__(self, source: Randomness) -> None:
        self.source, self.simulated = source, source.simulated
        self.draws, self.answers = list[Draw](), list[Any]()

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return what the source gives."""
        answer = sample(self.source)
        self.draws.append(replace(draw, private=deepcopy(draw.private)))
        self.answers.append(deepcopy(answer))
        return answer

    def words(self, n: int) -> np.ndarray:
        """As of ``Randomness``; a draw of its own, where no other draw asked for it."""
        return self.answer(Draw("uniform", ("words", n)), lambda source: source.words(n))

    def below(self, bound: int) -> int:
        """As of ``Randomness``; a draw of its own, where no other draw asked for it."""
        return self.answer(Draw("uniform", ("below", bound)), lambda source: source.below(bound))


class ReplayedRandomness(RecordedRandomness):
    """Answers each draw as it was recorded.

    Raises:
        ReplayDiverged: a draw has another distribution than the recorded one, or there is none.
    """

    def __init__(self, recorded: RecordedRandomness) -> None:
        super().__init__(recorded.source)
        self.recorded = recorded

    def answer(self, draw: Draw, sample: Callable[[Randomness], Answer]) -> Answer:
        """Return the recorded answer. Of words, only those that both sides have were recorded."""
        number = len(self.draws)
        if number == len(self.recorded.draws):
            raise ReplayDiverged(f"the neighbour draws more than the {number} recorded draws")
        expected = self.recorded.draws[number]
        if (draw.law, draw.public) != (expected.law, expected.public):
            raise ReplayDiverged(
                f"draw {number + 1} is {expected.law} with {expected.public} in the record, "
                f"and {draw.law} with {draw.public} on the neighbour"
            )
        answer = deepcopy(self.recorded.answers[number])
        if isinstance(draw.private, Mapping):
            fresh: Any = sample(self.source)
            answer = {word: answer.get(word, count) for word, count in fresh.items()}
        self.draws.append(replace(draw, private=deepcopy(draw.private)))
        self.answers.append(answer)
        return answer


@dataclass(frozen=True)
class ReplaySide:
    """A release on one of two neighbours.

    Attributes:
        randomness: its draws and their answers.
        published: name of a field -> a hash of its value, to the last bit; of an error, its text.
    """

    randomness: RecordedRandomness
    published: Mapping[str, str]

    @classmethod
    def recorded(cls, publish: Publish, source: Randomness) -> "ReplaySide":
        """Release with a source's draws. Raises what the release raises: nothing was published."""
        randomness = RecordedRandomness(source)
        return cls(randomness, _hashes(publish(randomness)))

    def replayed(self, publish: Publish) -> "ReplaySide":
        """Release on a neighbour with the draws of this side; an error is published, too."""
        randomness = ReplayedRandomness(self.randomness)
        try:
            return ReplaySide(randomness, _hashes(publish(randomness)))
        except Exception as error:  # of any kind: on the other side there was none
            return ReplaySide(randomness, {type(error).__name__: str(error)})


def _hashes(published: Mapping[str, object]) -> dict[str, str]:
    return {name: joblib.hash(value) for name, value in published.items()}


@dataclass(frozen=True)
class ReplayedPair:
    """A release on two neighbours, the second replayed.

    Attributes:
        recorded, replayed: both sides.
        where: which datasets, in words.
        tilt: what the linear term of objective perturbation loses, as a share of the claim.
    """

    recorded: ReplaySide
    replayed: ReplaySide
    where: str
    tilt: float = 0.0

    @classmethod
    def of(cls, source: Randomness, first: Publish, second: Publish, where: str) -> "ReplayedPair":
        """Release from the first dataset with a source's draws, and replay on the second."""
        recorded = ReplaySide.recorded(first, source)
        return cls(recorded, recorded.replayed(second), where)

    @classmethod
    def of_objective(
        cls,
        source: Randomness,
        sides: tuple[Publish, Publish],
        where: str,
        problems: tuple[TiltedErm, TiltedErm],
        claimed: ApproximateDP,
    ) -> "ReplayedPair":
        """The same of objective perturbation, with the linear term that has the same minimiser.

        Args:
            problems: of both sides, without linear term.
        """
        recorded = ReplaySide.recorded(sides[0], source)
        tilt, solution = recorded.randomness.draws
        slopes = [side.gradient(cast(np.ndarray, solution.private)) for side in problems]
        bends = [np.linalg.slogdet(side.hessian(cast(np.ndarray, solution.private)))[1] for side in problems]
        coupled = deepcopy(recorded)
        coupled.randomness.answers[0] += slopes[0] - slopes[1]
        eps = (1 - SOLVER_SHARE) * claimed.eps - abs(float(bends[0] - bends[1]))
        mu = float(np.linalg.norm(slopes[0] - slopes[1])) / cast(float, tilt.public[0])
        share = mu / allowed_mu(eps, (1 - SOLVER_SHARE) * claimed.delta) if eps > 0 else FAR
        return cls(recorded, coupled.replayed(sides[1]), where, share)

    def share(self, guarantee: Guarantee, composed: Composed) -> float:
        """The largest loss of the draws that both sides made, as a share of the guarantee.

        Args:
            composed: what the guarantee is claimed of: each answer, each trial (the draws between
                two uniform ones), or all draws together.
        """
        trial, order = 0, 1.0 if isinstance(guarantee, PureDP) else 2.0
        losses: dict[int, list[np.ndarray]] = {}
        pairs = zip(self.recorded.randomness.draws, self.replayed.randomness.draws, strict=False)
        for draw, other in pairs:
            trial += composed == "trial" and draw.law == "uniform"
            if draw.law != "uniform":
                losses.setdefault(trial, [np.zeros(1)]).append(losses_of(guarantee, draw, other))
        if composed == "answer":
            order = np.inf
        norms = (np.linalg.norm(np.concatenate(group), order) for group in losses.values())
        return float(max(norms, default=0.0))

    def findings(self, subject: str, guarantee: Guarantee, composed: Composed = "release") -> tuple[Finding, Finding]:
        """What the pair says: of all that must be equal, and of the private inputs of the draws."""
        made, due = len(self.replayed.randomness.draws), len(self.recorded.randomness.draws)
        before, after = self.recorded.published, self.replayed.published
        different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        different += [f"{made} of {due} draws are made"] * (made < due)
        effort = f"{due} draws and {len(before)} published fields were compared; {self.where}"
        attack = "a release was recorded, and replayed on a neighbour with the recorded draws"
        texts = [f"{name} ({after.get(name, 'it is missing')})" for name in different]
        told = f"on the neighbour, these differ: {', '.join(texts)}" if texts else "nothing differs"
        equal = counterexamples(
            f"{subject}: what is published", "given its draws, it does not depend on private data",
            attack, effort, "differences", len(different), f"{told}; {effort}",
        )  # fmt: skip
        share = max(self.tilt, self.share(guarantee, composed))
        share = share if share > 1 + ROUNDING else min(share, 1.0)
        lost = f"the private inputs of the draws differ by {share:.3g} of what the noise covers"
        inputs = counterexamples(
            f"{subject}: the inputs of its draws", str(guarantee),
            attack, effort, "deviation/bound", share, lost, "any excess on this pair", 1.0,
        )  # fmt: skip
        return equal, inputs


def losses_of(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """[answers] what each answer of a draw loses between its two private inputs, in shares of the guarantee."""
    if draw.law == "labels":
        return label_steps(guarantee, draw, other)
    if (draw.law == "geometric") != isinstance(guarantee, PureDP):
        return np.array([FAR])  # noise that has no such guarantee
    first, second = cast(Any, (draw.private, other.private))
    if isinstance(first, Mapping):  # a word that one side lacks counts 0 there
        words = {**first, **second}
        first, second = ([side.get(word, 0) for word in words] for side in (first, second))
    apart = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    scale = cast(float, draw.public[0])
    if isinstance(guarantee, PureDP):
        return np.array([np.abs(apart).sum() * scale / cast(int, draw.public[1]) / guarantee.eps])
    return np.asarray(np.linalg.norm(apart.reshape(len(apart), -1), axis=1) / scale / mu_of(guarantee))


def label_steps(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """[n] steps between neighbouring states from one side's (label, evidence) to the other's, in
    shares of those that the mechanism's table covers."""
    mechanism = cast(Any, draw.public[0])
    if mechanism.guarantee != guarantee:
        return np.array([FAR])
    (label, evidence), (other_label, other_evidence) = cast(Any, (draw.private, other.private))
    if mechanism.needs == "votes":  # n1 - n0 moves by 2 with each vote
        apart = evidence * np.where(label, 1, -1) - other_evidence * np.where(other_label, 1, -1)
        return np.asarray(np.where(apart % 2, FAR, np.abs(apart) / (2 * mechanism.moves)))
    across = evidence + other_evidence + 1  # down to 0, to the other label, and up
    return np.asarray(np.where(label == other_label, np.abs(evidence - other_evidence), across))


def mu_of(guarantee: GaussianDP | ApproximateDP) -> float:
    """The largest mu of Gaussian noise that has the guarantee."""
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    return allowed_mu(guarantee.eps, guarantee.delta)


def allowed_mu(eps: float, delta: float) -> float:
    """The largest mu of Gaussian noise that is (eps, delta)-private (Balle and Wang 2018)."""

    def excess(mu: float) -> float:
        others = math.exp(eps + float(log_ndtr(-eps / mu - mu / 2)))
        return float(ndtr(mu / 2 - eps / mu)) - others - delta

    return float(brentq(excess, 1e-9, 1e3, xtol=1e-15))
