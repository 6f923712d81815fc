"""report.md of a reproduction: each figure and table, ours beside the published numbers.

One renderer for every kind: from a tidy table and what its kind declares to figures, tables and the
comparison.

agt reproduce NAME: the papers' figures and tables on one data set, ours beside the published
numbers.
"""

import json
import math
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from agt_cli.composing import compose_command
from agt_cli.report.console import Console
from agt_cli.report.markdown import escape_markdown, markdown_table, report_page
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
    published = 0
    times = []
    for section in sections:
        times.append(
            (section.source, section.title, f"{section.seconds:.1f}", f"{section.needed:.1f}")
        )
        if len(section.compared):
            with_ours = section.compared.dropna(how="all", subset=[*profiles])
            published += int((with_ours["published"] != UNPUBLISHED["published"]).sum())
    made = counted(len(sections), "figure or table", "figures and tables")
    if published:
        numbers = counted(published, "published number")
        made = f"{made}, {numbers} beside ours"
    parts = [
        f"# {title}",
        f"**{made}.**",
        f"Data: {data}.",
        _list_of_profiles(profiles),
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
    rows = []
    for section in sections:
        compared = []
        if not section.compared.empty:
            compared = json.loads(section.compared.to_json(orient="records"))
        seconds = max(section.seconds, section.needed)
        rows.append(
            {
                "source": section.source,
                "title": section.title,
                "seconds": round(seconds),
                "figures": section.captions,
                "compared": compared,
            }
        )
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
            names = list(one["profiles"])
            artifacts = one["artifacts"]
            columns = (
                "source",
                "seconds",
                "what",
                "published",
                *names,
                "measured on",
                "difference",
            )
            rows = []
            figures: list[Any] = []
            for artifact in artifacts:
                captions = artifact.get("figures", {})
                figures += figures_section(artifact["source"], captions, f"{folder}/figures")
                for line in artifact["compared"] or [{}]:
                    values = {**artifact, **line}
                    rows.append([_cell(values.get(column, "-")) for column in columns])
            parts += [
                f"## {title}",
                f"Data: {one['data']}. Report: [{folder}]({folder}/report.html).",
                _list_of_profiles(one["profiles"]),
                markdown_table(columns, rows),
            ]
            if "peak_gib" in one:
                parts.append(f"Peak memory: {one['peak_gib']:.2f} GiB.")
            parts += figures
    return "\n\n".join(parts) + "\n"


def _list_of_profiles(profiles: Mapping[str, str]) -> str:
    """Return a list in Markdown: the name of each profile, and what it means."""
    return "\n".join(f"- **{name}**: {words}" for name, words in profiles.items())


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
    parts = [f"## {escape_markdown(section.source)}: {escape_markdown(section.title)}"]
    parts += figures_section(section.source, section.captions)
    for table in (section.compared, section.table):
        if not table.empty:
            columns = tuple(map(str, table.columns))
            parts.append(markdown_table(columns, _rows_of_cells(table)))
    if section.notes:
        notes = [f"- {escape_markdown(note)}" for note in section.notes]
        parts.append("\n".join(notes))
    return parts


def _rows_of_cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the texts of a table's cells, row by row."""
    return [tuple(map(_cell, row)) for row in table.values]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


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
    started = time.perf_counter()
    artifact = entry.artifact
    rows = kind.rows(entry)
    data = " / ".join(rows["data"].unique()) if "data" in rows else entry.experiment.data
    compared = rows
    captions = {}
    if rows.empty:
        note = "Left out of these profiles, because profile=ours has the same."
        shown = Shown(rows, notes=(note,))
    elif rows.duplicated(list(kind.index)).any():
        raise ConfigError(
            f"{artifact.id}: the settings give two rows the same {', '.join(kind.index)}"
        )
    else:
        shown = kind.shown(rows)
        for figure in shown.figures:
            figure.draw(record, figure.points, artifact.id + figure.name)
            captions[artifact.id + figure.name] = f"{figure.caption} Data: {data}."
        if "data" not in rows:
            shown = replace(shown, table=shown.table.assign(data=data))
        measured = shown.table if shown.measured is None else shown.measured
        compared = _compared(entry, kind, measured, data)
        tables = {"": shown.table, **shown.extra}
        if not compared.empty:
            tables["_published"] = compared
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
    values = []
    for row in measured.to_dict("records"):
        for what, column in kind.compared(row).items():
            profiles = names if row["profile"] == EVERY else [row["profile"]]
            values += [(what, name, row[column]) for name in profiles]
    long = pd.DataFrame(values, columns=["what", "profile", "value"])
    last = long.drop_duplicates(["what", "profile"], keep="last")
    ours = last.pivot(index="what", columns="profile", values="value").reindex(columns=names)
    published = entry.artifact.published
    numbers = [(one.what, one.value, one.note or "unexplained") for one in published]
    theirs = pd.DataFrame(numbers, columns=["what", "published", "difference"], dtype=object)
    both = theirs.merge(ours.reset_index(), on="what", how="outer").set_index("what")
    order = dict.fromkeys([*theirs["what"], *long["what"]])
    both = both.loc[list(order)].fillna(UNPUBLISHED).reset_index()
    both["measured on"] = data
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
    make = KINDS[artifact.kind]
    check_published(make(whole, artifact.settings, where), artifact.published, where)
    if "smoke" not in profiles:
        return make(profiles, artifact.settings, where)
    if artifact.smoke is None:
        return None
    return make(profiles, {**artifact.settings, **artifact.smoke}, where)


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
        there = [_is_there([*base, *common, *request.overrides]) for base in bases]
        if request.data == "original" or there != [False, True]:
            experiment = experiment.on_original()
            words = [*experiment.base, *common, *request.overrides]
            experiment = replace(experiment, data=_embedded(words) or experiment.data)
    changed = [key for key in keys if key.startswith("dataset.")]
    if not changed:
        return experiment
    listed = ", ".join(changed)
    return replace(experiment, data=f"{experiment.data} (overridden: {listed})")


def _is_there(overrides: Sequence[str]) -> bool:
    return _data_path(overrides).exists()


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
    _refresh_overview(record.folder.parent, console)
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


def _refresh_overview(folder: Path, console: Console) -> None:
    """Write an overview beside the records: of the newest finished one of each experiment, with
    its figures.
    """
    words = overview(summaries(folder))

    def content(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    page = report_page(words, content)
    for name, text in {"overview.md": words, "overview.html": page}.items():
        write_atomic(folder / name, text.encode(errors="replace"))
    console.note(f"overview, with every figure: {folder / 'overview.html'}")


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
    console.table(title, tuple(map(str, table.columns)), _rows_of_cells(table))
