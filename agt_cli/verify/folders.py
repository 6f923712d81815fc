"""Read folders that anybody may have written, and compare their files with hashes and each other.

The model of a training run is read as agt's own commands read it, but without data: conditions.json
and the constants and sizes in metrics.json are functions of config.yaml and of the constants of the
data in source.json. No code that is not part of agt is loaded.
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
from agt_cli.choices import with_public_rows
from agt_cli.report.finished import (
    CHECKPOINTS,
    COMMIT_FOLDER,
    LOCK_FILE,
    NEXT_STATE_FOLDER,
    STATE_LOCK,
    Run,
)
from agt_cli.report.markdown import Check, CheckState, Findings, excerpt, worst_state
from agt_cli.runs.pending import ABSTAINED_FILE
from agt_cli.runs.prepare import (
    RunWithoutRecords,
    run_without_records,
    settings_parts,
    stored_network,
)
from agt_cli.unlearn.hash_key import KEY_FILE
from agt_cli.unlearn.log import REQUEST_LOG_FILE

# Files beside a run with requests for erasure; they are not part of a state, so no manifest lists
# them.
BESIDE = (KEY_FILE, ABSTAINED_FILE.as_posix())
LEFT_OVER = (LOCK_FILE, STATE_LOCK, f"{CHECKPOINTS}/", f"{NEXT_STATE_FOLDER}/", f"{COMMIT_FOLDER}/")
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
    """List the files in a folder, at any depth, without opening any.

    Returns:
        Path within the folder -> "" for a plain file; for anything else, what it is, such as a
        link or a folder that cannot be listed. Folders themselves are left out.

    Raises:
        Broken: there are more files than agt writes into a run's folder.
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
    """A folder with a manifest that anybody may have written.

    A file that cannot be read, or is not what the manifest lists, becomes a problem in the
    findings, and its content is then taken to be empty.

    Attributes:
        findings: the results of all checks of this folder.
    """

    findings: Findings = field(default_factory=Findings)

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
        record._hash(progress)
        with findings.recording_errors("nothing else"):
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
        """Return the content of a file that the manifest lists.

        Its hash is compared again, so that what is parsed is what was hashed.

        Args:
            name: the path within the folder.
            limit: how many bytes the file may have.

        Raises:
            ConfigError: the file is not listed, has another hash, or is too large.
        """
        return super().read(name, min(limit, MAX_READ_BYTES))

    def look(self, name: str, check: "Callable[..., str | None]", *given: Any) -> None:
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
                return unseal_manifest(self.read("spent.json", MAX_TEXT_BYTES), "spent.json")
        return {}

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions a to g of conditions.json; empty: there are none that can be read.

        Each must have the status that follows from its own facts, and metrics.json must count as
        many conditions of each status. The results are noted in the findings.
        """
        if not self.holds("conditions.json"):
            return ()
        with self.findings.recording_errors("conditions"):
            content = self.read("conditions.json", MAX_TEXT_BYTES)
            recorded = parse_json(content, "conditions.json")
            nodes = [upgrade_json(node) for node in recorded]
            conditions = tuple(Condition.from_json(node) for node in nodes)
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
        """The model of a training run, built from its record without its data, and compared.

        None: the folder is not a training run, or the model could not be built, which is noted.
        """
        with self.findings.recording_errors("model"), self._naming_version():
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
    def times(self) -> tuple[str, str]:
        """When the run began and ended, by status.json, to the second."""
        return str(self.status.get("started"))[:19], str(self.status.get("ended"))[:19]

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

    def check_metrics(self, name: str, **numbers: object) -> None:
        """Raise Broken unless metrics.json has the given numbers.

        Nothing is compared if metrics.json cannot be read, which is a problem already.

        Args:
            name: the file that the numbers follow from, for messages.
            numbers: metric -> number.
        """
        if self.metrics:
            recorded = {key: self.metrics.get(key) for key in numbers}
            check_match("metrics.json", recorded, name, numbers)

    def sources(self) -> Iterator[tuple[str, Path, str | None]]:
        """Yield the folders that this one was made from: what it is, its path and its digest.

        A digest of None means that none was recorded.

        Raises:
            Broken: a recorded path is not text.
        """
        environment = self.environment
        mechanism = self.config.get("mechanism") or {}
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
    """Return a sentence on the first difference between two JSON values; empty: they are equal.

    Floats are equal up to a relative difference of SAME, by which special functions of different
    machines may differ.

    Args:
        recorded: the value in a file.
        derived: the value that it should be.
        place: the path of the value within the file, such as "totals[0].eps".
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
    """Return the error to raise for a file that does not match what its values follow from.

    Args:
        name: the file, or a part of it.
        source: what its values follow from.
        difference: a sentence that says what differs.
    """
    return Broken(
        f"{name} does not match {source}, so one of the two was altered or damaged after agt "
        f"wrote it: {difference}"
    )


def check_match(name: str, recorded: Any, source: str, derived: Any, place: str = "") -> None:
    """Raise Broken unless the values of a file are those that follow from their source.

    Args:
        name: the file, or a part of it, for the message.
        recorded: the values in the file.
        source: what the values follow from, for the message.
        derived: the values that follow.
        place: the path of the values within the file.
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
    """Return whether recorded sentences equal, as a whole, those that fields give.

    Any JSON value of text may be compared. Sentences are never parsed.
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
    """Build the model of a training run from its record, with no memory for its bounds.

    Returns:
        The model; None: an early version of agt made the run without source.json, which is noted.

    Raises:
        Broken: the settings ask for more training steps than are checked, or source.json does not
            match config.yaml.
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
    """Raise Broken unless source.json describes the dataset of config.yaml.

    Later commands read queries and name answers by source.json, so it must not differ.

    Args:
        dataset: the settings ``dataset`` of config.yaml.
        kept: the run as read from source.json.
    """
    source = dict(kept.dataset_config)
    given = json.loads(as_json(dataset))
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
    """Check that conditions, constants and sizes of a record follow from its config.yaml.

    ``load``, which built the model, has compared the model's own files.

    Args:
        record: of the training run; takes the result.
        model: the model that was built from the record.

    Raises:
        Broken: they do not follow from it.
    """
    in_words = __version__ == LAST_IN_WORDS and facts_in_words(record.conditions)
    if record.environment.get("agt") == __version__ and not in_words:
        recorded = _plain(record.conditions)
        derived = _plain(model.conditions)
        check_match("conditions.json", recorded, "config.yaml", derived, "conditions")
    check_not_better(record, model.conditions, "config.yaml")
    plan = model.plan
    stepwise = model.problem.settings.certificate.trains_in_steps
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
    """Raise Broken if a record claims a condition more strongly than what it was made from.

    That is the case if its status is stronger, or if the status is the same but a declaration that
    it relies on is missing.

    Args:
        record: the record that is checked.
        conditions: the conditions of what it was made from.
        source: what it was made from, for messages.
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
    """Return how many of the declarations ``then`` are missing from ``now``.

    Args:
        then: the declarations of what a record was made from.
        now: the declarations of the record.
        may_be_text: an earlier version of agt may have recorded declarations of ``now`` as text.
            Each text then stands for one that is missing.
    """
    missing = [fact for fact in then if fact not in now]
    text = [fact for fact in now if fact.in_words and fact not in then]
    if not may_be_text or any(fact.in_words for fact in missing):
        return len(missing)
    return max(0, len(missing) - len(text))


@dataclass(frozen=True)
class Declared:
    """A declaration by a person that a condition relies on.

    Attributes:
        letter: the letter of the condition, a to g.
        condition: the name of the condition.
        fact: the declaration.
    """

    letter: str
    condition: str
    fact: Fact

    @property
    def words(self) -> str:
        """The declaration as text for people."""
        return f"{self.letter} {excerpt(self.condition)}: {excerpt(self.fact.declaration, 1000)}"


@dataclass(frozen=True)
class VerifiedItem:
    """The findings about one thing that was checked: a run, a release, a ledger or a data file.

    Attributes:
        name: what it is, and its path.
        checks: the results of its own checks.
        facts: (name, value) pairs that describe it, as it records itself.
        conditions: a to g; empty: it has none.
        claims: sentences that say what is certified or guaranteed.
        rests_on: the findings about what it was made from.
        digest: the digest of a folder; empty: it has none.
        limits: sentences that say what cannot be checked; empty: those for folders in general.
        drawn: whether noise was drawn, whose distribution a record cannot prove.
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
    def declared(self) -> list[Declared]:
        """The declarations that its conditions rely on, in the order of the conditions."""
        return [
            Declared(condition.letter, condition.name, fact)
            for condition in self.conditions
            for fact in condition.evidence.declarations
        ]

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


def data_items(record: Record) -> tuple[VerifiedItem, ...]:
    """Check the data files of a training run at their recorded paths, and return the findings.

    For data that are not in files, there is one item which says that they were not checked.
    """
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
    findings = Findings()
    target = (record.config.get("dataset") or {}).get("_target_")
    findings.unchecked(
        "data",
        "the data were not checked, because they are not in a file: they are generated or "
        "downloaded, which `agt verify` does not do",
    )
    digest = record.environment.get("data_digest")
    name = f"data {digest}, which {target} generates or downloads"
    return (VerifiedItem(name, findings.checks),)


def _data_file(name: str, entry: dict[str, Any], erased: bool) -> VerifiedItem:
    """Compare a data file with the hash that it had at training, and return the findings.

    A file that changed is a note, and not a problem of the run.

    Args:
        name: the setting that named the file, and its path.
        entry: the file's entry in env.json: path and sha256.
        erased: whether the run has requests for erasure, after which its owner deletes rows.
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
