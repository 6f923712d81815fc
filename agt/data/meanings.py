"""What the columns of a file are taken to mean, as facts: who proved or declared each of them."""

import numpy as np

from agt.data.ids import counts_rows
from agt.facts import Fact, declared, not_held, proved


def id_facts(
    id: str | None,
    ids: np.ndarray,
    unit: str | None,
    units: np.ndarray | None,
    public: str | None,
    permanent: bool,
) -> tuple[Fact, ...]:
    """Condition b, as far as the names of records and people go.

    An id that counts rows is no id: where a record goes, others are renamed, and move to other
    batches. Ids that look like row numbers (``counts_rows``) are not taken on trust unless they are
    declared permanent. (That look depends on the records; ``permanent`` settles it whatever they
    are.)

    Args:
        id, unit, public: the columns that the configuration names, None where it names none.
        ids, units: [n] str, their values in the order of the file.
        permanent: dataset.id_permanent, the declaration that ids are never given anew.
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
    if not permanent and counts_rows(names):
        return not_held("column_counts_rows", column=column, setting=setting)
    return declared(code, column=column, setting=setting)


def label_free_facts(label_free: bool, given: bool) -> tuple[Fact, ...]:
    """Condition b under relation=flip, the only one that takes such ids (agt/problem.py); nothing
    where they are not asked for.

    Args:
        given: ids, units, public flags or a split came with the records.
    """
    if not label_free:
        return ()
    if given:
        return (declared("given_names_free_of_labels"),)
    return (proved("names_made_from_features"),)


def split_fact(test_fraction: float, key: str) -> Fact:
    """Condition b for a split that is drawn by hash."""
    return proved("split_by_hash", key=key, test_fraction=test_fraction)


def label_range_fact(low: float, high: float, setting: str) -> Fact:
    """Return the fact for condition e that the range of numeric labels is a public constant.

    Args:
        low, high: the ends of the range.
        setting: the setting that declares it, for the sentence.
    """
    return declared("label_range_public", low=low, high=high, setting=setting)


def classes_fact(listed: bool) -> Fact:
    """Condition e for a list of classes in dataset.classes, which was ``listed`` there or found
    in the data.
    """
    if not listed:
        return not_held("classes_found", setting="dataset.classes")
    return declared("classes_public", setting="dataset.classes")
