"""What an audit finds, as values: subjects, each with its checks, and what it rests on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.manifest import Broken
from agt_cli.report.checks import Check, State, worst
from agt_cli.report.markdown import visible


@dataclass(frozen=True)
class Subject:
    """Something that was looked at: a run, a release, a file of data, a person's word.

    Attributes:
        name: what it is and where it lies.
        checks: of itself.
        facts: (name, value): what its own record says.
        conditions: a to g, where it has them.
        claims: what is certified or guaranteed, a line each.
        rests_on: what it was made from.
        digest: of a folder; empty: it has none.
    """

    name: str
    checks: tuple[Check, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    claims: tuple[str, ...] = ()
    rests_on: tuple["Subject", ...] = ()
    digest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", visible(self.name))
        object.__setattr__(self, "facts", tuple((name, visible(value)) for name, value in self.facts))
        object.__setattr__(self, "claims", tuple(visible(line, 1000) for line in self.claims))

    @property
    def state(self) -> State:
        """Of its own checks, the worst."""
        return worst(self.checks)

    @property
    def every(self) -> Iterator["Subject"]:
        """It, and all that it rests on."""
        yield self
        for part in self.rests_on:
            yield from part.every

    @property
    def problems(self) -> list[Check]:
        """Whatever does not verify, here or below."""
        return [check for part in self.every for check in part.checks if check.state is State.PROBLEM]

    @property
    def declared(self) -> list[str]:
        """What was declared and not proved, in words."""
        return [
            f"{c.letter} {visible(c.name)}: {visible(words, 1000)}"
            for c in self.conditions
            for words in c.grounds.declarations
        ]

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "name": self.name,
            "state": str(self.state),
            "digest": self.digest,
            "facts": dict(self.facts),
            "claims": list(self.claims),
            "conditions": [condition.as_json() for condition in self.conditions],
            "checks": [check.as_json() for check in self.checks],
            "rests_on": [part.as_json() for part in self.rests_on],
        }


@dataclass
class Findings:
    """Checks as they are made."""

    checks: list[Check] = field(default_factory=list)

    def ok(self, name: str, words: str) -> None:
        """It holds."""
        self.checks.append(Check(name, State.OK, words))

    def note(self, name: str, words: str, remedy: str = "") -> None:
        """It holds, and somebody should know."""
        self.checks.append(Check(name, State.NOTE, words, remedy))

    def unchecked(self, name: str, words: str, remedy: str = "") -> None:
        """Nobody could look."""
        self.checks.append(Check(name, State.UNCHECKED, words, remedy))

    def problem(self, name: str, words: str, remedy: str = "") -> None:
        """It does not hold."""
        self.checks.append(Check(name, State.PROBLEM, words, remedy))

    def compare(self, name: str, holds: bool, right: str, wrong: str) -> None:
        """It holds, or it does not."""
        (self.ok if holds else self.problem)(name, right if holds else wrong)

    @contextmanager
    def looking(self, name: str) -> Iterator[None]:
        """Whatever a file holds that it should not is a problem, and the audit goes on."""
        try:
            yield
        except (Broken, ConfigError) as error:
            self.problem(name, str(error))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            self.problem(name, f"its record does not hold what such a record holds ({type(error).__name__}: {error})")
