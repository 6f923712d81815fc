"""What was looked at: a run, a release, a file of data, with its checks and all that it rests on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.store import HASH, Broken, open_plain
from agt_cli.report.markdown import Check, CheckState, Findings, excerpt, worst
from agt_cli.verify.folders import Record


@dataclass(frozen=True)
class VerifiedItem:
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
    checks: Sequence[Check] = ()
    facts: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    claims: tuple[str, ...] = ()
    rests_on: tuple["VerifiedItem", ...] = ()
    digest: str = ""
    limits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", excerpt(self.name))
        object.__setattr__(self, "facts", tuple((name, excerpt(value)) for name, value in self.facts))
        object.__setattr__(self, "claims", tuple(excerpt(line, 1000) for line in self.claims))

    @property
    def state(self) -> CheckState:
        """Of its own checks, the worst."""
        return worst(self.checks)

    @property
    def every(self) -> Iterator["VerifiedItem"]:
        """It, and all that it rests on."""
        yield self
        for part in self.rests_on:
            yield from part.every

    @property
    def problems(self) -> list[Check]:
        """Whatever does not verify, here or below."""
        return [check for part in self.every for check in part.checks if check.state is CheckState.PROBLEM]

    @property
    def declared(self) -> list[str]:
        """What was declared and not proved, in words."""
        named = ((f"{c.letter} {excerpt(c.name)}", c.grounds.declarations) for c in self.conditions)
        return [f"{name}: {excerpt(words, 1000)}" for name, declarations in named for words in declarations]

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


def data_items(record: Record) -> tuple[VerifiedItem, ...]:
    """The data of a training run: the files that it named, where they lay then."""
    files = {key: entry for key, entry in (record.environment.get("data_files") or {}).items() if key != "data_dir"}
    if files:
        return tuple(_data_file(f"dataset.{key} {entry.get('path')}", entry) for key, entry in files.items())
    findings, target = Findings(), (record.config.get("dataset") or {}).get("_target_")
    findings.unchecked("data", "no file of the owner's, and nothing of it was made anew")
    name = f"data {record.environment.get('data_digest')}, which {target} makes or fetches"
    return (VerifiedItem(name, findings.checks),)


def _data_file(name: str, entry: dict[str, Any]) -> VerifiedItem:
    findings, path, recorded = Findings(), Path(str(entry.get("path"))), str(entry.get("sha256", ""))
    try:
        if path.is_dir() or not HASH.fullmatch(recorded):
            raise Broken("the record has no hash of it")
        with open_plain(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
        if digest == recorded:
            findings.ok("data", f"{name}: the bytes that were trained on (sha256 {digest[:16]}...)")
        else:
            changed = f"CHANGED since (sha256 {digest[:16]}..., then {recorded[:16]}...): another file now"
            findings.note("data", f"{name}: {changed}")
    except (Broken, ValueError) as error:
        findings.unchecked("data", f"{name}: {error}")
    return VerifiedItem(name, findings.checks)
