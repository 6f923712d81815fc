"""Errors a user can act on, each with the exit code the command ends with.

| error           | exit code | meaning                                             |
|-----------------|-----------|-----------------------------------------------------|
| AgtError        | 1         | failure                                             |
| ConfigError     | 2         | usage or configuration                              |
| CheckError      | 3         | a check was not met (audit violation, budget spent) |
| DataMissing     | 4         | data, or what is needed to read it, is not there    |

The message names the key or file and says what to do. The dispatcher prints it without a traceback.
In Python it names arguments instead (``naming_settings``).
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from agt.messages import Message, SettingNames


class AgtError(Exception):
    """A failure whose message is meant for the user.

    Attributes:
        message: the text; a ``Message`` if it names settings.
        heading: the heading of the error on the command line.
    """

    exit_code = 1
    heading = "error"

    def __init__(self, message: str | Message = "") -> None:
        super().__init__(str(message))
        self.message = message


@contextmanager
def naming_settings(names: SettingNames) -> Iterator[None]:
    """Rewrite the message of an AgtError that leaves the block, so that it fits its caller.

    Args:
        names: the names that settings have for this caller, such as arguments of ``agt.fit``.
    """
    try:
        yield
    except AgtError as error:
        if isinstance(error.message, Message):
            error.args = (error.message.text(names), *error.args[1:])
        raise


class ConfigError(AgtError):
    """The command line or the configuration is wrong."""

    exit_code = 2


class CheckError(AgtError):
    """The command ran, and a check it makes was not met.

    Attributes:
        result: the results that the command prints with --json although the check failed.
    """

    exit_code = 3

    def __init__(self, message: str | Message, result: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.result = dict(result or {})


class Superseded(ConfigError):
    """A file is in a form that an earlier version wrote, and that this version no longer reads."""


class Busy(AgtError):
    """Another process holds what is needed, so nothing was looked at and nothing was written."""


class DataMissing(AgtError):
    """Data that the run needs is not there; the message says how to get it."""

    exit_code = 4


class UnsoundError(AgtError):
    """A number that a guarantee needs is NaN, infinite, out of order or out of its proved range."""


class Doubtful(UserWarning):
    """A warning to the owner of data or a model that looks wrong; no guarantee depends on it."""


class PrivacySumWarning(UserWarning):
    """The warning about a second release on the same people, which no ledger counts."""


class PrivacySumError(AgtError):
    """The refusal of a second release about the same people; nothing was drawn.

    It is refused under ``agt.accounting("strict")`` and in a search over settings.
    """

    exit_code = 3


def warn_user(text: str, category: type[Warning]) -> None:
    """Issue a warning that names the line of the user's own code that led to it.

    Args:
        text: the text of the warning.
        category: the class of the warning.
    """
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level + 1)


def _is_between(module: str) -> bool:
    """Return whether a module is agt's, or one that calls agt on the user's behalf."""
    return module.partition(".")[0] in ("agt", "contextlib", "joblib", "sklearn")


class DataError(AgtError):
    """The data was found, but cannot be used."""

    exit_code = 2


class CsvFormatError(DataError):
    """A csv seems to have another encoding or separator than the settings say."""


class UnboundedError(UnsoundError):
    """A bound is NaN or infinite: nothing is known about the value it was to bound."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error; the name of its class if it is empty."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def counted(count: int, one: str, more: str = "") -> str:
    """Return a number with its noun, such as ``1 person`` or ``3 people``.

    Args:
        count: the number.
        one: the noun in the singular.
        more: the plural; empty: the singular with an s.
    """
    noun = one if count == 1 else more or f"{one}s"
    return f"{count:,} {noun}"


def altered(file: object, finding: str, again: str = "") -> str:
    """Return the message about a file that is no longer as agt wrote it.

    Args:
        file: its name.
        finding: one sentence that says what shows the change.
        again: a clause that says how to make the file again, for example ``train again``; empty:
            that is not possible.
    """
    remedy = f", or {again}" if again else ""
    return (
        f"{file} was altered or damaged after agt wrote it ({finding}). Restore it from a "
        f"backup{remedy}"
    )


def few(names: Iterable[object], most: int = 3, between: str = ", ") -> str:
    """Return the first names and the number of the others, such as ``a, b, c and 2 more``.

    Args:
        names: the names, or other values that are shown by ``str``.
        most: the number of names that are shown.
        between: the separator.
    """
    texts = [*map(str, names)]
    more_count = len(texts) - most
    ending = f" and {more_count} more" if more_count > 0 else ""
    return between.join(texts[:most]) + ending


SIMILARITY = 0.58
"""How similar a name must be (``difflib``) to be proposed; at 0.55, run was proposed for unit."""


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message about an unknown word: a similar word, and all known words.

    For example ``; did you mean 'blobs'? (known: blobs, digits)``.

    Args:
        word: the word that was typed.
        known: the words that exist; none: empty text is returned.
        prefix: stands before the similar word, as it has to be typed.
    """
    known = sorted(known)
    by_letters = {_letters(known_word): known_word for known_word in known}
    close = get_close_matches(_letters(word), by_letters, n=1, cutoff=SIMILARITY)
    hint = f"; did you mean '{prefix}{by_letters[close[0]]}'?" if close else ""
    return f"{hint} (known: {', '.join(known)})" if known else hint


def _letters(word: str) -> str:
    """Return a word in small letters, without blanks."""
    return "".join(word.split()).casefold()
