"""Texts of errors, in which settings have the names that the reader uses.

A setting has two names, the command line's key (``training.lr``) and Python's argument (``lr``).
The code that raises an error knows the key; the code that shows it knows which name the user wrote.

    raise ConfigError(Message("{config:training.clip}={clip:g}: too large", clip=clip))
    with naming_settings(FIT_ARGUMENTS): ...        errors that leave it say clip=3: too large
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class SettingNames:
    """The names of settings in messages: here, the keys of the command line.

    Formatting it with a key gives the setting's name, so templates can name a setting by
    ``{config:training.lr}``.
    """

    def name(self, key: str) -> str:
        """Return the name, in messages, of the setting with this key of the command line."""
        return key

    def keys_in(self, group: str, field: str) -> list[str]:
        """Return the names that users write for a field of a group of settings; mostly one.

        Args:
            group: the key of the group, such as ``dataset``; empty: the field is in no group.
            field: its name in records.
        """
        return [field]

    def __format__(self, key: str) -> str:
        return self.name(key)


KEYS = SettingNames()


@dataclass(frozen=True)
class ArgumentNames(SettingNames):
    """The names of settings in Python.

    Attributes:
        arguments: key -> name. A key that ends in a point is a prefix: the name of every key that
            begins with it has the rest of the key in place of the braces, as in
            ``{"compute.": 'compute["{}"]'}``. Of several prefixes the longest is taken.
    """

    arguments: Mapping[str, str]

    def name(self, key: str) -> str:
        """Return the name of a setting in Python; a key without a name is returned unchanged."""
        if key in self.arguments:
            return self.arguments[key]
        prefixes = [name for name in self.arguments if name.endswith(".") and key.startswith(name)]
        if not prefixes:
            return key
        prefix = max(prefixes, key=len)
        return self.arguments[prefix].format(key.removeprefix(prefix))


@dataclass(frozen=True)
class Setting:
    """A setting among the values of a message.

    Attributes:
        key: its key on the command line.
    """

    key: str


class Message:
    """A text that names settings.

    Attributes:
        template: a template of ``str.format``, in which ``{config:training.lr}`` is a setting.
        values: the values of its other fields. If one is a ``Setting`` or a ``Message``, its text
            has the same names of settings.
    """

    def __init__(self, template: str, **values: Any) -> None:
        self.template = template
        self.values = values

    def text(self, names: SettingNames = KEYS) -> str:
        """Return the text, with the given names of settings."""
        values = {name: _to_text(value, names) for name, value in self.values.items()}
        return self.fill(values, names)

    def fill(self, values: Mapping[str, Any], names: SettingNames) -> str:
        """Return the template filled with values, and with the given names of settings."""
        return self.template.format(config=names, **values)

    def __str__(self) -> str:
        return self.text()


def _to_text(value: Any, names: SettingNames) -> Any:
    """Return the text of a setting or message, with the given names; another value unchanged."""
    if isinstance(value, Setting):
        return names.name(value.key)
    return value.text(names) if isinstance(value, Message) else value


def joined(texts: Iterable[str | Message], between: str) -> Message:
    """Return several texts as one message, with the text ``between`` two of them."""
    values = {f"part_{number}": text for number, text in enumerate(texts)}
    return Message(between.join(f"{{{name}}}" for name in values), **values)
