"""What every release mechanism is: (label, evidence) of a query in, a label out, with one guarantee
per query.

The evidence is the certified stable distance L (``needs = "distance"``), the gap between two vote
counts (``"votes"``), or nothing. A mechanism never sees a model, a dataset or another query.
``claims.claim`` decides whether the evidence may carry a guarantee; composition.py adds queries up.

Integer tables that release mechanisms sample from: every privacy inequality holds exactly, rounding
included.

A label is released by comparing a uniform integer U in [0, N), N = 2^128, with thresholds: at
stable distance L each of the m = C - 1 wrong labels has exactly s[L] values of U, the nominal one N
- m s[L]. A table starts with ``first`` and goes on with ``after``; both take a wish, the number
that a mechanism's formula asks for, and return it, or the nearest number that privacy allows. So
the table of any mechanism is private whatever its formula; formulas in floating point only wish.

Formal guarantees
    Setting. A query's state is (label, L). Between neighbours L moves by at most 1, and the label
    can differ only if L = 0 on both sides (method.md section 3). With s[0] >= s[1] >= ... (both
    functions see to it) it is enough that:

    PureDP(e), ApproximateDP(e, d), with E <= exp(e) and D <= d N the rational numbers that the code
    uses (d = 0 if pure; e and d are each the double or the decimal that it prints as, whichever is
    less, so that either may be claimed):
      1. m s[L] <= E m s[L+1] + D            events without the right label, which are the likelier at L
      2. N - m s[L+1] <= E (N - m s[L]) + D  the right label, likelier at L + 1
      3. N - m s[0] <= E s[0] + D            the label differs: the event {the label of this side}
      4. s[0] <= N - m s[0]                  the nominal label is the likeliest, so no other event is worse than 3
    These suffice: P(S) - E P'(S) is greatest for S = the labels where it is positive. For equal
    labels, with L on one side and L + 1 on the other, that is all wrong labels (1) or the right one
    (2); equal L is trivial. For different labels it is the label of the one side, by 4 and because
    the remaining labels have equal probability on both sides. ``first`` is the least s that
    satisfies 3, ``after`` the least that satisfies 1 and 2, found by integer division rounded up;
    the wish only raises them. Capping ``after`` at s[L] keeps 1 and 2, which s[L+1] = s[L]
    satisfies. Capping ``first`` at floor(N/C) gives 4, and keeps 3: at s = floor(N/C), N - m s <=
    N/C + m and E s > E (N/C - 1), and (E - 1) N/C >= m + E because E - 1 >= 10^-15 and C <= 2^16.

    GaussianDP(mu), C = 2, z = Phi^-1(s/N); mu is the lesser of double and decimal, too.
    A test between two coins mixes the four events of a coin, and G_mu is convex, so mu-GDP holds
    iff no event beats G_mu: Phi^-1(P'(S)) <= Phi^-1(P(S)) + mu for both sides and both labels S. As
    Phi^-1(1 - p) = -Phi^-1(p) and s does not increase, this is z[L] - z[L+1] <= mu, and z[0] >=
    -mu/2 where the label differs. The code carries a >= z[L], takes x >= a - mu and s[L+1] >= N
    Phi(x), so z[L+1] >= x >= z[L] - mu; its Phi are proved enclosures. The next a: Phi is convex
    below 0, so Phi(x + c) >= Phi(x) + c phi(x), which reaches s[L+1]/N at c = (s[L+1]/N -
    Phi_low(x)) / phi_low(x); and z <= 0 as s <= N/2. Where s[L+1] = s[L] nothing has to be shown.

    ``steps``. Evidence that moves by up to m entries between neighbours takes a rule of eps / m or
    mu / m (d = 0), rounded down: between the two lie m - 1 states of which each is a neighbour of
    the next in the sense above, so that ratios multiply to E at most, and differences of z add up
    to mu (Dong, Roth and Su 2022, theorem 2.14).

    The state of a table before entry L does not depend on later entries: growing it on demand
    cannot change it. Where a rule that was wished nothing gives s[L+1] = s[L], it does so for ever:
    neither s nor z has changed.
    What is not claimed: that the time a release takes is independent of the data.

Privacy curves: for every eps the delta at which something is (eps, delta)-DP, as numbers that can
be exported.

Formal guarantees
    Each point stands for itself: the truth is at or below it, as the functions that give delta
    round up. Between two points the greater delta holds, which is the left one's: (eps, delta)-DP
    implies (eps', delta)-DP for every eps' > eps.
"""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import floor
from threading import Lock
from typing import Annotated, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.budget import Allowance
from agt.mechanisms.composition import delta_of, least
from agt.mechanisms.enclosures import DOWN, FARTHEST, ROUND_UP, exp_lower, normal
from agt.mechanisms.guarantees import GREATEST, LEAST, ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.output import Output
from agt.messages import Message
from agt.numeric import Draw, Randomness, answered, written
from agt.settings import NonNegative, keyword_schema, schema, validate

BITS = 128
N = 1 << BITS
MAX_DISTANCE = 2**16  # longer distances count as this one; still 1-Lipschitz
MAX_CLASSES = 2**16
_SCALE = 256  # fractional bits of E and D


class RatioRule:
    """Inequalities 1 to 4 of the module's proof, for eps- and (eps, delta)-DP with any number of
    classes.
    """

    def __init__(self, eps: float, delta: float, classes: int, steps: int = 1) -> None:
        self._others = classes - 1
        each = DOWN.divide(min(Decimal(eps), written(eps)), steps)
        self._ratio = floor(Fraction(exp_lower(each)) * 2**_SCALE)
        self._slack = floor(Fraction(min(Decimal(delta), written(delta))) * N * 2**_SCALE)

    def first(self, wish: int) -> int:
        """s[0], at most floor(N / C)."""
        least = _ceil((N << _SCALE) - self._slack, (self._others << _SCALE) + self._ratio)
        return min(N // (self._others + 1), max(least, wish))

    def after(self, s: int, wish: int) -> int:
        """s[L+1], at most s[L]."""
        wrong = self._others * s
        by_wrong = _ceil((wrong << _SCALE) - self._slack, self._others * self._ratio)
        by_right = _ceil(
            (N << _SCALE) - self._slack - self._ratio * (N - wrong), self._others << _SCALE
        )
        return min(s, max(0, by_wrong, by_right, wish))


class GaussianRule:
    """The inequalities on z of the module's proof, for mu-GDP and two classes.

    Called in order, once per entry.
    """

    def __init__(self, mu: float, steps: int = 1) -> None:
        self._mu = DOWN.divide(min(Decimal(mu), written(mu)), steps)
        self._z = Decimal(0)  # at least Phi^-1(s/N) of the last entry

    def first(self, wish: int) -> int:
        """s[0], at most N / 2."""
        s, self._z = self._reach(ROUND_UP.divide(self._mu.copy_negate(), Decimal(2)), wish, N // 2)
        return s

    def after(self, s: int, wish: int) -> int:
        """s[L+1], at most s[L]."""
        following, z = self._reach(ROUND_UP.subtract(self._z, self._mu), wish, s)
        if following < s:
            self._z = z
        return following

    def _reach(self, x: Decimal, wish: int, most: int) -> tuple[int, Decimal]:
        """(s, a): s >= N Phi(x) unless capped at ``most``, and a >= Phi^-1(s/N)."""
        x = max(x, FARTHEST)
        at = normal(x)
        s = min(
            most, max(wish, int(ROUND_UP.multiply(at.upper, N).to_integral_value(ROUND_CEILING)))
        )
        missing = ROUND_UP.subtract(ROUND_UP.divide(Decimal(s), N), at.lower)
        return s, min(
            Decimal(0), ROUND_UP.add(x, ROUND_UP.divide(max(missing, Decimal(0)), at.density))
        )


TableRule = RatioRule | GaussianRule


def rule_of(guarantee: Guarantee, classes: int, steps: int = 1) -> TableRule:
    """The rule that proves ``guarantee``, whose delta is 0 where neighbours may be several entries
    apart; Gaussian-DP for two classes only.
    """
    if isinstance(guarantee, GaussianDP):
        if classes != 2:
            raise ValueError("GaussianDP: the table is proved for two classes")
        return GaussianRule(guarantee.mu, steps)
    return RatioRule(guarantee.eps, getattr(guarantee, "delta", 0.0), classes, steps)


class ThresholdTable:
    """s[0], s[1], ..., grown on demand.

    Args:
        rule: what privacy allows.
        wish: L -> the number of values per wrong label that the mechanism's formula asks for.
    """

    def __init__(self, rule: TableRule, wish: Callable[[int], int]) -> None:
        self._rule, self._wish = rule, wish
        self._entries: list[int] = []
        self._settled = False
        self._lock = Lock()

    def upto(self, distance: int) -> list[int]:
        """s[0..distance] (at least)."""
        with self._lock:
            entries = self._entries
            if not entries:
                entries.append(self._rule.first(self._wish(0)))
            while len(entries) <= distance:
                wish = self._wish(len(entries))
                following = entries[-1] if self._settled else self._rule.after(entries[-1], wish)
                # from here on, for ever
                self._settled = self._settled or (not wish and following == entries[-1])
                entries.append(following)
            return entries


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


Epsilon = Annotated[float, Field(ge=LEAST, le=GREATEST)]
Mu = Annotated[float, Field(ge=LEAST, le=GREATEST)]
Delta = Annotated[float, Field(gt=0, lt=0.5)]
Need = Literal["distance", "votes", "counts", "nothing"]
GuaranteeKind = type[PureDP] | type[ApproximateDP] | type[GaussianDP]
Named = TypeVar("Named", bound=type)
# by name; agt/mechanisms/__init__.py loads those that agt brings
MECHANISMS: dict[str, type["Mechanism"]] = {}


def register(kind: Named, registry: dict[str, Named]) -> None:
    """Enter a class under its name, if it has one of its own; what several share has none.

    Raises:
        ConfigError: another class has this name.
    """
    name = vars(kind).get("name")
    if name is None:
        return
    known = registry.setdefault(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(
            f"mechanism={name}: {known.__module__} has one of this name: give {kind.__qualname__} "
            "another"
        )
    registry[name] = kind  # the module was loaded again


@keyword_schema
class Mechanism:
    """A release mechanism. Subclasses give a name, the guarantee and the closed form of the flip
    probability.

    A subclass that has a ``name`` of its own is registered by being defined.

    Formal guarantees
        ``release`` draws from the integer ``ThresholdTable``, which satisfies ``guarantee`` exactly
        whatever the closed form says, provided that the evidence is 1-Lipschitz, that labels differ
        between neighbours only at L = 0, and that the source is uniform. ``flip_probability`` is
        the closed form and ``exact_flip`` what the table does. They agree to double precision, plus
        a few units of 2^-128 / min(1, budget): integers cannot decay for ever (tests measure it).

    Attributes:
        classes: C, the number of labels.
        name: its name in conf/groups/mechanism.yaml and in tables.
        needs: what the evidence is.
        output: labels.
        spends: the kind of guarantee that a budget is shared out in.
        any_classes: more than two classes are supported.
    """

    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 2

    name: ClassVar[str]
    needs: ClassVar[Need] = "distance"
    output: ClassVar[Output] = Output.LABELS
    spends: ClassVar[GuaranteeKind] = PureDP
    any_classes: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register(cls, MECHANISMS)

    def __post_init__(self) -> None:
        if self.classes > 2 and not self.any_classes:
            raise ConfigError(
                Message(
                    "mechanism={name} releases one of two labels and the model has "
                    "{classes} classes: use {config:mechanism=randomized_response}",
                    name=self.name,
                    classes=self.classes,
                )
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one query: of the kind that ``spends`` says, with the parameters that
        kind has.
        """
        return self.spends(**{name: getattr(self, name) for name in self.spends.parameter_names})

    def covering(self, touches: int) -> Self:
        """The same guarantee where one k changes up to so many members' votes: of distances,
        which count them, itself.
        """
        return self

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """The closed form; ``distance`` is float64, at least 0."""
        raise NotImplementedError

    @classmethod
    def of(cls, guarantee: Guarantee, classes: int = 2) -> Self:
        """The mechanism with this guarantee per query.

        Raises:
            ConfigError: it gives no guarantee of this kind (smooth_cauchy and a delta, say).
        """
        return validate(cls, {**guarantee.parameters, "classes": classes}, f"mechanism={cls.name}")

    def flip_probability(self, distance: np.ndarray) -> np.ndarray:
        """Probability that the released label is not the nominal one, in double precision also in
        the tail.

        Args:
            distance: integers >= 0, any shape: the evidence of each query.

        Raises:
            ConfigError: not integers, or negative.
        """
        evidence = _evidence(distance, self.needs, MAX_DISTANCE)
        return np.maximum(self._flip(evidence.astype(np.float64)), self._floor)

    def exact_flip(self, distance: int) -> Fraction:
        """The flip probability of what ``release`` does, a multiple of 2^-128."""
        (index,) = _evidence(np.array([distance]), self.needs, MAX_DISTANCE)
        return Fraction(self._thresholds(index), N)

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        farthest: int | None = None,
    ) -> np.ndarray:
        """The released labels: each nominal label, or with the flip probability another one,
        uniformly.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels.
            distances: [n] integers >= 0, their evidence.
            source: SystemRandomness for a release; anything else is a simulation.
            farthest: a public number that no evidence exceeds (more counts as this much): then the
                same operations on the same shapes whatever labels and evidence are. None: the
                greatest there is, which a clock may tell.

        Returns:
            [n] int64.

        Raises:
            ConfigError: shapes disagree, or values are out of range.
        """
        evidence = _evidence(
            distances, self.needs, MAX_DISTANCE if farthest is None else min(farthest, MAX_DISTANCE)
        )
        labels = self._labels(predictions, evidence)
        draw = Draw("labels", (self, farthest, len(labels)), (labels, evidence))
        return answered(
            source, draw, lambda source: self._drawn(labels, evidence, source, farthest)
        )

    def _drawn(
        self, labels: np.ndarray, evidence: np.ndarray, source: Randomness, farthest: int | None
    ) -> np.ndarray:
        """What ``release`` returns, of arguments that it checked."""
        draws = source.words(len(labels))
        longest = int(evidence.max(initial=0)) if farthest is None else min(farthest, MAX_DISTANCE)
        limits, pairs = self._limits(longest)
        halves = pairs[evidence]
        flipped = (draws[:, 0] < halves[:, 0]) | (
            (draws[:, 0] == halves[:, 0]) & (draws[:, 1] < halves[:, 1])
        )
        if self.classes == 2:
            return np.where(flipped, 1 - labels, labels)
        others = self.classes - 1
        ranks = [
            min(((high << 64) | low) // max(limits[value] // others, 1), others - 1)
            for (high, low), value in zip(draws.tolist(), evidence.tolist(), strict=True)
        ]
        rank = np.array(ranks, dtype=np.int64)
        return np.where(flipped, rank + (rank >= labels), labels)  # the rank-th of the other labels

    def expected_accuracy(
        self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray
    ) -> float:
        """The exact expectation of the released labels' accuracy: no draws, no repeats."""
        flip = self.flip_probability(distances)
        right = self._labels(predictions, np.asarray(distances)) == labels
        return float(np.where(right, 1 - flip, flip / (self.classes - 1)).mean())

    @property
    def _floor(self) -> float:
        """The least probability that a table can give, where none may be 0."""
        return math.ldexp(self.classes - 1, -BITS)

    @cached_property
    def _table(self) -> ThresholdTable:
        return ThresholdTable(rule_of(self.guarantee, self.classes), self._wish)

    def _limits(self, longest: int) -> tuple[list[int], np.ndarray]:
        """The thresholds of all evidence up to ``longest``: as numbers, and [longest + 1, 2] as
        words of 64 bits.
        """
        known: dict[int, tuple[list[int], np.ndarray]] = self.__dict__.setdefault(
            "_known_limits", {}
        )
        if longest not in known:
            limits = [self._thresholds(value) for value in range(longest + 1)]
            words = np.array([divmod(limit, 1 << 64) for limit in limits], dtype=np.uint64).reshape(
                -1, 2
            )
            known.clear()
            known[longest] = limits, words
        return known[longest]

    def _thresholds(self, evidence: int) -> int:
        """How many of the N draws flip the label."""
        return (self.classes - 1) * self._table.upto(evidence)[evidence]

    def _wish(self, distance: int) -> int:
        """The closed form as a number of draws per wrong label, rounded up, at least 1."""
        p = float(self._flip(np.array([float(distance)]))[0])
        return max(1, math.ceil(math.ldexp(p, BITS) / (self.classes - 1)))

    def _labels(self, predictions: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        labels = np.asarray(predictions)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.shape != evidence.shape:
            raise ConfigError(
                f"mechanism={self.name}: predictions and distances must be integers, one of each "
                "per query; got "
                f"{labels.dtype} {labels.shape} and {evidence.dtype} {evidence.shape}"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
            raise ConfigError(
                f"mechanism={self.name}: predictions must be labels 0..{self.classes - 1}"
            )
        return labels.astype(np.int64)


@keyword_schema
class PureMechanism(Mechanism):
    """A mechanism whose one parameter is the eps of one query."""

    eps: Epsilon


def _evidence(distance: np.ndarray, need: Need, farthest: int) -> np.ndarray:
    values = np.asarray(distance)
    if values.dtype.kind not in "iu":
        raise ConfigError(
            f"{need}: expected integers, got {values.dtype}: a stable distance is a whole number "
            "of records"
        )
    if values.size and values.min() < 0:
        raise ConfigError(f"{need}: negative values: a stable distance is at least 0")
    if need == "nothing":
        return np.zeros(values.shape, dtype=np.int64)
    if need == "votes":  # a gap between counts keeps its parity
        return np.where(values > farthest, farthest - (values - farthest) % 2, values).astype(
            np.int64
        )
    return np.minimum(values, farthest).astype(np.int64)


POINTS = 65
DELTAS = tuple(10.0**-n for n in range(1, 13))
_END = 1e-12  # the last eps is where delta is within this of what no eps takes away

Deltas = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)]
Epsilons = Annotated[tuple[NonNegative, ...], Field(min_length=1)]


@schema
class Curve:
    """A privacy curve.

    Attributes:
        eps, delta: [n] the points, eps from 0 upwards.
        at_delta, at_eps: [m] the other way round: for usual deltas, the least eps; deltas below all
            of the curve left out.

    Raises:
        ConfigError: lengths differ, or eps falls or delta grows along it.
    """

    eps: Epsilons
    delta: Deltas
    at_delta: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    at_eps: tuple[NonNegative, ...] = ()

    def __post_init__(self) -> None:
        if len(self.eps) != len(self.delta) or len(self.at_delta) != len(self.at_eps):
            raise ConfigError("a privacy curve has as many deltas as eps")
        for eps, delta in ((self.eps, self.delta), (self.at_eps, self.at_delta)):
            if list(eps) != sorted(eps) or list(delta) != sorted(delta, reverse=True):
                raise ConfigError("along a privacy curve eps grows and delta falls")

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(eps, delta) of both, in order."""
        both = zip((*self.eps, *self.at_eps), (*self.delta, *self.at_delta), strict=True)
        return tuple(sorted(both, key=lambda point: (point[0], -point[1])))

    @property
    def csv(self) -> str:
        """A line a point."""
        return "".join(("eps,delta\n", *(f"{eps!r},{delta!r}\n" for eps, delta in self.points)))


@lru_cache(maxsize=256)
def curve_of(guarantee: Guarantee, queries: int) -> Curve:
    """Of releases whose number and guarantee are fixed beforehand, by the optimal composition."""
    return _sampled(lambda eps: delta_of(guarantee, queries, eps))


@lru_cache(maxsize=256)
def curve_of_budget(allowance: Allowance) -> Curve:
    """Of all that a budget's filters ever admit, however it is chosen."""
    return _sampled(allowance.delta_of)


def _sampled(delta_of: Callable[[float], float]) -> Curve:
    floor, end = delta_of(1e300), 1.0
    while delta_of(end) > floor + max(_END, floor / 1e3) and end < 1e12:
        end *= 2

    def least_eps(delta: float) -> float:
        return least(lambda eps: delta_of(eps) <= delta, 0.0, end)

    end = least_eps(floor + max(_END, floor / 1e3))
    eps = np.linspace(0, end, POINTS).tolist()
    delta = np.minimum.accumulate([delta_of(e) for e in eps]).tolist()
    at = [d for d in DELTAS if delta_of(end) <= d < delta[0]]
    return Curve(tuple(eps), tuple(delta), tuple(at), tuple(map(least_eps, at)))
