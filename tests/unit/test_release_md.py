"""The page of a release."""

import pytest

from agt_cli.report.release_md import seeds_sentence


@pytest.mark.parametrize(("seed", "simulated"), [(None, False), (0, True)])
def test_the_seed_of_a_mechanism_is_not_taken_for_that_of_the_noise(
    seed: int | None, simulated: bool
) -> None:
    sentence = seeds_sentence({"mechanism": {"seed": 0}, "seed": seed})
    assert ("simulation" in sentence) == simulated
    assert ("operating system" in sentence) != simulated


def test_a_mechanism_without_a_seed_needs_no_sentence_about_it() -> None:
    assert seeds_sentence({"mechanism": {"mu": 1.0}, "seed": None}) == ""
