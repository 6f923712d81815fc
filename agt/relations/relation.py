"""The base class of neighbour relations, which bounds a sum of gradients over a public constant.

Gradients are summed as integers in quanta of gamma / 2^30 (kernels/reference.py), where gamma is
the clip level. docs/proofs/relations.md proves the bounds of every relation. Nothing here imports
torch, because a ledger also asks relations.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from agt.errors import ConfigError
from agt.messages import Message
from agt.settings import MAX_ROWS, QUANTA

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from agt.bounds.interval import Interval
    from agt.bounds.layer_rule import Gradient

BoundsOfRecords = Callable[["Tensor | Interval"], Iterator["Gradient"]]
"""Maps the features of records to bounds on their gradients, one parameter after another."""


class Edit(NamedTuple):
    """One kind of single edit: the numbers of units that it removes from a dataset and adds to it.

    A unit is whose data a record is, for example a person; by default each record is its own unit.

    Attributes:
        removed: the number of units that the edit removes.
        added: the number of units that it adds at the same time.
    """

    removed: int
    added: int


class BoundSums(NamedTuple):
    """Sums over one batch of bounds on its records' gradients, for one parameter.

    Each is int64 [K, ...], one slice for each distance k of the grid, and counts quanta: clipped
    gradients are rounded to integers, of which 2^30 are the clip level gamma.

    Attributes:
        lower: L, the sum of the lower bounds of all records.
        upper: U, the sum of the upper bounds of all records.
        greatest_lower: the sum of the r greatest lower bounds of records that edits may remove or
            change, where r depends on k; None if the relation does not select records.
        least_upper: the sum of the r least upper bounds of these records; None in the same case.
    """

    lower: "Tensor"
    upper: "Tensor"
    greatest_lower: "Tensor | None" = None
    least_upper: "Tensor | None" = None


class Relation:
    """A neighbour relation: which datasets one edit can make, and how far that moves a training.

    An edit is the unit in which the distance k between datasets is counted. It removes or adds
    units (see ``Edit``), or changes the labels or features of one unit. The base class covers
    relations whose training divides a batch's sum of gradients by a public constant. A subclass
    states its edits and its texts, and overrides a bound or a check where it differs.

    Formal guarantees, which every relation must give:
        - ``bound_direction`` contains the descent direction of every batch that k edits can make
          of this one (docs/proofs/relations.md).
        - A neighbour's bounds for k - 1 lie within the bounds for k, unless ``reason_not_nested``
          says why they do not.
        - One edit changes at most ``members_changed_per_edit`` batches of an epoch, and at most as
          many members of an ensemble (Lemma 1 of docs/proofs/relations.md).

    Attributes:
        name: the relation's name in the configuration.
        ball_template: a text that says which datasets are within k edits. It contains "up to {k}
            {units}", where ``{units}`` stands for records or units; ``{radius}`` stands for how far
            features may move.
        counted_template: a text that says what k is the number of; placeholders as above.
        edit_template: a text that says what one edit is; ``{one_unit}`` stands for the record or
            unit.
        edits: every kind of single edit, also those that do a part of another one; empty if edits
            change labels or features and neither remove nor add records.
        changes: the word for what an edit changes: "records", "labels" or "features".
        selects: True if the bounds need ``BoundSums.greatest_lower`` and ``least_upper``.
        private_only: True if edits only remove or change records that are not declared public, so
            that only these are selected.
        caps_at_zero: True if min(u, 0) and max(l, 0) are summed in a selection, instead of the
            upper bounds u and lower bounds l themselves.
        reason_not_nested: why the bounds of neighbours do not nest, as a clause; empty if they do.
        sums_proved: True if releases of noisy sums over records are proved for the edits.
        label_free_ids: True if record ids and the hashed split must be made without labels.
        counts_label_flips: True if ridge heads count the edits exactly (certificates/flips.py).
        averages: True if training averages gradients over the records that remain, as the papers
            do, instead of dividing their sum by a constant.
    """

    name: ClassVar[str]
    ball_template: ClassVar[str]
    counted_template: ClassVar[str]
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
    averages: ClassVar[bool] = False

    # -- what one edit is --

    @property
    def symmetric(self) -> bool:
        """Return whether the relation is symmetric: each edit of a dataset is undone by one edit.

        Differential privacy needs a symmetric relation, so no mechanism may use the certificates of
        one that is not.
        """
        # An edit is undone by adding the units that it removed, and removing those that it added.
        undoing_edits = {Edit(removed=edit.added, added=edit.removed) for edit in self.edits}
        return undoing_edits == set(self.edits)

    @property
    def edits_whole_records(self) -> bool:
        """Return whether edits of a dataset remove or add whole records.

        The edits of other relations change the labels or the features of records that stay.
        """
        return bool(self.edits)

    @property
    def adds(self) -> bool:
        """Return whether some edit of a dataset adds records."""
        return any(edit.added for edit in self.edits)

    @property
    def units_changed_per_edit(self) -> int:
        """Return the largest number of units that one edit removes and adds, counted together.

        A unit is all records of one person, or a single record. The number is 0 if edits change
        labels or features and leave all records in the dataset.
        """
        return max((edit.removed + edit.added for edit in self.edits), default=0)

    @property
    def members_changed_per_edit(self) -> int:
        """Return the largest number of ensemble members that one edit of the training data changes.

        It is also how many batches of an epoch one edit changes at most. Each unit (all records of
        one person) that is removed or added lies in one batch and in one member's shard (its part
        of the training records). An edit that changes labels or features leaves the records in
        their batch and shard, so it changes 1.
        """
        # Lemma 1 of docs/proofs/relations.md: a record's batch and shard depend on nothing but the
        # id of its own unit, so the records of other units stay where they are.
        return max((edit.removed + edit.added for edit in self.edits), default=1)

    @property
    def is_one_unit_added_or_removed(self) -> bool:
        """Return whether one edit either removes exactly one unit or adds exactly one unit.

        A unit is all records of one person, or a single record.
        """
        return set(self.edits) == {Edit(removed=1, added=0), Edit(removed=0, added=1)}

    def rows_at_stake(self, ks: Sequence[int], unit_rows: int) -> list[int]:
        """Return for each k the largest number of records of one batch that k edits can remove.

        It is also how many records k edits can add to one batch, or change in it, at most. The
        number is called r in docs/proofs/relations.md. Removed and added records are counted
        separately, so an edit that replaces one unit by another counts ``unit_rows`` once.

        Args:
            ks: the K distances of the grid.
            unit_rows: the public cap on how many records one unit has.

        Returns:
            K integers.

        Raises:
            ConfigError: the largest r exceeds ``MAX_ROWS``, beyond which sums are not proved to
                stay within int64 (Lemma 11 of docs/proofs/relations.md).
        """
        # Removed and added units are counted separately, so the larger number counts. An edit of
        # labels or features concerns one unit.
        units_per_edit = max((max(edit.removed, edit.added) for edit in self.edits), default=1)
        rows_per_k = units_per_edit * unit_rows
        most_rows = max(ks) * rows_per_k
        if most_rows > MAX_ROWS:
            raise ConfigError(
                Message(
                    "{config:kgrid}: with k = {largest} and {config:relation.unit_rows} = "
                    "{unit_rows}, {at_stake} rows may change, but sums are only exact up to "
                    "{maximum} rows. Lower k or unit_rows",
                    largest=max(ks),
                    unit_rows=unit_rows,
                    at_stake=most_rows,
                    maximum=MAX_ROWS,
                )
            )
        return [k * rows_per_k for k in ks]

    # -- texts for readers --

    def describe_neighbours(
        self, unit_rows: int = 1, radius: float | None = None, k: int | None = None
    ) -> str:
        """Return a text that says which datasets are within k edits of a given one, for reports.

        The text is a clause without a full stop.

        Args:
            unit_rows: the public cap on how many records one unit has.
            radius: the distance by which features may move, for a relation that moves them; None:
                the text says "a public radius".
            k: the number of edits; None: the text says "k".
        """
        k_text = "k"
        if k is not None:
            k_text = f"{k:,}"
        return self.ball_template.format(
            units=_units_text(unit_rows), radius=_radius_text(radius), k=k_text
        )

    def describe_counted(self, unit_rows: int, radius: float | None = None) -> str:
        """Return a text that says what k is the number of, such as "records added or removed".

        Args:
            unit_rows: the public cap on how many records one unit has.
            radius: the distance by which features may move, for a relation that moves them; None:
                the text says "a public radius".
        """
        return self.counted_template.format(
            units=_units_text(unit_rows), radius=_radius_text(radius)
        )

    def describe_edit(self, unit_rows: int) -> str:
        """Return a text that says what one edit of a dataset is, for reports.

        The text is a clause without a full stop.

        Args:
            unit_rows: the public cap on how many records one unit has.
        """
        one_unit = "one record" if unit_rows == 1 else f"one unit of up to {unit_rows} records"
        return self.edit_template.format(one_unit=one_unit)

    @property
    def reason_not_releasable(self) -> str:
        """Return a clause why no private release may use the relation's certificates.

        The text is empty if a release may use them.
        """
        if self.symmetric:
            return ""
        return (
            "condition g (the relation is symmetric) is not met, because these certificates "
            "cover only removals of records, not additions. Such certificates suffice for "
            "unlearning, but not for a private release"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return a report's warnings of edits that the relation does not cover, as sentences."""
        if self.symmetric:
            return ()
        return (
            "Certificates under this relation cover only removals of records: they serve "
            "unlearning, not privacy.",
        )

    # -- what the relation refuses: each check raises ConfigError, or returns without a value --

    def whole_records_error(self) -> ConfigError:
        """Return the error for a use that is proved only where edits remove or add whole records.

        By default it raises NotImplementedError. A relation whose edits change labels or features
        overrides it; the message of the error that it returns says which uses the relation has.

        Raises:
            NotImplementedError: the relation's edits remove or add whole records, so no use of it
                has this error.
        """
        raise NotImplementedError(f"{type(self).__name__} edits whole records")

    def check_boxes(self, public: "np.ndarray") -> None:
        """Raise ConfigError if interval bounds on parameters (boxes) are not proved for the data.

        The base class accepts every dataset.

        Args:
            public: [n] bool, which training records are declared public.
        """

    def check_closed_form(self) -> None:
        """Raise ConfigError if linear heads cannot be certified in closed form under the relation.

        Closed forms start from a sensitivity: how far one edit moves a sum of gradients.

        Raises:
            ConfigError: it is not proved by how many gradients one edit changes a sum.
        """
        self.gradients_changed_per_edit(1)  # called only because it raises

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Raise ConfigError if a certificate of a head does not cover the relation's edits.

        A head is the part of the model that is trained. The base class accepts every certificate.

        Args:
            counts_label_flips: whether the certificate is proved for labels that change.
            unit_rows: the public cap on how many records one unit has.
        """

    def check_ids(self, label_free: bool) -> None:
        """Raise ConfigError if an edit of one record could change the id of another record.

        Batches, shards and splits depend on ids, so the edit would then move the other record.

        Args:
            label_free: whether ids and hashed splits are made from features without labels.

        Raises:
            ConfigError: ids are made without labels.
        """
        # Records with equal content are numbered to distinguish them. Without labels, records with
        # equal features and different labels share these numbers, so removing one of them would
        # pass its id on to another.
        if label_free:
            raise ConfigError(
                Message(
                    "{config:dataset.label_free}=true is only for relation=flip. Under "
                    "relation={name}, a copy of a removed record with another label could take "
                    "over its id. Leave {config:dataset.label_free} out",
                    name=self.name,
                )
            )

    def check_batches_and_shards(self, batches: int, members: int) -> None:
        """Raise ConfigError if it is not proved how many batches or members one edit can change.

        Each member of an ensemble is trained on its own part (shard) of the records. An edit that
        removes at most one unit and adds at most one changes at most two batches of an epoch and
        two members (Lemma 1 of docs/proofs/relations.md). For other edits, the rule of this base
        class accepts several batches, but no ensemble.

        Args:
            batches: the number of batches of an epoch. Only relations whose edits can move a record
                to another batch use it (`perturb`).
            members: the number of members of the ensemble; 1: no ensemble.

        Raises:
            ConfigError: there is an ensemble, and one edit removes or adds several units.
        """
        changes_several_units = any(edit.removed > 1 or edit.added > 1 for edit in self.edits)
        if members > 1 and changes_several_units:
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members}: under relation={name}, one edit "
                    "removes or adds several units, and it is not proved how many members "
                    "change. Use {config:ensemble.members}=1",
                    name=self.name,
                    members=members,
                )
            )

    def check_batch_size(self, n_max: int) -> None:
        """Raise ConfigError if the bounds are not proved for batches of a given size.

        The base class accepts every size.

        Args:
            n_max: the public cap on the number of records of a batch.
        """

    def check_noise(self) -> None:
        """Raise ConfigError if training may not add noise (DP-SGD) under the relation.

        The base class accepts noise.
        """

    def check_plan(self) -> None:
        """Raise ConfigError if no private release can be planned under the relation.

        The base class accepts a plan.
        """

    # -- how far one edit moves a sum of gradients --

    def gradients_changed_per_edit(
        self, unit_rows: int, derivative_bound: float | None = None
    ) -> int:
        """Return the largest number of gradients that one edit removes from or adds to a sum.

        Removed and added records are counted together. One edit therefore moves the sum by at most
        this number times the bound on the norm of one record's gradient.

        Args:
            unit_rows: the public cap on how many records one unit has.
            derivative_bound: a bound on the norm of the loss's derivative in one record's logits,
                where the certificate covers labels that change; None: it covers only edits of whole
                records. The base class does not use it.

        Raises:
            ConfigError: edits change labels or features of records, for which this is not proved.
        """
        if not self.edits_whole_records:
            raise self.whole_records_error()
        return self.units_changed_per_edit * unit_rows

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> float:
        """Return the l2 sensitivity of the descent direction of one step of SGD.

        The sensitivity is how far one edit of the data can move the direction, in the l2 norm. The
        direction is the batch's sum of clipped gradients divided by B.

        Args:
            clip: gamma, the elementwise clip level of a record's gradient.
            parameters: the number of scalar parameters that are trained.
            normalizer: B, the public constant that sums of gradients are divided by.
            unit_rows: the public cap on how many records one unit has.

        Raises:
            ConfigError: sums are not divided by a public constant, or edits change labels or
                features.
        """
        gradients = self.gradients_changed_per_edit(unit_rows)
        # Each of ``parameters`` entries of a clipped gradient is at most ``clip`` in absolute
        # value, so the l2 norm is at most clip * sqrt(parameters).
        return gradients * clip * math.sqrt(parameters) / normalizer

    # -- bounds on the descent direction of a batch --

    def count_selectable(self, public: "np.ndarray") -> int:
        """Return the number of records of a batch that edits may remove or change.

        These are all records, or only those that are not public. Callers order a batch so that its
        private records come first, so the result is the length of the prefix from which training
        selects the records with the greatest and the least gradient bounds.

        Args:
            public: [b] bool, which records of the batch are declared public.
        """
        if self.private_only:
            is_private = ~public
            return int(is_private.sum())
        return len(public)

    def count_selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return the number of records of a batch that are selected for each parameter.

        To bound a sum of gradients after r records are removed, training selects for each scalar
        parameter the r records with the greatest lower bounds, and the r with the least upper ones.

        Args:
            rows: r, the number of records of the batch that k edits can remove or change.
            batch: b, the number of records of the batch.
            eligible: the number of these records that edits may remove or change
                (``count_selectable``).

        Returns:
            The smaller of r and ``eligible``; 0 if the relation's bounds need no selection.
        """
        if not self.selects:
            return 0
        return min(rows, eligible)

    def selection_shape(self, parameter: "Tensor") -> tuple[int, ...]:
        """Return the shape in which the kernels select a parameter's greatest and least bounds.

        The kernels take vectors and matrices. A parameter with more axes is flattened to a vector.

        Args:
            parameter: the parameter, of any shape.
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
        """Yield bounds on records' gradients, and the values from which a selection is made.

        To bound a sum of gradients after r records are edited, training selects for each scalar
        parameter the r greatest lower and the r least upper values among the records.

        Args:
            bounds_of: a function from features [n, ...], or bounds on them, to bounds on the
                records' gradients, one parameter after another.
            features: [n, ...], the features of the records.
            ks: K, the number of distances k for which bounds are computed at once.
            radius: the largest change of each feature; None unless edits change features.
            product: "exact" or "rump", how two intervals are multiplied.

        Yields:
            For each parameter (bounds on the gradients of the records without edits, the values to
            select from). The values are these bounds themselves, unless a subclass encodes others.
        """
        for gradient in bounds_of(features):
            yield gradient, (gradient,)

    def decode_selected_sums(
        self, greatest_lower: "Tensor", least_upper: "Tensor", counts: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        """Return the sums of selected gradient bounds, decoded from the sums of selected values.

        For each scalar parameter, the r greatest lower and the r least upper values among the
        records were selected and summed. The base class selects gradient bounds themselves, so it
        returns their sums unchanged. A relation whose ``record_bounds`` yields encoded values
        decodes their sums here.

        Args:
            greatest_lower: [K, ...] int64, the sums of the selected lower values.
            least_upper: [K, ...] int64, the sums of the selected upper values.
            counts: [K] int64, the number of values that were selected for each k.

        Returns:
            (``BoundSums.greatest_lower``, ``BoundSums.least_upper``), each [K, ...] int64.
        """
        return greatest_lower, least_upper

    def bound_edited_sum(self, sums: BoundSums, rows: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Return the least and the greatest sum of gradients of any batch that k edits can make.

        Edits of the batch's own records lower the sum by at most ``greatest_lower`` and raise it by
        at most minus ``least_upper``, where the relation selects these. Each of r added records
        moves the sum by at most Q = 2^30 quanta, the clip level. Under `add_remove`, which selects
        nothing, this term also covers removed records, since its r counts both together.

        Args:
            sums: the sums of bounds over the batch without edits.
            rows: [K, 1, ...] int64, r for each k: the number of records that k edits can remove, or
                add.

        Returns:
            (lower, upper), each [K, ...] int64, in quanta.
        """
        # Each relation's formula is proved in Lemmas 2 to 6 and 8 of docs/proofs/relations.md; all
        # follow from the same four sums. Every intermediate value fits int64: Lemma 11 of
        # docs/proofs/relations.md.
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

    def bound_direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the descent direction of every batch that k edits can make of this one.

        The descent direction is the batch's sum of clipped gradients divided by B. Sums are
        integers, in quanta of gamma / 2^30.

        Args:
            sums: the sums of bounds over the batch without edits.
            rows: [K] int64, r for each k: the number of records that k edits can remove, or add.
            batch: b, the number of records of the batch; not used by the base class.
            normalizer: B, the public constant that sums are divided by.
            clip: gamma, the elementwise clip level of a record's gradient.

        Returns:
            (lower, upper), each [K, ...] float64.
        """
        rows_of_k = add_parameter_axes(rows, sums.lower)
        sum_lower, sum_upper = self.bound_edited_sum(sums, rows_of_k)
        # The normaliser in a tensor of the shape [K, 1, ...] (see ``divide_quanta``).
        divisor = rows_of_k.double().fill_(normalizer)
        lower = divide_quanta(sum_lower, divisor, clip)
        upper = divide_quanta(sum_upper, divisor, clip)
        return lower, upper

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the descent direction of the batch without edits: its gradient sum divided by B.

        Args:
            total: [...] int64, the sum of the records' clipped gradients, in quanta of
                gamma / 2^30.
            batch: b, the number of records of the batch; not used by the base class.
            normalizer: B, the public constant that sums are divided by.
            clip: gamma, the elementwise clip level of a record's gradient.

        Returns:
            [...] float64.
        """
        # The operations are those of ``bound_direction``, in the same order. Each is monotone as
        # rounded, so the result lies within its bounds (Lemma 12 of docs/proofs/relations.md).
        divisor = total.new_zeros(()).double().fill_(normalizer)  # in a tensor of no axes
        return divide_quanta(total, divisor, clip)


def add_parameter_axes(values: "Tensor", like: "Tensor") -> "Tensor":
    """Return one value for each k in a shape that broadcasts with a parameter's bounds.

    Args:
        values: [K], one value for each k.
        like: a tensor [K, *parameter shape].

    Returns:
        [K, 1, ..., 1], with as many axes as ``like``; a view of ``values``.
    """
    parameter_axes = [1] * (like.dim() - 1)
    return values.view(-1, *parameter_axes)


def divide_quanta(total: "Tensor", divisor: "Tensor", clip: float) -> "Tensor":
    """Return integer sums of gradients, divided by a divisor, in floating point.

    Gradients are summed as integers. One integer step, a quantum, is clip / 2^30.

    Args:
        total: [K, ...] or [...] int64, sums in quanta of clip / 2^30.
        divisor: a float64 tensor that broadcasts with ``total``. It is a tensor because a GPU
            multiplies by the reciprocal of a plain number, which rounds differently.
        clip: gamma, the clip level; its size is 2^30 quanta.
    """
    # The quotient comes before the scaling. A correctly rounded quotient is monotone in the exact
    # one, so means over batches of different sizes compare as the exact means do (Lemma 13 of
    # docs/proofs/relations.md).
    quantum = clip / QUANTA
    return total.double() / divisor * quantum


def _units_text(unit_rows: int) -> str:
    """Return the word for several units.

    Args:
        unit_rows: the public cap on how many records one unit has.
    """
    return "records" if unit_rows == 1 else f"units of at most {unit_rows} records each"


def _radius_text(radius: float | None) -> str:
    """Return the distance by which features may move; words if it is not known (None)."""
    return "a public radius" if radius is None else f"{radius:g}"
