"""Proved, declared, not held: facts, what columns are taken to mean, and conditions as weak as
their weakest fact.
"""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from agt.certificates.conditions import Condition, declarations, weaker_conditions
from agt.data.ids import resemble_row_numbers
from agt.data.in_memory import Declared, dataset_from_arrays
from agt.data.meanings import classes_fact, id_facts, split_fact
from agt.documents import LAST_READER
from agt.errors import Superseded
from agt.facts import (
    Declaration,
    Evidence,
    Fact,
    Standing,
    declared,
    evidence,
    fact_of,
    not_held,
    proved,
)

SAID = declared("classes_public", setting="dataset.classes")


@pytest.mark.parametrize(
    ("standing", "code", "values", "match"),
    [
        (Standing.DECLARED, "batches_by_hash", {}, "batches_by_hash: .*declared"),
        (
            Standing.PROVED,
            "classes_public",
            {"setting": "dataset.classes"},
            "classes_public: .*proved",
        ),
        (Standing.VOID, "marked_public", {}, "marked_public: .*not held"),
        (Standing.PROVED, "own_words", {"text": ""}, "^own_words: "),
        (
            Standing.DECLARED,
            "declared_in_own_words",
            {"text": "rows are short", "broken_by": ""},
            "^declared_in_own_words: ",
        ),
        (Standing.PROVED, "nobody_wrote_this", {}, "nobody_wrote_this"),
        (Standing.PROVED, "grid_dense", {}, r"grid_dense: .*\['last'\].*\[\]"),
        (Standing.PROVED, "grid_dense", {"last": 4, "first": 0}, r"grid_dense: .*\['last'\]"),
        (Standing.PROVED, "margins_clipped", {"clip": "wide", "edits": 3}, "margins_clipped: "),
        (Standing.VOID, "one_sided", {"relation": "no such relation"}, "one_sided: "),
        ("held", "batches_by_hash", {}, "held"),
    ],
)
def test_no_fact_without_its_sentence_and_a_declaration_says_what_would_break_it(
    standing: Any, code: str, values: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        Fact(standing, code, values)


def test_a_declaration_names_the_setting_and_nothing_else_does() -> None:
    assert SAID.setting == "dataset.classes"
    assert not_held("classes_found", setting="dataset.classes").setting is None
    assert declared("marked_public").setting is None


def test_a_fact_of_a_fact_is_read_back_from_json() -> None:
    nested = declared("read_as_before_as_declared", declaration=SAID)
    missing = not_held(
        "features_read_off_records", missing=(not_held("grid_sparse"), not_held("not_assessed"))
    )
    for fact in (nested, missing, proved("digits_used", digits=("0", "1"))):
        assert fact_of(json.loads(json.dumps(asdict(fact)))) == fact
    assert nested.broken_by == SAID.broken_by
    assert all(fact.sentence in missing.sentence for fact in missing.values["missing"])


def test_a_condition_whose_facts_are_text_is_refused_with_the_version_that_reads_it() -> None:
    recorded = {
        "letter": "c",
        "name": "public constants",
        "facts": [{"standing": "declared", "why": "list public", "broken_by": "it was not"}],
    }
    with pytest.raises(Superseded, match=LAST_READER):
        Condition.from_json(recorded)


@pytest.mark.parametrize(
    ("facts", "standing"),
    [
        ((proved("own_words", text="x"),), Standing.PROVED),
        ((proved("own_words", text="x"), SAID), Standing.DECLARED),
        ((not_held("own_words", text="z"), proved("own_words", text="x"), SAID), Standing.VOID),
    ],
)
def test_grounds_stand_as_their_weakest_fact(facts: tuple[Fact, ...], standing: Standing) -> None:
    assert evidence(*facts).standing is standing
    assert evidence(*facts).held == (standing is not Standing.VOID)
    assert evidence(*reversed(facts)).standing is standing


def test_what_is_missing_comes_first_and_what_was_declared_is_told_apart() -> None:
    found = evidence(
        proved("own_words", text="by construction"), SAID, not_held("own_words", text="nobody said")
    )
    assert found.why.startswith("nobody said; ")
    assert "dataset.classes" in found.why
    assert found.why.endswith("; by construction")
    assert found.missing == "nobody said"
    assert found.declarations == (SAID,)
    with pytest.raises(ValueError, match="fact"):
        Evidence(())


def test_conditions_survive_a_record_and_list_what_was_declared() -> None:
    condition = Condition(
        "e",
        "public preprocessing and choices",
        evidence(proved("own_words", text="a formula"), SAID),
    )
    assert Condition.from_json(condition.as_json()) == condition
    told = condition.as_json()
    assert (told["standing"], told["held"]) == ("declared", True)
    (known,) = declarations(
        [condition, Condition("a", "dense grid", evidence(proved("own_words", text="dense")))]
    )
    assert known == Declaration("e", SAID)
    with pytest.raises((KeyError, TypeError, ValueError)):
        # of an older record: it says less
        Condition.from_json({"letter": "e", "name": "x", "held": True, "why": "y"})
    assert asdict(condition.evidence)["facts"][1]["standing"] == "declared"


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        (["0", "1", "2", "3"], True),
        (["17", "18", "19"], True),
        (["p00007", "p00008", "p00009", "p00010"], True),
        (["row-9", "row-10", "row-11"], True),
        (["3", "2", "1"], True),
        (["0", "10", "20"], True),
        (["r0x", "r1x", "r2x"], True),
        (["2", "0", "3", "1"], True),  # shuffled
        (["1", "2", "4", "7", "11"], True),  # with gaps
        ([str(row) for row in range(0, 997, 10)], True),
        ([str(row * row) for row in range(9)], True),
        (["0017", "0003", "0009"], True),
        (["17.0", "3.0", "9.0"], True),
        (["17.", "3.", "9."], True),
        ([*map(str, range(50)), "x7", "none"], True),  # a few odd ones
        ([str(row // 2) for row in range(50)], True),  # people of two rows
        (["7", "7", "7"], False),
        (["1", "2"], True),
        (["1", "2", "٣", "٤"], True),  # some in Arabic digits
        (["1"], False),
        (["a", "b", "c"], False),
        (["p1", "q2", "r3"], False),
        (["17.5", "18.25", "19.125"], False),
        ([str(row * 7919 % 100_003) for row in range(500)], False),
        ([f"{row * 2**40 % 1_000_003:x}-{row}" for row in range(500)], False),
        (["9" * 19 + str(digit) for digit in range(5)], False),
        ([], False),
    ],
)
def test_names_that_count_rows(names: list[str], counts: bool) -> None:
    assert resemble_row_numbers(np.array(names, dtype=str)) is counts


@pytest.mark.parametrize(("spread", "counts"), [(10, True), (11, False)])
def test_a_tenth_of_the_range_is_the_public_limit(spread: int, counts: bool) -> None:
    numbers = np.unique(
        np.r_[
            np.random.default_rng(0).choice(spread * 1000, 998, replace=False), 0, spread * 1000 - 1
        ]
    )
    assert len(numbers) >= 998
    assert resemble_row_numbers(np.random.default_rng(1).permutation(numbers).astype(str)) is counts


OWN = np.array(["x7", "b2", "k9"])
ROWS = np.array(["1", "2", "3"])


@pytest.mark.parametrize(
    ("told", "facts"),
    [
        ((None, OWN, None, None, None, False), [(Standing.PROVED, "ids_by_content")]),
        (("id", OWN, None, None, None, False), [(Standing.DECLARED, "column_names_records")]),
        (("id", ROWS, None, None, None, False), [(Standing.VOID, "column_counts_rows")]),
        (
            ("id", ROWS, None, None, None, True),
            [(Standing.DECLARED, "column_names_records_for_good")],
        ),
        (
            (None, OWN, "person", ROWS, None, False),
            [(Standing.PROVED, "ids_by_content"), (Standing.VOID, "column_counts_rows")],
        ),
        (
            (None, OWN, "person", OWN, None, False),
            [(Standing.PROVED, "ids_by_content"), (Standing.DECLARED, "column_names_units")],
        ),
        (
            (None, OWN, "person", ROWS, None, True),
            [
                (Standing.PROVED, "ids_by_content"),
                (Standing.DECLARED, "column_names_units_for_good"),
            ],
        ),
        (
            (None, OWN, None, None, "public", False),
            [(Standing.PROVED, "ids_by_content"), (Standing.DECLARED, "column_marks_public")],
        ),
    ],
)
def test_ids_are_proved_declared_or_not_held(
    told: tuple[Any, ...], facts: list[tuple[Standing, str]]
) -> None:
    assert [(fact.standing, fact.code) for fact in id_facts(*told)] == facts


def test_lists_of_classes_that_people_state_are_declared_and_hashed_splits_are_proved() -> None:
    assert split_fact(0.25, "split").standing is Standing.PROVED
    assert classes_fact(False).standing is Standing.VOID
    assert classes_fact(True).standing is Standing.DECLARED


def test_what_was_not_held_when_a_run_was_made_does_not_come_to_hold_later() -> None:
    def one(fact: Fact) -> Condition:
        return Condition("b", "alone", evidence(fact))

    for then, now, expected in (
        (not_held("own_words", text="batches of 8"), SAID, Standing.VOID),
        (SAID, not_held("own_words", text="edited"), Standing.VOID),
        (SAID, proved("own_words", text="by hash"), Standing.DECLARED),
        (proved("own_words", text="by hash"), proved("own_words", text="by hash"), Standing.PROVED),
    ):
        (found,) = weaker_conditions([one(then)], [one(now)])
        assert found.standing is expected
    assert (
        weaker_conditions([], [one(proved("own_words", text="x"))])[0].standing is Standing.VOID
    ), "a record that is silent proves nothing"


def test_no_declaration_of_either_assessment_is_lost() -> None:
    """A claim lists what the run declared and what is declared today, each once."""
    more = declared("marked_public")
    other = declared("size_public", size=80.0, setting="declared.size")
    then = Condition("e", "choices", evidence(SAID, more))
    now = Condition("e", "choices", evidence(SAID, other))
    (found,) = weaker_conditions([then], [now])
    assert found.evidence.facts == (SAID, more, other)


@pytest.mark.parametrize("said", [False, True])
def test_ids_of_a_program_that_count_rows_are_said_to_and_are_declared_in_words_alone(
    said: bool,
) -> None:
    x = np.arange(40.0).reshape(20, 2)
    y = np.arange(20) % 2
    ids = np.random.default_rng(0).permutation(20)
    dataset, _ = dataset_from_arrays(
        x, y, Declared(classes=(0, 1), features=True, ids=said), ids=ids
    )
    assert dataset.selection.held is said
    assert ("names_count_rows" in [fact.code for fact in dataset.selection.facts]) is not said


def test_a_rate_that_is_at_its_limit_is_not_said_to_be_below_it() -> None:
    fact = proved("steps_do_not_expand", rate=6.2, limit=6.2, each_class=False, movement=0.01)
    assert "below" not in fact.sentence
