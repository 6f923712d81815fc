"""What is known about a condition of reference.md section 3: proved here, declared by a person,
or not held.

A claim of privacy may rest on declarations, but never silently: each says what was declared, by
which setting, and what would break it, and every claim, report and release lists it. A declaration
is never dressed as a proof. A fact is a code with values; what it says is made of these where
somebody reads it (agt/fact_sentences.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Union

from agt import fact_sentences, sentences
from agt.fact_sentences import BROKEN_BY, TEMPLATES
from agt.messages import Message, SettingNames, joined
from agt.templates import FORMATS, add_new, check_values, fill

Value = Union[bool, int, float, str, tuple[str, ...], "Fact", tuple["Fact", ...]]


class FactMessage(Message):
    """The sentence of a fact, from a template with the formats of agt/templates.py."""

    def fill(self, values: Mapping[str, Any], names: SettingNames) -> str:
        return fill(self.template, values, names)


class Standing(StrEnum):
    """Whether a fact is proved, declared by a person, or neither; the weakest is last."""

    PROVED = "proved"
    DECLARED = "declared"
    VOID = "not held"

    @property
    def weakness(self) -> int:
        """Return 0 for the strongest standing, 1 and 2 for the weaker ones."""
        return list(Standing).index(self)

    def is_weaker_than(self, other: "Standing") -> bool:
        """Return whether this standing can be relied on less than ``other``."""
        return self.weakness > other.weakness


@dataclass(frozen=True)
class Fact:
    """A fact that a condition of a privacy claim needs.

    Attributes:
        standing: proved: it holds by construction, or code checked it. declared: the user stated it
            in the configuration, and no code can check it. not held: neither.
        code: the key of its sentence in ``fact_sentences.TEMPLATES``.
        values: the values of the sentence's fields, by name; ``setting`` is the setting by which
            something was declared.

    Raises:
        ValueError: no sentence has this code, or it has other fields; the sentence would be empty;
            or the fact is declared but its code has no text about what would make it false
            (``BROKEN_BY``), or the reverse.
    """

    standing: Standing
    code: str
    values: Mapping[str, Value] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Convert values read from a file, and raise ValueError if the sentence cannot be made."""
        object.__setattr__(self, "standing", Standing(self.standing))  # also from a record's text
        object.__setattr__(
            self, "values", {name: _value_of(value) for name, value in self.values.items()}
        )
        if self.code not in TEMPLATES:
            raise ValueError(
                f"{self.code}: this version of agt does not know this fact: use the newer version "
                "of agt that wrote the file"
            )
        if (self.standing is Standing.DECLARED) != (self.code in BROKEN_BY):
            rule = "must be" if self.code in BROKEN_BY else "must not be"
            raise ValueError(
                f"{self.code}: the standing of this fact {rule} 'declared', but it is "
                f"'{self.standing}'"
            )
        check_values(self.code, (TEMPLATES[self.code], BROKEN_BY.get(self.code, "")), self.values)
        if not self.sentence or (self.standing is Standing.DECLARED and not self.broken_by):
            raise ValueError(
                f"{self.code}: with the values {self.values}, the sentence of this fact would be "
                "empty: give other values"
            )

    @property
    def held(self) -> bool:
        """Whether the fact is proved or declared."""
        return self.standing is not Standing.VOID

    @property
    def setting(self) -> str | None:
        """The setting that declared the fact; None: no setting did, or several did."""
        setting = self.values.get("setting")
        return setting if isinstance(setting, str) and self.standing is Standing.DECLARED else None

    @property
    def message(self) -> Message:
        """The sentence of the fact, as a message that names settings."""
        return FactMessage(TEMPLATES[self.code], **self.values)

    @property
    def sentence(self) -> str:
        """The sentence of the fact."""
        return str(self.message)

    @property
    def broken_by(self) -> str:
        """A text on what would make a declaration false; empty if the fact is no declaration."""
        return fill(BROKEN_BY.get(self.code, ""), self.values)

    @property
    def declaration(self) -> str:
        """The sentence of a declaration, with what would make it false."""
        return fact_sentences.declaration(self.sentence, self.broken_by)

    @property
    def words(self) -> str:
        """The sentence of the fact, which says so if the fact is only declared."""
        if self.standing is Standing.DECLARED:
            return fact_sentences.declared(self.declaration)
        return self.sentence


def _value_of(value: Any) -> Any:
    """Return a JSON value as a fact stores it: lists become tuples, and mappings become facts."""
    if isinstance(value, list | tuple):
        return tuple(_value_of(item) for item in value)
    return fact_of(value) if isinstance(value, Mapping) else value


FORMATS.update(
    rows=fact_sentences.rows,
    parameters=lambda each_class: "parameters of each class" if each_class else "parameters",
    fact=lambda fact: fact.sentence,
    facts=lambda facts: "; ".join(fact.sentence for fact in facts),
    broken_by=lambda fact: fact.broken_by,
)


@dataclass(frozen=True)
class Declaration:
    """A declared fact that a claim needs.

    Attributes:
        condition: the letter of the condition that needs it.
        fact: the fact that was declared.
    """

    condition: str
    fact: Fact

    def __str__(self) -> str:
        return sentences.declaration(self.condition, self.fact.sentence, self.fact.broken_by)


def proved(code: str, **values: Value) -> Fact:
    """Return a fact that holds by construction, or was checked."""
    return Fact(Standing.PROVED, code, values)


def declared(code: str, **values: Value) -> Fact:
    """Return a fact that the user stated, and no code can check."""
    return Fact(Standing.DECLARED, code, values)


def not_held(code: str, **values: Value) -> Fact:
    """Return a fact that does not hold, or that the user did not declare."""
    return Fact(Standing.VOID, code, values)


def add_templates(templates: Mapping[str, str], broken_by: Mapping[str, str] | None = None) -> None:
    """Add the sentences of facts that a kind of certificate brings, in the kind's own file.

    Args:
        templates: a sentence for each code.
        broken_by: for the codes of declared facts, a phrase on what would make the declaration
            false.

    Raises:
        ValueError: there is a sentence of that code already.
    """
    add_new(templates, TEMPLATES)
    add_new(broken_by or {}, BROKEN_BY)


@dataclass(frozen=True)
class Evidence:
    """The facts that one condition of a privacy claim needs (reference.md section 3).

    All of them must hold, so the standing of the evidence is that of its weakest fact.

    Attributes:
        facts: the facts, at least one, in the order in which reports list them.

    Raises:
        ValueError: there is no fact.
    """

    facts: tuple[Fact, ...]

    def __post_init__(self) -> None:
        if not self.facts:
            raise ValueError("a condition needs at least one fact as evidence: give a fact")

    @property
    def standing(self) -> Standing:
        """Return the standing of the weakest fact."""
        return max((fact.standing for fact in self.facts), key=lambda standing: standing.weakness)

    @property
    def held(self) -> bool:
        """Return whether every fact is proved or declared."""
        return self.standing is not Standing.VOID

    @property
    def why(self) -> str:
        """Return the facts as one text, the weakest first."""
        weakest_first = sorted(self.facts, key=lambda fact: -fact.standing.weakness)
        return "; ".join(fact.words for fact in weakest_first)

    @property
    def missing(self) -> str:
        """Return the facts that do not hold, as one text; empty if every fact holds."""
        return str(self.missing_message)

    @property
    def missing_message(self) -> Message:
        """Return the facts that do not hold, with the settings that they name."""
        return joined((fact.message for fact in self.facts if not fact.held), "; ")

    @property
    def declarations(self) -> tuple[Fact, ...]:
        """Return the facts that were declared and not proved."""
        return tuple(fact for fact in self.facts if fact.standing is Standing.DECLARED)

    def with_facts(self, *facts: Fact) -> "Evidence":
        """Return the evidence with these facts added at its end; this one is not changed."""
        return Evidence((*self.facts, *facts))


def evidence(*facts: Fact) -> Evidence:
    """Return the evidence made of these facts, all of which must hold."""
    return Evidence(facts)


def fact_of(node: Mapping[str, Any]) -> Fact:
    """Return the fact that ``dataclasses.asdict`` made a JSON value of.

    Args:
        node: the value.

    Raises:
        ValueError, TypeError: ``node`` describes no fact.
    """
    return Fact(**node)


def evidence_from_json(node: Mapping[str, Any]) -> Evidence:
    """Return the evidence that ``dataclasses.asdict`` made the JSON value ``node`` of.

    Raises:
        ValueError, TypeError, KeyError: ``node`` describes no evidence.
    """
    return Evidence(tuple(fact_of(fact) for fact in node["facts"]))
