"""Say what is wrong with settings, in agt's words instead of pydantic's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from agt.errors import ConfigError, counted, nearest
from agt.messages import KEYS, Message, Setting, SettingNames
from agt.parameters import nearest_name

UNKNOWN_KEY = "unexpected_keyword_argument"
"""Pydantic's type of an error about a key that does not exist."""
_LIMITS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
"""Pydantic's name of a limit on a number -> the words that a message has before it."""
_PROBLEMS = {  # pydantic's type of an error -> a sentence that users understand
    "tuple_type": "expected a list such as [1, 2]",
    "path_type": "expected a path",
    "dataclass_type": "expected a mapping of settings (key: value)",
    "mapping_type": "expected a mapping",
    "string_type": "expected text",
    "int_parsing": "expected a whole number, without thousands separators",
    "int_from_float": "expected a whole number",
    "int_type": "expected a whole number",
    "float_parsing": "expected a number, without thousands separators",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
}


def refuse_other_than_numbers(cls: Any, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if a program gives true, false or text for a number.

    In configurations text is allowed, because YAML and the command line write numbers as text.

    Args:
        cls: the class of settings.
        settings: its settings by name, unknown ones too.
    """
    for key, value in settings.items():
        entry = cls.__dataclass_fields__.get(key)
        if entry is None or not is_number_type(entry.type):
            continue
        is_text = isinstance(value, str | bytes)
        is_allowed_word = isinstance(value, str) and value in _words_of(entry.type)
        # NumPy has a type of its own for true and false.
        is_boolean = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
        if is_boolean or (is_text and not is_allowed_word):
            raise ConfigError(f"{cls.__name__}.{key}: expected a number, got {show_value(value)}")


def is_number_type(kind: Any) -> bool:
    """Return whether a type is of numbers, perhaps in a union with None and literal words."""
    if get_origin(kind) is Annotated:
        return is_number_type(get_args(kind)[0])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        members = [member for member in get_args(kind) if member is not NoneType]
        members = [member for member in members if get_origin(member) is not Literal]
        return bool(members) and all(map(is_number_type, members))
    return kind in (int, float)


def _words_of(kind: Any) -> set[Any]:
    """Return the literal words that a union type allows instead of a number, such as ``recipe``."""
    words: set[Any] = set()
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        for member in get_args(kind):
            if get_origin(member) is Literal:
                words.update(get_args(member))
    return words


def refuse_booleans(cls: Any, node: Mapping[Any, Any], where: str) -> None:
    """Raise ConfigError for true, false or an empty path where it would pass as another value.

    Python takes true and false as the numbers 1 and 0, and an empty path as the working directory.

    Args:
        cls: the class of settings.
        node: its settings by name, and those of the groups inside of it.
        where: the key of the group, for messages.
    """
    for key, value in node.items():
        entry = getattr(cls, "__dataclass_fields__", {}).get(key)
        if entry is None:
            continue
        kind = str(entry.type)
        path = f"{where}.{key}" if where else str(key)
        if value == "" and "Path" in kind:
            raise ConfigError(f"{path}= is empty: give a path, or leave it out")
        takes_numbers = ("int" in kind or "float" in kind) and "bool" not in kind
        if takes_numbers and isinstance(value, bool):
            shown = str(value).lower()
            raise ConfigError(
                Message(
                    "{setting}: expected a number, got {shown}", setting=Setting(path), shown=shown
                )
            )
        if isinstance(value, Mapping) and hasattr(entry.type, "__dataclass_fields__"):
            refuse_booleans(entry.type, value, path)


def show_value(value: object) -> str:
    """Return a value as a message shows it, cut where it would fill a screen.

    A number of NumPy is shown as Python's own: 1 instead of np.int64(1).
    """
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()  # type: ignore[attr-defined]
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number with thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def explain_mistakes(cls: Any, error: ValidationError, where: str) -> Message:
    """Return a message about the first of the mistakes that pydantic found.

    Args:
        cls: the class of settings.
        error: pydantic's error.
        where: the key of the settings; empty: the mapping of all keys.
    """
    errors = error.errors()
    # An unknown key comes first, because it may be the reason why another key is missing.
    first = next((entry for entry in errors if entry["type"] == UNKNOWN_KEY), errors[0])
    keys = [where, *(str(part) for part in first["loc"] if _is_key(part))]
    path = ".".join(filter(None, keys)) or "settings"
    problem = _problem_of(cls, first, path)
    template = "{setting}: {problem}"
    is_one_value = isinstance(first.get("input"), int | float | str)
    value = _proposed_entries(first.get("input"))
    mistake = ""
    if first["type"] == "tuple_type" and is_one_value and ".." not in str(first["input"]):
        template = "{setting}: {problem}: give {setting}=[{value}]"
        mistake = _mistake_in_entry(cls, first["loc"], value)
    if mistake:  # the list would be refused as well
        template = "{setting}: {problem}, and each entry {mistake}"
    return Message(template, setting=Setting(path), problem=problem, value=value, mistake=mistake)


def _mistake_in_entry(cls: Any, loc: tuple[int | str, ...], entry: object) -> str:
    """Return what is wrong with a value as the only entry of a list, in words; empty: nothing.

    Args:
        cls: the class of settings.
        loc: pydantic's location of the list.
        entry: the value.
    """
    group = _group_at(cls, loc)
    field = group.__dataclass_fields__.get(loc[-1])
    if field is None or entry == "":
        return ""
    try:
        TypeAdapter(field.type).validate_python((entry,))
    except ValidationError as error:
        return _plain_words(error.errors()[0])
    return ""


def _proposed_entries(value: object) -> object:
    """Return the entries of the list that a message proposes instead of a single value.

    100k and 2M become whole numbers, and no or none becomes nothing (an empty list).
    """
    if isinstance(value, str) and value.casefold() in ("no", "none"):
        return ""
    written = re.fullmatch(r"(\d+)([kM])", value) if isinstance(value, str) else None
    if written is None:
        return value
    digits, unit = written.groups()
    return int(digits) * {"k": 10**3, "M": 10**6}[unit]


class _UnknownKey(Message):
    """A message that a group of settings has no such key, with the keys that it has.

    Args:
        path: the key with those of its groups, of which the last part is unknown.
        fields: the names of the group's settings.
    """

    def __init__(self, path: str, fields: Sequence[str]) -> None:
        super().__init__("unknown key")
        self.group, _, self.key = path.rpartition(".")
        self.fields = fields

    def text(self, names: SettingNames = KEYS) -> str:
        known: list[str] = []
        for field in self.fields:
            known += names.keys_in(self.group, field)
        return f"{self.template}{nearest_name(self.key, known)}"


def _problem_of(cls: Any, entry: Mapping[str, Any], path: str) -> str | Message:
    """Return a clause of a message about the mistake in one value.

    Args:
        cls: the class of settings.
        entry: pydantic's description of the mistake.
        path: the key of the value.
    """
    kind = entry["type"]
    value = entry.get("input")
    if kind == "missing":
        return _missing_value(str(entry["loc"][-1]), value)
    if kind == UNKNOWN_KEY:
        return _UnknownKey(path, _setting_names(cls, entry["loc"]))
    if kind == "literal_error":
        choices = entry["ctx"]["expected"].replace(" or ", ", ").split(",")
        known = [choice.strip("' ") for choice in choices]
        return f"unknown value '{value}'{nearest(str(value), known)}"
    shown = show_value(value)
    if kind == "tuple_type" and isinstance(value, int | float | str):
        return f"expected a list, got {shown}"
    # A class's own check raised an error, whose message may name settings.
    own_error = entry.get("ctx", {}).get("error")
    own_text = own_error.args[0] if isinstance(own_error, ValueError) and own_error.args else None
    own_message = own_text if isinstance(own_text, Message) else None
    problem = own_message or _PROBLEMS.get(kind) or _plain_words(entry)
    if isinstance(value, dict) or "ArgsKwargs" in shown:
        return problem
    return Message("{problem}, got {shown}", problem=problem, shown=shown)


def _missing_value(name: str, given: object) -> str:
    """Return a clause of a message about a setting without a value.

    Args:
        name: the setting.
        given: pydantic's input. If values were given by position, it is an ``ArgsKwargs`` with
            them.
    """
    positional = given.args if isinstance(given, ArgsKwargs) else ()
    if not positional:
        return "this setting is required: give a value"
    if len(positional) > 1:
        return "settings are given by name: write NAME=VALUE for each value"
    return f"this setting is given by name: write {name}={show_value(positional[0])}"


def _plain_words(entry: Mapping[str, Any]) -> str:
    """Return a clause about the mistake in a value, in agt's words instead of pydantic's.

    Args:
        entry: pydantic's description of the mistake.
    """
    context = entry.get("ctx", {})
    if entry["type"] == "too_short":
        return f"needs at least {counted(context['min_length'], 'entry', 'entries')}"
    for key, limit in context.items():
        if key in _LIMITS and isinstance(limit, int | float):
            shown = str(limit) if isinstance(limit, int) else f"{limit:.15g}"
            return f"must be {_LIMITS[key]} {shown}"
    sentence: str = entry["msg"].removeprefix("Value error, ")
    return sentence.replace("Input should be", "must be").replace("String should", "must")


def _is_key(part: int | str) -> bool:
    """Return whether a part of pydantic's location is a key or the index of a list's entry.

    Others are pydantic's names for members of a union (``constrained-int``, ``literal['auto']``).
    """
    if isinstance(part, int):
        return True
    return part.isidentifier() and part not in ("int", "float", "str", "bool")


def _setting_names(cls: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the names of the settings in the group that an unknown key was given in.

    Args:
        cls: the class of all settings.
        loc: pydantic's location of the key, from the outermost group on.
    """
    return [entry.name for entry in fields(_group_at(cls, loc))]  # without class variables


def _group_at(cls: Any, loc: tuple[int | str, ...]) -> Any:
    """Return the class of the group of settings that a key was given in.

    Args:
        cls: the class of all settings.
        loc: pydantic's location of the key, from the outermost group on.
    """
    for part in loc[:-1]:
        # Other parts are indices of a list, or tags of a union.
        if part in cls.__dataclass_fields__:
            cls = _settings_in(cls.__dataclass_fields__[part].type)
    return cls


def _settings_in(kind: Any) -> Any:
    """Return the settings class that a type is, or is a list or mapping of; None: it has none."""
    # The arguments of Annotated are values, which may be instances of dataclasses of pydantic.
    if isinstance(kind, type) and is_dataclass(kind):
        return kind
    return next(filter(None, map(_settings_in, get_args(kind))), None)
