"""Neighbour relations: which datasets count as neighbours, and what that does to a batch's summed gradient.

All sums are integers in quanta of gamma / 2^30 (kernels/reference.py). With r = k * unit_rows rows at stake, U and L the
sums of the records' upper and lower bounds, low_r(u) the sum of the r least u, top_r(l) of the r greatest l, Q = 2^30:

| relation         | upper numerator                | divisor | ball of one k                    | symmetric |
|------------------|--------------------------------|---------|----------------------------------|-----------|
| add_remove       | U + r Q                        | B       | k records added or removed       | yes       |
| remove           | U - low_r(min(u, 0))           | B       | k records removed                | no        |
| substitute       | U - low_r(min(u, 0)) + r Q     | B       | k records replaced               | yes       |
| perturb          | U + top_r(max(u' - u, 0))      | B       | k records' features moved        | yes       |
| paper_privacy    | U - low_r(u) + r Q             | b       | k records removed and k added    | yes       |
| paper_unlearning | U - low_r(u)                   | b - r   | k records removed                | no        |

Lower numerators mirror them. Sources: method.md section 2; paper_privacy is 001 Theorem 4.6, paper_unlearning is 000.

Formal guarantees
    add_remove: a record gone takes away g in [l, u], one added brings at most Q; since u <= Q, -l <= Q, each of r changes
    moves the sum by at most Q beyond [L, U]. Public records are summed in and never change.
    remove: at most r private records go, each takes u away at worst, and only u < 0 raises the sum.
    substitute: a replaced record's id, and with it its batch, may change (default ids hash the content). So this batch may
    lose up to r records and, independently, gain up to r: hence min(u, 0) rather than u, which would assume that the
    newcomer lands in the same batch.
    paper_privacy: the mean over the actual batch; for r >= b it is anything in [-gamma, gamma]. Unsound if public records
    share the batch, so those are refused.
    paper_unlearning: the mean over what is left; for r >= b that may be one record, or none (mean 0).
    touches. A record's batch and shard depend on its own unit's id alone (method.md section 3b), so one unit more or one
    less changes one batch of an epoch and one member of an ensemble; a unit replaced, or one removed while another comes,
    changes two at most, each by one unit gone, one come, or both.
    flip. The records stay and up to k labels change, so no batch's size, and no sum but by what labels do. No rule here is
    for boxes: ``moving`` refuses it; certificates/flips.py counts it, and training/linear.py bounds what it does. Ids are
    made without labels (``Dataset.label_free``), so one flip changes one batch of an epoch and one member.
    perturb. Labels and ids stay; of up to r private records, features may move, each by at most ``radius``. Let theta' lie
    in the box. A record that stays has its gradient in [l, u]; one that moved in [l', u'], the bounds of the same passes
    begun at the whole ball (``ball``). So a sum is at most that of all u and, of the records S that moved, of u' - u: at
    most U + top_r(max(u' - u, 0)), parameter by parameter, whichever r private records S are. The lower end mirrors it,
    with l - l'. ``deviations`` counts these in twos of quanta, rounded up, so that none is above Q. Boxes hold, and do not
    nest: a record that moved may move as far again, so the ball of k - 1 around a neighbour is no part of that of k, and
    nothing may be released by them (``Relation.no_release``). A record that moves must not change its batch or shard, as
    its id would where that is a hash of it: problem.py refuses more than one batch or member.
    One side alone. In a relation that touches two, one unit gone and none come is within one k as well, and so is one come
    and none gone: a shard sees such halves of an edit (certificates/votes.py). Boxes hold and nest for them. Write B(D, r)
    for the batches with up to r rows of D gone and, independently, up to r come, and let D' be D less (or plus) a unit of
    up to m rows: B(D', r - m) is part of B(D, r), for what is gone from D' and what D' lacks are at most r rows of D, and
    what has come likewise. substitute's numerators are the extreme sums over B(D, r), whose inclusion they thus follow.
    paper_privacy's are the extreme means: of all batches b - a + c, a <= r, c <= r, the greatest mean has c = r and then
    a = r (an added gamma raises a mean, and so does taking out the least), which is the rule; so these follow the inclusion
    too, and where r >= b the rule is the whole [-gamma, gamma].
    Range. A batch has b <= n_max <= 2^30 records and r <= 2^30 (settings.MOST_ROWS; BatchPlan and ``rows_at_stake`` see to
    it), and |l|, |u| <= Q. Sums of bounds and of selected bounds are at most b Q <= 2^60 in size, U - low_r is a sum of at
    most b bounds again, r Q <= 2^60, and deviations are at most 2 b Q: every numerator is at most 3 2^60 in size, and int64
    holds it.
    Rounding. A constant divisor: an integer beyond 2^53 is rounded to the nearest double, then the quotient and the product
    with gamma / Q are; each is monotone, and the nominal run, those of neighbours and both ends of every box take the same
    three operations with the same constants. An integer between two others stays between them: nothing needs widening.
    A mean: where its value counts r < b <= 2^23, so numerators are at most 2^53, exact, and means of different divisors
    compare as fractions do; where r >= b it is replaced.
    The papers' divisor is b, b - r for bounds and the neighbour's own size for its nominal run. Sums of up to 2^23 rows are
    exact in float64, hence so is the comparison of their means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.rules import Gradient
from agt.errors import ConfigError
from agt.kernels.reference import QUANTA, quantised
from agt.settings import MOST_ROWS, RelationName

EXACT_ROWS = 2**23  # rows whose sum of quanta float64 holds exactly


class Sums(NamedTuple):
    """Integer sums over one batch, each [K, ...]: of all bounds, and of the selected extremes (None if unused)."""

    lower: Tensor
    upper: Tensor
    greatest: Tensor | None = None
    least: Tensor | None = None


@dataclass(frozen=True)
class Relation:
    """A neighbour relation's update rule.

    Attributes:
        name: its name in the configuration.
        counts: in words, what one k counts, ``{many}`` being records or units, ``{k}`` how many.
        symmetric: D' near D implies D near D'; without it no release mechanism may use the certificate.
        selects: the rule needs the sum of the r most extreme bounds.
        capped: ... of min(u, 0) and max(l, 0), among private records, instead of u and l.
        adds: r records may be added.
        mean: divides by the actual batch (the papers) instead of the public constant B.
        touches: in how many places one k can change records: at most this many batches of an epoch, and members of an
            ensemble, each by one unit gone, one come, or both.
        moved: how many units one k takes out and puts in, together; a record under another label is one gone and one come.
        labels: labels alone change.
        edit: one k in words, ``{one}`` being the record or unit.
        features: features alone change, within a radius.
    """

    name: RelationName
    counts: str
    symmetric: bool
    selects: bool
    capped: bool
    adds: bool
    mean: bool
    touches: int
    moved: int
    labels: bool
    edit: str
    features: bool = False

    @property
    def no_release(self) -> str:
        """Why no release mechanism may use its certificates, and what alone they are for; empty: it may."""
        if self.features:
            return "neighbours' boxes do not nest: certificates about features within a radius are against poisoning"
        one_way = "condition g (symmetric relation) does not hold: certificates about removals alone are for unlearning"
        return "" if self.symmetric else one_way

    def ball_of(self, unit_rows: int = 1, radius: float | None = None, k: int | None = None) -> str:
        """What so many k count, in words; None: any k."""
        many = "records" if unit_rows == 1 else f"units of up to {unit_rows} records"
        public_radius = "a public radius" if radius is None else f"{radius:g}"
        return self.counts.format(many=many, radius=public_radius, k="k" if k is None else f"{k:,}")

    def neighbours(self, unit_rows: int) -> str:
        """Which datasets are neighbours, in words."""
        one = "one record" if unit_rows == 1 else f"one unit of up to {unit_rows} records"
        return self.edit.format(one=one)

    def selected(self, rows: int, batch: int, private: int) -> int:
        """How many records to select when ``rows`` are at stake in a batch of ``batch``, ``private`` of them private."""
        if not self.selects:
            return 0
        if self.capped:
            return min(rows, private)
        if rows < batch:
            return rows
        return max(batch - 1, 0)  # paper_unlearning: the single worst record is left; paper_privacy does not look

    def direction(self, sums: Sums, rows: Tensor, batch: int, normalizer: float, clip: float) -> tuple[Tensor, Tensor]:
        """Bounds on the descent direction.

        Args:
            sums: the batch's integer sums.
            rows: [K] int64, r for each k.
            batch: b, the number of records.
            normalizer: B; unused by the papers' rules.
            clip: gamma.

        Returns:
            (lower, upper), each [K, ...] float64.
        """
        r = rows.view(-1, *[1] * (sums.lower.dim() - 1))
        lower = sums.lower if sums.greatest is None else sums.lower - sums.greatest
        upper = sums.upper if sums.least is None else sums.upper - sums.least
        if self.adds:
            lower, upper = lower - r * QUANTA, upper + r * QUANTA
        if not self.mean:
            divisor = torch.full_like(r, normalizer, dtype=torch.float64)
            return _divide(lower, divisor, clip), _divide(upper, divisor, clip)
        left = torch.full_like(r, batch) if self.adds else batch - r
        divisor = left.clamp(min=1).double()
        lower, upper = _divide(lower, divisor, clip), _divide(upper, divisor, clip)
        emptied = r >= max(batch, 1)
        if self.adds:
            return torch.where(emptied, -clip, lower), torch.where(emptied, clip, upper)
        return torch.where(emptied, lower.clamp(max=0), lower), torch.where(emptied, upper.clamp(min=0), upper)

    def nominal_direction(self, total: Tensor, batch: int, normalizer: float, clip: float) -> Tensor:
        """The descent direction of the actual batch, float64: the same operations in the same order."""
        divisor = total.new_tensor(max(batch, 1) if self.mean else normalizer, dtype=torch.float64)
        return _divide(total, divisor, clip)


def rows_at_stake(ks: Sequence[int], unit_rows: int) -> list[int]:
    """r = k * unit_rows for each k.

    Raises:
        ConfigError: more than ``MOST_ROWS``, beyond which the sums here are not proved to stay in range.
    """
    if max(ks) * unit_rows > MOST_ROWS:
        raise ConfigError(
            f"kgrid: k = {max(ks)} (of kgrid.max or kgrid.values) times relation.unit_rows = {unit_rows} puts "
            f"{max(ks) * unit_rows} rows at stake, and sums are exact up to {MOST_ROWS}: lower one of them"
        )
    return [k * unit_rows for k in ks]


def moving(name: RelationName) -> Relation:
    """The relation of this name, if its edits move whole records.

    Raises:
        ConfigError: labels alone change, of which a batch's sum of gradients tells nothing; or features alone, which boxes
            alone follow.
    """
    rule = RELATIONS[name]
    if rule.features:
        raise ConfigError(
            f"relation={name}: features that move within a radius are bounded by boxes alone, without noise: use "
            "certificate=box; or relation=substitute, to which they are a record replaced"
        )
    if rule.labels:
        raise ConfigError(
            f"relation={name}: changed labels are counted by linear heads alone: use certificate=votes learner=ridge "
            "(exact; ensemble.members=1: one head on all records), certificate=stability or erm; or relation=substitute, "
            "to which a flip is a record replaced"
        )
    return rule


def ball(x: Tensor, radius: float, ks: int) -> Interval:
    """[ks, n, ...]: what features [n, ...] are where each may move by ``radius``, as they are read in x's precision.

    Formal guarantees
        Let v be a feature as it is kept, |v' - v| <= radius, eps the dtype's spacing at 1. Reading rounds either by half of
        eps at most, relatively, or by less than ``tiny``; in all by less than eps (|x| + radius) + tiny, and the sum
        here, in float64, by less than as much again. Rounding to the dtype is monotone, and x' is of the dtype.
    """
    info, exact = torch.finfo(x.dtype), x.double()
    reach = radius + 2 * info.eps * (exact.abs() + radius) + 2 * info.tiny
    lower, upper = (end.to(x.dtype).expand(ks, *x.shape) for end in (exact - reach, exact + reach))
    return Interval(lower, upper)


def deviations(near: Gradient, far: Gradient, product: str) -> Iterator[Gradient]:
    """How far each record's bounds ``far`` reach beyond those ``near``: [K, records, parameters], some records at a time.

    In twos of quanta, rounded up, 0 to Q each: the lower end is the one below less Q, the upper end Q less the one above,
    so that a selection's greatest and least are the farthest; ``farthest`` makes sums of deviations of its sums.
    """
    blocks = (quantised(each.d, each.x, product) for each in (near, far))
    for inner, outer in zip(*blocks, strict=True):
        below, above = inner.lower - outer.lower, outer.upper - inner.upper
        lower, upper = ((gap.clamp(min=0) / 2).ceil().flatten(2) for gap in (below, above))
        yield Gradient(near.parameter, Interval(lower - QUANTA, QUANTA - upper), None)


def farthest(greatest: Tensor, least: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """What ``direction`` takes away, in quanta, of the sums [K, ...] over ``counts`` [K] records that were selected."""
    shift = QUANTA * counts.view(-1, *[1] * (greatest.dim() - 1))
    return 2 * (greatest + shift), 2 * (least - shift)


def _divide(total: Tensor, divisor: Tensor, clip: float) -> Tensor:
    """total quanta / divisor, in units of the gradient, float64.

    The quotient is taken first, for means of two exact numbers: correctly rounded, it grows with the fraction itself, so
    that means over batches of different sizes compare as they should; scaled first, equal means could differ in the last
    bit. The divisor is a tensor because a GPU multiplies by the reciprocal of a plain number.
    """
    return total.double() / divisor * (clip / QUANTA)


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (
        Relation(
            "add_remove",
            "up to {k} {many} added or removed in all",
            symmetric=True,
            selects=False,
            capped=False,
            adds=True,
            mean=False,
            touches=1,
            moved=1,
            labels=False,
            edit="{one} added or removed",
        ),
        Relation(
            "remove",
            "up to {k} {many} removed",
            symmetric=False,
            selects=True,
            capped=True,
            adds=False,
            mean=False,
            touches=1,
            moved=1,
            labels=False,
            edit="{one} removed",
        ),
        Relation(
            "substitute",
            "up to {k} {many} replaced by others",
            symmetric=True,
            selects=True,
            capped=True,
            adds=True,
            mean=False,
            touches=2,
            moved=2,
            labels=False,
            edit="{one} replaced by another",
        ),
        Relation(
            "flip",
            "up to {k} {many} given other labels",
            symmetric=True,
            selects=False,
            capped=False,
            adds=False,
            mean=False,
            touches=1,
            moved=2,
            labels=True,
            edit="{one} given another label; its features, and who is among the records, are not protected",
        ),
        Relation(
            "perturb",
            "up to {k} {many} given other features, each within {radius} of what it was; labels, ids and split stay",
            symmetric=True,
            selects=True,
            capped=True,
            adds=False,
            mean=False,
            touches=1,
            moved=2,
            labels=False,
            edit="{one} given other features within a public radius",
            features=True,
        ),
        Relation(
            "paper_privacy",
            "up to {k} {many} removed and, at the same time, up to {k} added",
            symmetric=True,
            selects=True,
            capped=False,
            adds=True,
            mean=True,
            touches=2,
            moved=2,
            labels=False,
            edit="{one} removed and, at the same time, one added",
        ),
        Relation(
            "paper_unlearning",
            "up to {k} {many} removed",
            symmetric=False,
            selects=True,
            capped=False,
            adds=False,
            mean=True,
            touches=1,
            moved=1,
            labels=False,
            edit="{one} removed",
        ),
    )
}
