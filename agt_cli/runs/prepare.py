"""From a configuration to what training and certification both need: settings and dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

import torch

from agt.data.checks import with_notes
from agt.data.dataset import Dataset, DataSource, Records
from agt.data.erasure import Gone, nobody, part
from agt.data.files import home, locate
from agt.errors import ConfigError, nearest
from agt.facts import Fact
from agt.models.heads import Head, head_of
from agt.problem import Problem, Settings
from agt.settings import (
    ComputeConfig,
    KGridConfig,
    RelationConfig,
    TrainingConfig,
    build,
    certificate_config,
    validate,
)
from agt.training.ensemble import EnsembleConfig
from agt.training.noise import noise_config
from agt_cli.papers.encoder import EncodedHead, Encoder, EncoderConfig, encode, load_encoder
from agt_cli.report.console import Console
from agt_cli.runs.choices import choices_fact, still_chosen

PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "compute": ComputeConfig,
    "ensemble": EnsembleConfig,
}
PATHS = ("output_dir", "data_dir", "ledger")
FILES = ("path", "test")  # a dataset's settings that name files


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """A training run's configuration: everything about the training, and where its data comes from."""

    source: DataSource


def settings_of(config: Mapping[str, Any], head: Head | None = None) -> RunSettings:
    """Validate a training configuration, before any data is read.

    Args:
        head: what ``config.model`` made when it was trained; None: make it.

    Raises:
        ConfigError: the first thing that is wrong, by key.
    """
    only_keys(config, ("dataset", "model", "certificate", "noise", "resume", *PARTS, *PATHS))
    if config.get("resume") is not None:
        raise ConfigError(f"resume={config['resume']}: agt train alone goes on with a run that was killed")
    config = {"ensemble": {}, **config}  # records older than ensembles do not name one
    parts: dict[str, Any] = {name: validate(cls, config.get(name), name) for name, cls in PARTS.items()}
    parts["certificate"] = certificate_config(config.get("certificate"))
    parts["noise"] = noise_config(config.get("noise"))
    parts["choices"] = choices_fact(config)
    source, model = build(config.get("dataset"), "dataset"), head or head_of(config.get("model"))
    if not hasattr(source, "load"):
        raise ConfigError(
            f"dataset._target_: {type(source).__name__} loads no data: it needs load() and load_queries(path)"
        )
    return RunSettings(source=source, model=model, **parts)


def data_files(source: DataSource) -> dict[str, dict[str, str]]:
    """Setting of the dataset -> where its file or folder lies, and a file's SHA-256: for opening the run elsewhere."""
    given = {key: getattr(source, key, None) for key in FILES}
    data_dir = home(Path(getattr(source, "data_dir", "")))
    there = {key: locate(path, data_dir, f"dataset.{key}").resolve() for key, path in given.items() if path is not None}
    hashed = {key: {"sha256": sha256_of(path)} for key, path in there.items() if path.is_file()}
    lies = {key: {"path": str(path), **hashed.get(key, {})} for key, path in there.items()}
    return lies | ({"data_dir": {"path": str(data_dir.resolve())}} if hasattr(source, "data_dir") else {})


def located(config: Mapping[str, Any], files: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A recorded configuration whose dataset lies where the run found it, if it is still there.

    Args:
        files: what ``data_files`` said then; empty: the run is older than that.
    """
    there = {key: entry["path"] for key, entry in files.items() if Path(entry["path"]).exists()}
    return {**config, "dataset": {**config["dataset"], **there}} if there else dict(config)


def sha256_of(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def only_keys(config: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a top-level key that nothing reads (+KEY=VALUE can add one)."""
    for key in config:
        if key not in known:
            raise ConfigError(f"unknown key '{key}'{nearest(key, known)}")


@dataclass(frozen=True)
class Prepared:
    """A dataset ready for the head.

    Attributes:
        loaded: the dataset as loaded, before any encoder; its digest names the data.
        dataset: features as the head takes them: an encoder's outputs, where there is one.
        choices: what the settings were chosen on, as far as the public rows that they name are still the same.
        erased: the records that were left out and the data still has, as the head takes them.
        untouched: whether that left every other record as it was.
        encoder: the frozen encoder, where there is one.
    """

    loaded: Dataset
    dataset: Dataset
    choices: Fact
    erased: Records
    untouched: Fact
    encoder: Encoder | None = None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.dataset.classes)

    def problem(self, settings: Settings) -> Problem:
        """To train on it with these settings."""
        initial = self.encoder.head() if self.encoder else None
        return Problem(self.dataset, replace(settings, choices=self.choices), initial)


def prepare(
    settings: RunSettings, console: Console, gone: Gone = nobody, before: Mapping[str, object] | None = None
) -> Prepared:
    """Load the data, with what its owner should know noted, and run it through the frozen encoder if there is one.

    Args:
        gone, before: as in ``agt.data.erasure.part``.
    """
    use_threads(settings.compute)
    parted = part(settings.source, gone, before)
    loaded, erased = with_notes(parted.rest, _normalized(settings)), parted.erased
    choices = still_chosen(settings.choices, settings.training.chosen_from, loaded, settings.source)
    config = encoder_of(settings)
    if config is None:
        return Prepared(loaded, loaded, choices, erased, parted.untouched)
    with console.progress("public encoder") as report:
        encoder = load_encoder(config, loaded, lambda step, of: report(step, of, step, of))
        erased = replace(erased, features=encoder.apply(erased.features))
        return Prepared(loaded, encode(encoder, loaded), choices, erased, parted.untouched, encoder)


def encoder_of(settings: Settings) -> EncoderConfig | None:
    """The settings of the frozen encoder in front of the head, where there is one."""
    return settings.model.encoder if isinstance(settings.model, EncodedHead) else None


def _normalized(settings: RunSettings) -> float | None:
    """How many training records a configured normaliser stands for: B of each batch of each member; None: none is."""
    batch = settings.training.batch
    return None if batch.normalizer is None else batch.normalizer * batch.count * settings.ensemble.members


def use_threads(compute: ComputeConfig) -> None:
    """Limit this process, PyTorch's and Numba's parts of it, to the threads asked for."""
    if compute.threads:
        import numba

        torch.set_num_threads(compute.threads)
        numba.set_num_threads(min(compute.threads, numba.config.NUMBA_NUM_THREADS))
