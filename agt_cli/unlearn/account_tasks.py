"""What the owner still has to do after an erasure, from the fields of its account."""

from collections.abc import Iterator, Sequence

from agt.errors import few
from agt.unlearning.sentences import Remark
from agt_cli.unlearn.account import Earlier, ErasureReport, Place, TraceSearch

SEARCHABLE_BY_IDS = (
    "searched_in_part",
    "named_by_other_columns",
    "key_missing",
    "index_not_readable",
    "index_missing",
    "folder_not_listed",
)
"""Codes of remarks on runs that were not searched, in which a file of ids may find the records."""


def open_tasks(account: ErasureReport, folders: Sequence[str]) -> list[str]:
    """Return what the owner still has to do about the erased records, in this order.

    Args:
        account: the report of the erasure.
        folders: the folders of records that were searched, as a command line names them, in the
            order of the account's places.
    """
    if not account.updated:
        return ["carry the pending requests out: agt unlearn run=... (without ids=...)"]
    ids_note = ""
    if account.state.entry > 1:
        ids_note = " (FILE also needs the ids of earlier requests that this run still has)"
    tasks = list[str]()
    for place, folder in zip(account.places, folders, strict=False):
        tasks += _tasks_in_other_runs(place, folder, ids_note)
    if tasks:
        tasks.append(
            "when the other runs are done, write this account again, because it describes them as "
            f"they were: agt unlearn run=... (the path of {account.state.run}, without ids=...)"
        )
    if account.sweep is not None:
        tasks += _tasks_in_own_data(account.sweep)
    tasks += _tasks_about_answers(account.earlier)
    if account.sweep is not None and _has_file_of_ids(account.sweep):
        tasks.append("last, delete the file of ids")
    return tasks


def _tasks_in_own_data(search: TraceSearch) -> Iterator[str]:
    """Yield that rows are to be deleted, if the run's own data has rows of the erased people.

    Args:
        search: the search for erased records.
    """
    kinds = {"rows_in_own_data": "training records", "test_rows_in_own_data": "test records"}
    counts = [
        f"{remark.values['rows']} {kinds[remark.code]}"
        for remark in search.unlooked
        if remark.code in kinds
    ]
    if counts:
        yield (
            f"delete the rows of {' and '.join(counts)} from the data's files, but only after "
            "every other run is done, because agt finds records in other runs by these rows"
        )


def _tasks_about_answers(earlier: Sequence[Earlier]) -> Iterator[str]:
    """Yield what is to be decided and searched about earlier results of the run.

    Args:
        earlier: the results that were made from earlier states.
    """
    codes = {remark.code for result in earlier for remark in result.reasons}
    if "weights_stand" in codes:
        yield (
            "decide whether released weights that were trained on the erased records go on being "
            "used (section Answers given earlier)"
        )
    if earlier:
        yield (
            "search files of earlier answers, exports and settings for the ids, for example with "
            "grep -rlwFf IDS outputs ledgers conf"
        )


def _has_file_of_ids(search: TraceSearch) -> bool:
    """Return whether the ids of the request came from a file, which still exists."""
    return any(remark.code == "file_of_ids" for remark in search.unlooked)


def _tasks_in_other_runs(place: Place, folder: str, ids_note: str) -> Iterator[str]:
    """Yield what is to be done in the other runs of one place, with the command.

    Args:
        place: the folder that was searched.
        folder: the folder, as a command line names it.
        ids_note: a note on the ids that a file for other runs needs; empty: those of the request.
    """
    runs = [f"{folder}/{run}" for run in runs_named_by(place, "trained_on_erased")]
    if len(runs) == 1:
        yield f"erase in the other run, too: agt unlearn run={runs[0]} ids=FILE{ids_note}"
    elif runs:
        listed = ",".join(runs)
        yield (
            f"erase in {len(runs)} other runs, too: agt unlearn -m run={listed} ids=FILE{ids_note}"
        )
    for run in runs_named_by(place, "learner_trained_on_erased"):
        yield (
            f"train {folder}/{run} again without the rows, and delete that folder, because agt "
            "cannot erase from a run with a learner of your own"
        )
    for run in runs_named_by(place, "training_unfinished"):
        yield (
            f"when the training in {folder}/{run} has ended (if it was stopped, resume it), erase "
            "there, too, or delete it"
        )
    for remark in place.remarks:
        if remark.code == "runs_gone":
            yield (
                f"make sure that {remark.values['runs']} folders of runs with traces, which are no "
                f"longer below {folder}, were deleted and not moved"
            )
        if remark.code == "named_by_content":
            yield from _retraining_tasks(remark, folder)
        if remark.code == "of_other_tables":
            tables = few(_names_in(remark, "tables"))
            other_runs = few(_names_in(remark, "runs"))
            yield (
                f"if the people of this request are also in {tables}: erase in the runs on that "
                f"data, too, with the ids that they have there ({other_runs} below {folder})"
            )
    unsearched = [run for code in SEARCHABLE_BY_IDS for run in runs_named_by(place, code)]
    if unsearched:
        yield (
            f"look after the runs below {folder} that were NOT SEARCHED ({few(unsearched)}): erase "
            "there, too, with a file of ids (agt unlearn run=RUN ids=FILE unknown=ignore does not "
            "need the rows; FILE needs the ids of the column that is dataset.id, or dataset.unit, "
            "in RUN/config.yaml), or train them again without the rows and delete the old folders"
        )


def _retraining_tasks(by_content: Remark, folder: str) -> Iterator[str]:
    """Yield what is to be done in each run whose data name records by their content.

    Args:
        by_content: the remark that names these runs.
        folder: the folder that was searched, as a command line names it.
    """
    settings = by_content.values["settings"]
    for run in _names_in(by_content, "runs"):
        yield (
            f"no id can be found in {folder}/{run}, because it names records by hashes of their "
            f"content (dataset.id=null): train it again with {settings} (its command is argv in "
            f"its env.json), erase in the new run, and delete {folder}/{run}"
        )


def runs_named_by(place: Place, code: str) -> tuple[str, ...]:
    """Return the runs that a remark on a searched folder lists; empty: there is no such remark.

    Args:
        place: the folder, which has at most one remark of each code.
        code: the code of the remark.
    """
    for remark in place.remarks:
        if remark.code == code:
            return _names_in(remark, "runs")
    return ()


def _names_in(remark: Remark, key: str) -> tuple[str, ...]:
    """Return the names that a value of a remark lists; empty: the value is no list of names."""
    names = remark.values.get(key)
    return names if isinstance(names, tuple) else ()
