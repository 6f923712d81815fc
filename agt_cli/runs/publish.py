"""What a release leaves in its run's folder once it is drawn, and in which order: what it spends first."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.blocks import selected
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
    labels_from,
    prepare_quantile,
    prepare_weights,
    totals_of,
)
from agt.mechanisms.rigour import Accounting, Claim, Counting, Output
from agt.mechanisms.statement import Statement
from agt.mechanisms.weights import ReleasedWeights, ReleaseWeights
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
TOLD = 10_000  # labels that --json has in its object; more are in their file alone
_ODD = re.compile('[",\r\n]')


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
        earlier: says which weights, released earlier, answer; empty: something new is drawn.
        asked: the queries by question, where a ledger remembers answers.
    """

    claim: Claim
    mechanism: str
    files: str
    rows: np.ndarray
    wanted: int
    metrics: Mapping[str, float]
    prepare: Callable[[Receipt], Release[Any]]
    write: Callable[[Any, Statement], Written]
    earlier: str = ""
    asked: Asked | None = None

    def paid(self, receipt: Receipt) -> np.ndarray:
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
    if isinstance(mechanism, ReleaseWeights):
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
    rows = np.arange(len(features)) if asked is None else asked.new
    if len(rows):
        totals_of(labelling.mechanism.guarantee, len(rows), request.delta)  # refuses before anything is paid

    def prepare(receipt: Receipt) -> Release[np.ndarray]:
        if asked and not receipt.size:
            return Release(labelling.claim, lambda _: asked.labels({}), (), None, noisy=False)
        paid = selected(features, rows[: receipt.size])

        def draw(randomness: Randomness) -> np.ndarray:
            with certifying(opened.model, request.console) as on_progress:
                drawn = labelling.labels(paid, randomness, on_progress)
            return asked.labels(account.keep(receipt, asked.answers(drawn))) if asked else drawn

        return replace(labelling.release(paid, request.delta), draw=draw)

    metrics, name, write = {"n_queries": len(features)}, labelling.mechanism.name, _label_writer(request)
    return Publication(labelling.claim, name, "`labels.csv`", rows, len(rows), metrics, prepare, write, asked=asked)


def _number(mechanism: CertifiedQuantile, request: Request) -> Publication:
    release, rows = request.quantile(mechanism), np.arange(len(request.opened.queries))

    def draw(randomness: Randomness) -> int:
        with certifying(request.opened.model, request.console) as on_progress:
            return request.quantile(mechanism, on_progress).draw(randomness)

    def write(value: int, claim: Statement) -> Written:
        request.record.add_metrics(certified_quantile=value)
        line = f"{mechanism.fraction:g} of the queries are certified up to a distance of about {value}"
        return [line], {"certified_quantile": value}

    metrics, drawn = {"fraction": mechanism.fraction}, replace(release, draw=draw)
    return Publication(release.claim, mechanism.name, "That number", rows, 1, metrics, lambda _: drawn, write)


def _new_weights(mechanism: ReleaseWeights, request: Request) -> Publication:
    """Weights that are released now, and the labels that they give."""
    opened, record, write_labels = request.opened, request.record, _label_writer(request)
    answers = labels_from(opened.model, opened.queries.features)
    release = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=request.delta)

    def write(released: ReleasedWeights, claim: Statement) -> Written:
        source = None if opened.kept.encoder is not None else opened.kept.settled
        lines, result = write_weights(opened.model, released, source, claim, record)
        labelled, labels = write_labels(answers(released.weight), claim)
        return [*lines, *labelled], {**result, **labels}

    files, rows = "`labels.csv`, `released_weights.safetensors` and the folder `release`", np.arange(len(opened.queries))
    metrics = {"n_queries": len(rows)}
    return Publication(release.claim, mechanism.name, files, rows, 1, metrics, lambda _: release, write)


def write_weights(
    model: Model, released: ReleasedWeights, source: Mapping[str, Any] | None, claim: Statement, record: RunRecord
) -> tuple[list[str], dict[str, Any]]:
    """Write released weights, and the folder that answers without this run (portable.py), where there can be one.

    Args:
        source: the settled configuration of the dataset (``source.settled``); None: queries pass an encoder.
        claim: of the release.
    """
    noise = {"sigma": released.sigma, "step": released.step, "simulated": released.simulated}
    record.released_weights(released.weight, {**released.guarantee.parameters, **noise})
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
    answers, none = labels_from(opened.model, opened.queries.features), np.arange(0)
    weight, mechanism = earlier_weights(folder, request.mechanism.weights_digest, opened.trained.finished)
    judged = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=request.delta)
    release = Release(judged.claim, lambda _: answers(weight), judged.totals, judged.queries, judged.noisy)
    earlier = f"weights released earlier ({folder}): these labels spend nothing more"
    metrics, write = {"n_queries": len(opened.queries)}, _label_writer(request)
    return Publication(judged.claim, mechanism.name, "`labels.csv`", none, 0, metrics, lambda _: release, write, earlier)


def _label_writer(request: Request) -> Callable[[np.ndarray, Statement], Written]:
    """Writes labels.csv, whose room on the disk is taken at once; queries that were not answered are not in it."""
    names, classes = public_names(request.opened.queries.ids), request.opened.dataset.classes
    write_file = request.record.reserve("labels.csv", LabelTable(names, classes).size)

    def write(labels: np.ndarray, claim: Statement) -> Written:
        answered = labels != UNANSWERED
        table, labels = LabelTable(names[answered], classes), labels[answered]
        path = write_file(table.csv(labels))
        return [], {"labels": table.names_of(labels) if len(labels) <= TOLD else str(path)}

    return write


@dataclass(frozen=True)
class LabelTable:
    """labels.csv: names and labels of the queries, whose number of bytes has a public bound.

    Attributes:
        names: [n] str.
        classes: the labels' names.
    """

    names: np.ndarray
    classes: tuple[str, ...]

    @property
    def size(self) -> int:
        """As many bytes as it can come to: every label the longest."""
        longest = max(range(len(self.classes)), key=lambda label: len(_cell(self.classes[label]).encode()))
        return len(self.csv(np.full(len(self.names), longest)))

    def names_of(self, labels: np.ndarray) -> list[str]:
        """[n] class indices as names."""
        return [self.classes[label] for label in labels]

    def csv(self, labels: np.ndarray) -> bytes:
        """The file's content."""
        words = [_cell(name) for name in self.classes]
        names = self.names if not _ODD.search("".join(self.names)) else map(_cell, self.names)
        lines = (f"{name},{words[label]}\n" for name, label in zip(names, labels.tolist(), strict=True))
        return "".join(("record_id,label\n", *lines)).encode()


def _cell(word: str) -> str:
    """As a csv has it, in quotation marks where it must be."""
    return '"' + word.replace('"', '""') + '"' if _ODD.search(word) else word


def public_names(ids: np.ndarray) -> np.ndarray:
    """[n] str: the names that labels are published under: the ids that were given, or row numbers.

    Ids made from content also hash a test record's true label, so that whoever knows the record could test a guess of it.
    """
    names = ids.astype(str)
    made = all(CONTENT.fullmatch(name) for name in names.tolist())
    return np.arange(len(names)).astype(str) if made else names
