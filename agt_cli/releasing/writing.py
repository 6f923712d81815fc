"""How what was released is written: labels, a number, or weights with the folder that answers
from them.
"""

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
from agt_cli.report.release_md import predict_report

MAX_STRETCHES_SHOWN = 5  # of rows, in a message


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        result: of the command's object.
        lines: what is said of it.
        unanswered: what the budget did not hold, exactly; empty: it held all.
    """

    result: Mapping[str, Any]
    lines: Sequence[str] = ()
    unanswered: str = ""


class ReleaseWriter:
    """Writes one release. A subclass is for one kind of output.

    It is made before anything is paid for, so that whatever can fail fails then.

    Attributes:
        files: what may be published, in words.
        table: the labels; None: none are written.
        metrics: what is known before the draw.
    """

    files: str
    table: LabelTable | None = None
    metrics: Mapping[str, Any]

    def write(self, drawn: Any, claim: Claim) -> Written:
        """Write what was drawn.

        Args:
            drawn: what ``Release.draw`` returned.
            claim: of what was paid, and who counts it.
        """
        raise NotImplementedError


class LabelsFile:
    """The file of labels, whose room on the disk is taken."""

    def __init__(self, request: PredictRequest, from_weights: bool = False) -> None:
        """Take the room.

        Args:
            request: what is asked for.
            from_weights: labels that are numbers are those that released weights give, and not
                sums of an ensemble's answers.

        Raises:
            OSError: there is too little.
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
        """Write labels, which come in pieces: what is drawn for each is drawn then. Unanswered
        queries are left out.

        The file appears when all of them are in it, if the run is still in the state that was
        asked.

        Returns:
            The labels for the command's object; where they are many, their file.
        """
        with self._open() as file:
            shown = self.table.write(file, labels)
            self.request.opened.check_current()
        path = str(self.request.record.folder / self.table.file)
        return {"labels": path if shown is None else shown}


class LabelWriter(ReleaseWriter):
    """Writes labels, and counts what is answered where a ledger remembers answers."""

    def __init__(self, request: PredictRequest, release: LabelRelease) -> None:
        """Take the room for them."""
        self.request = request
        self.release = release
        self._labels_file = LabelsFile(request)
        self.table = self._labels_file.table
        self.files = f"`{self.table.file}`"
        self.metrics = {"n_queries": len(release.features)}

    def write(self, drawn: Iterable[np.ndarray], claim: Claim) -> Written:
        questions = self.release.questions
        if not questions.remembered:
            return Written(self._labels_file.write(drawn))
        (labels,) = drawn  # a ledger's answers come in one piece
        result = self._labels_file.write([labels])
        counts = questions.counts(labels)
        self.request.record.add_metrics(**counts)
        answered = counts["answered"]
        drawn_now = self.release.reservation.size if self.release.reservation else 0
        repeated = answered - drawn_now
        asked = len(labels)
        line = (
            f"{answered} of {asked} queries were answered: {drawn_now} with newly drawn labels, "
            f"and {repeated} with labels that the ledger stores (at no cost)"
        )
        unanswered = ""
        if counts["unanswered"]:
            left = counts["unanswered"]
            rows = _rows_in_words(np.flatnonzero(labels == UNANSWERED))
            population = self.request.payer.name
            guarantee = self.release.claim.guarantee
            unanswered = (
                f"{line}. {left} queries were not answered ({rows}), because the remaining "
                f"budget of the ledger of {population} is too small for another label (each "
                f"label costs {guarantee})"
            )
        return Written(result, [line], unanswered)


class NumberWriter(ReleaseWriter):
    """Writes one number, into metrics.json."""

    files = "The released number"

    def __init__(self, request: PredictRequest, release: NumberRelease) -> None:
        """Write nothing yet."""
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
        """Take the room for the labels.

        Raises:
            ConfigError: the head does not take the queries, or a name has control characters.
        """
        model, features = request.opened.model, request.opened.queries.features
        self.request = request
        labels_from(model, features)  # because it refuses queries that the head does not take
        check_printable(model.problem.dataset, release.claim.lines())
        self._labels_file = LabelsFile(request, from_weights=True)
        self.table = self._labels_file.table
        labels_file = self.table.file
        self.files = f"`{labels_file}`, `released_weights.safetensors` and the folder `release`"
        self.metrics = {"n_queries": len(features)}

    def write(self, drawn: ReleasedWeights, claim: Claim) -> Written:
        opened = self.request.opened
        source = None if opened.kept.encoder is not None else opened.kept.settled
        lines, result = write_weights(opened.model, drawn, source, claim, self.request.record)
        answers = (
            labels_from(opened.model, piece)(drawn) for piece in pieces(opened.queries.features)
        )
        return Written({**result, **self._labels_file.write(answers)}, lines)


def writer_of(request: PredictRequest, release: AnyRelease) -> ReleaseWriter:
    """Return what writes a release, with the room on the disk that it needs.

    Raises:
        ConfigError: what would be released could not be read or answered from.
        OSError: there is too little room.
    """
    if isinstance(release, WeightsRelease):
        return WeightsWriter(request, release)
    if isinstance(release, NumberRelease):
        return NumberWriter(request, release)
    return LabelWriter(request, release)


@dataclass(frozen=True)
class ReleasePage:
    """What a finished record says of its release.

    Attributes:
        mechanism: its name.
        lines: what is guaranteed, and what else is to be said.
        files: what may be published, in words; None: nothing may.
        claim: of what was drawn; None: nothing was.
    """

    mechanism: str
    lines: Sequence[str]
    files: str | None
    claim: Claim | None = field(default=None)

    def finish(self, request: PredictRequest) -> None:
        """Write claim.json and the report, and finish the record."""
        record, opened = request.record, request.opened
        if self.claim is not None:
            record.write(CLAIM, self.claim.for_file(datetime.now(UTC).date()).content)
        about = opened.trained.words
        record.report(
            predict_report(
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
    """Write released weights, and the folder that answers without this run
    (agt/models/portable.py), where there can be one.

    Args:
        source: the settled configuration of the dataset (``prepare.settled``); None: queries pass
            an encoder.
        claim: of the release.
    """
    record.released_weights(
        released.weight, {**released.public_parameters, "simulated": released.simulated}
    )
    if released.simulated:
        return ["the folder 'release' was not written, because this is a simulation"], {}
    if source is None or (head := model.release_head) is None:
        return [
            (
                "the folder 'release' was not written, because answering queries needs the "
                "encoder, which only the training run contains"
            )
        ], {}
    portable = Portable.from_release(head, released, source, claim.lines(), claim.lines(brief=True))
    digest = portable.save(record.part("release"), claim.for_file().content)
    folder = record.folder / "release"
    said = (
        f"release: {folder} (digest {digest}). This folder may be published; agt predict "
        "release=... answers queries from it without the run"
    )
    return [said], {"release": str(folder), "release_digest": digest}


def _rows_in_words(places: np.ndarray) -> str:
    """Return the numbers of rows, counted from 1: rows 3, 7 to 9.

    Args:
        places: [m] the rows, counted from 0, in order.
    """
    stretches = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    texts = []
    for stretch in stretches[:MAX_STRETCHES_SHOWN]:
        first, last = stretch[0] + 1, stretch[-1] + 1
        texts.append(f"{first}" if first == last else f"{first} to {last}")
    more = sum(map(len, stretches[MAX_STRETCHES_SHOWN:]))
    others = f" and {more} more" if more else ""
    noun = "row" if len(places) == 1 else "rows"
    return f"{noun} {', '.join(texts)}{others}"
