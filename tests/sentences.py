"""Sentences of ours that may be shown, joined and written, and that raise where our own code
reads them back.
"""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from agt.mechanisms import claims
from agt.models.portable import Portable

ROOMS: tuple[tuple[str, tuple[str, ...] | None], ...] = (
    ("agt.sentences", None),
    ("agt.fact_sentences", ("rows", "declaration", "declared")),
    ("agt.unlearning.sentences", ("sentences",)),
    ("agt_cli.unlearn.account_md", ("headline", "guarantee_text", "_requested", "_earlier_counts")),
    ("agt_cli.unlearn.account_md", ("_describe_search", "account_lines", "exception_lines")),
    ("agt_cli.unlearn.account_tasks", ("open_tasks",)),
    ("agt_cli.report.markdown", ("document",)),
    ("agt_cli.report.sections_md", ("ball", "within", "guarantee", "unmet", "median_words")),
    ("agt_cli.report.training_md", ("caution_words",)),
    ("agt_cli.report.plan_words", ("verdict", "finding", "advice")),
    ("agt_cli.report.quality", ("rate_words",)),
    ("agt_cli.report.release_md", ("predict_report", "publish_headline", "publish_section")),
    ("agt_cli.report.training_md", ("train_report",)),
    ("agt_cli.report.certification_md", ("certify_report",)),
    ("agt_audit.page", ("page",)),
    ("agt_cli.start.plan", ("ways",)),
)
"""(module, names of its templates; None: all that it defines): whatever they make must not be
read back.
"""
PROPERTIES = (
    ("agt.unlearning.sentences", "Remark", "sentence"),
    ("agt_cli.report.quality", "Quality", "verdict"),
    *(("agt.facts", "Fact", name) for name in ("sentence", "broken_by", "declaration", "words")),
    *(("agt.facts", "Evidence", name) for name in ("why", "missing")),
    ("agt_cli.report.findings", "Audit", "verdict"),
)
"""(module, class, name) of properties that are templates."""
OURS = ("agt", "agt_cli", "agt_audit", "experiments")
RENDERERS = (
    "agt_cli.report.markdown",
    "agt_cli.report.tables",
    "agt_cli.report.drawing",
    "agt_cli.report.console",
    "agt_cli.report.page",
    "agt_cli.report.figures",
    "agt.ledger.chain",
)
"""They lay text out or write it, whatever it says: escape it, wrap it, cut it, refuse half a
character.
"""
READING = (
    *("__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *(
        "replace",
        "startswith",
        "endswith",
        "partition",
        "rpartition",
        "removesuffix",
        "removeprefix",
    ),
    *(
        "split",
        "rsplit",
        "splitlines",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "__getitem__",
        "__iter__",
    ),
)
PATTERNS = ("search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")


NOTES = "GUARD_NOTES"
"""The environment's name of a file to which every reading is noted as well."""


class ReadBack(AssertionError):
    """Our own code read a sentence of ours."""


def caller_reads(depth: int) -> bool:
    """Return whether a frame is of our code, and lays no text out.

    Args: depth: 1: who called the function that asks.
    """
    name = str(sys._getframe(depth + 1).f_globals.get("__name__"))
    return name.partition(".")[0] in OURS and not name.startswith(RENDERERS)


def _refusing(method: str) -> Callable[..., Any]:
    plain = getattr(str, method)

    def read(self: "Sentence", *given: Any) -> Any:
        if caller_reads(1):
            _refuse(method, self)
        return plain(self, *given)

    return read


def _refuse(how: str, sentence: str) -> NoReturn:
    said = f"{how} of a sentence: {str.__str__(sentence)[:200]}"
    if NOTES in os.environ:  # whoever catches every exception would hide it
        places = [
            f"{frame.filename}:{frame.lineno}"
            for frame in traceback.extract_stack()
            if _is_ours(frame.filename)
        ]
        with open(os.environ[NOTES], "a", encoding="utf-8") as file:
            file.write(f"{said}\n    {' '.join(places[-4:])}\n")
    raise ReadBack(said)


def _is_ours(file: str) -> bool:
    """Return whether a file of code lies in one of our packages."""
    return bool(set(OURS) & set(Path(file).parts))


class Sentence(str):
    """What a template made."""

    __hash__ = str.__hash__


for name in READING:
    setattr(Sentence, name, _refusing(name))


def guarded(value: Any) -> Any:
    """A text as a ``Sentence``, and those in a list, a tuple, a mapping's values or what is
    iterated once.
    """
    if isinstance(value, str):
        return Sentence(value)
    if isinstance(value, dict):
        return {key: guarded(item) for key, item in value.items()}
    if isinstance(value, Iterator):
        return map(guarded, value)
    if isinstance(value, list | tuple):
        return type(value)(map(guarded, value))
    return value


class GuardedPattern:
    """A compiled pattern that does not look into sentences."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._pattern = pattern

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pattern, name)
        if name not in PATTERNS:
            return found

        def look(*given: Any, **named: Any) -> Any:
            if caller_reads(1) and (read := [text for text in given if isinstance(text, Sentence)]):
                _refuse(f"pattern {self._pattern.pattern!r}", read[0])
            return found(*given, **named)

        return look


def guard(
    monkeypatch: pytest.MonkeyPatch, rooms: tuple[tuple[str, tuple[str, ...] | None], ...] = ROOMS
) -> None:
    """Make what templates give a ``Sentence``, and so the words of claims and releases that are
    read from files.
    """
    for module, names in rooms:
        _guard_room(monkeypatch, importlib.import_module(module), names)
    for module, owner, name in PROPERTIES:
        _guard_property(monkeypatch, getattr(importlib.import_module(module), owner), name)
    _guard_files(monkeypatch)
    for name in PATTERNS:
        monkeypatch.setattr(re, name, _guarded_function(name, getattr(re, name)))
    for module in [found for name, found in sys.modules.items() if name.partition(".")[0] in OURS]:
        for name, value in list(vars(module).items()):
            if isinstance(value, re.Pattern):
                monkeypatch.setattr(module, name, GuardedPattern(value))


def _guard_room(
    monkeypatch: pytest.MonkeyPatch, room: ModuleType, names: tuple[str, ...] | None
) -> None:
    for name, value in list(vars(room).items()):
        chosen = name in names if names is not None else not name.startswith("_")
        if chosen and isinstance(value, str | tuple):
            monkeypatch.setattr(room, name, guarded(value))
        elif (
            chosen
            and callable(value)
            and getattr(value, "__module__", "") == room.__name__
            and not isinstance(value, type)
        ):
            _replace_everywhere(monkeypatch, value, _guarded_template(value))


def _replace_everywhere(monkeypatch: pytest.MonkeyPatch, old: object, new: object) -> None:
    """Put a template's replacement into every module of ours that imported it by name, too."""
    for module in [found for name, found in sys.modules.items() if name.partition(".")[0] in OURS]:
        for name, value in list(vars(module).items()):
            if value is old:
                monkeypatch.setattr(module, name, new)


def _guard_property(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    known = vars(owner)[name]
    template = getattr(known, "fget", None) or known.func  # of a property, or of one that is kept
    monkeypatch.setattr(owner, name, property(_guarded_template(template)))


def _guarded_template(template: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(template)
    def made(*given: Any, **named: Any) -> Any:
        return guarded(template(*given, **named))

    return made


def _guarded_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def look(*given: Any, **named: Any) -> Any:
        if caller_reads(1) and (read := [text for text in given if isinstance(text, Sentence)]):
            _refuse(f"re.{name}", read[0])
        return function(*given, **named)

    return look


def _guard_files(monkeypatch: pytest.MonkeyPatch) -> None:
    # type: ignore[attr-defined]
    read_claim = claims.read_claim
    read_portable = Portable.read.__func__

    def guarded_claim(content: bytes) -> claims.Claim:
        claim = read_claim(content)
        for name in ("words", "outside"):
            object.__setattr__(claim, name, guarded(getattr(claim, name)))
        return claim

    def guarded_portable(cls: type[Portable], shelf: Any) -> Portable:
        portable: Portable = read_portable(cls, shelf)
        for name in ("words", "brief"):
            object.__setattr__(portable, name, guarded(getattr(portable, name)))
        return portable

    for module in [found for name, found in sys.modules.items() if name.partition(".")[0] in OURS]:
        if getattr(module, "read_claim", None) is read_claim:
            monkeypatch.setattr(module, "read_claim", guarded_claim)
    monkeypatch.setattr(Portable, "read", classmethod(guarded_portable))
