"""The files of a saved model, in whatever folder: writing them, and reading them back checked.

| file                              | what it holds                                              |
|-----------------------------------|------------------------------------------------------------|
| model.safetensors                 | nominal parameters; of a linear head "weight" [J, width]   |
| bounds/k=00005.safetensors        | of boxes: "lower.NAME" and "upper.NAME" at one k           |
| features.safetensors              | the matrices of a public feature map                       |
| stability.json                    | the constants of a linear head's sensitivity               |
| removal.safetensors, removal.json | what removals of records start from                        |
| network.json                      | the layers of a network of the user's own                  |
| members/000/...                   | the files of each member of an ensemble                    |
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from agt.bounds.box import Box
from agt.errors import ConfigError, UnsoundError
from agt.store import as_json
from agt.training.checkpoint import Tensors, read_safetensors_header

MODEL = "model.safetensors"
FEATURES = "features.safetensors"
CONSTANTS = "stability.json"
BOUNDS = "bounds"
NETWORK = "network.json"


class FileWriter(Protocol):
    """A folder that files are written to; ``agt.store`` has several."""

    def write(self, name: str, content: bytes) -> object:
        """Write one file, all of it or, if that fails, nothing.

        Args:
            name: relative to the folder, with / between the parts.
            content: the whole file.
        """

    def part(self, name: str) -> "FileWriter":
        """Return a writer for a subfolder."""


class FileReader(Protocol):
    """A folder that files are read from, each of them as it was written or not at all.

    Attributes:
        folder: where it is, for messages.
    """

    @property
    def folder(self) -> Path: ...

    def read(self, name: str) -> bytes:
        """Return the content of one file.

        Raises:
            ConfigError: the file is missing, or is not what was written.
        """

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object that a file holds.

        Raises:
            ConfigError: the file is missing, is not what was written, or holds no JSON object.
        """

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a subfolder, relative to it."""

    def part(self, name: str) -> "FileReader":
        """Return a reader for a subfolder."""


def bounds_file(k: int) -> str:
    """Return the name of the file that holds the box of one k."""
    return f"{BOUNDS}/k={k:05d}.safetensors"


def write_boxes(writer: FileWriter, box: Box) -> None:
    """Write the nominal parameters, and a file of bounds for each k."""
    nominal = {name: tensor.contiguous() for name, tensor in box.nominal.items()}
    writer.write(MODEL, save(nominal))
    for k_index, k in enumerate(box.ks):
        bounds: Tensors = {}
        for end, tensors in (("lower", box.lower), ("upper", box.upper)):
            for name, tensor in tensors.items():
                bounds[f"{end}.{name}"] = tensor[k_index].contiguous()
        writer.write(bounds_file(k), save(bounds, metadata={"k": str(k)}))


def write_tensors(
    writer: FileWriter, name: str, tensors: Mapping[str, Tensor | np.ndarray]
) -> None:
    """Write one safetensors file of tensors or arrays."""
    contiguous = {key: torch.as_tensor(tensor).contiguous() for key, tensor in tensors.items()}
    writer.write(name, save(contiguous))


def write_linear(
    writer: FileWriter,
    weight: Tensor,
    matrices: Mapping[str, np.ndarray],
    constants: Mapping[str, object],
) -> None:
    """Write a linear head.

    Args:
        writer: the model's folder.
        weight: [J, w] the weights.
        matrices: the matrices of the public feature map, by name.
        constants: the public constants that say how far one record moves the weights.
    """
    write_tensors(writer, MODEL, {"weight": weight})
    write_tensors(writer, FEATURES, matrices)
    writer.write(CONSTANTS, as_json(constants))


def read_boxes(reader: FileReader, ks: tuple[int, ...], expected: Tensors) -> Box:
    """Read back the nominal parameters and the boxes.

    Args:
        reader: the model's files.
        ks: the grid; there is a box for every k of it, and for no other.
        expected: parameter name -> a tensor of the shape and dtype that the file has to have.

    Raises:
        ConfigError: a file is missing, does not belong to the grid, or is not what was written.
        UnsoundError: a tensor has another shape or dtype, is not finite, or a lower bound exceeds
            its upper bound; a file is of another k; or the nominal parameters are outside of their
            box.
    """
    _check_files_of_grid(reader, ks)
    nominal = read_tensors(reader, MODEL, expected)
    expected_bounds: Tensors = {}
    for end in ("lower", "upper"):
        expected_bounds |= {f"{end}.{name}": tensor for name, tensor in expected.items()}
    boxes = [read_tensors(reader, bounds_file(k), expected_bounds, {"k": str(k)}) for k in ks]
    for k, box in zip(ks, boxes, strict=True):
        path = reader.folder / bounds_file(k)
        for name in expected:
            is_ordered = box[f"lower.{name}"] <= box[f"upper.{name}"]
            if not bool(is_ordered.all()):
                raise UnsoundError(f"{path}: the lower bound of {name} exceeds its upper bound")
    lower: Tensors = {}
    upper: Tensors = {}
    for name in expected:
        lower[name] = torch.stack([box[f"lower.{name}"] for box in boxes])
        upper[name] = torch.stack([box[f"upper.{name}"] for box in boxes])
    return Box.from_ends(ks, nominal, lower, upper)


def _check_files_of_grid(reader: FileReader, ks: tuple[int, ...]) -> None:
    """Raise ConfigError unless there is a file of bounds for every k of the grid, and no other."""
    files_of_grid = {bounds_file(k).removeprefix(f"{BOUNDS}/") for k in ks}
    for name in sorted(reader.names(BOUNDS) ^ files_of_grid):
        if name in files_of_grid:
            why = "missing, although the run certifies this k"
        else:
            why = "for a k that the run does not certify"
        raise ConfigError(
            f"run={reader.folder}: {BOUNDS}/{name} is {why}; restore it, or train again"
        )


def check_constants(reader: FileReader, name: str, expected: Mapping[str, object]) -> None:
    """Raise UnsoundError unless a file holds the constants that the settings imply.

    Args:
        reader: the model's files.
        name: the JSON file with the recorded constants.
        expected: the constants that the settings imply, by name.
    """
    recorded = reader.json(name)
    for key in expected.keys() | recorded.keys():
        value = recorded.get(key)
        implied = expected.get(key)
        if value != implied:
            raise UnsoundError(
                f"{reader.folder}/{name}: the file says {key} = {value}, but the run's "
                f"configuration implies {implied}: train again"
            )


def read_tensors(
    reader: FileReader,
    name: str,
    expected: Tensors,
    metadata: Mapping[str, str] = MappingProxyType({}),
    finite: bool = True,
) -> Tensors:
    """Return the tensors of one safetensors file, checked, in the order of ``expected``.

    Args:
        reader: the model's files.
        name: the file.
        expected: name -> a tensor of the shape and dtype that the file has to have.
        metadata: what the file's own header has to hold.
        finite: True to refuse infinity as well as NaN, which is always refused.

    Raises:
        ConfigError: the file is missing, is not what was written, or is no safetensors file.
        UnsoundError: tensors are missing or too many; one has another shape or dtype, or is not
            finite; or the header holds something else.
    """
    path = reader.folder / name
    content = reader.read(name)
    try:
        tensors: Tensors = load(content)
    except SafetensorError as error:
        raise ConfigError(
            f"{path}: this file of the model cannot be read ({error}): train again"
        ) from None
    header = read_safetensors_header(content)
    for key, value in metadata.items():
        recorded = header.get(key)
        if recorded != value:
            raise UnsoundError(
                f"{path}: the file's header says {key} = {recorded}, but it should be "
                f"{value}: train again"
            )
    if tensors.keys() != expected.keys():
        raise UnsoundError(
            f"{path}: the file contains the tensors {sorted(tensors)}, but should contain "
            f"{sorted(expected)}: train again"
        )
    for key, tensor in tensors.items():
        dtype = expected[key].dtype
        shape = expected[key].shape
        if tensor.shape != shape or tensor.dtype != dtype:
            raise UnsoundError(
                f"{path}: the tensor {key} is {tensor.dtype} {tuple(tensor.shape)}, but "
                f"should be {dtype} {tuple(shape)}: train again"
            )
        is_refused = ~torch.isfinite(tensor) if finite else torch.isnan(tensor)
        if bool(is_refused.any()):
            raise UnsoundError(f"{path}: the tensor {key} has a NaN or infinite value: train again")
    return {key: tensors[key] for key in expected}  # a file does not keep the order
