"""agt start FILE: a table -> five questions -> a trained model, how good it is beside others, and a
plan.

More are asked where people have several rows, and where labels may be numbers.

It stops before anything is spent. Nothing is claimed that was not said: what nobody called public
stays under from_data in the dataset's file, and no private answer can rest on the run then.
Accuracies, stable distances and the plan look at the records: they are for their owner alone.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from agt.data.dataset import Dataset
from agt.data.formats import NumberFormat
from agt.data.settings import CLASSES
from agt.errors import AgtError, ConfigError, counted, few
from agt.mechanisms.claims import weak_budget_warnings
from agt.mechanisms.planning import Plan, PlannedRelease, plan
from agt.models.model import Model
from agt.settings import build, plain_of, schema, validate
from agt.store.atomic import write_atomic
from agt_cli import usage
from agt_cli.choices import with_votes_recipe
from agt_cli.commands.data import (
    COUNTS_ROWS,
    MIXED,
    RANGE_IS_PUBLIC,
    InspectSettings,
    dataset_yaml,
    from_data,
)
from agt_cli.composing import composed
from agt_cli.configuration import only_keys
from agt_cli.process import visible
from agt_cli.releasing.existing_ledger import ExistingLedger
from agt_cli.report.console import Console
from agt_cli.report.proposed_release import (
    WEIGHTS_MECHANISMS,
    ledger_command,
    release_command,
)
from agt_cli.report.quality import AnyQuality
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import Estimate, Scores, Scoring, scoring_of
from agt_cli.report.start_md import (
    OURS,
    REMARKS,
    Comparison,
    ProposedConstant,
    ProposedConstants,
    Summary,
    write_start,
)
from agt_cli.runs.doubts import Doubt
from agt_cli.runs.formats import override
from agt_cli.runs.inspect import Column, Inspection, advice_for_arrays
from agt_cli.runs.prepare import (
    Prepared,
    fit,
    prepare,
    settings_to_train,
    size_question,
    write_trained,
)
from agt_cli.runs.ranges import number
from agt_cli.runs.usual_learners import scores_on_table
from agt_cli.table_settings import GROUPS, StartAnswers, drop_override
from agt_cli.typed_ranges import decimal_point

QUESTIONS = (
    *("label", "target", "range", "drop", "id", "id_permanent", "unit_rows"),
    *("public", "purpose", "eps"),
)
DECLARED_AT_START = "To say so to agt start, give id_permanent=true force=true."
NONE = "none"
SHOWN = 20  # columns of each group, in a question
PLANNED_QUERIES = (1, 10, 100)
"""The numbers of answers one by one that are compared with released weights."""
MEASURED = 0.2  # of the budget, for what nobody calls public


@schema
class StartSettings(StartAnswers, InspectSettings):
    """What ``agt start`` takes (conf/start.yaml says what each is); None: not answered."""

    output_dir: Path = Path("outputs")

    def __post_init__(self) -> None:
        StartAnswers.__post_init__(self)
        InspectSettings.__post_init__(self)

    def open_questions(self, inspection: Inspection | None = None) -> list[str]:
        """The questions that are open; certificates alone spend nothing, and only who repeats is
        capped.

        What labels are is asked where they may be numbers, and their range where they are; what to
        drop, where a column tells the label by itself. Whether ids are permanent is asked where
        they look like row numbers, because no private answer can be given with ids that are not.
        """
        idle = {"eps"} if self.purpose == "certificates" else set()
        idle |= set() if inspection and inspection.unit else {"unit_rows"}
        asks_about_ids = inspection is not None and _counting_rows(inspection)
        if not asks_about_ids or self.purpose == "certificates":
            idle.add("id_permanent")
        idle |= set() if inspection and inspection.may_be_numbers else {"target"}
        idle |= set() if self.target == "numeric" else {"range"}
        idle |= set() if inspection and _telling(inspection) else {"drop"}
        return [key for key in QUESTIONS if getattr(self, key) is None and key not in idle]

    @property
    def id_column(self) -> str | None:
        """The column that was said to name each person for good; None: none was."""
        return None if self.id == NONE else self.id

    @property
    def counted(self) -> tuple[str, str]:
        """What certificates count: one, many."""
        return ("person", "people") if self.id_column else ("row", "rows")

    @property
    def groups(self) -> list[str]:
        """The groups of values that are there: numbers have no classes."""
        return [group for group in GROUPS if group != "classes" or self.target != "numeric"]

    def declared_size(self, inspection: Inspection) -> int | None:
        """Return the number of training records that is declared public; None: none is."""
        if "size" in self.private_groups:
            return None
        return self.size or _size(inspection)

    @property
    def private_groups(self) -> list[str]:
        """The groups that nobody called public."""
        return [group for group in self.groups if group not in (self.public or ())]

    def inspect(self) -> Inspection:
        """As ``InspectSettings``, with the id that was said alone: the unit, where it repeats or a
        cap says that it may.

        Raises:
            ConfigError: it does not name each row, or some person has more rows than the cap.
        """
        found, name = InspectSettings.inspect(replace(self, id=self.id_column)), self.id_column
        column = next(iter(found.names), None)
        if column and column.missing:
            missing = column.missing
            rows = found.rows
            raise ConfigError(
                f"id={name}: {missing:,} of {rows:,} rows have no value in this column: fill in "
                "to whom each row belongs, or give id=none"
            )
        if self.unit_rows and self.id == NONE:
            raise ConfigError(
                f"unit_rows={self.unit_rows} limits the rows of one person, but agt does not "
                "know to whom each row belongs: give id=COLUMN, or leave unit_rows=... out"
            )
        if not column or (column.most_rows == 1 and not self.unit_rows):
            return found
        most = column.most_rows
        if self.unit_rows and most > self.unit_rows:
            raise ConfigError(
                f"unit_rows={self.unit_rows}: one value of '{name}' has {most:,} rows, but "
                "training refuses a person with more than unit_rows rows: give a higher number, or "
                "keep fewer rows of each person in the file"
            )
        return replace(found, id=None, unit=name)

    def line(self, path: Path) -> str:
        """The command line that asks nothing more, for the table as it was found."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {
            field.name: given[field.name]
            for field in fields(self)
            if given[field.name] != field.default
        }
        given["public"] = "no" if not self.public else self.public if self.private_groups else "yes"
        words = [
            f"{key}={_word(value)}"
            for key, value in given.items()
            if key not in ("file", "data_dir", "force", "formats", "drop")
        ]
        if self.drop is not None:
            words.append(drop_override(self.drop))
        if self.formats:
            words.append(override(self.formats))
        return shlex.join(["agt", "start", str(path), *words])


def _word(value: object) -> str:
    # As a command line takes it.
    if isinstance(value, tuple):
        return f"[{','.join(decimal_point(_word(item)) for item in value)}]"
    return (
        number(value)
        if isinstance(value, float)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def configure(config: Mapping[str, Any]) -> StartSettings:
    """Validate the settings, and the answers of a file behind them (ConfigError), before the
    table is read.
    """
    only_keys(config, (*StartSettings.__dataclass_fields__, "answers"))
    given = {key: value for key, value in config.items() if value is not None}
    if path := given.pop("answers", None):
        if Path(str(path)).is_dir():
            raise ConfigError(
                f"answers={path} is a folder: give a file with one line for each answer, such as "
                "answers=answers.yaml"
            )
        with Path(str(path)).open(encoding="utf-8") as file:
            answers = yaml.safe_load(file)
        if not isinstance(answers, dict):
            raise ConfigError(
                f"answers={path}: the file must have one line for each answer, such as "
                "'label: income'"
            )
        only_keys(answers, QUESTIONS)
        given = answers | given
    settings: StartSettings = validate(StartSettings, given, "")
    if settings.open_questions() or not settings.dataset_file.exists():
        settings.check_dataset_file()
    return settings


def run(settings: StartSettings, console: Console) -> dict[str, Any]:
    """Ask, write the dataset's file, train, and say how good it is and what could be done next."""
    if settings.file.suffix.lower() == ".npz" and settings.file.is_file():
        return _say_next_step_for_arrays(settings.file, console)
    settings, inspection = ask(settings, console)
    certificates_only = settings.purpose == "certificates"
    assert inspection.target is not None  # asked for, where it is not evident
    scoring = scoring_of(inspection.target)
    size_is_public = "size" not in settings.private_groups
    certificate = scoring.training_words(
        size_is_public=size_is_public, certificates_only=certificates_only
    )
    chosen = [f"dataset={settings.dataset}", *certificate]
    _write(settings, inspection, certificate)
    record, prepared, model, quality = _train(settings, chosen, console)
    test, eps, folder = prepared.dataset.test, settings.eps or 1.0, record.folder
    planned = plan(model, test.features, test.labels, (eps,), settings.delta, PLANNED_QUERIES)
    ledger = None if certificates_only else ExistingLedger.find(folder)
    measuring = []
    if settings.private_groups and not certificates_only:
        measuring = _measuring(settings, scoring, folder, ledger)
    measures = bool(measuring) and settings.purpose == "answers"
    held = all(condition.held for condition in model.conditions)
    unmet = [
        f"condition {condition.letter} ({condition.name})"
        for condition in model.conditions
        if not condition.held
    ]
    lines, mechanism = ways(planned, scoring, eps, unmet, settings.counted[1], measures)
    # What is proposed depends on public values alone. What is expected of it depends on private
    # records, so it stands beside the proposal and decides nothing (docs/releasing.md, "What may
    # decide a choice").
    proposed = 0 if mechanism and settings.purpose != "certificates" else 2
    steps = [settings.line(inspection.path), shlex.join(["agt", "train", *chosen])]
    steps += [f"agt certify run={folder}", f"agt plan run={folder}"]
    onward = [steps.pop(2)] if proposed else _publishing(settings, folder, mechanism, ledger)
    if measures:
        proposed = 0
        onward = [measuring[0]]
    usual = scores_on_table(build(record.config["dataset"], "dataset"), scoring).scores
    legend = _legend(scoring, test.labels, inspection)
    compared = _comparison(settings, scoring, model, prepared, usual, planned, held, legend)
    ahead = "" if settings.purpose == "answers" else _ahead(compared)
    remarks = (
        *(f"{line}." for line in weak_budget_warnings(eps)),
        quality.verdict,
        quality.explanation,
        scoring.warning(model.predict(test.features), test.labels),
        *(line.sentence for line in inspection.doubts if line.code == "label_outside_range"),
        *_lost(inspection, settings.id_permanent is True),
        _outside_constants(settings, inspection),
        *prepared.dataset.notes,
        _question_about_size(settings, prepared.dataset),
        _leaks(settings, inspection),
        *(
            f"Column '{name}' has the same value in several rows: give id={name} if this "
            "column names people."
            for name in _repeating(inspection)
        ),
        ahead,
    )
    stability = scoring.measure_stability(model, planned.evidence, test.features, settings.counted)
    summary = Summary(
        table=settings.file.name,
        dataset=settings.dataset_file,
        run=folder,
        comparison=compared,
        counted=settings.counted[1],
        stability=stability,
        ways=lines,
        proposed=proposed,
        declared=_declared(settings),
        constants=proposed_constants(settings, inspection),
        remarks=[line for line in remarks if line],
        measuring=measuring,
        commands=steps,
        onward=onward,
        ledger="" if ledger is None else ledger.sentence,
    )
    page = _write_record(settings, summary)
    _say(summary, console)
    console.say(f"report: {page.folder / 'report.html'}")
    return {
        "dataset": str(settings.dataset_file),
        "run": str(folder),
        "digest": record.digest,
        "record": str(page.folder),
        "report": str(page.folder / "report.html"),
        "remarks": summary.remarks,
        **{
            key: {name: _value(scores[index]) for name, scores in compared.scores.items()}
            for index, key in enumerate(scoring.keys)
        },
        stability.name: stability.value,
        "not_public": settings.private_groups,
        "plan": lines,
        "recommended": lines[proposed],
        "measuring": measuring,
        "next": onward[-1],
        "next_commands": onward,
        "proposed_from_rows": {item.name: item.words for item in summary.constants.proposed},
        "commands": steps,
    }


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _comparison(
    settings: StartSettings,
    scoring: Scoring,
    model: Model,
    prepared: Prepared,
    usual: Mapping[str, Scores],
    planned: Plan,
    held: bool,
    legend: Sequence[str],
) -> Comparison:
    """Return how good the model is on the test rows, beside others and a constant answer.

    Args:
        usual: name -> scores of usual learners.
        planned: what could be released of the model.
        held: whether every condition of a guarantee is.
        legend: of the table of scores.
    """
    test = prepared.dataset.test
    constant_name, constant = scoring.constant(test.labels)
    private = None
    weights = weights_release(planned)
    if settings.purpose != "certificates" and held and weights:
        private = weights.expected
    scores = {
        OURS: scoring.scores(model.predict(test.features), test.labels),
        **usual,
        constant_name: scoring.scores(np.full_like(test.labels, constant), test.labels),
    }
    return Comparison(
        scoring=scoring,
        rows=len(test),
        scores=scores,
        private=private,
        eps=settings.eps or 1.0,
        legend=legend,
    )


def _legend(scoring: Scoring, labels: np.ndarray, inspection: Inspection) -> list[str]:
    """Return what a reader of the comparison needs to know, in sentences.

    Args:
        scoring: how answers are scored.
        labels: [n] the true labels of the test rows.
        inspection: what the table holds.
    """
    sentences = [scoring.legend(labels)]
    if inspection.left_out:
        sentences.append("None of these models uses the columns that are left out.")
    return [sentence for sentence in sentences if sentence]


def _say_next_step_for_arrays(path: Path, console: Console) -> dict[str, Any]:
    """Say which command trains on the vectors of an npz, about which nothing is asked.

    Args:
        path: the file.
        console: where it is said.
    """
    next_step = advice_for_arrays(path)
    console.say(
        f"{path} contains arrays of vectors, not a table, so agt start has no questions about "
        f"its columns. Next: {next_step}"
    )
    return {"next": next_step}


def _write_record(settings: StartSettings, summary: Summary) -> RunRecord:
    """Write a record of its own with the comparison, the plan and the proposed way."""
    answers = {name: getattr(settings, name) for name in StartSettings.__dataclass_fields__}
    config = {name: _plain_answer(value) for name, value in answers.items()}
    with RunRecord(_new_folder(settings, "start"), "start", config) as record:
        record.environment(dataset=settings.dataset)
        write_start(record, summary)
    return record


def _plain_answer(value: object) -> object:
    """Return an answer as the record's configuration writes it: text, numbers, lists, mappings."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, NumberFormat):
        return plain_of(value)
    if isinstance(value, Mapping):
        return {name: _plain_answer(entry) for name, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _new_folder(settings: StartSettings, command: str) -> Path:
    return settings.output_dir / command / datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")


def _train(
    settings: StartSettings, chosen: Sequence[str], console: Console
) -> tuple[RunRecord, Prepared, Model, AnyQuality]:
    # What ``agt train`` does with these words, in a record of its own.
    places = [
        f"{key}={usage.quoted(str(getattr(settings, key)))}" for key in ("data_dir", "output_dir")
    ]
    config = with_votes_recipe(composed("train", [*chosen, *places]))
    with RunRecord(_new_folder(settings, "train"), "train", config) as record:
        run_settings, start = settings_to_train(config), perf_counter()
        prepared = prepare(run_settings, console)
        model = fit(prepared, run_settings, console)
        quality = write_trained(record, prepared, run_settings, model, perf_counter() - start)
    return record, prepared, model, quality


def _publishing(
    settings: StartSettings, folder: Path, mechanism: str, ledger: ExistingLedger | None
) -> list[str]:
    """Return the commands that publish weights, counted by a ledger.

    Args:
        folder: of the training run.
        mechanism: that releases its weights.
        ledger: that counts these people; None: the first command opens one.
    """
    eps = settings.eps or 1.0
    name = settings.dataset
    unit = f"one {settings.counted[0]}"
    first = [f"agt {ledger_command(name, folder, eps, settings.delta, unit)}"]
    if ledger is not None:
        name = ledger.name
        first = [] if ledger.admitted else ledger.admission(folder)
    total = (f"{eps:g}", f"{settings.delta:g}")
    return [*first, f"agt {release_command(folder, mechanism, *total, ledger=name)}"]


def _measuring(
    settings: StartSettings, scoring: Scoring, folder: Path, ledger: ExistingLedger | None
) -> list[str]:
    """Return the commands that have what is not public measured with noise, and publish weights for
    the rest of the budget.

    Args:
        folder: of the training run.
        ledger: that counts these people, and so both releases; None: the commands name none.
    """
    eps = settings.eps or 1.0
    delta = settings.delta / 2
    price = f"total.eps={MEASURED * eps:g} total.delta={delta:g}"
    counted_by = ""
    rest = f"{(1 - MEASURED) * eps:g}"
    name = None
    before: list[str] = []
    after: list[str] = []
    if ledger is not None:
        name = ledger.name
        before = [] if ledger.admitted else ledger.admission(folder)
        after = ledger.admission("latest")  # the measured table has other ranges, so other data
        counted_by = f" ledger={shlex.quote(name)}"
    release = release_command("latest", WEIGHTS_MECHANISMS[0], rest, f"{delta:g}", ledger=name)
    return [
        *before,
        f"agt measure dataset={settings.dataset}{counted_by} {price}",
        f"agt train dataset={settings.dataset}_measured{scoring.measured_training}",
        *after,
        f"agt {release}",
    ]


def _ahead(compared: Comparison) -> str:
    """Return that boosted trees may be worth a try as members; empty: they are not far ahead."""
    scoring = compared.scoring
    boosting = _value(compared.scores.get("boosting", (None,))[0])
    if boosting is None or not scoring.is_far_better(boosting, compared.model.value):
        return ""
    if not scoring.is_better(boosting, compared.constant.value):
        return ""
    return scoring.boosted_members


def _telling(inspection: Inspection) -> list[str]:
    """Return the features that predict nearly every label by themselves."""
    return [column.name for column in inspection.features if column.tells]


def _leaks(settings: StartSettings, inspection: Inspection) -> str:
    """Return which features may be known only after the label, and the command that leaves them
    out; empty: none may.
    """
    telling = _telling(inspection)
    if not telling:
        return ""
    dropped = (*(settings.drop or ()), *telling)
    command = replace(settings, drop=dropped).line(inspection.path)
    return (
        f"{_each_tells(telling)}. If such a value is known only after the label, do not believe "
        f"the accuracy, and leave the column out: {command} force=true"
    )


def _each_tells(names: Sequence[str]) -> str:
    """Return that each of some columns predicts nearly every label by itself."""
    quoted_names = few(map(repr, names), SHOWN)
    if len(names) == 1:
        return f"Column {quoted_names} alone predicts nearly every label"
    return f"Each of the columns {quoted_names} alone predicts nearly every label"


def _declared(settings: StartSettings) -> str:
    groups = ", ".join(settings.private_groups)
    file = settings.dataset_file
    if not groups:
        return f"{file} lists what you declared public: read it before any release."
    return (
        "This run cannot give private answers, because these parts of the table were not "
        f"declared public: {groups}. Write public values into {file} and train again."
    )


def proposed_constants(settings: StartSettings, inspection: Inspection) -> ProposedConstants:
    """Return which public constants of a dataset file are as agt proposed them from the rows."""
    private = settings.private_groups
    proposed = []
    for column in inspection.features:
        if column.public or _group(column) in private:
            continue
        words = _range_words(column) if column.numeric else _list_words(column.categorical)
        is_date = column.kind == "date" and bool(column.numeric)
        proposed.append(ProposedConstant(column.name, words, is_date))
    if inspection.classes and "classes" not in private:
        proposed.append(ProposedConstant(CLASSES, _list_words(inspection.classes)))
    total = len(inspection.features) + bool(inspection.classes)
    # A size that its owner gave was not computed from the rows.
    size = None if settings.size else settings.declared_size(inspection)
    return ProposedConstants(settings.dataset_file, tuple(proposed), total, size)


def _list_words(values: Sequence[str]) -> str:
    """Return how long a list of values is, and the first of them."""
    return f"{counted(len(values), 'value')} ({few(values, 4)})"


def _say(summary: Summary, console: Console) -> None:
    if summary.remarks:
        console.say(f"{REMARKS}:")
    for line in summary.remarks:
        console.say(f"  {line}")
    comparison = summary.comparison
    table = summary.table
    rows = comparison.rows
    scoring = comparison.scoring
    title = (
        f"{table}: {scoring.heading.lower()} on {rows:,} held-out rows (computed from private "
        f"records, so do not publish {scoring.pronoun})"
    )
    cells = [
        (name, *(str(score or "-") for score in scores))
        for name, scores in comparison.scores.items()
    ]
    console.table(title, ("", *scoring.titles), cells)
    lines = [
        *comparison.legend,
        *([comparison.shortfall] if comparison.shortfall else []),
        summary.stability.sentence,
        "Plan of what could be published (no budget is spent yet):",
        *_numbered(summary.ways, summary.proposed),
        summary.declared,
        *(["To measure, with noise, what is not public:"] if summary.measuring else []),
        *(f"  {command}" for command in summary.measuring),
        "By hand:",
        *(f"  {command}" for command in summary.commands),
        *summary.constants.lines,
        *([summary.ledger] if summary.ledger else []),
        "Next:",
        *(f"  {command}" for command in summary.onward),
        *summary.placeholders,
    ]
    for line in lines:
        console.say(line)


def _numbered(ways: Sequence[str], proposed: int) -> Iterator[str]:
    """Yield a line for each way to go on; the proposed one (an index) is marked."""
    for index, way in enumerate(ways):
        number = index + 1
        mark = "  <- the next command" if index == proposed else ""
        yield f"  {number}. {way}{mark}"


def _lost(inspection: Inspection, id_permanent: bool) -> Iterator[str]:
    # Columns that some cell kept from being used, or from being numbers; and ids that may be row
    # numbers, unless somebody declared that they are permanent.
    unread = [column for column in inspection.left_out if column.kind in ("unreadable", "date")]
    named = _repeating(inspection)
    unlisted = ", ".join(
        f"'{column.name}' ({column.distinct:,})"
        for column in inspection.left_out
        if column.kind == "text" and column.name not in named
    )
    names = inspection.names
    doubtful = [column for column in inspection.features if column.categorical and column.remark]
    yield from (
        f"Column '{column.name}' is LEFT OUT, because {column.remark}." for column in unread
    )
    yield from (f"'{column.name}': {MIXED}." for column in names if column.mixed)
    if not id_permanent:
        yield from (
            f"'{column.name}': {COUNTS_ROWS}. {DECLARED_AT_START}"
            for column in names
            if column.counts_rows
        )
    if unlisted:
        yield (
            "These columns are LEFT OUT, because they have too many different values, or values "
            f"that are too rare (number of different values in brackets): {unlisted}. To take a "
            "column in, list its values under categorical in the dataset file."
        )
    yield from (
        f"Column '{column.name}' is treated as a list of words, because {column.remark}."
        for column in doubtful
    )


def _outside_constants(settings: StartSettings, inspection: Inspection) -> str:
    """Return how many values are in no list, and how many numbers outside of a proposed range.

    It is empty where every value is inside of what is proposed.
    """
    rare = [word for column in inspection.features for word in column.unlisted]
    outside = sum(column.outside for column in inspection.features)
    parts = []
    if rare:
        values = counted(len(rare), "rare value")
        rows = counted(sum(count for _, count in rare), "cell")
        parts.append(f'{values} ({rows}), counted as "other"')
    if outside:
        parts.append(f"{counted(outside, 'number')}, counted as the nearest end of the range")
    if not parts:
        return ""
    return (
        f"Outside of the proposed lists and ranges: {'; and '.join(parts)}. The comments in "
        f"{settings.dataset_file} say in which columns."
    )


def _question_about_size(settings: StartSettings, dataset: Dataset) -> str:
    """Return what to ask the owner about the number of training rows that was given; else empty."""
    question = None if settings.size is None else size_question(dataset)
    return f"{question}." if question else ""


def _repeating(inspection: Inspection) -> list[str]:
    # Columns that may name people, some of whom have several rows, where nobody said whose the rows
    # are.
    if inspection.names:
        return []
    return [
        column.name
        for column in inspection.columns
        if not (column.numeric or column.categorical or column.values)
        and column.kind not in ("unreadable", "date", "dropped")
        and 1 < column.distinct < inspection.rows - column.missing
    ]


def _write(settings: StartSettings, inspection: Inspection, certificate: Sequence[str]) -> None:
    """Write the dataset's file, in which what was said of the table, and nothing else, is public.

    Args:
        settings: the answers.
        inspection: what the table holds.
        certificate: the words of ``agt train`` that choose the certificate.

    Raises:
        ConfigError: there is such a file, with other content.
    """
    mine = {
        column.name
        for column in inspection.features
        if _group(column) not in settings.private_groups
    }
    mine |= set() if "classes" in settings.private_groups else {CLASSES}
    read_off = from_data(inspection)
    size = settings.declared_size(inspection)
    text = dataset_yaml(
        inspection,
        settings.dataset,
        unsaid=[name for name in read_off if name not in mine],
        size=size,
        unit_rows=settings.unit_rows,
        id_permanent=settings.id_permanent is True,
        size_is_proposed=settings.size is None and size is not None,
    )
    if (
        not settings.dataset_file.exists()
        or settings.dataset_file.read_text(encoding="utf-8") != text
    ):
        settings.check_dataset_file(certificate)
        write_atomic(settings.dataset_file, text.encode())


# -- questions
# --------------------------------------------------------------------------------------------------


def ask(settings: StartSettings, console: Console) -> tuple[StartSettings, Inspection]:
    """With every question answered, by whoever sits at the terminal where settings leave it open.

    Raises:
        ConfigError: there is no terminal; names what to give.
    """
    inspection = settings.inspect()
    said = _say_doubts(inspection, settings, (), console)
    if console.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _check_answered(settings, inspection)
        return settings, inspection
    while unanswered := settings.open_questions(inspection):
        key = unanswered[0]
        text, _, usual = questions(inspection, settings.id_permanent is True, settings.size)[key]
        given = {name: getattr(settings, name) for name in StartSettings.__dataclass_fields__}
        try:
            now: StartSettings = validate(
                StartSettings, {**given, key: console.ask(text, usual)}, ""
            )
            if key in ("label", "target", "range", "drop", "id", "unit_rows"):
                inspection = now.inspect()
                said = _say_doubts(inspection, now, said, console)
            settings = now
        except AgtError as error:
            console.warn(str(error))
    return settings, inspection


def _check_answered(settings: StartSettings, inspection: Inspection) -> None:
    """Raise ConfigError, which names what to give, where a question is open that nobody can be
    asked.

    Without a terminal no column is dropped that nobody named. While the id is open, what depends on
    it is named with its condition: a limit on the rows of one person, and whether ids that look
    like row numbers are permanent.
    """
    open_keys = [key for key in settings.open_questions(inspection) if key != "drop"]
    if not open_keys:
        return
    asked = questions(inspection, settings.id_permanent is True, settings.size)
    # Whoever gave all other answers has not seen why these two are asked.
    reasons = {
        "id_permanent": f"{_looks_like_row_numbers(inspection)}: true if each person keeps this id "
        "whoever joins or leaves",
        "unit_rows": "the most rows that one person may have, a public limit",
    }
    missing = []
    for key in open_keys:
        reason = f" ({reasons[key]})" if key in reasons else ""
        missing.append(f"{key}={asked[key][1]}{reason}")
    if "id" in open_keys and settings.unit_rows is None:
        example = "".join(f", as '{name}' does" for name in _repeating(inspection)[:1])
        missing.append(f"unit_rows=NUMBER (only if the id repeats{example})")
    asks_about_ids = settings.id_permanent is None and settings.purpose != "certificates"
    if "id" in open_keys and asks_about_ids:
        doubtful = [column.name for column in inspection.columns if column.counts_rows]
        example = "".join(f", as those of '{name}' do" for name in doubtful[:1])
        missing.append(
            f"id_permanent=true or false (only if the ids look like row numbers{example})"
        )
    needed = ", ".join(missing)
    raise ConfigError(
        "this terminal is not interactive, so answer the questions on the command line: give "
        f"{needed}; or give answers=FILE.yaml, a file with one line for each answer"
    )


def _say_doubts(
    inspection: Inspection, settings: StartSettings, said: tuple[Doubt, ...], console: Console
) -> tuple[Doubt, ...]:
    """Say what may be a mistake in the file, each once; returns all that was said.

    Columns that are left out are among the remarks (``_lost``), and what labels are is asked. Where
    ranges were called public, nothing is said about where the range of dates ends.
    """
    elsewhere = ["number_as_classes", "left_out", "taken_as_words"]
    if "ranges" in (settings.public or ()):
        elsewhere.append("dates_may_go_on")
    new = tuple(
        doubt for doubt in inspection.doubts if doubt not in said and doubt.code not in elsewhere
    )
    for doubt in new:
        console.warn(doubt.sentence)
    return (*said, *new)


def questions(
    inspection: Inspection, id_permanent: bool = False, size: int | None = None
) -> dict[str, tuple[str, str, str]]:
    """Key -> what is asked, what may be answered, and what an empty answer means; nothing is
    claimed by one.

    Args:
        id_permanent: whether ids that look like row numbers were declared to be permanent.
        size: the number of training rows that the owner gave; None: it is computed.
    """
    likely = inspection.label or next(iter(inspection.labels), "")
    table = inspection.path
    rows = inspection.rows
    label = f"{table}: {rows:,} rows. Which column should be predicted?"
    parts = _grouped(inspection, size or _size(inspection))
    groups = "".join(f"\n  {name}: {what}" for name, what in parts.items())
    groups += "".join(f"\n  {line}" for line in _lost(inspection, id_permanent))
    again = "".join(f" ('{name}' repeats)" for name in _repeating(inspection))
    again += "".join(
        f" (perhaps '{column.name}')" for column in inspection.columns if column.possible_id
    )
    most = max(
        (column.most_rows for column in inspection.columns if column.name == inspection.unit),
        default=0,
    )
    public = (
        "Which of these values from your file (ranges are rounded, and lists have only what "
        "occurs) are public, that is, would be the same with other people in the table? A limit "
        "of 120 for ages is public; the largest income in the file is not."
        f"{groups} Answer yes (all of them, and the choice of columns, are public), no (none "
        "is), or the names of those that are, such as "
        f"ranges,{list(parts)[-2]}"
    )
    unit = inspection.unit
    return {
        "label": (label, f"COLUMN ({likely or NONE}?)", likely),
        **_questions_about_numbers(inspection),
        "drop": (
            f"{_each_tells(_telling(inspection))}. Which columns are known only after the label, "
            "so must be left out? Answer names, or none",
            "[COLUMN,...]",
            NONE,
        ),
        "id": (
            "Which column names each person permanently, even if other people join or "
            f"leave{again}? Answer with its name, or none",
            "COLUMN or none",
            NONE,
        ),
        "id_permanent": (
            f"{_looks_like_row_numbers(inspection)}. If the number of a row changes when somebody "
            "joins or leaves, no private answer can be given. Does each person keep this id "
            "whoever joins or leaves? Answer true or false",
            "true or false",
            "false",
        ),
        "unit_rows": (
            f"By column '{unit}', one person has up to {most} rows here. How many rows may one "
            "person have at most? Answer a public limit, which training enforces",
            "NUMBER",
            "",
        ),
        "public": (public, f"yes, no or some of [{','.join(parts)}]", "no"),
        "purpose": (
            "What do you need? Answer certificates (on how many people an answer depends; "
            "not to be published), answers (private answers to publish), or both",
            "certificates, answers or both",
            "both",
        ),
        "eps": (
            "How much privacy budget (eps) may everything that you publish spend in total? "
            "0.1 is strict, 1 usual, 10 weak",
            "NUMBER",
            "1",
        ),
    }


def _counting_rows(inspection: Inspection) -> list[str]:
    """Return the columns that were said to name records or people, but look like row numbers."""
    return [column.name for column in inspection.names if column.counts_rows]


def _looks_like_row_numbers(inspection: Inspection) -> str:
    """Return which column of ids looks like row numbers, in a clause; any, if none was named."""
    names = _counting_rows(inspection)
    return (
        f"The ids in '{names[0]}' look like row numbers"
        if names
        else "The ids look like row numbers"
    )


def _questions_about_numbers(inspection: Inspection) -> dict[str, tuple[str, str, str]]:
    """Return what is asked about a label of numbers, as ``questions`` does.

    The ends that were seen are shown as what they are, private values; none is proposed.
    """
    column = inspection.label_column
    name = "" if column is None else column.name
    seen = ""
    if column is not None and column.low is not None and column.high is not None:
        ends = f"from {number(column.low)} to {number(column.high)}"
        seen = f" ({column.distinct:,} different values {ends}, which are private)"
    return {
        "target": (
            f"What is '{name}'{seen}? Answer numeric (a quantity, such as an age or an amount, "
            "which is predicted as a number) or classes (each number is a class)",
            "numeric (with range=[LOW,HIGH]) or classes",
            "numeric" if inspection.needs_target else "classes",
        ),
        "range": (
            f"Which public range do the numbers in '{name}' have{seen}? {RANGE_IS_PUBLIC}; numbers "
            "outside are clipped. Answer LOW,HIGH",
            "[LOW,HIGH]",
            "",
        ),
    }


def _grouped(inspection: Inspection, size: int) -> dict[str, str]:
    # What each group of ``public`` holds, in words; ``size`` is the number of training rows.
    ranges = [
        f"{column.name} from {_range_words(column)}"
        for column in inspection.features
        if column.numeric
    ]
    lists = [f"{c.name} ({few(c.categorical)})" for c in inspection.features if c.categorical]
    some: dict[str, Sequence[str]] = {"ranges": ranges, "lists": lists}
    if inspection.numbers is None:
        some["classes"] = inspection.classes
    return {
        **{name: few(map(visible, words), SHOWN, "; ") or NONE for name, words in some.items()},
        "size": f"about {size:,} rows for training",
    }


def _range_words(column: Column) -> str:
    low = column.bound(column.numeric[0])
    high = column.bound(column.numeric[-1])
    return f"{low} to {high}"


def _group(column: Column) -> str:
    return "ranges" if column.numeric else "lists"


def _size(inspection: Inspection) -> int:
    # A round number of the rows that are trained on.
    rows = 3 * inspection.rows // 4
    return int(float(f"{rows:.{1 + (rows >= 1000)}g}"))


# -- what it is compared with, and what could be done
# ----------------------------------------------------------------------


def weights_release(planned: Plan) -> PlannedRelease | None:
    """Return the release of weights that is proposed; None: the model's cannot be released.

    It is the first of ``WEIGHTS_MECHANISMS`` that the model supports, whatever is expected of the
    others: what is expected depends on private rows, and no guarantee covers a choice by it.
    """
    planned_by_name = {release.mechanism: release for release in planned.releases}
    names = (name for name in WEIGHTS_MECHANISMS if name in planned_by_name)
    return next((planned_by_name[name] for name in names), None)


def _more_answers(planned: Plan, scoring: Scoring, count: int) -> str:
    """Return how many more answers one by one are still expected to be better than those of the
    weights, in words that follow a number of answers; empty: no more are, among
    ``PLANNED_QUERIES``.

    Args:
        planned: what could be released.
        scoring: how answers are scored.
        count: the number of answers that is named already.
    """
    weights = weights_release(planned)
    if weights is None:
        return ""
    better = [
        release
        for release in planned.releases
        if release.mechanism in planned.names
        and release.budget.queries > count
        and scoring.is_better(release.expected, weights.expected)
    ]
    if not better:
        return ""
    most = max(release.budget.queries for release in better)
    best = min if scoring.is_better(0.0, 1.0) else max
    expected = best(release.expected for release in better if release.budget.queries == most)
    return (
        f" (up to {most} are expected to be better than answers of the weights: "
        f"{scoring.expected_words(expected)})"
    )


def _not_yet(unmet: Sequence[str]) -> str:
    """Return that nothing can be published while these conditions are not met."""
    verb = "is" if len(unmet) == 1 else "are"
    return f"not yet, because {' and '.join(unmet)} {verb} not met"


def ways(
    planned: Plan, scoring: Scoring, eps: float, unmet: Sequence[str], many: str, measures: bool
) -> tuple[list[str], str]:
    """Return the three ways to go on, in words, and the mechanism of the first.

    The words say what is expected of a way, so they are for the data owner alone. The mechanism
    depends on public values alone; it is empty where no weights can be released.

    Args:
        unmet: the conditions of a guarantee that are not met, in words.
        many: what certificates count.
        measures: whether what is not public is to be measured first, so that weights can be
            released then.
    """
    evidence, cost = planned.evidence, f"eps = {eps:g}, delta = {planned.delta:g}"
    held = not unmet
    weights = singly = "none" if held else _not_yet(unmet)
    if not held and measures:
        weights = "not before everything that is not public is measured (see below)"
    mechanism = ""
    (count, name) = planned.one_by_one.get(eps, (0, ""))
    release = weights_release(planned)
    if held and release:
        mechanism = release.mechanism
        constant = evidence.merit(evidence.constant_score)
        halfway = (evidence.merit(evidence.nominal_score) + constant) / 2
        useful = evidence.merit(release.expected) > max(constant, halfway)
        reason = ""
        if not useful and evidence.is_useful:
            reason = (
                " (the table has too few rows for this budget, so the answers would not "
                "be accurate)"
            )
        elif not useful:
            reason = f" (not more accurate than {scoring.baseline_in_sentence})"
        weights = f"any number of answers, {scoring.expected_words(release.expected)}{reason}"
    if held and count:
        answers = counted(count, "answer")
        score = scoring.expected_words(evidence.worst_tolerated_score)
        singly = f"{answers}, {score}, with mechanism={name}"
        singly += _more_answers(planned, scoring, count)
    lines = [
        f"weights, published once ({cost}): {weights}",
        f"{scoring.answers}, published one by one within the same total budget: {singly}",
        "certificates (computed from private records, so do not publish them): "
        f"{scoring.certificate_words(many)}",
    ]
    return lines, mechanism
