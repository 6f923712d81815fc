"""Advice on how to train on the arrays of an npz, which is not a table."""

import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from agt.data.labels import MAX_FOUND
from agt.errors import few

MAX_SHOWN_CLASSES = 20
"""How many classes of an npz a message lists."""


@dataclass(frozen=True)
class _ArrayGuesses:
    """Guesses about the arrays of an npz, from their shapes and values.

    Attributes:
        vectors: names of arrays of two dimensions or more.
        labels: names of lists that may hold labels.
        ids: names of lists that may hold ids: a different value in each row.
        units: names of lists that may hold the ids of people who have several rows.
        classes: the values of the list that holds labels, where it is the only one.
        pixels: whether the only array of vectors has one byte a number, as pixels have.
    """

    vectors: tuple[str, ...]
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    units: tuple[str, ...]
    classes: tuple[str, ...]
    pixels: bool = False

    @classmethod
    def in_file(cls, path: Path) -> "_ArrayGuesses":
        """Read the arrays.

        Raises:
            OSError, ValueError, BadZipFile: the file cannot be read without running code of it.
        """
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        vectors = tuple(name for name, array in arrays.items() if array.ndim > 1)
        values = {name: np.unique(array) for name, array in arrays.items() if array.ndim == 1}
        ids = tuple(
            name
            for name, distinct in values.items()
            if len(distinct) == len(arrays[name]) and distinct.dtype.kind != "f"
        )
        labels = tuple(
            name
            for name, distinct in values.items()
            if name not in ids and 2 <= len(distinct) <= MAX_FOUND
        )
        units = tuple(
            name
            for name, distinct in values.items()
            if name not in ids and len(distinct) > MAX_FOUND and distinct.dtype.kind != "f"
        )
        classes = tuple(map(str, values[labels[0]])) if len(labels) == 1 else ()
        pixels = len(vectors) == 1 and arrays[vectors[0]].dtype == np.uint8
        return cls(vectors, labels, ids, units, classes, pixels)

    @property
    def about_units(self) -> str:
        """What to type if a list names people, as a further sentence; empty: no list may."""
        if not self.units:
            return ""
        return (
            f". If {few(self.units, 3)} names the person of each record, add "
            f"dataset.unit={self.units[0]} relation.unit_rows=NUMBER, a public limit on the "
            "records of one person. Otherwise each record counts by itself"
        )

    @property
    def about_labels(self) -> str:
        """A sentence on which array has the labels, and what to type."""
        if not self.labels:
            return (
                f"The file has no labels, that is, no list of 2 to {MAX_FOUND} different values. "
                "Add one value for each vector, and name the list with dataset.label=NAME"
            )
        if len(self.labels) > 1:
            return f"Name the list of labels with dataset.label=NAME: {few(self.labels, 8)}"
        return f"The classes seen in the file are {few(self.classes, MAX_SHOWN_CLASSES)}"


def advice_for_arrays(path: Path) -> str:
    """Return the command that trains on the arrays of an npz, and what is to be filled in.

    Which array has labels, and which ids, is guessed from shapes and values. A file that cannot be
    read has no guesses. Nothing is declared public, because only the data owner knows what is.
    """
    texts = ["agt", "train", "dataset=embeddings", f"dataset.path={path}"]
    about_labels = ""
    with suppress(OSError, ValueError, BadZipFile):
        arrays = _ArrayGuesses.in_file(path)
        about_labels = f". {arrays.about_labels}{arrays.about_units}"
        names_of = {"x": arrays.vectors, "label": arrays.labels, "id": arrays.ids}
        for key, names in names_of.items():
            if len(names) == 1:
                texts.append(f"dataset.{key}={names[0]}")
        if arrays.pixels:
            texts.append("dataset.scale=0.00392")
    return (
        f"`{shlex.join(texts)} dataset.classes=[CLASSES] dataset.declared_size=NUMBER`. Write the "
        "classes, and a round number of training records, only if they are public; otherwise leave "
        f"these two settings out{about_labels}"
    )
