"""Facts about the columns of a file, for the conditions of a privacy claim (agt/facts.py)."""

import numpy as np

from agt.data.ids import resemble_row_numbers
from agt.facts import Fact, declared, not_held, proved


def id_facts(
    id: str | None,
    ids: np.ndarray,
    unit: str | None,
    units: np.ndarray | None,
    public: str | None,
    permanent: bool,
) -> tuple[Fact, ...]:
    """Return the facts about the ids of records and of units (a record's person, for example).

    They are evidence for condition b of a privacy guarantee: each record is processed by itself.
    A number that counts rows is no id: when a record is removed, others get new numbers, and so
    new batches. So ids that look like row numbers (``resemble_row_numbers``) do not meet the
    condition unless they are declared permanent. (Whether ids look so depends on private records;
    with ``permanent`` the facts do not depend on them.)

    Args:
        id, unit, public: the names of columns in the configuration; None: the configuration names
            no such column.
        ids, units: [n] str, the values of these columns in the order of the file.
        permanent: dataset.id_permanent, the declaration that no id is ever given to another record.
    """
    facts = [proved("ids_by_content")]
    if id is not None:
        code = "column_names_records_for_good" if permanent else "column_names_records"
        facts = [_names_fact(code, "dataset.id", id, ids, permanent)]
    if unit is not None and units is not None:
        code = "column_names_units_for_good" if permanent else "column_names_units"
        facts.append(_names_fact(code, "dataset.unit", unit, units, permanent))
    if public is not None:
        facts.append(declared("column_marks_public", column=public, setting="dataset.public"))
    return tuple(facts)


def _names_fact(code: str, setting: str, column: str, names: np.ndarray, permanent: bool) -> Fact:
    """Return the declared fact of a column of names, or that the names look like row numbers."""
    if not permanent and resemble_row_numbers(names):
        return not_held("column_counts_rows", column=column, setting=setting)
    return declared(code, column=column, setting=setting)


def label_free_facts(label_free: bool, has_columns: bool) -> tuple[Fact, ...]:
    """Return the fact that ids and units were made without labels; empty: the fact is not needed.

    Under relation=flip, condition b (each record is processed by itself) needs it.

    Args:
        label_free: whether the relation needs ids and units made without labels; False: the result
            is empty.
        has_columns: whether ids, units, public flags or a split were given with the records.
    """
    if not label_free:
        return ()
    if has_columns:
        return (declared("given_names_free_of_labels"),)
    return (proved("names_made_from_features"),)


def split_fact(test_fraction: float, key: str) -> Fact:
    """Return the fact that a keyed hash of each id decides whether it is a test record.

    It is evidence for condition b of a privacy guarantee: each record is processed by itself.
    """
    return proved("split_by_hash", key=key, test_fraction=test_fraction)


def label_range_fact(low: float, high: float, setting: str) -> Fact:
    """Return the fact that the range of numeric labels is a public constant.

    Condition e of a privacy guarantee (preprocessing and settings are public) needs it.

    Args:
        low, high: the ends of the range.
        setting: the setting that declares it, for the sentence.
    """
    return declared("label_range_public", low=low, high=high, setting=setting)


def classes_fact(listed: bool) -> Fact:
    """Return the fact that classes are a public list, or that they were read off the data.

    Condition e of a privacy guarantee (preprocessing and settings are public) needs a public list.

    Args:
        listed: whether ``dataset.classes`` lists them.
    """
    if not listed:
        return not_held("classes_found", setting="dataset.classes")
    return declared("classes_public", setting="dataset.classes")
