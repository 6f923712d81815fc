"""What an error says, and how it calls the settings that it names.

A setting has two names, the command line's key (``training.lr``) and Python's argument (``lr``).
Whoever raises an error knows the key; whoever shows it knows which of the two the reader gave.

    raise ConfigError(Message("{config:training.clip}={clip:g}: too large", clip=clip))
    with naming_settings(FIT_ARGUMENTS): ...        errors that leave it say clip=3: too large
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class SettingNames:
    """How settings are called: here by the command line's keys.

    Its format specification is a key, so that templates name a setting by ``{config:training.lr}``.
    """

    def name(self, key: str) -> str:
        """Return what the setting is called that the command line calls ``key``."""
        return key

    def keys_in(self, group: str, field: str) -> list[str]:
        """Return what a field of a group of settings is called within the group; mostly one name.

        Args:
            group: the key of the group, such as ``dataset``; empty: there is none.
            field: its name in records.
        """
        return [field]

    def __format__(self, key: str) -> str:
        return self.name(key)


KEYS = SettingNames()


@dataclass(frozen=True)
class ArgumentNames(SettingNames):
    """How settings are called in Python.

    Attributes:
        arguments: key -> name. A key that ends in a point stands for all that begin with it, whose
            rest its name takes in braces: ``{"compute.": 'compute["{}"]'}``. The longest counts.
    """

    arguments: Mapping[str, str]

    def name(self, key: str) -> str:
        if key in self.arguments:
            return self.arguments[key]
        groups = [
            group for group in self.arguments if group.endswith(".") and key.startswith(group)
        ]
        if not groups:
            return key
        group = max(groups, key=len)
        return self.arguments[group].format(key.removeprefix(group))


@dataclass(frozen=True)
class Setting:
    """A setting among the values of a message.

    Attributes:
        key: what the command line calls it.
    """

    key: str


class Message:
    """A text that names settings.

    Attributes:
        template: of ``str.format``; ``{config:training.lr}`` is a setting.
        values: of its other names. A ``Setting`` or a ``Message`` among them is said in the same
            names as the whole.
    """

    def __init__(self, template: str, **values: Any) -> None:
        self.template = template
        self.values = values

    def text(self, names: SettingNames = KEYS) -> str:
        """Return the text, its settings called by ``names``."""
        return self.fill({name: _said(value, names) for name, value in self.values.items()}, names)

    def fill(self, values: Mapping[str, Any], names: SettingNames) -> str:
        """Return the template with these values."""
        return self.template.format(config=names, **values)

    def __str__(self) -> str:
        return self.text()


def _said(value: Any, names: SettingNames) -> Any:
    """Return a value of a message as its template takes it."""
    if isinstance(value, Setting):
        return names.name(value.key)
    return value.text(names) if isinstance(value, Message) else value


def joined(texts: Iterable[str | Message], between: str) -> Message:
    """Return several texts as one message."""
    parts = {f"part_{number}": text for number, text in enumerate(texts)}
    return Message(between.join(f"{{{name}}}" for name in parts), **parts)
