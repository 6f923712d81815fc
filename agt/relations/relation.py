"""What every neighbour relation answers, and the rule for batches divided by a public constant.

All sums are integers in quanta of gamma / 2^30 (kernels/reference.py). With r rows at stake at one
k, U and L are the sums of the records' upper and lower bounds, low_r(u) the sum of the r least u,
top_r(l) of the r greatest l, Q = 2^30. Each relation's file has its numerators with their proof;
lower numerators mirror the upper ones. Source: method.md section 2.

Formal guarantees
    touches. A record's batch and shard depend on its own unit's id alone (method.md section 3b),
    so one unit more or one less changes one batch of an epoch and one member of an ensemble; a unit
    replaced, or one removed while another comes, changes two at most, each by one unit gone, one
    come, or both.
    One side alone. In a relation that touches two, one unit gone and none come is within one k as
    well, and so is one come and none gone: a shard sees such halves of an edit
    (certificates/votes.py). Boxes hold and nest for them. Write B(D, r) for the batches with up to
    r rows of D gone and, independently, up to r come, and let D' be D less (or plus) a unit of up
    to m rows: B(D', r - m) is part of B(D, r), for what is gone from D' and what D' lacks are at
    most r rows of D, and what has come likewise. substitute's numerators are the extreme sums over
    B(D, r), whose inclusion they thus follow; for paper_privacy's see its file.
    Range. A batch has b <= n_max <= 2^30 records and r <= 2^30 (settings.MOST_ROWS; BatchPlan and
    ``rows_at_stake`` see to it), and |l|, |u| <= Q. Sums of bounds and of selected bounds are at
    most b Q <= 2^60 in size, U - low_r is a sum of at most b bounds again, r Q <= 2^60, and
    deviations (perturb.py) are at most 2 b Q: every numerator is at most 3 2^60 in size, and int64
    holds it.
    Rounding. A constant divisor: an integer beyond 2^53 is rounded to the nearest double, then the
    quotient and the product with gamma / Q are; each is monotone, and the nominal run, those of
    neighbours and both ends of every box take the same three operations with the same constants. An
    integer between two others stays between them: nothing needs widening. Means: mean.py.

Nothing here imports torch, because a ledger asks relations too.
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
"""Features of records -> bounds on their gradients in one parameter after another."""


class Edit(NamedTuple):
    """What one k may do: so many units removed and, at the same time, so many added."""

    removed: int
    added: int


class BoundSums(NamedTuple):
    """Integer sums over one batch, each [K, ...], in quanta.

    Attributes:
        lower, upper: of all records' bounds.
        greatest, least: of the selected extremes; None where the relation selects none.
    """

    lower: "Tensor"
    upper: "Tensor"
    greatest: "Tensor | None" = None
    least: "Tensor | None" = None


class Relation:
    """A neighbour relation: what one k changes, what that does to sums, and what may rest on it.

    The base class divides by a public constant. A subclass states its edits and words; it overrides
    a rule, a check or an answer where it differs.

    Attributes:
        name: its name in the configuration.
        ball_template: what k of them are, in words, ``{many}`` being records or units, and
            ``{radius}`` how far features may move; it contains "up to {k} {many}".
        edit_template: one k in words, ``{one}`` being the record or unit.
        edits: each thing that one k may do, smaller ones as well; empty: no record comes or goes.
        changes: what an edit changes, in words: records, or labels or features of records that
            stay.
        selects: the rule needs the sums of the most extreme bounds of each parameter.
        private_only: only private records are removed or changed, so a selection takes these alone.
        caps_at_zero: it takes min(u, 0) and max(l, 0) instead of u and l.
        unnested: why boxes of neighbours need not lie within one another; empty: they do.
        sums_proved: releases of noisy sums over records are proved for its edits.
        label_free_ids: ids and the hashed split must be made without labels.
        counts_label_flips: ridge heads count its edits exactly (certificates/flips.py), one alone
            as well as several that vote.
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
    unnested: ClassVar[str] = ""
    sums_proved: ClassVar[bool] = False
    label_free_ids: ClassVar[bool] = False
    counts_label_flips: ClassVar[bool] = False
    published_rule: ClassVar[str] = ""

    # What one k is.

    @property
    def symmetric(self) -> bool:
        """Whether D' near D implies D near D'; without it no mechanism may use a certificate."""
        return {Edit(edit.added, edit.removed) for edit in self.edits} == set(self.edits)

    @property
    def moves_records(self) -> bool:
        """Whether its edits remove or add whole records."""
        return bool(self.edits)

    @property
    def adds(self) -> bool:
        """Whether records may be added."""
        return any(edit.added for edit in self.edits)

    @property
    def moved(self) -> int:
        """How many units one k takes out and puts in, together."""
        return max((edit.removed + edit.added for edit in self.edits), default=0)

    @property
    def touches(self) -> int:
        """In how many places one k can change records.

        At most this many batches of an epoch, and members of an ensemble. Where records stay, they
        stay in their batch and shard.
        """
        return max((edit.removed + edit.added for edit in self.edits), default=1)

    @property
    def is_one_unit_either_way(self) -> bool:
        """Whether one k is one unit removed or one unit added, and nothing else."""
        return set(self.edits) == {Edit(removed=1, added=0), Edit(removed=0, added=1)}

    @property
    def includes_one_removal(self) -> bool:
        """Whether the data without one unit, and with no other instead, is one k away by name."""
        return Edit(removed=1, added=0) in self.edits

    def rows_at_stake(self, ks: Sequence[int], unit_rows: int) -> list[int]:
        """Return r, how many rows of one batch may go, or may come, at each k.

        Args:
            ks: the values of k.
            unit_rows: the public cap on one unit's rows.

        Raises:
            ConfigError: more than ``MOST_ROWS``, beyond which sums are not proved to stay in range.
        """
        units = max((max(edit) for edit in self.edits), default=1)
        if max(ks) * units * unit_rows > MOST_ROWS:
            raise ConfigError(
                Message(
                    "{config:kgrid}: k = {largest} (of {config:kgrid.max} or "
                    "{config:kgrid.values}) times "
                    "{config:relation.unit_rows} = {unit_rows} puts {at_stake} rows at stake, "
                    "and sums are exact up to {most_rows}: lower one of them",
                    largest=max(ks),
                    unit_rows=unit_rows,
                    at_stake=max(ks) * units * unit_rows,
                    most_rows=MOST_ROWS,
                )
            )
        return [k * units * unit_rows for k in ks]

    # What it says.

    def ball_of(self, unit_rows: int = 1, radius: float | None = None, k: int | None = None) -> str:
        """Return what so many k of them are, in words; None: any k."""
        many = "records" if unit_rows == 1 else f"units of up to {unit_rows} records"
        within = "a public radius" if radius is None else f"{radius:g}"
        return self.ball_template.format(many=many, radius=within, k="k" if k is None else f"{k:,}")

    def neighbours(self, unit_rows: int) -> str:
        """Return which datasets are neighbours, in words."""
        one = "one record" if unit_rows == 1 else f"one unit of up to {unit_rows} records"
        return self.edit_template.format(one=one)

    @property
    def no_release(self) -> str:
        """Why no mechanism may use its certificates, and what alone they are for; empty: it may."""
        if self.symmetric:
            return ""
        return (
            "condition g (symmetric relation) does not hold: certificates about removals alone "
            "are for unlearning"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for a report: what a reader could take it for, and it is not."""
        if self.symmetric:
            return ()
        return ("It speaks about deletions: for unlearning, not for privacy.",)

    # What it refuses. Each raises ConfigError.

    def check_moves_records(self) -> None:
        """Refuse what is proved only for edits that remove or add whole records."""

    def check_boxes(self, public: np.ndarray) -> None:
        """Refuse boxes that the rule does not cover.

        Args:
            public: [n] bool, which training records are declared public.
        """

    def check_closed_form(self) -> None:
        """Refuse linear heads with certificates in closed form."""
        self.rows_moved(1)

    def check_head(self, counts_label_flips: bool, unit_rows: int) -> None:
        """Refuse a certificate for heads that do not say what the relation's edits do to them.

        Args:
            counts_label_flips: the certificate is proved for labels that change.
            unit_rows: the public cap on one unit's rows.
        """

    def check_ids(self, label_free: bool) -> None:
        """Refuse ids under which an edit would move other records, or the edited record itself.

        Args:
            label_free: ids and hashed splits are made without labels.
        """
        if label_free:  # copies are numbered, and of two labels none may take the other's id
            raise ConfigError(
                Message(
                    "{config:dataset.label_free}=true is for relation=flip alone: with "
                    "relation={name} a record that goes would pass its id on to a copy "
                    "with another label: leave it out",
                    name=self.name,
                )
            )

    def check_dealing(self, batches: int, members: int) -> None:
        """Refuse batches and shards that an edit could move a record among.

        Members of an ensemble are refused where one k removes, or adds, several units: the count of
        the members that it can change (``touches``) is proved for one on each side.
        """
        if members > 1 and any(max(edit) > 1 for edit in self.edits):
            raise ConfigError(
                Message(
                    "relation={name}: {config:ensemble.members}={members}: what one k changes "
                    "in an ensemble is proved where it removes one unit, adds one, or "
                    "both: use {config:ensemble.members}=1",
                    name=self.name,
                    members=members,
                )
            )

    def check_batches(self, n_max: int) -> None:
        """Refuse batches of up to ``n_max`` records, where the rule is not proved for them."""

    def check_noise(self) -> None:
        """Refuse noise inside training (DP-SGD)."""

    def check_plan(self) -> None:
        """Refuse to plan a release."""

    # What one k does to sums of gradients.

    def rows_moved(self, unit_rows: int, gradient_norm: float | None = None) -> int:
        """Return how many records one k moves a sum of gradients by, at most.

        Args:
            unit_rows: the public cap on one unit's rows.
            gradient_norm: the bound on one record's gradient, where the head's proof covers labels
                that change; None: it covers whole records alone.

        Raises:
            ConfigError: no such number is proved.
        """
        self.check_moves_records()
        return self.moved * unit_rows

    def step_sensitivity(
        self, clip: float, parameters: int, normalizer: float, unit_rows: int = 1
    ) -> float:
        """Return Delta, how far in l2 one unit moves one step's direction.

        Args:
            clip: gamma, elementwise.
            parameters: P, the number of scalar parameters trained.
            normalizer: B, a public constant.
            unit_rows: m, the public cap on one unit's rows.

        Raises:
            ConfigError: the direction is no sum divided by a public constant.
        """
        return self.rows_moved(unit_rows) * clip * math.sqrt(parameters) / normalizer

    # The bounds of a batch.

    def eligible(self, public: np.ndarray) -> int:
        """Return how many of a batch's records, private ones first, a selection may take.

        Args:
            public: [b] bool, which records of the batch are public.
        """
        return int((~public).sum()) if self.private_only else len(public)

    def selected(self, rows: int, batch: int, eligible: int) -> int:
        """Return how many records to select.

        Args:
            rows: r, the rows at stake.
            batch: b, the number of records in the batch.
            eligible: how many of these a selection may take.
        """
        return min(rows, eligible) if self.selects else 0

    def selection_shape(self, parameter: "Tensor") -> tuple[int, ...]:
        """Return the shape in which a parameter's bounds are selected: a matrix's own, or flat."""
        return (parameter.numel(),) if parameter.dim() > 2 else tuple(parameter.shape)

    def record_bounds(
        self,
        bounds_of: BoundsOfRecords,
        features: "Tensor",
        ks: int,
        radius: float | None,
        product: str,
    ) -> Iterator[tuple["Gradient", Iterable["Gradient"]]]:
        """Yield for each parameter the records' bounds, and what a selection takes of them.

        Args:
            bounds_of: passes features through the network and back.
            features: [n, ...] the records' own.
            ks: K, how many boxes are looked at.
            radius: ``relation.radius``.
            product: the interval product, as in ``TrainingConfig``.
        """
        for gradient in bounds_of(features):
            yield gradient, (gradient,)

    def selected_sums(
        self, greatest: "Tensor", least: "Tensor", counts: "Tensor"
    ) -> tuple["Tensor", "Tensor"]:
        """Return what ``direction`` takes away, in quanta, from the sums of what was selected.

        Args:
            greatest, least: [K, ...] sums over selected values.
            counts: [K] how many were selected.
        """
        return greatest, least

    def numerators(self, sums: BoundSums, rows: "Tensor") -> tuple["Tensor", "Tensor"]:
        """Return the least and the greatest sum of any batch in the ball, [K, ...] int64.

        Args:
            sums: the batch's integer sums.
            rows: [K, 1, ...] int64, r for each k.
        """
        lower = sums.lower if sums.greatest is None else sums.lower - sums.greatest
        upper = sums.upper if sums.least is None else sums.upper - sums.least
        if self.adds:
            lower, upper = lower - rows * QUANTA, upper + rows * QUANTA
        return lower, upper

    def direction(
        self, sums: BoundSums, rows: "Tensor", batch: int, normalizer: float, clip: float
    ) -> tuple["Tensor", "Tensor"]:
        """Return bounds on the descent direction, (lower, upper), each [K, ...] float64.

        Args:
            sums: the batch's integer sums.
            rows: [K] int64, r for each k.
            batch: b, the number of records.
            normalizer: B.
            clip: gamma.
        """
        at_stake = rows.view(-1, *[1] * (sums.lower.dim() - 1))
        lower, upper = self.numerators(sums, at_stake)
        divisor = at_stake.double().fill_(normalizer)
        return divided(lower, divisor, clip), divided(upper, divisor, clip)

    def nominal_direction(
        self, total: "Tensor", batch: int, normalizer: float, clip: float
    ) -> "Tensor":
        """Return the descent direction of the batch itself, float64.

        The operations are those of ``direction``, in the same order.
        """
        divisor = total.new_zeros(()).double().fill_(normalizer)
        return divided(total, divisor, clip)


def divided(total: "Tensor", divisor: "Tensor", clip: float) -> "Tensor":
    """Return total quanta / divisor, in units of the gradient, float64.

    The quotient is taken first, for means of two exact numbers: correctly rounded, it grows with
    the fraction itself, so that means over batches of different sizes compare as they should;
    scaled first, equal means could differ in the last bit. The divisor is a tensor because a GPU
    multiplies by the reciprocal of a plain number.
    """
    return total.double() / divisor * (clip / QUANTA)
