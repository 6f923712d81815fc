"""A problem without its records, as plain values: what a saved model, or a training run, keeps of
it and reads back.

Nothing of the data but its public constants, what is known of its conditions and, where nobody
declared a size, how many records there were.
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
from agt.models.heads import CustomNetwork, HeadConfig, LayerList, describe_layers, from_layers
from agt.models.kinds import certificate_config
from agt.problem import Problem, Settings
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig, validate
from agt.training.ensemble import EnsembleConfig

FORMAT = 2
READABLE = (1, FORMAT)
"""In format 1 facts are text."""
PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "ensemble": EnsembleConfig,
}


def describe(problem: Problem) -> dict[str, Any]:
    """What ``problem_of`` reads back, to be written as JSON."""
    settings = problem.settings
    return {
        "format": FORMAT,
        **describe_dataset(problem),
        "choices": asdict(settings.choices),
        "settings": {part: asdict(getattr(settings, part)) for part in (*PARTS, "certificate")},
        "head": _head(problem),
    }


def describe_dataset(problem: Problem) -> dict[str, Any]:
    """What ``dataset_of`` reads back: a part of the same."""
    dataset = problem.dataset
    return {
        "shape": dataset.train.features.shape[1:],
        "names": dataset.classes,
        "declared_size": dataset.declared_size,
        "records": None if dataset.declared_size is not None else problem.counts,
        "selection": asdict(dataset.selection),
        "preprocessing": asdict(dataset.preprocessing),
        "size": None if dataset.size is None else asdict(dataset.size),
        **({"label_free": True} if dataset.label_free else {}),
        **({"units": True} if dataset.train.units_named else {}),
    }


def problem_of(node: Mapping[str, Any], compute: ComputeConfig) -> Problem:
    """The problem that was described, without its records.

    Raises:
        ConfigError: another format, or settings that this version refuses.
        ValueError, TypeError, KeyError: no description.
    """
    if node["format"] not in READABLE:
        raise ConfigError(
            f"model.json: the model was saved in format {node['format']}, but this version "
            f"of agt reads format {FORMAT}"
        )
    kept, head = node["settings"], node["head"]
    settings = Settings(
        model=_own(head["layers"]) if "layers" in head else validate(HeadConfig, head, "network"),
        compute=compute,
        certificate=certificate_config(kept["certificate"]),
        noise=None,
        choices=fact_of(node["choices"]),
        **{part: validate(kind, kept[part], part) for part, kind in PARTS.items()},
    )
    dataset, records = dataset_of(node, "arrays")
    return Problem(dataset, settings, records=records)


def dataset_of(node: Mapping[str, Any], name: str) -> tuple[Dataset, int | tuple[int, ...] | None]:
    """The dataset that was described, without its records; and how many there were, as
    ``Problem.records`` has it.

    Args:
        name: what tables call it.

    Raises:
        ValueError, TypeError, KeyError: no description.
    """
    size, declared = node["size"], node["declared_size"]
    records = tuple(node["records"]) if isinstance(node["records"], list) else node["records"]
    counts = records if isinstance(records, tuple) else (records,)
    if declared is None and not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError(f"records is {records!r}")
    if declared is not None and not (type(declared) in (int, float) and declared >= 0):
        raise ValueError(f"declared_size is {declared!r}")
    if (declared is None) == (records is None):
        raise ValueError("exactly one of declared_size and records must be a number")
    nobody = query_records(np.empty((0, *node["shape"])))
    nobody = replace(nobody, units=nobody.ids.copy()) if node.get("units") is True else nobody
    dataset = Dataset(
        name=name,
        classes=tuple(node["names"]),
        train=nobody,
        test=nobody,
        declared_size=declared,
        scaling={},
        selection=evidence_from_json(node["selection"]),
        preprocessing=evidence_from_json(node["preprocessing"]),
        size=None if size is None else fact_of(size),
        label_free=node.get("label_free") is True,
        shard=True,
    )
    return dataset, records


def _head(problem: Problem) -> dict[str, Any]:
    head, shape = problem.settings.model, problem.dataset.train.features.shape[1:]
    if type(head) is HeadConfig:
        return {"hidden": head.hidden, "activation": head.activation}
    return {
        "layers": describe_layers(head.build(shape, problem.classes, problem.settings.training))
    }


def _own(layers: LayerList) -> CustomNetwork:
    return CustomNetwork(partial(from_layers, layers), "the network given")
