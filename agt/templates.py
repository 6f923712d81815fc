"""Sentences made of a code and its values, by templates that name the values.

A record holds codes and values; a sentence is made where it is shown, and is never compared,
searched or stored. agt/fact_sentences.py has the templates of facts, agt/unlearning/sentences.py
those of removals.
"""

from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Context, Decimal
from string import Formatter
from typing import Any

from agt.errors import counted, few
from agt.messages import KEYS, SettingNames


def upward(number: float) -> str:
    """Return a finite bound with three digits, for a reader: never below it."""
    as_printed = Decimal(repr(float(number)))
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).plus(as_printed)):g}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


FORMATS: dict[str, Callable[[Any], str]] = {
    "upward": upward,
    "people": lambda count: counted(count, "person", "people"),
    "records": lambda count: counted(count, "record"),
    "more_columns": lambda count: counted(count, "more column"),
    "constants": lambda names: (
        f"{counted(len(names), 'range or list', 'ranges or lists')} ({few(names)})"
    ),
    "few": few,
    "listed": _listed,
}
"""How a value is written, beside what Python's own format specifications say."""


class _SentenceFormatter(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        formatter = FORMATS.get(format_spec)
        return super().format_field(value, format_spec) if formatter is None else formatter(value)


def fill(template: str, values: Mapping[str, Any], names: SettingNames = KEYS) -> str:
    """Return the sentence that a template makes of values.

    Args:
        template: a sentence with fields in braces; ``{config:training.lr}`` is a setting.
        values: the values of the template's other fields, by name.
        names: the names by which the sentence calls settings.
    """
    return _SentenceFormatter().vformat(template, (), {**values, "config": names})


def check_values(code: str, templates: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Check that a message has exactly the values that the templates of its code use.

    Raises:
        ValueError: a value is missing, unknown or of another type.
    """
    parts = [part for template in templates for part in Formatter().parse(template)]
    names = {name for _, name, _, _ in parts if name is not None} - {"config"}
    if names != values.keys():
        raise ValueError(
            f"{code}: this message needs the values {sorted(names)}, but got {sorted(values)}"
        )
    try:
        for template in templates:
            fill(template, values)  # called because it raises for a value of a wrong type
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"{code}: a value of this message has the wrong type ({error})") from None


def add_new(templates: Mapping[str, str], known: dict[str, str]) -> None:
    """Add templates of sentences to the known ones, whose codes must all differ.

    Raises:
        ValueError: there is a sentence of that code already.
    """
    if known_twice := templates.keys() & known.keys():
        raise ValueError(
            f"these codes already have templates: {sorted(known_twice)}. Give the new templates "
            "other codes"
        )
    known.update(templates)
