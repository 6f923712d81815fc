"""A run's record, looked at file by file: what it says of itself, and whether its files agree with each other."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.facts import Standing
from agt.manifest import HASH, Broken, unseal
from agt.mechanisms.rigour import neighbours_of
from agt.mechanisms.weights import noise_scale
from agt.models.store import as_json
from agt.relations import RELATIONS
from agt.settings import RelationConfig, validate
from agt_cli.audit.bound import Bound
from agt_cli.audit.budget import NOT_AGTS, Made, guarantee_of, within
from agt_cli.audit.findings import Subject
from agt_cli.audit.reading import file_sha256, parsed_any
from agt_cli.report.checks import Findings
from agt_cli.report.report_md import ball, guarantee

LABELS = 2**30  # bytes of a table of labels


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
        self.conditions = tuple(Condition.of(node) for node in nodes)
        wrong = [
            c.letter for c, node in zip(self.conditions, nodes, strict=True) if json.loads(as_json(c.as_json())) != node
        ]
        letters = "".join(c.letter for c in self.conditions)
        if letters != "abcdefg":
            raise Broken(f"conditions.json has the conditions {letters!r}, expected a to g")
        if wrong:
            raise Broken(f"condition {wrong[0]} is said to stand otherwise than its own facts make it stand")
        counted = {
            "conditions": len(self.conditions),
            "conditions_held": sum(c.held for c in self.conditions),
            "conditions_declared": sum(c.standing is Standing.DECLARED for c in self.conditions),
        }
        for key, number in counted.items():
            if self.metrics and self.metrics.get(key) != number:
                raise Broken(f"metrics.json says {key} = {self.metrics.get(key)}, conditions.json has {number}")
        self.findings.ok("conditions", f"each stands as its own facts make it stand: {stand_words(self.conditions)}")


def stand_words(conditions: Sequence[Condition]) -> str:
    """``6 proved (a b c d f g), 1 declared (e)``."""
    by = {standing: [c.letter for c in conditions if c.standing is standing] for standing in Standing}
    return ", ".join(f"{len(letters)} {standing} ({' '.join(letters)})" for standing, letters in by.items() if letters)


# -- what each command's record has beside that ----------------------------------------------------------------------------


def claims_of_training(record: Record) -> tuple[str, ...]:
    """What certificates of a training run are about, and whether a guarantee may rest on them."""
    relation = record.relation
    if relation is None or not record.conditions:
        return ()
    return f"k counts {ball(relation)} (relation {relation.name})", guarantee(record.conditions)


def check_training(record: Record) -> None:
    """The boxes of a training run are those of its grid; condition g is its relation's."""
    findings = record.findings
    with findings.looking("relation"):
        relation, listed = record.relation, {c.letter: c for c in record.conditions}
        if relation is not None and "g" in listed:
            symmetric = RELATIONS[relation.name].symmetric
            wrong = (
                f"relation={relation.name} is {'' if symmetric else 'not '}symmetric, and condition g is recorded otherwise"
            )
            findings.compare("relation", listed["g"].held == symmetric, f"{neighbours_of(relation)}", wrong)
    if record.spent:
        with findings.looking("budget"):
            noise = record.config["noise"]
            words = f"({float(noise['epsilon']):g}, {float(noise['delta']):g})-differentially private"
            holds = record.spent["guarantee"] == words and record.spent["simulated"] == (noise["seed"] is not None)
            findings.compare(
                "budget", holds, f"spent.json: {words}, as noise.* asks", "spent.json is not what noise.* asks"
            )


def check_release(record: Record, trained: Record | None) -> tuple[str, ...]:
    """The budget of a release, worked out again; returns what may be claimed, a line each.

    Args:
        trained: the run that it was made from; None: it is not there, or not what it was.
    """
    findings, spent, made = record.findings, record.spent, None
    with findings.looking("budget"):
        made = Made.of(record.config, record.metrics)
        if made is None:
            findings.unchecked("budget", NOT_AGTS)
        elif str(made.guarantee) != spent["guarantee"]:
            raise Broken(f"spent.json says {spent['guarantee']}, the mechanism's parameters make it {made.guarantee}")
        elif beyond := within(made.guarantee, 1 if spent["what"] != "labels" else spent["queries"], record.config["total"]):
            raise Broken(f"more was spent than asked for: {beyond}")
    with findings.looking("labels"):
        _check_labels(record, trained)
    simulated = record.config.get("seed") is not None
    if bool(spent.get("simulated")) != simulated or bool(record.metrics.get("simulated")) != simulated:
        findings.problem("draws", "config.yaml, spent.json and metrics.json do not agree on whether it is a simulation")
    elif simulated:
        findings.note("draws", "a SIMULATION: they come from a seed, and guarantee nothing")
    claims: tuple[str, ...] = ()
    if made is not None:
        with findings.looking("claim"):
            claims = _check_claim(record, trained, made, simulated)
    if trained is not None and trained.bound.holds("stability.json") and record.bound.holds("released_weights.json"):
        with findings.looking("noise"):
            _check_noise(record, trained)
    return claims


def _check_claim(record: Record, trained: Record | None, made: Made, simulated: bool) -> tuple[str, ...]:
    """What the conditions grant today."""
    findings, spent = record.findings, record.spent
    if trained is None or trained.relation is None:
        findings.unchecked("claim", "which datasets are neighbours is in the training run, which was not looked at")
        return (str(spent["guarantee"]), *map(str, spent["totals"]))
    better = [
        now.letter
        for then, now in zip(trained.conditions, record.conditions, strict=False)
        if then.standing.weaker(now.standing)
    ]
    if better:
        raise Broken(f"condition {better[0]} stands better here than in the training run that it comes from")
    granted = made.claim(record.conditions, trained.relation, trained.members, record.config, spent["what"])
    proved = granted.proved and not simulated
    if bool(record.metrics.get("proved")) != proved:
        raise Broken(f"metrics.json says proved = {record.metrics.get('proved')}, and the conditions grant {int(proved)}")
    totals = made.spent(granted, spent["queries"], float(record.config["total"].get("delta") or 0.0))
    if totals != tuple(spent["totals"]):
        raise Broken(f"spent.json says {'; '.join(map(str, spent['totals']))}, and it comes to {'; '.join(totals)}")
    findings.ok("claim", f"worked out again from the mechanism, the count and the conditions: {granted.text}")
    findings.ok("budget", f"worked out again: {'; '.join(totals)}")
    return granted.text, *totals


def _check_labels(record: Record, trained: Record | None) -> None:
    """As many labels as were counted, each of them one of the classes."""
    if not record.bound.holds("labels.csv"):
        return
    content = record.bound.read("labels.csv", LABELS).decode()
    rows = csv.reader(StringIO(content, newline=""), strict=True)
    try:
        head, labels = next(rows, []), [row[1] for row in rows if len(row) == 2 or _bad_row(row)]
    except csv.Error as error:
        raise Broken(f"labels.csv is no proper csv ({error})") from None
    count = record.metrics.get("n_queries")
    if head != ["record_id", "label"] or len(labels) != count:
        raise Broken(f"labels.csv holds {len(labels)} labels, and {count} were counted")
    classes = _classes(trained)
    unknown = sorted(set(labels) - classes) if classes else []
    if unknown:
        raise Broken(f"labels.csv holds the label {unknown[0]!r}, which is no class of the training run")
    record.findings.ok("labels", f"{len(labels)}, as many as were counted{', each one of the classes' if classes else ''}")


def _bad_row(row: list[str]) -> bool:
    raise Broken(f"labels.csv has a row of {len(row)} cells")


def _classes(trained: Record | None) -> set[str]:
    if trained is None or not trained.bound.holds("source.json"):
        return set()
    return set(map(str, trained.bound.json("source.json")["names"]))


def _check_noise(record: Record, trained: Record) -> None:
    """sigma is what one record moves the weights by, over mu."""
    noise, moves = record.bound.json("released_weights.json"), trained.bound.json("stability.json")["sensitivity"]
    expected = noise_scale(float(moves), guarantee_of({"mu": noise["mu"]}))  # type: ignore[arg-type]
    if noise["sigma"] != expected or noise["mu"] != record.metrics["mu"]:
        raise Broken(f"sigma = {noise['sigma']!r} was recorded; {moves!r} / mu makes it {expected!r}")
    record.findings.ok(
        "noise", f"sigma = {expected:.6g}: what one record moves the weights by ({float(moves):.6g}) over mu"
    )


# -- what a run was made from ----------------------------------------------------------------------------------------------


def data_subjects(record: Record) -> tuple[Subject, ...]:
    """The data of a training run: the files that it named, where they lay then."""
    files: Mapping[str, Any] = record.environment.get("data_files") or {}
    subjects = [_file(key, entry) for key, entry in files.items() if key != "data_dir"]
    if not subjects:
        target = str((record.config.get("dataset") or {}).get("_target_"))
        findings = Findings()
        findings.unchecked("data", "no file of the owner's, and nothing of it was made anew")
        digest = record.environment.get("data_digest")
        subjects = [Subject(f"data {digest}, which {target} makes or fetches", tuple(findings.checks))]
    return tuple(subjects)


def _file(key: str, entry: Mapping[str, Any]) -> Subject:
    findings, path = Findings(), Path(str(entry.get("path")))
    name, recorded = f"dataset.{key} {path}", str(entry.get("sha256", ""))
    with findings.looking("data"):
        if path.is_dir():
            findings.unchecked("data", f"{name}: a folder, of whose files the record has no hashes")
        elif not HASH.fullmatch(recorded):
            findings.unchecked("data", f"{name}: the record has no hash of it")
        else:
            _compare_file(path, name, recorded, findings)
    return Subject(name, tuple(findings.checks))


def _compare_file(path: Path, name: str, recorded: str, findings: Findings) -> None:
    try:
        digest = file_sha256(path)
    except Broken as error:
        findings.unchecked("data", f"{name}: {error}")
        return
    if digest == recorded:
        findings.ok("data", f"{name}: the bytes that were trained on (sha256 {digest[:16]}...)")
    else:
        findings.note("data", f"{name}: CHANGED since (sha256 {digest[:16]}..., then {recorded[:16]}...): another file now")
