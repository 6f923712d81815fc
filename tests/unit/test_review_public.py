"""What may not depend on a private record: which records are public or for testing, the list of
classes, others' ids.

Each test builds a pair of neighbours for which it once did, while the conditions of a guarantee
were said to hold.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt.data.images import MedMnist
from agt.data.table import Table
from agt.errors import DataError
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import PureDP
from agt.models.features import FeatureMap
from agt.settings import FeaturesConfig, RelationConfig

N = 150
COPIES = 30


def points() -> tuple[np.ndarray, np.ndarray]:
    """Records of which the first ``COPIES`` occur twice."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)).astype(np.float32)
    y = np.arange(N) % 2
    return np.concatenate([x, x[:COPIES]]), np.concatenate([y, y[:COPIES]])


def embeddings(folder: Path, keep: np.ndarray) -> Dataset:
    x, y = points()
    np.savez(folder / "e.npz", x=x[keep], label=y[keep])
    return Embeddings(path=folder / "e.npz", classes=("0", "1"), declared_size=135).load()


def table(folder: Path, keep: np.ndarray) -> Dataset:
    x, y = points()
    columns = {f"c{i}": x[keep, i].astype(np.float64) for i in range(3)}
    pq.write_table(pa.table({**columns, "y": y[keep]}), folder / "t.parquet")
    return Table(
        path=folder / "t.parquet",
        label="y",
        classes=(0, 1),
        numeric={f"c{i}": (-3, 3) for i in range(3)},
    ).load()


@pytest.mark.parametrize("load", [embeddings, table])
def test_a_private_copy_that_goes_never_takes_a_test_record_with_it(
    tmp_path: Path, load: Callable[[Path, np.ndarray], Dataset]
) -> None:
    everyone = np.arange(N + COPIES)
    whole = load(tmp_path, everyone)
    tests = {row.tobytes() for row in whole.test.features}
    assert not tests & {row.tobytes() for row in whole.train.features}, (
        "copies on both sides of the split"
    )
    private = [
        row
        for row in range(COPIES)
        if len(load(tmp_path, np.delete(everyone, row)).train) == len(whole.train) - 1
    ]
    assert 15 <= len(private) < COPIES
    config = FeaturesConfig(whiten=0.75, public="test")
    public = FeatureMap.from_dataset(config, whole).matrices["whitening"]
    for row in private:
        rest = load(tmp_path, np.delete(everyone, row))
        assert rest.test.features.tobytes() == whole.test.features.tobytes()
        assert rest.test.ids.tolist() == whole.test.ids.tolist()
        assert (FeatureMap.from_dataset(config, rest).matrices["whitening"] == public).all()


def test_medmnist_copies_are_all_public_or_all_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agt.data.medmnist_files.all_info", lambda: None)
    images = np.random.default_rng(0).integers(0, 256, (90, 28, 28), dtype=np.uint8)
    images[60:] = images[30:60]  # each of the last two thirds twice, all of them class 1
    labels = np.repeat([0, 1, 1], 30)[:, None]
    splits = {f"{split}_{kind}": array for split in ("train", "val", "test") for kind, array in
              (("images", images), ("labels", labels))}  # fmt: skip
    np.savez(tmp_path / "m.npz", **splits)
    source = MedMnist(
        name="mine", path=tmp_path / "m.npz", held_out=(0,), finetune_classes=(0, 1), keep={1: 0.5}
    )
    dataset = source.load()
    assert dataset.pretrain is not None
    private, public = (
        {row.tobytes() for row in part.features} for part in (dataset.train, dataset.pretrain)
    )
    assert not private & public
    assert len(public) > 5


def test_medmnist_classes_found_in_the_data_are_not_public(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record with a class of its own would add an output to the model, and a word to the
    labels.
    """
    rng = np.random.default_rng(0)

    def source(labels: list[int], **settings: object) -> MedMnist:
        images = rng.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)
        arrays = {"images": images, "labels": np.array(labels)[:, None]}
        splits = {
            f"{split}_{name}": array
            for split in ("train", "test")
            for name, array in arrays.items()
        }
        np.savez(tmp_path / "m.npz", **splits)
        return MedMnist(name="octmnist", path=tmp_path / "m.npz", **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("agt.data.medmnist_files.all_info", lambda: None)
    for settings in ({}, {"positive": (1,)}):
        dataset = source([0, 1], **settings).load()
        assert dataset.classes != source([0, 1, 2], **settings).load().classes
        assert not dataset.preprocessing.held
        assert [fact.code for fact in dataset.preprocessing.facts if not fact.held] == [
            "classes_unknown_to_medmnist"
        ]
    given = source([0, 1, 2], finetune_classes=(0, 1, 2)).load()
    assert given.preprocessing.held
    assert len(given.classes) == 3
    published = {
        "octmnist": {
            "task": "multi-class",
            "url": "",
            "MD5": "",
            "label": {"0": "a", "1": "b", "2": "c"},
        }
    }
    monkeypatch.setattr("agt.data.medmnist_files.all_info", lambda: published)
    listed = source([0, 1]).load()
    assert (listed.classes, listed.preprocessing.held) == (("a", "b", "c"), True)
    with pytest.raises(DataError, match=r"m\.npz: .*\b3\b"):
        source([0, 3]).load()


def test_a_record_with_a_fraction_does_not_rename_whole_numbers(tmp_path: Path) -> None:
    """An npz of whole numbers is stored as integers; one 0.5 makes it an array of floats, and
    other bytes.
    """
    rows = [[i, i * i % 7] for i in range(40)]
    labels = [i % 2 for i in range(40)]

    def ids(rows: list[list[float]], labels: list[int]) -> list[str]:
        np.savez(tmp_path / "i.npz", x=np.array(rows), label=np.array(labels))
        dataset = Embeddings(path=tmp_path / "i.npz", classes=("0", "1")).load()
        return [*dataset.train.ids, *dataset.test.ids]

    before = ids(rows, labels)
    after = ids([*rows, [0.5, 1]], [*labels, 0])
    assert set(before) < set(after)


def test_a_release_says_what_it_is_about() -> None:
    """A claim about "one record" must not be read as covering queries, or data that training
    refuses.
    """
    claim = Claim(
        guarantee=PureDP(0.1),
        mechanism="randomized_response",
        relation=RelationConfig("add_remove"),
        reasons=(),
        declared=(),
        noisy=False,
    )
    words = claim.lines()
    assert any("queries" in line and "n_max" in line for line in words)
    unproved = replace(claim, reasons=("a",)).lines()
    assert unproved[0] != words[0]
    assert not any("n_max" in line for line in unproved)


def test_reviews_named_by_content_share_their_copies_split() -> None:
    from agt_cli._experiments.reviews import Reviews, _ids_of

    texts = ["good", "bad", "good", "good"]
    labels = np.array([1, 0, 1, 1])
    reviews = Reviews(texts, labels, _ids_of(texts, labels), "here", by_content=True)
    names = reviews.split_names
    assert names[0] == names[2] == names[3] != names[1]
    assert len(set(reviews.ids.tolist())) == 4
    given = Reviews(texts, labels, np.array(["a", "b", "c", "d"]), "here")
    assert given.split_names.tolist() == ["a", "b", "c", "d"]
