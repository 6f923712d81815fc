"""agt reproduce NAME: the papers' figures and tables on one data set, ours beside the published numbers."""

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.files import resolve
from agt.disk import write_atomic
from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.settings import STRICT, validate
from agt_cli.papers.reproduction.catalogue import KINDS
from agt_cli.papers.reproduction.definition import (
    Artifact,
    Experiment,
    Profile,
    ProfileName,
    load_experiment,
    settings_for,
)
from agt_cli.papers.reproduction.kinds import Entry, Kind
from agt_cli.papers.reproduction.render import check_published, render
from agt_cli.papers.reproduction.runs import Runs
from agt_cli.report.console import Console, show
from agt_cli.report.html import report_page
from agt_cli.report.record import RunRecord
from agt_cli.report.reproduction_md import Section, gallery, overview, reproduction_report, summaries, summary
from agt_cli.runs.compose import composed
from agt_cli.runs.prepare import only_keys

KEYS = ("name", "profile", "data", "only", "overrides", "runs_dir")
BOTH: tuple[ProfileName, ...] = ("paper", "ours")


@validated(frozen=True, config=STRICT)
class ReproduceConfig:
    """What is asked for.

    Attributes:
        name: the experiment's.
        profile: paper, ours, both side by side, or smoke.
        data: the papers' own (``original``), the definition's ``stand_in``, or ``either``: the first that is there.
        only: ids of artifacts; None: all.
        overrides: of agt train's configuration, for every run (where data lies, how to compute).
        runs_dir: where finished runs are kept and found again.
    """

    name: str
    profile: Literal["both", "paper", "ours", "smoke"] = "both"
    data: Literal["either", "original", "stand_in"] = "either"
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    overrides: tuple[str, ...] = ()
    runs_dir: Annotated[str, Field(min_length=1)] = "outputs/reproduce/runs"


@dataclass(frozen=True)
class Reproduction:
    """A valid request: what is made, each with its typed settings, and the overrides of every run."""

    request: ReproduceConfig
    experiment: Experiment
    profiles: Mapping[ProfileName, Profile]
    entries: Sequence[tuple[Artifact, Kind]]
    common: tuple[str, ...]


def configure(config: Mapping[str, Any]) -> Reproduction:
    """Validate the request and the whole definition, before any data is read."""
    only_keys(config, (*KEYS, "compute", "output_dir", "data_dir"))
    request = validate(ReproduceConfig, {key: config.get(key) for key in KEYS}, "reproduce")
    if request.profile == "smoke" and request.data != "either":
        raise ConfigError(
            f"data={request.data}: profile=smoke has data of its own: leave data out, or choose another profile"
        )
    for word in request.overrides:
        if "=" not in word:
            raise ConfigError(f"overrides: '{word}' is no setting of agt train: settings are KEY=VALUE")
        if word.lstrip("+~").split("=")[0].split(".")[0] in ("relation", "noise"):
            raise ConfigError(f"overrides: {word}: what k counts and what is claimed are the profile's, whose words stay")
    compute = config.get("compute") or {}
    common = [f"data_dir={config.get('data_dir')}", *(f"compute.{k}={v}" for k, v in compute.items() if v is not None)]
    experiment = _on_data(load_experiment(request.name), request, common)
    names = BOTH if request.profile == "both" else (request.profile,)
    profiles = {name: experiment.profiles[name] for name in names}
    ids = [artifact.id for artifact in experiment.artifacts]
    for name in request.only or ():
        if name not in ids:
            raise ConfigError(f"only: no artifact {name!r} in {request.name}; there are {', '.join(ids)}")
    entries = [(artifact, _kind(request.name, experiment, artifact, profiles)) for artifact in experiment.artifacts]
    made = [(artifact, kind) for artifact, kind in entries if kind and artifact.id in (request.only or ids)]
    return Reproduction(request, experiment, profiles, made, (*common, *request.overrides))


def _kind(name: str, experiment: Experiment, artifact: Artifact, profiles: Mapping[ProfileName, Profile]) -> Kind | None:
    """An artifact's kind with its settings for these profiles; None: it is left out of them.

    Raises:
        ConfigError: there is no such kind, a setting is not valid, or a published number has none of ours to stand beside.
    """
    where = f"experiments/{name}.yaml: {artifact.id}"
    if artifact.kind not in KINDS:
        raise ConfigError(f"{where}: unknown kind {artifact.kind!r}")
    whole = {name: experiment.profiles[name] for name in BOTH if name in experiment.profiles}
    check_published(KINDS[artifact.kind](whole, artifact.settings, where), artifact.published, where)
    settings = settings_for(artifact, profiles)
    return None if settings is None else KINDS[artifact.kind](profiles, settings, where)


def _on_data(experiment: Experiment, request: ReproduceConfig, common: Sequence[str]) -> Experiment:
    """The experiment on the data that it will run on, and by that name.

    With ``data=either``, where neither is there, it is the papers' own: its error says how to get it.
    """
    keys = [word.split("=")[0].lstrip("+~") for word in request.overrides]
    if "dataset" in keys or "experiment" in keys:
        name = composed("train", [*experiment.base, *common, *request.overrides])["dataset"].get("name")
        return replace(experiment, data=f"{name or 'data'}, chosen by override: settings and notes are for other data")
    if request.profile == "smoke":
        experiment = replace(experiment, data=experiment.smoke_data or experiment.data)
    elif request.data == "original" or (request.data == "either" and experiment.original):
        bases = (experiment.on_original().base, experiment.base)
        there = [_is_there([*base, *common, *request.overrides]) for base in bases]
        if request.data == "original" or there != [False, True]:
            experiment = experiment.on_original()
    changed = [key for key in keys if key.startswith("dataset.")]
    return replace(experiment, data=f"{experiment.data} (overridden: {', '.join(changed)})") if changed else experiment


def _is_there(overrides: Sequence[str]) -> bool:
    dataset = composed("train", overrides)["dataset"]
    return resolve(Path(dataset["path"]), Path(dataset["data_dir"])).exists()


def run(job: Reproduction, record: RunRecord, console: Console) -> dict[str, Any]:
    """Make every artifact and write the report."""
    runs, sections, experiment = Runs(Path(job.request.runs_dir), job.common, console), [], job.experiment
    for artifact, kind in job.entries:
        console.note(f"-- {artifact.source}: {artifact.title}")
        sections.append(render(Entry(experiment, artifact, job.profiles, runs), kind, record))
        _show(sections[-1], console)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    record.add_metrics(artifacts=len(sections), peak_memory_gib=round(peak, 3))
    profiles = {str(name): _words(profile) for name, profile in job.profiles.items()}
    report = reproduction_report(experiment.title, experiment.data, profiles, sections, peak, record)
    record.report(report)
    record.write("summary.json", summary(experiment.title, experiment.data, profiles, sections, peak).encode())
    _refresh_overview(record.folder.parent, console)
    console.say(f"report: {record.folder / 'report.html'}")
    return {"metrics": record.metrics, "experiment": job.request.name, "artifacts": [s.id for s in sections]}


def _words(profile: Profile) -> str:
    """What one k counts in a profile, and what its guarantee is worth."""
    privacy, unlearning = RELATIONS[profile.privacy], RELATIONS[profile.unlearning]
    proof = (
        "rigorous accounting, where its conditions hold (each figure says where not)"
        if profile.accounting == "rigorous"
        else "accounting=paper: no proof of privacy"
    )
    return f"{privacy.name}: k counts {privacy.ball}; unlearning with {unlearning.name}: {unlearning.ball}; {proof}"


def _refresh_overview(folder: Path, console: Console) -> None:
    """Write an overview and a page of every figure beside the records: of the newest finished one of each experiment."""
    found = summaries(folder)
    words = overview(found)
    pages = {"overview.md": words, "overview.html": report_page(words, lambda name: None), "index.html": gallery(found)}
    for name, text in pages.items():
        write_atomic(folder / name, text.encode())
    console.note(f"overview: {folder / 'overview.md'}; every figure: {folder / 'index.html'}")


def _show(section: Section, console: Console) -> None:
    """The table, on a terminal: the data, which every row names, once."""
    table, column = (section.table, "data") if section.compared.empty else (section.compared, "measured on")
    if table.empty:
        return
    data, table = " / ".join(table[column].unique()), table.drop(columns=column)
    console.table(
        f"{section.source}: {section.title} ({data})",
        tuple(str(column) for column in table.columns),
        [tuple(_cell(v) for v in row) for row in table.itertuples(index=False)],
    )


def _cell(value: object) -> str:
    """A cell on a terminal: three digits behind the point, or an exponent where those would be zeros."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if 0 < abs(value) < 0.0005 else show(value)
