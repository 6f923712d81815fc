"""The findings about one thing that was checked, with those about what it was made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agt.certificates.conditions import Condition
from agt_cli.report.markdown import Check, CheckState, excerpt, worst_state

Facts = tuple[tuple[str, str], ...]
"""(name, value) pairs that describe a thing as it records itself; they are not checked."""


@dataclass(frozen=True)
class VerifiedItem:
    """The findings about one thing that was checked: a run, a release, a ledger or a data file.

    Attributes:
        name: what it is, and its path.
        checks: the results of its own checks.
        facts: what describes it.
        conditions: a to g; empty: it has none.
        claims: sentences that say what is certified or guaranteed.
        rests_on: the findings about what it was made from.
        digest: the digest of a folder; empty: it has none.
        limits: sentences that say what cannot be checked; empty: those for folders in general.
        drawn: whether noise was drawn, whose distribution a record cannot prove.
    """

    name: str
    checks: Sequence[Check] = ()
    facts: Facts = ()
    conditions: tuple[Condition, ...] = ()
    claims: tuple[str, ...] = ()
    rests_on: tuple["VerifiedItem", ...] = ()
    digest: str = ""
    limits: tuple[str, ...] = ()
    drawn: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", excerpt(self.name))
        object.__setattr__(
            self, "facts", tuple((name, excerpt(value)) for name, value in self.facts)
        )
        object.__setattr__(self, "claims", tuple(excerpt(line, 1000) for line in self.claims))

    @property
    def state(self) -> CheckState:
        """The worst state of its own checks."""
        return worst_state(self.checks)

    @property
    def every(self) -> Iterator["VerifiedItem"]:
        """This item, and every item that it was made from, directly or not."""
        yield self
        for part in self.rests_on:
            yield from part.every

    @property
    def problems(self) -> list[Check]:
        """The checks that found a problem, in this item or in what it was made from."""
        return self.checks_of(CheckState.PROBLEM)

    def checks_of(self, state: CheckState) -> list[Check]:
        """Return the checks with this state, in this item or in what it was made from."""
        return [check for part in self.every for check in part.checks if check.state is state]

    @property
    def declared(self) -> list[str]:
        """The letters of the conditions that rely on declarations by a person."""
        return [c.letter for c in self.conditions if c.evidence.declarations]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that --json prints for this item."""
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
