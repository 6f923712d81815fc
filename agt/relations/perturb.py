"""perturb: the features of up to k units move, each by at most a public radius.

    upper numerator U + top_r(max(u' - u, 0)), divided by B

Formal guarantees
    Labels and ids stay; of up to r private records, features may move, each by at most ``radius``.
    Let theta' lie in the box. A record that stays has its gradient in [l, u]; one that moved in
    [l', u'], the bounds of the same passes begun at the whole ball (``ball``). So a sum is at most
    that of all u and, of the records S that moved, of u' - u: at most U + top_r(max(u' - u, 0)),
    parameter by parameter, whichever r private records S are. The lower end mirrors it, with
    l - l'. ``deviations`` counts these in twos of quanta, rounded up, so that none is above Q.
    Boxes hold, and do not nest: a record that moved may move as far again, so the ball of k - 1
    around a neighbour is no part of that of k, and nothing may be released by them
    (``Relation.no_release``). A record that moves must not change its batch or shard, as its id
    would where that is a hash of it: ``check_dealing`` refuses more than one batch or member.
"""

from collections.abc import Iterable, Iterator
from typing import NoReturn

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.errors import ConfigError
from agt.kernels.reference import gradient_bounds_in_blocks
from agt.messages import Message
from agt.relations.relation import BoundsOfRecords, Relation
from agt.settings import QUANTA


class Perturb(Relation):
    """Records stay under their labels and ids, with other features."""

    name = "perturb"
    ball_template = (
        "up to {k} {many} given other features, each within {radius} of what it was; "
        "labels, ids and split stay"
    )
    edit_template = "{one} given other features within a public radius"
    changes = "features"
    selects = True
    private_only = True
    unnested = (
        "a record whose features moved may move as far again, so boxes of neighbours do not nest"
    )
    no_release = (
        "neighbours' boxes do not nest: certificates about features within a radius are "
        "against poisoning"
    )
    remarks = ("It speaks about poisoning, not about privacy.",)

    def check_moves_records(self) -> NoReturn:
        """Refuse: boxes alone follow features."""
        raise ConfigError(
            f"relation={self.name}: features that move within a radius are bounded by boxes alone, "
            "without noise: use certificate=box; or relation=substitute, to which they are a "
            "record "
            "replaced"
        )

    def check_dealing(self, batches: int, members: int) -> None:
        """Refuse batches and shards, and with them names that are hashes of content."""
        if batches > 1 or members > 1:
            raise ConfigError(
                Message(
                    "relation={name}: {config:training.batch.count}={batches} "
                    "{config:ensemble.members}={members}: ids are hashes of features unless "
                    "given, so a record that moves may come to another batch or shard: use "
                    "1 of each",
                    name=self.name,
                    batches=batches,
                    members=members,
                )
            )

    def check_plan(self) -> NoReturn:
        """Refuse it: no mechanism takes the certificates."""
        raise ConfigError(
            f"relation={self.name}: {self.no_release}, and no release can be planned by them"
        )

    def selection_shape(self, parameter: Tensor) -> tuple[int, ...]:
        """Return the flat shape, in which deviations come."""
        return (parameter.numel(),)

    def record_bounds(
        self,
        bounds_of: BoundsOfRecords,
        features: Tensor,
        ks: int,
        radius: float | None,
        product: str,
    ) -> Iterator[tuple[Gradient, Iterable[Gradient]]]:
        """Yield the records' bounds, and how far those of their balls reach beyond them."""
        assert radius is not None  # RelationConfig
        in_ball = bounds_of(ball(features, radius, ks))
        for near, far in zip(bounds_of(features), in_ball, strict=True):
            yield near, deviations(near, far, product)

    def selected_sums(
        self, greatest: Tensor, least: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return sums of deviations in quanta."""
        return farthest(greatest, least, counts)


def ball(x: Tensor, radius: float, ks: int) -> Interval:
    """Return where features may move to, [ks, n, ...], as they are read in x's precision.

    Args:
        x: [n, ...] features, each of which may move by ``radius``.

    Formal guarantees
        Let v be a feature as it is kept, |v' - v| <= radius, eps the dtype's spacing at 1. Reading
        rounds either by half of eps at most, relatively, or by less than ``tiny``; in all by less
        than eps (|x| + radius) + tiny, and the sum here, in float64, by less than as much again.
        Rounding to the dtype is monotone, and x' is of the dtype.
    """
    info, exact = torch.finfo(x.dtype), x.double()
    reach = radius + 2 * info.eps * (exact.abs() + radius) + 2 * info.tiny
    lower, upper = (end.to(x.dtype).expand(ks, *x.shape) for end in (exact - reach, exact + reach))
    return Interval(lower, upper)


def deviations(near: Gradient, far: Gradient, product: str) -> Iterator[Gradient]:
    """Yield how far bounds ``far`` reach beyond ``near``, [K, records, parameters], in pieces.

    In twos of quanta, rounded up, 0 to Q each: the lower end is the one below less Q, the upper end
    Q less the one above, so that a selection's greatest and least are the farthest; ``farthest``
    makes sums of deviations of its sums.
    """
    blocks = (gradient_bounds_in_blocks(each.d, each.x, product) for each in (near, far))
    for inner, outer in zip(*blocks, strict=True):
        below, above = inner.lower - outer.lower, outer.upper - inner.upper
        lower, upper = ((gap.clamp(min=0) / 2).ceil().flatten(2) for gap in (below, above))
        yield Gradient(near.parameter, Interval(lower - QUANTA, QUANTA - upper), None)


def farthest(greatest: Tensor, least: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums [K, ...] of deviations, in quanta, from those over ``counts`` [K] selected."""
    shift = QUANTA * counts.view(-1, *[1] * (greatest.dim() - 1))
    return 2 * (greatest + shift), 2 * (least - shift)


RELATION = Perturb()
