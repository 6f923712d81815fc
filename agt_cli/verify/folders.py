"""Folders that anybody may have written: which of their files are what they were finished with, and
what those say.

A training run's model is read as agt's own commands read it, with no data: conditions.json, the
constants and the sizes in metrics.json are functions of config.yaml and of what source.json has of
the data. Nothing of others' code is loaded.
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np

from agt import __version__
from agt.certificates.conditions import Condition, condition_counts, upgrade_json
from agt.errors import Superseded, counted, few
from agt.facts import LAST_IN_WORDS, Fact, Standing
from agt.models.fitting import load
from agt.models.model import Model
from agt.problem import Settings
from agt.settings import RelationConfig, build, validate
from agt.store.json_text import as_json, parse_json
from agt.store.manifest import HASH, MANIFEST_FILE, Manifest, read_digest, unseal_manifest
from agt.store.reading import MAX_TEXT_BYTES, Broken, file_kind, open_plain
from agt.targets import is_own_code
from agt_cli.choices import naming
from agt_cli.report.finished import CHECKPOINTS, COMMIT, LOCK, NEXT, STATE_LOCK, Run
from agt_cli.report.markdown import Check, CheckState, Findings, excerpt, worst
from agt_cli.runs.pending import ABSTAINED_FILE
from agt_cli.runs.prepare import RunWithoutRecords, kept_head, run_without_records, settings_parts
from agt_cli.unlearn.log import KEY_FILE, REQUEST_LOG_FILE

# of a run with requests to erase: no state's, and so listed nowhere
BESIDE = (KEY_FILE, ABSTAINED_FILE.as_posix())
LEFT_OVER = (LOCK, STATE_LOCK, f"{CHECKPOINTS}/", f"{NEXT}/", f"{COMMIT}/")
# metrics of conditions that records of versions up to 0.10 do not have
COUNTS_SINCE_0_11 = {"conditions_proved", "conditions_not_met"}
MAX_ENTRIES, MAX_FOLDER_DEPTH = 100_000, 12  # of a folder
MAX_READ_BYTES = 2**30  # of a file that is not only hashed
MAX_NAMED = 12  # files that are named one by one
MAX_STEPS = 10**7  # of a training that is followed
WITHOUT_DIGEST = (
    "give digest=sha256:... (the digest that was printed when the folder was made, and that "
    "you stored elsewhere). Without it, agt cannot detect that a file was changed together "
    "with the list of files (manifest.json)"
)
# files that say, or are, what was given away -> which commands write them, or did (tune)
RELEASED = {
    "spent.json": ("train", "tune", "measure", "predict"),
    "claim.json": ("tune", "measure", "predict"),
    "released_weights.json": ("tune", "predict"),
    "released_weights.safetensors": ("tune", "predict"),
    "labels.csv": ("predict",),
    "labels.parquet": ("predict",),
}
# what another machine's special functions may differ by, relative; where doubles end
SAME, TINY = 1e-6, 1e-300
OnFile = Callable[[int, int], None]
"""Called with how many files were hashed, and of how many."""


def inventory(folder: Path) -> dict[str, str]:
    """Return what lies in a folder, at any depth; nothing of it is opened.

    Returns:
        Path -> empty for a plain file, otherwise what it is.

    Raises:
        Broken: there is more in it than any run's folder holds.
    """
    found: dict[str, str] = {}

    def note_unlisted(error: OSError) -> None:
        path = Path(error.filename).relative_to(folder).as_posix()
        found[path] = (
            f"this folder's files cannot be listed ({error.strerror}), so they were not checked"
        )

    for inside, folders, files in os.walk(folder, onerror=note_unlisted):
        is_deepest = len(Path(inside).relative_to(folder).parts) >= MAX_FOLDER_DEPTH
        for name in (*folders, *files):
            path = Path(inside, name)
            mode = path.lstat().st_mode
            if is_deepest or not stat.S_ISDIR(mode):
                found[path.relative_to(folder).as_posix()] = file_kind(mode)
        if is_deepest:
            folders.clear()  # os.walk goes no further
        if len(found) > MAX_ENTRIES:
            raise Broken(
                f"the folder contains more than {MAX_ENTRIES:,} files, but no run of agt "
                "writes so many: give the folder of one run"
            )
    return found


@dataclass(frozen=True)
class Record(Run):
    """A finished folder of which nothing is believed.

    What cannot be read is a problem among the findings, and empty from then on.

    Attributes:
        findings: takes what is seen.
    """

    findings: Findings = field(default_factory=Findings)

    @classmethod
    def bind(
        cls, folder: Path, digest: str | None, findings: Findings, progress: OnFile
    ) -> "Record | None":
        """Read a folder's manifest and hash every file that it lists.

        Args:
            folder: that is verified.
            digest: that the folder must have; None: nobody said.
            findings: where problems are noted.
            progress: told how many files were hashed.

        Returns:
            The record; None: the folder has no manifest that can be read.
        """
        try:
            manifest = Manifest.open(folder)
        except Broken as error:
            findings.problem(
                "manifest",
                str(error),
                "none of the folder's files was checked, because there is no list of their hashes",
            )
            return None
        listed = len(manifest.files)
        findings.ok(
            "manifest",
            f"manifest.json, the list of files, matches its own hash and lists {listed} files",
        )
        rewritten = (
            f"the digest of this folder is {manifest.digest}, not {digest} as given, so this is "
            "another folder, or the folder was changed"
        )
        if digest is None:
            findings.note(
                "digest",
                f"the digest of this folder is {manifest.digest}, which could not be compared, "
                "because digest=... was not given",
                WITHOUT_DIGEST,
            )
        else:
            findings.compare(
                "digest",
                digest == manifest.digest,
                f"the digest of this folder is {digest}, as given",
                rewritten,
            )
        record = cls(folder, folder, manifest, findings=findings)
        record._hash(progress)
        with findings.looking("nothing else"):
            record._look_beside()
        return record

    def _hash(self, progress: OnFile) -> None:
        """Compare every listed file with its hash, and note which differ."""
        wrong = []
        listed = len(self.manifest.files)
        for done, name in enumerate(self.manifest.files):
            progress(done, listed)
            try:
                self.manifest.check_file(self.folder, name)
            except Broken as error:
                wrong.append(str(error))
        right = f"all {listed} listed files have the hashes (sha256) that manifest.json lists"
        self.findings.compare("files", not wrong, right, few(wrong, MAX_NAMED, "; "))

    def _look_beside(self) -> None:
        """Note the files of the folder that its manifest does not list."""
        found = inventory(self.folder)
        extra = sorted(found.keys() - {MANIFEST_FILE, *self.manifest.files, *BESIDE})
        temporary = []
        unlisted = []
        for name in extra:
            if name in LEFT_OVER[:2] or name.startswith(LEFT_OVER[2:]):
                temporary.append(name)
            else:
                kind = found[name]
                unlisted.append(f"{name} ({kind})" if kind else name)
        if temporary:
            names = few(temporary, MAX_NAMED)
            self.findings.note(
                "nothing else",
                f"the folder contains temporary files of the run: {names}",
                "delete these files",
            )
        names = few(unlisted, MAX_NAMED)
        words = (
            "these files are not listed in manifest.json, so they are not part of this run and "
            f"cannot be checked (move them out of the folder): {names}"
        )
        self.findings.compare(
            "nothing else",
            not unlisted,
            "the folder contains no files that manifest.json does not list",
            words,
        )

    def read(self, name: str, limit: int = MAX_READ_BYTES) -> bytes:
        """Return a listed file, compared once more: what is parsed is what was hashed.

        Raises:
            ConfigError: it is not listed, or it is another.
        """
        return super().read(name, min(limit, MAX_READ_BYTES))

    def look(self, name: str, check: "Callable[..., str | None]", *given: Any) -> None:
        """Run a check of this record, and note what it found.

        Args:
            name: what is checked, for the findings.
            check: returns what holds, in words; None: there is nothing to see, or it noted that
                itself.
            given: further arguments of the check.
        """
        with self.findings.looking(name):
            if words := check(self, *given):
                self.findings.ok(name, words)

    def _recorded(self, name: str) -> dict[str, Any]:
        with self.findings.looking(name):
            return super()._recorded(name)
        return {}

    @property
    def command(self) -> str:
        """Which command wrote it, by the manifest."""
        return self.manifest.command

    @cached_property
    def spent(self) -> dict[str, Any]:
        """What a release says that it gave away; empty: nothing, or it cannot be read."""
        with self.findings.looking("spent.json"):
            content = self.read("spent.json", MAX_TEXT_BYTES) if self.holds("spent.json") else b""
            return unseal_manifest(content, "spent.json") if content else {}
        return {}

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions a to g, each with the standing that its own facts give it.

        metrics.json must count as many of each standing.
        """
        with self.findings.looking("conditions"):
            content = (
                self.read("conditions.json", MAX_TEXT_BYTES)
                if self.holds("conditions.json")
                else b"[]"
            )
            recorded = parse_json(content, "conditions.json")
            nodes = [upgrade_json(node) for node in recorded]
            conditions = tuple(Condition.from_json(node) for node in nodes)
            if not conditions and not self.holds("conditions.json"):
                return ()
            if (letters := "".join(condition.letter for condition in conditions)) != "abcdefg":
                raise Broken(
                    f"conditions.json contains the conditions {letters!r}, but should contain "
                    "each of the conditions a to g once"
                )
            difference = first_difference(nodes, _plain(conditions), "conditions")
            if not difference and nodes == recorded and content != as_json(nodes):
                difference = "conditions.json is not formatted as agt formats this file"
            if difference:
                raise mismatch("a condition", "its facts in conditions.json", difference)
            counts = condition_counts(conditions)
            for name in COUNTS_SINCE_0_11 - self.metrics.keys():
                del counts[name]  # the record is older than these
            self.check_metrics("conditions.json", **counts)
            statuses = stand_words(conditions)
            self.findings.ok(
                "conditions", f"the status of each condition follows from its facts: {statuses}"
            )
            if count := facts_in_words(conditions):
                facts = counted(count, "fact")
                self.findings.unchecked(
                    "words",
                    f"an earlier version of agt wrote {facts} in conditions.json as free text, so "
                    "the text could not be checked",
                )
            return conditions
        return ()

    @cached_property
    def rebuilt_model(self) -> Model | None:
        """The model of a training run, as its record makes it without its data.

        None: it has none, or it could not be made here.
        """
        with self.findings.looking("model"), self._naming_version():
            model = _model_of(self) if self.command == "train" else None
            if model is not None:
                _check_model(self, model)
            return model
        return None

    @contextmanager
    def _naming_version(self) -> Iterator[None]:
        """Name the version that made what this version no longer reads, in its error."""
        try:
            yield
        except Superseded as error:
            version = self.environment.get("agt")
            raise Superseded(
                f"this folder was made by agt {version}, but is checked by agt {__version__}: "
                f"{error}"
            ) from None

    @property
    def classes(self) -> list[str]:
        """Names of the labels; empty: not known."""
        if self.rebuilt_model is None or self.rebuilt_model.number_votes is not None:
            return []
        return [*self.rebuilt_model.problem.dataset.classes]

    def texts_of(self, labels: Iterable[int]) -> list[str] | None:
        """Return labels, as a ledger stores them, as files of labels have them; None: not known."""
        model = self.rebuilt_model
        if model is None:
            return None
        if model.number_votes is not None:
            sums = np.fromiter(labels, dtype=np.int64)
            return [repr(number) for number in model.number_votes.mean_of(sums).tolist()]
        return [self.classes[label] for label in labels]

    @property
    def relation(self) -> RelationConfig | None:
        """The relation of a training run; None: its settings name none."""
        if "relation" not in self.config:
            return None
        return validate(RelationConfig, self.config["relation"], "relation")

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What the record says of itself, to be shown: what each fact is about, and the fact."""
        environment = self.environment
        version = environment.get("agt")
        revision = environment.get("revision") or "not recorded"
        facts = (
            ("made by", f"agt {self.command}, version {version}, revision {revision}"),
            ("when", f"{self.status.get('started')} to {self.status.get('ended')}"),
            ("dataset", environment.get("dataset")),
            ("data digest", environment.get("data_digest")),
            (
                "on",
                f"Python {environment.get('python')}, {environment.get('platform')}, "
                f"{environment.get('device')}",
            ),
        )
        return tuple((name, str(value)) for name, value in facts if value is not None)

    def check_status(self) -> None:
        """Note whether status.json and the folder's files suit a finished run of this command."""
        state, command = self.status.get("state"), self.status.get("command")
        wrong = (
            f"status.json describes a run of {command!r} in the state {state!r}, but manifest.json "
            f"describes a finished run of {self.command!r}"
        )
        holds = state == "done" and command == self.command
        self.findings.compare("status", holds, f"the run of agt {self.command} is finished", wrong)
        if strange := [
            name
            for name, commands in RELEASED.items()
            if self.holds(name) and self.command not in commands
        ]:
            names = few(strange)
            self.findings.problem(
                "files",
                f"agt {self.command} wrote this folder, but the folder contains files that only "
                f"other commands write: {names}",
            )
        if self.holds("spent.json") and not self.holds("conditions.json"):
            self.findings.problem(
                "files",
                "spent.json is present, but conditions.json, on which it relies, is missing",
            )
        if str(self.environment.get("revision", "")).endswith("+changes"):
            self.findings.note(
                "code",
                "agt ran from source code with changes that were not committed, so the "
                "recorded revision does not identify this code",
            )

    def check_metrics(self, name: str, **numbers: object) -> None:
        """Raise Broken unless metrics.json has these numbers, which ``name`` makes."""
        if self.metrics:
            recorded = {key: self.metrics.get(key) for key in numbers}
            check_match("metrics.json", recorded, name, numbers)

    def sources(self) -> Iterator[tuple[str, Path, str | None]]:
        """Yield the folders that it was made from: name, place and digest (None: any).

        Raises:
            Broken: a place is not text.
        """
        environment, mechanism = self.environment, self.config.get("mechanism") or {}
        # of a training run it is always recorded
        trained_digest = str(environment.get("trained_digest"))
        for name, place, digest in (
            ("training run", environment.get("trained_run"), trained_digest),
            ("released weights", environment.get("release"), self.config.get("digest")),
            ("weights released earlier", mechanism.get("weights"), mechanism.get("weights_digest")),
        ):
            if place is not None and not isinstance(place, str):
                raise Broken(
                    f"the path of the {name}, as recorded in this folder, is {place!r}, which is "
                    "not text"
                )
            if place is not None:
                yield name, Path(place), None if digest is None else read_digest(str(digest))


def facts_in_words(conditions: Sequence[Condition]) -> int:
    """Return how many facts of conditions an earlier version recorded as text."""
    return sum(fact.in_words for condition in conditions for fact in condition.evidence.facts)


def stand_words(conditions: Sequence[Condition]) -> str:
    """Return the conditions of each standing, as in ``6 proved (a b c d f g), 1 declared (e)``."""
    parts = []
    for standing in Standing:
        letters = [condition.letter for condition in conditions if condition.standing is standing]
        if letters:
            listed = " ".join(letters)
            parts.append(f"{len(letters)} {standing} ({listed})")
    return ", ".join(parts)


def first_difference(recorded: Any, derived: Any, place: str = "") -> str:
    """Return in words where two JSON values differ first, and how; empty: nowhere.

    Numbers are the same within what another machine's special functions may differ by.

    Args:
        recorded: as a file has it.
        derived: as it should be.
        place: where in the file.
    """
    both_lists = isinstance(recorded, list | tuple) and isinstance(derived, list | tuple)
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for key in {**derived, **recorded}:
            inside = f"{place}.{key}" if place else key
            difference = first_difference(recorded.get(key), derived.get(key), inside)
            if difference:
                return difference
        return ""
    if both_lists and len(recorded) == len(derived):
        for index, (one, other) in enumerate(zip(recorded, derived, strict=True)):
            difference = first_difference(one, other, f"{place}[{index}]")
            if difference:
                return difference
        return ""
    if type(recorded) is type(derived) is float:
        same = math.isclose(recorded, derived, rel_tol=SAME, abs_tol=TINY)
    else:
        # True equals 1 in Python, but not in JSON
        same = recorded == derived and isinstance(recorded, bool) == isinstance(derived, bool)
    return "" if same else f"{place} is recorded as {recorded!r}, but should be {derived!r}"


def mismatch(name: str, source: str, difference: str) -> Broken:
    """Return what to raise of a file that is not what follows from something else.

    Args:
        name: the file, or what of it.
        source: what its values follow from.
        difference: what differs, as of ``first_difference``.
    """
    return Broken(
        f"{name} does not match {source}, so one of the two was altered or damaged after agt "
        f"wrote it: {difference}"
    )


def check_match(name: str, recorded: Any, source: str, derived: Any, place: str = "") -> None:
    """Raise Broken (``mismatch``) unless values of a file are those that follow from its source.

    Args:
        name: the file, or what of it.
        recorded: its values.
        source: what they follow from.
        derived: the values that follow.
        place: where the values are in the file.
    """
    if difference := first_difference(recorded, derived, place):
        raise mismatch(name, source, difference)


def check_version(version: str, name: str, record: "Record") -> None:
    """Raise Broken unless a file names the version of agt that env.json beside it names.

    Sentences of another version are not compared, so a version that is changed alone would spare
    them.
    """
    made_by = record.environment.get("agt")
    if version != made_by:
        raise Broken(
            f"the version of agt that wrote this folder is {version!r} according to {name}, but "
            f"{made_by!r} according to env.json"
        )


def rendered_alike(recorded: object, made: object) -> bool:
    """Return whether texts for people are those that are made from fields, as a whole.

    Nothing is looked for in them.
    """
    return as_json(recorded) == as_json(made)


def spent_has_fields(record: Record) -> bool:
    """Return whether spent.json has its guarantee and totals as fields.

    An early version wrote them as sentences.
    """
    return not isinstance(record.spent.get("guarantee"), str)


def note_sentences(record: Record) -> None:
    """Note that guarantee and totals of spent.json were not compared, if they are sentences."""
    if not spent_has_fields(record):
        version = record.environment.get("agt")
        record.findings.unchecked(
            "words",
            f"the entries 'guarantee' and 'totals' of spent.json were not compared, because agt "
            f"{version} wrote them as sentences",
        )


def _model_of(record: Record) -> Model | None:
    """Return the model, read by its kind's own reader; None (noted): it cannot be read here.

    Raises:
        Broken: it takes more training steps than are checked.
    """
    config = {**record.config, "compute": {}}
    head = kept_head(record) or build(config["model"], "model")
    settings = Settings(model=head, **settings_parts(config))
    if (
        settings.training.by_recipe == ()
        and settings.training.epochs * int(settings.training.batch.count) > MAX_STEPS
    ):
        raise Broken(
            "the model was not checked, because config.yaml asks for more than "
            f"{MAX_STEPS:,} training steps, the most that agt verify checks"
        )
    choices = naming(settings.choices, settings.training.chosen_from)
    kept = run_without_records(record, replace(settings, choices=choices))
    if kept is None:
        record.findings.unchecked(
            "model",
            "the model was not checked, because the run was made by a version of agt that did "
            "not write source.json, which this check needs",
        )
        return None
    _check_source(config["dataset"], kept)
    with settings.certificate.allocating_shapes_only():
        return load(kept.problem, record)


def _check_source(dataset: Mapping[str, Any], kept: RunWithoutRecords) -> None:
    """Raise Broken unless source.json has the data set of config.yaml.

    Queries are read by it, and answers are named by it.

    Args:
        dataset: of config.yaml.
        kept: the run as source.json makes it.
    """
    source, given = dict(kept.settled), json.loads(as_json(dataset))
    constants = source.pop("settled", {})
    difference = first_difference(source, given, "source")
    target = kept.problem.dataset.target
    if target.numeric is not None:
        bounds = [target.numeric.low, target.numeric.high]
        difference = difference or first_difference(bounds, given.get("range"), "range")
    names = [] if target.numeric is not None else list(target.classes)
    for classes in (given.get("classes"), constants.get("classes")):
        if not difference and isinstance(classes, list) and is_own_code(str(given.get("_target_"))):
            difference = first_difference(names, [str(name) for name in classes], "names")
    if difference:
        raise mismatch("source.json", "config.yaml", difference)


def _check_model(record: Record, model: Model) -> None:
    """Check that conditions, constants and sizes are what config.yaml makes them.

    What ``load`` compares has been compared before.

    Raises:
        Broken: they are not.
    """
    in_words = __version__ == LAST_IN_WORDS and facts_in_words(record.conditions)
    if record.environment.get("agt") == __version__ and not in_words:
        recorded = _plain(record.conditions)
        derived = _plain(model.conditions)
        check_match("conditions.json", recorded, "config.yaml", derived, "conditions")
    check_not_better(record, model.conditions, "config.yaml")
    plan, stepwise = model.plan, model.problem.settings.certificate.trains_in_steps
    sizes = {
        "normalizer": plan.normalizer,
        "n_max": plan.n_max,
        **({"steps": plan.steps} if stepwise else {}),
    }
    count = model.problem.dataset.target.class_count
    classes = {} if count is None else {"classes": count}
    record.check_metrics("config.yaml", **model.metrics, **sizes, **classes)
    record.findings.ok(
        "model", "the conditions, constants and sizes that agt recorded match config.yaml"
    )


def _plain(conditions: Sequence[Condition]) -> Any:
    """JSON values of conditions, as conditions.json has them."""
    return json.loads(as_json([condition.as_json() for condition in conditions]))


def check_not_better(record: Record, conditions: Sequence[Condition], source: str) -> None:
    """Raise Broken if a record claims a condition more strongly than what it comes from.

    It does as well if it lost a declaration.

    Args:
        record: that is checked.
        conditions: of what it comes from.
        source: what that is, for messages.
    """
    may_be_text = __version__ == LAST_IN_WORDS or record.environment.get("agt") != __version__
    for then, now in zip(conditions, record.conditions, strict=False):
        lost = _lost(then.evidence.declarations, now.evidence.declarations, may_be_text)
        if then.standing.is_weaker_than(now.standing) or (lost and then.standing is now.standing):
            letter = now.letter
            if then.standing is now.standing:
                declarations = counted(lost, "declaration")
                raise Broken(
                    f"conditions.json claims condition {letter} too strongly: according to "
                    f"{source}, this condition relies on {declarations} that conditions.json lacks"
                )
            raise Broken(
                f"conditions.json says that condition {letter} is '{now.standing}', but "
                f"according to {source} the condition is only '{then.standing}'"
            )


def _lost(then: Sequence[Fact], now: Sequence[Fact], may_be_text: bool) -> int:
    """Return how many declarations are missing.

    Args:
        may_be_text: an earlier version may have recorded it as text.
    """
    missing = [fact for fact in then if fact not in now]
    text = [fact for fact in now if fact.in_words and fact not in then]
    if not may_be_text or any(fact.in_words for fact in missing):
        return len(missing)
    return max(0, len(missing) - len(text))


@dataclass(frozen=True)
class Declared:
    """Something that a condition needs and a person declared.

    Attributes:
        letter: of the condition.
        condition: its name.
        fact: what was declared.
    """

    letter: str
    condition: str
    fact: Fact

    @property
    def words(self) -> str:
        """It as a reader sees it."""
        return f"{self.letter} {excerpt(self.condition)}: {excerpt(self.fact.declaration, 1000)}"


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
        drawn: noise was drawn, of which a record cannot show how.
    """

    name: str
    checks: Sequence[Check] = ()
    facts: tuple[tuple[str, str], ...] = ()
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
        return self.checks_of(CheckState.PROBLEM)

    def checks_of(self, state: CheckState) -> list[Check]:
        """The checks that ended so, here or below."""
        return [check for part in self.every for check in part.checks if check.state is state]

    @property
    def declared(self) -> list[Declared]:
        """What was declared and not proved."""
        return [
            Declared(condition.letter, condition.name, fact)
            for condition in self.conditions
            for fact in condition.evidence.declarations
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


def data_items(record: Record) -> tuple[VerifiedItem, ...]:
    """Return the data of a training run: the files that it named, where they lay then."""
    files = {
        key: entry
        for key, entry in (record.environment.get("data_files") or {}).items()
        if key != "data_dir"
    }
    if files:
        erased = record.holds(REQUEST_LOG_FILE)
        return tuple(
            _data_file(f"dataset.{key} {entry.get('path')}", entry, erased)
            for key, entry in files.items()
        )
    findings, target = Findings(), (record.config.get("dataset") or {}).get("_target_")
    findings.unchecked(
        "data",
        "the data were not checked, because they are not in a file: they are generated or "
        "downloaded, which `agt verify` does not do",
    )
    digest = record.environment.get("data_digest")
    name = f"data {digest}, which {target} generates or downloads"
    return (VerifiedItem(name, findings.checks),)


def _data_file(name: str, entry: dict[str, Any], erased: bool) -> VerifiedItem:
    """Compare a file of data with its hash at training.

    Args:
        name: which setting named it, and its path.
        entry: what env.json has of it: path and sha256.
        erased: the run has requests for erasure, after which its owner deletes rows.
    """
    findings = Findings()
    path = Path(str(entry.get("path")))
    recorded = str(entry.get("sha256", ""))
    try:
        if path.is_dir() or not HASH.fullmatch(recorded):
            raise Broken(
                "the data file was not compared, because env.json does not contain the hash "
                "that the file had at training"
            )
        with open_plain(path) as file:
            digest = file_digest(file, "sha256").hexdigest()
        now = digest[:16]
        then = recorded[:16]
        if digest == recorded:
            findings.ok(
                "data", f"{name}: the file is the one that was trained on (sha256 {now}...)"
            )
        else:
            changed = (
                f"{name}: the file CHANGED since training (sha256 {now}... now, {then}... at "
                "training)"
            )
            if erased:
                changed += (
                    ". This is expected after an erasure, when rows were deleted from the file; "
                    "whether anything else changed was not checked"
                )
            findings.note("data", changed)
    except (Broken, ValueError) as error:
        findings.unchecked("data", f"{name}: {error}")
    return VerifiedItem(name, findings.checks)
