"""A model's files, wherever they are kept: what is written of it, and what is checked when it is
read back.

model.safetensors, bounds/k=00005.safetensors       nominal parameters, and "lower.<name>",
                                                    "upper.<name>" for each k
model.safetensors ("weight" [classes or 1, width]), features.safetensors, stability.json
                                                    a linear head's
removal.safetensors, removal.json                   what removals from it start from, where it was
                                                    trained for that
network.json                                        the layers of a network of the user's own
members/000/...                                     an ensemble's members, each with the files of
                                                    its model
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

MODEL, FEATURES, CONSTANTS, BOUNDS = (
    "model.safetensors",
    "features.safetensors",
    "stability.json",
    "bounds",
)
NETWORK = "network.json"


class FileWriter(Protocol):
    """Where files are written."""

    def write(self, name: str, content: bytes) -> object:
        """Write one file, whole or not at all."""

    def part(self, name: str) -> "FileWriter":
        """A subfolder."""


class FileReader(Protocol):
    """Where files are read, each of them as it was written or not at all.

    Attributes:
        folder: for messages.
    """

    @property
    def folder(self) -> Path: ...

    def read(self, name: str) -> bytes:
        """One file. Raises ConfigError if it is not what was written."""

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object. Raises ConfigError as ``read``, or where the file holds none."""

    def names(self, folder: str) -> set[str]:
        """The files of a subfolder, without its name."""

    def part(self, name: str) -> "FileReader":
        """A subfolder."""


def bounds_file(k: int) -> str:
    """Where the box of one k lies."""
    return f"{BOUNDS}/k={k:05d}.safetensors"


def write_boxes(store: FileWriter, box: Box) -> None:
    """Write the nominal parameters and, for each k, the bounds."""
    store.write(MODEL, save({n: t.contiguous() for n, t in box.nominal.items()}))
    for index, k in enumerate(box.ks):
        ends = {f"lower.{n}": t[index].contiguous() for n, t in box.lower.items()}
        ends |= {f"upper.{n}": t[index].contiguous() for n, t in box.upper.items()}
        store.write(bounds_file(k), save(ends, metadata={"k": str(k)}))


def write_tensors(store: FileWriter, name: str, tensors: Mapping[str, Tensor | np.ndarray]) -> None:
    """One file of tensors, or arrays."""
    store.write(
        name, save({key: torch.as_tensor(tensor).contiguous() for key, tensor in tensors.items()})
    )


def write_linear(
    store: FileWriter,
    weight: Tensor,
    matrices: Mapping[str, np.ndarray],
    constants: Mapping[str, object],
) -> None:
    """Write a linear head, the public matrices of its features, and how far one record moves it."""
    write_tensors(store, MODEL, {"weight": weight})
    write_tensors(store, FEATURES, matrices)
    store.write(CONSTANTS, as_json(constants))


def read_boxes(shelf: FileReader, ks: tuple[int, ...], like: Tensors) -> Box:
    """The saved parameters and boxes.

    Args:
        ks: the grid; there is a box for each k of it and for no other.
        like: name -> a tensor of the shape and dtype expected.

    Raises:
        ConfigError: a file is missing, too many, or not what was written.
        UnsoundError: a tensor has another shape or dtype, is not finite, or lower > upper; a file
            is of another k; or the nominal parameters are outside their box.
    """
    grid = {bounds_file(k).removeprefix(f"{BOUNDS}/") for k in ks}
    for name in sorted(shelf.names(BOUNDS) ^ grid):
        why = (
            "missing, although the run's grid has this k"
            if name in grid
            else "not for any k of the run's grid"
        )
        raise ConfigError(
            f"run={shelf.folder}: {BOUNDS}/{name} is {why}; restore it, or train again"
        )
    nominal = read_tensors(shelf, MODEL, like)
    ends = {
        end: {f"{end}.{name}": tensor for name, tensor in like.items()}
        for end in ("lower", "upper")
    }
    boxes = [
        read_tensors(shelf, bounds_file(k), ends["lower"] | ends["upper"], {"k": str(k)})
        for k in ks
    ]
    for k, box in zip(ks, boxes, strict=True):
        for name in like:
            if not bool((box[f"lower.{name}"] <= box[f"upper.{name}"]).all()):
                raise UnsoundError(
                    f"{shelf.folder / bounds_file(k)}: lower.{name} exceeds upper.{name}"
                )
    lower, upper = (
        {name: torch.stack([box[f"{end}.{name}"] for box in boxes]) for name in like}
        for end in ("lower", "upper")
    )
    return Box.from_ends(ks, nominal, lower, upper)


def check_constants(shelf: FileReader, name: str, now: Mapping[str, object]) -> None:
    """Raise UnsoundError unless the recorded constants of ``name`` are these, which the
    configuration implies.
    """
    then = shelf.json(name)
    for key in now.keys() | then.keys():
        if now.get(key) != then.get(key):
            raise UnsoundError(
                f"{shelf.folder}/{name}: {key} is {then.get(key)}, but the run's "
                f"configuration implies {now.get(key)}: train again"
            )


def read_tensors(
    shelf: FileReader,
    name: str,
    like: Tensors,
    metadata: Mapping[str, str] = MappingProxyType({}),
    finite: bool = True,
) -> Tensors:
    """The tensors of one file.

    Args:
        name: the file.
        like: name -> a tensor of the shape and dtype expected.
        metadata: what the file's own header must say.
        finite: refuse infinity; NaN is refused always.

    Raises:
        ConfigError: the file is missing, is not what was written, or cannot be read.
        UnsoundError: a tensor has another shape or dtype, or is not finite; or the header says
            something else.
    """
    path, content = shelf.folder / name, shelf.read(name)
    try:
        tensors: Tensors = load(content)
    except SafetensorError as error:
        raise ConfigError(f"{path}: cannot be read ({error}); train again") from None
    said = read_safetensors_header(content)
    for key, value in metadata.items():
        if said.get(key) != value:
            raise UnsoundError(
                f"{path}: its header says {key} = {said.get(key)}, but should say {value}: "
                "train again"
            )
    if tensors.keys() != like.keys():
        raise UnsoundError(
            f"{path}: contains {sorted(tensors)}, but should contain {sorted(like)}: train again"
        )
    for key, tensor in tensors.items():
        expected = like[key]
        if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
            raise UnsoundError(
                f"{path}: {key} is {tensor.dtype} {tuple(tensor.shape)}, but should be "
                f"{expected.dtype} {tuple(expected.shape)}: train again"
            )
        if bool((~torch.isfinite(tensor) if finite else torch.isnan(tensor)).any()):
            raise UnsoundError(f"{path}: {key} is NaN or infinite; train again")
    return {key: tensors[key] for key in like}  # in the model's order, which a file does not keep
