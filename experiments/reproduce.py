"""report.md of a reproduction: each figure and table, ours beside the published numbers.

One renderer for every kind: from a tidy table and what its kind declares to figures, tables and the
comparison.

agt reproduce NAME: the papers' figures and tables on one data set, ours beside the published
numbers.
"""

import json
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from agt.data.prepared import PREPARED
from agt.errors import ConfigError, DataMissing, counted, nearest
from agt.relations import RELATIONS
from agt.store.atomic import write_atomic
from agt.store.json_text import parse_object
from agt.store.locations import resolve
from agt.store.reading import Broken, read_file
from agt.store.sealed import unseal
from agt_cli.command_settings.reproduce import ReproduceConfig, check_reproduce
from agt_cli.composing import composed
from agt_cli.report.console import Console
from agt_cli.report.markdown import markdown_table, plain, report_page
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section
from agt_cli.report.sections_md import figures_section

from . import certified, frontier, lectures, looseness, private, removal  # noqa: F401
from .kinds import (
    EVERY,
    KINDS,
    Artifact,
    Entry,
    Experiment,
    Kind,
    Profile,
    ProfileName,
    Published,
    Shown,
    load_experiment,
)
from .runs import Finished, Runs, without_proof


@dataclass(frozen=True)
class Section:
    """One artifact, made.

    Attributes:
        table: its own table, or empty.
        compared: published numbers beside ours, or empty.
        captions: figure file name -> what it shows.
        notes: sentences.
        seconds: what it took just now, runs that were kept from before not counted again.
        needed: seconds of training and certifying that its runs took when they were made.
    """

    id: str
    source: str
    title: str
    table: pd.DataFrame
    compared: pd.DataFrame
    captions: dict[str, str]
    notes: tuple[str, ...]
    seconds: float
    needed: float


def reproduction_report(
    title: str,
    data: str,
    profiles: Mapping[str, str],
    sections: Sequence[Section],
    peak_gib: float,
    record: RunRecord,
) -> str:
    """The report."""
    both = [
        s.compared.dropna(how="all", subset=[*profiles])["published"]
        for s in sections
        if len(s.compared)
    ]
    published = sum(int((theirs != UNPUBLISHED["published"]).sum()) for theirs in both)
    beside = f", {counted(published, 'published number')} beside ours" if published else ""
    times = [(s.source, s.title, f"{s.seconds:.1f}", f"{s.needed:.1f}") for s in sections]
    parts = [
        f"# {title}",
        f"**{counted(len(sections), 'figure or table', 'figures and tables')}{beside}.**",
        f"Data: {data}.",
        "\n".join(f"- **{name}**: {words}" for name, words in profiles.items()),
        "## Overview",
        markdown_table(("source", "what", "seconds now", "seconds of its runs"), times),
        f"Peak memory of the process: {peak_gib:.2f} GiB. Runs that were stored are not run "
        "again; for these, the last column shows the time that they took at first.",
    ]
    for section in sections:
        parts += _section(section)
    return "\n\n".join([*parts, "## Setting", setting_section(record.config)]) + "\n"


def summary(
    title: str, data: str, profiles: Mapping[str, str], sections: Sequence[Section], peak_gib: float
) -> str:
    """What the overview needs of one report, as json."""
    rows = [
        {
            "source": section.source,
            "title": section.title,
            "seconds": round(max(section.seconds, section.needed)),
            "figures": section.captions,
            "compared": json.loads(section.compared.to_json(orient="records"))
            if not section.compared.empty
            else [],
        }
        for section in sections
    ]
    whole = {
        "title": title,
        "data": data,
        "profiles": dict(profiles),
        "peak_gib": peak_gib,
        "artifacts": rows,
    }
    return json.dumps(whole, indent=2) + "\n"


def overview(found: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    """All experiments: setting, published, ours, time and memory, what k counts, what was
    substituted, every figure.

    Args:
        found: title -> (record's folder name, its summary).
    """
    parts = ["# The papers, reproduced: overview"]
    for title, (folder, one) in found.items():
        # edited since, or of another version: left out
        with suppress(LookupError, TypeError, ValueError, AttributeError):
            names, artifacts = list(one["profiles"]), one["artifacts"]
            columns = (
                "source",
                "seconds",
                "what",
                "published",
                *names,
                "measured on",
                "difference",
            )
            rows = [
                [_cell({**artifact, **line}.get(column, "-")) for column in columns]
                for artifact in artifacts
                for line in artifact["compared"] or [{}]
            ]
            figures = [
                figures_section(each["source"], each.get("figures", {}), f"{folder}/figures")
                for each in artifacts
            ]
            parts += [
                f"## {title}",
                f"Data: {one['data']}. Report: [{folder}]({folder}/report.html).",
                "\n".join(f"- **{name}**: {words}" for name, words in one["profiles"].items()),
                markdown_table(columns, rows),
                *([f"Peak memory: {one['peak_gib']:.2f} GiB."] if "peak_gib" in one else []),
                *chain.from_iterable(figures),
            ]
    return "\n\n".join(parts) + "\n"


def summaries(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each experiment's newest finished record below a folder: title -> (its folder's name, its
    summary).

    A record whose summary cannot be read is left out.
    """
    newest: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/summary.json")):
        with suppress(Broken, KeyError):
            one = parse_object(read_file(path), path.name)
            newest[str(one["title"])] = (path.parent.name, one)
    return newest


def _section(section: Section) -> list[str]:
    parts = [f"## {plain(section.source)}: {plain(section.title)}"]
    parts += figures_section(section.source, section.captions)
    for table in (section.compared, section.table):
        if not table.empty:
            parts.append(
                markdown_table(
                    tuple(map(str, table.columns)), [tuple(map(_cell, row)) for row in table.values]
                )
            )
    if section.notes:
        parts.append("\n".join(f"- {plain(note)}" for note in section.notes))
    return parts


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return (
            "-" if value != value else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
        )
    return str(value)


UNPUBLISHED = {"published": "-", "difference": "no such number in the papers' text"}


def check_published(kind: Kind, published: tuple[Published, ...], where: str) -> None:
    """Refuse a published number that nothing of ours would stand beside, before anything is
    trained.

    Args:
        kind: in all profiles and with the settings of a whole reproduction; a smaller one may leave
            out what it compares.
    """
    names = [what for key in kind.keys for what in kind.compared(key)]
    for entry in published:
        if entry.what not in names:
            raise ConfigError(
                f"{where}: published: there is no number "
                f"'{entry.what}'{nearest(entry.what, set(names))}"
            )


def render(entry: Entry, kind: Kind, record: RunRecord) -> Section:
    """Make one artifact: its rows, and everything that is shown of them.

    Raises:
        ConfigError: the settings ask for what cannot be, or for one row twice.
    """
    started, artifact = time.perf_counter(), entry.artifact
    rows = kind.rows(entry)
    data = " / ".join(rows["data"].unique()) if "data" in rows else entry.experiment.data
    compared, captions = rows, {}
    if rows.empty:
        shown = Shown(
            rows, notes=("Left out of these profiles, because profile=ours has the same.",)
        )
    elif rows.duplicated(list(kind.index)).any():
        raise ConfigError(
            f"{artifact.id}: the settings give two rows the same {', '.join(kind.index)}"
        )
    else:
        shown = kind.shown(rows)
        for figure in shown.figures:
            figure.draw(record, figure.points, artifact.id + figure.name)
            captions[artifact.id + figure.name] = f"{figure.caption} Data: {data}."
        shown = replace(
            shown, table=shown.table.assign(**({} if "data" in rows else {"data": data}))
        )
        compared = _compared(
            entry, kind, shown.table if shown.measured is None else shown.measured, data
        )
        tables = {
            "": shown.table,
            **shown.extra,
            **({} if compared.empty else {"_published": compared}),
        }
        for name, table in tables.items():
            record.table(artifact.id + name, table)
    notes = (*artifact.notes, *shown.notes, *without_proof(entry.used.values()))
    needed = sum(run.seconds for run in entry.used.values() if isinstance(run, Finished))
    seconds = time.perf_counter() - started
    return Section(
        artifact.id,
        artifact.source,
        artifact.title,
        shown.table,
        compared,
        captions,
        notes,
        seconds,
        needed,
    )


def _compared(entry: Entry, kind: Kind, measured: pd.DataFrame, data: str) -> pd.DataFrame:
    """One row for each published number: theirs, each profile's, what it was measured on, and the
    difference explained; then one for each number of ours that the papers' text does not give.
    """
    names = list(entry.profiles)
    values = [
        (what, name, row[column])
        for row in measured.to_dict("records")
        for what, column in kind.compared(row).items()
        for name in (names if row["profile"] == EVERY else [row["profile"]])
    ]
    long = pd.DataFrame(values, columns=["what", "profile", "value"])
    ours = long.drop_duplicates(["what", "profile"], keep="last").pivot(
        index="what", columns="profile", values="value"
    )
    theirs = pd.DataFrame(
        [(one.what, one.value, one.note or "unexplained") for one in entry.artifact.published],
        columns=["what", "published", "difference"],
        dtype=object,
    )
    both = theirs.merge(
        ours.reindex(columns=names).reset_index(), on="what", how="outer"
    ).set_index("what")
    order = dict.fromkeys([*theirs["what"], *long["what"]])
    both = both.loc[list(order)].fillna(UNPUBLISHED).assign(**{"measured on": data}).reset_index()
    return both[["what", "published", *names, "measured on", "difference"]]


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
    if request.profile == "smoke" and request.data != "either":
        raise ConfigError(
            f"data={request.data}: profile=smoke has its own data: leave data=... out, or choose "
            "another profile"
        )
    for word in request.overrides:
        if "=" not in word:
            raise ConfigError(
                f"overrides: '{word}' is not a setting of agt train, which has the form KEY=VALUE"
            )
        if word.lstrip("+~").split("=")[0].split(".")[0] in ("relation", "noise"):
            raise ConfigError(
                f"overrides: {word}: the profile fixes what k counts and what is claimed, so "
                "this cannot be changed"
            )
    compute = config.get("compute") or {}
    common = [
        f"data_dir={config.get('data_dir')}",
        *(f"compute.{k}={v}" for k, v in compute.items() if v is not None),
    ]
    experiment = _on_data(load_experiment(request.name), request, common)
    names = BOTH if request.profile == "both" else (request.profile,)
    profiles = {name: experiment.profiles[name] for name in names}
    ids = [artifact.id for artifact in experiment.artifacts]
    for name in request.only or ():
        if name not in ids:
            raise ConfigError(
                f"only: {request.name} has no artifact {name!r}. Choose from: {', '.join(ids)}"
            )
    entries = [
        (artifact, _kind(request.name, experiment, artifact, profiles))
        for artifact in experiment.artifacts
    ]
    made = [
        (artifact, kind)
        for artifact, kind in entries
        if kind and artifact.id in (request.only or ids)
    ]
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
    check_published(
        KINDS[artifact.kind](whole, artifact.settings, where), artifact.published, where
    )
    if "smoke" in profiles and artifact.smoke is None:
        return None
    settings = {**artifact.settings, **((artifact.smoke or {}) if "smoke" in profiles else {})}
    return KINDS[artifact.kind](profiles, settings, where)


def _on_data(experiment: Experiment, request: ReproduceConfig, common: Sequence[str]) -> Experiment:
    """The experiment on the data that it will run on, and by that name.

    With ``data=either``, where neither is there, it is the papers' own: its error says how to get
    it.
    """
    keys = [word.split("=")[0].lstrip("+~") for word in request.overrides]
    if "dataset" in keys or "experiment" in keys:
        name = composed("train", [*experiment.base, *common, *request.overrides])["dataset"].get(
            "name"
        )
        return replace(
            experiment,
            data=f"{name or 'data'}, chosen by an override: the settings and notes were written "
            "for other data",
        )
    if request.profile == "smoke":
        experiment = replace(
            experiment,
            data=experiment.smoke_data or experiment.data,
            artifacts=tuple(artifact.in_smoke() for artifact in experiment.artifacts),
        )
    elif request.data == "original" or (request.data == "either" and experiment.original):
        bases = (experiment.on_original().base, experiment.base)
        there = [_is_there([*base, *common, *request.overrides]) for base in bases]
        if request.data == "original" or there != [False, True]:
            experiment = experiment.on_original()
            words = [*experiment.base, *common, *request.overrides]
            experiment = replace(experiment, data=_embedded(words) or experiment.data)
    changed = [key for key in keys if key.startswith("dataset.")]
    return (
        replace(experiment, data=f"{experiment.data} (overridden: {', '.join(changed)})")
        if changed
        else experiment
    )


def _is_there(overrides: Sequence[str]) -> bool:
    return _data_path(overrides).exists()


def _data_path(overrides: Sequence[str]) -> Path:
    """Return where the data of these overrides is."""
    dataset = composed("train", overrides)["dataset"]
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
    runs, sections, experiment = (
        Runs(Path(job.request.runs_dir), job.common, console),
        [],
        job.experiment,
    )
    started, missing, count = time.perf_counter(), [], len(job.entries)
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
    _refresh_overview(record.folder.parent, console)
    console.say(f"report: {record.folder / 'report.html'}")
    return {
        "metrics": record.metrics,
        "experiment": job.request.name,
        "artifacts": [s.id for s in sections],
    }


def _left_out(artifact: Artifact, error: DataMissing) -> Section:
    """In the place of an artifact whose data is not there."""
    none, notes = pd.DataFrame(), (f"Left out: {error}",)
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
    privacy, unlearning = RELATIONS[profile.privacy], RELATIONS[profile.unlearning]
    proof = (
        "rigorous accounting, where its conditions hold (each figure says where not)"
        if profile.accounting == "rigorous"
        else "accounting=paper: no proof of privacy"
    )
    return (
        f"{privacy.name}: k counts {privacy.describe_neighbours()}; unlearning with "
        f"{unlearning.name}: {unlearning.describe_neighbours()}; {proof}"
    )


def _refresh_overview(folder: Path, console: Console) -> None:
    """Write an overview beside the records: of the newest finished one of each experiment, with
    its figures.
    """
    words = overview(summaries(folder))
    page = report_page(
        words, lambda name: (folder / name).read_bytes() if (folder / name).is_file() else None
    )
    for name, text in {"overview.md": words, "overview.html": page}.items():
        write_atomic(folder / name, text.encode(errors="replace"))
    console.note(f"overview, with every figure: {folder / 'overview.html'}")


def _show(section: Section, console: Console) -> None:
    """The table, on a terminal: the data, which every row names, once."""
    table, column = (
        (section.table, "data") if section.compared.empty else (section.compared, "measured on")
    )
    if table.empty:
        return
    data, table = " / ".join(table[column].unique()), table.drop(columns=column)
    console.table(
        f"{section.source}: {section.title} ({data})",
        tuple(str(column) for column in table.columns),
        [tuple(map(_cell, row)) for row in table.values],
    )
