"""Write what was released: labels, a number, or weights with the folder that answers from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from agt.data.arrays import pieces
from agt.data.records import UNANSWERED
from agt.mechanisms.claims import Claim
from agt.mechanisms.weights_mechanism import ReleasedWeights, labels_from
from agt.models.model import Model
from agt.models.portable import CLAIM, Portable, check_printable
from agt.release import AnyRelease, LabelRelease, NumberRelease, WeightsRelease
from agt_cli.releasing.label_table import LabelTable, NumberTable, public_names
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import release_report

MAX_RANGES_SHOWN = 5  # ranges of rows in a message


@dataclass(frozen=True)
class Written:
    """The result of writing a release.

    Attributes:
        result: entries for the object that --json prints.
        lines: sentences for the console and the report.
        unanswered: a sentence on the queries that the budget was too small for; empty: all were
            answered.
    """

    result: Mapping[str, Any]
    lines: Sequence[str] = ()
    unanswered: str = ""


class ReleaseWriter:
    """Writes one release; each kind of output has a subclass.

    It is constructed before anything is paid for, so that whatever can fail, for example because
    the disk is full, fails before budget is spent.

    Attributes:
        files: the files that may be published, for a sentence.
        table: the table of labels; None: no labels are written.
        metrics: the metrics that are known before anything is drawn.
    """

    files: str
    table: LabelTable | None = None
    metrics: Mapping[str, Any]

    def write(self, drawn: Any, claim: Claim) -> Written:
        """Write the drawn labels, weights or numbers into the record.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            drawn: the result of ``draw`` of the release.
            claim: the claim of the release, with the ledger that counts it.

        Raises:
            CheckError: the run was changed meanwhile; no file of labels appears.
            OSError: a file cannot be written.
        """
        raise NotImplementedError


class LabelsFile:
    """Writes the file of labels, for which room on the disk is reserved beforehand.

    Attributes:
        request: the request that agt predict received.
        table: the names of queries and classes.
    """

    def __init__(self, request: PredictRequest, from_weights: bool = False) -> None:
        """Reserve as much room as the file can need.

        Args:
            request: the request that agt predict received.
            from_weights: True if released weights compute the numbers (for numbers only); False if
                each label stands for a sum of an ensemble's answers.

        Raises:
            OSError: there is too little room on the disk.
        """
        opened = request.opened
        self.request = request
        votes = opened.model.number_votes
        if votes is None:
            inputs = opened.trained.inputs
            self.table = LabelTable.of(opened.queries, opened.dataset.classes, inputs)
        else:
            names = public_names(opened.queries.ids)
            number_of = None if from_weights else votes.mean_of
            self.table = NumberTable(names, (), number_of=number_of, target=votes.target)
        self._open = request.record.reserve(self.table.file, self.table.size)

    def write(self, labels: Iterable[np.ndarray]) -> dict[str, Any]:
        """Write labels piece by piece, leaving out unanswered queries.

        The file appears only when it is complete, and if the run is still in the state that the
        queries were answered from.

        Args:
            labels: arrays of labels, in the order of the queries; a label may be drawn only when
                its array is asked for.

        Returns:
            {"labels": the labels as --json shows them, or the path of the file if they are many}.

        Raises:
            CheckError: the run was changed meanwhile.
            OSError: the file cannot be written.
        """
        with self._open() as file:
            shown = self.table.write(file, labels)
            self.request.opened.check_current()
        path = str(self.request.record.folder / self.table.file)
        return {"labels": path if shown is None else shown}


class LabelWriter(ReleaseWriter):
    """Writes labels; if a ledger stores answers, it also counts new, repeated and missing ones."""

    def __init__(self, request: PredictRequest, release: LabelRelease) -> None:
        """Reserve room for the labels.

        Raises:
            OSError: there is too little room on the disk.
        """
        self.request = request
        self.release = release
        self._labels_file = LabelsFile(request)
        self.table = self._labels_file.table
        self.files = f"`{self.table.file}`"
        self.metrics = {"n_queries": len(release.features)}

    def write(self, drawn: Iterable[np.ndarray], claim: Claim) -> Written:
        questions = self.release.questions
        if not questions.has_ledger:
            return Written(self._labels_file.write(drawn))
        (labels,) = drawn  # a ledger's answers come in one piece
        result = self._labels_file.write([labels])
        counts = questions.counts(labels)
        self.request.record.add_metrics(**counts)
        answered = counts["answered"]
        reservation = self.release.reservation
        repeated = answered - (reservation.size if reservation else 0)
        query_count = len(labels)
        line = f"{answered} of {query_count} queries were answered"
        if repeated:
            line += f", {repeated} of them from the ledger, at no cost"
        unanswered = ""
        if counts["unanswered"]:
            missing = counts["unanswered"]
            rows = _rows_in_words(np.flatnonzero(labels == UNANSWERED))
            population = self.request.payer.name
            guarantee = self.release.claim.guarantee
            unanswered = (
                f"{line}. {missing} queries were not answered ({rows}), because the remaining "
                f"budget of the ledger of {population} is too small for another label (each "
                f"label costs {guarantee})"
            )
        return Written(result, [line], unanswered)


class NumberWriter(ReleaseWriter):
    """Writes one number (a certified quantile) into metrics.json."""

    files = "The released number"

    def __init__(self, request: PredictRequest, release: NumberRelease) -> None:
        """Note which fraction of the queries the number is about; nothing is written yet."""
        self.request = request
        self.metrics = {"fraction": release.mechanism.fraction}

    def write(self, drawn: int, claim: Claim) -> Written:
        self.request.record.add_metrics(certified_quantile=drawn)
        fraction = self.metrics["fraction"]
        line = (
            f"the fraction {fraction:g} of the queries has a stable distance of at least "
            f"about {drawn} (noise was added to this distance before its release)"
        )
        return Written({"certified_quantile": drawn}, [line])


class WeightsWriter(ReleaseWriter):
    """Writes weights, the folder that answers from them, and the labels that they give."""

    def __init__(self, request: PredictRequest, release: WeightsRelease) -> None:
        """Check that the weights can answer the queries, and reserve room for the labels.

        Raises:
            ConfigError: the head does not accept the queries, or a name contains control
                characters.
            OSError: there is too little room on the disk.
        """
        model = request.opened.model
        features = request.opened.queries.features
        self.request = request
        # Called only because it raises ConfigError for queries that the head does not accept.
        labels_from(model, features)
        check_printable(model.problem.dataset, release.claim.lines())
        self._labels_file = LabelsFile(request, from_weights=True)
        self.table = self._labels_file.table
        labels_file = self.table.file
        self.files = f"`{labels_file}`, `released_weights.safetensors` and the folder `release`"
        self.metrics = {"n_queries": len(features)}

    def write(self, drawn: ReleasedWeights, claim: Claim) -> Written:
        opened = self.request.opened
        source = None if opened.stored.encoder is not None else opened.stored.dataset_config
        lines, result = write_weights(opened.model, drawn, source, claim, self.request.record)
        answers = (
            labels_from(opened.model, piece)(drawn) for piece in pieces(opened.queries.features)
        )
        return Written({**result, **self._labels_file.write(answers)}, lines)


def writer_of(request: PredictRequest, release: AnyRelease) -> ReleaseWriter:
    """Return the writer of a release, which has reserved the room on the disk that it needs.

    Args:
        request: the request that agt predict received.
        release: the release as it was judged.

    Raises:
        ConfigError: released weights could not answer the queries.
        OSError: there is too little room on the disk.
    """
    if isinstance(release, WeightsRelease):
        return WeightsWriter(request, release)
    if isinstance(release, NumberRelease):
        return NumberWriter(request, release)
    return LabelWriter(request, release)


@dataclass(frozen=True)
class ReleasePage:
    """The claim and the report of a release, with which its record is finished.

    Attributes:
        mechanism: the name of the mechanism.
        lines: the sentences of the report, with the guarantee first.
        files: the files that may be published, for a sentence; None: no file may be published.
        claim: the claim of the release; None: nothing was drawn, so there is no claim.json.
    """

    mechanism: str
    lines: Sequence[str]
    files: str | None
    claim: Claim | None = field(default=None)

    def finish(self, request: PredictRequest) -> None:
        """Write claim.json and the report, and finish the record."""
        record = request.record
        opened = request.opened
        if self.claim is not None:
            record.write(CLAIM, self.claim.for_file(datetime.now(UTC).date()).content)
        about = opened.trained.queries_description
        record.report(
            release_report(
                opened.dataset.name, about, self.mechanism, self.lines, self.files, record
            )
        )
        record.finish()


def write_weights(
    model: Model,
    released: ReleasedWeights,
    source: Mapping[str, Any] | None,
    claim: Claim,
    record: RunRecord,
) -> tuple[list[str], dict[str, Any]]:
    """Write released weights, and the folder "release" that answers queries without this run.

    The folder (agt/models/portable.py) is left out for a simulation, and for a model with an
    encoder or without a single linear head.

    Args:
        model: the model that the weights were released from.
        released: the weights.
        source: the configuration of the dataset with its constants (``prepare.settled``); None:
            queries pass an encoder.
        claim: the claim of the release.
        record: the record to write into.

    Returns:
        A sentence for the console and the report, in a list; and the entries "release" and
        "release_digest" for the object of --json, empty if the folder was left out.
    """
    record.released_weights(
        released.weight, {**released.public_parameters, "simulated": released.simulated}
    )
    if released.simulated:
        return ["the folder 'release' was not written, because this is a simulation"], {}
    head = None if source is None else model.release_head
    if source is None or head is None:
        reason = (
            "the folder 'release' was not written, because answering queries needs the encoder, "
            "which only the training run contains"
        )
        return [reason], {}
    portable = Portable.from_release(head, released, source, claim.lines(), claim.lines(brief=True))
    digest = portable.save(record.part("release"), claim.for_file().content)
    folder = record.folder / "release"
    sentence = (
        f"release: {folder} (digest {digest}) may be published, and answers further queries for "
        "free: agt predict release=..."
    )
    return [sentence], {"release": str(folder), "release_digest": digest}


def _rows_in_words(rows: np.ndarray) -> str:
    """Return the numbers of rows, counted from 1, as text: "rows 3, 7 to 9".

    After MAX_RANGES_SHOWN ranges, the text only says how many rows follow.

    Args:
        rows: [m] the rows, counted from 0, in increasing order; at least one.
    """
    ranges = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    texts = []
    for consecutive in ranges[:MAX_RANGES_SHOWN]:
        first = consecutive[0] + 1
        last = consecutive[-1] + 1
        texts.append(f"{first}" if first == last else f"{first} to {last}")
    listed = ", ".join(texts)
    more = sum(map(len, ranges[MAX_RANGES_SHOWN:]))
    others = f" and {more} more" if more else ""
    noun = "row" if len(rows) == 1 else "rows"
    return f"{noun} {listed}{others}"
