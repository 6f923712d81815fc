"""``agt data prepare imdb``: film reviews to vectors of GPT-2 (reproductions.md; 000 section 5.4, 001 section 6)."""

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from agt.data.assemble import hash_split
from agt.data.dataset import DataError
from agt.data.files import resolve
from agt.settings import schema
from agt_cli.papers.prepare.contract import OnProgress, Outcome
from agt_cli.papers.prepare.embedder import FILES, Embedder, Pooling, load_embedder
from agt_cli.papers.prepare.folder import ArrayFolder, open_folder
from agt_cli.papers.prepare.reviews import Reviews, fetch_reviews, read_reviews

Count = Annotated[int, Field(ge=1)]
_COMMAND = "agt data prepare imdb"


@schema
class Imdb:
    """Writes x [n, width], label, id, is_test, and center [width], for ``dataset=imdb``.

    Attributes:
        out: the folder to write; relative to ``data_dir``.
        data_dir: folder of relative paths.
        reviews: a parquet or csv file with the columns text and label; None: ``hub_reviews``.
        id: the file's columns that together name a review; None: a hash of its text and label.
        hub_reviews: the reviews' name on the hub.
        limit: take only the first so many reviews (a trial); None: all.
        model: a local folder with model and tokenizer; None: ``hub_model``.
        hub_model: the model's name on the hub.
        tokens: a review's first so many tokens are read.
        pooling: of a review's token vectors into one.
        device: cpu or cuda.
        dtype: the model's arithmetic.
        stored: the dtype of x on the disk.
        batch: reviews embedded at once; above 1 a review's last digits may depend on its neighbours (condition b).
        chunk: reviews between two points that an interrupted run can go on from.
        test_fraction, split_key: public rate and key of the hash that makes a review a test record.
        center: the mean of the test records, which whoever runs this declares public; or zeros.
    """

    out: Path
    data_dir: Path = Path("data")
    reviews: Path | None = None
    id: Annotated[tuple[str, ...], Field(min_length=1)] | None = ("split", "label", "id")
    hub_reviews: str = "stanfordnlp/imdb"
    limit: Annotated[int, Field(ge=2)] | None = None
    model: Path | None = None
    hub_model: str = "openai-community/gpt2"
    tokens: Count = 512
    pooling: Pooling = "mean"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    stored: Literal["float32", "float16"] = "float32"
    batch: Count = 1
    chunk: Count = 256
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    split_key: str = "imdb"
    center: Literal["test", "zero"] = "test"

    def run(self, on_progress: OnProgress, note: Callable[[str], None]) -> Outcome:
        """As ``Preparation.run``."""
        reviews = self._read(note).first(self.limit)
        embedder = self._embedder(note)
        with open_folder(resolve(self.out, self.data_dir), self._settings(reviews, embedder)) as folder:
            test = hash_split(reviews.split_names, self.test_fraction, self.split_key)
            if not test.any() or test.all():
                raise DataError(
                    f"{len(reviews.ids)} reviews leave a split empty: take more, or change prepare.test_fraction"
                )
            if not folder.finished:
                self._write(folder, reviews, embedder, test, on_progress)
            return self._outcome(folder, reviews, embedder, test)

    def _read(self, note: Callable[[str], None]) -> Reviews:
        if self.reviews is not None:
            return read_reviews(resolve(self.reviews, self.data_dir), self.id)
        place = self.data_dir / "imdb.parquet"
        fetch = (
            "from datasets import load_dataset, concatenate_datasets as c; "
            f"d = load_dataset('{self.hub_reviews}'); c([d['train'], d['test']]).to_parquet('imdb.parquet')"
        )
        note(f"asking the hub for the reviews '{self.hub_reviews}'")
        return fetch_reviews(
            self.hub_reviews,
            f'where there is a network, run: python -c "{fetch}"; put the file at {place}, and run: '
            f"{_COMMAND} prepare.reviews=imdb.parquet prepare.id=null",
        )

    def _embedder(self, note: Callable[[str], None]) -> Embedder:
        by_hand = (
            f"where there is a network, run: hf download {self.hub_model} {FILES} --local-dir gpt2; put the folder at "
            f"{self.data_dir / 'gpt2'}, and run: {_COMMAND} prepare.model=gpt2"
        )
        if self.model is None:
            note(f"asking the hub for the model '{self.hub_model}'")
        place = self.hub_model if self.model is None else str(resolve(self.model, self.data_dir))
        return load_embedder(place, self.model is not None, self.device, self.dtype, self.tokens, self.pooling, by_hand)

    def _settings(self, reviews: Reviews, embedder: Embedder) -> Mapping[str, Any]:
        """All that a single bit of the result depends on."""
        names = ("tokens", "pooling", "dtype", "stored", "batch", "chunk", "limit", "test_fraction", "split_key", "center")
        return {
            "prepare": {name: getattr(self, name) for name in names},
            "reviews": {"records": len(reviews.ids), "digest": reviews.digest},
            "model": embedder.digests,
            "machine": {
                "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
                "transformers": version("transformers"),
            },
        }

    def _write(
        self, folder: ArrayFolder, reviews: Reviews, embedder: Embedder, test: np.ndarray, on_progress: OnProgress
    ) -> None:
        n, width = len(reviews.ids), embedder.width
        small = {"label": reviews.labels.astype(np.uint8), "id": reviews.ids, "is_test": test}
        folder.allocate({"x": ((n, width), self.stored), "center": ((width,), "float64")})
        folder.allocate({name: (array.shape, array.dtype.str) for name, array in small.items()})
        for name, array in small.items():
            folder.write(name, 0, array)
        for chunk in range(folder.done, math.ceil(n / self.chunk)):
            start = chunk * self.chunk
            texts = reviews.texts[start : start + self.chunk]
            folder.write("x", start, self._stored(embedder.embed(texts, self.batch)))
            folder.finish_chunk()
            on_progress(start + len(texts), n)
        folder.write("center", 0, self._center(folder.read("x"), test))
        alone = self._alone()
        folder.finish({"alone": {"rows": alone, "units": alone}, "center": self._center_fact(int(test.sum()))})

    def _stored(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            stored = x.astype(self.stored)
        if not np.isfinite(stored).all():
            raise DataError(f"a vector reaches {np.abs(x).max():g}, beyond float16: use prepare.stored=float32")
        return stored

    def _center(self, x: np.ndarray, test: np.ndarray) -> np.ndarray:
        if self.center == "zero":
            return np.zeros(x.shape[1])
        return np.asarray(x[test], dtype=np.float64).mean(axis=0)

    def _center_fact(self, tests: int) -> str:
        if self.center == "zero":
            return "center.npy is zero"
        return f"center.npy is the mean of the {tests} test records alone, declared public by whoever prepared them"

    def _alone(self) -> Mapping[str, Any]:
        """Condition b, as far as this preparation goes."""
        if self.limit is not None:
            why = f"only the first {self.limit} reviews were taken, a trial: who is in depends on who else is"
        elif self.batch > 1:
            why = f"reviews were embedded {self.batch} at once, and one's last digits may depend on others: prepare.batch=1"
        else:
            return {"held": True, "why": "each review was embedded on its own"}
        return {"held": False, "why": why}

    def _outcome(self, folder: ArrayFolder, reviews: Reviews, embedder: Embedder, test: np.ndarray) -> Outcome:
        n, tests = len(test), int(test.sum())
        model = self.hub_model if self.model is None else f"the local folder {self.model}"
        # What is declared comes from settings, never from counting records; conf/dataset/imdb.yaml declares the whole set.
        declared = "" if self.limit is None else f" dataset.declared_size={round(self.limit * (1 - self.test_fraction))}"
        return Outcome(
            folder=folder.out,
            metrics={"records": n, "test_records": tests, "width": embedder.width, "chunks": math.ceil(n / self.chunk)},
            facts=(
                f"{n} reviews of {reviews.source}, embedded by {model}",
                f"pooling: {self.pooling} over each review's first {self.tokens} tokens",
                f"{tests} test records, by a hash of each review's id under the public key '{self.split_key}'",
                self._center_fact(tests),
                str(self._alone()["why"]),
            ),
            train=f"agt train experiment=imdb dataset.path={folder.out.resolve()}{declared}",
        )
