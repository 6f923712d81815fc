"""agt start FILE: a table -> five questions -> a trained model, how good it is beside others, and a
plan.

More are asked where people have several rows, and where labels may be numbers.

It stops before anything is spent. Nothing is claimed that was not said: what nobody called public
stays under from_data in the dataset's file, and no private answer can rest on the run then.
Accuracies, stable distances and the plan look at the records: they are for their owner alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import OmegaConf

from agt.data.table import Columns
from agt.errors import ConfigError
from agt.mechanisms.planning import plan
from agt.models.model import Model
from agt.settings import build, validate
from agt_cli import usage
from agt_cli.choices import with_votes_recipe
from agt_cli.composing import compose_command
from agt_cli.configuration import check_keys
from agt_cli.places import check_answers
from agt_cli.renamed import with_old_keys
from agt_cli.report.console import Console
from agt_cli.report.quality import ModelQuality
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import Scoring, scoring_of
from agt_cli.report.start_md import Summary
from agt_cli.runs.arrays_file import advice_for_arrays
from agt_cli.runs.prepare import Prepared, fit, prepare, read_settings_and_learner, write_trained
from agt_cli.runs.usual_learners import scores_on_table
from agt_cli.start.comparison import compare, value_of
from agt_cli.start.constants import proposed_constants
from agt_cli.start.dataset_file import write_dataset_file
from agt_cli.start.dialogue import ask
from agt_cli.start.ledger_proposal import LedgerProposal
from agt_cli.start.next_steps import NextSteps
from agt_cli.start.plan import PLANNED_QUERIES, weights_mechanism
from agt_cli.start.remarks import declared_sentence, early_remarks, remarks_on
from agt_cli.start.settings import QUESTIONS, Answered, StartSettings
from agt_cli.start.summary import print_summary, write_record


@dataclass(frozen=True)
class _Trained:
    """A finished training run.

    Attributes:
        record: the record of the run.
        prepared: its data.
        model: the trained model.
        quality: the scores of the model.
    """

    record: RunRecord
    prepared: Prepared
    model: Model
    quality: ModelQuality


def configure(config: Mapping[str, Any]) -> StartSettings:
    """Validate the settings, and the answers of a file behind them (ConfigError), before the
    table is read.
    """
    check_keys(config, (*StartSettings.__dataclass_fields__, "answers"))
    given = {key: value for key, value in config.items() if value is not None}
    if path := given.pop("answers", None):
        given = {**_read_answers(str(path)), **given}
    settings: StartSettings = validate(StartSettings, given, "")
    settings.check_name()
    return settings


def _read_answers(path: str) -> dict[str, Any]:
    """Return the answers in the file that ``answers`` names, by the names that records have.

    Raises:
        ConfigError: the file has something else, or an answer that no question asks for.
        YAMLError: it is not valid YAML, or has an answer twice.
    """
    check_answers(Path(path))
    content = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(content, dict) or not content:
        raise ConfigError(
            f"answers={path}: the file must have one line for each answer, such as 'label: income'"
        )
    given = {str(key): value for key, value in content.items()}
    answers = with_old_keys("start", given, f"answers={path}")
    check_keys(answers, (*QUESTIONS, "ranges", "formats"))
    if isinstance(answers.get("public"), bool):  # YAML reads yes and no as true and false
        answers["public"] = "yes" if answers["public"] else "no"
    return answers


def run(settings: StartSettings, console: Console) -> dict[str, Any]:
    """Ask, write the dataset's file, train, and say how good it is and what could be done next."""
    if settings.file.suffix.lower() == ".npz" and settings.file.is_file():
        return _print_next_step_for_arrays(settings.file, console)
    answered = ask(settings, console)
    settings = answered.settings
    inspection = answered.inspection
    assert inspection.target is not None  # asked for, where it is not evident
    scoring = scoring_of(inspection.target)
    certificate = scoring.training_words(
        size_is_public="size" in (settings.public or ()),
        certificates_only=settings.purpose == "certificates",
    )
    training = [f"dataset={settings.dataset}", *certificate]
    write_dataset_file(settings, inspection)
    for remark in early_remarks(answered):
        console.warn(remark)
    trained = _train(settings, training, console)
    summary = _summarise(answered, scoring, training, trained, console)
    page = write_record(settings, summary)
    print_summary(summary, console)
    console.say(f"report: {page.folder / 'report.html'}")
    return _result(settings, summary, trained.record, page.folder)


def _summarise(
    answered: Answered,
    scoring: Scoring,
    training: Sequence[str],
    trained: _Trained,
    console: Console,
) -> Summary:
    """Return the summary of ``agt start``: scores, the planned releases and the proposed command.

    Args:
        answered: the settings and the answers, with the table that was inspected.
        scoring: how answers are scored.
        training: the words of ``agt train`` that train the same model.
        trained: the training run.
        console: shows progress.
    """
    settings = answered.settings
    inspection = answered.inspection
    model = trained.model
    dataset = trained.prepared.dataset
    test = dataset.test
    folder = trained.record.folder
    ledger = _propose_ledger(settings, trained)
    # Where the ledger accepts no release, the plan is that of the budget that was named.
    eps = ledger.eps or settings.planned_eps
    delta = min(settings.delta, ledger.max_delta)
    planned = plan(model, test.features, test.labels, (eps,), delta, PLANNED_QUERIES)
    steps = NextSteps.propose(
        settings,
        inspection,
        scoring,
        training=training,
        model=model,
        folder=folder,
        planned=planned,
        ledger=ledger,
    )
    table = build(trained.record.config["dataset"], "dataset")
    reference = scores_on_table(table, scoring, console)
    compared = compare(
        settings,
        scoring,
        model,
        test,
        reference_scores=reference.scores,
        planned=planned,
        eps=eps,
    )
    stability = scoring.measure_stability(
        model, planned.evidence, test.features, settings.unit_names
    )
    constants = proposed_constants(settings, inspection)
    # The units are given only because a file that names a unit is refused without them.
    columns = Columns.of(settings.dataset_file, units=())
    return Summary(
        table=settings.file.name,
        training_rows=len(dataset.train),
        features=columns.feature_count,
        dataset=settings.dataset_file,
        run=folder,
        comparison=compared,
        counted=settings.unit_names.plural,
        stability=stability,
        ways=steps.ways,
        proposed=steps.proposed,
        not_public=settings.private_groups(inspection),
        declared=declared_sentence(settings, inspection),
        constants=replace(constants, were_shown="public" in answered.asked),
        remarks=remarks_on(answered, dataset, model, trained.quality, compared),
        measuring=steps.measuring,
        commands=steps.by_hand,
        onward=steps.onward,
        ledger=" ".join(ledger.sentences),
    )


def _propose_ledger(settings: StartSettings, trained: _Trained) -> LedgerProposal:
    """Return which ledger could pay for releases of a trained model, and what fits into it.

    Without the purpose of private answers, no ledger is looked for.
    """
    mechanism = weights_mechanism(trained.model)
    eps = settings.planned_eps
    if settings.purpose == "certificates":
        return LedgerProposal(mechanism=mechanism, eps=eps)
    dataset = trained.prepared.dataset
    return LedgerProposal.find(
        trained.record.folder,
        mechanism,
        eps,
        settings.delta,
        dataset.train.units,
        labels_instead=dataset.target.class_count is not None,
    )


def _result(
    settings: StartSettings, summary: Summary, record: RunRecord, page: Path
) -> dict[str, Any]:
    """Return what ``agt start --json`` prints.

    Besides the keys below it has a key for each score of the comparison (such as "accuracy"), whose
    value maps the name of a model to its score, and one for the stability of answers.

    Args:
        settings: the settings of the command.
        summary: the summary that was printed: "plan" has the ways to publish answers,
            "recommended" is one of them, and "next_commands" are the commands to type next.
        record: the record of the training run.
        page: the folder of the record with the summary.
    """
    compared = summary.comparison
    scores_by_key = {}
    for index, key in enumerate(compared.scoring.keys):
        values = {name: value_of(scores[index]) for name, scores in compared.scores.items()}
        scores_by_key[key] = values
    return {
        "dataset": str(settings.dataset_file),
        "run": str(record.folder),
        "digest": record.digest,
        "record": str(page),
        "report": str(page / "report.html"),
        "training_rows": summary.training_rows,
        "features": summary.features,
        "remarks": [*summary.remarks],
        **scores_by_key,
        summary.stability.name: summary.stability.value,
        "not_public": summary.not_public,
        "plan": summary.ways,
        "recommended": summary.ways[summary.proposed],
        "measuring": summary.measuring,
        "next": summary.onward[-1],
        "next_commands": summary.onward,
        "next_warning": summary.warning_of_next,
        "ledger": summary.ledger,
        "proposed_from_rows": {item.name: item.words for item in summary.constants.proposed},
        "commands": summary.commands,
    }


def _print_next_step_for_arrays(path: Path, console: Console) -> dict[str, Any]:
    """Print the command that trains on the vectors of an npz, about which nothing is asked.

    Args:
        path: the file.
        console: prints it.
    """
    next_step = advice_for_arrays(path)
    console.say(
        f"{path} contains arrays of vectors, not a table, so agt start has no questions about "
        f"its columns. Next: {next_step}"
    )
    return {"next": next_step}


def _train(settings: StartSettings, training: Sequence[str], console: Console) -> _Trained:
    """Train with these settings as ``agt train`` does, and write a separate run folder."""
    folder_settings = [
        f"{key}={usage.quoted(str(getattr(settings, key)))}" for key in ("data_dir", "output_dir")
    ]
    config = with_votes_recipe(compose_command("train", [*training, *folder_settings]))
    with RunRecord(settings.new_folder("train"), "train", config) as record:
        run_settings = read_settings_and_learner(config)
        start = perf_counter()
        prepared = prepare(run_settings, console)
        model = fit(prepared, run_settings, console)
        quality = write_trained(record, prepared, run_settings, model, perf_counter() - start)
    return _Trained(record, prepared, model, quality)
