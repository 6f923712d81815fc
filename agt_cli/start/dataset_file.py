"""The dataset file of ``agt start``: its name, whether it may be replaced, and what is written."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.data.settings import CLASSES
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import AgtError, ConfigError
from agt.settings import validate
from agt.store.atomic import write_atomic
from agt_cli.report.console import Console
from agt_cli.report.scoring import scoring_of
from agt_cli.runs.dataset_file import dataset_yaml, from_data
from agt_cli.runs.inspect import Inspection
from agt_cli.runs.inspect_settings import InspectSettings
from agt_cli.start.constants import group_of
from agt_cli.start.settings import NONE, StartSettings
from agt_cli.table_settings import training_rows

_SIZE = re.compile(r"^declared_size: \d.*$|(, |(?<=\[))declared_size(?=\]$)", re.MULTILINE)
"""The line of a declared size, and its name at the end of ``proposed_from_rows``.

Where no size was declared, a size is a further declaration.
"""


_WRITTEN_BY_START = "# Written by agt start, unedited if the hash of all that follows is "
"""The beginning of the first line of a file that ``agt start`` wrote."""
_DIGITS = 16  # of this hash


def with_own_name(settings: StartSettings, console: Console) -> StartSettings:
    """Return settings whose dataset file is not the one of another label.

    A second label of the same table gets a file of its own, named by the table and the label. It is
    said, once.

    Raises:
        ConfigError: one of agt's own data sets has that name.
    """
    if settings.name or settings.force or settings.label is None:
        return settings
    label = _existing(settings).get("label")
    if label is None or str(label) == settings.label:
        return settings
    named = replace(settings, name=f"{settings.dataset}_{settings.label}")
    named.check_name()
    console.warn(
        f"{settings.dataset_file} predicts '{label}', so the data set of '{settings.label}' is "
        f"called {named.dataset}."
    )
    return named


def check_may_be_asked(settings: StartSettings, inspection: Inspection) -> None:
    """Raise ConfigError, before anything is asked, if the answers could not be written.

    They can be where there is no dataset file, or one that ``agt start`` or ``agt data inspect``
    wrote and nobody edited.
    """
    if settings.force or not settings.dataset_file.exists():
        return
    if not _is_unedited(settings, _existing(settings)):
        raise _refusal(settings, inspection)


def write_dataset_file(settings: StartSettings, inspection: Inspection, console: Console) -> None:
    """Write the dataset's file, in which what was said of the table, and nothing else, is public.

    A file with the same content but for the size is updated, and one that ``agt start`` or ``agt
    data inspect`` wrote and nobody edited is replaced.

    Raises:
        ConfigError: there is such a file, with other content.
    """
    file = settings.dataset_file
    text = _declared_text(settings, inspection)
    signed = _signed(text)
    if not file.exists() or settings.force:
        write_atomic(file, signed.encode())
        return
    before = file.read_text(encoding="utf-8")
    if _content(before) == text:
        return
    if _SIZE.sub("", _content(before)) == _SIZE.sub("", text):
        size = settings.declared_size(inspection)
        console.warn(f"{file}: declared_size is now {size}; nothing else was changed.")
    elif not _is_unedited(settings, _existing(settings)):
        raise _refusal(settings, inspection)
    write_atomic(file, signed.encode())


def _signed(text: str) -> str:
    """Return the text of a dataset file below a line by which an edit is recognised."""
    return f"{_WRITTEN_BY_START}{_hash_of(text)}\n{text}"


def _content(text: str) -> str:
    """Return the text of a dataset file without the line that ``agt start`` puts above it."""
    first, _, rest = text.partition("\n")
    return rest if first.startswith(_WRITTEN_BY_START) else text


def _hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:_DIGITS]


def _declared_text(settings: StartSettings, inspection: Inspection) -> str:
    """Return what the dataset file says by these answers."""
    private = settings.private_groups
    declared = {column.name for column in inspection.features if group_of(column) not in private}
    if "classes" not in private:
        declared.add(CLASSES)
    return dataset_yaml(
        inspection,
        settings.dataset,
        undeclared=[name for name in from_data(inspection) if name not in declared],
        table_rows=settings.table_rows(inspection),
        unit_rows=settings.unit_rows,
        id_permanent=settings.id_permanent is True,
        id_is_answered=settings.id == NONE,
        size_is_proposed=settings.proposed_size(inspection) is not None,
    )


def _existing(settings: StartSettings) -> Mapping[str, Any]:
    """Return what the dataset file says; empty if there is none, or if it cannot be read."""
    try:
        content = yaml.safe_load(settings.dataset_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_unedited(settings: StartSettings, existing: Mapping[str, Any]) -> bool:
    """Return whether the dataset file is as ``agt start`` or ``agt data inspect`` wrote it.

    Args:
        existing: what the file says.
    """
    text = settings.dataset_file.read_text(encoding="utf-8")
    if text == _signed(_content(text)):
        return True
    given = {name: getattr(settings, name) for name in InspectSettings.__dataclass_fields__}
    given |= {key: existing.get(key) for key in ("label", "id", "target", "range")}
    try:
        chosen: InspectSettings = validate(InspectSettings, given, "")
        expected = dataset_yaml(chosen.inspect(), settings.dataset)
    except AgtError:  # the file is about columns that the table does not have
        return False
    return text == expected


def _target_in(existing: Mapping[str, Any]) -> Target | None:
    """Return what labels are by a dataset file; None: it does not say so."""
    if existing.get("range"):
        return NumericTarget.declared(existing["range"])
    classes = existing.get("classes")
    return ClassTarget(tuple(map(str, classes))) if isinstance(classes, list) else None


def _refusal(settings: StartSettings, inspection: Inspection) -> ConfigError:
    """Return that the dataset file must not be replaced, with the lines that go on from here."""
    existing = _existing(settings)
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
    start = settings.line(inspection.path)
    return ConfigError(
        f"{settings.dataset_file} already exists and may contain your declarations: to train with "
        f"this file as it is, type `{training}`; to overwrite it by new answers, `{start} "
        f"force=true`; for another file beside it, `{start} name={settings.dataset}_2`"
    )
