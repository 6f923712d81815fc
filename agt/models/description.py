"""Conversion of a training's input (``Problem``), without its records, to JSON values and back.

Saved models and training runs store these values. They hold the settings, the data's public
constants and the evidence about the conditions of its certificates. They hold the number of records
only if no size was declared.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.data.in_memory import query_records
from agt.data.target import read_target
from agt.documents import FACTS_AS_TEXT, check_form
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
from agt.training.settings import EnsembleConfig

MODEL_FORMAT = 2
"""The version of the JSON values that ``describe`` returns."""
FORMAT_OF_TEXT = 1
"""The version whose facts are sentences."""
SETTINGS_PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "ensemble": EnsembleConfig,
}
"""Attribute of ``Settings``, which is also its key under "settings" -> the class of its value."""


def describe(problem: Problem) -> dict[str, Any]:
    """Return the input of a training as JSON values, without the records.

    ``read_problem`` reads it back. The noise of training and the device are left out, because
    answering queries with a saved model needs neither.
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
    """Return a description of a problem's dataset as JSON values, without its records.

    ``read_dataset`` reads it back.

    Args:
        problem: has the dataset, and the number of records of each member of an ensemble.
    """
    dataset = problem.dataset
    description = {
        "shape": dataset.train.features.shape[1:],  # of one record's features
        **dataset.target.description,
        "declared_size": dataset.declared_size,  # a public number of records, or None
        # The exact number of records is private, so it is stored only if no size was declared.
        "records": None if dataset.declared_size is not None else problem.member_record_counts,
        # Evidence for three conditions of a privacy guarantee (docs/method.md): each record is
        # processed by itself (b), preprocessing is public (e), constants are public (c).
        "selection": asdict(dataset.selection),
        "preprocessing": asdict(dataset.preprocessing),
        "size": None if dataset.size is None else asdict(dataset.size),
    }
    # Keys that are left out where they are false: files of earlier versions had neither.
    if dataset.label_free:
        description["label_free"] = True
    if dataset.train.units_named:
        description["units"] = True
    return description


def check_model_format(model_format: object, name: str) -> None:
    """Raise ConfigError unless this version of agt reads a format of ``describe``.

    Args:
        model_format: the entry "format" of a file.
        name: the name of the file in messages.

    Raises:
        Superseded: only earlier versions wrote the format, in which facts are sentences.
        ConfigError: the format is unknown.
    """
    if model_format == FORMAT_OF_TEXT:
        check_form(FACTS_AS_TEXT, name, "train again")
    if model_format != MODEL_FORMAT:
        raise ConfigError(
            f"{name} has format {model_format}, but this version of agt reads format "
            f"{MODEL_FORMAT}: train again, or use the version that wrote it"
        )


def read_problem(node: Mapping[str, Any], compute: ComputeConfig) -> Problem:
    """Return the input of a training, without records, from the JSON values of ``describe``.

    Args:
        node: the values, read from JSON.
        compute: the device, threads and memory to use on this machine.

    Raises:
        Superseded: the values hold facts as sentences.
        ConfigError: the format is unknown, or this version refuses a setting.
        ValueError, TypeError, KeyError: ``describe`` did not return ``node``.
    """
    check_model_format(node["format"], "model.json")
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
    return Problem(dataset, settings, stored_record_counts=records)


def read_dataset(
    node: Mapping[str, Any], name: str
) -> tuple[Dataset, int | tuple[int, ...] | None]:
    """Return a dataset without records from the JSON values of ``describe_dataset``.

    Args:
        node: the values, read from JSON.
        name: the name of the dataset in tables.

    Returns:
        The dataset, and how many records it had: one number, or one for each member of an ensemble;
        None if a size was declared.

    Raises:
        ValueError, TypeError, KeyError: ``describe_dataset`` did not return ``node``.
    """
    records = node["records"]
    if isinstance(records, list):
        records = tuple(records)
    _check_size(node["declared_size"], records)
    no_records = query_records(np.empty((0, *node["shape"])))
    # Without records, units are taken as named if they are another array object than the ids.
    if node.get("units") is True:
        no_records = replace(no_records, units=no_records.ids.copy())
    size = None if node["size"] is None else fact_of(node["size"])
    dataset = Dataset(
        name=name,
        target=read_target(node),
        train=no_records,
        test=no_records,
        declared_size=node["declared_size"],
        scaling={},
        selection=evidence_from_json(node["selection"]),
        preprocessing=evidence_from_json(node["preprocessing"]),
        size=size,
        label_free=node.get("label_free") is True,
        may_be_empty=True,  # only such a dataset, one member's part of the data, may be empty
    )
    return dataset, records


def _check_size(declared_size: Any, records: Any) -> None:
    """Raise ValueError unless exactly one of a declared size and a number of records is given.

    Args:
        declared_size: the value read from a file. Valid are a number of at least 0, and None.
        records: the value read from a file. Valid are a number of records of at least 0, a tuple
            of such numbers (one for each member of an ensemble), and None.
    """
    counts = records if isinstance(records, tuple) else (records,)
    # ``type``, because isinstance() would accept True and False as integers.
    are_counts = all(type(count) is int and count >= 0 for count in counts)
    if declared_size is None and not are_counts:
        raise ValueError(f"records is {records!r}")
    is_size = type(declared_size) in (int, float) and declared_size >= 0
    if declared_size is not None and not is_size:
        raise ValueError(f"declared_size is {declared_size!r}")
    if (declared_size is None) == (records is None):
        raise ValueError(
            "a model file must contain exactly one of 'declared_size' and 'records': train again"
        )


def _describe_head(problem: Problem) -> dict[str, Any]:
    """Return the architecture of a problem's head (the network that is trained) as JSON values.

    A linear head or MLP is stored by its settings, any other network as a list of its layers.
    Parameters are not included.
    """
    head = problem.settings.model
    # A subclass of HeadConfig has more settings than these two.
    if type(head) is HeadConfig:
        return {"hidden": head.hidden, "activation": head.activation}
    record_shape = problem.dataset.train.features.shape[1:]
    network = head.build(record_shape, problem.classes, problem.settings.training)
    description: dict[str, Any] = {"layers": describe_layers(network)}
    if isinstance(head, CustomNetwork):
        description["public_start"] = head.public_start
    return description


def _read_head(node: Mapping[str, Any]) -> HeadBuilder:
    """Return the head (a builder of the network) from the JSON values of ``_describe_head``.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    if "layers" in node:
        # Files of earlier versions do not say whether anybody declared it.
        public_start = node.get("public_start", False)
        if public_start not in (True, False, None):
            raise ValueError(f"public_start is {public_start!r}")
        make = partial(from_layers, node["layers"])
        return CustomNetwork(make, "the network given", public_start)
    return validate(HeadConfig, node, "network")
