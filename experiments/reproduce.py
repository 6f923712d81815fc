"""agt reproduce NAME: the papers' figures and tables on one data set, ours beside the published
numbers.
"""

import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from agt.data.prepared import PREPARED
from agt.errors import ConfigError, DataMissing
from agt.relations import RELATIONS
from agt.store.locations import resolve
from agt.store.sealed import unseal
from agt_cli.command_settings.reproduce import ReproduceConfig, check_reproduce
from agt_cli.composing import compose_command
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

from .catalogue import KINDS, make_kind
from .entry import Entry
from .experiment import Artifact, Experiment, Profile, ProfileName, load_experiment
from .kinds import Kind
from .pages import reproduction_report, rows_of_cells, summary
from .rendering import Section, check_published, render
from .runs import Runs

BOTH: tuple[ProfileName, ...] = ("paper", "ours")


@dataclass(frozen=True)
class Reproduction:
    """A valid request: what is made, each with its typed settings, and the overrides of every
    run.
    """

    request: ReproduceConfig
    experiment: Experiment
    profiles: Mapping[ProfileName, Profile]
    entries: Sequence[tuple[Artifact, Kind]]
    common: tuple[str, ...]


def configure(config: Mapping[str, Any]) -> Reproduction:
    """Validate the request and the whole definition, before any data is read."""
    request = check_reproduce(config)
    compute = config.get("compute") or {}
    given = {key: value for key, value in compute.items() if value is not None}
    common = [f"data_dir={config.get('data_dir')}"]
    common += [f"compute.{key}={value}" for key, value in given.items()]
    experiment = _on_data(load_experiment(request.name), request, common)
    names = BOTH if request.profile == "both" else (request.profile,)
    profiles = {name: experiment.profiles[name] for name in names}
    ids = [artifact.id for artifact in experiment.artifacts]
    made = []
    for artifact in experiment.artifacts:
        kind = _kind(request.name, experiment, artifact, profiles)  # it raises for any of them
        if kind and artifact.id in (request.only or ids):
            made.append((artifact, kind))
    return Reproduction(request, experiment, profiles, made, (*common, *request.overrides))


def _kind(
    name: str, experiment: Experiment, artifact: Artifact, profiles: Mapping[ProfileName, Profile]
) -> Kind | None:
    """An artifact's kind with its settings for these profiles; None: it is left out of them.

    Raises:
        ConfigError: there is no such kind, a setting is not valid, or a published number has none
            of ours to stand beside.
    """
    where = f"experiments/{name}.yaml: {artifact.id}"
    if artifact.kind not in KINDS:
        raise ConfigError(f"{where}: unknown kind {artifact.kind!r}")
    whole = {name: experiment.profiles[name] for name in BOTH if name in experiment.profiles}
    complete = make_kind(artifact.kind, whole, artifact.settings, where)
    check_published(complete, artifact.published, where)
    if "smoke" not in profiles:
        return make_kind(artifact.kind, profiles, artifact.settings, where)
    if artifact.smoke is None:
        return None
    settings = {**artifact.settings, **artifact.smoke}
    return make_kind(artifact.kind, profiles, settings, where)


def _on_data(experiment: Experiment, request: ReproduceConfig, common: Sequence[str]) -> Experiment:
    """The experiment on the data that it will run on, and by that name.

    With ``data=either``, where neither is there, it is the papers' own: its error says how to get
    it.
    """
    keys = [word.split("=")[0].lstrip("+~") for word in request.overrides]
    if "dataset" in keys or "experiment" in keys:
        config = compose_command("train", [*experiment.base, *common, *request.overrides])
        name = config["dataset"].get("name") or "data"
        data = f"{name}, chosen by an override: the settings and notes were written for other data"
        return replace(experiment, data=data)
    if request.profile == "smoke":
        data = experiment.smoke_data or experiment.data
        artifacts = tuple(artifact.in_smoke() for artifact in experiment.artifacts)
        experiment = replace(experiment, data=data, artifacts=artifacts)
    elif request.data == "original" or (request.data == "either" and experiment.original):
        bases = (experiment.on_original().base, experiment.base)
        there = [_data_path([*base, *common, *request.overrides]).exists() for base in bases]
        if request.data == "original" or there != [False, True]:
            experiment = experiment.on_original()
            words = [*experiment.base, *common, *request.overrides]
            experiment = replace(experiment, data=_embedded(words) or experiment.data)
    changed = [key for key in keys if key.startswith("dataset.")]
    if not changed:
        return experiment
    listed = ", ".join(changed)
    return replace(experiment, data=f"{experiment.data} (overridden: {listed})")


def _data_path(overrides: Sequence[str]) -> Path:
    """Return where the data of these overrides is."""
    dataset = compose_command("train", overrides)["dataset"]
    file = dataset["path"] or f"{dataset['name']}.npz"  # no path: MedMNIST's official file
    return resolve(Path(file), Path(dataset["data_dir"]))


def _embedded(overrides: Sequence[str]) -> str:
    """Return which vectors a prepared folder of reviews holds, as its record says.

    Empty where there is no record that can be read: whoever loads the data then says why.
    """
    try:
        prepared = unseal((_data_path(overrides) / PREPARED).read_bytes())
        width = prepared["arrays"]["x"]["shape"][1]
        weights = prepared["settings"]["model"]["weights"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    model = prepared.get("embedded_by", "a model that the folder does not name")
    return f"IMDB: vectors of {model} (width {width}, weights {weights})"


def run(job: Reproduction, record: RunRecord, console: Console) -> dict[str, Any]:
    """Make every artifact and write the report."""
    runs = Runs(Path(job.request.runs_dir), job.common, console)
    sections = []
    experiment = job.experiment
    started = time.perf_counter()
    missing = []
    count = len(job.entries)
    console.note(
        f"{count} figures and tables. Forecast: {_forecast(job)}. Finished runs are found again."
    )
    for at, (artifact, kind) in enumerate(job.entries, start=1):
        minutes = (time.perf_counter() - started) / 60
        console.note(
            f"-- {at} of {count}, after {minutes:.1f} minutes: {artifact.source}: {artifact.title}"
        )
        try:
            sections.append(render(Entry(experiment, artifact, job.profiles, runs), kind, record))
        except DataMissing as error:  # what other data gives is made all the same
            missing.append(error)
            console.warn(f"{artifact.id} is left out, because its data does not exist")
            sections.append(_left_out(artifact, error))
        _show(sections[-1], console)
    if len(missing) == count:
        raise missing[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    record.add_metrics(artifacts=count - len(missing), peak_memory_gib=round(peak, 3))
    profiles = {str(name): _words(profile) for name, profile in job.profiles.items()}
    report = reproduction_report(
        experiment.title, experiment.data, profiles, sections, peak, record
    )
    record.report(report)
    record.write(
        "summary.json",
        summary(experiment.title, experiment.data, profiles, sections, peak).encode(),
    )
    console.say(f"report: {record.folder / 'report.html'}")
    return {
        "metrics": record.metrics,
        "experiment": job.request.name,
        "artifacts": [s.id for s in sections],
    }


def _left_out(artifact: Artifact, error: DataMissing) -> Section:
    """In the place of an artifact whose data is not there."""
    none = pd.DataFrame()
    notes = (f"Left out: {error}",)
    return Section(artifact.id, artifact.source, artifact.title, none, none, {}, notes, 0.0, 0.0)


def _forecast(job: Reproduction) -> str:
    """How long everything takes that this experiment has; of a part, or of smoke, nothing was
    measured.
    """
    whole = job.request.only is None and job.request.profile == "both" and job.experiment.minutes
    return (
        f"about {job.experiment.minutes:g} minutes on two idle cores" if whole else "not measured"
    )


def _words(profile: Profile) -> str:
    """What one k counts in a profile, and what its guarantee is worth."""
    privacy = RELATIONS[profile.privacy]
    unlearning = RELATIONS[profile.unlearning]
    proof = (
        "rigorous accounting, where its conditions hold (each figure says where not)"
        if profile.accounting == "rigorous"
        else "accounting=paper: no proof of privacy"
    )
    return (
        f"{privacy.name}: k counts {privacy.describe_neighbours()}; unlearning with "
        f"{unlearning.name}: {unlearning.describe_neighbours()}; {proof}"
    )


def _show(section: Section, console: Console) -> None:
    """The table, on a terminal: the data, which every row names, once."""
    table = section.compared
    column = "measured on"
    if table.empty:
        table = section.table
        column = "data"
    if table.empty:
        return
    data = " / ".join(table[column].unique())
    table = table.drop(columns=column)
    title = f"{section.source}: {section.title} ({data})"
    console.table(title, tuple(map(str, table.columns)), rows_of_cells(table))
