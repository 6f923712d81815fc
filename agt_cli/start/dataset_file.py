"""The dataset file of ``agt start``: its name, whether it may be replaced, and what is written."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.data.settings import CLASSES
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import ConfigError
from agt.store.atomic import write_atomic
from agt_cli.report.console import Console
from agt_cli.report.scoring import scoring_of
from agt_cli.runs.dataset_file import (
    Declarations,
    PublicSize,
    dataset_yaml,
    from_data,
    is_unedited,
    signed,
)
from agt_cli.runs.inspection import Inspection
from agt_cli.start.constants import group_of
from agt_cli.start.settings import NONE, StartSettings
from agt_cli.table_settings import training_rows


def with_own_name(settings: StartSettings, console: Console) -> StartSettings:
    """Return settings whose dataset file is not the one of another label.

    A second label of the same table gets a file of its own, named by the table and the label, and
    the console says so.

    Raises:
        ConfigError: one of agt's own data sets has that name.
    """
    if settings.name or settings.force or settings.label is None:
        return settings
    label = _read_existing(settings).get("label")
    if label is None or str(label) == settings.label:
        return settings
    named = replace(settings, name=f"{settings.dataset}_{settings.label}")
    named.check_name()
    console.warn(
        f"{settings.dataset_file} predicts '{label}', so the data set of '{settings.label}' is "
        f"called {named.dataset}."
    )
    return named


def check_may_be_replaced(settings: StartSettings) -> None:
    """Raise ConfigError, before the table is read, if the dataset file must not be replaced.

    It may be where there is none, or where ``agt start`` or ``agt data inspect`` wrote it and
    nobody edited it.
    """
    file = settings.dataset_file
    if settings.force or not file.exists():
        return
    if not is_unedited(file.read_text(encoding="utf-8", errors="replace")):
        raise _refusal(settings)


def write_dataset_file(settings: StartSettings, inspection: Inspection) -> None:
    """Write the dataset file, in which nothing is public but what the answers declare public.

    Raises:
        ConfigError: there is such a file, and it was edited.
    """
    text = _text_by_answers(settings, inspection)
    # Again, because somebody may have edited the file while the questions were answered.
    check_may_be_replaced(settings)
    write_atomic(settings.dataset_file, signed(text, "start").encode())


def _text_by_answers(settings: StartSettings, inspection: Inspection) -> str:
    """Return the text of the dataset file that follows from the answers."""
    private = settings.private_groups(inspection)
    declared = {column.name for column in inspection.features if group_of(column) not in private}
    if "classes" not in private:
        declared.add(CLASSES)
    size = None
    rows = settings.table_rows(inspection)
    if rows is not None:
        size = PublicSize(rows, is_proposed=settings.proposed_size(inspection) is not None)
    declarations = Declarations(
        not_public=[name for name in from_data(inspection) if name not in declared],
        size=size,
        unit_rows=settings.unit_rows,
        has_permanent_ids=settings.declares_permanent_ids(inspection),
        each_row_is_a_person=settings.id == NONE,
    )
    return dataset_yaml(inspection, settings.dataset, declarations)


def _read_existing(settings: StartSettings) -> Mapping[str, Any]:
    """Return what the dataset file says; empty if there is none, or if it cannot be read."""
    try:
        content = yaml.safe_load(settings.dataset_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _target_in(existing: Mapping[str, Any]) -> Target | None:
    """Return what labels are by a dataset file; None: the file does not say so."""
    if existing.get("range"):
        return NumericTarget.declared(existing["range"])
    classes = existing.get("classes")
    return ClassTarget(tuple(map(str, classes))) if isinstance(classes, list) else None


def _refusal(settings: StartSettings) -> ConfigError:
    """Return the error that the dataset file must not be replaced, with what to type instead."""
    existing = _read_existing(settings)
    words = []
    if settings.size is not None:
        words.append(f"dataset.declared_size={training_rows(settings.size)}")
    target = _target_in(existing)
    if target is not None:
        has_size = existing.get("declared_size") is not None
        words += scoring_of(target).training_words(
            size_is_public=has_size or settings.size is not None, certificates_only=False
        )
    training = shlex.join(["agt", "train", f"dataset={settings.dataset}", *words])
    start = settings.line(settings.path)
    return ConfigError(
        f"{settings.dataset_file} already exists and may contain your declarations: to train with "
        f"this file as it is, type `{training}`; to overwrite it by new answers, `{start} "
        f"force=true`; for another file beside it, `{start} name={settings.dataset}_2`"
    )
