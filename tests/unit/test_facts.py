"""Proved, declared, not held: facts, what columns are taken to mean, and conditions as weak as their weakest fact."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from agt.certificates.conditions import Condition, declarations, weaker
from agt.data.ids import counts_rows
from agt.data.labelled import Declared, dataset_of
from agt.data.meanings import classes_fact, id_facts, size_fact, split_fact
from agt.facts import Declaration, Fact, Grounds, Standing, declared, grounds, proved, void

SAID = declared("the list is public (dataset.classes)", "it was read off the records")


def test_a_declaration_says_what_would_break_it_and_nothing_else_does() -> None:
    with pytest.raises(ValueError, match="what would break it"):
        Fact(Standing.DECLARED, "the list is public")
    with pytest.raises(ValueError, match="what would break it"):
        Fact(Standing.PROVED, "by construction", "nothing")
    with pytest.raises(ValueError, match="what would break it"):
        proved("")
    with pytest.raises(ValueError, match="held"):
        Fact("held", "as before")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "standing"),
    [
        ((proved("x"),), Standing.PROVED),
        ((proved("x"), SAID), Standing.DECLARED),
        ((void("z"), proved("x"), SAID), Standing.VOID),
    ],
)
def test_grounds_stand_as_their_weakest_fact(facts: tuple[Fact, ...], standing: Standing) -> None:
    assert grounds(*facts).standing is standing
    assert grounds(*facts).held == (standing is not Standing.VOID)
    assert grounds(*reversed(facts)).standing is standing


def test_what_is_missing_comes_first_and_what_was_declared_is_told_apart() -> None:
    found = grounds(proved("by construction"), SAID, void("nobody said"))
    assert found.why == (
        "nobody said; declared: the list is public (dataset.classes); broken if it was read off the records; "
        "by construction"
    )
    assert found.missing == "nobody said"
    assert found.declarations == ("the list is public (dataset.classes); broken if it was read off the records",)
    with pytest.raises(ValueError, match="at least one fact"):
        Grounds(())


def test_conditions_survive_a_record_and_list_what_was_declared() -> None:
    condition = Condition("e", "public preprocessing and choices", grounds(proved("a formula"), SAID))
    assert Condition.of(condition.as_json()) == condition
    told = condition.as_json()
    assert (told["standing"], told["held"]) == ("declared", True)
    (known,) = declarations([condition, Condition("a", "dense grid", grounds(proved("dense")))])
    assert known == Declaration("e", SAID.why, SAID.broken_by)
    with pytest.raises((KeyError, TypeError, ValueError)):
        Condition.of({"letter": "e", "name": "x", "held": True, "why": "y"})  # of an older record: it says less
    assert asdict(condition.grounds)["facts"][1]["standing"] == "declared"


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
    assert counts_rows(np.array(names, dtype=str)) is counts


@pytest.mark.parametrize(("spread", "counts"), [(10, True), (11, False)])
def test_a_tenth_of_the_range_is_the_public_limit(spread: int, counts: bool) -> None:
    numbers = np.unique(np.r_[np.random.default_rng(0).choice(spread * 1000, 998, replace=False), 0, spread * 1000 - 1])
    assert len(numbers) >= 998
    assert counts_rows(np.random.default_rng(1).permutation(numbers).astype(str)) is counts


OWN, ROWS = np.array(["x7", "b2", "k9"]), np.array(["1", "2", "3"])


@pytest.mark.parametrize(
    ("told", "standings", "words"),
    [
        ((None, OWN, None, None, None, False), [Standing.PROVED], ""),
        (("id", OWN, None, None, None, False), [Standing.DECLARED], "row number"),
        (("id", ROWS, None, None, None, False), [Standing.VOID], "dataset.id_permanent=true"),
        (("id", ROWS, None, None, None, True), [Standing.DECLARED], "row number"),
        ((None, OWN, "person", ROWS, None, False), [Standing.PROVED, Standing.VOID], "dataset.unit"),
        ((None, OWN, None, None, "public", False), [Standing.PROVED, Standing.DECLARED], "somebody's private one"),
    ],
)
def test_ids_are_proved_declared_or_void(told: tuple[Any, ...], standings: list[Standing], words: str) -> None:
    facts = id_facts(*told)
    assert [fact.standing for fact in facts] == standings
    assert words in f"{facts[-1].why} {facts[-1].broken_by}"


def test_splits_classes_and_sizes_that_people_state_are_declared() -> None:
    assert split_fact(None, 0.25, "split").standing is Standing.PROVED
    given = split_fact("column 'fold' (dataset.split)", 0.25, "split")
    assert given.standing is Standing.DECLARED
    assert "drawn from the whole set" in given.broken_by
    assert classes_fact(False).standing is Standing.VOID
    assert classes_fact(True).standing is Standing.DECLARED
    assert "just their number" in size_fact("the normaliser 448").broken_by


def test_what_was_not_held_when_a_run_was_made_does_not_come_to_hold_later() -> None:
    def one(fact: Fact) -> Condition:
        return Condition("b", "alone", grounds(fact))

    for then, now, expected in (
        (void("batches of 8"), SAID, Standing.VOID),
        (SAID, void("edited"), Standing.VOID),
        (SAID, proved("by hash"), Standing.DECLARED),
        (proved("by hash"), proved("by hash"), Standing.PROVED),
    ):
        (found,) = weaker([one(then)], [one(now)])
        assert found.standing is expected
    assert weaker([], [one(proved("x"))])[0].standing is Standing.VOID, "a record that is silent proves nothing"


def test_no_declaration_of_either_assessment_is_lost() -> None:
    """A claim lists what the run declared and what is declared today, each once."""
    more, other = declared("the test records are public", "one is private"), declared("the size is public", "it is not")
    then, now = Condition("e", "choices", grounds(SAID, more)), Condition("e", "choices", grounds(SAID, other))
    (found,) = weaker([then], [now])
    assert found.grounds.facts == (SAID, more, other)


@pytest.mark.parametrize("said", [False, True])
def test_ids_of_a_program_that_count_rows_are_said_to_and_are_declared_in_words_alone(said: bool) -> None:
    x, y, ids = np.arange(40.0).reshape(20, 2), np.arange(20) % 2, np.random.default_rng(0).permutation(20)
    dataset, _ = dataset_of(x, y, Declared(classes=(0, 1), features=True, ids=said), ids=ids)
    assert dataset.selection.held is said
    assert any("the ids given count rows" in fact.why for fact in dataset.selection.facts) is not said
