"""Checks, as an auditor and a machine's doctor say them: what was looked at, how it stands, and what to do about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from agt.errors import AgtError
from agt.manifest import Broken
from agt_cli.report.markdown import visible


class State(StrEnum):
    """How a check ended, the worst last."""

    OK = "ok"
    NOTE = "note"
    UNCHECKED = "not checked"
    PROBLEM = "PROBLEM"

    @property
    def badness(self) -> int:
        """0 for the best."""
        return list(State).index(self)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Its words may hold text from anywhere: nothing in them acts on a terminal.

    Attributes:
        name: what was looked at.
        state: how it stands.
        words: what was seen.
        remedy: what to do; empty: nothing.
    """

    name: str
    state: State
    words: str
    remedy: str = ""

    def __post_init__(self) -> None:
        for key in ("name", "words", "remedy"):
            object.__setattr__(self, key, visible(getattr(self, key), 1000))

    @property
    def cells(self) -> tuple[str, str, str]:
        """A row of a table."""
        return self.name, str(self.state), self.told

    @property
    def told(self) -> str:
        """What was seen, and what to do."""
        return f"{self.words}: {self.remedy}" if self.remedy else self.words

    def as_json(self) -> dict[str, str]:
        """For --json."""
        return {"check": self.name, "state": str(self.state), "words": self.words, "remedy": self.remedy}


def worst(checks: Sequence[Check]) -> State:
    """The worst state of several; ok if there are none."""
    return max((check.state for check in checks), key=lambda state: state.badness, default=State.OK)


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
        """Whatever is not as it should be is a problem of this name, and the rest goes on."""
        try:
            yield
        except (Broken, AgtError) as error:
            self.problem(name, str(error))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            self.problem(name, f"its record does not hold what such a record holds ({type(error).__name__}: {error})")
