"""A warning where one process releases about the same people again and no ledger counts it.

    payer = ProcessPayer(people=HashedPeople.of(dataset))
    payer.reserve(claim, 1)  # warns or raises if it is the second about any of these people

What it does:
    * A release is compared with every earlier one of this process that a ``ProcessPayer`` paid for.
      Two are about the same people if they share the id of a unit, the features of a private record
      (as float32, whatever its label is), or the digest of the data.
    * The total is the sum over all releases about any of these people, added up by
      agt/mechanisms/budget.py. It is a count, not a budget that was fixed beforehand.
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
import pandas as pd
from pandas.util import hash_array, hash_pandas_object

from agt.data.arrays import pieces
from agt.data.dataset import Dataset
from agt.data.ids import distinct
from agt.errors import PrivacySumError, PrivacySumWarning, counted, warn_user
from agt.ledger.payer import Charged, NoPayer, Reservation
from agt.mechanisms.budget import Allowance, Cost, Lot, eps_so_far
from agt.mechanisms.claims import SHOWN_DELTA
from agt.mechanisms.guarantees import Guarantee
from agt.numeric import UNIT, next_up, printed_decimal
from agt.release_settings import MAX_TOTAL_EPS
from agt.settings import check_choice

Mode = Literal["warn", "strict"]
# Modules of functions that fit again and again.
SEARCHES = ("sklearn.model_selection.", "sklearn.calibration")


@dataclass(frozen=True)
class HashedPeople:
    """Whose data a release is about, as hashes that this process alone holds.

    Attributes:
        hashes: sorted uint64, of the ids of units, the features of private records, and digests of
            the data.
    """

    hashes: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, digests: Sequence[str] = ()) -> "HashedPeople":
        """Return the hashes of a dataset's private training records.

        Labels are not hashed: the same records may come with classes in another order, or with one
        class against the others.

        Args:
            dataset: the dataset, which has no records if the model was read back.
            digests: digests of the data, and of the data before records were erased. If they are
                not known, the digest of the model.
        """
        train = dataset.train
        private = ~train.public
        names = train.units[private].astype(object)  # each hash is kept once, at the end
        parts: list[np.ndarray] = [hash_array(names), hash_array(np.array(digests, dtype=object))]
        start = 0
        for chunk in pieces(train.features) if len(train) else ():
            with np.errstate(over="ignore", under="ignore"):
                rows = np.asarray(chunk).reshape(len(chunk), -1).astype(np.float32)
            is_private = private[start : start + len(chunk)]
            rows = rows[is_private] + np.float32(0)  # -0.0 becomes 0.0
            parts.append(hash_pandas_object(pd.DataFrame(rows), index=False).to_numpy())
            start += len(chunk)
        return cls(distinct(np.concatenate(parts)))

    def shares(self, other: "HashedPeople") -> bool:
        """Return whether both have a hash in common."""
        return bool(np.isin(self.hashes, other.hashes, assume_unique=True).any())


@dataclass(frozen=True)
class PrivacyTotal:
    """What releases about the same people cost together.

    Attributes:
        eps: all releases together are (eps, delta)-differentially private.
        delta: see ``eps``.
        releases: the number of releases.
    """

    eps: float
    delta: float
    releases: int

    def __str__(self) -> str:
        releases = counted(self.releases, "release")
        return f"({self.eps:.4g}, {self.delta:g})-differentially private in all ({releases})"

    @classmethod
    def of(cls, cost: Cost, delta: float, releases: int) -> "PrivacyTotal":
        """Return the total of releases.

        Its eps is infinite if the releases' own deltas add up to 1 or more, or if Gaussian releases
        exceed every budget.

        Args:
            cost: the cost of all releases.
            delta: the delta of the total. It is larger if the releases' own deltas need it.
            releases: the number of releases.
        """
        pure = _no_less(cost.pure)
        if math.isfinite(pure) and not cost.leak and not delta:
            return cls(pure, 0.0, releases)
        leak = _no_less(cost.leak)
        if leak >= 1:
            return cls(math.inf, 1.0, releases)
        shown = max(delta or SHOWN_DELTA, 2 * leak if leak < 0.25 else (1 + leak) / 2)
        # Slightly more than the leaks' share, so that they fit however the division was rounded.
        share = min(1.0, leak / shown * (1 + 4 * UNIT))
        allowance = Allowance(MAX_TOTAL_EPS, shown, share)
        eps = eps_so_far(allowance, cost) if allowance.holds(cost) else pure
        return cls(eps, shown, releases)


def _no_less(amount: Decimal) -> float:
    """Return an amount as a float whose printed digits are not below it."""
    number = float(amount)
    return number if math.isinf(number) or printed_decimal(number) >= amount else next_up(number)


@dataclass(frozen=True)
class _Noted:
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


def _same(value: object) -> Callable[[object], bool]:
    """Return a function that tells whether an object is this one.

    The object is not kept alive by it.
    """
    try:
        reference = weakref.ref(value)
    except TypeError:  # lists have no weak references
        number = id(value)
        return lambda other: id(other) == number
    return lambda other: reference() is other


@dataclass(frozen=True)
class Search:
    """A search or cross-validation of scikit-learn.

    Attributes:
        subject: the search, or the estimator that is cross-validated.
        records: the features that it was given.
        worker: whether it is seen from one of its own threads, where its caller is not visible.
    """

    subject: object
    records: object
    worker: bool

    @property
    def recogniser(self) -> "Callable[[Search], bool]":
        """A function that tells whether a search is this one on the same records.

        It keeps neither alive.
        """
        same_subject = _same(self.subject)
        same_records = _same(self.records)
        return lambda other: same_subject(other.subject) and same_records(other.records)


def _none_before(search: Search) -> bool:
    """Return False: nothing was released in any search yet."""
    return False


@dataclass
class ProcessAccount:
    """All releases of this process that no ledger counts.

    Attributes:
        modes: what happens at a second release about the same people; the last mode holds.
        noted: the releases, in order.
        searched: tells whether a search is the one in which something was released last.
    """

    modes: list["_Accounting"] = field(default_factory=list)
    noted: list[_Noted] = field(default_factory=list)
    searched: Callable[[Search], bool] = _none_before
    lock: Lock = field(default_factory=Lock)

    @property
    def mode(self) -> Mode:
        """The mode that holds now, "warn" unless something else was said."""
        modes = self.modes[-1:]
        return modes[0].mode if modes else "warn"

    def add(self, people: HashedPeople, guarantee: Guarantee, size: int) -> PrivacyTotal:
        """Count releases that are about to be drawn.

        Args:
            people: whom the releases are about.
            guarantee: the guarantee of each release.
            size: the number of releases.

        Returns:
            What all releases about any of these people cost together, these included.

        Raises:
            PrivacySumError: there were releases about some of the people before, and the mode is
                "strict" or this one belongs to a search; or it belongs to a search in several
                processes or threads.
        """
        search = search_under_way()
        new = _Noted(people, Lot(guarantee, size).cost, getattr(guarantee, "delta", 0.0), size)
        with self.lock:
            before = self._about(people)
            if search is not None and (before or search.worker or parent_process() is not None):
                raise PrivacySumError(_search_refusal(_total(before) if before else None))
            if before and self.mode == "strict":
                so_far = _so_far(_total(before))
                raise PrivacySumError(
                    f"{so_far}. agt.accounting('strict') refuses another release about any of the "
                    "same people. To release more, give ledger=agt.Ledger.open(...), which keeps "
                    "the total of all releases within a budget"
                )
            total = _total([*before, new])
            if search is not None:
                self.searched = search.recogniser
            self._note(new, before)
            return total

    def _note(self, new: _Noted, before: Sequence[_Noted]) -> None:
        """Add releases to ``noted``.

        Releases about exactly the same people are one item, because a loop over one model makes
        very many of them.

        Args:
            new: the releases.
            before: earlier ones about some of these people.
        """
        for noted in before:
            if np.array_equal(noted.people.hashes, new.people.hashes):
                self.noted = [other for other in self.noted if other is not noted]
                cost = noted.cost.plus(new.cost)
                new = _Noted(
                    noted.people, cost, max(noted.delta, new.delta), noted.releases + new.releases
                )
        self.noted = [*self.noted, new]

    def check_search(self) -> None:
        """Raise PrivacySumError if a search in which something was released copies its estimator.

        This is asked when an estimator is copied, because scikit-learn reports an error of ``fit``
        as a score of nan, but does not catch one of copying.
        """
        search = search_under_way()
        if search is not None and self.searched(search):
            with self.lock:
                raise PrivacySumError(_search_refusal(_total([self.noted[-1]])))

    def total(self, people: HashedPeople) -> PrivacyTotal | None:
        """Return what releases about any of these people cost so far; None if there are none."""
        with self.lock:
            before = self._about(people)
        return _total(before) if before else None

    def _about(self, people: HashedPeople) -> list[_Noted]:
        """Return the releases about any of these people."""
        return [noted for noted in self.noted if noted.people.shares(people)]


PROCESS = ProcessAccount()


def _total(noted: list[_Noted]) -> PrivacyTotal:
    """Return what releases cost together; there is at least one."""
    cost = Cost()
    for each in noted:
        cost = cost.plus(each.cost)
    delta = max(each.delta for each in noted)
    return PrivacyTotal.of(cost, delta, sum(each.releases for each in noted))


def _so_far(total: PrivacyTotal) -> str:
    """Return, in words, what was released so far."""
    return (
        f"what this process has already released about some of these people is {total}; other "
        "processes are not counted"
    )


def _search_refusal(total: PrivacyTotal | None) -> str:
    """Return why a private fit is refused within a search or a cross-validation.

    Args:
        total: what was released so far; None if the search runs in several processes or threads.
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
    so_far = _so_far(total)
    return (
        f"each fit of a search or a cross-validation spends budget again ({so_far}). Instead, "
        f"{advice}"
    )


def search_under_way() -> Search | None:
    """Return the search or cross-validation of scikit-learn that calls this; None if none does."""
    search = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(SEARCHES):
            variables = frame.f_locals
            subject = variables.get("self", variables.get("estimator", search and search.subject))
            # A caller of a search calls a public function. In its own threads, joblib calls a
            # private one (whose name begins with an underscore).
            search = Search(subject, variables.get("X"), frame.f_code.co_name.startswith("_"))
        frame = frame.f_back
    return search


@dataclass(frozen=True, eq=False)
class _Accounting:
    """The mode that one call of ``accounting`` set; the end of its block takes it back.

    Attributes:
        mode: the mode.
    """

    mode: Mode

    def __enter__(self) -> None:
        """Do nothing: ``accounting`` has set the mode already."""

    def __exit__(self, *error: object) -> None:
        PROCESS.modes = [other for other in PROCESS.modes if other is not self]


def accounting(mode: Mode) -> Any:
    """Set what happens if a process releases about the same people again and no ledger counts it.

    ``agt.accounting("strict")`` holds from then on, and ``with agt.accounting("strict"):`` until
    the end of the block. If several hold, in whatever threads, the last one counts.

    Args:
        mode: "warn" for a ``PrivacySumWarning`` with the total so far, or "strict" for a
            ``PrivacySumError``, where nothing is drawn.

    Raises:
        ConfigError: the mode is another word.
    """
    check_choice(mode, Mode, "accounting")
    accounting = _Accounting(mode)
    PROCESS.modes = [*PROCESS.modes, accounting]
    return accounting


@dataclass(frozen=True)
class ProcessPayer(NoPayer):
    """A payer without a ledger that warns if releases of this process add up.

    Attributes:
        people: whom the releases are about.
    """

    people: HashedPeople = field(kw_only=True)

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        """Count the releases, and warn if there were others about some of these people.

        Raises:
            PrivacySumError: the releases are refused (``ProcessAccount.add``).
        """
        total = PROCESS.add(self.people, charged.guarantee, wanted)
        if total.releases > wanted:
            warn_user(
                "privacy losses add up. The releases of this process about some of the same "
                f"people are {total}; other processes are not counted. To keep the total within a "
                "budget, give a ledger with ledger=agt.Ledger.open(...)",
                PrivacySumWarning,
            )
        return Reservation(wanted)
