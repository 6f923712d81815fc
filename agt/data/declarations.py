"""What the columns of a file are taken to mean: declared by whoever names them, and what would make it false.

Code can hash an id; it cannot see where the id came from. So the meaning of an id, of a given split, of a public flag or of
a list of classes is a declaration, and is listed with every claim that rests on it (facts.py).
"""

import re

import numpy as np

from agt.facts import Fact, declared, proved, void

_ORDINAL = re.compile(r"(\D*)(\d{1,18})(\D*)")
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

    An id that counts rows is no id: where a record goes, all later ones are renamed, and move to other batches. Ids that
    are consecutive in the order of the file look exactly like that, and are not taken on trust unless declared permanent.
    (That look depends on the records; ``permanent`` settles it whatever they are.)

    Args:
        id, unit, public: the columns that the configuration names, None where it names none.
        ids, units: [n] str, their values in the order of the file.
        permanent: dataset.id_permanent, the declaration that ids are never given anew.
    """
    facts = [_names_fact("dataset.id", id, ids, permanent, "names each record")]
    if unit is not None and units is not None:
        facts.append(_names_fact("dataset.unit", unit, units, permanent, "says whose record it is"))
    if public is not None:
        facts.append(
            declared(
                f"the records that column '{public}' marks are public (dataset.public)",
                "a marked record is somebody's private one, or is marked because of others",
            )
        )
    return tuple(facts)


def _names_fact(setting: str, column: str | None, names: np.ndarray, permanent: bool, says: str) -> Fact:
    if column is None:
        return proved("each record's id is a hash of its own content")
    if permanent:
        return declared(f"column '{column}' {says}, for good ({setting}, dataset.id_permanent=true)", _RENAMED)
    if ordinal(names):
        return void(
            f"column '{column}' ({setting}) counts the rows of the file: a record that goes would rename all after it, and "
            "move them to other batches; leave it out (ids are then hashes of content), or, if a record keeps its id "
            "whatever becomes of others, declare that with dataset.id_permanent=true"
        )
    return declared(f"column '{column}' {says} ({setting})", _RENAMED)


def ordinal(names: np.ndarray) -> bool:
    """Whether names count in equal steps, up or down, such as p7, p8, p9 or 30, 20, 10; fewer than three say nothing."""
    if len(names) < 3 or (len(names) > 3 and not ordinal(names[:3])):
        return False
    matches = [_ORDINAL.fullmatch(name) for name in names.tolist()]
    if any(match is None for match in matches):
        return False
    around = {(match[1], match[3]) for match in matches if match}
    steps = set(np.diff([int(match[2]) for match in matches if match]).tolist())
    return len(around) == 1 and len(steps) == 1 and steps != {0}


def features_fact(which: str) -> Fact:
    """Condition b for features that come with a file: where they came from, code cannot see.

    Args:
        which: in words, the columns.
    """
    return declared(
        f"{which} were made from each record alone, by public constants",
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


def classes_fact(setting: str | None) -> Fact:
    """Condition e for the list of classes.

    Args:
        setting: the setting that lists them; None: they were found in the data.
    """
    if setting is None:
        return void("the list of classes was found in the data: give the public list in dataset.classes")
    return declared(f"the list of classes is public ({setting})", "it was read off the records")


def size_fact(source: str) -> Fact:
    """Condition c for a size or normaliser that the configuration states."""
    return declared(
        f"{source} is a public constant",
        "it was counted from the records (as when it is just their number): one more would change it, and every step",
    )
