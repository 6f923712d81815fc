"""From a configuration to what training and certification both need: settings, dataset, head."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agt_cli.bounds.network import Network
from agt_cli.data.dataset import Dataset, Records, Source
from agt_cli.errors import ConfigError, nearest
from agt_cli.kernels.select import pick_device
from agt_cli.models.encoder import encode
from agt_cli.models.heads import HeadConfig, build_head
from agt_cli.report.console import Console
from agt_cli.schema import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig, build, validate

PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "compute": ComputeConfig,
}
PATHS = ("output_dir", "data_dir")
BLOCK = 8192


@dataclass(frozen=True)
class Settings:
    """A training run's configuration, every part of it typed and valid."""

    source: Source
    model: HeadConfig
    training: TrainingConfig
    relation: RelationConfig
    kgrid: KGridConfig
    compute: ComputeConfig


def settings_of(config: Mapping[str, Any]) -> Settings:
    """Validate a training configuration, before any data is read.

    Raises:
        ConfigError: the first thing that is wrong, by key.
    """
    only_keys(config, ("dataset", "model", *PARTS, *PATHS))
    parts: dict[str, Any] = {name: validate(cls, config.get(name), name) for name, cls in PARTS.items()}
    pick_device(parts["compute"])
    return Settings(build(config.get("dataset"), "dataset"), build(config.get("model"), "model"), **parts)


def only_keys(config: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a top-level key that nothing reads (+KEY=VALUE can add one)."""
    for key in config:
        if key not in known:
            raise ConfigError(f"unknown key '{key}'{nearest(key, known)}")


@dataclass(frozen=True)
class Prepared:
    """A dataset ready for the head, and the head with its initial parameters.

    Attributes:
        loaded: the dataset as loaded, before any encoder; its digest names the data.
        dataset: features as the head takes them: an encoder's outputs, where there is one.
        head: initial parameters: the encoder's base model's dense layers where they fit, else drawn from the seed.
    """

    loaded: Dataset
    dataset: Dataset
    head: nn.Sequential

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.dataset.classes)


def prepare(settings: Settings, console: Console) -> Prepared:
    """Load the data, run it through the frozen encoder if there is one, and build the head."""
    use_threads(settings.compute)
    loaded = dataset = settings.source.load()
    initial: dict[str, Tensor] | None = None
    if settings.model.encoder is not None:
        with console.progress("public encoder") as report:
            dataset, initial = encode(settings.model.encoder, loaded, lambda step, of: report(step, of, step, of))
    shape = dataset.train.features.shape[1:]
    head = build_head(shape, len(dataset.classes), settings.model, settings.training)
    if initial and not start_from(head, initial):
        console.note("the head differs in shape from the encoder's base model: it starts from random parameters")
    return Prepared(loaded, dataset, head)


def start_from(head: nn.Sequential, initial: Mapping[str, Tensor]) -> bool:
    """Copy ``weight.0``, ``bias.0``, ``weight.1``, ... into the head's linear layers; False if a shape differs."""
    layers = [layer for layer in head if isinstance(layer, nn.Linear)]
    pairs = [(getattr(layer, kind), f"{kind}.{i}") for i, layer in enumerate(layers) for kind in ("weight", "bias")]
    if {name for _, name in pairs} != set(initial) or any(p.shape != initial[name].shape for p, name in pairs):
        return False
    with torch.no_grad():
        for parameter, name in pairs:
            parameter.copy_(initial[name])
    return True


def accuracy(prepared: Prepared, settings: Settings, nominal: Mapping[str, Tensor], records: Records) -> float:
    """The fraction of records that the nominal model labels right."""
    network = _network(prepared, settings)
    right = sum(
        int((network.predict(x, dict(nominal)).numpy() == records.labels[rows]).sum())
        for rows, x in _blocks(records.features, settings)
    )
    return right / len(records)


def nominal_margins(
    prepared: Prepared, settings: Settings, nominal: Mapping[str, Tensor], features: np.ndarray
) -> np.ndarray:
    """[1, n] the logit, or logit difference, of two classes; else [classes, n] each class's logit less the best other."""
    network = _network(prepared, settings)
    logits = torch.cat([network.logits(x, dict(nominal)) for _, x in _blocks(features, settings)]).numpy().T
    if len(logits) <= 2:
        return logits[-1:] - logits[:1] if len(logits) == 2 else logits
    best = np.stack([np.delete(logits, c, axis=0).max(axis=0) for c in range(len(logits))])
    return logits - best


def _network(prepared: Prepared, settings: Settings) -> Network:
    return Network.of(prepared.head, settings.training.loss, prepared.classes)


def _blocks(features: np.ndarray, settings: Settings) -> Iterator[tuple[slice, Tensor]]:
    dtype = getattr(torch, settings.training.dtype)
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        yield rows, torch.from_numpy(np.ascontiguousarray(features[rows])).to(dtype)


def use_threads(compute: ComputeConfig) -> None:
    """Limit this process, PyTorch's and Numba's parts of it, to the threads asked for."""
    if compute.threads:
        import numba

        torch.set_num_threads(compute.threads)
        numba.set_num_threads(min(compute.threads, numba.config.NUMBA_NUM_THREADS))
