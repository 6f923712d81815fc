"""Read folders that anybody may have written, and compare their files with hashes and each other.

The model of a training run is read as agt's own commands read it, but without data: conditions.json
and the constants and sizes in metrics.json are functions of config.yaml and of the constants of the
data in source.json. No code that is not part of agt is loaded.
"""

import csv
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agt import __version__
from agt.certificates.conditions import Condition, condition_counts
from agt.documents import SPENT_AS_TEXT, check_form
from agt.errors import counted, few
from agt.facts import Standing
from agt.models.fitting import load
from agt.models.model import Model
from agt.problem import Settings
from agt.settings import RelationConfig, build, validate
from agt.store.json_text import as_json, parse_json
from agt.store.manifest import MANIFEST_FILE, Manifest, read_digest, unseal_manifest
from agt.store.reading import MAX_TEXT_BYTES, Broken, file_kind
from agt.targets import is_own_code
from agt_cli.choices import with_public_rows
from agt_cli.report.finished import (
    CHECKPOINTS,
    COMMIT_FOLDER,
    LOCK_FILE,
    NEXT_STATE_FOLDER,
    STATE_LOCK,
    Run,
)
from agt_cli.report.markdown import Findings
from agt_cli.runs.pending import ABSTAINED_FILE
from agt_cli.runs.prepare import (
    RunWithoutRecords,
    run_without_records,
    settings_parts,
    stored_network,
)
from agt_cli.unlearn.hash_key import KEY_FILE
from agt_cli.verify.comparison import (
    check_entries,
    check_match,
    first_difference,
    mismatch,
    rendered_alike,
)

# Files beside a run with requests for erasure; they are not part of a state, so no manifest lists
# them.
BESIDE = (KEY_FILE, ABSTAINED_FILE.as_posix())
TEMPORARY_FILES = (LOCK_FILE, STATE_LOCK)
TEMPORARY_FOLDERS = (f"{CHECKPOINTS}/", f"{NEXT_STATE_FOLDER}/", f"{COMMIT_FOLDER}/")
COUNTS_SINCE_0_11 = {"conditions_proved", "conditions_not_met"}
"""Metrics of conditions that records of versions up to 0.10 do not have."""
# of a folder
MAX_ENTRIES = 100_000
MAX_FOLDER_DEPTH = 12
MAX_READ_BYTES = 2**30  # of a file that is not only hashed
MAX_NAMED = 12  # files that are named one by one
MAX_STEPS = 10**7  # of a training that is followed
WITHOUT_DIGEST = (
    "give digest=sha256:... (the digest that was printed when the folder was made, and that "
    "you stored elsewhere). Without it, agt cannot detect that a file was changed together "
    "with the list of files (manifest.json)"
)
# files that say, or are, what was given away -> which commands write them
RELEASED = {
    "spent.json": ("train", "measure", "predict"),
    "claim.json": ("measure", "predict"),
    "released_weights.json": ("tune", "predict"),
    "released_weights.safetensors": ("tune", "predict"),
    "labels.csv": ("predict",),
    "labels.parquet": ("predict",),
}
OnFile = Callable[[int, int], None]
"""Called with how many files were hashed, and of how many."""


def inventory(folder: Path) -> dict[str, str]:
    """List the files in a folder, at any depth, without opening any.

    Returns:
        Path within the folder -> "" for a plain file; for anything else, what it is, such as a
        link or a folder that cannot be listed. Folders themselves are left out.

    Raises:
        Broken: there are more files than agt writes into a run's folder.
    """
    kind_by_path: dict[str, str] = {}

    def note_unlisted(error: OSError) -> None:
        path = Path(error.filename).relative_to(folder).as_posix()
        kind_by_path[path] = (
            f"this folder's files cannot be listed ({error.strerror}), so they were not checked"
        )

    for subfolder, folders, files in os.walk(folder, onerror=note_unlisted):
        is_deepest = len(Path(subfolder).relative_to(folder).parts) >= MAX_FOLDER_DEPTH
        for name in (*folders, *files):
            path = Path(subfolder, name)
            mode = path.lstat().st_mode
            if is_deepest or not stat.S_ISDIR(mode):
                kind_by_path[path.relative_to(folder).as_posix()] = file_kind(mode)
        if is_deepest:
            folders.clear()  # os.walk goes no further
        if len(kind_by_path) > MAX_ENTRIES:
            raise Broken(
                f"the folder contains more than {MAX_ENTRIES:,} files, but no run of agt "
                "writes so many: give the folder of one run"
            )
    return kind_by_path


class RunTimes(NamedTuple):
    """When a run began and ended, in the form of status.json."""

    began: str
    ended: str


class RecordedSource(NamedTuple):
    """A folder that another one was made from, as that one records it.

    Attributes:
        name: what it is, in words.
        path: where it was.
        digest: its digest; None: none was recorded.
    """

    name: str
    path: Path
    digest: str | None


@dataclass(frozen=True)
class Record(Run):
    """A folder with a manifest that anybody may have written.

    A file that cannot be read, or is not what the manifest lists, becomes a problem in the
    findings, and its content is then taken to be empty.

    Attributes:
        findings: the results of all checks of this folder.
        compared: the entries of metrics.json that were compared so far.
        compared_columns: csv file in ``tables/`` or ``figures/`` -> its columns that were compared
            so far.
    """

    findings: Findings = field(default_factory=Findings)
    compared: set[str] = field(default_factory=set)
    compared_columns: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def bind(
        cls, folder: Path, digest: str | None, findings: Findings, progress: OnFile
    ) -> "Record | None":
        """Read a folder's manifest, hash every file that it lists, and look for other files.

        Args:
            folder: the folder.
            digest: the digest that the folder must have; None: any, which is noted.
            findings: takes the results.
            progress: called with (files hashed, all files).

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
        record._check_hashes(progress)
        with findings.recording_errors("nothing else"):
            record._check_unlisted_files()
        return record

    def _check_hashes(self, progress: OnFile) -> None:
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

    def _check_unlisted_files(self) -> None:
        """Note the files of the folder that its manifest does not list."""
        kind_by_path = inventory(self.folder)
        extra = sorted(kind_by_path.keys() - {MANIFEST_FILE, *self.manifest.files, *BESIDE})
        temporary = []
        unlisted = []
        for name in extra:
            if name in TEMPORARY_FILES or name.startswith(TEMPORARY_FOLDERS):
                temporary.append(name)
            else:
                kind = kind_by_path[name]
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
        """Return the content of a file that the manifest lists.

        Its hash is compared again, so that what is parsed is what was hashed.

        Args:
            name: the path within the folder.
            limit: how many bytes the file may have.

        Raises:
            ConfigError: the file is not listed, has another hash, or is too large.
        """
        return super().read(name, min(limit, MAX_READ_BYTES))

    def run_check(self, name: str, check: "Callable[..., str | None]", *given: Any) -> None:
        """Run a check of this record, and note its result under a name.

        An error of the check becomes a problem in the findings.

        Args:
            name: the name of the check in the findings.
            check: called with this record and ``given``. It returns a sentence that says what
                holds; None: there was nothing to check, or it noted its results itself.
            given: further arguments of the check.
        """
        with self.findings.recording_errors(name):
            sentence = check(self, *given)
            if sentence:
                self.findings.ok(name, sentence)

    def _recorded(self, name: str) -> dict[str, Any]:
        with self.findings.recording_errors(name):
            return super()._recorded(name)
        return {}

    @property
    def command(self) -> str:
        """The name of the command that wrote the folder, by the manifest."""
        return self.manifest.command

    @cached_property
    def spent(self) -> dict[str, Any]:
        """The content of spent.json; empty: nothing was spent, or the file cannot be read."""
        with self.findings.recording_errors("spent.json"):
            if self.holds("spent.json"):
                spent = unseal_manifest(self.read("spent.json", MAX_TEXT_BYTES), "spent.json")
                if isinstance(spent.get("guarantee"), str):
                    check_form(SPENT_AS_TEXT, "spent.json")
                return spent
        return {}

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy guarantee in conditions.json; empty: not readable.

        Each must have the status that follows from its own facts, and metrics.json must count as
        many conditions of each status. The results are noted in the findings.
        """
        if not self.holds("conditions.json"):
            return ()
        with self.findings.recording_errors("conditions"):
            content = self.read("conditions.json", MAX_TEXT_BYTES)
            recorded = parse_json(content, "conditions.json")
            conditions = tuple(Condition.from_json(node) for node in recorded)
            if (letters := "".join(condition.letter for condition in conditions)) != "abcdefg":
                raise Broken(
                    f"conditions.json contains the conditions {letters!r}, but should contain "
                    "each of the conditions a to g once"
                )
            difference = first_difference(recorded, plain_conditions(conditions), "conditions")
            if not difference and content != as_json(recorded):
                difference = "conditions.json is not formatted as agt formats this file"
            if difference:
                raise mismatch("a condition", "its facts in conditions.json", difference)
            counts = condition_counts(conditions)
            not_stated = COUNTS_SINCE_0_11 - self.metrics.keys()
            if not_stated and self.is_older_than(0, 11):
                for name in not_stated:
                    del counts[name]
                self.note_not_stated("metrics.json", not_stated)
            self.check_metrics("conditions.json", **counts)
            statuses = condition_counts_sentence(conditions)
            self.findings.ok(
                "conditions", f"the status of each condition follows from its facts: {statuses}"
            )
            return conditions
        return ()

    @cached_property
    def rebuilt_model(self) -> Model | None:
        """The model of a training run, built from its record without its data, and compared.

        None: the folder is not a training run, or the model could not be built, which is noted.
        """
        with self.findings.recording_errors("model"):
            if self.command == "train":
                model = _build_model(self)
                _check_model(self, model)
                return model
        return None

    @property
    def classes(self) -> list[str]:
        """The names of the classes; empty: not known, or answers are numbers."""
        if self.rebuilt_model is None or self.rebuilt_model.number_votes is not None:
            return []
        return [*self.rebuilt_model.problem.dataset.classes]

    def texts_of(self, labels: Iterable[int]) -> list[str] | None:
        """Return labels, given as a ledger stores them, as text, as files of labels have them.

        None: the model, which names the labels, could not be read.
        """
        model = self.rebuilt_model
        if model is None:
            return None
        if model.number_votes is not None:
            sums = np.fromiter(labels, dtype=np.int64)
            return [repr(number) for number in model.number_votes.mean_of(sums).tolist()]
        return [self.classes[label] for label in labels]

    @property
    def named_ledger(self) -> Any:
        """The ledger that the settings or env.json name, or the word for none; None: neither."""
        return self.config.get("ledger") or self.environment.get("ledger")

    @property
    def times(self) -> RunTimes:
        """When the run began and ended, by status.json, to the second."""
        began = str(self.status.get("started"))[:19]
        return RunTimes(began, ended=str(self.status.get("ended"))[:19])

    def was_running_at(self, time: str) -> bool:
        """Return whether a time, in the form of status.json, is within those of the run."""
        began, ended = self.times
        return began <= time[:19] <= ended

    @property
    def relation(self) -> RelationConfig | None:
        """The relation (which datasets are neighbours) of config.yaml; None: it has none."""
        if "relation" not in self.config:
            return None
        return validate(RelationConfig, self.config["relation"], "relation")

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """(name, value) pairs that describe the record, to be shown; they are not checked here."""
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
        state = self.status.get("state")
        command = self.status.get("command")
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

    def is_older_than(self, major: int, minor: int) -> bool:
        """Return whether env.json names a version of agt before this one.

        The version is text that anybody may have typed. So whatever is not required of older
        records must lower what is said of them (``note_not_stated``).

        Raises:
            ValueError: env.json names no version.
        """
        version = str(self.environment.get("agt")).split(".")
        return [int(part) for part in version[:2]] < [major, minor]

    def note_not_stated(self, name: str, entries: Iterable[str]) -> None:
        """Note that a file lacks entries that its version of agt did not write.

        Args:
            name: the file.
            entries: what it lacks.
        """
        version = self.environment.get("agt")
        listed = ", ".join(sorted(entries))
        self.findings.unchecked(
            name,
            f"{name} does not state {listed}. Version {version} of agt, which wrote this folder "
            "according to env.json, did not write this, but the name of the version is only text, "
            "so it may have been removed",
        )

    def note_uncompared_metrics(self) -> None:
        """Note which entries of metrics.json no check has compared with anything."""
        uncompared = sorted(self.metrics.keys() - self.compared)
        if uncompared:
            names = ", ".join(uncompared)
            self.findings.note(
                "metrics",
                "these entries of metrics.json were not compared, because no other file that was "
                f"checked determines them: {names}",
            )

    def note_uncompared_columns(self) -> None:
        """Note which columns of csv files no check has compared with anything."""
        uncompared = []
        for name in self.manifest.files:
            if not name.startswith(("tables/", "figures/")) or not name.endswith(".csv"):
                continue
            compared = self.compared_columns.get(name)
            if compared is None:
                uncompared.append(name)
                continue
            header = self.read(name, MAX_TEXT_BYTES).decode().splitlines()[0]
            columns = [column for column in next(csv.reader([header])) if column not in compared]
            if columns:
                listed = ", ".join(columns)
                uncompared.append(f"{name} (columns {listed})")
        if uncompared:
            listed = "; ".join(uncompared)
            self.findings.note(
                "tables",
                "these tables, or these columns of them, may be wrong, because no other file that "
                f"was checked determines them: {listed}",
            )

    def note_compared(self, name: str, columns: Iterable[str]) -> None:
        """Remember that columns of a csv file were compared with what determines them."""
        self.compared_columns.setdefault(name, set()).update(columns)

    def check_metrics(self, name: str, **numbers: object) -> None:
        """Raise Broken unless metrics.json has the given numbers.

        Nothing is compared if metrics.json cannot be read, which is a problem already.

        Args:
            name: the file that the numbers follow from, for messages.
            numbers: metric -> number.
        """
        self.compared.update(numbers)
        if self.metrics:
            check_entries("metrics.json", self.metrics, name, numbers)

    def check_verdict(self, name: str, verdict: str | None) -> None:
        """Raise Broken unless the entry "verdict" of metrics.json is a sentence, as a whole.

        Nothing is compared if another version of agt made the record, which may have other words.

        Args:
            name: the file whose fields give the sentence, for messages.
            verdict: the sentence as this version writes it; None: there is none.
        """
        if self.environment.get("agt") != __version__:
            return
        self.compared.add("verdict")
        recorded = self.metrics.get("verdict")
        if self.metrics and not rendered_alike(recorded, verdict):
            difference = f"verdict is recorded as {recorded!r}, but should be {verdict!r}"
            raise mismatch("metrics.json", name, difference)

    def sources(self) -> Iterator[RecordedSource]:
        """Yield the folders that this one was made from.

        Raises:
            Broken: a recorded path is not text.
        """
        environment = self.environment
        # of a training run it is always recorded
        trained_digest = str(environment.get("trained_digest"))
        for name, place, digest in (
            ("training run", environment.get("trained_run"), trained_digest),
            ("released weights", environment.get("release"), self.config.get("digest")),
        ):
            if place is not None and not isinstance(place, str):
                raise Broken(
                    f"the path of the {name}, as recorded in this folder, is {place!r}, which is "
                    "not text"
                )
            if place is not None:
                known_digest = None if digest is None else read_digest(str(digest))
                yield RecordedSource(name, Path(place), known_digest)


def model_of(run: Record | None) -> Model | None:
    """Return the model of a training run; None: there is no run, or its model cannot be read."""
    return None if run is None else run.rebuilt_model


def condition_counts_sentence(conditions: Sequence[Condition]) -> str:
    """Return how many conditions are proved, declared and not held, with their letters.

    For example ``6 proved (a b c d f g), 1 declared (e)``.
    """
    parts = []
    for standing in Standing:
        letters = [condition.letter for condition in conditions if condition.standing is standing]
        if letters:
            listed = " ".join(letters)
            parts.append(f"{len(letters)} {standing} ({listed})")
    return ", ".join(parts)


def check_version(version: str, name: str, record: "Record") -> None:
    """Raise Broken unless a file names the same version of agt as env.json in its folder.

    Sentences of another version are not compared. So whoever changed the version in one file could
    also change its sentences without being noticed.

    Args:
        version: the version in the file.
        name: the name of the file.
        record: the record of the folder.
    """
    made_by = record.environment.get("agt")
    if version != made_by:
        raise Broken(
            f"the version of agt that wrote this folder is {version!r} according to {name}, but "
            f"{made_by!r} according to env.json"
        )


def _build_model(record: Record) -> Model:
    """Build the model of a training run from its record, with no memory for its bounds.

    Raises:
        Broken: the settings ask for more training steps than are checked, or source.json is missing
            or does not match config.yaml.
    """
    config = {**record.config, "compute": {}}
    head = stored_network(record) or build(config["model"], "model")
    settings = Settings(model=head, **settings_parts(config))
    if (
        settings.training.by_recipe == ()
        and settings.training.epochs * int(settings.training.batch.count) > MAX_STEPS
    ):
        raise Broken(
            "the model was not checked, because config.yaml asks for more than "
            f"{MAX_STEPS:,} training steps, the most that agt verify checks"
        )
    choices = with_public_rows(settings.choices, settings.training.chosen_from)
    stored = run_without_records(record, replace(settings, choices=choices))
    _check_source(config["dataset"], stored)
    with settings.certificate.allocating_shapes_only():
        return load(stored.problem, record)


def _check_source(dataset: Mapping[str, Any], stored: RunWithoutRecords) -> None:
    """Raise Broken unless source.json describes the dataset of config.yaml.

    Later commands read queries and name answers by source.json, so it must not differ.

    Args:
        dataset: the settings ``dataset`` of config.yaml.
        stored: the run as read from source.json.
    """
    source = dict(stored.dataset_config)
    given = json.loads(as_json(dataset))
    constants = source.pop("settled", {})
    difference = first_difference(source, given, "source")
    target = stored.problem.dataset.target
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
    """Check that conditions, constants and sizes of a record follow from its config.yaml.

    ``load``, which built the model, has compared the model's own files.

    Args:
        record: the record of the training run; takes the result.
        model: the model that was built from the record.

    Raises:
        Broken: they do not follow from it.
    """
    if record.environment.get("agt") == __version__:
        recorded = plain_conditions(record.conditions)
        derived = plain_conditions(model.conditions)
        check_match("conditions.json", recorded, "config.yaml", derived, "conditions")
    check_not_better(record, model.conditions, "config.yaml")
    plan = model.plan
    sizes = {"normalizer": plan.normalizer, "n_max": plan.n_max}
    if model.problem.settings.certificate.trains_in_steps:
        sizes["steps"] = plan.steps
    count = model.problem.dataset.target.class_count
    if count is not None:
        sizes["classes"] = count
    record.check_metrics("config.yaml", **model.metrics, **sizes)
    record.findings.ok(
        "model", "the conditions, constants and sizes that agt recorded match config.yaml"
    )


def plain_conditions(conditions: Sequence[Condition]) -> Any:
    """Return conditions as the JSON values that conditions.json has."""
    return json.loads(as_json([condition.as_json() for condition in conditions]))


def check_not_better(record: Record, conditions: Sequence[Condition], source: str) -> None:
    """Raise Broken if a record claims a condition more strongly than the folder it was made from.

    That is the case if its status is stronger, or if the status is the same but a declaration that
    it relies on is missing.

    Args:
        record: the record that is checked.
        conditions: the conditions of the folder that the record was made from.
        source: a name of that folder for messages, such as "the training run".
    """
    for origin, recorded in zip(conditions, record.conditions, strict=False):
        letter = recorded.letter
        if origin.standing.is_weaker_than(recorded.standing):
            raise Broken(
                f"conditions.json says that condition {letter} is '{recorded.standing}', but "
                f"according to {source} the condition is only '{origin.standing}'"
            )
        listed = recorded.evidence.declarations
        missing = [fact for fact in origin.evidence.declarations if fact not in listed]
        if missing and origin.standing is recorded.standing:
            declarations = counted(len(missing), "declaration")
            raise Broken(
                f"conditions.json claims condition {letter} too strongly: according to "
                f"{source}, this condition relies on {declarations} that conditions.json lacks"
            )
