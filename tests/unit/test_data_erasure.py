"""Data without some of its records: the same whether their rows are in the file or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.data.blobs import Blobs
from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt.data.erasure import IsErased, load_without_erased
from agt.data.table import Table
from agt.errors import DataError
from agt.facts import Standing

PEOPLE = pd.DataFrame(
    {
        "name": [f"p{i:02d}" for i in range(40)],
        "home": [f"h{i // 2:02d}" for i in range(40)],
        "age": [20 + i for i in range(39)] + [90],
        "job": ["a", "b", "c", "a"] * 10,
        "part": (["train"] * 3 + ["test"]) * 10,
        "rich": ["no", "yes"] * 19 + ["no", "very"],
    }
)
GIVEN: dict[str, Any] = {
    "numeric": {"age": (0, 100)},
    "categorical": {"job": ("a", "b", "c")},
    "label": "rich",
}
STATED = {**GIVEN, "classes": ("no", "yes", "very"), "id": "name", "split": "part"}
FOUND = {**GIVEN, "numeric": {"age": None}, "id": "name", "split": "part"}


def gone(*names: str) -> IsErased:
    return lambda ids, units: np.isin(ids, names)


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Table]:
    def made(
        settings: dict[str, Any], without: tuple[str, ...] = (), people: pd.DataFrame = PEOPLE
    ) -> Table:
        path = tmp_path / "people.csv"
        people[~people["name"].isin(without)].to_csv(path, index=False)
        return Table(path=path, **settings)

    return made


@pytest.mark.parametrize("settings", [STATED, {**STATED, "unit": "home"}, FOUND])
# p03 is for testing
@pytest.mark.parametrize("names", [("p00",), ("p01", "p13", "p20"), ("p00", "p37"), ("p03",)])
def test_rows_may_be_deleted_or_not(
    table: Callable[..., Table], settings: dict[str, Any], names: tuple[str, ...]
) -> None:
    with_rows = load_without_erased(table(settings), gone(*names))
    assert set(with_rows.erased.ids) == {
        name for name in names if PEOPLE.set_index("name").part[name] == "train"
    }
    deleted = load_without_erased(
        table(settings, without=tuple(with_rows.erased.ids)), gone(*names)
    )
    assert deleted.remaining.digest == with_rows.remaining.digest
    assert deleted.remaining.settled == with_rows.remaining.settled
    assert not len(deleted.erased)
    assert (len(with_rows.remaining.train), len(with_rows.remaining.test)) == (
        30 - len(with_rows.erased),
        10,
    )
    assert not set(with_rows.remaining.train.ids) & {*names}


def test_a_range_read_off_the_records_is_read_off_those_that_stay(
    table: Callable[..., Table],
) -> None:
    parted = load_without_erased(table(FOUND), gone("p00"))
    assert parted.remaining.settled["ranges"] == {"age": (21.0, 58.0)}
    assert parted.untouched.standing is Standing.VOID
    assert parted.untouched.code == "erased_decided_constants"
    filtered = table(FOUND).load()
    kept = replace(filtered, train=filtered.train.take(filtered.train.ids != "p00"))
    assert kept.digest != parted.remaining.digest  # what taking rows out afterwards would give


def test_untouched_where_constants_were_compared(table: Callable[..., Table]) -> None:
    inner = load_without_erased(table(FOUND), gone("p01", "p13"))
    # which columns there are is declared, the range is compared
    assert inner.untouched.standing is Standing.DECLARED
    before = table(FOUND).load().settled
    assert (
        load_without_erased(table(FOUND, without=("p01",)), gone("p01"), before).untouched.standing
        is Standing.DECLARED
    )
    assert (
        load_without_erased(table(FOUND, without=("p00",)), gone("p00"), before).untouched.standing
        is Standing.VOID
    )


def test_what_was_marked_as_read_off_the_records_is_never_untouched(
    table: Callable[..., Table],
) -> None:
    parted = load_without_erased(table({**STATED, "from_data": ("age",)}), gone("p01"))
    assert parted.untouched.standing is Standing.VOID
    assert "'age'" in parted.untouched.sentence
    deleted = load_without_erased(
        table({**STATED, "from_data": ("age",)}, without=("p01",)), gone("p01")
    )
    assert deleted.remaining.digest == parted.remaining.digest  # the range itself is written down


def test_a_class_that_goes_with_its_last_record(table: Callable[..., Table]) -> None:
    people = PEOPLE.assign(part=["train"] * 20 + ["test"] * 19 + ["train"])
    parted = load_without_erased(
        table(FOUND, people=people), gone("p39")
    )  # the only one that is very rich
    assert parted.remaining.classes == ("no", "yes")
    assert parted.untouched.standing is Standing.VOID
    assert load_without_erased(table(STATED, people=people), gone("p39")).remaining.classes == (
        "no",
        "yes",
        "very",
    )


def test_copies_go_from_the_last_on(tmp_path: Path) -> None:
    path = tmp_path / "copies.csv"
    rows = [("1", "no"), ("1", "no"), ("2", "yes"), ("3", "no"), ("4", "yes")] * 2
    people = pd.DataFrame(rows, columns=["age", "rich"]).assign(part=["train"] * 8 + ["test"] * 2)
    people.to_csv(path, index=False)
    given: dict[str, Any] = {
        "label": "rich",
        "numeric": {"age": (0, 10)},
        "classes": ("no", "yes"),
        "split": "part",
    }
    source = Table(path=path, **given)
    copies = source.load().train.ids[[0, 1, 5, 6]]
    with pytest.raises(
        DataError,
        match=r"\b1\b.*\b2\b.*\bid\b",
    ):
        load_without_erased(source, gone(copies[0]))
    last = load_without_erased(source, gone(*copies[2:])).remaining
    people.drop(index=[5, 6]).to_csv(path, index=False)
    assert load_without_erased(source, gone(*copies[2:])).remaining.digest == last.digest
    assert {*copies[:2]} <= {*last.train.ids}
    people = pd.DataFrame(rows, columns=["age", "rich"]).assign(part=["train"] * 8 + ["test"] * 2)
    people.to_csv(path, index=False)
    of_both = source.load().train.ids[3]  # rows 4 and 9 are the same, and the second is for testing
    rest = load_without_erased(source, gone(of_both)).remaining
    people.drop(index=[3]).to_csv(path, index=False)
    assert load_without_erased(source, gone(of_both)).remaining.digest == rest.digest


def test_vectors_whose_center_is_public(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    label = np.arange(30) % 2
    arrays = {
        "x": x,
        "label": label,
        "id": np.arange(100, 130),
        "is_test": np.arange(30) % 3 == 0,
        "c": np.ones(4),
    }
    path = tmp_path / "x.npz"
    settings = {
        "path": path,
        "id": "id",
        "is_test": "is_test",
        "center": "c",
        "classes": (0, 1),
        "unit_norm": True,
    }
    np.savez(path, **arrays)
    source = Embeddings(**settings, public_scaling=True)
    both = [load_without_erased(source, gone("101")).remaining.digest]
    # nobody said whose mean it is
    assert (
        load_without_erased(Embeddings(**settings), gone("101")).untouched.standing is Standing.VOID
    )
    np.savez(
        path,
        **{
            name: np.delete(array, 1, 0) if name != "c" else array for name, array in arrays.items()
        },
    )
    both.append(load_without_erased(source, gone("101")).remaining.digest)
    assert both[0] == both[1] == source.load().digest
    assert load_without_erased(source, gone("101")).untouched.standing is Standing.DECLARED


def test_a_source_that_knows_nothing_of_it() -> None:
    source = Blobs(center=1, std=1, n_train=20)
    loaded = source.load()
    parted = load_without_erased(source, gone(loaded.train.ids[3]))
    assert parted.untouched.standing is Standing.PROVED
    assert len(parted.remaining.train) == 19
    assert parted.remaining.plane is not None
    assert len(parted.remaining.plane.points) == 19

    class Derived(Blobs):
        def load(self) -> Dataset:
            from agt.facts import evidence, not_held

            return replace(
                super().load(),
                preprocessing=evidence(not_held("own_words", text="scaled by the largest")),
            )

    with pytest.raises(DataError, match="load_without"):
        load_without_erased(Derived(center=1, std=1, n_train=20), gone(loaded.train.ids[3]))
