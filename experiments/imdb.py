"""``agt data prepare imdb``: film reviews to vectors of GPT-2 (000 section 5.4, 001
section 6; papers.md).
"""

import math
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from agt.data.ids import hash_split
from agt.errors import DataError
from agt.settings import Count, Probability, schema
from agt.store.locations import resolve

from .embedder import FILES, Embedder, Pooling, load_embedder
from .experiment import AtLeastTwo, OneOrMore
from .folder import ArrayFolder, OnProgress, PreparedFolder, open_folder
from .reviews import Reviews, fetch_reviews, read_reviews

_COMMAND = "agt data prepare imdb"

CENTER = (
    "center.npy is the mean of the {} test records alone, declared public by whoever prepared them"
)


@schema
class Imdb:
    """Writes x [n, width], label, id, is_test, and center [width], the mean of the test records,
    for ``dataset=imdb``.

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
        batch: reviews embedded at once; above 1 a review's last digits may depend on its neighbours
            (condition b).
        chunk: reviews between two points that an interrupted run can go on from.
        test_fraction, split_key: public rate and key of the hash that makes a review a test record.
    """

    out: Path
    data_dir: Path = Path("data")
    reviews: Path | None = None
    id: OneOrMore[str] | None = ("split", "label", "id")
    hub_reviews: str = "stanfordnlp/imdb"
    limit: AtLeastTwo | None = None
    model: Path | None = None
    hub_model: str = "openai-community/gpt2"
    tokens: Count = 512
    pooling: Pooling = "mean"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch: Count = 1
    chunk: Count = 256
    test_fraction: Probability = 0.1
    split_key: str = "imdb"

    def run(self, on_progress: OnProgress, note: Callable[[str], None]) -> PreparedFolder:
        """Write the folder, or finish the one that an interrupted run left.

        Args:
            on_progress: called after every chunk.
            note: called with a line about what is going on.
        """
        reviews = self._read(note).first(self.limit)
        embedder = self._embedder(note)
        with open_folder(
            resolve(self.out, self.data_dir), self._settings(reviews, embedder)
        ) as folder:
            test = hash_split(reviews.split_names, self.test_fraction, self.split_key)
            if not test.any() or test.all():
                raise DataError(
                    f"{len(reviews.ids)} reviews leave no training or no test records: "
                    "take more reviews, or change prepare.test_fraction"
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
            f"d = load_dataset('{self.hub_reviews}'); c([d['train'], "
            "d['test']]).to_parquet('imdb.parquet')"
        )
        note(f"asking the hub for the reviews '{self.hub_reviews}'")
        return fetch_reviews(
            self.hub_reviews,
            f'where there is a network, run: python -c "{fetch}"; put the file at {place}, and '
            "run: "
            f"{_COMMAND} prepare.reviews=imdb.parquet prepare.id=null",
        )

    def _embedder(self, note: Callable[[str], None]) -> Embedder:
        by_hand = (
            f"where there is a network, run: hf download {self.hub_model} {FILES} --local-dir "
            "gpt2; put the folder at "
            f"{self.data_dir / 'gpt2'}, and run: {_COMMAND} prepare.model=gpt2"
        )
        place = self.hub_model
        if self.model is None:
            note(f"asking the hub for the model '{self.hub_model}'")
        else:
            place = str(resolve(self.model, self.data_dir))
        return load_embedder(
            place,
            self.model is not None,
            self.device,
            self.dtype,
            self.tokens,
            self.pooling,
            by_hand,
        )

    def _settings(self, reviews: Reviews, embedder: Embedder) -> Mapping[str, Any]:
        """All that a single bit of the result depends on."""
        names = (
            "tokens",
            "pooling",
            "dtype",
            "batch",
            "chunk",
            "limit",
            "test_fraction",
            "split_key",
        )
        machine = {
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
        }
        return {
            "prepare": {name: getattr(self, name) for name in names},
            "reviews": {"records": len(reviews.ids), "digest": reviews.digest},
            "model": embedder.digests,
            "machine": machine,
        }

    def _write(
        self,
        folder: ArrayFolder,
        reviews: Reviews,
        embedder: Embedder,
        test: np.ndarray,
        on_progress: OnProgress,
    ) -> None:
        n = len(reviews.ids)
        width = embedder.width
        small = {"label": reviews.labels.astype(np.uint8), "id": reviews.ids, "is_test": test}
        folder.allocate({"x": ((n, width), "float32"), "center": ((width,), "float64")})
        folder.allocate({name: (array.shape, array.dtype.str) for name, array in small.items()})
        for name, array in small.items():
            folder.write(name, 0, array)
        for chunk in range(folder.done, math.ceil(n / self.chunk)):
            start = chunk * self.chunk
            texts = reviews.texts[start : start + self.chunk]
            folder.write("x", start, embedder.embed(texts, self.batch))
            folder.finish_chunk()
            on_progress(start + len(texts), n)
        center = folder.read("x")[test].mean(axis=0, dtype=np.float64)
        folder.write("center", 0, center)
        alone = self._alone()
        facts = {
            "alone": {"rows": alone, "units": alone},
            "center": CENTER.format(int(test.sum())),
            "embedded_by": self._model_name(),
        }
        folder.finish(facts)

    def _model_name(self) -> str:
        """Return the model that makes the vectors, as it was asked for."""
        return self.hub_model if self.model is None else f"the local folder {self.model}"

    def _alone(self) -> Mapping[str, Any]:
        """Condition b, as far as this preparation goes."""
        if self.limit is not None:
            why = (
                f"only the first {self.limit} reviews were taken, as a trial: which reviews are "
                "used depends on the others"
            )
        elif self.batch > 1:
            why = (
                f"{self.batch} reviews were embedded at a time, so the last digits of one may "
                "depend on the others. Set prepare.batch=1 to avoid this"
            )
        else:
            return {"held": True, "why": "each review was embedded on its own"}
        return {"held": False, "why": why}

    def _outcome(
        self, folder: ArrayFolder, reviews: Reviews, embedder: Embedder, test: np.ndarray
    ) -> PreparedFolder:
        n = len(test)
        tests = int(test.sum())
        # What is declared comes from settings, never from counting records; conf/dataset/imdb.yaml
        # declares the whole set.
        declared = ""
        if self.limit is not None:
            size = round(self.limit * (1 - self.test_fraction))
            declared = f" dataset.declared_size={size}"
        return PreparedFolder(
            folder=folder.out,
            metrics={
                "records": n,
                "test_records": tests,
                "width": embedder.width,
                "chunks": math.ceil(n / self.chunk),
            },
            facts=(
                f"{n} reviews of {reviews.source}, embedded by {self._model_name()}",
                f"pooling: {self.pooling} over each review's first {self.tokens} tokens",
                f"{tests} test records, by a hash of each review's id under the public key "
                f"'{self.split_key}'",
                CENTER.format(tests),
                str(self._alone()["why"]),
            ),
            train=f"agt train experiment=imdb dataset.path={folder.out.resolve()}{declared}",
        )
