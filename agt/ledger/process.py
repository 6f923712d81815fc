"""What this process has released about whom, where no ledger counts it: a warning, and no account.

    payer = ProcessPayer(HashedPeople.of(dataset))
    payer.reserve(claim, 1)      warns, or raises, where it is the second about any of these people

Formal guarantees
    * A release is compared with every earlier one of this process that went through a
      ``ProcessPayer``: two are about the same people if they share the id of a unit or the content
      of a record. Other processes are not counted, and people under other ids with other records
      are not recognised.
    * The total that is told is the sum over all releases about any of these people, as the filter
      of agt/mechanisms/budget.py adds them up: the position of a counter, and no budget that was
      fixed beforehand.
    * Where a release is refused, it was not noted, and nothing was drawn.
"""

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import parent_process
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pandas.util import hash_array, hash_pandas_object

from agt.data.arrays import pieces
from agt.data.dataset import Dataset
from agt.errors import PrivacySumError, PrivacySumWarning
from agt.ledger.ledger import Questions
from agt.ledger.payer import MAX_RELEASES, Charged, Reservation
from agt.mechanisms.accounts import Uncounted
from agt.mechanisms.budget import MOST_EPS, Allowance, Cost, Lot, eps_so_far
from agt.mechanisms.claims import SHOWN_DELTA, Claim
from agt.mechanisms.guarantees import Guarantee
from agt.settings import check_choice

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.labelling import Labelling

Mode = Literal["warn", "strict"]
SEARCHES = ("sklearn.model_selection.",)  # modules whose functions fit again and again


@dataclass(frozen=True)
class HashedPeople:
    """Whose data a release is about, as hashes that this process alone holds.

    Attributes:
        hashes: sorted uint64, of the ids of units and of the content of records.
    """

    hashes: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, origin: str = "") -> "HashedPeople":
        """Return those of the training records.

        Args:
            dataset: without records where the model was read back.
            origin: the digest that a model was read back by, which then stands for its people.
        """
        train = dataset.train
        parts: list[np.ndarray] = [hash_array(np.unique(train.units).astype(object))]
        start = 0
        for chunk in pieces(train.features) if len(train) else ():
            rows = pd.DataFrame(np.asarray(chunk, dtype=np.float64).reshape(len(chunk), -1))
            rows["label"] = train.labels[start : start + len(chunk)]
            parts.append(hash_pandas_object(rows, index=False).to_numpy())
            start += len(chunk)
        if origin:
            parts.append(hash_array(np.array([origin], dtype=object)))
        return cls(np.unique(np.concatenate(parts)))

    def shares(self, other: "HashedPeople") -> bool:
        """Whether anybody is among both."""
        return bool(np.isin(self.hashes, other.hashes, assume_unique=True).any())


@dataclass(frozen=True)
class PrivacyTotal:
    """What releases about the same people cost together.

    Attributes:
        eps, delta: they are (eps, delta)-differentially private together.
        releases: how many there are.
    """

    eps: float
    delta: float
    releases: int

    def __str__(self) -> str:
        noun = "release" if self.releases == 1 else "releases"
        return f"({self.eps:.4g}, {self.delta:g})-differentially private over {self.releases} {noun}"

    @classmethod
    def of(cls, cost: Cost, delta: float, releases: int) -> "PrivacyTotal":
        """Return the total at a delta, or at a larger one where the releases' own deltas need it."""
        leak = float(cost.leak)
        if cost.pure.is_finite() and not leak:
            pure = float(cost.pure)
            if not delta:
                return cls(pure, 0.0, releases)
        shown = max(delta or SHOWN_DELTA, 2 * leak)
        allowance = Allowance(MOST_EPS, shown, min(1.0, leak / shown))
        return cls(eps_so_far(allowance, cost), shown, releases)


@dataclass(frozen=True)
class _Noted:
    """One reservation of this process."""

    people: HashedPeople
    cost: Cost
    delta: float
    releases: int


def _nothing() -> None:
    """Refer to no search."""


@dataclass
class ProcessAccount:
    """All reservations of this process on no ledger.

    Attributes:
        mode: what happens at the second about the same people.
        noted: them, in order.
        searched: a weak reference to the search or cross-validation in which something was released last.
    """

    mode: Mode = "warn"
    noted: list[_Noted] = field(default_factory=list)
    searched: Callable[[], object] = _nothing
    lock: Lock = field(default_factory=Lock)

    def add(self, people: HashedPeople, guarantee: Guarantee, size: int) -> PrivacyTotal:
        """Note releases that are about to be drawn.

        Returns:
            What all releases about any of these people cost together, with these.

        Raises:
            PrivacySumError: others were noted before, and this one is refused by ``accounting`` or
                belongs to a search; or it belongs to a search that several processes share.
        """
        with self.lock:
            before = [noted for noted in self.noted if noted.people.shares(people)]
            new = _Noted(people, Lot(guarantee, size).cost, getattr(guarantee, "delta", 0.0), size)
            search = search_under_way()
            if search is not None and (before or parent_process() is not None):
                raise PrivacySumError(_search_refusal(_total(before) if before else None))
            if before and self.mode == "strict":
                raise PrivacySumError(
                    f"{_so_far(_total(before))}; agt.accounting('strict') refuses another release about any of them. Give "
                    "ledger=agt.Ledger.open(...), which counts what is released within a budget"
                )
            self.noted.append(new)
            if search is not None:
                self.searched = weakref.ref(search)
            return _total([*before, new])

    def check_search(self) -> None:
        """Raise PrivacySumError where a search that has released asks for another copy of what releases.

        scikit-learn takes what ``fit`` raises for a score of nan, and what copying raises for an error.
        """
        search = search_under_way()
        if search is not None and self.searched() is search:
            with self.lock:
                raise PrivacySumError(_search_refusal(_total([self.noted[-1]])))

    def total(self, people: HashedPeople) -> PrivacyTotal | None:
        """Return what releases about any of these people cost so far; None: there are none."""
        with self.lock:
            before = [noted for noted in self.noted if noted.people.shares(people)]
        return _total(before) if before else None


PROCESS = ProcessAccount()


def _total(noted: list[_Noted]) -> PrivacyTotal:
    cost = Cost()
    for each in noted:
        cost = cost.plus(each.cost)
    delta = max(each.delta for each in noted)
    return PrivacyTotal.of(cost, delta, sum(each.releases for each in noted))


def _so_far(total: PrivacyTotal) -> str:
    return f"this process has released about some of these people before: {total} (other processes are not counted)"


def _search_refusal(total: PrivacyTotal | None) -> str:
    """Return why a private fit is refused within a search or a cross-validation."""
    advice = (
        "the default settings are a recipe that needs no search; or search on public records, which "
        "declared=agt.Declared(public=True) says they are, and fit once on the private ones"
    )
    if total is None:
        return f"a search in several processes would release about the same people in each of them: {advice}"
    return f"each fit of a search or a cross-validation spends its budget anew: {_so_far(total)}: {advice}"


def search_under_way() -> object | None:
    """Return what tells the search or cross-validation of scikit-learn that calls this from others; None: there is none.

    It is the search itself, or the estimator that is cross-validated.
    """
    search = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(SEARCHES):
            variables = frame.f_locals
            search = variables.get("self", variables.get("estimator", search))
        frame = frame.f_back
    return search


def _frames_of_agt() -> int:
    """Return how many frames lie between the caller of this function and who called the library, both included."""
    frame: FrameType | None = sys._getframe(1)
    count = 1
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(("agt.", "contextlib")):
        frame = frame.f_back
        count += 1
    return count


@contextmanager
def _restoring(before: Mode) -> Iterator[None]:
    try:
        yield
    finally:
        PROCESS.mode = before


def accounting(mode: Mode) -> Any:
    """Say what happens when a process releases about the same people a second time on no ledger.

    ``agt.accounting("strict")`` holds from then on; ``with agt.accounting("strict"):`` until the end of the block.

    Args:
        mode: warn (``PrivacySumWarning``, which tells the total so far), or strict (``PrivacySumError``; nothing is drawn).

    Raises:
        ConfigError: another mode.
    """
    check_choice(mode, Mode, "accounting")
    before = PROCESS.mode
    PROCESS.mode = mode
    return _restoring(before)


@dataclass(frozen=True)
class ProcessPayer:
    """A payer (``agt.ledger.payer.Payer``) that keeps no ledger, and warns when releases of this process add up.

    Attributes:
        people: whom the releases are about.
        name: of no population.
    """

    people: HashedPeople
    name = ""

    def check(self, claim: Claim) -> None:
        """Take every claim."""

    def questions(self, labelling: "Labelling", features: np.ndarray) -> Questions:
        return Questions(range(len(features)), {})

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        """Note the releases.

        Raises:
            PrivacySumError: they are refused (``ProcessAccount.add``).
        """
        total = PROCESS.add(self.people, charged.guarantee, wanted)
        if total.releases > wanted:
            warnings.warn(
                f"losses add up: releases of this process about some of the same people are {total} together (other "
                "processes are not counted); a ledger counts them within a budget: ledger=agt.Ledger.open(...)",
                PrivacySumWarning,
                stacklevel=_frames_of_agt(),
            )
        return Reservation(wanted)

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        return answers

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Uncounted:
        return Uncounted("call")

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> None:
        return None
