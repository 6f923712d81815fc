"""labels.csv, and answers from weights that were released earlier, which load neither torch nor what draws."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agt import sentences
from agt.data.arrays import ROWS, Blocks, Mapped, pieces, row_numbers
from agt.data.ids import CONTENT
from agt.data.records import UNANSWERED, Records
from agt.errors import ConfigError
from agt.models.portable import Portable
from agt_cli.configuration import digest_of
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import id_lines, outside_lines, predict_report

MAX_LABELS_SHOWN = 10_000  # that --json has in its object; more are in their file alone
_ODD = re.compile('[",\r\n]')
_HEAD = b"record_id,label\n"
_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("record_id", "label")])


@dataclass(frozen=True)
class LabelTable:
    """labels.csv or labels.parquet: names and labels of the queries, whose number of bytes has a public bound.

    Attributes:
        names: [n] str, or ``row_numbers``.
        classes: the labels' names.
        suffix: .csv, or .parquet where that is how queries came that are too many to be held.
    """

    names: np.ndarray
    classes: tuple[str, ...]
    suffix: str = ".csv"

    @classmethod
    def of(cls, queries: Records, classes: tuple[str, ...], inputs: Path | None) -> "LabelTable":
        """For queries, and the file that they are from."""
        large = isinstance(queries.features, Blocks) and inputs is not None and inputs.suffix.lower() == ".parquet"
        return cls(public_names(queries.ids), classes, ".parquet" if large else ".csv")

    @property
    def file(self) -> str:
        """Its name."""
        return f"labels{self.suffix}"

    @property
    def naming(self) -> list[str]:
        """What whoever reads it should know of its names, if they are not the queries' own."""
        said = (
            "record_id is the query's number, from 0, in its file or among the test records, because no column names them "
            "(in a file: the dataset's id column, or id)"
        )
        return [said] if isinstance(self.names, Mapped) else []

    @property
    def size(self) -> int:
        """As many bytes as it can come to: every label the longest."""
        if self.suffix == ".parquet":
            return self._parquet_size
        longest = max(range(len(self.classes)), key=lambda label: len(_cell(self.classes[label]).encode()))
        names = pieces(self.names)
        return len(_HEAD) + sum(len(self._lines(some, np.broadcast_to(longest, len(some)))) for some in names)

    @property
    def _parquet_size(self) -> int:
        """Each name and label in plain, what cannot be made shorter, and room for the groups' heads."""
        count, heads = len(self.names), 4096 + 2 * sum(len(name.encode()) + 64 for name in self.classes)
        if isinstance(self.names, Mapped):
            letters = count * len(str(count))
        else:
            letters = sum(len("".join(some.tolist()).encode()) for some in pieces(self.names))
        return 7 * (letters + 8 * count) // 6 + heads * (2 + count // ROWS)

    def write(self, file: BinaryIO, parts: Iterable[np.ndarray]) -> list[str] | None:
        """Write the answers, piece by piece; returns their names, if they are few."""
        shown: list[str] | None = []
        with self._opened(file) as put:
            start = 0
            for part in parts:
                answered = part != UNANSWERED
                names, labels = self.names[start : start + len(part)][answered], part[answered]
                start += len(part)
                put(names, labels)
                few = shown is not None and len(shown) + len(labels) <= MAX_LABELS_SHOWN
                shown = [*(shown or []), *(self.classes[label] for label in labels)] if few else None
        return shown

    @contextmanager
    def _opened(self, file: BinaryIO) -> Iterator[Callable[[np.ndarray, np.ndarray], object]]:
        if self.suffix == ".csv":
            file.write(_HEAD)
            yield lambda names, labels: file.write(self._lines(names, labels))
            return
        words = pa.array(self.classes, pa.string())
        with pq.ParquetWriter(file, _SCHEMA, use_dictionary=["label"], write_statistics=False) as writer:
            yield lambda names, labels: writer.write_table(
                pa.table([pa.array(names.tolist(), pa.string()), words.take(pa.array(labels))], _SCHEMA)
            )

    def _lines(self, names: np.ndarray, labels: np.ndarray) -> bytes:
        words, plain = [_cell(name) for name in self.classes], names.tolist()
        plain = list(map(_cell, plain)) if _ODD.search("".join(plain)) else plain
        return "".join(f"{name},{words[label]}\n" for name, label in zip(plain, labels.tolist(), strict=True)).encode()


def _cell(word: str) -> str:
    """As a csv has it, in quotation marks where it must be."""
    return '"' + word.replace('"', '""') + '"' if _ODD.search(word) else word


def public_names(ids: np.ndarray) -> np.ndarray:
    """[n] str: the names that labels are published under: the ids that were given, or row numbers.

    Ids made from content also hash a test record's true label, so that whoever knows the record could test a guess of it.
    """
    if isinstance(ids, Mapped):
        return ids
    names = ids.astype(str, copy=False)
    made = all(CONTENT.fullmatch(name) for some in pieces(names) for name in some.tolist())
    return row_numbers(len(names)) if made else names


@dataclass(frozen=True)
class PortableAnswers:
    """Labels from weights that were released (agt predict release=FOLDER): the folder and the queries are all there is.

    Attributes:
        folder: of the release.
        release: what lies there.
        inputs: the file of queries.
        force: answer queries that look like another population's, too.
    """

    folder: Path
    release: Portable
    inputs: Path
    force: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PortableAnswers":
        """Open the release that ``release`` names.

        Raises:
            ConfigError: none lies there, another than ``digest``, no queries, or a setting of a release yet to be made.
        """
        folder, inputs = Path(str(config["release"])), config.get("inputs")
        given = [key for key in ("run", "seed", "ledger") if config.get(key) is not None]
        given += [f"total.{key}" for key, value in (config.get("total") or {}).items() if value]
        mechanism = config.get("mechanism") or {}
        given += [f"mechanism.{key}" for key, value in mechanism.items() if value and key != "_target_"]
        if given:
            raise ConfigError(f"release={folder}: its weights are drawn, and answer as they are: leave out {given[0]}")
        release = Portable.open(folder, digest_of(config, "digest"))
        if inputs is None:
            raise ConfigError(f"release={folder}: name the file of queries, inputs=FILE")
        release.queries()  # what reads them may be code that is not trusted, or not there
        return cls(folder, release, Path(str(inputs)), config.get("force") is True)

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Label the queries and write the record.

        Raises:
            ConfigError: the queries look like another population's.
        """
        release = self.release
        record.environment(release=str(self.folder.resolve()), inputs=str(self.inputs), dataset=release.name)
        queries = release.queries().load_queries(self.inputs)
        record.environment(inputs_id=queries.id_column)
        table = LabelTable.of(queries, release.classes, self.inputs)
        for line in [*outside_lines(queries), *id_lines(queries), *table.naming]:
            console.note(line)
        mismatches = queries.population_mismatches
        if mismatches and not self.force:
            raise ConfigError(f"{'; '.join(mismatches)}; force=true answers all the same")
        with record.opened(table.file) as file:
            shown = table.write(file, map(release.labels, pieces(queries.features)))
        path = record.folder / table.file
        record.add_metrics(n_queries=len(queries), proved=1, simulated=0, **release.noise)
        words = [*release.words, sentences.RELEASED_EARLIER]
        about = f"queries of {self.inputs.name}"
        record.report(predict_report(release.name, about, release.mechanism, words, f"`{table.file}`", record))
        brief = [*(release.brief or release.words), sentences.RELEASED_EARLIER, sentences.IN_FULL]
        for line in [*brief, f"labels: {path}"]:
            console.say(line)
        result = {"metrics": record.metrics, "claim": words[0], "words": words}
        return {**result, "labels": str(path) if shown is None else shown}
