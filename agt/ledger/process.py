"""A warning if one process releases about the same people again and no ledger counts it.

    payer = ProcessPayer(people=HashedPeople.from_records(dataset.train))
    payer.reserve(claim, 1)  # warns or raises at the second release about any of these people

What it does:
    * A release is compared with every earlier one of this process that a ``ProcessPayer`` paid for.
      Two are about the same people if they share the id of a unit, the features of a private record
      (as float32, whatever its label is), or the digest of the data.
    * The total is the cost of all releases about any of these people, as
      agt/mechanisms/budget.py computes it. It is a count, not a budget that was fixed beforehand.
    * A release that is refused is not counted, and nothing is drawn.

What it does not do: other processes are not counted. People with other ids and other features
(scaled, or in another order) are not recognised. A saved model that was read back is recognised by
the digest of its data alone.
"""

import math
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing import parent_process
from threading import Lock
from types import FrameType
from typing import Any, Literal

import numpy as np

from agt.data.arrays import ROWS, block_slices
from agt.data.ids import distinct, rough_hash, rough_row_hash
from agt.data.records import Records
from agt.errors import PrivacySumError, PrivacySumWarning, counted, warn_user
from agt.ledger.payer import Charged, NoPayer, Reservation
from agt.mechanisms.budget import Allowance, Cost, Lot, eps_so_far
from agt.mechanisms.claims import SHOWN_DELTA
from agt.mechanisms.guarantees import ApproximateDP, Guarantee
from agt.numeric import UNIT, next_up, printed_decimal
from agt.release_settings import MAX_TOTAL_EPS
from agt.settings import check_choice

Mode = Literal["warn", "strict"]
# The names of modules that begin so have functions that fit an estimator several times.
SEARCH_MODULES = ("sklearn.model_selection.", "sklearn.calibration")


@dataclass(frozen=True)
class HashedPeople:
    """The people whom a release is about, as hashes that stay in this process.

    Attributes:
        hashes: [h] uint64, sorted and without repetition: hashes of the ids of units, of the
            features of private records, and of digests of the data.
    """

    hashes: np.ndarray

    @classmethod
    def from_records(cls, records: Records) -> "HashedPeople":
        """Return the hashes of private records: of the ids of their units, and of their features.

        Labels are not hashed, because somebody may train on the same records with the classes in
        another order, or with one class against all others.

        Args:
            records: the records; there are none if a model was read back from a file.
        """
        parts = [np.empty(0, dtype=np.uint64)]
        for block in block_slices(len(records), ROWS):
            is_private = ~records.public[block]
            features = np.asarray(records.features[block])[is_private]
            parts.append(rough_hash(records.units[block][is_private]))
            parts.append(_hash_features(features))
        return cls(distinct(np.concatenate(parts)))

    def with_digests(self, digests: Sequence[str]) -> "HashedPeople":
        """Return these hashes together with those of digests.

        Args:
            digests: the digest of the data, and those of the data before records were erased. If
                they are not known, the digest of the model.
        """
        hashed_digests = rough_hash(np.array(digests, dtype=str))
        return HashedPeople(distinct(np.concatenate([self.hashes, hashed_digests])))

    def shares(self, other: "HashedPeople") -> bool:
        """Return whether two sets of hashes have one in common."""
        return bool(np.isin(self.hashes, other.hashes, assume_unique=True).any())

    def count_records(self, features: np.ndarray) -> int:
        """Return how many rows of features are those of one of the private records.

        Args:
            features: [n, ...] the rows, compared as float32.
        """
        found = 0
        for block in block_slices(len(features), ROWS):
            hashes = _hash_features(np.asarray(features[block]))
            found += int(np.isin(hashes, self.hashes).sum())
        return found


def _hash_features(features: np.ndarray) -> np.ndarray:
    """Return a hash of the features of each record as float32, [n] uint64.

    Args:
        features: [n, ...] the features, of which there may be no records.
    """
    with np.errstate(over="ignore", under="ignore"):
        # The width in numbers, because -1 is an error where there are no records.
        width = math.prod(features.shape[1:])
        rows = features.reshape(len(features), width).astype(np.float32)
    return rough_row_hash(rows + np.float32(0))  # -0.0 becomes 0.0


@dataclass(frozen=True)
class PrivacyTotal:
    """The privacy loss of several releases about the same people together.

    Attributes:
        eps: all releases together are (eps, delta)-differentially private; infinite if no
            guarantee is known.
        delta: see ``eps``.
        releases: the number of releases.
    """

    eps: float
    delta: float
    releases: int

    def __str__(self) -> str:
        """Return a phrase with eps, delta and the number of releases."""
        releases = counted(self.releases, "release")
        return f"({self.eps:.4g}, {self.delta:g})-differentially private in all ({releases})"

    @classmethod
    def from_cost(cls, cost: Cost, delta: float, releases: int) -> "PrivacyTotal":
        """Return the total of releases with a cost.

        Args:
            cost: the cost of all releases.
            delta: the least delta of the total; it is raised if the releases' own deltas need a
                larger one. 0: no delta if all releases are pure-DP, otherwise ``SHOWN_DELTA``.
            releases: the number of releases.

        Returns:
            The total. Its eps is infinite if the releases' own deltas add up to 1 or more, or if
            Gaussian releases exceed every budget that ``Allowance`` allows.
        """
        pure = _round_up_to_float(cost.pure)
        if math.isfinite(pure) and not cost.leak and not delta:
            return cls(pure, 0.0, releases)
        leak = _round_up_to_float(cost.leak)
        if leak >= 1:
            return cls(math.inf, 1.0, releases)
        shown = max(delta or SHOWN_DELTA, 2 * leak if leak < 0.25 else (1 + leak) / 2)
        # Slightly more than the leaks' share, so that they fit however the division was rounded.
        share = min(1.0, leak / shown * (1 + 4 * UNIT))
        allowance = Allowance(MAX_TOTAL_EPS, shown, share)
        eps = eps_so_far(allowance, cost) if allowance.holds(cost) else pure
        return cls(eps, shown, releases)


def _round_up_to_float(amount: Decimal) -> float:
    """Return the amount as a float, rounded up so that its printed digits are not below it."""
    number = float(amount)
    return number if math.isinf(number) or printed_decimal(number) >= amount else next_up(number)


@dataclass(frozen=True)
class _ReleaseGroup:
    """Releases of this process about exactly the same people.

    Attributes:
        people: the people.
        cost: the cost of the releases together.
        delta: the largest delta of a release.
        releases: the number of releases.
    """

    people: HashedPeople
    cost: Cost
    delta: float
    releases: int


def _identity_test(value: object) -> Callable[[object], bool]:
    """Return a function that tests whether an object is this one, without keeping it alive.

    Lists have no weak references, so their ``id`` is compared. It may be that of another list after
    the first was freed.
    """
    try:
        reference = weakref.ref(value)
    except TypeError:
        number = id(value)
        return lambda other: id(other) == number
    return lambda other: reference() is other


@dataclass(frozen=True)
class Search:
    """A search or cross-validation of scikit-learn.

    Attributes:
        subject: the search, or the estimator that is cross-validated.
        records: the features that it was given.
        worker: whether it was found from one of its own threads, where the call of the search
            itself is not on the stack.
    """

    subject: object
    records: object
    worker: bool

    @property
    def identity_test(self) -> "Callable[[Search], bool]":
        """A function that tests whether a search has the same subject and records.

        It keeps neither of them alive.
        """
        same_subject = _identity_test(self.subject)
        same_records = _identity_test(self.records)
        return lambda other: same_subject(other.subject) and same_records(other.records)


def _is_no_search(search: Search) -> bool:
    """Return False, as the test for the last search while no search has released anything."""
    return False


@dataclass
class ProcessAccount:
    """All releases of this process that no ledger counts.

    Attributes:
        modes: what happens at a second release about the same people: an item for each call of
            ``accounting`` that is in force. The last one counts.
        groups: the releases, in the order of the newest of each group.
        is_last_search: tests whether a search is the one in which something was released last.
        lock: held while ``groups`` is read or changed.
    """

    modes: list["_AccountingBlock"] = field(default_factory=list)
    groups: list[_ReleaseGroup] = field(default_factory=list)
    is_last_search: Callable[[Search], bool] = _is_no_search
    lock: Lock = field(default_factory=Lock)

    @property
    def mode(self) -> Mode:
        """The mode in force: that of the last call of ``accounting``; by default "warn"."""
        # The list is read once, because another thread may replace it by an empty one.
        last_modes = self.modes[-1:]
        return last_modes[0].mode if last_modes else "warn"

    def add(self, people: HashedPeople, guarantee: Guarantee, size: int) -> PrivacyTotal:
        """Count releases that are about to be drawn, and return the total with them.

        Releases that are refused are not counted.

        Args:
            people: the people whom the releases are about.
            guarantee: the guarantee of each release.
            size: the number of releases.

        Returns:
            The total of all releases about any of these people, these included.

        Raises:
            PrivacySumError: there were releases about some of the people before, and the mode is
                "strict" or this one belongs to a search; or it belongs to a search in several
                processes or threads.
        """
        search = find_calling_search()
        delta = guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
        new = _ReleaseGroup(people, Lot(guarantee, size).cost, delta, size)
        with self.lock:
            before = self._groups_about(people)
            if search is not None and (before or search.worker or parent_process() is not None):
                raise PrivacySumError(
                    _describe_search_refusal(_total_of_groups(before) if before else None)
                )
            if before and self.mode == "strict":
                earlier_releases = _describe_total(_total_of_groups(before))
                raise PrivacySumError(
                    f"{earlier_releases}. agt.accounting('strict') refuses another release about "
                    "any of the same people. To release more, give ledger=agt.Ledger.open(...), "
                    "which keeps the total of all releases within a budget"
                )
            total = _total_of_groups([*before, new])
            if search is not None:
                self.is_last_search = search.identity_test
            self._add_group(new, before)
            return total

    def _add_group(self, new: _ReleaseGroup, before: Sequence[_ReleaseGroup]) -> None:
        """Add releases at the end of ``groups``; the caller holds the lock.

        Releases about exactly the same people become one group, because a loop over one model makes
        very many of them.

        Args:
            new: the new releases.
            before: the groups about some of the same people.
        """
        for group in before:
            if np.array_equal(group.people.hashes, new.people.hashes):
                self.groups = [other for other in self.groups if other is not group]
                new = _ReleaseGroup(
                    people=group.people,
                    cost=group.cost.plus(new.cost),
                    delta=max(group.delta, new.delta),
                    releases=group.releases + new.releases,
                )
        self.groups = [*self.groups, new]

    def check_search(self) -> None:
        """Raise PrivacySumError if this is called within a search that has released something.

        Estimators call it when they are copied: scikit-learn turns an error of ``fit`` into a score
        of nan, so that a refusal there could be overlooked, but does not catch errors of copying.
        """
        search = find_calling_search()
        if search is not None and self.is_last_search(search):
            with self.lock:
                raise PrivacySumError(_describe_search_refusal(_total_of_groups([self.groups[-1]])))

    def total(self, people: HashedPeople) -> PrivacyTotal | None:
        """Return the total of all releases about any of these people; None if there are none."""
        with self.lock:
            before = self._groups_about(people)
        return _total_of_groups(before) if before else None

    def _groups_about(self, people: HashedPeople) -> list[_ReleaseGroup]:
        """Return the groups of releases about any of these people; the caller holds the lock."""
        return [group for group in self.groups if group.people.shares(people)]


PROCESS = ProcessAccount()


def _total_of_groups(groups: Sequence[_ReleaseGroup]) -> PrivacyTotal:
    """Return the total of all releases of one or more groups."""
    cost = Cost()
    for group in groups:
        cost = cost.plus(group.cost)
    delta = max(group.delta for group in groups)
    return PrivacyTotal.from_cost(cost, delta, sum(group.releases for group in groups))


def _describe_total(total: PrivacyTotal) -> str:
    """Return a clause for messages that states the total of earlier releases."""
    return (
        f"what this process has already released about some of these people is {total}; other "
        "processes are not counted"
    )


def _describe_search_refusal(total: PrivacyTotal | None) -> str:
    """Return a message that says why a private fit is refused within a search.

    Args:
        total: the total of earlier releases; None: this process made no earlier release, and the
            fit is refused because the search runs in several processes or threads.
    """
    advice = (
        "use agt's default settings, which need no search for hyperparameters. Otherwise search on "
        "public records (declared with declared=agt.Declared(public=True)), and fit only once on "
        "the private records"
    )
    if total is None:
        return (
            "a search in several processes or threads would release results about the same "
            f"people in each process or thread. Instead, {advice}"
        )
    return (
        "each fit of a search or a cross-validation spends budget again "
        f"({_describe_total(total)}). Instead, {advice}"
    )


def find_calling_search() -> Search | None:
    """Return the search or cross-validation of scikit-learn that this is called from.

    It is found on the call stack of the current thread, by the names of scikit-learn's modules. If
    several functions of these modules are on the stack, the outermost one counts.

    Returns:
        None if there is no such function on the stack.
    """
    search = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(SEARCH_MODULES):
            variables = frame.f_locals
            inner_subject = None if search is None else search.subject
            subject = variables.get("self", variables.get("estimator", inner_subject))
            # A user calls a public function of a search. In the search's own threads, joblib calls
            # a private one (whose name begins with an underscore).
            is_private = frame.f_code.co_name.startswith("_")
            search = Search(subject, records=variables.get("X"), worker=is_private)
        frame = frame.f_back
    return search


@dataclass(frozen=True, eq=False)
class _AccountingBlock:
    """The mode that one call of ``accounting`` set; the end of its ``with`` block removes it.

    Attributes:
        mode: the reaction to a second release about the same people.
    """

    mode: Mode

    def __enter__(self) -> None:
        """Do nothing, because ``accounting`` has set the mode already."""

    def __exit__(self, *error: object) -> None:
        """Remove this mode; the last one that remains is in force."""
        PROCESS.modes = [other for other in PROCESS.modes if other is not self]


def accounting(mode: Mode) -> Any:
    """Set what happens if a process releases about the same people again and no ledger counts it.

    ``agt.accounting("strict")`` is in force from then on, and ``with agt.accounting("strict"):``
    until the end of the block. If several are in force, in any threads, the last one counts.

    Args:
        mode: "warn" for a ``PrivacySumWarning`` with the total so far, or "strict" for a
            ``PrivacySumError``, where nothing is drawn.

    Returns:
        A context manager; it need not be used as one.

    Raises:
        ConfigError: the mode is another word.
    """
    check_choice(mode, Mode, "accounting")
    block = _AccountingBlock(mode)
    PROCESS.modes = [*PROCESS.modes, block]
    return block


@dataclass(frozen=True)
class ProcessPayer(NoPayer):
    """A payer without a ledger that warns at the second release about the same people.

    Attributes:
        people: the people whom the releases are about.
    """

    people: HashedPeople = field(kw_only=True)

    def reserve(self, charged: Charged, requested: int) -> Reservation:
        """Count the releases, and warn if this process released about some of the people before.

        Args:
            charged: the claim, of which the guarantee is used.
            requested: the number of releases, all of which are reserved.

        Raises:
            PrivacySumError: the releases are refused (``ProcessAccount.add``).
        """
        total = PROCESS.add(self.people, charged.guarantee, requested)
        if total.releases > requested:
            warn_user(
                "privacy losses add up. The releases of this process about some of the same "
                f"people are {total}; other processes are not counted. To keep the total within a "
                "budget, give a ledger with ledger=agt.Ledger.open(...)",
                PrivacySumWarning,
            )
        return Reservation(requested)
