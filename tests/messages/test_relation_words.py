"""What a relation says of its neighbours: what one k is, of records and of units."""

import pytest

from agt.relations import RELATIONS


@pytest.mark.parametrize("name", RELATIONS)
def test_its_words_say_what_one_k_is(name: str) -> None:
    assert "up to k records" in RELATIONS[name].describe_neighbours(1)
    assert "up to k units of at most 3 records each" in RELATIONS[name].describe_neighbours(3)
    assert "one record " in RELATIONS[name].describe_edit(1)
    assert "one unit of up to 3 records " in RELATIONS[name].describe_edit(3)


@pytest.mark.parametrize("name", RELATIONS)
def test_what_k_is_the_number_of_can_follow_these_words(name: str) -> None:
    counted = RELATIONS[name].describe_counted(1)
    assert counted.startswith("records ")
    assert "up to" not in counted
    assert RELATIONS[name].describe_counted(3).startswith("units of at most 3 records each ")
    assert "{" not in counted


def test_flip_says_that_features_are_not_protected() -> None:
    text = RELATIONS["flip"].describe_edit(1)
    assert "a record's features, and the fact that it is in the data, are not" in text


def test_a_ball_of_labels_or_features_says_what_changes() -> None:
    assert "with changed labels" in RELATIONS["flip"].describe_neighbours(1)
    ball = RELATIONS["perturb"].describe_neighbours(1, radius=0.05)
    assert "with changed features, each feature by at most 0.05" in ball
