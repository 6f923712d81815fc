"""The IMDB reviews (Maas et al. 2011): texts, labels and names, from a parquet file or the
``datasets`` library.

Texts to vectors by a frozen language model (GPT-2) through ``transformers``.

``agt data prepare imdb``: film reviews to vectors of GPT-2 (papers.md; 000 section 5.4, 001 section
6).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agt.data.arrays import row_words
from agt.data.files import open_columns
from agt.data.ids import content_ids, hash_split
from agt.data.labelled import class_indices
from agt.errors import AgtError, ConfigError, DataError, DataMissing, first_line
from agt.settings import Count, schema
from agt.store.locations import require, resolve

from .encoder import state_digest
from .folder import ArrayFolder, OnProgress, PreparedFolder, open_folder

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


Pooling = Literal["mean", "last", "max"]
FILES = "config.json model.safetensors tokenizer.json tokenizer_config.json vocab.json merges.txt"


@dataclass(frozen=True)
class Embedder:
    """A frozen model and its tokenizer.

    Attributes:
        model: gives ``last_hidden_state`` [batch, tokens, width].
        tokenizer: text to token numbers, without special tokens.
        width: of a vector.
        device, dtype: where and in what arithmetic the model runs.
        tokens: a text's first so many tokens are read.
        pooling: over a text's tokens: their mean, the last one's vector, or the greatest of each
            coordinate.
        digests: of weights and tokenizer.
    """

    model: Any
    tokenizer: Any
    width: int
    device: str
    dtype: str
    tokens: int
    pooling: Pooling
    digests: dict[str, str]

    def embed(self, texts: Sequence[str], batch: int) -> np.ndarray:
        """[n, width] float32.

        With ``batch`` 1 a text's vector is a function of that text alone, to the last bit, on one
        machine and number of threads. In larger batches, texts of like length together and padded
        on the right, products are of another shape, and its last digits may depend on its
        neighbours.

        Raises:
            DataError: a text has no token.
            AgtError: a vector is not finite.
        """
        tokens = [self._tokens(text) for text in texts]
        out = np.empty((len(texts), self.width), dtype=np.float32)
        for rows in _alike([len(t) for t in tokens], batch):
            out[rows] = self._forward([tokens[row] for row in rows]).numpy()
        bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
        if len(bad):
            raise AgtError(
                f"the model's vector is NaN or infinite for {texts[bad[0]][:60]!r}...: set "
                "prepare.dtype=float32"
            )
        return out

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(
            text, add_special_tokens=False, truncation=True, max_length=self.tokens
        )["input_ids"]
        if not ids:
            raise DataError(
                f"the tokenizer finds no token in {text[:60]!r}: remove that review, or check "
                "prepare.model"
            )
        return ids

    def _forward(self, tokens: list[list[int]]) -> Tensor:
        lengths = torch.tensor([len(t) for t in tokens])
        padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.int64)
        for row, ids in enumerate(tokens):
            padded[row, : len(ids)] = torch.tensor(ids)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        padded = padded.to(self.device)
        mask = mask.to(self.device)
        with torch.inference_mode():
            answer = self.model(input_ids=padded, attention_mask=mask.long())
            return pool(answer.last_hidden_state.float(), mask, self.pooling).cpu()


def pool(states: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """[batch, width] from [batch, tokens, width]; ``mask`` [batch, tokens] is True for a text's own
    tokens, which come first and of which there is at least one.
    """
    lengths = mask.sum(dim=1)
    is_padding = ~mask[..., None]
    if pooling == "last":
        return states[torch.arange(len(states)), lengths - 1]
    if pooling == "max":
        return states.masked_fill(is_padding, -torch.inf).amax(dim=1)
    return states.masked_fill(is_padding, 0).sum(dim=1) / lengths[:, None]


def load_embedder(
    place: str,
    is_folder: bool,
    device: str,
    dtype: str,
    tokens: int,
    pooling: Pooling,
    by_hand: str,
) -> Embedder:
    """The model in a local folder, or on the hub (or in its cache).

    Args:
        place: the folder, or the hub's name.
        is_folder: which of the two.
        by_hand: what to do without a network, for the message.

    Raises:
        DataMissing: no such folder, an unreachable hub, or transformers not installed.
        DataError: the folder lacks files, or weights of the model are missing.
        ConfigError: no such device, or more tokens than the model reads.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("prepare.device=cuda, but PyTorch finds no GPU: set prepare.device=cpu")
    if is_folder and not Path(place).is_dir():
        raise DataMissing(
            f"{place} does not exist or is not a folder: change prepare.model, or {by_hand}"
        )
    tokenizer, model = _load_model(place, is_folder, by_hand)
    limit = getattr(model.config, "max_position_embeddings", tokens)
    if tokens > limit:
        raise ConfigError(
            f"prepare.tokens={tokens} exceeds {limit}, the number of tokens that this model can "
            f"read: give {limit} or fewer"
        )
    width = int(model.config.hidden_size)
    digests = {"weights": state_digest(model), "tokenizer": _tokenizer_digest(tokenizer)}
    model = model.to(device=device, dtype=getattr(torch, dtype)).requires_grad_(False).eval()
    return Embedder(model, tokenizer, width, device, dtype, tokens, pooling, digests)


def _load_model(place: str, is_folder: bool, by_hand: str) -> tuple[Any, Any]:
    try:
        import transformers
    except ImportError:
        raise DataMissing(
            f"embedding text needs the package transformers. Type {INSTALL}"
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=is_folder)
        model, info = transformers.AutoModel.from_pretrained(
            place, local_files_only=is_folder, output_loading_info=True
        )
    except Exception as error:  # each kind of broken file raises a class of its own
        why = first_line(error)
        if is_folder:
            raise DataError(
                f"{place} does not have a complete model with its tokenizer "
                f"({type(error).__name__}: {why}). It needs {FILES}, as save_pretrained writes "
                "them"
            ) from None
        if isinstance(error, OSError):
            raise DataMissing(
                f"the model '{place}' cannot be fetched from the hub ({why}): {by_hand}"
            ) from None
        raise
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        raise DataError(
            f"{place}: the weights lack {missing[0]} ({len(missing)} missing in all): get the "
            "model again"
        )
    if not tokenizer.vocab_size:
        raise DataError(f"{place}: the tokenizer has no vocabulary. It needs {FILES}")
    return tokenizer, model


def _alike(lengths: list[int], batch: int) -> Iterator[list[int]]:
    """Rows in batches of like length."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def _tokenizer_digest(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = sorted(tokenizer.get_vocab().items())
    text = repr(vocabulary) if backend is None else backend.to_str()
    return blake2b(text.encode(), digest_size=16).hexdigest()


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
    id: Annotated[tuple[str, ...], Field(min_length=1)] | None = ("split", "label", "id")
    hub_reviews: str = "stanfordnlp/imdb"
    limit: Annotated[int, Field(ge=2)] | None = None
    model: Path | None = None
    hub_model: str = "openai-community/gpt2"
    tokens: Count = 512
    pooling: Pooling = "mean"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch: Count = 1
    chunk: Count = 256
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
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
