"""The public constants of a dataset file that ``agt start`` proposes, and writes as declared."""

from collections.abc import Sequence

from agt.data.settings import CLASSES
from agt.errors import counted, few
from agt.store.atomic import write_atomic
from agt_cli.report.start_md import ProposedConstant, ProposedConstants
from agt_cli.runs.dataset_file import dataset_yaml, from_data
from agt_cli.runs.inspect import Column, Inspection
from agt_cli.start.settings import StartSettings


def write_dataset_file(
    settings: StartSettings, inspection: Inspection, certificate: Sequence[str]
) -> None:
    """Write the dataset's file, in which what was said of the table, and nothing else, is public.

    Args:
        settings: the answers.
        inspection: what the table holds.
        certificate: the words of ``agt train`` that choose the certificate.

    Raises:
        ConfigError: there is such a file, with other content.
    """
    mine = {
        column.name
        for column in inspection.features
        if _group(column) not in settings.private_groups
    }
    mine |= set() if "classes" in settings.private_groups else {CLASSES}
    read_off = from_data(inspection)
    text = dataset_yaml(
        inspection,
        settings.dataset,
        unsaid=[name for name in read_off if name not in mine],
        size=settings.declared_size(inspection),
        unit_rows=settings.unit_rows,
        id_permanent=settings.id_permanent is True,
    )
    if (
        not settings.dataset_file.exists()
        or settings.dataset_file.read_text(encoding="utf-8") != text
    ):
        settings.check_dataset_file(certificate)
        write_atomic(settings.dataset_file, text.encode())


def proposed_constants(settings: StartSettings, inspection: Inspection) -> ProposedConstants:
    """Return which public constants of a dataset file are as agt proposed them from the rows."""
    private = settings.private_groups
    proposed = []
    for column in inspection.features:
        if column.public or _group(column) in private:
            continue
        words = range_words(column) if column.numeric else _list_words(column.categorical)
        is_date = column.kind == "date" and bool(column.numeric)
        proposed.append(ProposedConstant(column.name, words, is_date))
    if inspection.classes and "classes" not in private:
        proposed.append(ProposedConstant(CLASSES, _list_words(inspection.classes)))
    total = len(inspection.features) + bool(inspection.classes)
    # A size that its owner gave was not computed from the rows.
    size = None if settings.size else settings.declared_size(inspection)
    return ProposedConstants(settings.dataset_file, tuple(proposed), total, size)


def _list_words(values: Sequence[str]) -> str:
    """Return how long a list of values is, and the first of them."""
    return f"{counted(len(values), 'value')} ({few(values, 4)})"


def range_words(column: Column) -> str:
    low = column.bound(column.numeric[0])
    high = column.bound(column.numeric[-1])
    return f"{low} to {high}"


def _group(column: Column) -> str:
    return "ranges" if column.numeric else "lists"
