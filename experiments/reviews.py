"""The IMDB reviews (Maas et al. 2011): texts, labels and names, from a parquet file or the
``datasets`` library.
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.arrays import row_words
from agt.data.files import open_columns
from agt.data.ids import content_ids
from agt.data.labels import class_indices
from agt.errors import DataError, DataMissing, first_line
from agt.store.locations import require

CLASSES = ("0", "1")
INSTALL = "pip install 'transformers>=4.45' 'datasets>=3.0'"


@dataclass(frozen=True)
class Reviews:
    """Reviews in the order of their source.

    Attributes:
        texts: what was written, none of it empty.
        labels: [n] int64, 0 negative, 1 positive.
        ids: [n] str, unique.
        digest: a hash of all three.
        by_content: the ids are hashes of what was written, copies numbered.

    Raises:
        DataError: no reviews, an empty text, or a name that occurs twice.
    """

    texts: list[str]
    labels: np.ndarray
    ids: np.ndarray
    source: str
    by_content: bool = False

    def __post_init__(self) -> None:
        if not self.texts:
            raise DataError(f"{self.source}: holds no reviews")
        for row, text in enumerate(self.texts):
            if not text or not text.strip():
                raise DataError(f"{self.source}: {row_words(row)} has no text: remove the row")
        names, counts = np.unique(self.ids, return_counts=True)
        if len(names) < len(self.ids):
            name = str(names[counts > 1][0])
            count = counts[counts > 1][0]
            raise DataError(
                f"{self.source}: prepare.id: {count} reviews have the id {name!r}, but ids must "
                "be unique. Give columns that are unique together, such as "
                "prepare.id=[split,label,id], or prepare.id=null (ids from the text)"
            )

    @property
    def digest(self) -> str:
        h = blake2b(self.labels.tobytes(), digest_size=16)
        for name, text in zip(self.ids.tolist(), self.texts, strict=True):
            h.update(f"{name}\0{text}\0".encode())
        return h.hexdigest()

    def first(self, limit: int | None) -> "Reviews":
        """The first ``limit`` reviews; all of them for None."""
        return replace(
            self, texts=self.texts[:limit], labels=self.labels[:limit], ids=self.ids[:limit]
        )

    @property
    def split_names(self) -> np.ndarray:
        """[n] str: what decides whether a review is for testing: its given name, or its content,
        alike for all copies.

        Were copies told apart, a private one that goes could take a copy out of the test records,
        which count as public.
        """
        if self.by_content:
            return _ids_of(self.texts, self.labels, numbered=False)
        return self.ids


def read_reviews(path: Path, id: tuple[str, ...] | None) -> Reviews:
    """Reviews of a parquet (or csv) file with the columns text and label.

    Args:
        path: the file.
        id: the columns that together name a review, joined by slashes; None: a hash of its content.

    Raises:
        DataMissing: it is not there.
        DataError: it is damaged, lacks a column, or holds something else there.
    """
    require(path, "prepare.reviews or data_dir")
    columns = open_columns(path, "prepare.reviews")
    texts = columns.words("text", "prepare.reviews").tolist()
    labels = class_indices(columns.words("label", "prepare.reviews"), CLASSES, path, columns.row)
    if id is None:
        return Reviews(texts, labels, _ids_of(texts, labels), str(path), by_content=True)
    parts = [columns.ids(name, "prepare.id").tolist() for name in id]
    names = ["/".join(part) for part in zip(*parts, strict=True)]
    return Reviews(texts, labels, np.array(names, dtype=str), str(path))


def fetch_reviews(name: str, by_hand: str) -> Reviews:
    """The labelled reviews of a data set on the hub, or in the ``datasets`` library's cache; named
    by their content.

    Args:
        name: the hub's name, such as stanfordnlp/imdb.
        by_hand: what to do without a network, for the message.

    Raises:
        DataMissing: the library is not installed, or the data set cannot be had.
    """
    splits = _load(name, by_hand)
    texts: list[str] = []
    labels: list[str | None] = []
    for split in ("train", "test"):
        if split not in splits or not {"text", "label"} <= set(splits[split].column_names):
            raise DataError(
                f"{name}: there is no split '{split}' with the columns text and label: change "
                "prepare.hub_reviews"
            )
        texts += list(splits[split]["text"])
        labels += [str(label) for label in splits[split]["label"]]
    indices = class_indices(np.array(labels, dtype=object), CLASSES, Path(name))
    return Reviews(texts, indices, _ids_of(texts, indices), name, by_content=True)


def _load(name: str, by_hand: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise DataMissing(
            f"fetching reviews needs the package datasets. Type {INSTALL}, or {by_hand}"
        ) from None
    datasets.utils.logging.set_verbosity_error()
    datasets.utils.logging.disable_progress_bar()
    try:
        return datasets.load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:
        # offline, unknown, not in the cache: each of its own class
        raise DataMissing(
            f"the reviews '{name}' cannot be fetched from the hub ({first_line(error)}): {by_hand}"
        ) from None


def _ids_of(texts: list[str], labels: np.ndarray, numbered: bool = True) -> np.ndarray:
    digests = [blake2b((text or "").encode(), digest_size=16).digest() for text in texts]
    rows = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(texts), 16)
    return content_ids(rows, labels, numbered)
