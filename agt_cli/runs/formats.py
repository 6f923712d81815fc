"""How the dates and numbers of a column of text are written, as far as its words show.

What is found here is a proposal. It becomes a public constant of the dataset's configuration
(``Columns.formats``), by which each cell is read by itself.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeVar

import pyarrow as pa

from agt.data.formats import CellFormat, DateFormat, DeclaredFormat, NumberFormat, reads

FormatT = TypeVar("FormatT", bound=CellFormat)

_SAMPLED_WORDS = 50
_DAYS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d-%m-%y",
    "%m-%d-%y",
)
_DAYS_WITH_NAMES = (
    *("%d %b %Y", "%d-%b-%Y", "%d/%b/%Y", "%d%b%Y", "%d-%b-%y", "%d %b %y", "%b %d, %Y"),
    *("%b %d %Y", "%Y-%b-%d", "%d. %b %Y"),
    *("%d %B %Y", "%B %d, %Y", "%B %d %Y", "%d. %B %Y", "%d-%B-%Y"),
)
_MONTHS_OF_YEARS = ("%b %Y", "%b-%Y", "%B %Y", "%B-%Y")
_TIMES = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
_CLOCKS = ("", *(before + time for before, time in product((" ", "T"), _TIMES)))
_ZONES = ("", "%z", " %z")
_DATES_OF_DIGITS = tuple(DateFormat("".join(parts)) for parts in product(_DAYS, _CLOCKS, _ZONES))
_DATES_WITH_NAMES = (
    *(DateFormat("".join(parts)) for parts in product(_DAYS_WITH_NAMES, _CLOCKS, _ZONES)),
    *map(DateFormat, _MONTHS_OF_YEARS),
)
_UNITS = ("$", "€", "£", "¥", "%", "EUR", "USD", "GBP", "CHF")
_SUFFIXED = re.compile(r"([+-]?(?:\d+(?:[.,]\d+)?|[.,]\d+))\s*([^\W\d_]{0,6})")
_ORDINALS = frozenset(("st", "nd", "rd", "th"))
_POWERS = {
    **dict.fromkeys(("k", "tsd"), 1e3),
    **dict.fromkeys(("m", "mio", "mn"), 1e6),
    **dict.fromkeys(("b", "bn", "mrd"), 1e9),
}
"""Suffixes, in lower case, and what they multiply a number by."""
_SEPARATORS: tuple[tuple[Literal[".", ","], Literal["", ".", ",", " ", "'"]], ...] = (
    (",", ""),
    (",", "."),
    (",", " "),
    (",", "'"),
    (".", ","),
    (".", " "),
    (".", "'"),
)


def date_formats(words: pa.Array) -> list[str]:
    """Return the formats in which every word is a date; more than one where the order of day and
    month does not show.

    Args:
        words: text, at least one word.
    """
    texts = [form.text for form in _formats_that_read(_dates_like(words[0].as_py()), words)]
    # If each month is May, the names in full are the abbreviated ones, too.
    return [text for text in texts if "%B" not in text or text.replace("%B", "%b") not in texts]


def likeliest_date_format(words: pa.Array) -> str:
    """Return the format in which most of the first words are dates."""
    sample = words[:_SAMPLED_WORDS].to_pylist()

    def dates_in_sample(form: DateFormat) -> int:
        """Return how many of the first words are dates in a format."""
        return sum(reads(form, pa.array([word])) for word in sample)

    return max(_dates_like(sample[0]), key=dates_in_sample).text


def _dates_like(word: str) -> tuple[DateFormat, ...]:
    """Return the formats of dates with names of months, or those without, as a word has letters."""
    return _DATES_WITH_NAMES if re.search(r"[^\W\d_]{3}", word) else _DATES_OF_DIGITS


def number_formats(words: pa.Array) -> list[NumberFormat]:
    """Return the formats in which every word is a number; more than one where a comma or a point
    may stand before decimals or between thousands.

    Of formats that read every word as the same number, the one with the fewest separators counts.

    Args:
        words: text, at least one word.
    """
    sample = words[:_SAMPLED_WORDS].to_pylist()
    units = ["", *(unit for unit in _UNITS if any(unit in word for word in sample))]
    unseparated = [NumberFormat(unit=unit) for unit in units if unit]
    separated = [
        NumberFormat(decimal, thousands, unit)
        for unit, (decimal, thousands) in product(units, _SEPARATORS)
    ]
    format_by_numbers: dict[bytes, NumberFormat] = {}
    for form in _formats_that_read([*unseparated, *separated], words):
        numbers = form.numbers(words)
        format_by_numbers.setdefault(numbers.to_numpy(zero_copy_only=False).tobytes(), form)
    return list(format_by_numbers.values())


def formats_override(formats: Mapping[str, DeclaredFormat]) -> str:
    """Return the word of a command line that declares these formats, not quoted for a shell."""
    entries = (f"{_quoted_name(name)}: {format_as_yaml(form)}" for name, form in formats.items())
    return f"+formats={{{', '.join(entries)}}}"


def format_setting(name: str, form: DeclaredFormat) -> str:
    """Return what declares the format of one column, quoted for a shell."""
    return shlex.quote(formats_override({name: form}))


def format_as_yaml(form: DeclaredFormat) -> str:
    """Return a format as a configuration writes it."""
    if isinstance(form, str):
        return _double_quoted(form)
    given = {"decimal": form.decimal, "thousands": form.thousands, "unit": form.unit}
    defaults = NumberFormat()
    written = (
        f"{key}: {_double_quoted(value)}"
        for key, value in given.items()
        if value != getattr(defaults, key)
    )
    return f"{{{', '.join(written)}}}"


def format_example(form: DeclaredFormat) -> str:
    """Return an example of what is written in a format."""
    cell_format = DateFormat(form) if isinstance(form, str) else form
    return str(cell_format.expected.values["example"])


def number_text_in_format(form: NumberFormat, word: str) -> str:
    """Return the number that a word is in a format, as Python writes it."""
    return f"{form.numbers(pa.array([word]))[0].as_py():.15g}"


def _quoted_name(name: str) -> str:
    """Return a column's name as a key in YAML, in double quotes where it needs them."""
    return name if re.fullmatch(r"[\w.-]+", name) else _double_quoted(name)


def _double_quoted(text: str) -> str:
    """Return text in double quotes, as YAML and JSON write it."""
    return json.dumps(text, ensure_ascii=False)


def _formats_that_read(formats: Iterable[FormatT], words: pa.Array) -> list[FormatT]:
    """Return the formats that read all words; a few of the words rule out most formats quickly."""
    sample = words[:_SAMPLED_WORDS]
    return [form for form in formats if reads(form, sample) and reads(form, words)]


@dataclass(frozen=True)
class SuffixedNumbers:
    """Numbers with letters behind them, such as 1.2k or 12 kg, which the default formats do not
    read.

    Attributes:
        example: a word with a suffix.
        form: reads every word; None: suffixes differ, so that numbers must be written out.
        number: the number that ``example`` is, written out; None: its unit is not known.
    """

    example: str
    form: NumberFormat | None
    number: str | None


def suffixed_numbers(words: pa.Array) -> SuffixedNumbers | None:
    """Return what words have in common that are numbers with a suffix; None: some word is not one.

    Ordinals (1st, 2nd) are words. Some of the words may have no suffix.

    Args:
        words: text.
    """
    examples: dict[str, str] = {}
    for word in words.to_pylist():
        match = _SUFFIXED.fullmatch(word.strip())
        if match is None:
            return None
        examples.setdefault(match[2], word)
    has_unsuffixed = examples.pop("", None) is not None
    if not examples or examples.keys() & _ORDINALS:
        return None
    suffix, example = next(iter(examples.items()))
    power = _POWERS.get(suffix.casefold())
    one_unit = len(examples) == 1 and (power is None or not has_unsuffixed)
    forms = (NumberFormat(unit=suffix), NumberFormat(decimal=",", unit=suffix))
    form = next((form for form in forms if one_unit and reads(form, words)), None)
    number = None
    if power is not None or one_unit:
        digits = example.strip().removesuffix(suffix).strip().replace(",", ".")
        number = f"{float(digits) * (power or 1.0):.15g}"
    return SuffixedNumbers(example, form, number)
