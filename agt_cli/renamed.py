"""Settings that have a new name: one table, read where a command line is read.

Inside agt, in records and in hashes, settings keep the names that they have had from the start
(``old``). Command lines and the user's files may use either name; agt's own files use the old one.
Help and messages show the new one (``with_new_name``).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agt.errors import ConfigError, nearest
from agt.messages import SettingNames
from agt.store.dotted_keys import flatten_keys

ABOUT_A_TABLE = ("start", "data")
"""Commands whose settings say how a csv is cut into cells, without a dataset around them."""
TRAINING = ("train", "tune", "measure", "reproduce")


@dataclass(frozen=True)
class RenamedSetting:
    """A setting with two names.

    Attributes:
        old: its name in records.
        new: its name for users.
        commands: the commands that have the setting; empty: all commands have it.
        values: a new name of a value -> its name in records.
        depends_on_certificate: True: which of the new names of ``old`` is right depends on the kind
            of certificate (``check_clip_name``).
    """

    old: str
    new: str
    commands: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    depends_on_certificate: bool = False


CLIP_OF_BOXES = "training.clip_elementwise"
CLIP_OF_OTHERS = "training.clip_derivative"
"""The names of the clip level with certificate=box, and with the others."""

RENAMED_SETTINGS = (
    RenamedSetting("accounting", "unproved", values={"refuse": "rigorous", "allow": "paper"}),
    RenamedSetting("lot", "reserve", ("predict",)),
    RenamedSetting("seed", "simulate", ("predict",)),
    RenamedSetting("total.leaks", "total.delta_share", ("ledger",)),
    RenamedSetting("training.decay", "training.lr_decay", TRAINING),
    RenamedSetting("training.decay_mode", "training.weight_decay_mode", TRAINING),
    RenamedSetting("training.clip", CLIP_OF_BOXES, TRAINING, depends_on_certificate=True),
    RenamedSetting("training.clip", CLIP_OF_OTHERS, TRAINING, depends_on_certificate=True),
    RenamedSetting("training.batch.key", "training.batch.hash_salt", TRAINING),
    RenamedSetting("ensemble.key", "ensemble.hash_salt", TRAINING),
    RenamedSetting("dataset.split_key", "dataset.split_salt", TRAINING),
    RenamedSetting("dataset.keep_key", "dataset.keep_salt", TRAINING),
    RenamedSetting("rehearse", "dry_run", ("unlearn",)),
    RenamedSetting("fresh", "new_seeds", ("unlearn",)),
    RenamedSetting("relation", "relation", values={"replace_one": "substitute"}),
    # one word of the field in two spellings, both of which are accepted everywhere
    RenamedSetting("noise.epsilon", "noise.eps"),
    RenamedSetting("total.eps", "total.epsilon"),
    RenamedSetting("mechanism.eps", "mechanism.epsilon"),
    RenamedSetting("certificate.eps", "certificate.epsilon"),
    RenamedSetting("eps", "epsilon"),
)

_SPELLINGS_OF_EPS = ("eps", "epsilon")


def with_old_names(command: str, words: Sequence[str]) -> list[str]:
    """Return a command line's words with the names that records have.

    Args:
        command: its name.
        words: KEY=VALUE; others stay unchanged.

    Raises:
        ConfigError: a new name has a value that does not exist.
    """
    entry_of_name = {
        entry.new: entry
        for entry in RENAMED_SETTINGS
        if not entry.commands or command in entry.commands
    }
    translated = []
    for word in words:
        typed = _split_setting(word)
        entry = entry_of_name.get(typed.key)
        if entry is None or not typed.equals:
            translated.append(word)
        else:
            values = _translated_values(entry, typed.value)
            translated.append(f"{typed.plus_signs}{entry.old}={values}")
    return translated


def with_old_names_in_file(path: Path, package: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a file in ./conf with the names that records have.

    Args:
        path: the file, for messages.
        package: the key under which Hydra puts its settings, such as ``training``; empty: none.
        settings: the settings as the file has them, in nested mappings.

    Raises:
        ConfigError: the file has a setting by both names; or by a name that depends on the
            certificate, which a file may be used with any of.
    """
    translated = deepcopy(settings)
    prefix = f"{package}." if package else ""
    for entry in RENAMED_SETTINGS:
        # names without a group are those of a command, which no file of the user has
        if "." not in entry.new or not entry.new.startswith(prefix):
            continue
        *groups, new_key = entry.new.removeprefix(prefix).split(".")
        parent: Any = translated
        for group in groups:
            parent = parent.get(group) if isinstance(parent, dict) else None
        if not isinstance(parent, dict) or new_key not in parent:
            continue
        old_key = entry.old.rpartition(".")[2]
        if entry.depends_on_certificate:
            raise ConfigError(
                f"{path}: {new_key}: in a file, which any certificate may use, this setting has "
                f"the name {old_key}"
            )
        _check_one_name(str(path), new_key, old_key, parent)
        parent[old_key] = parent.pop(new_key)
    return translated


def with_old_keys(command: str, settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the settings of a command from a file, with the names that records have.

    Args:
        command: its name.
        settings: the settings, each by its old or its new name.
        source: a name of the file that has the settings, for messages.

    Raises:
        ConfigError: there is a setting by both names.
    """
    translated = {}
    for key, value in settings.items():
        (word,) = with_old_names(command, [f"{key}="])
        old_key = word.removesuffix("=")
        if old_key != key:
            _check_one_name(source, key, old_key, settings)
        translated[old_key] = value
    return translated


def _check_one_name(source: str, new_key: str, old_key: str, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if settings have both names of one setting, of which one would be lost."""
    if old_key in settings:
        raise ConfigError(
            f"{source}: {new_key} and {old_key} are two names of the same setting: leave one of "
            "them out"
        )


def check_given_once(command: str, words: Sequence[str]) -> None:
    """Raise ConfigError if two words of a command line set the same setting, by either name.

    Hydra would take the last one. ``~KEY``, which removes a setting before another word adds it
    again, is not counted.

    Args:
        command: its name.
        words: the words that follow the command.
    """
    word_of: dict[str, str] = {}
    for word in words:
        (setting,) = with_old_names(command, [word])
        typed = _split_setting(setting)
        if not typed.equals or typed.key.startswith(("~", "-")):
            continue
        for key in _keys_with_values(typed):
            if key in word_of:
                raise ConfigError(
                    f"{word_of[key]} and {word} give two values for the same setting: leave one of "
                    "them out"
                )
            word_of[key] = word


def check_clip_name(words: Sequence[str], certificate: str, model: object) -> None:
    """Raise ConfigError if the clip level is given by the name that it has with other certificates.

    Nothing is refused here where the certificate does not take the model at all, because that is
    the mistake to name.

    Args:
        words: the words of the command line, as they were typed.
        certificate: the name of the kind of certificate.
        model: the value of the key ``model``.
    """
    # Imported only here, because it loads Python's parser.
    from agt_cli.networks import NETWORK_CERTIFICATE, is_network

    has_boxes = certificate == NETWORK_CERTIFICATE
    if not has_boxes and is_network(model):
        return
    right_name = CLIP_OF_OTHERS
    wrong_name = CLIP_OF_BOXES
    limited = "the derivative of the loss"
    not_limited = "each element of a gradient"
    if has_boxes:
        right_name, wrong_name = wrong_name, right_name
        limited, not_limited = not_limited, limited
    for word in words:
        typed = _split_setting(word)
        if typed.key == wrong_name:
            raise ConfigError(
                f"{word}: certificate={certificate} limits {limited}, and not {not_limited}: "
                f"type {right_name}={typed.value}"
            )


class _TypedSetting(NamedTuple):
    """A word of a command line in its parts, which are its text one after another.

    Attributes:
        plus_signs: the plus signs before the key; empty: there is no plus sign.
        key: the key; the rest of the word if it has no equals sign.
        equals: "=", or empty if there is none.
        value: the text after the equals sign.
    """

    plus_signs: str
    key: str
    equals: str
    value: str


def _split_setting(word: str) -> _TypedSetting:
    """Return the parts of a word of a command line."""
    key, equals, value = word.partition("=")
    without_plus = key.lstrip("+")
    plus_signs = key.removesuffix(without_plus)
    return _TypedSetting(plus_signs, without_plus, equals, value)


def _keys_with_values(typed: _TypedSetting) -> list[str]:
    """Return the keys to which a setting gives values: its own, and those inside a mapping.

    For example ``training={lr: 3}`` gives ``training`` and ``training.lr``.
    """
    keys = [typed.key]
    if typed.value.startswith("{"):
        # Imported only for mappings, because help and most mistakes need no Hydra.
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException

        # A mapping that cannot be read is answered when the configuration is composed.
        with suppress(HydraException):
            mapping = OverridesParser.create().parse_override(f"{typed.key}={typed.value}").value()
            if isinstance(mapping, dict):  # and no sweep of several
                keys += flatten_keys(mapping, f"{typed.key}.")
    return keys


def _translated_values(entry: RenamedSetting, value: str) -> str:
    """Return a value, or the values of a sweep, by the names of records.

    Raises:
        ConfigError: there is no such value, of a setting all of whose values have a new name.
    """
    words = value.split(",")
    known = {*entry.values, *entry.values.values()}
    unknown = [word for word in words if word not in known]
    if entry.values and entry.new != entry.old and unknown:
        hint = nearest(unknown[0], entry.values)
        raise ConfigError(f"{entry.new}: unknown value '{unknown[0]}'{hint}")
    return ",".join(entry.values.get(word, word) for word in words)


def with_new_name(command: str, setting: str) -> str:
    """Return a setting of a help page or message, KEY or KEY=VALUE, with its names for users.

    A key with several new names (training.clip, whose meaning depends on the certificate) stays as
    it is, and so does one whose new name is only another spelling of eps.

    Args:
        command: its name.
        setting: the setting, with the names that records have.
    """
    key, equals, value = setting.partition("=")
    entries = _shown_entries(command, key)
    if len(entries) != 1:
        return setting
    entry = entries[0]
    new_values = {old: new for new, old in entry.values.items()}
    return f"{entry.new}{equals}{new_values.get(value, value)}"


def _shown_entries(command: str, key: str) -> list[RenamedSetting]:
    """Return the entries whose new names messages show for a key of a command."""
    if key.rpartition(".")[2] in _SPELLINGS_OF_EPS:
        return []
    return [
        entry
        for entry in RENAMED_SETTINGS
        if entry.old == key and (not entry.commands or command in entry.commands)
    ]


def with_new_names(command: str, keys: Sequence[str]) -> list[str]:
    """Return keys by their names for users; one with several new names is there with each of them.

    Args:
        command: its name.
        keys: the keys, by their names in records.
    """
    user_names: list[str] = []
    for key in keys:
        new_names = [entry.new for entry in _shown_entries(command, key)]
        user_names += new_names or [key]
    return list(dict.fromkeys(user_names))


@dataclass(frozen=True)
class CommandNames(SettingNames):
    """How the messages of a command call settings: by their names for users.

    Attributes:
        command: its name.
    """

    command: str

    def name(self, key: str) -> str:
        if self.command in ABOUT_A_TABLE:
            key = key.removeprefix("dataset.csv.")
        return with_new_name(self.command, key)

    def keys_in(self, group: str, field: str) -> list[str]:
        keys = with_new_names(self.command, [f"{group}.{field}" if group else field])
        return [key.rpartition(".")[2] for key in keys]
