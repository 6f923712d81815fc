"""What an audit finds, as values: subjects, each with its checks and what it rests on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agt.certificates.conditions import Condition
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
        limits: what no look at it can show; empty: what no look at a folder can.
    """

    name: str
    checks: tuple[Check, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    claims: tuple[str, ...] = ()
    rests_on: tuple["Subject", ...] = ()
    digest: str = ""
    limits: tuple[str, ...] = ()

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
