"""A problem without its records as JSON values, which saved models and training runs store.

Of the data they hold its public constants and what is known of its conditions. They hold the number
of records as well if no size was declared.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.data.labelled import query_records
from agt.errors import ConfigError
from agt.facts import evidence_from_json, fact_of
from agt.models.heads import (
    CustomNetwork,
    HeadBuilder,
    HeadConfig,
    describe_layers,
    from_layers,
)
from agt.models.kinds import certificate_config
from agt.problem import Problem, Settings
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig, validate
from agt.training.ensemble import EnsembleConfig

MODEL_FORMAT = 2
READABLE_FORMATS = (1, MODEL_FORMAT)
"""The formats that this version reads. In format 1 facts are text."""
SETTINGS_PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "ensemble": EnsembleConfig,
}


def describe(problem: Problem) -> dict[str, Any]:
    """Return a problem without its records as JSON values, which ``read_problem`` reads back.

    Noise in training and the device are left out: they do not belong to the saved model.
    """
    settings = problem.settings
    parts = (*SETTINGS_PARTS, "certificate")
    return {
        "format": MODEL_FORMAT,
        **describe_dataset(problem),
        "choices": asdict(settings.choices),
        "settings": {part: asdict(getattr(settings, part)) for part in parts},
        "head": _describe_head(problem),
    }


def describe_dataset(problem: Problem) -> dict[str, Any]:
    """Return the part of ``describe`` that is about the data, which ``read_dataset`` reads back."""
    dataset = problem.dataset
    description = {
        "shape": dataset.train.features.shape[1:],
        "names": dataset.classes,
        "declared_size": dataset.declared_size,
        "records": None if dataset.declared_size is not None else problem.counts,
        "selection": asdict(dataset.selection),
        "preprocessing": asdict(dataset.preprocessing),
        "size": None if dataset.size is None else asdict(dataset.size),
    }
    # Left out where they are false, as in files of versions that had neither.
    if dataset.label_free:
        description["label_free"] = True
    if dataset.train.units_named:
        description["units"] = True
    return description


def read_problem(node: Mapping[str, Any], compute: ComputeConfig) -> Problem:
    """Return the problem that ``describe`` described, without its records.

    Args:
        node: the description, read from JSON.
        compute: the device and its settings, which are this machine's own.

    Raises:
        ConfigError: the description has another format, or settings that this version refuses.
        ValueError, TypeError, KeyError: ``node`` is not a description.
    """
    if node["format"] not in READABLE_FORMATS:
        raise ConfigError(
            f"model.json: the model was saved in format {node['format']}, but this version "
            f"of agt reads format {MODEL_FORMAT}"
        )
    stored = node["settings"]
    parts = {name: validate(part, stored[name], name) for name, part in SETTINGS_PARTS.items()}
    settings = Settings(
        model=_read_head(node["head"]),
        compute=compute,
        certificate=certificate_config(stored["certificate"]),
        noise=None,
        choices=fact_of(node["choices"]),
        **parts,
    )
    dataset, records = read_dataset(node, "arrays")
    return Problem(dataset, settings, records=records)


def read_dataset(
    node: Mapping[str, Any], name: str
) -> tuple[Dataset, int | tuple[int, ...] | None]:
    """Return the dataset that ``describe_dataset`` described, without its records.

    Args:
        node: the description, read from JSON.
        name: what tables call the dataset.

    Returns:
        The dataset; and how many records it had, as in ``Problem.records``: None if a size was
        declared.

    Raises:
        ValueError, TypeError, KeyError: ``node`` is not a description.
    """
    records = node["records"]
    if isinstance(records, list):
        records = tuple(records)
    _check_size(node["declared_size"], records)
    no_records = query_records(np.empty((0, *node["shape"])))
    if node.get("units") is True:
        no_records = replace(no_records, units=no_records.ids.copy())
    size = node["size"]
    dataset = Dataset(
        name=name,
        classes=tuple(node["names"]),
        train=no_records,
        test=no_records,
        declared_size=node["declared_size"],
        scaling={},
        selection=evidence_from_json(node["selection"]),
        preprocessing=evidence_from_json(node["preprocessing"]),
        size=None if size is None else fact_of(size),
        label_free=node.get("label_free") is True,
        shard=True,
    )
    return dataset, records


def _check_size(declared_size: Any, records: Any) -> None:
    """Raise ValueError unless either a declared size or numbers of records are recorded.

    Args:
        declared_size: as read; a number of at least 0, or None.
        records: as read; a number of records, one for each member of an ensemble, or None.
    """
    counts = records if isinstance(records, tuple) else (records,)
    are_counts = all(type(count) is int and count >= 0 for count in counts)
    if declared_size is None and not are_counts:
        raise ValueError(f"records is {records!r}")
    is_size = type(declared_size) in (int, float) and declared_size >= 0
    if declared_size is not None and not is_size:
        raise ValueError(f"declared_size is {declared_size!r}")
    if (declared_size is None) == (records is None):
        raise ValueError(
            "a model file must have either declared_size or records as a number, not both"
        )


def _describe_head(problem: Problem) -> dict[str, Any]:
    """Return a head as JSON values; of a network of the user's own, its list of layers."""
    head = problem.settings.model
    if type(head) is HeadConfig:
        return {"hidden": head.hidden, "activation": head.activation}
    record_shape = problem.dataset.train.features.shape[1:]
    network = head.build(record_shape, problem.classes, problem.settings.training)
    return {"layers": describe_layers(network)}


def _read_head(node: Mapping[str, Any]) -> HeadBuilder:
    """Return the head that ``_describe_head`` described."""
    if "layers" in node:
        return CustomNetwork(partial(from_layers, node["layers"]), "the network given")
    return validate(HeadConfig, node, "network")
