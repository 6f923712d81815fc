"""A table looked at before anything is declared about it: what each column holds, and what it could be in training.

All of it is read off the records: a proposal is for the owner, who replaces what is not publicly known or declares that it
is (``Table.from_data``). Counts and extremes are for the owner's eyes alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.assemble import class_names
from agt.data.checks import MAX_FOUND
from agt.data.dataset import DataError
from agt.data.declarations import ordinal
from agt.data.delimited import CsvFormat, is_delimited, sniffed
from agt.data.distinct import NUMBER, Distinct, distinct, matches
from agt.data.edges import edges_of, heavy_tailed, round_range
from agt.data.files import Columns, as_word, number_hint, open_columns
from agt.errors import nearest

Kind = Literal["number", "category", "id", "constant", "empty", "date", "text", "unreadable"]
MOST_VALUES = 100
FEW = 12
"""As many distinct whole numbers may well be codes."""
CODES = "or codes?"
"""The remark on a column of few whole numbers, which are taken as ordered."""

_WITH_COMMA = r"^[$€£]?\s*[+-]?\d[\d.,' ]*(\s*[%$€£])?$"
_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2})([T ]\d{1,2}:\d{2}.*)?$"
_UNWRITABLE = "???"
"""A word that a configuration cannot hold: there it says that a value is required."""
_IDS = {"id", "ids", "uuid", "guid", "uid", "key", "index", "rowid", "rownames", "unnamed"}
_PEOPLE = {"person", "patient", "customer", "client", "subject", "user", "account", "member", "employee", "record", "nr"}
_LABELS = {"label", "target", "class", "y", "outcome", "default", "defaulted", "churn", "churned", "income", "response"} | {
    "survived", "diagnosis", "exited", "fraud", "approved", "readmitted", "deposit", "risk", "creditability", "attrition",
    "stroke", "died", "deceased", "mortality", "spam", "subscribed", "purchased", "converted", "kredit",
}  # fmt: skip
_MAYBE_LABELS = {"type", "species", "quality", "status", "result", "condition", "output", "disease", "num", "grade"} | {
    "severity", "category", "cover", "death", "alive", "group",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One column as it was seen, and what is proposed for it.

    Attributes:
        kind: what it holds.
        missing: rows without a value, markers included.
        distinct: different values.
        low, high: of its numbers; None: it holds none.
        values: value and count, the most frequent first; empty where there are too many to list.
        markers: words in it that stand for a missing value.
        numeric: the range or edges proposed; empty: it is no numeric feature.
        categorical: the list of values proposed; empty: it is no categorical feature.
        public: the range is the type's own and was not read off the records.
        remark: why it is left out and how to include it, or what to think of.
    """

    name: str
    kind: Kind
    missing: int
    distinct: int
    low: float | None = None
    high: float | None = None
    values: tuple[tuple[str, int], ...] = ()
    markers: tuple[str, ...] = ()
    numeric: tuple[float, ...] = ()
    categorical: tuple[str, ...] = ()
    public: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Inspection:
    """What a table holds, and the parts that its columns could have.

    Attributes:
        form: of a csv; None: another format.
        columns: in the order of the file, label and id included.
        label: the column of labels; None: it is not evident.
        labels: candidates for it, the likeliest first.
        id: the column that names each record for good; None: there is none.
        classes: the values of the label, in the order of the classes.
    """

    path: Path
    form: CsvFormat | None
    rows: int
    columns: tuple[Column, ...]
    label: str | None
    labels: tuple[str, ...]
    id: str | None
    classes: tuple[str, ...]

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns proposed as features."""
        parts = {self.label, self.id}
        return tuple(c for c in self.columns if (c.numeric or c.categorical) and c.name not in parts)

    @property
    def left_out(self) -> tuple[Column, ...]:
        """The columns that have no part, each with a remark that says why."""
        parts = {self.label, self.id, *(column.name for column in self.features)}
        return tuple(column for column in self.columns if column.name not in parts)

    @property
    def missing_values(self) -> tuple[str, ...]:
        """Words that stand for a missing value somewhere among the features."""
        return tuple(dict.fromkeys(marker for column in self.features for marker in column.markers))

    @property
    def gaps(self) -> bool:
        """Whether a feature is missing in some row."""
        return any(column.missing for column in self.features)


def inspect_table(
    path: Path,
    *,
    label: str | None = None,
    id: str | None = None,
    form: CsvFormat | None = None,
    header: bool | None = None,
    missing_values: Sequence[str] = (),
    most_values: int = MOST_VALUES,
) -> Inspection:
    """Look at every column of a csv or parquet file.

    Args:
        label, id: columns whose part the owner states; None: the likeliest.
        form: how a csv is cut; None: guessed from its first lines.
        header: of a csv, whether its first line names the columns; None: it must look as if it did.
        missing_values: further words that stand for a missing value.
        most_values: a column of text with more distinct values is left out.

    Raises:
        DataError: a file that is damaged, or no table; a column that is not there; a first line that looks like data.
    """
    columns, form = _opened(path, form, header)
    for part, name in (("label", label), ("id", id)):
        if name is not None and name not in columns.names:
            raise DataError(f"{path}: no column '{name}', which {part} names{nearest(name, columns.names)}")
    looks = {name: distinct(columns, name, missing_values) for name in columns.names}
    rows = next((len(look.vector) for look in looks.values()), 0)
    if not rows:
        raise DataError(f"{path}: no rows: there is nothing to look at")
    seen = [_column(columns, look, rows, most_values) for look in looks.values()]
    labels = _label_candidates(seen)
    label = label or _evident(labels)
    if id is None:
        id = next((c.name for c in seen if c.kind == "id" and not c.remark and c.name != label), None)
    classes = () if label is None else _classes(looks[label], path)
    names = tuple(name for name, _ in labels)
    return Inspection(path, form, rows, tuple(seen), label, names, id, classes)


def _opened(path: Path, form: CsvFormat | None, header: bool | None) -> tuple[Columns, CsvFormat | None]:
    if not is_delimited(path):
        columns = open_columns(path, "file")
        if path.is_dir() or path.suffix.lower() == ".npz":
            raise DataError(f"{path}: arrays, not a table: agt train dataset=embeddings dataset.path={path} reads vectors")
        return columns, None
    if form is None:
        if not path.is_file():
            open_columns(path, "file")  # says so
        form = sniffed(path, header is not False)
    if header is None:
        _require_header(path, replace(form, encoding="utf-16" if form.encoding == "utf-16" else "latin-1"))
    try:
        return open_columns(path, "file", form=form), form
    except DataError as error:
        if "not UTF-8" not in str(error):
            raise
    form = replace(form, encoding="latin-1")
    return open_columns(path, "file", form=form), form


def _require_header(path: Path, form: CsvFormat) -> None:
    """Numbers in the first line are data, unless they count the columns."""
    names = form.names(path)
    numbers = [name for name in names if re.match(NUMBER, name.strip())]
    counted = {tuple(str(start + place) for place in range(len(numbers))) for start in (0, 1)}
    if (numbers and tuple(numbers) not in counted) or len(set(names)) < len(names):
        some = ", ".join(repr(name) for name in names[:4])
        raise DataError(
            f"{path}: its first line ({some}, ...) looks like data or names two columns alike: if the file has no header, "
            "give header=false (its columns are then column1, column2, ...); if these are names, header=true"
        )


def _column(columns: Columns, look: Distinct, rows: int, most_values: int) -> Column:
    """What a column holds, and what is proposed for it; the first of these that fits."""
    seen = Column(
        look.name, "unreadable", look.missing, len(look.words), values=look.common(most_values), markers=look.markers
    )
    if pa.types.is_nested(look.vector.type) or not (look.text or look.numeric or not len(look.words) or _is_date(look)):
        holds = "an infinite value: repair or drop it" if np.isinf(look.numbers).any() else look.vector.type
        return replace(seen, remark=f"holds {holds}; one finite number or word in each row can be used")
    if not len(look.words):
        return replace(seen, kind="empty", remark="no row has a value")
    if look.numeric:
        seen = replace(seen, low=float(look.numbers.min()), high=float(look.numbers.max()))
    if len(look.words) == 1 and not look.missing:
        return replace(seen, kind="constant", remark="every row has the same value")
    if _is_date(look):
        return replace(seen, kind="date", remark="a date: write it as a number, days since a public date, to use it")
    identity = _identity(look, rows, most_values)
    if identity is not None:
        return replace(seen, kind="id", remark=identity)
    if look.numeric and not (look.text and matches(pc.utf8_trim_whitespace(look.words), r"^-?0\d").any()):
        return _number(seen, look)
    return _words(columns, seen, look, rows, most_values)


def _is_date(look: Distinct) -> bool:
    return bool(pa.types.is_temporal(look.words.type) or (look.text and len(look.words) and look.fits(_DATE).all()))


def _identity(look: Distinct, rows: int, most_values: int) -> str | None:
    """Why a column seems to name records or people, rather than describe them; empty: it does, for good; None: it does not.

    A name that counts the rows is none: where a record goes, all later ones are renamed (declarations.ordinal).
    """
    unique, tokens = len(look.words) == rows and not look.missing, set(_tokens(look.name))
    named = bool(tokens & (_IDS | _PEOPLE)) or not look.name.strip()
    if look.numeric and not look.whole:
        return None
    if unique and look.numeric and not look.name.strip():  # an index written along, perhaps of a table that was cut since
        return (
            "has no name, and so counts the rows of some table: hashes of content name records instead; if it names each "
            "for good, give it a name in the file"
        )
    if unique and _counts_rows(look):
        return (
            f"counts the rows: hashes of content name records instead; if it names each for good, say id={look.name} and "
            "declare dataset.id_permanent=true"
        )
    codes = look.text and np.isnan(look.numbers).mean() > 0.1 and not look.fits(r"\s|.{41}").any()
    if unique and (named or codes):
        return ""
    if named and len(look.words) > max(most_values, rows // 50):
        return "seems to name people or things, and repeats: if it says whose record a row is, set dataset.unit to it"
    return None


def _counts_rows(look: Distinct) -> bool:
    def names(of: pa.Array) -> np.ndarray:
        return np.array(of.cast(pa.string()).to_pylist(), dtype=str)

    return ordinal(names(look.vector[:1000])) and ordinal(names(look.vector))


def _number(seen: Column, look: Distinct) -> Column:
    """A range, or edges where equal bins of it would leave almost every row in one."""
    seen = replace(seen, kind="number")
    if look.flags:
        return replace(seen, numeric=(0.0, 1.0), public=True)
    limits = round_range(look.numbers, look.whole and len(look.words) <= FEW)
    if not np.isfinite(2 * (limits[1] - limits[0])):
        return replace(seen, kind="unreadable", remark="its numbers are too far apart to compute with")
    if heavy_tailed(look.numbers, look.counts, limits):
        return replace(seen, numeric=edges_of(look.numbers, look.counts))
    codes = look.whole and 2 < len(look.words) <= FEW
    return replace(seen, numeric=limits, remark=CODES if codes else "")


def _words(columns: Columns, seen: Column, look: Distinct, rows: int, most_values: int) -> Column:
    """A list of values, or why there is none."""
    plain = np.isfinite(look.numbers)
    if not look.numeric and (plain | look.fits(_WITH_COMMA)).all():
        row, word = _example(look, ~plain)
        hint = number_hint(word) or ": write numbers alone, with a point and nothing between thousands, as in 1234.5"
        return replace(
            seen, kind="unreadable", remark=f"numbers as people write them, {word!r} in {columns.row(row)}{hint}"
        )
    mostly = look.counts[plain].sum() > 0.9 * look.counts.sum() and not look.numeric
    if mostly and len(look.words) > most_values:
        row, word = _example(look, ~plain)
        remedy = f"repair it, or say missing_values=[{word!r}] if it stands for none"
        return replace(seen, kind="unreadable", remark=f"numbers, but {word!r} in {columns.row(row)}: {remedy}")
    free = len(look.words) > max(FEW, 0.9 * (rows - look.missing))
    if free or len(look.words) > most_values:
        kind = "free text" if free else "too many values for a list"
        return replace(seen, kind="text", remark=f"{kind}; to use it, list some values under categorical (the rest: other)")
    least = max(1, min(5, rows // 50))
    kept = sorted(word for word, count in seen.values if count >= least and word != _UNWRITABLE)
    if not kept:
        return replace(seen, kind="text", remark=f"no value occurs {least} times; to use it, list some under categorical")
    return replace(seen, kind="category", categorical=tuple(kept))


def _example(look: Distinct, bad: np.ndarray) -> tuple[int, str]:
    """The first row with one of these values, and the value."""
    rows = pc.index_in(look.vector, look.words.filter(pa.array(bad))).is_valid().to_numpy(zero_copy_only=False)
    row = int(np.flatnonzero(rows)[0])
    return row, str(look.vector[row].as_py())


def _label_candidates(columns: Sequence[Column]) -> list[tuple[str, float]]:
    """Name and score of each column that could be the label, the best first: by its name, place and few values."""
    scores = []
    for place, column in enumerate(columns):
        if column.kind not in ("number", "category") or not 2 <= column.distinct <= MAX_FOUND:
            continue
        tokens = set(_tokens(column.name))
        score = 3.0 if tokens & _LABELS else 1.5 if tokens & _MAYBE_LABELS else 0.0
        score += 2.0 * (place == len(columns) - 1) + (
            1.0 if column.distinct == 2 else 0.5 if column.distinct <= 20 else 0.0
        )
        scores.append((column.name, score - 2.0 * (column.missing > 0)))
    return sorted(scores, key=lambda scored: -scored[1])


def _evident(labels: Sequence[tuple[str, float]]) -> str | None:
    """The best candidate, if it is likely and clearly ahead of the next."""
    if not labels or labels[0][1] < 3 or (len(labels) > 1 and labels[0][1] < labels[1][1] + 1):
        return None
    return labels[0][0]


def _classes(look: Distinct, path: Path) -> tuple[str, ...]:
    if len(look.words) > MAX_FOUND:
        some = ", ".join(repr(as_word(word)) for word in look.words[:3].to_pylist())
        raise DataError(
            f"{path}: the label '{look.name}' has {len(look.words)} distinct values, such as {some}: labels are classes "
            f"here, at most {MAX_FOUND}; cut a number into ranges first"
        )
    words = np.array([as_word(word) for word in look.words.to_pylist()], dtype=object)
    if len(words) < 2:
        raise DataError(f"{path}: the label '{look.name}' has {len(words)} distinct values: it takes two classes at least")
    return class_names(words, path)


def _tokens(name: str) -> list[str]:
    """The words in a column's name: 'default.payment.next.month', 'PassengerId' and 'loan_status' have several."""
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*", name)]
