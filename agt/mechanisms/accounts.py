"""What a claim says of the ledger that counts its release, or of why none does.

Formal guarantees
    No field is a digest of the data, a run, or an entry's hash over such digests: whoever guesses
    all of the data but one record could test the last one by it. The first entry of a ledger holds
    32 random bytes and no digest, so its hash allows no such test.
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
"""The first 16 digits of the hash of a ledger's first entry, which no other ledger has."""


@schema
class CountedTable:
    """A table about a ledger's people.

    Attributes:
        name: the table's name, for people.
        unit: the column that says whose record each is; None: each record is a unit by itself.
        rows: how many records one unit may have.
        apart: the table is declared to be about other people than the ledgers in the same folder,
            although some of the names are the same.
    """

    name: str
    unit: str | None = None
    rows: Count = 1
    apart: bool = False


@schema
class MovedHead:
    """An entry by which a ledger's second head was put somewhere else.

    Attributes:
        entry: the number of the entry.
        time: when it was written.
        lost: the head before it was lost, so that a new one was started.
        before: where the head before it was; None: there was none.
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
    """An entry that declares what another ledger is: one of ``file`` and ``first_entry``.

    Attributes:
        entry: the number of the entry in this ledger.
        file: the name of a file that could not be opened, and is declared to be no account of
            these people.
        first_entry: the first entry of the ledger that this one is declared to replace.

    Raises:
        ConfigError: both are given, or neither.
    """

    entry: Count
    file: str | None = None
    first_entry: FirstDigits | None = None

    def __post_init__(self) -> None:
        if (self.file is None) == (self.first_entry is None):
            raise ConfigError(
                "the declaration about another ledger needs either file or first_entry, but "
                "not both"
            )

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
        tables: the tables that were admitted, in their order.
        moved: where the second head was put, in the order of the entries.
        declared: what was declared about other ledgers, in the order of the entries.
        second_head: where the second head is now: away from the ledger, on its disk, or nowhere.
    """

    tables: tuple[CountedTable, ...]
    moved: tuple[MovedHead, ...] = ()
    declared: tuple[OtherLedger, ...] = ()
    second_head: Literal["away", "same_disk", "none"] = "none"

    def lines(self, unit: str) -> list[str]:
        """Return the sentences that a claim on this ledger must have.

        Args:
            unit: what the population calls a unit, such as "person".
        """
        lines = [sentences.tables(unit, self.tables)] if self.tables else []
        lines += [str(moved) for moved in self.moved]
        lines += [str(declared) for declared in self.declared]
        if self.second_head == "same_disk":
            lines.append(sentences.SAME_DISK)
        if self.second_head == "none":
            lines.append(sentences.NO_HEAD)
        return lines


@schema
class Account:
    """The ledger that was debited for a release.

    Attributes:
        population: the name of the population that the ledger is about.
        unit: whose addition or removal makes a neighbour, as the population's owner calls it.
        counts: what of the release the ledger counts: this entry; each answer, when it comes; or
            nothing, as all of it was released before. None: not recorded, as in claims of earlier
            versions.
        entry: the number of the debit's entry, or of the newest entry where there is no debit.
        allowance: the budget for good.
        spent: the cost of everything up to this entry: a counter's position, and no guarantee of
            its own.
        curve: the budget's privacy curve; None: the one lot was admitted by its own total, and the
            claim's curve is the budget's too.
        first_entry: names the ledger; None: not recorded, as in claims of earlier versions.
        ledger: what the ledger declares; None: not recorded, as in claims of earlier versions,
            whose unit has the tables' numbers of records in it.
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
        """The curve that ``curve`` has to be; None: the filters do not hold what was spent."""
        return sample_budget_curve(self.allowance) if self.allowance.holds(self.spent) else None

    @property
    def lines(self) -> list[str]:
        """The sentences that a claim has about this account."""
        allowance = self.allowance
        state = self.ledger or LedgerState(())
        unit = sentences.unit(self.unit, state.tables)
        budget = sentences.budget(allowance.eps, allowance.delta)
        debit = sentences.account(
            self.population,
            self.counts or "entry",
            self.entry,
            allowance.eps,
            allowance.delta,
            unit,
        )
        lines = [debit, sentences.counter(eps_so_far(allowance, self.spent), budget)]
        if not allowance.holds(self.spent):
            lines.append(sentences.ALL_SPENT)
        return lines + state.lines(self.unit)


@schema
class Uncounted:
    """Why no ledger counts a release.

    Attributes:
        why: call: the release was made by a program, which keeps no account; unnamed: no ledger was
            named; declined: no ledger was to count it (ledger=none).
        ledgers: the ledgers in the working directory that are about these people.
        unopened: there are other ledgers, which could not be opened.

    Raises:
        ConfigError: ledgers are named although none was declined.
    """

    why: Literal["call", "unnamed", "declined"] = "call"
    ledgers: tuple[str, ...] = ()
    unopened: bool = False

    def __post_init__(self) -> None:
        if self.why != "declined" and (self.ledgers or self.unopened):
            raise ConfigError(
                "a claim may name ledgers that do not count it only if the user declined them "
                "(ledger=none)"
            )

    @property
    def lines(self) -> list[str]:
        """The sentences that a claim has about this."""
        if self.why == "declined":
            return [sentences.declined_ledger(self.ledgers, self.unopened)]
        if self.why == "unnamed":
            return [sentences.unnamed_ledger()]
        return [sentences.NO_ACCOUNT]
