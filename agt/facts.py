"""What is known about a condition of method.md section 3: proved here, declared by a person, or not held.

A claim of privacy may rest on declarations, but never silently: each says in words what was declared, by which setting, and
what would break it, and every claim, report and release lists it. A declaration is never dressed as a proof.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agt import sentences


class Standing(StrEnum):
    """How far a fact can be relied on, the weakest last."""

    PROVED = "proved"
    DECLARED = "declared"
    VOID = "not held"

    @property
    def weakness(self) -> int:
        """0 for the strongest."""
        return list(Standing).index(self)

    def weaker(self, other: "Standing") -> bool:
        """Whether this one can be relied on less."""
        return self.weakness > other.weakness


@dataclass(frozen=True)
class Fact:
    """One thing that a condition needs.

    Attributes:
        standing: proved: it holds by construction, or code checked it. declared: whoever runs this said so in the
            configuration, and nothing here can check it. not held: neither.
        why: for a stranger to read; of a declaration, what was declared and by which setting.
        broken_by: of a declaration, what would make it false; empty otherwise.

    Raises:
        ValueError: a declaration that does not say what would break it, or a fact of another kind that does; no words.
    """

    standing: Standing
    why: str
    broken_by: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "standing", Standing(self.standing))  # also from a record's text
        if not (isinstance(self.why, str) and isinstance(self.broken_by, str)):
            raise ValueError(f"a fact is told in words: {self}")
        if not self.why or (self.standing is Standing.DECLARED) != bool(self.broken_by):
            raise ValueError(f"a declaration, and nothing else, says what would break it: {self}")

    @property
    def held(self) -> bool:
        """Proved or declared."""
        return self.standing is not Standing.VOID

    @property
    def words(self) -> str:
        """In one clause: a declaration says that it is one."""
        return f"declared: {self.why}; broken if {self.broken_by}" if self.broken_by else self.why


@dataclass(frozen=True)
class Declaration:
    """A declared fact that a claim rests on.

    Attributes:
        condition: the letter of the condition that needs it.
        why, broken_by: as ``Fact`` has them.
    """

    condition: str
    why: str
    broken_by: str

    def __str__(self) -> str:
        return sentences.declaration(self.condition, self.why, self.broken_by)


def proved(why: str) -> Fact:
    """What holds by construction, or was checked."""
    return Fact(Standing.PROVED, why)


def declared(why: str, broken_by: str) -> Fact:
    """What a person said, and no code can check."""
    return Fact(Standing.DECLARED, why, broken_by)


def void(why: str) -> Fact:
    """What does not hold, or what nobody said."""
    return Fact(Standing.VOID, why)


@dataclass(frozen=True)
class Grounds:
    """Everything that one condition rests on: it stands as its weakest fact does.

    Attributes:
        facts: at least one.

    Raises:
        ValueError: no fact at all.
    """

    facts: tuple[Fact, ...]

    def __post_init__(self) -> None:
        if not self.facts:
            raise ValueError("a condition rests on at least one fact")

    @property
    def standing(self) -> Standing:
        """That of the weakest fact."""
        return max((fact.standing for fact in self.facts), key=lambda standing: standing.weakness)

    @property
    def held(self) -> bool:
        """Nothing is missing; some of it may be declared."""
        return self.standing is not Standing.VOID

    @property
    def why(self) -> str:
        """The facts in words, the weakest first."""
        return "; ".join(fact.words for fact in sorted(self.facts, key=lambda fact: -fact.standing.weakness))

    @property
    def missing(self) -> str:
        """What is not held, in words; empty if nothing is."""
        return "; ".join(fact.why for fact in self.facts if fact.standing is Standing.VOID)

    @property
    def declarations(self) -> tuple[str, ...]:
        """What was declared, in words, and what would break it."""
        return tuple(f"{f.why}; broken if {f.broken_by}" for f in self.facts if f.standing is Standing.DECLARED)

    def and_(self, *facts: Fact) -> "Grounds":
        """The same and more."""
        return Grounds((*self.facts, *facts))


def grounds(*facts: Fact) -> Grounds:
    """Several facts that must all hold."""
    return Grounds(facts)


def grounds_of(node: Mapping[str, Any]) -> Grounds:
    """Read back what ``dataclasses.asdict`` made of grounds.

    Raises:
        ValueError, TypeError, KeyError: it is no such thing.
    """
    return Grounds(tuple(Fact(**fact) for fact in node["facts"]))
