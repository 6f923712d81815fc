"""From a configuration to what training and certification both need: settings and dataset."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from agt.data.checks import with_notes
from agt.data.dataset import Dataset, Source
from agt.errors import ConfigError, nearest
from agt.facts import Fact
from agt.kernels.select import pick_device
from agt.models.features import check_dtype
from agt.models.heads import HeadConfig
from agt.relations import rows_at_stake
from agt.settings import (
    BoxConfig,
    CertificateConfig,
    ComputeConfig,
    ErmConfig,
    KGridConfig,
    RelationConfig,
    TrainingConfig,
    build,
    certificate_config,
    validate,
)
from agt.training.ensemble import EnsembleConfig
from agt.training.erm import check_erm
from agt.training.noise import NoiseConfig, noise_config, step_sensitivity
from agt.training.sensitivity import check_optimizer, rows_moved
from agt_cli.papers.encoder import EncodedHead, encode
from agt_cli.report.console import Console
from agt_cli.tasks.choices import choices_fact

PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "compute": ComputeConfig,
    "ensemble": EnsembleConfig,
}
PATHS = ("output_dir", "data_dir")


@dataclass(frozen=True)
class Settings:
    """A training run's configuration, every part of it typed and valid; ``choices``: what its settings were chosen on."""

    source: Source
    model: HeadConfig
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig
    certificate: CertificateConfig
    ensemble: EnsembleConfig
    noise: NoiseConfig | None
    choices: Fact


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Validate a training configuration, before any data is read.

    Raises:
        ConfigError: the first thing that is wrong, by key.
    """
    only_keys(config, ("dataset", "model", "certificate", "noise", *PARTS, *PATHS))
    config = {"ensemble": {}, **config}  # records older than ensembles do not name one
    parts: dict[str, Any] = {name: validate(cls, config.get(name), name) for name, cls in PARTS.items()}
    parts["certificate"] = certificate_config(config.get("certificate"))
    parts["noise"] = noise_config(config.get("noise"))
    parts["choices"] = choices_fact(config)
    pick_device(parts["compute"])
    settings = Settings(build(config.get("dataset"), "dataset"), build(config.get("model"), "model"), **parts)
    if not isinstance(settings.certificate, BoxConfig):
        _check_linear(settings)
    _check_noise(settings)
    rows_at_stake(settings.kgrid.ks, settings.relation.unit_rows)
    return settings


def _check_linear(settings: Settings) -> None:
    """Refuse what no closed form covers. The step size also depends on the data's declared size: see training/.

    Raises:
        ConfigError: hidden layers, momentum, a relation or features that the proofs leave out.
    """
    if settings.model.hidden:
        raise ConfigError(
            f"model.hidden={list(settings.model.hidden)}: certificate={settings.certificate.name} is proved for linear "
            "heads alone (no hidden layers): use model=linear, or certificate=box"
        )
    if settings.compute.device != "cpu":
        raise ConfigError(
            f"compute.device={settings.compute.device}: certificate={settings.certificate.name} runs on the CPU, where it "
            "takes seconds: use compute=default"
        )
    rows_moved(settings.relation)
    check_optimizer(settings.training)
    if isinstance(settings.certificate, ErmConfig):
        check_erm(settings.training)
    if not isinstance(settings.certificate, BoxConfig):
        check_dtype(settings.certificate.features, settings.training.dtype)


def _check_noise(settings: Settings) -> None:
    """Refuse noise where nothing is proved about it.

    Raises:
        ConfigError: a linear certificate, an ensemble, or a relation whose steps are means over the actual batch.
    """
    if settings.noise is None:
        return
    if not isinstance(settings.certificate, BoxConfig):
        raise ConfigError(
            f"noise.epsilon: certificate={settings.certificate.name} trains without noise in its steps; agt predict "
            "mechanism=release_weights adds it once, at the end, and needs less"
        )
    if settings.ensemble.members > 1:
        raise ConfigError(
            f"noise.epsilon: ensemble.members={settings.ensemble.members}: an ensemble answers by vote and its weights are "
            "not released: leave the noise out, or train one model"
        )
    if settings.relation.name == "remove":
        raise ConfigError(
            "noise.epsilon: relation=remove is for unlearning, and training again draws other noise than this run met, so "
            "its certificates would say nothing about it; nor do removals alone make a privacy guarantee: use "
            "relation=add_remove"
        )
    step_sensitivity(settings.relation.name, settings.training.clip, 1, 1.0)


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
        initial: ``weight.0``, ``bias.0``, ...: the encoder's base model's dense layers, where there is one.
    """

    loaded: Dataset
    dataset: Dataset
    initial: dict[str, Tensor] | None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.dataset.classes)


def prepare(settings: Settings, console: Console) -> Prepared:
    """Load the data, with what its owner should know noted, and run it through the frozen encoder if there is one."""
    use_threads(settings.compute)
    loaded = dataset = with_notes(settings.source.load(), _normalized(settings))
    initial: dict[str, Tensor] | None = None
    encoder = settings.model.encoder if isinstance(settings.model, EncodedHead) else None
    if encoder is not None:
        with console.progress("public encoder") as report:
            dataset, initial = encode(encoder, loaded, lambda step, of: report(step, of, step, of))
    return Prepared(loaded, dataset, initial)


def _normalized(settings: Settings) -> float | None:
    """How many training records a configured normaliser stands for: B of each batch of each member; None: none is."""
    batch = settings.training.batch
    return None if batch.normalizer is None else batch.normalizer * batch.count * settings.ensemble.members


def use_threads(compute: ComputeConfig) -> None:
    """Limit this process, PyTorch's and Numba's parts of it, to the threads asked for."""
    if compute.threads:
        import numba

        torch.set_num_threads(compute.threads)
        numba.set_num_threads(min(compute.threads, numba.config.NUMBA_NUM_THREADS))
