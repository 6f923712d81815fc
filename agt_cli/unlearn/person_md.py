"""The page about the answers of a run without one person's records, and its fields."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from agt.data.records import Records
from agt.errors import counted
from agt.unlearning.influence import Outcome
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, document, escape_markdown, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.unlearn.person import PersonAnswers

MAX_ROWS_SHOWN = 100  # of the table of changed answers
FIELDS = "person.json"
TITLES = ("person", "training records", "test records", "same", "changed", "not shown")
METHODS = {
    "nothing": "the person has no training record, so training did not use the person's data",
    "members": (
        "the members of the ensemble that had used the person's records were trained again "
        "without these records; all other members are the same"
    ),
    "newton": (
        "the answers without the person were computed by one Newton step from the trained "
        "weights; a proved bound limits how far the result is from that of training again"
    ),
    "retraining": "the model was trained again without the person's records",
}
PRIVATE = (
    "These answers depend on private records, so do not publish them. They are not evidence "
    "for a release, because a release must be based on the run's certificates."
)


def person_fields(
    comparisons: Sequence[PersonAnswers],
    queries: Records,
    classes: Sequence[str],
    answers: np.ndarray,
) -> list[dict[str, Any]]:
    """Return how the answers change without each person's records, as person.json has it.

    Args:
        comparisons: for each person, the answers with and without that person's records.
        queries: the queries.
        classes: the names of the classes.
        answers: [n] the run's labels of the queries.
    """
    fields = []
    for comparison in comparisons:
        changed = []
        changes = comparison.influence.outcomes == Outcome.CHANGED
        for row in np.flatnonzero(changes).tolist():
            without = classes[comparison.influence.labels[row]]
            query = {"row": row, "id": str(queries.ids[row])}
            changed.append({**query, "answer": classes[answers[row]], "without": without})
        fields.append(
            {
                "person": comparison.person.name,
                "training_records": len(comparison.person.rows),
                "test_records": comparison.person.tested,
                **comparison.counts,
                "method": comparison.influence.method,
                "retrained": comparison.influence.retrained,
                "changed_queries": changed,
            }
        )
    return fields


def person_metrics(comparisons: Sequence[PersonAnswers]) -> dict[str, int]:
    """Return how many answers stay the same, change or are not shown, summed over all people."""
    totals = Counter[str]()
    for comparison in comparisons:
        totals.update(comparison.counts)
    sums = {f"answers_{name}": total for name, total in totals.items()}
    return {"people": len(comparisons), **sums}


def print_people(comparisons: Sequence[PersonAnswers], record: RunRecord, console: Console) -> None:
    """Print how the answers change without each person's records, and who may read that."""
    console.table("answers without one person's records", TITLES, _rows(comparisons))
    for method in dict.fromkeys(comparison.influence.method for comparison in comparisons):
        console.say(f"how: {METHODS[method]}")
    console.say(f"{_reader(comparisons)}: {record.folder / 'person.html'}. {PRIVATE}")


def person_page(
    comparisons: Sequence[PersonAnswers],
    fields: Sequence[dict[str, Any]],
    dataset: str,
    queries: str,
) -> str:
    """Return the page about the answers without one person's records, in Markdown.

    Args:
        comparisons: for each person, the answers with and without that person's records; at least
            one.
        fields: ``person_fields`` of them.
        dataset: the name of the data.
        queries: which queries were answered, in words.
    """
    count = len(comparisons[0].influence.outcomes)
    methods = dict.fromkeys(comparison.influence.method for comparison in comparisons)
    remarks = []
    if len(comparisons) > 1:
        remarks.append(
            "Each answer is without the records of one person only, not without those of all these "
            "people together."
        )
    untrained = [
        comparison.person.name for comparison in comparisons if not len(comparison.person.rows)
    ]
    if untrained:
        names = ", ".join(untrained)
        remarks.append(f"All records of {names} are test records, which training did not use.")
    if any(comparison.counts["not_shown"] for comparison in comparisons):
        remarks.append(
            "'not shown' means that the Newton step could not decide whether the answer is the "
            "same, and that the model was not trained again to find out."
        )
    return document(
        f"# Answers without one person's records: {escape_markdown(dataset)}, {count:,} "
        f"{escape_markdown(queries)}",
        Markdown(f"**{_reader(comparisons)}.** {PRIVATE}"),
        "The answers were computed for two known data sets, with and without the person's "
        "records, while a certificate is a bound for all data sets. An answer counts as the "
        "same if training without these records, with the same settings, seeds and keys, gives "
        "the same answer.",
        markdown_table(TITLES, _rows(comparisons)),
        *([remark] for remark in remarks),
        "## How the answers without the person were computed",
        [METHODS[method] for method in methods],
        "## Changed answers",
        _changed_table(fields),
        f"`{FIELDS}` has all changed answers, and every number of this page. If the person asks "
        "to be erased, also delete this folder, because it contains the person's id.",
    )


def _reader(comparisons: Sequence[PersonAnswers]) -> str:
    """Return a clause on who may read the page."""
    if len(comparisons) > 1:
        return "This page is for the data owner only, because it is about several people"
    return (
        "This page is only for the data owner, and for the person without whose records the "
        "answers were computed"
    )


def _rows(comparisons: Sequence[PersonAnswers]) -> list[tuple[str, ...]]:
    """Return the rows of the table of people, with a cell for each of ``TITLES``."""
    rows = []
    for comparison in comparisons:
        records = (len(comparison.person.rows), comparison.person.tested)
        numbers = (*records, *comparison.counts.values())
        rows.append((comparison.person.name, *(f"{number:,}" for number in numbers)))
    return rows


def _changed_table(fields: Sequence[dict[str, Any]]) -> str:
    """Return the table of changed answers, or that there is none."""
    rows = []
    for person in fields:
        for query in person["changed_queries"]:
            cells = (person["person"], query["id"], query["answer"], query["without"])
            rows.append(cells)
    if not rows:
        return "No answer is known to change because of the erasure."
    table = markdown_table(("person", "query", "answer", "without"), rows[:MAX_ROWS_SHOWN])
    hidden = len(rows) - MAX_ROWS_SHOWN
    if hidden <= 0:
        return table
    return f"{table}\n\nNot in this table: {counted(hidden, 'changed answer')}."
