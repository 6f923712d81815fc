"""What a claim says about the privacy ledger that counts its release, or why no ledger counts it.

A ledger is a file that holds one population's privacy budget and every release charged to it.

Formal guarantees
    No field is a digest of the data or of a run, or the hash of an entry that is computed from such
    digests: somebody who guesses all records but one could test the last one by it. A ledger's
    first entry holds 32 random bytes and no digest, so ``first_entry`` is safe.
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
    """A table of records whose people share a ledger's budget.

    Attributes:
        name: the table's name, for people.
        unit: the column that says to which unit (such as one customer) a record belongs; None: each
            record is a separate unit.
        rows: the maximum number of records that one unit may have.
        apart: the data owner declared that the table is about other people than the other ledgers
            of the same folder, although some names of units occur in both.
    """

    name: str
    unit: str | None = None
    rows: Count = 1
    apart: bool = False


@schema
class MovedHead:
    """A ledger entry that records that the ledger's head file has a new place.

    The head file is a copy of the hash of the newest entry, kept outside the ledger's file. It
    shows when the ledger was replaced by an older copy.

    Attributes:
        entry: the number of the entry.
        time: the time at which the entry was written.
        lost: the earlier head file was lost, and a new one was started.
        before: the place of the earlier head file; None: there was no head file.
    """

    entry: Count
    time: str
    lost: bool
    before: str | None = None

    def __str__(self) -> str:
        """Return the sentence that a claim has about the move; it warns if the head was lost."""
        if self.lost:
            return sentences.lost_head(self.entry)
        return sentences.moved_head(self.entry, self.time, self.before)


@schema
class OtherLedger:
    """A ledger entry by which the data owner declares what another ledger file is.

    Exactly one of ``file`` and ``first_entry`` is given.

    Attributes:
        entry: the number of the entry in this ledger.
        file: the name of a ledger file that could not be opened; it is declared that it does not
            count releases about these people.
        first_entry: the first digits of the other ledger's first hash; it is declared that this
            ledger replaces the other one.

    Raises:
        ConfigError: ``file`` and ``first_entry`` are both given, or neither is.
    """

    entry: Count
    file: str | None = None
    first_entry: FirstDigits | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError unless exactly one of ``file`` and ``first_entry`` is given."""
        if (self.file is None) == (self.first_entry is None):
            raise ConfigError(
                "the claim's declaration about another ledger must have exactly one of the "
                "entries 'file' and 'first_entry'"
            )

    def __str__(self) -> str:
        """Return the sentence that a claim has about this declaration of the data owner."""
        if self.file is not None:
            declaration = sentences.unreadable_ledger(self.file)
        else:
            declaration = sentences.replaced_ledger(str(self.first_entry))
        return sentences.declared_entry(self.entry, declaration)


@schema
class LedgerState:
    """The declarations of a ledger about its tables and files, as a claim states them.

    Attributes:
        tables: the tables whose people share the budget, in the order in which they were admitted.
        moved: each change of the head file's place, in the order of the entries. (The head file
            is a copy of the newest entry's hash, which shows that the ledger is no older copy.)
        declared: the data owner's declarations about other ledgers, in the order of the entries.
        second_head: the place of the head file now: "away" from the ledger (on another disk), on
            the "same_disk", or nowhere ("none").
    """

    tables: tuple[CountedTable, ...]
    moved: tuple[MovedHead, ...] = ()
    declared: tuple[OtherLedger, ...] = ()
    second_head: Literal["away", "same_disk", "none"] = "none"

    def lines(self, unit: str, brief: bool = False) -> list[str]:
        """Return the sentences that every claim on this ledger must contain.

        They list the tables that share the budget, where other ledgers are looked for, moves of the
        head file (a copy of the newest entry's hash, by which an older copy of the ledger is
        recognised) and declarations about other ledgers. A last sentence warns if the head file is
        on the ledger's disk or does not exist.

        Args:
            unit: the population's name for a unit (whose data a neighbour lacks), such as "person".
            brief: True: the sentences for a terminal, without what ``agt ledger init`` has said.
        """
        lines = []
        if self.tables:
            lines.append(sentences.tables(unit, self.tables))
        if not brief:
            lines.append(sentences.ONLY_LEDGER)
        lines += [str(moved_head) for moved_head in self.moved]
        lines += [str(other_ledger) for other_ledger in self.declared]
        if self.second_head == "same_disk" and not brief:
            lines.append(sentences.SAME_DISK)
        if self.second_head == "none":
            lines.append(sentences.NO_HEAD)
        return lines


@schema
class Account:
    """The ledger that was debited for a release, as a claim states it.

    Attributes:
        population: the name of the population whose budget the ledger holds.
        unit: the unit whose addition or removal makes a neighbouring dataset, in the owner's words.
        counts: the kind of debit: "entry": the whole release, in this entry; "answers": each
            answer, when its question comes; "nothing": all of it was released before.
        entry: the number of the debit's entry, or of the newest entry where there is no debit.
        allowance: the budget for everything that is ever released about the population.
        spent: the cost of all debits up to this entry. It says how much is used, and is no
            guarantee of its own: only the budget is guaranteed.
        curve: the budget's privacy curve: points (eps, delta) at which all releases together are
            (eps, delta)-DP. None: the only debit was admitted by its own total, and the curve of
            the claim is the budget's, too.
        first_entry: the first digits of the hash of the ledger's first entry, which identify the
            ledger.
        ledger: the ledger's declarations about its tables and files.
        elsewhere: the first digits of the first entries of ledgers in other folders that count the
            same people, as agt found them when the release was made; None: agt found no such
            ledgers.
    """

    population: str
    unit: str
    entry: Count
    allowance: Allowance
    spent: Cost
    counts: Counts
    first_entry: FirstDigits
    ledger: LedgerState
    curve: Curve | None = None
    elsewhere: Annotated[tuple[FirstDigits, ...], Field(min_length=1)] | None = None

    @property
    def budget_curve(self) -> Curve | None:
        """The budget's privacy curve, computed again, for ``curve``.

        None: ``spent`` exceeds the budget's running sums. This happens only if the ledger's first
        debit was admitted by its own total. The curve of the claim is then the budget's, too.
        """
        if not self.allowance.holds(self.spent):
            return None
        return sample_budget_curve(self.allowance)

    def lines(self, brief: bool = False) -> list[str]:
        """Return the sentences of a claim about the ledger that counts its release.

        They name the ledger, its budget and its unit, what is spent so far, whether the budget is
        used up, and what the ledger declares about its tables and files.

        Args:
            brief: True: the sentences for a terminal, without what ``agt ledger init`` has said of
                the ledger.
        """
        allowance = self.allowance
        eps, delta = allowance.eps, allowance.delta
        unit = sentences.unit(self.unit, self.ledger.tables)
        used_eps = eps_so_far(allowance, self.spent)
        if brief:
            lines = [
                sentences.account_in_brief(self.population, self.entry, used_eps, eps, delta, unit)
            ]
        else:
            lines = [
                sentences.account(self.population, self.counts, self.entry, eps, delta, unit),
                sentences.counter(used_eps, sentences.budget(eps, delta)),
            ]
        if not allowance.holds(self.spent):
            lines.append(sentences.ALL_SPENT)
        if self.elsewhere is not None:
            lines.append(sentences.ledgers_elsewhere(self.elsewhere))
        return [*lines, *self.ledger.lines(self.unit, brief)]


@schema
class Uncounted:
    """Why no ledger counts a release.

    Attributes:
        why: "call": a program called the library without a ledger; "unnamed": the command line
            named no ledger; "declined": the user declined one (ledger=none).
        ledgers: if the user declined a ledger, the ledgers in the working directory that are about
            these people.
        unopened: True if the user declined a ledger, and the working directory has ledgers that
            could not be opened.

    Raises:
        ConfigError: ``ledgers`` or ``unopened`` is given although no ledger was declined.
    """

    why: Literal["call", "unnamed", "declined"] = "call"
    ledgers: tuple[str, ...] = ()
    unopened: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError if ledgers are named although ``why`` is not "declined"."""
        if self.why != "declined" and (self.ledgers or self.unopened):
            raise ConfigError(
                "the claim names ledgers that do not count the release, but only a claim that was "
                "made with ledger=none may name such ledgers"
            )

    def lines(self, _brief: bool = False) -> list[str]:
        """Return the claim's sentence about why no privacy ledger counts it, as a list of one."""
        if self.why == "declined":
            return [sentences.declined_ledger(self.ledgers, self.unopened)]
        return [sentences.NO_ACCOUNT]
