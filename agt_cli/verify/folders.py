"""Folders that anybody may have written: which of their files are what they were finished with, and what those say."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any

from agt import __version__
from agt.certificates.conditions import Condition, condition_counts, symmetric_fact
from agt.facts import Standing
from agt.models.box import box_facts
from agt.models.store import as_json
from agt.settings import KGridConfig, RelationConfig, validate
from agt.store import (
    HASH,
    MANIFEST_FILE,
    MAX_TEXT_BYTES,
    Broken,
    Folder,
    Manifest,
    file_kind,
    open_plain,
    parse_json,
    read_digest,
    unseal_manifest,
)
from agt.unlearning.log import KEY_FILE
from agt_cli.report.finished import CHECKPOINTS, COMMIT, LOCK, NEXT, STATE_LOCK
from agt_cli.report.markdown import Check, CheckState, Findings, excerpt, worst
from agt_cli.runs.erased import ABSTAINED_FILE

BESIDE = (KEY_FILE, ABSTAINED_FILE.as_posix())  # of a run with requests to erase: no state's, and so listed nowhere
STAGED = (f"{NEXT}/", f"{COMMIT}/")  # of a state that gives way to the next
MAX_ENTRIES, MAX_FOLDER_DEPTH = 100_000, 12  # of a folder
MAX_NAMED = 12  # files that are named one by one
WITHOUT_DIGEST = (
    "give digest=sha256:... as it was printed and kept elsewhere; a file that was rewritten together with its list shows "
    "there alone"
)
SAME, TINY = 1e-6, 1e-300  # relative; where doubles end
FILES = {
    "status.json": "status",
    "env.json": "environment",
    "metrics.json": "metrics",
    "config.yaml": "config",
    "spent.json": "spent",
}
OnFile = Callable[[int, int], None]
"""Called with how many files were hashed, and of how many."""


def inventory(folder: Path) -> dict[str, str]:
    """What lies in a folder, at any depth: path -> empty for a plain file, else what it is. Nothing of it is opened.

    Raises:
        Broken: there is more in it than any run's folder holds.
    """
    found = dict[str, str]()

    def note(path: Path, kind: str) -> None:
        found[path.relative_to(folder).as_posix()] = kind

    def unlisted(error: OSError) -> None:
        note(Path(error.filename), f"a folder that cannot be listed ({error.strerror or error})")

    for inside, folders, files in os.walk(folder, onerror=unlisted):
        deep = len(Path(inside).relative_to(folder).parts) >= MAX_FOLDER_DEPTH
        for path in (Path(inside, name) for name in (*folders, *files)):
            try:
                kind = file_kind(path.lstat().st_mode)
            except OSError as error:
                kind = f"something that cannot be looked at ({error.strerror or error})"
            if kind != "a folder" or deep:
                note(path, kind)
        folders[:] = [] if deep else folders
        if len(found) > MAX_ENTRIES:
            raise Broken(f"the folder holds more than {MAX_ENTRIES:,} files: no run's does")
    return found


@dataclass(frozen=True)
class Bound(Folder):
    """A folder that a manifest binds together, and of which anything may be wrong.

    Attributes:
        right: the files that are what it lists; no other is read.
    """

    right: frozenset[str] = frozenset()

    def read(self, name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
        """The bytes of a listed file, compared once more: what is parsed is what was hashed.

        Raises:
            Broken: it is not listed, or not what is listed, or larger than ``limit``.
        """
        if name not in self.right:
            raise Broken(f"{name} is {'not what the manifest lists' if self.holds(name) else 'not listed'}: it is not read")
        return self.manifest.load(self.folder, name, limit)


def bind(folder: Path, digest: str | None, findings: Findings, progress: OnFile) -> Bound | None:
    """Read a folder's manifest and hash every file that it lists; None: there is none to go by.

    Args:
        digest: that the folder must have; None: nobody said.
        findings: takes what was seen.
    """
    try:
        manifest = Manifest.open(folder)
    except Broken as error:
        findings.problem("manifest", str(error), "nothing binds these files together, so none of them was looked at")
        return None
    findings.ok("manifest", f"its own seal fits; it lists {len(manifest.files)} files")
    rewritten = f"{manifest.digest} here, and {digest} was to be compared: this is another folder, or a rewritten one"
    if digest is None:
        findings.note("digest", f"{manifest.digest}, compared with nothing", WITHOUT_DIGEST)
    else:
        findings.compare("digest", digest == manifest.digest, f"{digest}, as it was kept elsewhere", rewritten)
    right, wrong = set(), []
    for done, name in enumerate(manifest.files):
        progress(done, len(manifest.files))
        try:
            manifest.check_file(folder, name)
            right.add(name)
        except Broken as error:
            wrong.append(str(error))
    findings.compare("files", not wrong, f"all {len(right)} have the bytes that are listed (sha256)", _some(wrong, "; "))
    with findings.looking("nothing else"):
        found = inventory(folder)
        extra = sorted(found.keys() - {MANIFEST_FILE, *manifest.files, *BESIDE})
        left = [name for name in extra if name in (LOCK, STATE_LOCK) or name.startswith((f"{CHECKPOINTS}/", *STAGED))]
        if left:
            findings.note("nothing else", f"left over from when it ran: {_some(left)}", "delete it")
        kinds = [f"{name}{found[name] and f' ({found[name]})'}" for name in extra if name not in left]
        words = f"not listed, so no part of it, and nothing vouches for them: {_some(kinds)}"
        findings.compare("nothing else", not kinds, "nothing lies beside them", words)
    return Bound(folder, folder, manifest, right=frozenset(right))


def _some(names: list[str], between: str = ", ") -> str:
    more = f"{between}and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return between.join(names[:MAX_NAMED]) + more


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
    checks: tuple[Check, ...] = ()
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
        return [
            f"{c.letter} {excerpt(c.name)}: {excerpt(words, 1000)}"
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
        for name, key in FILES.items():
            if name != "spent.json" or bound.holds(name):
                with findings.looking(name):
                    setattr(record, key, bound.yaml(name) if name.endswith(".yaml") else bound.json(name))
        with findings.looking("spent.json"):
            record.spent = record.spent and unseal_manifest(bound.read("spent.json"), "spent.json")
        if record.status:
            record._check_status()
        if bound.holds("conditions.json"):
            with findings.looking("conditions"):
                record._read_conditions()
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

    def check_metrics(self, name: str, **numbers: float | str) -> None:
        """Raise Broken unless metrics.json has these numbers, which ``name`` makes."""
        for key, number in numbers.items():
            if self.metrics and self.metrics.get(key) != number:
                raise Broken(f"metrics.json says {key} = {self.metrics.get(key)}, {name} makes it {number}")

    def _read_conditions(self) -> None:
        """Each stands as its own facts say, and as the configuration makes it; metrics.json has how many do."""
        nodes = parse_json(self.bound.read("conditions.json"), "conditions.json")
        conditions = tuple(Condition.of(node) for node in nodes)
        letters = "".join(condition.letter for condition in conditions)
        if letters != "abcdefg":
            raise Broken(f"conditions.json has the conditions {letters!r}, expected a to g")
        made = json.loads(as_json([condition.as_json() for condition in conditions]))
        wrong = [now["letter"] for now, node in zip(made, nodes, strict=True) if now != node]
        if wrong:
            raise Broken(f"condition {wrong[0]} is said to stand otherwise than its own facts make it stand")
        counts = condition_counts(conditions)
        self.check_metrics("conditions.json", **counts)
        self._check_implied(conditions)
        self.conditions = conditions
        self.findings.ok("conditions", f"each stands as its own facts make it stand: {stand_words(self.conditions)}")

    def _check_implied(self, conditions: Sequence[Condition]) -> None:
        """A training run's configuration alone decides some facts: they are among the condition's; words by one version."""
        if self.command != "train" or self.relation is None:
            return
        config, training = self.config, self.config["training"]
        grid: KGridConfig = validate(KGridConfig, config["kgrid"], "kgrid")
        certificate = str((config.get("certificate") or {}).get("name", "box"))
        facts = {"g": symmetric_fact(self.relation)}
        if certificate == "box":
            facts |= box_facts(self.relation, grid, str(training["product"]), str(training["dtype"]))
        exact = self.environment.get("agt") == __version__
        for condition in conditions:
            fact = facts.get(condition.letter)
            if fact and (fact not in condition.grounds.facts if exact else condition.held and not fact.held):
                raise Broken(f"condition {condition.letter} is recorded otherwise than config.yaml makes it: {fact.words}")

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


def data_items(record: Record) -> tuple[VerifiedItem, ...]:
    """The data of a training run: the files that it named, where they lay then."""
    files: Mapping[str, Any] = record.environment.get("data_files") or {}
    items = [_file(key, entry) for key, entry in files.items() if key != "data_dir"]
    if not items:
        target, findings = str((record.config.get("dataset") or {}).get("_target_")), Findings()
        findings.unchecked("data", "no file of the owner's, and nothing of it was made anew")
        name = f"data {record.environment.get('data_digest')}, which {target} makes or fetches"
        items = [VerifiedItem(name, tuple(findings.checks))]
    return tuple(items)


def _file(key: str, entry: Mapping[str, Any]) -> VerifiedItem:
    findings, path, recorded = Findings(), Path(str(entry.get("path"))), str(entry.get("sha256", ""))
    name = f"dataset.{key} {path}"
    with findings.looking("data"):
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
        except Broken as error:
            findings.unchecked("data", f"{name}: {error}")
    return VerifiedItem(name, tuple(findings.checks))


def first_difference(recorded: Any, derived: Any, place: str = "") -> str:
    """Where two JSON values differ first, and how; empty: nowhere.

    Numbers are the same within what another machine's special functions may differ by.
    """
    if isinstance(recorded, dict) and isinstance(derived, dict):
        pairs = (
            (f"{place}.{key}" if place else key, recorded.get(key), derived.get(key)) for key in {**derived, **recorded}
        )
    elif isinstance(recorded, list | tuple) and isinstance(derived, list | tuple) and len(recorded) == len(derived):
        pairs = ((f"{place}[{at}]", *values) for at, values in enumerate(zip(recorded, derived, strict=True)))
    else:
        numbers = isinstance(recorded, float) and isinstance(derived, float)
        alike = math.isclose(recorded, derived, rel_tol=SAME, abs_tol=TINY) if numbers else recorded == derived
        return "" if alike else f"{place} is recorded as {recorded!r}, and is {derived!r}"
    return next((words for at, one, other in pairs if (words := first_difference(one, other, at))), "")
