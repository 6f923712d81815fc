"""The range of labels that are numbers, as a person types it."""

import pytest

from agt.errors import ConfigError
from agt_cli.typed_ranges import malformed_range, read_range


@pytest.mark.parametrize("typed", ["[0, 120]", "0 120", "0,120", [0, 120], ("0", "120")])
def test_two_numbers_are_the_ends_of_a_range(typed: object) -> None:
    ends = read_range(typed)
    assert isinstance(ends, tuple)
    assert [float(end) for end in ends] == [0, 120]


@pytest.mark.parametrize(
    "typed", ["0-120", "0..120", "0 to 120", ["0 120"], ["0;120"], "(0,120)", "0:120"]
)
def test_two_numbers_in_another_form_are_shown_in_the_right_one(typed: object) -> None:
    with pytest.raises(ConfigError) as error:
        read_range(typed)
    assert "range=[0,120]" in str(error.value)


@pytest.mark.parametrize("typed", [5, [0, 1, 2], [0, "abc"], "0 1 2", "", {"low": 0}])
def test_other_than_two_numbers_are_answered_with_the_form(typed: object) -> None:
    with pytest.raises(ConfigError) as error:
        read_range(typed)
    assert "range=[LOW,HIGH]" in str(error.value)


@pytest.mark.parametrize(
    ("typed", "form"),
    [
        ("-5--1", "[-5,-1]"),
        (".5-1", "[.5,1]"),
        ("[0,1e3", "[0,1e3]"),
        ("1.5..2.5", "[1.5,2.5]"),
        ("0,5-10,5", "[LOW,HIGH]"),
    ],
)
def test_signs_points_and_powers_belong_to_their_numbers(typed: str, form: str) -> None:
    assert f"dataset.range={form}" in malformed_range("dataset.range", typed)
