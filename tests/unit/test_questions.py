"""Which queries ask the same: every part of a question makes another one, and nothing else does."""

from typing import Any

import numpy as np
import pytest

from agt.data.arrays import ROWS, Blocks, as_array, selected
from agt.data.records import UNANSWERED
from agt.ledger.questions import Questions, keys_of, question_terms
from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import SmoothLaplace

RESPONSE = RandomizedResponse(eps=0.1)
TERMS = ("sha256:1", RESPONSE, "rigorous", "distance")
ROW = np.array([[0.5, -0.0]])


def key_of(*terms: Any, row: np.ndarray = ROW, salt: bytes = b"salt") -> bytes:
    return keys_of(salt, question_terms(*(terms or TERMS)), row)[0]


def test_each_part_makes_another_question() -> None:
    run, mechanism, accounting, counting = TERMS
    others = [
        key_of("sha256:2", mechanism, accounting, counting),
        *(
            key_of(run, other, accounting, counting)
            for other in (
                RandomizedResponse(eps=0.1, delta=1e-9),
                RandomizedResponse(eps=np.nextafter(0.1, 1)),
                RandomizedResponse(eps=0.1, classes=3),
            )
        ),
        key_of(run, mechanism, "paper", counting),
        key_of(run, mechanism, accounting, "index"),
        key_of(salt=b"other salt"),
        *(
            key_of(row=row)
            for row in (np.array([[0.5, 0.0]]), ROW[:, :, None], np.nextafter(ROW, 1))
        ),
    ]
    assert len({key_of(), *others}) == 1 + len(others)
    for row in (np.concatenate([ROW, 2 * ROW]), ROW.astype(np.float32), np.asfortranarray(ROW)):
        assert key_of(row=row) == key_of(), (
            "whatever is questions beside it, and however it lies in memory"
        )
    assert len(key_of()) == 32


def test_new_known_and_repeated() -> None:
    keys = [b"a", b"b", b"a", b"c", b"b", b"d"]
    questions = Questions(keys, {b"b": 1})
    assert questions.new_rows.tolist() == [0, 3, 5], "the first of each, in their order"
    labels = questions.labels({b"a": 0, b"c": 2})
    assert labels.tolist() == [0, 1, 0, 2, 1, UNANSWERED]
    counts = questions.counts(labels)
    assert {key: counts[key] for key in ("answered", "stored", "unanswered")} == {
        "answered": 5,
        "stored": 2,
        "unanswered": 1,
    }
    assert [*Questions(range(3), {}).new_rows] == [0, 1, 2]


@pytest.mark.parametrize(
    "rows", [[0], [2, ROWS - 1, ROWS, ROWS + 3], list(range(0, 2 * ROWS + 5, 7))]
)
def test_some_rows_of_a_file_that_is_read_block_by_block(rows: list[int]) -> None:
    whole = np.arange(2 * (2 * ROWS + 5), dtype=np.float32).reshape(-1, 2)
    blocks = as_array(
        Blocks(
            lambda: (whole[start : start + 1000] for start in range(0, len(whole), 1000)),
            len(whole),
        )
    )
    some = selected(blocks, np.array(rows))
    assert len(some) == len(rows)
    assert np.array_equal(
        np.concatenate([some[i : i + 999] for i in range(0, len(rows), 999)]), whole[rows]
    )
    assert selected(blocks, np.arange(len(whole))) is blocks
    assert np.array_equal(selected(whole, np.array(rows)), whole[rows])
    assert len(selected(whole, np.arange(0))) == 0


@pytest.mark.parametrize(
    ("mechanism", "settings"),
    [
        (RandomizedResponse(eps=1.0), ["classes", "eps", "delta"]),
        (GaussianMargin(mu=1.0), ["classes", "mu"]),
        (NoisyArgmax(eps=1.0), ["classes", "eps", "moves"]),
        (GaussianArgmax(mu=1.0), ["classes", "moves", "mu"]),
        (SmoothLaplace(eps=1.0, delta=1e-5), ["classes", "eps", "delta"]),
    ],
)
def test_settings_of_a_mechanism_keep_the_order_by_which_ledgers_find_their_answers(
    mechanism: Mechanism, settings: list[str]
) -> None:
    """In another order, a ledger would not find an answer that it stores, and charge it again."""
    (_, described, *_) = question_terms("sha256:1", mechanism, "rigorous", "distance")
    assert list(described) == ["name", *settings]  # type: ignore[call-overload]
