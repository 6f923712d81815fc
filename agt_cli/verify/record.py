"""A run's record as an auditor reads it: what each of its files says, as far as it is what the manifest lists."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.facts import Standing
from agt.manifest import Broken, read_digest, unseal
from agt.models.store import as_json
from agt.settings import RelationConfig, validate
from agt_cli.report.checks import Findings
from agt_cli.verify.bound import Bound
from agt_cli.verify.reading import parsed_any


@dataclass
class Record:
    """What a finished run's own files say, as far as they are what the manifest lists; the rest is empty.

    Attributes:
        bound: the folder.
        findings: takes what is seen.
        status, environment, metrics, config: its files.
        conditions: a to g, from their facts.
        spent: of a release.
    """

    bound: Bound
    findings: Findings
    status: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    spent: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, bound: Bound, findings: Findings) -> "Record":
        """Read what is there; whatever cannot be read is a problem that findings take."""
        record = cls(bound, findings)
        for name, key in (("status.json", "status"), ("env.json", "environment"), ("metrics.json", "metrics")):
            with findings.looking(name):
                setattr(record, key, bound.json(name))
        with findings.looking("config.yaml"):
            record.config = bound.yaml("config.yaml")
        if record.status:
            record._check_status()
        if bound.holds("conditions.json"):
            with findings.looking("conditions"):
                record._read_conditions()
        if bound.holds("spent.json"):
            with findings.looking("spent.json"):
                record.spent = unseal(bound.read("spent.json"), "spent.json")
        return record

    @property
    def command(self) -> str:
        """Which command wrote it, by the manifest."""
        return self.bound.manifest.command

    @property
    def relation(self) -> RelationConfig | None:
        """Of a training run."""
        if "relation" not in self.config:
            return None
        relation: RelationConfig = validate(RelationConfig, self.config["relation"], "relation")
        return relation

    @property
    def members(self) -> int:
        """Of a training run's ensemble; 1: it is none."""
        return int((self.config.get("ensemble") or {}).get("members", 1))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What it says of itself, to be shown."""
        environment, revision = self.environment, self.environment.get("revision")
        facts = (
            ("made by", f"agt {self.command}, version {environment.get('agt')}, revision {revision or 'not recorded'}"),
            ("when", f"{self.status.get('started')} to {self.status.get('ended')}"),
            ("dataset", environment.get("dataset")),
            ("data digest", environment.get("data_digest")),
            ("on", f"Python {environment.get('python')}, {environment.get('platform')}, {environment.get('device')}"),
        )
        return tuple((name, str(value)) for name, value in facts if value is not None)

    def _check_status(self) -> None:
        state, command = self.status.get("state"), self.status.get("command")
        holds = state == "done" and command == self.command
        wrong = f"status.json says {state!r} of a run of {command!r}; the manifest is of a finished run of {self.command!r}"
        self.findings.compare("status", holds, f"a finished run of agt {self.command}", wrong)
        if str(self.environment.get("revision", "")).endswith("+changes"):
            self.findings.note("code", "the source tree that it ran from had changes that no revision names")

    def _read_conditions(self) -> None:
        """Each stands as its own facts say; the numbers of them in metrics.json are theirs."""
        nodes = parsed_any(self.bound.read("conditions.json"), "conditions.json")
        conditions = tuple(Condition.of(node) for node in nodes)
        letters = "".join(condition.letter for condition in conditions)
        if letters != "abcdefg":
            raise Broken(f"conditions.json has the conditions {letters!r}, expected a to g")
        facts = [fact for condition in conditions for fact in condition.grounds.facts]
        texts = [*(condition.name for condition in conditions), *(text for f in facts for text in (f.why, f.broken_by))]
        if not all(isinstance(text, str) for text in texts):
            raise Broken("conditions.json has something else where words are expected")
        plain = json.loads(as_json([condition.as_json() for condition in conditions]))
        wrong = [now["letter"] for now, node in zip(plain, nodes, strict=True) if now != node]
        if wrong:
            raise Broken(f"condition {wrong[0]} is said to stand otherwise than its own facts make it stand")
        counted = {
            "conditions": len(conditions),
            "conditions_held": sum(c.held for c in conditions),
            "conditions_declared": sum(c.standing is Standing.DECLARED for c in conditions),
        }
        for key, number in counted.items():
            if self.metrics and self.metrics.get(key) != number:
                raise Broken(f"metrics.json says {key} = {self.metrics.get(key)}, conditions.json has {number}")
        self.conditions = conditions
        self.findings.ok("conditions", f"each stands as its own facts make it stand: {stand_words(self.conditions)}")

    def sources(self) -> Iterator[tuple[str, Path, str | None]]:
        """(name, place, digest) of each folder that it was made from; a digest that nobody asked for is None."""
        environment, mechanism = self.environment, self.config.get("mechanism") or {}
        for name, place, digest in (
            ("training run", environment.get("trained_run"), environment.get("trained_digest")),
            ("released weights", environment.get("release"), self.config.get("digest")),
            ("weights released earlier", mechanism.get("weights"), mechanism.get("weights_digest")),
        ):
            if place is not None and not isinstance(place, str):
                raise Broken(f"the record names no place of its {name}")
            if place is not None:
                asked = digest is not None or name == "training run"  # of which the digest is always recorded
                yield name, Path(place), read_digest(str(digest)) if asked else None
        for audit in environment.get("audits", ()):
            if not isinstance(audit, list) or len(audit) != 2:
                raise Broken("the record names no places of its audits")
            yield "audit", Path(str(audit[0])), read_digest(str(audit[1]))


def stand_words(conditions: Sequence[Condition]) -> str:
    """``6 proved (a b c d f g), 1 declared (e)``."""
    by = {standing: [c.letter for c in conditions if c.standing is standing] for standing in Standing}
    return ", ".join(f"{len(letters)} {standing} ({' '.join(letters)})" for standing, letters in by.items() if letters)
