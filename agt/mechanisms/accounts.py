"""What a claim says of the ledger that counts its release, or of why none does. Loads no torch.

Formal guarantees
    Nothing here names a digest of the data, a run, or an entry's hash over such digests: whoever
    guesses all of the data but one record could test the last one by it. The first entry of a
    ledger holds 32 random bytes and no digest, so the digits of its hash tell nothing of that kind.
"""

from typing import Annotated, Literal

from pydantic import Field

from agt import sentences
from agt.errors import ConfigError
from agt.mechanisms.budget import Allowance, Cost, eps_so_far
from agt.mechanisms.curves import Curve, sample_budget_curve
from agt.settings import Count, schema

Counts = Literal["entry", "answers", "nothing"]
FirstDigits = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""The first 16 digits of the hash of a ledger's first entry, by which it is told from others."""


@schema
class CountedTable:
    """A table about a ledger's people.

    Attributes:
        name: for people.
        unit: the column that says whose record each is; None: each is a unit by itself.
        rows: at most so many records are one unit's.
        apart: declared to be about other people than those of ledgers beside it that have some of
            the same names.
    """

    name: str
    unit: str | None = None
    rows: Count = 1
    apart: bool = False


@schema
class MovedHead:
    """An entry that put a ledger's second head somewhere else.

    Attributes:
        entry, time: of the ledger.
        lost: the head before it was lost, so that it started anew.
        before: where that lay; None: there was none.
    """

    entry: Count
    time: str
    lost: bool
    before: str | None = None

    def __str__(self) -> str:
        if self.lost:
            return sentences.lost_head(self.entry)
        return sentences.moved_head(self.entry, self.time, self.before)


@schema
class OtherLedger:
    """An entry that declares what another ledger is.

    Attributes:
        entry: of this ledger.
        file: the name of a file that could not be opened, and is no account of these people.
        first_entry: of the ledger in whose place this one lies; one of the two is given.
    """

    entry: Count
    file: str | None = None
    first_entry: FirstDigits | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.first_entry is None):
            raise ConfigError("a declared ledger is a file, or another ledger's first entry")

    def __str__(self) -> str:
        if self.file is not None:
            return sentences.declared_entry(self.entry, sentences.unreadable_ledger(self.file))
        return sentences.declared_entry(
            self.entry, sentences.replaced_ledger(str(self.first_entry))
        )


@schema
class LedgerState:
    """What a ledger declares, and what it cannot exclude.

    Attributes:
        tables: those admitted, in their order.
        moved: where its second head was put, in the order of the entries.
        declared: about other ledgers, in the order of the entries.
        second_head: where it lies now: away from the ledger, on its disk, or nowhere.
    """

    tables: tuple[CountedTable, ...]
    moved: tuple[MovedHead, ...] = ()
    declared: tuple[OtherLedger, ...] = ()
    second_head: Literal["away", "same_disk", "none"] = "none"

    def lines(self, unit: str) -> list[str]:
        """Return what a claim on this ledger must say. Args: unit: the population's, in words."""
        admitted = [sentences.tables(unit, self.tables)] if self.tables else []
        warnings = {"away": [], "same_disk": [sentences.SAME_DISK], "none": [sentences.NO_HEAD]}
        return [
            *admitted,
            *map(str, self.moved),
            *map(str, self.declared),
            *warnings[self.second_head],
        ]


@schema
class Account:
    """The ledger that was debited.

    Attributes:
        population: its name.
        unit: whose addition or removal makes a neighbour, as the population's owner calls it.
        counts: what of the release it counts: this entry; each answer, when it comes; or nothing,
            as all of it was released before. None: not recorded, as in claims of earlier versions.
        entry: the number of the debit's entry, or of the newest where there is none.
        allowance: the budget for good.
        spent: by everything up to this entry: a counter's position, and no guarantee of its own.
        curve: of the budget; None: the one lot was admitted by its own total, and the claim's curve
            is the budget's too.
        first_entry: names the ledger; None: not recorded, as in claims of earlier versions.
        ledger: what it declares; None: not recorded, as in claims of earlier versions, whose unit
            has the tables' numbers of records in it.
    """

    population: str
    unit: str
    entry: Count
    allowance: Allowance
    spent: Cost
    counts: Counts | None = None
    curve: Curve | None = None
    first_entry: FirstDigits | None = None
    ledger: LedgerState | None = None

    @property
    def budget_curve(self) -> Curve | None:
        """What ``curve`` has to be."""
        return sample_budget_curve(self.allowance) if self.allowance.holds(self.spent) else None

    @property
    def lines(self) -> list[str]:
        """Return what a claim says of it."""
        allowance = self.allowance
        counts = self.counts or "entry"
        state = self.ledger or LedgerState(())
        unit = sentences.unit(self.unit, state.tables)
        budget = sentences.budget(allowance.eps, allowance.delta)
        return [
            sentences.account(
                self.population, counts, self.entry, allowance.eps, allowance.delta, unit
            ),
            sentences.counter(eps_so_far(allowance, self.spent), budget),
            *([] if allowance.holds(self.spent) else [sentences.ALL_SPENT]),
            *state.lines(self.unit),
        ]


@schema
class Uncounted:
    """Why no ledger counts a release.

    Attributes:
        why: call: it was made by a program, which keeps no account; unnamed: no ledger was named;
            declined: none was to count it (ledger=none).
        ledgers: those in the working directory that have these people.
        unopened: there are others, which could not be opened.
    """

    why: Literal["call", "unnamed", "declined"] = "call"
    ledgers: tuple[str, ...] = ()
    unopened: bool = False

    def __post_init__(self) -> None:
        if self.why != "declined" and (self.ledgers or self.unopened):
            raise ConfigError(
                "a claim names the ledgers that do not count it where they were declined alone"
            )

    @property
    def lines(self) -> list[str]:
        """Return what a claim says of it."""
        if self.why == "declined":
            return [sentences.declined_ledger(self.ledgers, self.unopened)]
        return [sentences.unnamed_ledger() if self.why == "unnamed" else sentences.NO_ACCOUNT]
