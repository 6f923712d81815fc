"""Sentences about releases, one template for each kind.

They are made from numbers and enumerations where somebody reads them, and are never read back:
whatever compares two releases compares the fields that these are made from. It imports agt.messages
alone, so that every room may use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agt.messages import Message

SCOPE_IN_BRIEF = (
    "the guarantee protects the training records; the queries, their number and their ids are "
    "taken to be public and independent of the training records"
)
SCOPE = (
    f"{SCOPE_IN_BRIEF}. The guarantee covers data that training accepts without an error. "
    "Training refuses, for example, a batch above n_max, a unit above relation.unit_rows, a "
    "missing value where none is declared to occur, and a single class where no classes are "
    "declared. The guarantee does not "
    "cover how long the computation takes, nor what else a machine reveals about the "
    "computation (memory, caches, power). The errors of library functions (exp, tanh, erf, "
    "softmax) and of eigenvectors (LAPACK) are assumed, not proved, to be at most what the "
    "bounds allow for"
)
OUTSIDE = (
    "the guarantee does not cover how long a step takes, nor any other side channel, such as "
    "memory, power or network traffic",
    "the guarantee does not cover other releases about the same data that the ledger does not "
    "count; if no ledger is used, it does not cover any other release",
    "the guarantee holds only if the declarations that it depends on are true",
    "the guarantee does not cover what a reader knows from other sources, or can learn about "
    "people in general",
    "the guarantee says nothing about how accurate the answers are",
)
APART = (
    "publish either labels from this run's certificates or its noisy weights, but never both. "
    "The guarantee of the labels treats the training noise as a public constant, and no "
    "composition bound covers both together"
)
COVERED = (
    ". Although this release does not require a proof, its guarantee is proved, because "
    "every condition that the mechanism needs is met"
)
NO_LIPSCHITZ = (
    "the published stable distance of an ensemble (Theorem 5.3 of 'Certification for "
    "Differentially Private Prediction in Gradient-Based Training') is a sum over all "
    "members, so one record can change it by more than 1 (it is not 1-Lipschitz)"
)
UNFIXED = (
    "taken together, the answers of this release have no guarantee, because their number was "
    "not fixed before the first one was drawn"
)
FREE = (
    "answers that were released earlier, or that are computed from weights released earlier, "
    "spend no further budget"
)
RELEASED_EARLIER = (
    "these labels were computed from weights that were released earlier, so they spend no further "
    "budget"
)
IN_FULL = "the full text of the claim is in report.md"
DRAWS_FROM_SEED = (
    "the random draws come from a seed, so they can be predicted: this is not a private release"
)
NOISE_FROM_SEED = (
    "the noise comes from a seed, so anyone who knows the seed can subtract it: nothing here "
    "is private"
)
NO_ACCOUNT = (
    "no ledger counts this release, although the privacy losses of all releases about the same "
    "data add up"
)
ALL_SPENT = (
    "the ledger allowed this release, because it is the first one and its own privacy loss is "
    "within the total budget. It uses up this budget, so nothing more can be released"
)
ONLY_LEDGER = (
    "declared, not checked: no other ledger counts releases about these people. agt compares only "
    "the ledgers in the same folder, those beside the data's files, and those that were used on "
    "the same account"
)
NO_HEAD = (
    "the ledger's latest entry is not recorded outside of the ledger. An older copy could "
    "therefore have replaced the ledger unnoticed, so that the same budget is spent again"
)
SAME_DISK = (
    "the head file (which keeps a copy of the ledger's last entry) is on the same disk as the "
    "ledger, so nobody would notice if the whole disk was restored to an older state"
)
_GIVEN = {  # by what is released
    "labels": "{} per query",
    "a number": "{} for the single published number",
    "weights": "the released weights are {}",
    "constants": "the ranges, lists and sizes reported here are {}",
}
_FOLLOWS = {
    "weights": ". The same holds for every label that is computed from the released weights",
    "constants": (
        ". Releases of a model that is trained with these measured values spend further budget"
    ),
}
_REMEDIES = {
    "a": Message(
        "train with {config:kgrid=dense}, or give counting=index, which counts positions in the "
        "list of k values instead of k itself"
    ),
    "b": Message(
        "give records unique ids, and let a hash of a record's own id decide its batch, split "
        "and shard"
    ),
    "c": Message(
        "declare public constants for sizes and normalisers (dataset.declared_size), and "
        "train again"
    ),
    "d": Message("train with relation=add_remove"),
    "e": Message(
        "preprocess with public constants, choose the settings on public data, and train again"
    ),
    "f": Message("train with {config:training.product}=exact"),
    "g": Message("train with relation=add_remove"),
}
_COUNTED = {  # by what of a release a ledger counts
    "entry": "entry {} of the ledger counts this release",
    "answers": "each answer is debited from the ledger before the answer is drawn",
    "nothing": "this release was not debited from the ledger",
}


class UnitTable(Protocol):
    """A table of a ledger, and how it counts people."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str | None: ...
    @property
    def rows(self) -> int: ...
    @property
    def apart(self) -> bool: ...


# Guarantees and what they add up to.


def guarantee(values: Mapping[str, Any]) -> str:
    """Return what a guarantee promises.

    Args:
        values: its kind and parameters, as files have them.
    """
    if values["kind"] == "pure":
        return f"{values['eps']:.6g}-differentially private"
    if values["kind"] == "gaussian":
        return f"{values['mu']:.6g}-Gaussian differentially private"
    return f"({values['eps']:.6g}, {values['delta']:.6g})-differentially private"


def noise_guarantee(epsilon: float, delta: float) -> str:
    """Return what noise in training is meant to give the weights."""
    return f"({epsilon:g}, {delta:g})-DP"


def total(eps: float, delta: float, bound: str) -> str:
    """Return what several releases come to, by which composition."""
    return f"({eps:.6g}, {delta:.6g})-differentially private in all, by the {bound} composition"


def spent_line(of: int | None, spent: str) -> str:
    """Return what is spent.

    Args:
        of: how many answers it is over; None: any number.
        spent: a ``total``, or a ``guarantee`` that is all of it.
    """
    over = {None: "for any number of queries", 1: "in all"}.get(of, f"all {of} together")
    return f"{over}: {spent}"


def trained_noise_line(spent: str) -> str:
    """Return what noise in training spends on the weights."""
    return f"the weights: {spent}"


def too_much(eps: float, weak: float) -> str:
    """Return what the owner of a budget hears that protects nobody: one above ``weak``."""
    return (
        f"the total epsilon is {eps:g}. Above {weak:g} it guarantees almost nothing; 1 is strong, "
        "10 is weak"
    )


def large_delta(delta: float, size: float) -> str:
    """Return what the owner of a budget hears whose delta is above one over the records."""
    return (
        f"the total delta is {delta:g}. A delta above 1 / {size:g} (one over the number of "
        "records) would allow publishing one record in full"
    )


# What is claimed, and why not.


def neighbours(relation: str, edit: str) -> str:
    """Return which datasets are neighbours.

    Args:
        edit: what the relation lets change, for the rows that a unit may have.
    """
    return f"{relation} neighbours ({edit})"


def spent_note(output: str) -> str:
    """Return what spent.json says of itself.

    Args: output: labels, weights, a number or constants.
    """
    return (
        f"{output} may have been drawn after this time, so count the release as spent budget, "
        "even if the command failed"
    )


def price(given: str, between: str) -> str:
    """Return a guarantee with its neighbours."""
    return f"{given} for {between}"


def claim(output: str, given: str, between: str, covered: bool) -> str:
    """Return what is guaranteed.

    Args:
        output: what is released.
        covered: no proof was required, and the guarantee is proved all the same.
    """
    follows = _FOLLOWS.get(output, "")
    proof = COVERED if covered else ""
    return f"{price(_GIVEN[output].format(given), between)}{follows}{proof}"


def no_proof(output: str, given: str, reasons: Sequence[str]) -> str:
    """Return that nothing is proved, why, and what the paper says.

    Args:
        reasons: as ``unproved`` takes them; empty: the claim's form does not record any.
    """
    because = f", because {unproved(reasons)}" if reasons else ""
    guarantee = _GIVEN[output].format(given)
    return f"NO PROOF OF PRIVACY{because}. The mechanism's paper claims: {guarantee}"


def unproved(reasons: Sequence[str]) -> str:
    """Return why nothing is proved: conditions by their letters, as a report lists them all."""
    letters = [reason for reason in reasons if len(reason) == 1]
    parts = [] if len(letters) == len(reasons) else [NO_LIPSCHITZ]
    if letters:
        named = (
            f"conditions {', '.join(letters)} are"
            if len(letters) > 1
            else f"condition {letters[0]} is"
        )
        parts.insert(0, f"{named} not met")
    return "; ".join(parts)


def condition_refusal(
    letter: str, name: str, missing: Message, *, names_remedy: bool = False
) -> Message:
    """Return why a condition stops a release, and what to do.

    Args:
        letter: of the condition.
        name: of the condition.
        missing: what does not hold.
        names_remedy: ``missing`` already says what to do about it. Otherwise the general remedy
            of the condition is added.
    """
    if names_remedy:
        return Message(
            "condition {letter} ({name}) is not met: {missing}",
            letter=letter,
            name=name,
            missing=missing,
        )
    return Message(
        "condition {letter} ({name}) is not met: {missing}; {remedy}",
        letter=letter,
        name=name,
        missing=missing,
        remedy=_REMEDIES[letter],
    )


def vote_refusal() -> Message:
    """Return why the published vote stops a release, and what to do."""
    return Message(
        "{reason}. Use {config:unproved=refuse}, which counts the votes in a certified way",
        reason=NO_LIPSCHITZ,
    )


def relation_refusal(relation: str, why: str) -> str:
    """Return why nothing may be released under a relation, and what to do."""
    remedy = _REMEDIES["g"]
    return (
        f"relation={relation}: {why}, so no release mechanism can use these certificates; {remedy}"
    )


def declaration(condition: str, why: str, broken_by: str | None) -> str:
    """Return what was declared, and what would break it; None: it is left out."""
    known = f"declared, not proved (for condition {condition}): {why}"
    return f"{known}; false if {broken_by}" if broken_by else known


def simulation(why: str, lines: Iterable[str]) -> list[str]:
    """Return the lines about a release of which only a simulation is drawn."""
    return [
        f"SIMULATION: {why}",
        *(f"without a seed, this would hold: {line}" for line in lines),
    ]


# Ledgers.


def declined_ledger(holding: Sequence[str], unopened: bool) -> str:
    """Return that a release was made outside of ledgers.

    Args:
        holding: names of the ledgers that have these people.
        unopened: there are others, which could not be opened.
    """
    populations = ", ".join(holding)
    which = f"the ledger of {populations}" if holding else "any ledger"
    made = (
        f"this release was made without {which} (because of ledger=none), so no ledger counts it, "
        "although the privacy losses of all releases about the same people add up"
    )
    if unopened:
        return (
            f"{made}. Some ledgers in the same folder could not be opened, so agt does not know "
            "whether they are about the same people"
        )
    return made


def budget(eps: float, delta: float) -> str:
    """Return what may be spent in all."""
    return f"eps = {eps:g}" + (f", delta = {delta:g}" if delta else "")


def account(population: str, counts: str, entry: int, eps: float, delta: float, unit: str) -> str:
    """Return which ledger counts a release, and what all that is released on it comes to."""
    counted = _COUNTED[counts].format(entry)
    return (
        f"this release belongs to the ledger of {population} ({counted}). All releases of this "
        f"ledger, including this one, are together ({eps:g}, {delta:g})-differentially private, "
        f"where the unit that is protected is {unit}"
    )


def counter(so_far: float, allowed: str) -> str:
    """Return how much of a ledger's ``budget`` is spent."""
    return (
        f"the ledger's total so far is eps = {so_far:.6g} of {allowed}. This total only counts "
        "what was spent. The guarantee is the whole budget of the ledger, not this total"
    )


def ledgers_elsewhere(first_entries: Sequence[str]) -> str:
    """Return that other ledgers count the same people.

    Args:
        first_entries: the digits by which they are known, at least one ledger's.
    """
    listed = ", ".join(first_entries)
    which = "another ledger, whose first entry has a hash that begins"
    if len(first_entries) > 1:
        which = "other ledgers, whose first entries have hashes that begin"
    return (
        f"the same data are also counted by {which} with {listed}. So the budget of this ledger "
        "does NOT bound everything that is released about these people: the privacy losses of all "
        "these ledgers add up"
    )


def unit(population_unit: str, tables: Sequence[UnitTable]) -> str:
    """Return whose addition or removal a budget is about: the population's unit, and how many
    records it may have.
    """
    most = dict.fromkeys((table.name, 1 if table.unit is None else table.rows) for table in tables)
    caps = sorted({rows for _, rows in most})
    if caps in ([], [1]):
        return population_unit
    if len(caps) == 1:
        maximum = caps[0]
        return f"{population_unit} (up to {maximum} records)"
    records_by_table = ", ".join(f"{rows} of the records in {name}" for name, rows in most)
    return f"{population_unit} (at most {records_by_table})"


def printable(text: str) -> str:
    """Return a name that is fit for a line."""
    return text if text.isprintable() else ascii(text)


def unit_meaning(table: UnitTable, population_unit: str) -> str:
    """Return what is declared of a table whose units go by a population's words for one."""
    if table.unit is not None:
        column = printable(table.unit)
        return (
            f"a unit is {population_unit}, and the records of one unit (up to {table.rows}) have "
            f"the same value in column {column}"
        )
    return (
        "a unit is one record"
        if population_unit == "one record"
        else f"each record is {population_unit}"
    )


def tables(population_unit: str, admitted: Sequence[UnitTable]) -> str:
    """Return what whoever admits tables to a ledger declares; names no digest, as it goes into
    claims.
    """
    by_unit = dict[tuple[str | None, int], dict[str, UnitTable]]()
    for table in admitted:
        unit_of_table = (table.unit, 1 if table.unit is None else table.rows)
        by_unit.setdefault(unit_of_table, {})[table.name] = table
    parts = list[str]()
    for named in by_unit.values():
        names = ", ".join(named)
        which = f"the table {names}" if len(named) == 1 else f"each of the tables {names}"
        meaning = unit_meaning(next(iter(named.values())), population_unit)
        parts.append(f"in {which}, {meaning}")
    if any(table.apart for table in admitted):
        parts[-1] += (
            ". The people of this ledger are not those in the other ledgers of the same "
            "folder, although some names are the same"
        )
    several = sum(map(len, by_unit.values())) > 1
    same = (
        ". The units of all these tables are the same people, so a release from one table "
        "uses the budget of all these tables"
    )
    meanings = "; ".join(parts)
    return f"declared, not checked: {meanings}{same if several else ''}"


def lost_head(entry: int) -> str:
    """Return that a ledger's head file was lost."""
    return (
        f"entry {entry} created a new head file (which keeps a copy of the ledger's last entry), "
        "because the previous one was lost. Before this entry, an older copy of the ledger could "
        "have replaced the newest one unnoticed"
    )


def moved_head(entry: int, time: str, before: str | None) -> str:
    """Return that a head file took the place of another, or that it came later."""
    if before:
        return f"entry {entry} (of {time}) moved the head file from {before} to another place"
    return (
        f"entry {entry} (of {time}) created the first head file. Before this entry, no copy of "
        "the last entry was kept outside of the ledger"
    )


def unreadable_ledger(file: str) -> str:
    """Return what is declared of a file that could not be opened."""
    name = printable(file)
    return (
        f"the file {name} in the ledger's folder, which could not be opened, does not count any "
        "releases about the people of this ledger, so nothing from this file is added to the "
        "total"
    )


def replaced_ledger(first_entry: str) -> str:
    """Return what is declared of a ledger that lay in this one's place."""
    return (
        "this ledger replaced another one, whose first entry has a hash that begins with "
        f"{first_entry}. The total here does not include the replaced ledger's releases, although "
        "the privacy losses of both ledgers add up"
    )


def declared_entry(entry: int, words: str) -> str:
    """Return which entry of a ledger declares something."""
    return f"entry {entry} declares that {words}"
