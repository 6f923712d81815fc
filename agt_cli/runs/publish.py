"""What a release leaves in its run's folder once it is drawn, and in which order: what it spends first."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.portable import Portable
from agt.mechanisms.release import Release, labels_from, prepare_labels, prepare_quantile, prepare_weights
from agt.mechanisms.rigour import Accounting, Counting
from agt.mechanisms.weights import ReleasedWeights, ReleaseWeights
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.mechanisms import MechanismConfig, earlier_weights
from agt_cli.runs.model import certifying
from agt_cli.runs.queries import OpenedRun

TOLD = 10_000  # labels that --json has in its object; more are in their file alone
_ODD = re.compile('[",\r\n]')
CONTENT = re.compile("[0-9a-f]{32}")  # what data/ids.py makes


@dataclass(frozen=True)
class Publication:
    """A release, and how what is drawn is written.

    Attributes:
        release: ready to be drawn.
        mechanism: its name.
        files: what may be published, in words.
        metrics: what is known before the draw.
        write: what was drawn -> (what it says in lines, the command's object for it), once it is in the folder.
        earlier: says which weights, released earlier, answer; empty: something new is drawn.
    """

    release: Release[Any]
    mechanism: str
    files: str
    metrics: Mapping[str, float]
    write: Callable[[Any], tuple[list[str], dict[str, Any]]]
    earlier: str = ""

    def words(self, simulated: bool) -> list[str]:
        """What may be said, a line each, the claim first."""
        return [*self.release.words(simulated), *([self.earlier] if self.earlier else [])]


def prepare_publication(
    config: MechanismConfig,
    opened: OpenedRun,
    accounting: Accounting,
    counting: Counting,
    record: RunRecord,
    console: Console,
) -> Publication:
    """Everything that can fail, and the room on the disk for what will be drawn."""
    model, features, delta = opened.model, opened.queries.features, config.total.delta
    if config.weights is not None:
        return _kept_weights(config.weights, config, opened, record)
    mechanism = config.mechanism(opened.model.problem.classes, len(features))
    if isinstance(mechanism, ReleaseWeights):
        return _new_weights(mechanism, delta, opened, record)
    common: dict[str, Any] = {"conditions": opened.conditions, "accounting": accounting, "counting": counting}
    if isinstance(mechanism, CertifiedQuantile):
        with certifying(model, console) as on_progress:
            number = prepare_quantile(model, features, mechanism, **common, on_progress=on_progress)
        return _number(number, mechanism, record)
    with certifying(model, console) as on_progress:
        labels = prepare_labels(model, features, mechanism, **common, delta=delta, on_progress=on_progress)
    return Publication(labels, mechanism.name, "`labels.csv`", {"n_queries": len(features)}, _label_writer(opened, record))


def _number(release: Release[int], mechanism: CertifiedQuantile, record: RunRecord) -> Publication:
    def write(value: int) -> tuple[list[str], dict[str, Any]]:
        record.add_metrics(certified_quantile=value)
        line = f"{mechanism.fraction:g} of the queries are certified up to a distance of about {value}"
        return [line], {"certified_quantile": value}

    return Publication(release, mechanism.name, "That number", {"fraction": mechanism.fraction}, write)


def _new_weights(mechanism: ReleaseWeights, delta: float, opened: OpenedRun, record: RunRecord) -> Publication:
    """Weights that are released now, and the labels that they give."""
    answers = labels_from(opened.model, opened.queries.features)
    release = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=delta)
    write_labels = _label_writer(opened, record)

    def write(released: ReleasedWeights) -> tuple[list[str], dict[str, Any]]:
        source = None if opened.kept.encoder is not None else opened.kept.settled
        lines, result = write_weights(opened.model, released, source, release.words(), record)
        labelled, labels = write_labels(answers(released.weight))
        return [*lines, *labelled], {**result, **labels}

    files = "`labels.csv`, `released_weights.safetensors` and the folder `release`"
    return Publication(release, mechanism.name, files, {"n_queries": len(opened.queries)}, write)


def write_weights(
    model: Model, released: ReleasedWeights, source: Mapping[str, Any] | None, words: Sequence[str], record: RunRecord
) -> tuple[list[str], dict[str, Any]]:
    """Write released weights, and the folder that answers without this run (portable.py), where there can be one.

    Args:
        source: the settled configuration of the dataset (``source.settled``); None: queries pass an encoder.
        words: of the release, the claim first.
    """
    noise = {"sigma": released.sigma, "step": released.step, "simulated": released.simulated}
    record.released_weights(released.weight, {**released.guarantee.parameters, **noise})
    if released.simulated:
        return ["no folder release: a simulation is none"], {}
    if source is None or not isinstance(model, LinearModel):
        return ["no folder release: queries pass an encoder, which is in the training run alone"], {}
    digest = Portable.of(model, released, source, words).save(record.part("release"))
    folder = record.folder / "release"
    said = f"release: {folder} (digest {digest}): it may be published, and answers without this run"
    return [said], {"release": str(folder), "release_digest": digest}


def _kept_weights(folder: Path, config: MechanismConfig, opened: OpenedRun, record: RunRecord) -> Publication:
    """The labels that weights released earlier give: nothing is drawn."""
    answers = labels_from(opened.model, opened.queries.features)
    weight, mechanism = earlier_weights(folder, config.weights_digest, opened.trained.finished)
    release = prepare_weights(opened.model, mechanism, conditions=opened.conditions, delta=config.total.delta)
    kept = Release(release.claim, lambda _: answers(weight), release.totals, release.queries, release.noisy)
    earlier = f"weights released earlier ({folder}): these labels spend nothing more"
    metrics = {"n_queries": len(opened.queries)}
    return Publication(kept, mechanism.name, "`labels.csv`", metrics, _label_writer(opened, record), earlier)


def _label_writer(opened: OpenedRun, record: RunRecord) -> Callable[[np.ndarray], tuple[list[str], dict[str, Any]]]:
    """Writes labels.csv, whose room on the disk is taken at once."""
    table = LabelTable(public_names(opened.queries.ids), opened.dataset.classes)
    write_file = record.reserve("labels.csv", table.size)

    def write(labels: np.ndarray) -> tuple[list[str], dict[str, Any]]:
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
