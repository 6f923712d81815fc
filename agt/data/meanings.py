"""What the columns of a file are taken to mean, as facts: who proved or declared each of them."""

import numpy as np

from agt.data.ids import counts_rows
from agt.facts import Fact, declared, proved, void

_RENAMED = "an id is a row number, or is given anew when another record comes or goes"


def id_facts(
    id: str | None,
    ids: np.ndarray,
    unit: str | None,
    units: np.ndarray | None,
    public: str | None,
    permanent: bool,
) -> tuple[Fact, ...]:
    """Condition b, as far as the names of records and people go.

    An id that counts rows is no id: where a record goes, others are renamed, and move to other batches. Ids that look like
    row numbers (``counts_rows``) are not taken on trust unless they are declared permanent. (That look depends on the
    records; ``permanent`` settles it whatever they are.)

    Args:
        id, unit, public: the columns that the configuration names, None where it names none.
        ids, units: [n] str, their values in the order of the file.
        permanent: dataset.id_permanent, the declaration that ids are never given anew.
    """
    facts = [_names_fact("dataset.id", id, ids, permanent, "names each record")]
    if unit is not None and units is not None:
        facts.append(_names_fact("dataset.unit", unit, units, permanent, "says whose record it is"))
    if public is not None:
        facts.append(public_fact(f"the records that column '{public}' marks are public (dataset.public)"))
    return tuple(facts)


def _names_fact(setting: str, column: str | None, names: np.ndarray, permanent: bool, says: str) -> Fact:
    if column is None:
        return proved("each record's id is a hash of its own content")
    if permanent:
        return declared(f"column '{column}' {says}, for good ({setting}, dataset.id_permanent=true)", _RENAMED)
    if counts_rows(names):
        return void(
            f"column '{column}' ({setting}) counts rows, as its whole numbers fill a tenth of their range or more: where a "
            "record goes, others would be renamed and move to other batches; leave it out (ids are then hashes of "
            "content), or, if a record keeps its id whatever becomes of others, declare that with dataset.id_permanent=true"
        )
    return declared(f"column '{column}' {says} ({setting})", _RENAMED)


def label_free_facts(label_free: bool, given: bool) -> tuple[Fact, ...]:
    """Condition b under relation=flip, the only one that takes such ids (agt/problem.py); nothing
    where they are not asked for.

    Args:
        given: ids, units, public flags or a split came with the records.
    """
    if not label_free:
        return ()
    if given:
        words = "the ids, units, public flags and split that came with the records tell nothing of labels"
        return (
            declared(words, "one was made from labels: a hash of the whole row, a split with the same share of each class"),
        )
    return (proved("ids and split are made from features alone, and copies are numbered in the order of the rows"),)


def public_fact(says: str) -> Fact:
    """Condition b for records that somebody marked public."""
    return declared(says, "a marked record is somebody's private one, or is marked because of others")


def features_fact(says: str) -> Fact:
    """Condition b for features that come with the data: where they came from, code cannot see."""
    return declared(
        says,
        "something fitted on the records took part in them: a mean, a scale, a rank, components, an encoder",
    )


def split_fact(given: str | None, test_fraction: float, key: str) -> Fact:
    """Condition b for a split that is given with each record, or drawn by hash.

    Args:
        given: in words, what gives it; None: the hash.
    """
    if given is not None:
        return declared(
            f"{given} says which records are for testing, each on its own",
            "that was drawn from the whole set (by place, by rank, by count), so that one record more would move others",
        )
    return proved(
        f"a record is in the test set if a hash of its unit's id, under the public key '{key}', falls below "
        f"{test_fraction:g}: adding or removing another record moves nobody"
    )


def classes_fact(listed: bool, setting: str = "dataset.classes", found: str = "the data") -> Fact:
    """Condition e for the list of classes.

    Args:
        setting: the one that lists them.
        found: where they were found if none does.
    """
    if not listed:
        return void(f"the list of classes was found in {found}: give the public list in {setting}")
    return declared(f"the list of classes is public ({setting})", "it was read off the records")


def size_fact(source: str) -> Fact:
    """Condition c for a size or normaliser that the configuration states."""
    return declared(
        f"{source} is a public constant",
        "it was counted from the records (as when it is just their number): one more would change it, and every step",
    )
