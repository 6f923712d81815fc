"""Make a request to erase from ids: find the training records that they name, or refuse the ids.

The steps: blanks around ids are ignored; ids that name nobody are refused, or left out; so are ids
that were requested before, and records that cannot be erased; of identical records, the last are
taken; and enough records must remain.

Messages name lines of the file, and never an id, because messages are stored in records, and no
record may contain an erased id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agt.data.ids import CONTENT
from agt.errors import ConfigError, few
from agt_cli.command_settings.unlearn import By
from agt_cli.unlearn.copies import last_copies
from agt_cli.unlearn.hash_key import KeyKind, as_words
from agt_cli.unlearn.id_lookup import IdLookup, Match, RequestedId
from agt_cli.unlearn.ids_file import INPUT, ListedId
from agt_cli.unlearn.training_records import TrainingRecords

_COPIES = (
    "These ids are hashes of the content of records. Of several identical records, agt removes "
    "the last, and those that remain keep the ids of the first rows. So to erase an identical "
    "record of somebody else too, request the id of the first of the identical rows"
)
_COPIES_ERASED = (
    "some requested records are identical to others. agt cannot tell identical records "
    "apart, so it removes the last of them, and the others keep their ids"
)


@dataclass(frozen=True)
class Request:
    """Training records that are to be erased.

    Attributes:
        by: what the ids name: records, or units (people) with all of their records.
        records: keyed hashes of the ids of these records, in increasing order, hexadecimal
            (``RequestEntry.records``). Empty if no id names a training record.
        units: keyed hashes of the units of these records, in the same form.
        asked: how many different ids the file had.
        notes: sentences for the data owner, without ids.
        names: the ids as they were given, with which other runs are searched; they are never
            written to a file.
        untrained: how many of the people whom the ids name have test records only.
        test_records: how many test records the ids name.
        unknown: how many ids name no record of the data, and were left out
            (``unknown=ignore``).
    """

    by: By
    records: tuple[str, ...]
    units: tuple[str, ...]
    asked: int
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    untrained: int = 0
    test_records: int = 0
    unknown: int = 0


def request_for(
    known: TrainingRecords,
    ids: Sequence[ListedId],
    by: By | None = None,
    path: str = INPUT,
    may_be_unknown: bool = False,
) -> Request:
    """Return the request to erase the training records that some ids name.

    Args:
        known: the run's training records.
        ids: the ids, as ``read_ids`` returns them.
        by: what the ids name; None: units where the data has some, else records.
        path: the file that the ids came from, for messages.
        may_be_unknown: whether ids that name no record of the data are counted and left out;
            False: they are refused.

    Returns:
        The request. It names no training record if no id does.

    Raises:
        ConfigError: an id names no record, or its erasure was requested before; a requested record
            is public; or too few records would remain to train on.
    """
    lookup = IdLookup(known, by or known.by)
    ids_as_known = _without_outer_blanks(lookup, ids)
    distinct_ids = lookup.find(ids_as_known)
    requested = distinct_ids
    if may_be_unknown:
        requested = [each for each in distinct_ids if not lookup.may_be_ignored(each)]
    _check_not_requested_before(requested, path)
    _check_known(lookup, requested, path)
    _check_test_records(known, requested, path)
    named_rows = _rows_to_erase(known, requested, path)
    erased_rows = named_rows
    if not lookup.finds_units:
        erased_rows = last_copies(known, named_rows)
    if len(erased_rows):
        _check_enough_remain(known, erased_rows, path)
    records = tuple(sorted(known.index.words[row] for row in erased_rows.tolist()))
    units = records
    if known.index.units is not None:
        units = as_words(known.index.units[erased_rows])
    is_test = np.isin(lookup.test_names, [each.name for each in requested])
    notes = [*known.notes, *_notes(ids, ids_as_known, distinct_ids, requested, path)]
    if not np.array_equal(erased_rows, named_rows):
        notes.append(_COPIES_ERASED)
    return Request(
        by=lookup.by,
        records=records,
        units=units,
        asked=len(distinct_ids),
        notes=tuple(notes),
        # other runs may have any of them
        names=tuple(requested_id.name for requested_id in distinct_ids),
        untrained=_people_without(known, np.unique(known.data.test.units[is_test]), units),
        test_records=int(is_test.sum()),
        unknown=len(distinct_ids) - len(requested),
    )


def _without_outer_blanks(lookup: IdLookup, ids: Sequence[ListedId]) -> list[ListedId]:
    """Return ids without blanks at their ends, except those that the data has with the blanks.

    Args:
        lookup: finds ids in the data.
        ids: the ids, as they were read.
    """
    with_blanks = [listed for listed in ids if listed.name != listed.name.strip()]
    unknown = {each.name for each in lookup.find(with_blanks) if each.match == "unknown"}
    return [
        replace(listed, name=listed.name.strip()) if listed.name in unknown else listed
        for listed in ids
    ]


def _rows_to_erase(
    known: TrainingRecords, requested: Sequence[RequestedId], path: str
) -> np.ndarray:
    """Return the rows in the index of the requested records whose erasure is not pending yet.

    Args:
        known: the run's training records.
        requested: the ids of the request.
        path: the file that they came from, for the message.

    Raises:
        ConfigError: a requested record is public.
    """
    no_rows = np.empty(0, np.int64)
    named = np.concatenate([no_rows, *(requested_id.rows for requested_id in requested)])
    requested_rows = np.unique(named[~known.is_pending[named]])
    rows_in_data = known.data_rows[requested_rows]
    is_public = known.data.train.public[rows_in_data[rows_in_data >= 0]]
    public = int(is_public.sum())
    if public:
        raise ConfigError(
            f"ids={path}: {public} of the requested records are marked as public "
            "(dataset.public), but no method of erasure can remove public records. Train again "
            "without these records"
        )
    return requested_rows


def _people_without(known: TrainingRecords, people: np.ndarray, units: tuple[str, ...]) -> int:
    """Return how many of some people with test records are none of the units of a request.

    Args:
        known: the run's training records.
        people: the units of the test records that a request names.
        units: keyed hashes of the units of the training records that it names.
    """
    kind: KeyKind = "record" if known.index.units is None else "unit"
    hashes = as_words(known.key.names(people, kind))
    return len(set(hashes) - set(units))


def _notes(
    ids: Sequence[ListedId],
    ids_as_known: Sequence[ListedId],
    distinct_ids: Sequence[RequestedId],
    requested: Sequence[RequestedId],
    path: str,
) -> Iterator[str]:
    """Yield notes for the owner on ids that were left out or changed, and on test records.

    Args:
        ids: the ids, as they were read.
        ids_as_known: the same ids, without the blanks that were ignored.
        distinct_ids: the different ids.
        requested: those of them that were not left out, as ids of no record of the data.
        path: the file.
    """
    ignored = len(distinct_ids) - len(requested)
    if ignored:
        yield (
            f"ids={path}: {ignored} of {len(distinct_ids)} ids are not in the data of this run. "
            "They were left out, because unknown=ignore"
        )
    of_test = _describe_ids(requested, "test")
    if of_test:
        yield (
            f"ids={path}: {of_test} are ids of test records, which training did not use. These "
            "records are not part of this erasure. Delete their rows from the data yourself; the "
            "run does not need these rows"
        )
    repeated = len(ids) - len(distinct_ids)
    if repeated:
        yield (
            f"ids={path}: {repeated} of {len(ids)} lines repeat an earlier id; each id counts "
            "only once"
        )
    trimmed = sum(listed != known for listed, known in zip(ids, ids_as_known, strict=True))
    if trimmed:
        yield (
            f"ids={path}: blanks before or after {trimmed} of {len(ids)} ids were ignored, because "
            "no id in the data has such blanks"
        )


def _describe_ids(requested: Sequence[RequestedId], match: Match) -> str:
    """Return how many ids of a request have a match, and their places; empty: none has it."""
    places = [requested_id.place for requested_id in requested if requested_id.match == match]
    if not places:
        return ""
    return f"{len(places)} of {len(requested)} ids ({few(places)})"


def _check_not_requested_before(requested: Sequence[RequestedId], path: str) -> None:
    """Raise ConfigError if the erasure of an id was requested before.

    Args:
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    before = _describe_ids(requested, "asked")
    if not before:
        return
    # A record that is identical to an erased one may still be there.
    are_of_content = all(CONTENT.fullmatch(requested_id.name) for requested_id in requested)
    copies = f". {_COPIES}" if are_of_content else ""
    raise ConfigError(
        f"ids={path}: {before} were already requested: remove them from the file. If you "
        "only want the report of the last erasure again, type agt unlearn without ids=..., "
        f"which writes it when no request is pending{copies}"
    )


def _check_known(lookup: IdLookup, requested: Sequence[RequestedId], path: str) -> None:
    """Raise ConfigError if an id names no record of the data. The message says what may be meant.

    Args:
        lookup: what found the ids.
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    unknown = [requested_id for requested_id in requested if requested_id.match == "unknown"]
    if not unknown:
        return
    for requested_id in unknown:
        if lookup.is_header(requested_id.name):
            raise ConfigError(
                f"ids={path}: {requested_id.place} is the name of the column of ids: remove this "
                "line"
            )
        if lookup.is_quoted_id(requested_id.name):
            raise ConfigError(
                f"ids={path}: {requested_id.place} is an id in quotes, and the ids of the data "
                "have none: remove the quotes"
            )
        if lookup.lists_ids(requested_id.name):
            raise ConfigError(
                f"ids={path}: {requested_id.place} seems to list several ids: write one id per line"
            )
    kind = "record"
    by_other = "If these are ids of units (people), give by=unit"
    if lookup.by == "unit":
        kind = "unit"
        by_other = "If these are ids of records, give by=id"
    remedies = [
        "write the ids as they are in the data, or, if these people may be missing from this "
        "run, give unknown=ignore"
    ]
    # With unknown=ignore, only ids of another form come here (IdLookup.may_be_ignored).
    are_hashes = all(CONTENT.fullmatch(requested_id.name) for requested_id in requested)
    if lookup.is_named_by_content and not are_hashes:
        remedies = [
            "in this run, the id of a record is a hash of its content (dataset.id=null), 32 "
            "hexadecimal digits, so no other id can be found in it, also with unknown=ignore. "
            "To erase by the ids of a column, train again with dataset.id=COLUMN, erase in "
            "the new run, and delete the folder of this run"
        ]
    if lookup.known.index.units is not None:
        remedies.append(by_other)
    described = _describe_ids(requested, "unknown")
    raise ConfigError(
        f"ids={path}: {described} are not ids of a {kind} in the run's data: {'. '.join(remedies)}"
    )


def _check_test_records(
    known: TrainingRecords, requested: Sequence[RequestedId], path: str
) -> None:
    """Raise ConfigError for ids of test records that the model depends on.

    Args:
        known: the run's training records.
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    of_test = _describe_ids(requested, "test")
    if of_test and known.features_use_test:
        raise ConfigError(
            f"ids={path}: {of_test} are ids of test records, but the model depends on these "
            "records, because its features were computed from them "
            "(certificate.features.public=test): delete their rows and train again"
        )


def _check_enough_remain(known: TrainingRecords, erased_rows: np.ndarray, path: str) -> None:
    """Raise ConfigError if too few records would remain to train on: none, or only one class.

    Args:
        known: the run's training records.
        erased_rows: rows in the index of the records that are to be erased, besides pending ones.
        path: the file of ids, for the message.
    """
    is_erased = known.is_pending.copy()
    is_erased[erased_rows] = True
    # Both are in the order of the data; records that the data lacks are in neither.
    is_remaining = ~is_erased[known.index_rows]
    if not is_remaining.any():
        raise ConfigError(
            f"ids={path}: the file names every training record, so no data would be left to "
            "train on. Delete the run instead"
        )
    if known.data.target.numeric is not None:
        return  # a model of numbers needs no second class
    remaining_labels = np.unique(known.data.train.labels[is_remaining])
    if len(remaining_labels) == 1:
        remaining_class = known.data.classes[int(remaining_labels[0])]
        raise ConfigError(
            f"ids={path}: this erasure would remove the last training records of every class "
            f"except {remaining_class!r}, but a model needs two classes: train another model "
            "on other data, or delete the run"
        )
