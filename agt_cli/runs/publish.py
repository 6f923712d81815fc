"""What a release leaves in its run's folder once it is drawn, and in which order: what it spends first."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agt.data.blocks import ROWS, Blocks, Numbered, as_array, gathered, pieces, selected
from agt.data.dataset import Records
from agt.data.ids import CONTENT
from agt.errors import ConfigError
from agt.ledger.book import Charge
from agt.ledger.questions import UNANSWERED, Asked, Asking
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.portable import Portable
from agt.mechanisms.release import (
    APART,
    Labelling,
    OnProgress,
    Release,
    WeightsMechanism,
    labels_from,
    prepare_quantile,
    prepare_weights,
    totals_of,
)
from agt.mechanisms.rigour import Accounting, Claim, Counting, Output
from agt.mechanisms.statement import Statement
from agt.mechanisms.weights import ReleasedWeights
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.randomness import Randomness
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.account import Account, Receipt
from agt_cli.runs.ledger import Subject
from agt_cli.runs.mechanisms import MechanismConfig, earlier_weights
from agt_cli.runs.model import certifying
from agt_cli.runs.queries import OpenedRun

Written = tuple[list[str], dict[str, Any]]
Rows = np.ndarray | range
Labels = Iterable[np.ndarray]
TOLD = 10_000  # labels that --json has in its object; more are in their file alone
_ODD = re.compile('[",\r\n]')
_HEAD = b"record_id,label\n"
_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("record_id", "label")])


@dataclass(frozen=True)
class Request:
    """What is to be released, of which nothing is judged.

    Attributes:
        mechanism: with its budget.
        accounting, counting: as in ``prepare_labels``.
        opened: the run, and the queries.
        account: what pays.
        record: where it is written.
        console: for progress.
    """

    mechanism: MechanismConfig
    accounting: Accounting
    counting: Counting
    opened: OpenedRun
    account: Account
    record: RunRecord
    console: Console

    @property
    def delta(self) -> float:
        """At which totals are shown; 0: one is chosen."""
        return self.mechanism.total.delta

    def charge(self, claim: Claim, mechanism: str) -> Charge:
        """What a ledger is to count of each release."""
        finished = self.opened.trained.finished
        return Subject.of_finished(finished).charge(claim.guarantee, claim.output.value, mechanism, finished.digest)

    def check_payable(self, claim: Claim) -> None:
        """Raise ConfigError where a ledger would count what is not proved, or what does not add up with what it counts."""
        if self.account.ledger and self.opened.model.problem.settings.noise is not None:
            raise ConfigError(
                f"ledger={self.account.name}: {APART}, and a ledger adds up: release the noisy weights alone, train "
                "without noise to release from certificates, or give ledger=none, outside the account"
            )
        if self.account.ledger and not claim.proved:
            raise ConfigError(
                f"accounting={self.accounting}: nothing is proved of this release, and a ledger counts what is: use "
                "accounting=rigorous, or give ledger=none"
            )

    def labelling(self, mechanism: Mechanism) -> Labelling:
        """Judge labels."""
        opened = self.opened
        return Labelling.of(opened.model, mechanism, opened.conditions, self.accounting, self.counting)

    def quantile(self, mechanism: CertifiedQuantile, on_progress: OnProgress = lambda progress: None) -> Release[int]:
        """Judge one number about all queries."""
        return prepare_quantile(
            self.opened.model,
            self.opened.queries.features,
            mechanism,
            conditions=self.opened.conditions,
            accounting=self.accounting,
            counting=self.counting,
            on_progress=on_progress,
        )


@dataclass(frozen=True)
class Publication:
    """A release that was judged, and how what is drawn is written. Nothing private was computed for it yet.

    Attributes:
        claim: what may be said of each.
        mechanism: its name.
        files: what may be published, in words.
        rows: the queries that something new is drawn for, in the order in which they are paid.
        wanted: how many releases have to be paid for; 0: nothing new is drawn.
        metrics: what is known before the draw.
        prepare: what was paid -> what may be drawn.
        write: (what was drawn, its claim) -> (what it says in lines, the command's object for it),
            once it is in the folder.
        table: the file of labels; empty: there is none.
        earlier: says which weights, released earlier, answer; empty: something new is drawn.
        asked: the queries by question, where a ledger remembers answers.
    """

    claim: Claim
    mechanism: str
    files: str
    rows: Rows
    wanted: int
    metrics: Mapping[str, float]
    prepare: Callable[[Receipt], Release[Any]]
    write: Callable[[Any, Statement], Written]
    table: str = ""
    earlier: str = ""
    asked: Asked | None = None

    def paid(self, receipt: Receipt) -> Rows:
        """The queries that something new is drawn for: the first so many, where each costs something."""
        return self.rows[: receipt.size] if self.claim.output is Output.LABELS else self.rows


def prepare_publication(request: Request) -> Publication:
    """Judge the claim, look up what was answered before, and take the room on the disk for what will be drawn.

    Raises:
        ConfigError: the claim is refused, or queries do not fit the model; or nothing is proved, and a ledger would pay.
    """
    config, opened = request.mechanism, request.opened
    if config.weights is not None:
        return _kept_weights(config.weights, request)
    mechanism = config.mechanism(opened.model.problem.classes, len(opened.queries))
    if isinstance(mechanism, WeightsMechanism):
        made = _new_weights(mechanism, request)
    elif isinstance(mechanism, CertifiedQuantile):
        made = _number(mechanism, request)
    else:
        made = _labels(request.labelling(mechanism), request)
    request.check_payable(made.claim)
    return made


def _labels(labelling: Labelling, request: Request) -> Publication:
    opened, account, features = request.opened, request.account, request.opened.queries.features
    opened.model.check(features)
    asking = Asking(opened.trained.finished.digest, labelling.mechanism, request.accounting, request.counting)
    asked = account.asked(asking, features)
    rows: Rows = range(len(features)) if asked is None else asked.new
    if len(rows):
        totals_of(labelling.mechanism.guarantee, len(rows), request.delta)  # refuses before anything is paid

    def prepare(receipt: Receipt) -> Release[Labels]:
        if asked and not receipt.size:
            return Release(labelling.claim, lambda _: [asked.labels({})], (), None, noisy=False)
        paid = features if asked is None else selected(features, asked.new[: receipt.size])

        def drawn(randomness: Randomness) -> Iterator[np.ndarray]:
            with certifying(opened.model, request.console) as on_progress:
                yield from labelling.drawn(paid, randomness, on_progress)

        def draw(randomness: Randomness) -> Labels:
            if asked is None:
                return drawn(randomness)
            return [asked.labels(account.keep(receipt, asked.answers(gathered(drawn(randomness), len(paid)))))]

        judged = labelling.release(paid, request.delta)
        return Release(judged.claim, draw, judged.totals, judged.queries, judged.noisy)

    metrics, name, (table, write) = {"n_queries": len(features)}, labelling.mechanism.name, _label_writer(request)
    return Publication(labelling.claim, name, f"`{table}`", rows, len(rows), metrics, prepare, write, table, asked=asked)


def _number(mechanism: CertifiedQuantile, request: Request) -> Publication:
    release, rows = request.quantile(mechanism), range(len(request.opened.queries))

    def draw(randomness: Randomness) -> int:
        with certifying(request.opened.model, request.console) as on_progress:
            return request.quantile(mechanism, on_progress).draw(randomness)

    def write(value: int, claim: Statement) -> Written:
        request.record.add_metrics(certified_quantile=value)
        line = f"{mechanism.fraction:g} of the queries are certified up to a distance of about {value}"
        return [line], {"certified_quantile": value}

    metrics, drawn = {"fraction": mechanism.fraction}, replace(release, draw=draw)
    return Publication(release.claim, mechanism.name, "That number", rows, 1, metrics, lambda _: drawn, write)


def _new_weights(mechanism: WeightsMechanism, request: Request) -> Publication:
    """Weights that are released now, and the labels that they give."""
    opened, record, (table, write_labels) = request.opened, request.record, _label_writer(request)
    answers = _answers(request)
    release = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=request.delta)

    def write(released: ReleasedWeights, claim: Statement) -> Written:
        source = None if opened.kept.encoder is not None else opened.kept.settled
        lines, result = write_weights(opened.model, released, source, claim, record)
        labelled, labels = write_labels(answers(released), claim)
        return [*lines, *labelled], {**result, **labels}

    files, rows = f"`{table}`, `released_weights.safetensors` and the folder `release`", range(len(opened.queries))
    metrics = {"n_queries": len(rows)}
    return Publication(release.claim, mechanism.name, files, rows, 1, metrics, lambda _: release, write, table)


def write_weights(
    model: Model, released: ReleasedWeights, source: Mapping[str, Any] | None, claim: Statement, record: RunRecord
) -> tuple[list[str], dict[str, Any]]:
    """Write released weights, and the folder that answers without this run (portable.py), where there can be one.

    Args:
        source: the settled configuration of the dataset (``source.settled``); None: queries pass an encoder.
        claim: of the release.
    """
    shrink = {"shrink": True} if released.shrink else {}
    record.released_weights(released.weight, {**released.described, "simulated": released.simulated, **shrink})
    if released.simulated:
        return ["no folder release: a simulation is none"], {}
    if source is None or not isinstance(model, LinearModel):
        return ["no folder release: queries pass an encoder, which is in the training run alone"], {}
    digest = Portable.of(model, released, source, claim.words).save(record.part("release"), claim.content)
    folder = record.folder / "release"
    said = f"release: {folder} (digest {digest}): it may be published, and answers without this run"
    return [said], {"release": str(folder), "release_digest": digest}


def _kept_weights(folder: Path, request: Request) -> Publication:
    """The labels that weights released earlier give: nothing is drawn."""
    opened = request.opened
    answers, none = _answers(request), range(0)
    config = request.mechanism
    released, mechanism = earlier_weights(folder, config.weights_digest, opened.trained.finished)
    mechanism = replace(mechanism, shrink=config.given.get("shrink", mechanism.shrink))
    released = replace(released, shrink=mechanism.shrink)
    judged = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=request.delta)
    release = Release(judged.claim, lambda _: answers(released), judged.totals, judged.queries, judged.noisy)
    earlier = f"weights released earlier ({folder}): these labels spend nothing more"
    metrics, (table, write) = {"n_queries": len(opened.queries)}, _label_writer(request)
    files, name = f"`{table}`", mechanism.name
    return Publication(judged.claim, name, files, none, 0, metrics, lambda _: release, write, table, earlier)


def _answers(request: Request) -> Callable[[ReleasedWeights], Iterator[np.ndarray]]:
    """What weights answer to the queries, piece by piece; refuses queries that the head does not take."""
    model, features = request.opened.model, request.opened.queries.features
    labels_from(model, features)
    return lambda released: (labels_from(model, piece)(released) for piece in pieces(features))


def _label_writer(request: Request) -> tuple[str, Callable[[Labels, Statement], Written]]:
    """(the table of labels, what writes it); its room on the disk is taken now. Unanswered queries are not in it.

    The labels come in pieces, and what is drawn for each is drawn then; the file appears when all of them are in it, if the
    run is still in the state that was asked.
    """
    opened = request.opened
    table = LabelTable.of(opened.queries, opened.dataset.classes, opened.trained.inputs)
    write_file = request.record.reserve(table.file, table.size)

    def write(labels: Labels, claim: Statement) -> Written:
        with write_file() as file:
            told = table.write(file, labels)
            opened.check_current()
        return [], {"labels": str(request.record.folder / table.file) if told is None else told}

    return table.file, write


@dataclass(frozen=True)
class LabelTable:
    """labels.csv or labels.parquet: names and labels of the queries, whose number of bytes has a public bound.

    Attributes:
        names: [n] str, or ``Numbered``.
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
    def size(self) -> int:
        """As many bytes as it can come to: every label the longest."""
        if self.suffix == ".parquet":
            return self._most
        longest = max(range(len(self.classes)), key=lambda label: len(_cell(self.classes[label]).encode()))
        names = pieces(self.names)
        return len(_HEAD) + sum(len(self._lines(some, np.broadcast_to(longest, len(some)))) for some in names)

    @property
    def _most(self) -> int:
        """Of the parquet: each name and label in plain, what cannot be made shorter, and room for the groups' heads."""
        count, heads = len(self.names), 4096 + 2 * sum(len(name.encode()) + 64 for name in self.classes)
        if isinstance(self.names, Numbered):
            letters = count * len(str(count))
        else:
            letters = sum(len("".join(some.tolist()).encode()) for some in pieces(self.names))
        return 7 * (letters + 8 * count) // 6 + heads * (2 + count // ROWS)

    def names_of(self, labels: np.ndarray) -> list[str]:
        """[n] class indices as names."""
        return [self.classes[label] for label in labels]

    def csv(self, labels: np.ndarray) -> bytes:
        """The file's content, as a csv."""
        file = BytesIO()
        self.write(file, [labels])
        return file.getvalue()

    def write(self, file: BinaryIO, parts: Labels) -> list[str] | None:
        """Write the answers, piece by piece; returns their names, if they are few."""
        told: list[str] | None = []
        with self._opened(file) as put:
            start = 0
            for part in parts:
                answered = part != UNANSWERED
                names, labels = self.names[start : start + len(part)][answered], part[answered]
                start += len(part)
                put(names, labels)
                told = None if told is None or len(told) + len(labels) > TOLD else told + self.names_of(labels)
        return told

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
    if isinstance(ids, Numbered):
        return ids
    names = ids.astype(str, copy=False)
    made = all(CONTENT.fullmatch(name) for some in pieces(names) for name in some.tolist())
    return as_array(Numbered(len(names))) if made else names
