"""Reading and writing the files of a saved model; what is read is checked.

| file                              | what it holds                                              |
|-----------------------------------|------------------------------------------------------------|
| model.safetensors                 | trained parameters; of a linear head "weight" [J, width]   |
| bounds/k=00005.safetensors        | "lower.NAME" and "upper.NAME": bounds on each parameter    |
|                                   | after up to k edits of the records                         |
| features.safetensors              | the matrices of a public feature map                       |
| stability.json                    | the constants of a linear head's sensitivity               |
| removal.safetensors, removal.json | what removals of records start from                        |
| network.json                      | the layers of a network of the user's own                  |
| members/000/...                   | the files of each member of an ensemble                    |
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from agt.bounds.box import Box
from agt.errors import ConfigError, UnsoundError, altered
from agt.store.folder import Folder
from agt.store.json_text import as_json
from agt.training.checkpoint import Tensors, read_safetensors_header

MODEL = "model.safetensors"
FEATURES = "features.safetensors"
CONSTANTS = "stability.json"
BOUNDS = "bounds"
NETWORK = "network.json"


class FileWriter(Protocol):
    """A folder that files can be written to; the classes in ``agt.store`` implement it."""

    def write(self, name: str, content: bytes) -> object:
        """Write one file completely, or leave none behind if writing fails.

        Args:
            name: the path relative to the folder, with / between its parts.
            content: all bytes of the file.
        """

    def part(self, name: str) -> "FileWriter":
        """Return a writer for the subfolder of this name."""


def bounds_file(k: int) -> str:
    """Return the name of the file with the bounds for up to k edits of the training records."""
    return f"{BOUNDS}/k={k:05d}.safetensors"


def write_boxes(writer: FileWriter, box: Box) -> None:
    """Write trained parameters, and for each k a file with the bounds on them.

    Args:
        writer: the folder of the model.
        box: the parameters that training gave, and for each k of a grid the lower and upper bounds
            that hold after up to k edits of the training records.
    """
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
    """Write tensors or arrays into one safetensors file.

    Args:
        writer: the folder of the model.
        name: the path of the file relative to the folder.
        tensors: the tensors by the names that they get in the file.
    """
    # safetensors refuses tensors whose memory is not contiguous.
    contiguous = {key: torch.as_tensor(tensor).contiguous() for key, tensor in tensors.items()}
    writer.write(name, save(contiguous))


def write_linear(
    writer: FileWriter,
    weight: Tensor,
    matrices: Mapping[str, np.ndarray],
    constants: Mapping[str, object],
) -> None:
    """Write the three files of a linear head: its weights, feature map and public constants.

    Args:
        writer: the folder of the model.
        weight: [J, w] the weights, for J logits and w features.
        matrices: the matrices of the public feature map, by name.
        constants: the public constants that bound how far one record moves the weights, by name.
    """
    write_tensors(writer, MODEL, {"weight": weight})
    write_tensors(writer, FEATURES, matrices)
    writer.write(CONSTANTS, as_json(constants))


def read_boxes(reader: Folder, ks: tuple[int, ...], expected: Tensors) -> Box:
    """Read back trained parameters, and for each k of the grid the bounds on them.

    Args:
        reader: the folder of the model.
        ks: the grid: the numbers of edits for which the folder must hold bounds.
        expected: parameter name -> a tensor with the shape and dtype that the file must have; its
            values are not read.

    Raises:
        ConfigError: a file is missing, belongs to no k of the grid, or differs from what was
            written.
        UnsoundError: a tensor has the wrong shape or dtype, or is not finite; a file is for another
            k; a lower bound exceeds its upper bound; or a trained parameter is outside of its
            bounds.
    """
    _check_files_of_grid(reader, ks)
    nominal = read_tensors(reader, MODEL, expected)
    expected_bounds: Tensors = {}
    for end in ("lower", "upper"):
        expected_bounds |= {f"{end}.{name}": tensor for name, tensor in expected.items()}
    files = [read_tensors(reader, bounds_file(k), expected_bounds, {"k": str(k)}) for k in ks]
    for k, bounds in zip(ks, files, strict=True):
        _check_bounds_are_ordered(bounds, list(expected), reader.folder / bounds_file(k))
    lower: Tensors = {}
    upper: Tensors = {}
    for name in expected:
        lower[name] = torch.stack([bounds[f"lower.{name}"] for bounds in files])
        upper[name] = torch.stack([bounds[f"upper.{name}"] for bounds in files])
    return Box.from_ends(ks, nominal, lower, upper)


def _check_bounds_are_ordered(bounds: Tensors, parameters: list[str], path: Path) -> None:
    """Raise UnsoundError if a lower bound exceeds its upper bound.

    Args:
        bounds: "lower.NAME" and "upper.NAME" -> the bounds on the parameter NAME.
        parameters: the names of the parameters.
        path: the file of the bounds, for the message.
    """
    for name in parameters:
        is_ordered = bounds[f"lower.{name}"] <= bounds[f"upper.{name}"]
        if not bool(is_ordered.all()):
            raise UnsoundError(
                altered(path, f"a lower bound of {name} exceeds its upper bound", "train again")
            )


def _check_files_of_grid(reader: Folder, ks: tuple[int, ...]) -> None:
    """Raise ConfigError unless the files of bounds are exactly those of the grid.

    Args:
        reader: the folder of the model.
        ks: the grid, with one file of bounds for each k.
    """
    files_of_grid = {bounds_file(k).removeprefix(f"{BOUNDS}/") for k in ks}
    missing_or_extra = reader.names(BOUNDS) ^ files_of_grid
    for name in sorted(missing_or_extra):
        finding = f"the file {BOUNDS}/{name} does not belong to the run"
        if name in files_of_grid:
            finding = f"the file {BOUNDS}/{name} is missing"
        raise ConfigError(altered(f"run={reader.folder}", finding, "train again"))


def check_constants(reader: Folder, name: str, expected: Mapping[str, object]) -> None:
    """Raise UnsoundError unless a file records exactly the constants that the settings imply.

    Args:
        reader: the folder of the model.
        name: the JSON file with the recorded constants.
        expected: the constants that follow from the settings, by name.
    """
    recorded = reader.json(name)
    # The keys of both, so that a missing and an extra constant are refused as well.
    for key in expected.keys() | recorded.keys():
        value = recorded.get(key)
        implied = expected.get(key)
        if value != implied:
            raise UnsoundError(
                f"{reader.folder}/{name}: the file says {key} = {value}, but the run's "
                f"configuration implies {implied}: train again"
            )


def read_tensors(
    reader: Folder,
    name: str,
    expected: Tensors,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> Tensors:
    """Read and check one safetensors file, and return its tensors in the order of ``expected``.

    Args:
        reader: the folder of the model.
        name: the path of the file relative to the folder.
        expected: tensor name -> a tensor with the shape and dtype that the file must have; its
            values are not read.
        metadata: entries that the header of the file must have.

    Raises:
        ConfigError: the file is missing, differs from what was written, or is not a safetensors
            file.
        UnsoundError: a tensor is missing or unexpected, has the wrong shape or dtype, or has a
            value that is refused; or an entry of the header is wrong.
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
        found_names = sorted(tensors)
        expected_names = sorted(expected)
        raise UnsoundError(
            f"{path}: the file contains the tensors {found_names}, but should contain "
            f"{expected_names}: train again"
        )
    for key, tensor in tensors.items():
        dtype = expected[key].dtype
        shape = expected[key].shape
        if tensor.shape != shape or tensor.dtype != dtype:
            raise UnsoundError(
                f"{path}: the tensor {key} has type {tensor.dtype} and shape "
                f"{tuple(tensor.shape)}, but should have type {dtype} and shape {tuple(shape)}: "
                "train again"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise UnsoundError(f"{path}: the tensor {key} has a NaN or infinite value: train again")
    return {key: tensors[key] for key in expected}  # safetensors does not keep the order
