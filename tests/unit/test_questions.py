"""Which queries ask the same: every part of a question makes another one, and nothing else does."""

from dataclasses import replace

import numpy as np
import pytest

from agt.data.blocks import ROWS, Blocks, as_array, selected
from agt.ledger.questions import UNANSWERED, Asked, Asking
from agt.mechanisms.optimal import RandomizedResponse

ASKING = Asking("sha256:1", RandomizedResponse(eps=0.1), "rigorous", "distance")
ROW = np.array([[0.5, -0.0]])


def test_each_part_makes_another_question() -> None:
    keys = ASKING.keys(b"salt", ROW)
    others = [
        replace(ASKING, run="sha256:2").keys(b"salt", ROW),
        replace(ASKING, mechanism=RandomizedResponse(eps=0.1, delta=1e-9)).keys(b"salt", ROW),
        replace(ASKING, mechanism=RandomizedResponse(eps=np.nextafter(0.1, 1))).keys(b"salt", ROW),
        replace(ASKING, mechanism=RandomizedResponse(eps=0.1, classes=3)).keys(b"salt", ROW),
        replace(ASKING, accounting="paper").keys(b"salt", ROW),
        replace(ASKING, counting="index").keys(b"salt", ROW),
        ASKING.keys(b"other salt", ROW),
        ASKING.keys(b"salt", np.array([[0.5, 0.0]])),
        ASKING.keys(b"salt", ROW[:, :, None]),
        ASKING.keys(b"salt", np.nextafter(ROW, 1)),
    ]
    assert len({key for (key,) in [keys, *others]}) == 1 + len(others)
    assert keys == ASKING.keys(b"salt", np.concatenate([ROW, 2 * ROW]))[:1], "whatever is asked beside it"
    assert keys == ASKING.keys(b"salt", ROW.astype(np.float32)), "0.5 is 0.5"
    assert keys == ASKING.keys(b"salt", np.asfortranarray(ROW))
    assert len(keys[0]) == 32


def test_new_known_and_repeated() -> None:
    keys = [b"a", b"b", b"a", b"c", b"b", b"d"]
    asked = Asked(keys, {b"b": 1})
    assert asked.new.tolist() == [0, 3, 5], "the first of each, in their order"
    answers = asked.answers(np.array([0, 2]))
    assert answers == {b"a": 0, b"c": 2}
    labels = asked.labels(answers)
    assert labels.tolist() == [0, 1, 0, 2, 1, UNANSWERED]
    counts = asked.counts(labels)
    assert {key: counts[key] for key in ("answered", "stored", "unanswered")} == {
        "answered": 5,
        "stored": 2,
        "unanswered": 1,
    }
    assert Asked.each(3).new.tolist() == [0, 1, 2]


@pytest.mark.parametrize("rows", [[0], [2, ROWS - 1, ROWS, ROWS + 3], list(range(0, 2 * ROWS + 5, 7))])
def test_some_rows_of_a_file_that_is_read_block_by_block(rows: list[int]) -> None:
    whole = np.arange(2 * (2 * ROWS + 5), dtype=np.float32).reshape(-1, 2)
    blocks = as_array(Blocks(lambda: (whole[start : start + 1000] for start in range(0, len(whole), 1000)), len(whole)))
    some = selected(blocks, np.array(rows))
    assert len(some) == len(rows)
    assert np.array_equal(np.concatenate([some[i : i + 999] for i in range(0, len(rows), 999)]), whole[rows])
    assert selected(blocks, np.arange(len(whole))) is blocks
    assert np.array_equal(selected(whole, np.array(rows)), whole[rows])
    assert len(selected(whole, np.arange(0))) == 0
