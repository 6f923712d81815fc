"""Compare numbers of metrics.json with the settings and tables that they repeat, by command.

Numbers of models, certificates, claims and accounts are compared where those are checked. What
nothing has compared is named at the end (``Record.note_uncompared_metrics``).
"""

from collections.abc import Callable
from io import BytesIO

import pandas as pd

from agt.models.portable import RELEASE
from agt.store.json_text import parse_json
from agt.store.reading import MAX_TEXT_BYTES
from agt_cli.report.scoring import ClassScoring, NumberScoring
from agt_cli.unlearn.person_md import FIELDS
from agt_cli.verify.folders import Record
from agt_cli.verify.pages import CERTIFICATES, certificate_columns, read_certificates

CANDIDATES = "tables/candidates.csv"
COMPARISON = "tables/comparison.csv"
BASELINES = {scoring.keys[0]: scoring.baseline_metric for scoring in (ClassScoring, NumberScoring)}
"""Score of a comparison -> the metric that has it of a constant answer, which is the last row."""
PEOPLE_COUNTS = ("same", "changed", "not_shown")
"""Entries of each person in person.json, whose sums are the metrics answers_same, ..."""


def check_repeated_numbers(record: Record, trained: Record | None) -> str | None:
    """Compare numbers of metrics.json that only one command writes.

    Args:
        record: any record.
        trained: what it was made from: a training run, or released weights; None: it was not
            found.

    Returns:
        A sentence; None: the command has no such numbers.

    Raises:
        Broken: metrics.json has another number than the file that it repeats.
    """
    compare = BY_COMMAND.get(record.command)
    if compare is None:
        return None
    before = set(record.compared)
    compare(record, trained)
    names = ", ".join(sorted(record.compared - before))
    return f"{names} in metrics.json match other files" if names else None


def _compare_plan(record: Record, trained: Record | None) -> None:
    """Compare the list of mechanisms, if the settings name them."""
    mechanisms = record.config.get("mechanisms")
    if mechanisms:
        record.check_metrics("config.yaml", mechanisms=", ".join(mechanisms))


def _compare_tuning(record: Record, trained: Record | None) -> None:
    """Compare the number of candidates, and the scores of the chosen one."""
    table = _read_table(record, CANDIDATES)
    chosen = table.to_dict("records")[int(record.metrics["chosen"])]
    numbers = {str(name): float(chosen[name]) for name in chosen if f"{name}_se" in chosen}
    record.check_metrics(CANDIDATES, candidates=len(table), **numbers)


def _compare_start(record: Record, trained: Record | None) -> None:
    """Compare the scores of the trained model, which is the first row of the comparison."""
    table = _read_table(record, COMPARISON)
    model, *others = table.to_dict("records")
    score, *further = [name for name in model if name not in ("name", "low", "high")]
    numbers = {f"test_{score}": float(model[score])}
    for end in ("low", "high"):
        numbers[f"test_{score}_{end}"] = float(model[end])
    for name in further:
        if pd.notna(model[name]):
            numbers[f"test_{name}"] = float(model[name])
    for other in others:
        name = f"{score}_{other['name']}"
        if other is others[-1]:
            name = BASELINES[str(score)]
        elif pd.isna(other["low"]):  # what weights are expected to score has no interval
            name = f"{score}_published_weights"
        numbers[name] = float(other[score])
    record.check_metrics(COMPARISON, **numbers)


def _compare_certification(record: Record, trained: Record | None) -> None:
    """Compare how many answers are deferred, and the counts of person.json."""
    if "answer" in certificate_columns(record):
        answers = read_certificates(record, ["answer"])["answer"]
        answered = int((answers == "given").sum())
        abstained = len(answers) - answered
        record.check_metrics(CERTIFICATES, answered=answered, abstained=abstained)
    if record.holds(FIELDS):
        people = parse_json(record.read(FIELDS), FIELDS)
        counts = {
            f"answers_{name}": sum(person[name] for person in people) for name in PEOPLE_COUNTS
        }
        record.check_metrics(FIELDS, people=len(people), **counts)


def _compare_released_answers(record: Record, trained: Record | None) -> None:
    """Compare answers of released weights with the guarantee and noise of these weights."""
    if not record.config.get("release"):
        return
    record.check_metrics("released weights", proved=1, simulated=0)
    if trained is not None and trained.holds(RELEASE):
        record.check_metrics(RELEASE, **trained.json(RELEASE)["noise"])


BY_COMMAND: dict[str, Callable[[Record, Record | None], None]] = {
    "plan": _compare_plan,
    "tune": _compare_tuning,
    "start": _compare_start,
    "certify": _compare_certification,
    "predict": _compare_released_answers,
}
"""By command: compares numbers of its metrics.json, given the record and what it was made from."""


def _read_table(record: Record, name: str) -> pd.DataFrame:
    """Return a csv table of a record."""
    return pd.read_csv(BytesIO(record.read(name, MAX_TEXT_BYTES)))
