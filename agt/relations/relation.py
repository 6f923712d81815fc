"""What every neighbour relation answers, and the bounds of a batch divided by a public constant.

All sums are integers in quanta of gamma / 2^30 (kernels/reference.py), where gamma is the clip
level. docs/proofs/relations.md proves the bounds of every relation. Nothing here imports torch,
because a ledger asks relations too.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MOST_ROWS, QUANTA

if TYPE_CHECKING:
    from torch import Tensor

    from agt.bounds.interval import Interval
    from agt.bounds.layer_rule import Gradient

BoundsOfRecords = Callable[["Tensor | Interval"], Iterator["Gradient"]]
"""Maps the features of records to bounds on their gradients, one parameter after another."""


class Edit(NamedTuple):
    """One thing that one k may do to a dataset.

    Attributes:
        removed: the number of units that it removes.
        added: the number of units that it adds at the same time.
    """

    removed: int
    added: int


class BoundSums(NamedTuple):
    """Integer sums over one batch for one parameter, each [K, ...] int64 in quanta.

    Attributes:
        lower: L, the sum of all records' lower bounds.
        upper: U, the sum of all records' upper bounds.
        greatest_lower: top_r(l), the sum of the greatest lower bounds that were selected; None
            where the relation selects none.
        least_upper: low_r(u), the sum of the least upper bounds that were selected; None likewise.
    """

    lower: "Tensor"
    upper: "Tensor"
    greatest_lower: "Tensor | None" = None
    least_upper: "Tensor | None" = None


class Relation:
    """A neighbour relation: what one k changes, what that does to sums, and what it refuses.

    The base class divides a batch's sum by a public constant. A subclass states its edits and its
    text, and overrides a bound, a check or an answer where it differs.

    Formal guarantees, which every relation owes:
        - The bounds that ``direction`` returns contain the descent direction of every batch that k
          edits can make of this one (docs/proofs/relations.md).
        - Bounds of a neighbour for k - 1 lie within the bounds for k, unless
          ``reason_not_nested`` says why they do not.
        - One k changes at most ``touches`` batches of an epoch, and as many members of an
          ensemble (Lemma 1 of docs/proofs/relations.md).

    Attributes:
        name: the relation's name in the configuration.
        ball_template: what k edits are, in words. ``{many}`` stands for records or units, and
            ``{radius}`` for how far features may move; it contains "up to {k} {many}".
        edit_template: what one edit is, in words; ``{one}`` stands for the record or unit.
        edits: each thing that one k may do, smaller ones as well; empty if no record is removed or
            added.
        changes: what an edit changes, in words: records, or the labels or features of records.
        selects: the bounds need the sums of the most extreme bounds of each parameter.
        private_only: only private records are removed or changed, so a selection takes these alone.
        caps_at_zero: a selection takes min(u, 0) and max(l, 0) instead of u and l.
        reason_not_nested: why the bounds of neighbours do not nest, as a clause; empty if they do.
        sums_proved: releases of noisy sums over records are proved for its edits.
        label_free_ids: ids and the hashed split must be made without labels.
        counts_label_flips: ridge heads count its edits exactly (certificates/flips.py), whether
            one head answers or several that vote.
        published_rule: how a paper's rule differs from what a reader expects, as a clause.
    """

    name: ClassVar[str]
    ball_template: ClassVar[str]
    edit_template: ClassVar[str]
    edits: ClassVar[tuple[Edit, ...]] = ()
    changes: ClassVar[str] = "records"
    selects: ClassVar[bool] = False
    private_only: ClassVar[bool] = False
    caps_at_zero: ClassVar[bool] = False
    reason_not_nested: ClassVar[str] = ""
    sums_proved: ClassVar[bool] = False
    label_free_ids: ClassVar[bool] = False
    counts_label_flips: ClassVar[bool] = False
    published_rule: ClassVar[str] = ""

    # What one k is.

    @property
    def symmetric(self) -> bool:
        """Return whether every edit can be undone by an edit.

        No mechanism may use the certificates of a relation that is not symmetric.
        """
        undoing = {Edit(removed=edit.added, added=edit.removed) for edit in self.edits}
        return undoing == set(self.edits)

    @property
    def edits_whole_records(self) -> bool:
        """Return whether edits remove or add whole records."""
        return bool(self.edits)

    @property
    def adds(self) -> bool:
        """Return whether an edit may add records."""
        return any(edit.added for edit in self.edits)

    @property
    def units_changed_per_k(self) -> int:
        """Return how many units one k removes and adds, counted together; 0 if records stay."""
        return max((edit.removed + edit.added for edit in self.edits), default=0)

    @property
    def touches(self) -> int:
        """Return how many batches of an epoch, or members of an ensemble, one k can change.

        It is 1 where records stay, because they stay in their batch and shard.
        """
        # Lemma 1 of docs/proofs/relations.md
        return max((edit.removed + edit.added for edit in self.edits), default=1)

    @property
    def is_one_unit_either_way(self) -> bool:
        """Return whether one k removes one unit or adds one, and does nothing else."""
        return set(self.edits) == {Edit(removed=1, added=0), Edit(removed=0, added=1)}

    @property
    def includes_one_removal(self) -> bool:
        """Return whether removing one unit, and adding none, is one of the relation's edits."""
        return Edit(removed=1, added=0) in self.edits

    def rows_at_stake(self, ks: Sequence[int], unit_rows: int) -> list[int]:
        """Return r for each k: how many rows of one batch k edits can remove, or can add.

        Args:
            ks: [K] the values of k.
            unit_rows: the public cap on the rows of one unit.

        Raises:
            ConfigError: the greatest r exceeds ``MOST_ROWS``, beyond which sums are not proved to
                stay in range (Lemma 11 of docs/proofs/relations.md).
        """
        units = max((max(edit) for edit in self.edits), default=1)
        rows_per_k = units * unit_rows
        most_rows = max(ks) * rows_per_k
        if most_rows > MOST_ROWS:
            raise ConfigError(
                Message(
                    "{config:kgrid}: k = {largest} (of {config:kgrid.max} or "
                    "{config:kgrid.values}) times {config:relation.unit_rows} = {unit_rows} "
                    "means that {at_stake} rows may change, but sums are only exact up to "
                    "{maximum} rows. Lower k or unit_rows",
                    largest=max(ks),
                    unit_rows=unit_rows,
                    at_stake=most_rows,
                    maximum=MOST_ROWS,
                )
            )
        return [k * rows_per_k for k in ks]

    # What readers are told about it.

    def describe_ball(
        self, unit_rows: int = 1, radius: float | None = None, k: int | None = None
    ) -> str:
        """Return which datasets are within k edits, as text without a full stop.

        Args:
            unit_rows: the public cap on the rows of one unit.
            radius: how far features may move, where the relation moves them; None: any radius.
            k: the number of edits; None: the text says "k".
        """
        units = "records" if unit_rows == 1 else f"units of up to {unit_rows} records"
        radius_text = "a public radius" if radius is None else f"{radius:g}"
        k_text = "k" if k is None else f"{k:,}"
        return self.ball_template.format(many=units, radius=radius_text, k=k_text)

    def describe_edit(self, unit_rows: int) -> str:
        """Return what one edit is, as text; neighbours differ by one.

        Args:
            unit_rows: the public cap on the rows of one unit.
        """
        one = "one record" if unit_rows == 1 else f"one unit of up to {unit_rows} records"
        return self.edit_template.format(one=one)

    @property
    def reason_not_releasable(self) -> str:
        """Return why no mechanism may use its certificates, as a clause; empty if one may."""
        if self.symmetric:
            return ""
        return (
            "condition g (the relation is symmetric) is not met, because these certificates "
            "cover only removals of records, not additions; that suffices for unlearning, but "
            "not for a private release"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return sentences for a report that say what the relation does not mean."""
        if self.symmetric:
            return ()
        return (
            "This relation is about deletions: its certificates serve unlearning, not privacy.",
        )

    # What it refuses. Each check raises ConfigError, and does nothing if there is no objection.

    def check_edits_whole_records(self) -> None:
        """Refuse what is proved only for edits that remove or add whole records."""

    def check_boxes(self, public: np.ndarray) -> None:
        """Refuse boxes that the relation's bounds do not cover.

        Args:
            public: [n] bool, which training records are declared public.
        """

    def check_closed_form(self) -> None:
        """Refuse linear heads with certificates in closed form, where no sensitivity is proved."""
        self.rows_moved(1)  # raises if no number of moved records is proved

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Refuse a certificate for heads that does not say what the relation's edits do to them.

        Args:
            counts_label_flips: the certificate is proved for labels that change.
            unit_rows: the public cap on the rows of one unit.
        """

    def check_ids(self, label_free: bool) -> None:
        """Refuse ids under which an edit would move other records, or the edited record itself.

        Args:
            label_free: ids and hashed splits are made without labels.
        """
        # Copies of one content are numbered. Without labels, copies with different labels share
        # these numbers, so removing one record would pass its id on to another.
        if label_free:
            raise ConfigError(
                Message(
                    "{config:dataset.label_free}=true is only for relation=flip: under "
                    "relation={name}, removing a record would pass its id on to a copy that "
                    "has another label. Leave {config:dataset.label_free} out",
                    name=self.name,
                )
            )

    def check_dealing(self, batches: int, members: int) -> None:
        """Refuse batches and shards that an edit could move a record among.

        Lemma 1 of docs/proofs/relations.md counts the members that one k changes for edits of one
        unit on each side, so an ensemble is refused where one k removes, or adds, several units.

        Args:
            batches: the number of batches of an epoch.
            members: the number of members of the ensemble; 1: no ensemble.
        """
        if members > 1 and any(max(edit) > 1 for edit in self.edits):
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members}: under relation={name}, raising k by "
                    "one removes or adds several units, and it is not proved how many members "
                    "that changes. Use {config:ensemble.members}=1",
                    name=self.name,
                    members=members,
                )
            )

    def check_batches(self, n_max: int) -> None:
        """Refuse batches of up to ``n_max`` records, if the bounds are not proved for such."""

    def check_noise(self) -> None:
        """Refuse noise inside training (DP-SGD)."""

    def check_plan(self) -> None:
        """Refuse to plan a release."""

    # What one k does to a sum of gradients.

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> int:
        """Return by how many records' gradients, at most, one k moves a sum of gradients.

        Args:
            unit_rows: the public cap on the rows of one unit.
            gradient_norm: the bound on one record's gradient, where the head's proof covers labels
                that change; None: the proof covers whole records alone.

        Raises:
            ConfigError: no such number is proved.
        """
        self.check_edits_whole_records()
        return self.units_changed_per_k * unit_rows

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> float:
        """Return how far, in l2 norm, one k moves the direction of one step at most.

        Args:
            clip: gamma, the elementwise clip level of a record's gradient.
            parameters: the number of scalar parameters that are trained.
            normalizer: B, the public constant that sums are divided by.
            unit_rows: the public cap on the rows of one unit.

        Raises:
            ConfigError: the direction is no sum divided by a public constant.
        """
        rows = self.rows_moved(unit_rows)
        # A clipped gradient has entries of at most clip, hence at most this l2 norm for each row.
        return rows * clip * math.sqrt(parameters) / normalizer

    # The bounds of a batch.

    def count_eligible(self, public: np.ndarray) -> int:
        """Return how many records of a batch a selection may take, private records coming first.

        Args:
            public: [b] bool, which records of the batch are public.
        """
        if self.private_only:
            return int((~public).sum())
        return len(public)

    def count_selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return how many of a batch's records the selection of one parameter takes.

        Args:
            rows: r, the rows at stake.
            batch: b, the number of records in the batch.
            eligible: how many of these a selection may take.
        """
        return min(rows, eligible) if self.selects else 0

    def selection_shape(self, parameter: "Tensor") -> tuple[int, ...]:
        """Return the shape in which the kernels select a parameter's bounds.

        A vector or a matrix keeps its shape; a parameter of more dimensions is flattened.
        """
        if parameter.dim() > 2:
            return (parameter.numel(),)
        return tuple(parameter.shape)

    def record_bounds(
        self,
        bounds_of: BoundsOfRecords,
        features: "Tensor",
        ks: int,
        radius: float | None,
        product: str,
    ) -> Iterator[tuple["Gradient", Iterable["Gradient"]]]:
        """Yield for each parameter the records' bounds, and the values that a selection takes.

        Args:
            bounds_of: passes features through the network and back.
            features: [n, ...] the features of the records.
            ks: K, for how many values of k bounds are computed at once.
            radius: ``relation.radius``; None unless features move.
            product: the interval product, as in ``TrainingConfig``.
        """
        for gradient in bounds_of(features):
            yield gradient, (gradient,)

    def decode_selected_sums(
        self, greatest_lower: "Tensor", least_upper: "Tensor", counts: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        """Return the sums that ``numerators`` takes away, given sums over selected values.

        A relation whose ``record_bounds`` encodes the values for the selection decodes them here.

        Args:
            greatest_lower: [K, ...] int64, the sums over the selected lower values.
            least_upper: [K, ...] int64, the sums over the selected upper values.
            counts: [K] how many values were selected.
        """
        return greatest_lower, least_upper

    def numerators(self, sums: BoundSums, rows: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Return the least and the greatest sum of any batch that k edits can make of this one.

        Args:
            sums: the integer sums over this batch.
            rows: [K, 1, ...] int64, r for each k.

        Returns:
            (lower, upper), each [K, ...] int64, in quanta.
        """
        # Lemmas 2 to 6 and 8 of docs/proofs/relations.md, each from the same four sums. Lemma 11
        # of docs/proofs/relations.md keeps every intermediate value within int64.
        lower = sums.lower
        upper = sums.upper
        if sums.greatest_lower is not None:
            lower = lower - sums.greatest_lower
        if sums.least_upper is not None:
            upper = upper - sums.least_upper
        if self.adds:
            lower = lower - rows * QUANTA
            upper = upper + rows * QUANTA
        return lower, upper

    def direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the descent direction of every batch that k edits can make of this one.

        Args:
            sums: the integer sums over this batch.
            rows: [K] int64, r for each k.
            batch: b, the number of records.
            normalizer: B, the public constant that sums are divided by.
            clip: gamma, the elementwise clip level.

        Returns:
            (lower, upper), each [K, ...] float64.
        """
        rows_of_k = one_for_each_k(rows, sums.lower)
        numerator_lower, numerator_upper = self.numerators(sums, rows_of_k)
        divisor = rows_of_k.double().fill_(normalizer)
        lower = divide_quanta(numerator_lower, divisor, clip)
        upper = divide_quanta(numerator_upper, divisor, clip)
        return lower, upper

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the descent direction of the batch itself.

        The operations are those of ``direction``, in the same order, so that the result lies
        between its bounds (Lemma 12 of docs/proofs/relations.md).

        Args:
            total: [...] int64, the sum of the records' clipped gradients, in quanta.
            batch: b, the number of records.
            normalizer: B, the public constant that sums are divided by.
            clip: gamma, the elementwise clip level.

        Returns:
            [...] float64.
        """
        divisor = total.new_zeros(()).double().fill_(normalizer)
        return divide_quanta(total, divisor, clip)


def one_for_each_k(values: "Tensor", like: "Tensor") -> "Tensor":
    """Return values [K] as [K, 1, ..., 1], to be broadcast against ``like`` [K, ...]."""
    parameter_dimensions = like.dim() - 1
    return values.view(-1, *[1] * parameter_dimensions)


def divide_quanta(total: "Tensor", divisor: "Tensor", clip: float) -> "Tensor":
    """Return sums of quanta divided by a divisor, in units of the gradient, float64.

    Args:
        total: [K, ...] or [...] int64, sums in quanta of clip / 2^30.
        divisor: float64 tensor, broadcast against ``total``. It is a tensor because a GPU
            multiplies by the reciprocal of a plain number.
        clip: gamma, the value of 2^30 quanta.
    """
    # The quotient comes first. Correctly rounded, it grows with the fraction itself, so that means
    # over batches of different sizes compare as they should (Lemma 13 of docs/proofs/relations.md).
    return total.double() / divisor * (clip / QUANTA)
