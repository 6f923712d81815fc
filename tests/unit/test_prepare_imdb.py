"""IMDB: reviews to vectors, by a small randomly initialised GPT-2 and a tokenizer trained and saved here."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from agt.data.dataset import DataError, uniform
from agt.data.embeddings import Embeddings
from agt.errors import ConfigError, DataMissing
from agt.settings import validate
from experiments.imdb import Embedder, Imdb

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs the text extra")
WORDS = ("the", "film", "was", "good", "bad", "long", "short", "and", "I", "we", "liked", "hated", "every", "minute")


def reviews(n: int = 40) -> pd.DataFrame:
    """Random word salads, 1 to 60 words long, under the columns of the real file."""
    rng = np.random.default_rng(0)
    text = [" ".join(rng.choice(WORDS, size=size)) for size in rng.integers(1, 60, size=n)]
    rows = np.arange(n)
    return pd.DataFrame({"split": "train", "id": rows // 2, "rating": 5, "label": rows % 2, "text": text})


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a GPT-2 of two layers, width 16, 64 positions."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast  # seconds, of which other files need none

    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(reviews()["text"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    config = GPT2Config(vocab_size=400, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        GPT2Model(config).save_pretrained(folder)
    return folder


@pytest.fixture
def imdb(gpt2: Path, tmp_path: Path) -> Callable[..., Imdb]:
    """A preparation of these reviews, or changed ones."""

    def make(table: pd.DataFrame | None = None, **settings: Any) -> Imdb:
        (reviews() if table is None else table).to_parquet(tmp_path / "r.parquet", index=False)
        defaults = {"out": "d", "data_dir": tmp_path, "reviews": "r.parquet", "model": gpt2, "tokens": 32, "chunk": 8}
        return validate(Imdb, {**defaults, "test_fraction": 0.3, **settings}, "prepare")

    return make


def run(preparation: Imdb) -> Path:
    return preparation.run(lambda done, total: None, lambda text: None).folder


def vectors(folder: Path) -> dict[str, bytes]:
    x, ids = np.load(folder / "x.npy"), np.load(folder / "id.npy")
    return {str(name): row.tobytes() for name, row in zip(ids, x, strict=True)}


@pytest.mark.parametrize("pooling", ["mean", "last", "max"])
@pytest.mark.parametrize("batch", [1, 5])
def test_vectors_are_the_model_s(imdb: Callable[..., Imdb], gpt2: Path, pooling: str, batch: int) -> None:
    from transformers import AutoModel, PreTrainedTokenizerFast

    x = np.load(run(imdb(pooling=pooling, batch=batch)) / "x.npy")
    tokenizer, model = PreTrainedTokenizerFast.from_pretrained(gpt2), AutoModel.from_pretrained(gpt2).eval()
    for row, text in enumerate(reviews()["text"]):
        tokens = tokenizer(text)["input_ids"][:32]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([tokens])).last_hidden_state[0].numpy()
        expected = {"mean": states.mean(axis=0), "last": states[-1], "max": states.max(axis=0)}[pooling]
        np.testing.assert_allclose(x[row], expected, atol=1e-5)


def test_names_labels_split_and_center(imdb: Callable[..., Imdb]) -> None:
    folder = run(imdb())
    table = reviews()
    names = [f"train/{label}/{id}" for label, id in zip(table["label"], table["id"], strict=True)]
    assert np.load(folder / "id.npy").tolist() == names
    assert np.load(folder / "label.npy").tolist() == table["label"].tolist()
    test = uniform(names, "imdb") < 0.3
    assert np.load(folder / "is_test.npy").tolist() == test.tolist()
    x = np.load(folder / "x.npy")
    np.testing.assert_allclose(np.load(folder / "center.npy"), x[test].astype(np.float64).mean(axis=0), rtol=1e-12)
    assert np.load(run(imdb(out="z", center="zero")) / "center.npy").tolist() == [0.0] * 16


def test_a_review_s_leaving_changes_nobody_else(imdb: Callable[..., Imdb]) -> None:
    whole = vectors(run(imdb(out="whole")))
    test = np.load(run(imdb(out="whole")) / "is_test.npy")
    gone = int(np.flatnonzero(~test)[3])
    rest = run(imdb(reviews().drop(index=gone), out="rest"))
    assert len(vectors(rest)) == 39
    assert vectors(rest).items() <= whole.items()
    assert np.array_equal(np.load(rest / "center.npy"), np.load(rest.parent / "whole" / "center.npy")), "a training review"


def test_ids_from_content(imdb: Callable[..., Imdb]) -> None:
    table = pd.concat([reviews(), reviews().iloc[:1]])
    ids = np.load(run(imdb(table, id=None)) / "id.npy")
    assert len(set(ids.tolist())) == 41, "a copy gets a name of its own"
    with pytest.raises(DataError, match=r"prepare\.id: 'train/0/0' names 2 reviews"):
        run(imdb(table, out="e"))


def test_training_reads_it_and_knows_about_batches(imdb: Callable[..., Imdb]) -> None:
    settings: dict[str, Any] = {"is_test": "is_test", "id": "id", "center": "center", "classes": ("0", "1")}
    alone = Embeddings(path=run(imdb()), public_scaling=True, **settings).load()
    assert alone.selection.held
    assert alone.preprocessing.held
    assert "embedded on its own" in alone.selection.why
    together = Embeddings(path=run(imdb(out="b", batch=4)), **settings).load()
    assert not together.selection.held
    assert "prepare.batch=1" in together.selection.why
    trial = Embeddings(path=run(imdb(out="t", limit=20)), **settings).load()
    assert not trial.selection.held
    assert len(trial.train) + len(trial.test) == 20


def test_a_killed_run_resumes(imdb: Callable[..., Imdb], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vectors(run(imdb(out="whole")))
    embed, done = Embedder.embed, []

    def counted(self: Embedder, texts: Any, batch: int) -> np.ndarray:
        if len(done) == 2 and limit:
            raise KeyboardInterrupt
        done.append(len(texts))
        return embed(self, texts, batch)

    monkeypatch.setattr(Embedder, "embed", counted)
    limit = True
    with pytest.raises(KeyboardInterrupt):
        run(imdb())
    parquet = reviews()
    changed = parquet.assign(text=parquet["text"].where(parquet.index != 30, "the film"))
    for settings, named in (
        ({"pooling": "max"}, r"prepare\.pooling=mean, and now prepare\.pooling=max"),
        ({"table": changed}, r"reviews\.digest=\w+, and now reviews\.digest="),
    ):
        with pytest.raises(ConfigError, match=named):
            run(imdb(**settings))
    limit = False
    assert vectors(run(imdb())) == whole
    assert done == [8] * 5, "no chunk twice"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="text"), r"no column or key 'text', which prepare\.reviews names"),
        (lambda t: t.drop(columns="id"), r"no column or key 'id', which prepare\.id names"),
        (lambda t: t.assign(label=-1), "has the label '-1'"),
        (lambda t: t.assign(text=t["text"].where(t.index != 4, " ")), "row 5 of the data has no text"),
        (lambda t: t.iloc[:0], "holds no reviews"),
        (lambda t: t.iloc[:1], "1 reviews leave a split empty"),
    ],
)
def test_bad_reviews(imdb: Callable[..., Imdb], change: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(imdb(change(reviews())))


def test_models_that_cannot_be_used(imdb: Callable[..., Imdb], gpt2: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"none is not there.*hf download openai-community/gpt2"):
        run(imdb(model="none"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: not a whole model with its tokenizer"):
        run(imdb(model="empty"))
    with pytest.raises(ConfigError, match=r"prepare\.tokens=65: this model reads at most 64 tokens"):
        run(imdb(tokens=65))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"prepare\.device=cuda: PyTorch sees no GPU"):
            run(imdb(device="cuda"))


def test_weights_that_are_missing_are_no_random_numbers(imdb: Callable[..., Imdb], gpt2: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for path in gpt2.iterdir():
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "part" / "model.safetensors")
    lost = next(name for name in weights if name.endswith("h.1.attn.c_attn.weight"))
    kept = {name: tensor for name, tensor in weights.items() if name != lost}
    save_file(kept, tmp_path / "part" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"the weights lack h\.1\.attn\.c_attn\.weight \(1 in all\)"):
        run(imdb(model="part"))
