"""Sentences about releases, one template for each kind.

They are made from numbers and enumerations where somebody reads them, and are never read back:
whatever compares two releases compares the fields that these are made from. It imports agt.messages
alone, so that every room may use it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from agt.messages import Message

SCOPE_IN_BRIEF = (
    "it protects the training records; queries are taken to be public and independent of them"
)
SCOPE = (
    "the guarantee protects the training records; the queries, their number and their ids are "
    "taken to be public and independent of the training records. The guarantee covers data that "
    "training accepts without an error. "
    "Training refuses, for example, a batch above n_max, a unit above relation.unit_rows, a "
    "missing value where none is declared to occur, and a single class where no classes are "
    "declared. The guarantee does not cover how long the computation takes, nor what else a "
    "machine reveals about the computation (memory, caches, power). The errors of library "
    "functions (exp, tanh, erf, softmax) and of eigenvectors (LAPACK) are assumed, not proved, to "
    "be at most what the bounds allow for"
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
IN_BRIEF = "guarantee (in full: report.html):"
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
    "the budget is that of this ledger alone: if another ledger counts releases about the same "
    "people, the two budgets add up. agt looks for other ledgers only in the same folder, beside "
    "the data's files, and among those that were used on the same account"
)
NO_HEAD = (
    "the ledger's latest entry is not recorded outside of the ledger. An older copy could "
    "therefore have replaced the ledger unnoticed, so that the same budget is spent again"
)
SAME_DISK = (
    "the head file (which keeps a copy of the ledger's last entry) is on the same disk as the "
    "ledger, so nobody would notice if the whole disk was restored to an older state"
)
PUBLISHED_VOTE: Final = "published_vote"
"""The one reason why nothing is proved that is not the letter of a condition: the vote of an
ensemble is the published one.
"""
_GUARANTEE_OF = {  # output -> template of its guarantee
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
_DECLARED_IN_BRIEF = {  # letter -> what its declarations say
    "b": "each record's split and features depend on it alone",
    "c": "constants are public",
    "e": "preprocessing and settings are public",
}
_COUNTED = {  # what a ledger counts of a release -> sentence
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


# Guarantees, and totals of several releases.


def guarantee(values: Mapping[str, Any]) -> str:
    """Return a privacy guarantee as a phrase.

    Args:
        values: its kind and parameters, as files have them.
    """
    if values["kind"] == "pure":
        return f"{values['eps']:.6g}-differentially private"
    if values["kind"] == "gaussian":
        return f"{values['mu']:.6g}-Gaussian differentially private"
    return f"({values['eps']:.6g}, {values['delta']:.6g})-differentially private"


def noise_guarantee(epsilon: float, delta: float) -> str:
    """Return the guarantee that noise in training is meant to give the weights, as a phrase."""
    return f"({epsilon:g}, {delta:g})-DP"


def total(eps: float, delta: float, bound: str) -> str:
    """Return the total privacy loss of several releases, and the composition bound it is from."""
    return f"({eps:.6g}, {delta:.6g})-differentially private in all, by the {bound} composition"


def spent_line(answers: int | None, spent: str) -> str:
    """Return the privacy loss of some answers together, as a sentence.

    Args:
        answers: the number of answers; None: any number.
        spent: the ``total`` of these answers; or the ``guarantee``, if one release makes all of
            them.
    """
    if answers is None:
        return f"for any number of queries: {spent}"
    if answers == 1:
        return f"in all: {spent}"
    return f"all {answers} together: {spent}"


def trained_noise_line(spent: str) -> str:
    """Return the privacy loss of weights that were trained with noise, as a sentence."""
    return f"the weights: {spent}"


def too_much(eps: float, weak: float) -> str:
    """Return the warning about a total epsilon above ``weak``, which protects hardly anybody."""
    return (
        f"the total epsilon is {eps:g}. Above {weak:g} it guarantees almost nothing; 1 is strong, "
        "10 is weak"
    )


def large_delta(delta: float, size: float) -> str:
    """Return the warning about a total delta above 1 / ``size``, the number of records."""
    return (
        f"the total delta is {delta:g}. A delta above 1 / {size:g} (one over the number of "
        "records) would allow publishing one record in full"
    )


# Claims, and reasons against them.


def neighbours(relation: str, edit: str) -> str:
    """Return which datasets are neighbours, as a phrase.

    Args:
        relation: the name of the relation.
        edit: the relation's description of one edit.
    """
    return f"{relation} neighbours ({edit})"


def spent_note(output: str) -> str:
    """Return the sentence in spent.json that says to treat the budget of the release as spent.

    Args:
        output: labels, weights, a number or constants.
    """
    return (
        f"{output} may have been drawn after this time, so count the release as spent budget, "
        "even if the command failed"
    )


def price(phrase: str, between: str) -> str:
    """Return a ``guarantee`` together with its ``neighbours``."""
    return f"{phrase} for {between}"


def claim(output: str, phrase: str, between: str, covered: bool) -> str:
    """Return the sentence that states the guarantee of a release.

    Args:
        output: the kind of output that is released, a key of ``_GUARANTEE_OF``.
        phrase: the ``guarantee``.
        between: its ``neighbours``.
        covered: whether the guarantee is proved although no proof was required.
    """
    guarantee_of_output = _GUARANTEE_OF[output].format(phrase)
    follows = _FOLLOWS.get(output, "")
    proof = COVERED if covered else ""
    return f"{price(guarantee_of_output, between)}{follows}{proof}"


def no_proof(output: str, phrase: str, reasons: Sequence[str]) -> str:
    """Return the sentence that nothing is proved, with the reasons and the paper's guarantee.

    Args:
        output: the kind of output that is released, a key of ``_GUARANTEE_OF``.
        phrase: the ``guarantee`` that the mechanism's paper claims.
        reasons: the letters of the conditions that are not met; any other reason is that the vote
            is the published one. Empty: the claim's form does not record any.
    """
    because = f", because {unproved(reasons)}" if reasons else ""
    guarantee_of_output = _GUARANTEE_OF[output].format(phrase)
    return f"NO PROOF OF PRIVACY{because}. The mechanism's paper claims: {guarantee_of_output}"


def unproved(reasons: Sequence[str]) -> str:
    """Return why nothing is proved, as one text.

    Args:
        reasons: the letters of the conditions that are not met; or ``PUBLISHED_VOTE``, or both.
    """
    letters = [reason for reason in reasons if reason != PUBLISHED_VOTE]
    texts = []
    if letters:
        subject = f"condition {letters[0]} is"
        if len(letters) > 1:
            subject = f"conditions {', '.join(letters)} are"
        texts.append(f"{subject} not met")
    if PUBLISHED_VOTE in reasons:
        texts.append(NO_LIPSCHITZ)
    return "; ".join(texts)


def condition_refusal(letter: str, name: str, missing: Message, *, names_remedy: bool) -> Message:
    """Return why a condition prevents a release, and what to do.

    Args:
        letter: the letter of the condition.
        name: the name of the condition.
        missing: a sentence that says what does not hold.
        names_remedy: whether ``missing`` says what to do about it. Otherwise the general remedy of
            the condition is added.
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
    """Return why the published vote prevents a release, and what to do."""
    return Message(
        "{reason}. Use {config:unproved=refuse}, which counts the votes in a certified way",
        reason=NO_LIPSCHITZ,
    )


def relation_refusal(relation: str, reason: str) -> str:
    """Return why nothing may be released under a relation, and what to do."""
    remedy = _REMEDIES["g"]
    return (
        f"relation={relation}: {reason}, so no release mechanism can use these certificates; "
        f"{remedy}"
    )


def declaration(condition: str, statement: str, broken_by: str | None) -> str:
    """Return a declaration (a statement of the owner that no code can check) as a sentence.

    Args:
        condition: the letter of the condition of docs/method.md that needs the declaration.
        statement: the clause that was declared to be true.
        broken_by: a clause on what would make it false; None: the sentence does not say.
    """
    declared = f"declared, not proved (for condition {condition}): {statement}"
    return f"{declared}; false if {broken_by}" if broken_by else declared


def declared_in_brief(conditions: Iterable[str]) -> str:
    """Return that a guarantee depends on statements that are declared, as a clause about it.

    Args:
        conditions: the letters of the conditions that need them, at least one.
    """
    stated = ", ".join(
        f"{letter} ({_DECLARED_IN_BRIEF.get(letter, 'stated in its own words')})"
        for letter in conditions
    )
    return f"holds only if what was declared is true: {stated}"


def simulation(reason: str, lines: Iterable[str]) -> list[str]:
    """Return the sentences on a release of which only a simulation is drawn.

    Args:
        reason: a clause that says why it is a simulation.
        lines: the sentences of the release's claim.
    """
    return [
        f"SIMULATION: {reason}",
        *(f"without a seed, this would hold: {line}" for line in lines),
    ]


# Ledgers.


def declined_ledger(holding: Sequence[str], unopened: bool) -> str:
    """Return the sentence that the user chose not to count a release by a ledger.

    Args:
        holding: the names of the ledgers that have these people.
        unopened: whether there are other ledgers, which could not be opened.
    """
    populations = ", ".join(holding)
    declined = f"the ledger of {populations}" if holding else "any ledger"
    made = (
        f"this release was made without {declined} (because of ledger=none), so no ledger counts "
        "it, although the privacy losses of all releases about the same people add up"
    )
    if unopened:
        return (
            f"{made}. Some ledgers in the same folder could not be opened, so agt does not know "
            "whether they are about the same people"
        )
    return made


def budget(eps: float, delta: float) -> str:
    """Return a total budget as a phrase."""
    return f"eps = {eps:g}" + (f", delta = {delta:g}" if delta else "")


def account(population: str, counts: str, entry: int, eps: float, delta: float, unit: str) -> str:
    """Return the sentence on the ledger of a release, and on the guarantee of all its releases.

    Args:
        population: the name of the ledger's population.
        counts: the kind of debit of the release, a key of ``_COUNTED``.
        entry: the number of the ledger's entry, which "entry" shows.
        eps, delta: the budget, which is the guarantee of all releases together.
        unit: the unit that is protected, as ``unit`` describes it.
    """
    counted = _COUNTED[counts].format(entry)
    return (
        f"this release belongs to the ledger of {population} ({counted}). All releases of this "
        f"ledger, including this one, are together ({eps:g}, {delta:g})-differentially private, "
        f"where the unit that is protected is {unit}"
    )


def account_in_brief(
    population: str, entry: int, so_far: float, eps: float, delta: float, unit: str
) -> str:
    """Return what ``account`` and ``counter`` say as one sentence, for a terminal."""
    return (
        f"ledger of {population} after entry {entry}: eps = {so_far:.6g} of {eps:g} is spent. All "
        f"its releases together are ({eps:g}, {delta:g})-differentially private for {unit}"
    )


def counter(so_far: float, allowed: str) -> str:
    """Return the sentence on how much of a ledger's ``budget`` is spent."""
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
    ledgers = "another ledger, whose first entry has a hash that begins"
    if len(first_entries) > 1:
        ledgers = "other ledgers, whose first entries have hashes that begin"
    return (
        f"the same data are also counted by {ledgers} with {listed}. So the budget of this ledger "
        "does NOT bound everything that is released about these people: the privacy losses of all "
        "these ledgers add up"
    )


def unit(population_unit: str, tables: Sequence[UnitTable]) -> str:
    """Return the unit of protection of a budget, with the number of records that it may have.

    Args:
        population_unit: the population's name for a unit, for example "one customer".
        tables: the tables that the ledger counts.
    """
    # A dict instead of a set, so that the tables stay in their order.
    maxima = dict.fromkeys(
        (table.name, 1 if table.unit is None else table.rows) for table in tables
    )
    caps = sorted({rows for _, rows in maxima})
    if caps in ([], [1]):
        return population_unit
    if len(caps) == 1:
        maximum = caps[0]
        return f"{population_unit} (up to {maximum} records)"
    records_by_table = ", ".join(f"{rows} of the records in {name}" for name, rows in maxima)
    return f"{population_unit} (at most {records_by_table})"


def printable(text: str) -> str:
    """Return a name unchanged, or with escapes if it has characters that cannot be printed."""
    return text if text.isprintable() else ascii(text)


def unit_meaning(table: UnitTable, population_unit: str) -> str:
    """Return what one unit is in a table of a ledger.

    Args:
        table: the table.
        population_unit: the population's name for a unit.
    """
    if table.unit is not None:
        column = printable(table.unit)
        return (
            f"a unit is {population_unit}, and the records of one unit (up to {table.rows}) have "
            f"the same value in column {column}"
        )
    if population_unit == "one record":
        return "a unit is one record"
    return f"each record is {population_unit}"


def tables(population_unit: str, admitted: Sequence[UnitTable]) -> str:
    """Return a sentence with the declarations that a user makes by admitting tables to a ledger.

    It names no digest, because it becomes a part of claims, which are published.

    Args:
        population_unit: the population's name for a unit.
        admitted: the tables, at least one.
    """
    tables_by_unit = dict[tuple[str | None, int], dict[str, UnitTable]]()
    for table in admitted:
        unit_of_table = (table.unit, 1 if table.unit is None else table.rows)
        tables_by_unit.setdefault(unit_of_table, {})[table.name] = table
    meanings = list[str]()
    for tables_of_unit in tables_by_unit.values():
        names = ", ".join(tables_of_unit)
        subject = f"the table {names}"
        if len(tables_of_unit) > 1:
            subject = f"each of the tables {names}"
        meaning = unit_meaning(next(iter(tables_of_unit.values())), population_unit)
        meanings.append(f"in {subject}, {meaning}")
    sentence = f"declared, not checked: {'; '.join(meanings)}"
    if any(table.apart for table in admitted):
        sentence += (
            ". The people of this ledger are not those in the other ledgers of the same "
            "folder, although some names are the same"
        )
    if sum(map(len, tables_by_unit.values())) > 1:
        sentence += (
            ". The units of all these tables are the same people, so a release from one table "
            "uses the budget of all these tables"
        )
    return sentence


def lost_head(entry: int) -> str:
    """Return the sentence that a ledger's head file was lost."""
    return (
        f"entry {entry} created a new head file (which keeps a copy of the ledger's last entry), "
        "because the previous one was lost. Before this entry, an older copy of the ledger could "
        "have replaced the newest one unnoticed"
    )


def moved_head(entry: int, time: str, before: str | None) -> str:
    """Return the sentence that an entry moved the head file, or created the first one.

    Args:
        entry: the number of the entry.
        time: the time at which the entry was written.
        before: the place of the earlier head file; None: there was no earlier head file.
    """
    if before:
        return f"entry {entry} (of {time}) moved the head file from {before} to another place"
    return (
        f"entry {entry} (of {time}) created the first head file. Before this entry, no copy of "
        "the last entry was kept outside of the ledger"
    )


def unreadable_ledger(file: str) -> str:
    """Return what the user declared about a ledger's file that could not be opened."""
    name = printable(file)
    return (
        f"the file {name} in the ledger's folder, which could not be opened, does not count any "
        "releases about the people of this ledger, so nothing from this file is added to the "
        "total"
    )


def replaced_ledger(first_entry: str) -> str:
    """Return what the user declared about a ledger that this one replaced."""
    return (
        "this ledger replaced another one, whose first entry has a hash that begins with "
        f"{first_entry}. The total here does not include the replaced ledger's releases, although "
        "the privacy losses of both ledgers add up"
    )


def declared_entry(entry: int, words: str) -> str:
    """Return the sentence that an entry of a ledger declares something."""
    return f"entry {entry} declares that {words}"
