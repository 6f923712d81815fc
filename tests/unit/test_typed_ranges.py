"""The range of labels that are numbers, as a person types it."""

import pytest

from agt.errors import ConfigError
from agt_cli.typed_ranges import (
    check_no_ambiguous_points,
    decimal_point,
    malformed_range,
    read_range,
)


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


@pytest.mark.parametrize(
    ("typed", "with_thousands", "with_decimals"),
    [
        ("[0,20.000]", "[0,20000]", "[0,20.0]"),
        ("[-1.500, 1.500]", "[-1500, 1500]", "[-1.5, 1.5]"),
        ("[0,1.125]", "[0,1125]", "[0,1.1250]"),
    ],
)
def test_a_point_that_may_separate_thousands_is_refused_with_both_forms(
    typed: str, with_thousands: str, with_decimals: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_no_ambiguous_points("dataset.range", typed)
    assert f"dataset.range={with_thousands} or dataset.range={with_decimals}" in str(error.value)
    check_no_ambiguous_points("dataset.range", with_thousands)
    check_no_ambiguous_points("dataset.range", with_decimals)


@pytest.mark.parametrize(
    "typed", ["[0,0.125]", "[1.5,20.00]", "[0,1.0625]", "[0,1.500e3]", "1000.5"]
)
def test_other_points_are_decimal_points(typed: str) -> None:
    check_no_ambiguous_points("range", typed)


@pytest.mark.parametrize("typed", ["0 20.000", ["0", "20.000"]])
def test_text_with_an_ambiguous_point_is_no_range(typed: object) -> None:
    with pytest.raises(ConfigError) as error:
        read_range(typed)
    assert "range=[0,20000] or range=[0,20.0]" in str(error.value)


def test_numbers_that_were_read_before_are_ends() -> None:
    assert read_range([0, 1.125]) == (0, 1.125)


@pytest.mark.parametrize("number", ["4000", "0.125", "1.125", "20.000", "-2.5"])
def test_a_range_may_have_a_number_in_the_form_of_a_command_line(number: str) -> None:
    check_no_ambiguous_points("range", f"[0,{decimal_point(number)}]")
    assert float(decimal_point(number)) == float(number)
