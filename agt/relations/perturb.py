"""The relation perturb: the features of up to k units move, each by at most a public radius."""

from collections.abc import Iterable, Iterator
from typing import NoReturn

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.errors import ConfigError
from agt.kernels.reference import gradient_bounds_in_blocks
from agt.messages import Message
from agt.relations.relation import BoundsOfRecords, Relation, one_for_each_k
from agt.settings import QUANTA


class Perturb(Relation):
    """Neighbours have other features on up to k private units, within ``relation.radius``.

    Formal guarantees:
        - The greatest sum of a batch is U + top_r(max(u' - u, 0)), divided by the public constant
          B, where u' bounds a record's gradient over the whole ball of its features (Lemma 8 of
          docs/proofs/relations.md).
        - Labels, ids, batches and shards stay.
        - Boxes contain every neighbour's training, but they do not nest; so no mechanism may use
          its certificates.
    """

    name = "perturb"
    ball_template = (
        "up to {k} {many} given other features, each within {radius} of what it was; "
        "labels, ids and split stay"
    )
    edit_template = "{one} given other features within a public radius"
    changes = "features"
    selects = True
    private_only = True
    reason_not_nested = (
        "boxes of neighbours do not nest, because a record whose features moved may move by "
        "the radius again"
    )
    reason_not_releasable = (
        "the boxes of neighbouring datasets do not nest, so certificates about features "
        "within a radius only hold against poisoning"
    )
    remarks = ("This relation is about poisoning, not about privacy.",)

    def check_edits_whole_records(self) -> NoReturn:
        """Refuse everything but boxes, which alone follow features that move."""
        raise ConfigError(
            f"relation={self.name}: only boxes, without noise, bound features that move "
            "within a radius. Use certificate=box; or use relation=substitute, which counts "
            "a record with other features as a replaced record"
        )

    def check_dealing(self, batches: int, members: int) -> None:
        """Refuse several batches or members, among which a moved record could change its place.

        Its id, by which it is placed, may be a hash of its features (Lemma 8 of
        docs/proofs/relations.md).
        """
        if batches > 1 or members > 1:
            raise ConfigError(
                Message(
                    "relation={name} needs a single batch and a single member, but "
                    "{config:training.batch.count}={batches} and "
                    "{config:ensemble.members}={members}: unless ids are given, they are "
                    "hashes of features, so a record whose features change may move to "
                    "another batch or shard. Set both to 1",
                    name=self.name,
                    batches=batches,
                    members=members,
                )
            )

    def check_plan(self) -> NoReturn:
        """Refuse to plan a release: no mechanism may use the certificates."""
        raise ConfigError(
            f"relation={self.name}: {self.reason_not_releasable}, so no release can be "
            "planned with them"
        )

    def selection_shape(self, parameter: Tensor) -> tuple[int, ...]:
        """Return the flat shape, in which ``encode_deviations`` yields deviations."""
        return (parameter.numel(),)

    def record_bounds(
        self,
        bounds_of: BoundsOfRecords,
        features: Tensor,
        ks: int,
        radius: float | None,
        product: str,
    ) -> Iterator[tuple[Gradient, Iterable[Gradient]]]:
        """Yield the bounds of unmoved records, and how far those of moved records exceed them."""
        assert radius is not None  # RelationConfig refuses this relation without a radius
        unmoved_gradients = bounds_of(features)
        moved_gradients = bounds_of(bound_moved_features(features, radius, ks))
        for unmoved, moved in zip(unmoved_gradients, moved_gradients, strict=True):
            yield unmoved, encode_deviations(unmoved, moved, product)

    def decode_selected_sums(
        self, greatest_lower: Tensor, least_upper: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected deviations, in quanta."""
        return decode_deviations(greatest_lower, least_upper, counts)


def bound_moved_features(features: Tensor, radius: float, ks: int) -> Interval:
    """Return where features may move to, as the network reads them, [ks, n, ...].

    Args:
        features: [n, ...] features, in the precision of the run.
        radius: by how much each feature may move, as it is stored.
        ks: K, for how many values of k the same ball is returned.

    Formal guarantees:
        - A stored feature that moves by at most ``radius`` lies in the ball after it is rounded
          to the run's precision (Lemma 9 of docs/proofs/relations.md).
    """
    precision = torch.finfo(features.dtype)
    exact = features.double()
    # The radius, and what reading a feature and this sum may round.
    reach = radius + 2 * precision.eps * (exact.abs() + radius) + 2 * precision.tiny
    lower = (exact - reach).to(features.dtype)
    upper = (exact + reach).to(features.dtype)
    shape = (ks, *features.shape)
    return Interval(lower.expand(shape), upper.expand(shape))


def encode_deviations(unmoved: Gradient, moved: Gradient, product: str) -> Iterator[Gradient]:
    """Yield how far the bounds of moved records exceed those of unmoved ones, encoded.

    Deviations are counted in pairs of quanta, rounded up, which gives values of 0 to Q. A lower
    deviation v is encoded as v - Q and an upper one as Q - v: a selection takes the greatest lower
    and the least upper values, so it takes the largest deviations. ``decode_deviations`` undoes
    the code.

    Args:
        unmoved: bounds on the gradients of the records where they are, for one parameter.
        moved: bounds on the same gradients, wherever in its ball each record is.
        product: the interval product, as in ``TrainingConfig``.

    Yields:
        [K, records, parameters], some records after others.
    """
    unmoved_chunks = gradient_bounds_in_blocks(unmoved.d, unmoved.x, product)
    moved_chunks = gradient_bounds_in_blocks(moved.d, moved.x, product)
    for inner, outer in zip(unmoved_chunks, moved_chunks, strict=True):
        # Lemma 8 of docs/proofs/relations.md: max(u' - u, 0) above, max(l - l', 0) below.
        below = _in_pairs_of_quanta(inner.lower - outer.lower)
        above = _in_pairs_of_quanta(outer.upper - inner.upper)
        encoded = Interval(below - QUANTA, QUANTA - above)
        yield Gradient(unmoved.parameter, encoded, None)


def _in_pairs_of_quanta(deviations: Tensor) -> Tensor:
    """Return deviations [K, records, ...] as halves, rounded up, [K, records, parameters]."""
    pairs = deviations.clamp(min=0) / 2
    return pairs.ceil().flatten(2)


def decode_deviations(
    greatest_lower: Tensor, least_upper: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums of deviations that sums over encoded values stand for.

    Args:
        greatest_lower: [K, ...] int64, the sums of the selected encoded lower deviations.
        least_upper: [K, ...] int64, the sums of the selected encoded upper deviations.
        counts: [K] how many deviations were selected.

    Returns:
        ([K, ...] the lower deviations' sum, [K, ...] minus the upper deviations' sum), in quanta:
        what ``Relation.numerators`` takes away.
    """
    offset = QUANTA * one_for_each_k(counts, greatest_lower)
    lower_deviations = 2 * (greatest_lower + offset)
    minus_upper_deviations = 2 * (least_upper - offset)
    return lower_deviations, minus_upper_deviations


RELATION = Perturb()
