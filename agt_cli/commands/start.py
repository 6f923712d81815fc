"""agt start FILE: a table -> five questions -> a trained model, how good it is beside others, and a
plan.

More are asked where people have several rows, and where labels may be numbers.

It stops before anything is spent. Nothing is claimed that was not said: what nobody called public
stays under from_data in the dataset's file, and no private answer can rest on the run then.
Accuracies, stable distances and the plan look at the records: they are for their owner alone.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.errors import ConfigError
from agt.mechanisms.claims import weak_budget_warnings
from agt.mechanisms.planning import plan
from agt.models.model import Model
from agt.settings import build, validate
from agt_cli import usage
from agt_cli.choices import with_votes_recipe
from agt_cli.composing import compose_command
from agt_cli.configuration import check_keys
from agt_cli.releasing.existing_ledger import ExistingLedger
from agt_cli.report.console import Console
from agt_cli.report.quality import ModelQuality
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import scoring_of
from agt_cli.report.start_md import (
    Summary,
)
from agt_cli.runs.inspect import advice_for_arrays
from agt_cli.runs.prepare import (
    Prepared,
    fit,
    prepare,
    settings_to_train,
    write_trained,
)
from agt_cli.runs.usual_learners import scores_on_table
from agt_cli.start.comparison import boosting_remark, compare, legend_of, value_of
from agt_cli.start.constants import proposed_constants, write_dataset_file
from agt_cli.start.dialogue import ask
from agt_cli.start.next_commands import measuring_commands, publishing_commands
from agt_cli.start.plan import PLANNED_QUERIES, ways
from agt_cli.start.remarks import (
    declared_sentence,
    leak_remark,
    left_out_remarks,
    outside_constants_remark,
    size_remark,
)
from agt_cli.start.settings import QUESTIONS, StartSettings
from agt_cli.start.summary import say, write_record


def configure(config: Mapping[str, Any]) -> StartSettings:
    """Validate the settings, and the answers of a file behind them (ConfigError), before the
    table is read.
    """
    check_keys(config, (*StartSettings.__dataclass_fields__, "answers"))
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
        check_keys(answers, QUESTIONS)
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
    write_dataset_file(settings, inspection, certificate)
    record, prepared, model, quality = _train(settings, chosen, console)
    test, eps, folder = prepared.dataset.test, settings.eps or 1.0, record.folder
    planned = plan(model, test.features, test.labels, (eps,), settings.delta, PLANNED_QUERIES)
    ledger = None if certificates_only else ExistingLedger.find(folder)
    measuring = []
    if settings.private_groups and not certificates_only:
        measuring = measuring_commands(settings, scoring, folder, ledger)
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
    onward = (
        [steps.pop(2)] if proposed else publishing_commands(settings, folder, mechanism, ledger)
    )
    if measures:
        proposed = 0
        onward = [measuring[0]]
    usual = scores_on_table(build(record.config["dataset"], "dataset"), scoring).scores
    legend = legend_of(scoring, test.labels, inspection)
    compared = compare(settings, scoring, model, prepared, usual, planned, held, legend)
    ahead = "" if settings.purpose == "answers" else boosting_remark(compared)
    remarks = (
        *(f"{line}." for line in weak_budget_warnings(eps)),
        quality.verdict,
        quality.explanation,
        scoring.warning(model.predict(test.features), test.labels),
        *(line.sentence for line in inspection.doubts if line.code == "label_outside_range"),
        *left_out_remarks(inspection, settings.id_permanent is True),
        outside_constants_remark(settings, inspection),
        *prepared.dataset.notes,
        size_remark(settings, prepared.dataset),
        leak_remark(settings, inspection),
        *(
            f"Column '{name}' has the same value in several rows: give id={name} if this "
            "column names people."
            for name in inspection.possible_people
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
        declared=declared_sentence(settings),
        constants=proposed_constants(settings, inspection),
        remarks=[line for line in remarks if line],
        measuring=measuring,
        commands=steps,
        onward=onward,
        ledger="" if ledger is None else ledger.sentence,
    )
    page = write_record(settings, summary)
    say(summary, console)
    console.say(f"report: {page.folder / 'report.html'}")
    return {
        "dataset": str(settings.dataset_file),
        "run": str(folder),
        "digest": record.digest,
        "record": str(page.folder),
        "report": str(page.folder / "report.html"),
        "remarks": summary.remarks,
        **{
            key: {name: value_of(scores[index]) for name, scores in compared.scores.items()}
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


def _train(
    settings: StartSettings, chosen: Sequence[str], console: Console
) -> tuple[RunRecord, Prepared, Model, ModelQuality]:
    # What ``agt train`` does with these words, in a record of its own.
    places = [
        f"{key}={usage.quoted(str(getattr(settings, key)))}" for key in ("data_dir", "output_dir")
    ]
    config = with_votes_recipe(compose_command("train", [*chosen, *places]))
    with RunRecord(settings.new_folder("train"), "train", config) as record:
        run_settings, start = settings_to_train(config), perf_counter()
        prepared = prepare(run_settings, console)
        model = fit(prepared, run_settings, console)
        quality = write_trained(record, prepared, run_settings, model, perf_counter() - start)
    return record, prepared, model, quality
