"""The relation perturb: the features of up to k units change, each by at most a public radius."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NoReturn

from agt.errors import ConfigError
from agt.messages import Message
from agt.relations.relation import BoundsOfRecords, Relation, add_parameter_axes
from agt.settings import QUANTA

if TYPE_CHECKING:
    from torch import Tensor

    from agt.bounds.interval import Interval
    from agt.bounds.layer_rule import Gradient


class Perturb(Relation):
    """Neighbours have other features on up to k private units, each within a public radius.

    One edit changes the features of one private unit, each feature by at most the setting
    ``relation.radius``. A record whose features change is called moved here, and the intervals that
    its features may reach are called its ball.

    Formal guarantees:
        - The greatest sum of a batch is U + top_r(max(u' - u, 0)), divided by the public constant
          B. U is the sum of the records' upper bounds u, and u' bounds a record's gradient over its
          whole ball. top_r is the sum of the r greatest values over private records, where r is
          how many records of the batch k edits can move (Lemma 8 of docs/proofs/relations.md).
        - Labels, ids, batches and shards stay.
        - Boxes contain every neighbour's training, but they do not nest; so no mechanism may use
          its certificates.
    """

    name = "perturb"
    ball_template = (
        "up to {k} {units} with changed features, each feature by at most {radius}; their "
        "labels, ids and split stay the same"
    )
    counted_template = (
        "{units} with changed features, each feature by at most {radius} (labels, ids and split "
        "stay the same)"
    )
    edit_template = "{one_unit} with changed features, each feature by at most a public radius"
    changes = "features"
    selects = True
    private_only = True
    reason_not_nested = (
        "a record whose features were already changed may be changed by the radius "
        "(relation.radius) again. Therefore, the bounds on the weights (boxes) that are "
        "computed from one dataset need not lie within those from its neighbour"
    )
    reason_not_releasable = (
        "the bounds on the weights (boxes) of one dataset need not lie within those of its "
        "neighbour. So certificates about features that change within a radius only hold against "
        "poisoning, not for a private release"
    )
    remarks = ("Certificates under this relation are about poisoning, not about privacy.",)

    def whole_records_error(self) -> ConfigError:
        """Return the error for a use that does not cover edits that only change features.

        The message names the use that does, boxes, and `substitute` as another relation.
        """
        return ConfigError(
            f"relation={self.name}: only certificate=box, without noise, bounds the effect of "
            "features that change within a radius: use certificate=box. Or use "
            "relation=substitute, which counts a record with other features as a replaced record"
        )

    def check_batches_and_shards(self, batches: int, members: int) -> None:
        """Raise ConfigError if there are several batches or several members of an ensemble.

        Records are placed in batches and shards by their ids. An id may be a hash of the features,
        so a moved record could change its batch or shard (Lemma 8 of docs/proofs/relations.md).

        Args:
            batches: the number of batches of an epoch.
            members: the number of members of the ensemble; 1: no ensemble.
        """
        if batches > 1 or members > 1:
            raise ConfigError(
                Message(
                    "relation={name} needs {config:training.batch.count}=1 and "
                    "{config:ensemble.members}=1 (they are {batches} and {members}). A record "
                    "whose features change may move to another batch or member, because ids are "
                    "hashes of features unless they are given",
                    name=self.name,
                    batches=batches,
                    members=members,
                )
            )

    def check_plan(self) -> NoReturn:
        """Raise ConfigError: no private release may use the certificates, so none is planned."""
        raise ConfigError(
            f"relation={self.name}: no private release can be planned, because "
            f"{self.reason_not_releasable}"
        )

    def selection_shape(self, parameter: "Tensor") -> tuple[int, ...]:
        """Return the shape of the parameter as a vector, as ``encode_deviations`` yields values.

        Args:
            parameter: the parameter, of any shape.
        """
        return (parameter.numel(),)

    def record_bounds(
        self,
        bounds_of: BoundsOfRecords,
        features: "Tensor",
        ks: int,
        radius: float | None,
        product: str,
    ) -> Iterator[tuple["Gradient", Iterable["Gradient"]]]:
        """Yield bounds on records' gradients, and how far moved features may exceed them.

        To bound a sum of gradients after the features of r records moved, training selects for each
        scalar parameter the r records with the largest deviations. A deviation is how far the bound
        over all features within the radius exceeds the bound at the given features.

        Args:
            bounds_of: a function from features [n, ...], or bounds on them, to bounds on the
                records' gradients, one parameter after another.
            features: [n, ...], the features of the records as they are.
            ks: K, the number of distances k for which bounds are computed at once.
            radius: the largest change of each feature.
            product: "exact" or "rump", how two intervals are multiplied.

        Yields:
            For each parameter (bounds on the gradients at the given features, the deviations to
            select from, as ``encode_deviations`` encodes them).
        """
        assert radius is not None  # RelationConfig refuses this relation without a radius
        unmoved_gradients = bounds_of(features)
        moved_gradients = bounds_of(bound_moved_features(features, radius, ks))
        for given_bounds, moved_bounds in zip(unmoved_gradients, moved_gradients, strict=True):
            yield given_bounds, encode_deviations(given_bounds, moved_bounds, product)

    def decode_selected_sums(
        self, greatest_lower: "Tensor", least_upper: "Tensor", counts: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        """Return the sums of the selected deviations, from the sums of their encoded values.

        A deviation is how far a bound on a record's gradient moves outwards if the record's
        features may move within the radius.

        Args:
            greatest_lower: [K, ...] int64, the sums of the selected encoded lower deviations.
            least_upper: [K, ...] int64, the sums of the selected encoded upper deviations.
            counts: [K] int64, the number of deviations that were selected for each k.

        Returns:
            What ``decode_deviations`` returns.
        """
        return decode_deviations(greatest_lower, least_upper, counts)


def bound_moved_features(features: "Tensor", radius: float, ks: int) -> "Interval":
    """Return the intervals within the radius of the given features, as the network reads them.

    Args:
        features: [n, ...] features, finite, in the precision of the run.
        radius: the largest change of each stored feature, at least 0.
        ks: K, for how many distances k the same intervals are repeated.

    Returns:
        [K, n, ...], a view that repeats one tensor K times.

    Formal guarantees:
        - A stored feature that moves by at most ``radius``, and is then rounded to the run's
          precision, lies in its interval (Lemma 9 of docs/proofs/relations.md).
    """
    # Imported here, so that settings are checked without PyTorch.
    import torch

    from agt.bounds.interval import Interval

    precision = torch.finfo(features.dtype)
    exact = features.double()
    # ``half_width`` is the radius plus twice the largest error of reading a feature in the run's
    # precision, which also covers the rounding of the sums below (Lemma 9 of
    # docs/proofs/relations.md).
    half_width = radius + 2 * precision.eps * (exact.abs() + radius) + 2 * precision.tiny
    lower = (exact - half_width).to(features.dtype)
    upper = (exact + half_width).to(features.dtype)
    shape = (ks, *features.shape)
    return Interval(lower.expand(shape), upper.expand(shape))


def encode_deviations(
    given_bounds: "Gradient", moved_bounds: "Gradient", product: str
) -> Iterator["Gradient"]:
    """Yield integer codes of how far gradient bounds widen when features may move.

    A lower deviation is how far the lower bound falls below the bound at the given features, an
    upper deviation how far the upper bound rises above it. Each is halved and rounded up to a
    whole number v of quanta, from 0 to Q = 2^30. A selection takes the greatest lower and the
    least upper values. So that it takes the largest deviations on both sides, v is encoded as v -
    Q below and as Q - v above. ``decode_deviations`` undoes the code.

    Args:
        given_bounds: bounds on the records' gradients at the given features, for one parameter.
        moved_bounds: bounds on the same gradients, over all features within the radius of each
            record's given features.
        product: "exact" or "rump", how two intervals are multiplied.

    Yields:
        Encoded deviations [K, block of records, scalars of the parameter], in several blocks in
        the order of the records; as ``Gradient`` without a right factor.
    """
    from agt.bounds.interval import Interval
    from agt.bounds.layer_rule import Gradient
    from agt.kernels.reference import gradient_bounds_in_blocks

    given_blocks = gradient_bounds_in_blocks(
        given_bounds.left_factor, given_bounds.right_factor, product
    )
    moved_blocks = gradient_bounds_in_blocks(
        moved_bounds.left_factor, moved_bounds.right_factor, product
    )
    for inner, outer in zip(given_blocks, moved_blocks, strict=True):
        # Lemma 8 of docs/proofs/relations.md: with the bounds [l, u] at a record's given
        # features and [l', u'] over moved features, max(l - l', 0) below and max(u' - u, 0) above.
        below = _in_pairs_of_quanta(inner.lower - outer.lower)
        above = _in_pairs_of_quanta(outer.upper - inner.upper)
        encoded = Interval(below - QUANTA, QUANTA - above)
        yield Gradient(given_bounds.parameter, encoded, None)


def _in_pairs_of_quanta(deviations: "Tensor") -> "Tensor":
    """Return deviations counted in pairs of quanta, negative ones as 0, rounded up.

    A deviation is at most 2 Q quanta, so a count of pairs is at most Q, as the kernels need it.
    Rounding up keeps the bounds valid.

    Args:
        deviations: [K, records, *parameter shape] in quanta.

    Returns:
        [K, records, scalars of the parameter], whole numbers.
    """
    pairs = deviations.clamp(min=0) / 2
    return pairs.ceil().flatten(2)


def decode_deviations(
    greatest_lower: "Tensor", least_upper: "Tensor", counts: "Tensor"
) -> tuple["Tensor", "Tensor"]:
    """Return the sums of selected deviations, from the sums of their encoded values.

    ``encode_deviations`` counts a deviation as v pairs of quanta, and encodes it as v - Q below and
    as Q - v above. A sum over c values is therefore off by c Q, and is then doubled.

    Args:
        greatest_lower: [K, ...] int64, the sums of the selected encoded lower deviations.
        least_upper: [K, ...] int64, the sums of the selected encoded upper deviations.
        counts: [K] int64, the number of deviations that were selected for each k.

    Returns:
        (the sum of the lower deviations, minus the sum of the upper deviations), each [K, ...] in
        quanta. ``Relation.bound_edited_sum`` subtracts them from the lower and the upper sum.
    """
    offset = QUANTA * add_parameter_axes(counts, greatest_lower)
    lower_deviations = 2 * (greatest_lower + offset)
    minus_upper_deviations = 2 * (least_upper - offset)
    return lower_deviations, minus_upper_deviations


RELATION = Perturb()
