"""Conditions a to g of a privacy claim, made up: all proved, or some not held."""

from dataclasses import replace

from agt.certificates.conditions import Condition
from agt.facts import evidence, not_held, proved

HELD = tuple(
    Condition(letter, f"name of {letter}", evidence(proved("own_words", text="it holds")))
    for letter in "abcdefg"
)


def without(*letters: str) -> tuple[Condition, ...]:
    """Return the conditions, of which those with these letters are not held."""
    return tuple(
        replace(c, evidence=evidence(not_held("own_words", text=f"why not {c.letter}")))
        if c.letter in letters
        else c
        for c in HELD
    )
