"""What the owner of a table should look at before trusting the result of ``agt start``."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from agt.data.dataset import Dataset
from agt.errors import counted
from agt.mechanisms.claims import weak_budget_warnings
from agt.models.model import Model
from agt_cli.report.quality import ModelQuality
from agt_cli.report.start_md import Comparison
from agt_cli.report.training_md import CHOICE_BY_RESULTS
from agt_cli.runs.dataset_file import COUNTS_ROWS, MIXED, PERMANENT, repeated_rows
from agt_cli.runs.inspection import Inspection
from agt_cli.start.settings import NONE, Answered, StartSettings

DECLARED_AT_START = "To say so to agt start, give id_permanent=true force=true."
SHOWN = 20  # columns of each group, in a question


def remarks_on(
    answered: Answered,
    dataset: Dataset,
    model: Model,
    quality: ModelQuality,
    compared: Comparison,
) -> list[str]:
    """Return remarks, a sentence each, on what to check before the result is trusted.

    Args:
        dataset: the dataset that the model was trained on.
        model: the trained model.
        quality: the scores of the model.
        compared: the scores of the model beside those of other models.
    """
    settings = answered.settings
    inspection = answered.inspection
    test = dataset.test
    answers = model.predict(test.features)
    remarks = [f"{line}." for line in weak_budget_warnings(settings.planned_eps)]
    remarks += [quality.verdict, quality.explanation]
    remarks.append(compared.scoring.warning(answers, test.labels))
    remarks += [
        warning.sentence for warning in inspection.warnings if warning.code == "label_outside_range"
    ]
    remarks.append(unlabelled_remark(inspection))
    remarks += left_out_remarks(inspection, settings.id_permanent is True)
    remarks.append(unlisted_remark(settings, inspection))
    remarks += dataset.notes
    remarks.append(size_remark(settings, inspection))
    remarks.append(leak_remark(settings, inspection))
    if "id" not in answered.asked:
        remarks += people_remarks(inspection)
    given = [remark for remark in remarks if remark]
    return [*given, f"{CHOICE_BY_RESULTS}."] if given else []


def unlabelled_remark(inspection: Inspection) -> str:
    """Return how many rows are left out because they have no label; empty: no row is."""
    if not inspection.unlabelled:
        return ""
    rows = counted(inspection.unlabelled, "row")
    return f"Left out for want of a label (missing_label=drop): {rows}. Claims will say so."


def people_remarks(inspection: Inspection) -> Iterator[str]:
    """Yield that a column may name people, some of whom have several rows, for each such column."""
    for column in inspection.possible_people:
        yield (
            f"'{column.name}' has the same value in up to {counted(column.most_rows, 'row')}: give "
            f"id={column.name} force=true if it names people."
        )


def left_out_remarks(inspection: Inspection, id_permanent: bool) -> Iterator[str]:
    """Yield remarks on columns that are not used as they were meant.

    They are about columns that a cell keeps from being used or from being numbers, about columns
    of ids that may be row numbers, and about words of which there are too many to list.

    Args:
        inspection: what the table holds.
        id_permanent: the owner declared that ids never pass to other people; then ids that may be
            row numbers are not named.
    """
    for warning in inspection.warnings:
        if warning.code in ("left_out", "taken_as_words"):
            yield warning.sentence
    for column in inspection.identifying_columns:
        if column.mixed:
            yield f"'{column.name}': {MIXED}."
        if column.resembles_row_numbers and not id_permanent:
            yield f"'{column.name}': {COUNTS_ROWS}. {DECLARED_AT_START}"
    asked_about = [column.name for column in inspection.possible_people]
    unlisted = [
        f"'{column.name}' ({column.distinct:,})"
        for column in inspection.left_out
        if column.kind == "text" and column.name not in asked_about
    ]
    if unlisted:
        yield (
            "These columns are LEFT OUT, because they have too many different values, or values "
            "that are too rare (number of different values in brackets): "
            f"{', '.join(unlisted)}. To take a column in, list its values under categorical once "
            "conf/dataset/NAME.yaml is written."
        )


def unused_remarks(inspection: Inspection) -> Iterator[str]:
    """Yield which columns are no features by themselves, if there are such columns: ids, columns of
    one value and empty ones. ``left_out_remarks`` names the others that are left out.
    """
    reasons = {"id": "ids or row numbers?", "constant": "one value", "empty": "no values"}
    unused = [
        f"'{column.name}' ({reasons[column.kind]})"
        for column in inspection.left_out
        if column.kind in reasons
    ]
    if unused:
        yield f"No features: {', '.join(unused)}."


def unlisted_remark(settings: StartSettings, inspection: Inspection) -> str:
    """Return how many values are in no proposed list; empty if all are.

    Numbers outside of a range are among the notes on the dataset.
    """
    rare = [word for column in inspection.features for word in column.unlisted]
    if not rare:
        return ""
    values = counted(len(rare), "rare value")
    cells = counted(sum(count for _, count in rare), "cell")
    return (
        f'{values} ({cells}) count as "other" (comments in {settings.dataset_file} say in which '
        "columns)."
    )


def size_remark(settings: StartSettings, inspection: Inspection) -> str:
    """Return what to ask the owner about a public size that may have been counted; else empty."""
    rows = inspection.rows + inspection.unlabelled
    if settings.size != rows or settings.size == inspection.rounded_rows:
        return ""
    return (
        f"size={settings.size} is exactly the number of rows of the file. It is public only if it "
        "is published, or fixed, whoever is in the table. Otherwise no privacy guarantee is true: "
        "give a round number that does not depend on the rows."
    )


def leak_remark(settings: StartSettings, inspection: Inspection) -> str:
    """Return which features may be known only after the label, and the command that leaves them
    out; empty: no feature may be.

    It also says what the choice costs: condition e of a claim holds as long as the choice does not
    depend on private records.
    """
    predictors = inspection.label_predictors
    if not predictors:
        return ""
    dropped = (*(settings.drop or ()), *predictors)
    command = replace(settings, drop=dropped).line(inspection.path)
    return (
        f"{predictors_sentence(predictors)}. If you know from its meaning that such a value is "
        "known only after the label, do not believe the accuracy, and leave the column out, which "
        f"costs no claim: {command} force=true. If you leave it out only because of this remark, "
        "the choice depends on private records, so condition e (public preprocessing and choices) "
        "of a private release is not met: then train with `agt train "
        f"dataset={settings.dataset} training.chosen_on=data`, which claims nothing private."
    )


def predictors_sentence(names: Sequence[str]) -> str:
    """Return a sentence, without its full stop, that columns predict nearly every label alone.

    Args:
        names: the names of the columns, at least one.
    """
    quoted_names = ", ".join(map(repr, names))
    if len(names) == 1:
        return f"Column {quoted_names} alone predicts nearly every label"
    return f"Each of the columns {quoted_names} alone predicts nearly every label"


def early_remarks(answered: Answered) -> Iterator[str]:
    """Yield remarks for the owner, a sentence each, that are shown before training."""
    settings = answered.settings
    inspection = answered.inspection
    if "public" not in answered.asked:  # its question shows these remarks
        yield from left_out_remarks(inspection, settings.id_permanent is True)
        yield from unused_remarks(inspection)
    private = ", ".join(settings.private_groups(inspection))
    if private and settings.purpose != "certificates":
        yield (
            f"Private answers need all of the table to be public, but public=... leaves out "
            f"{private}. So this run has none, and names the commands that measure the rest with "
            "noise. If all is public, stop (Ctrl-C) and give public=yes."
        )
    if "id" not in answered.asked:  # its question says the following
        if settings.id == NONE and inspection.repeated:
            yield f"id=none: {repeated_rows(inspection)}."
        if settings.id == NONE:
            yield from people_remarks(inspection)
        elif settings.id and settings.declares_permanent_ids(inspection):
            yield f"id={settings.id} declares: {PERMANENT}."
    leaks = leak_remark(settings, inspection)
    if settings.drop is None and leaks:
        yield leaks
    if settings.codes is None:
        for warning in inspection.warnings:
            if warning.code == "may_be_codes":
                yield warning.sentence


def declared_sentence(settings: StartSettings, inspection: Inspection) -> str:
    """Return a sentence on the values that are declared public, and what that allows."""
    groups = ", ".join(settings.private_groups(inspection))
    file = settings.dataset_file
    if not groups:
        return f"{file} lists what you declared public: read it before any release."
    return (
        "This run cannot give private answers, because these parts of the table were not "
        f"declared public: {groups}. Write public values into {file} and train again."
    )
