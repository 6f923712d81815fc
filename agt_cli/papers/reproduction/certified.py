"""Kinds about certified fractions: against k (000 Fig 3, 001 Fig 7), over training (000 Fig 4, 001 Fig 8), and the k at
which half of the test records are certified.

What one k counts differs between the profiles and between privacy and unlearning; every table says it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.bounds.box import Box
from agt.certificates.box import Certificates
from agt.errors import ConfigError
from agt.models.box import BoxModel, start_from
from agt.models.heads import build_head
from agt.relations import RELATIONS
from agt.settings import STRICT, BoxConfig, validate
from agt.training.loop import Progress, train
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.keep import keep, kept
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.papers.reproduction.runs import Finished, signature
from agt_cli.report.curves import Curves, curves
from agt_cli.runs.prepare import Prepared, RunSettings

Overrides = tuple[str, ...]
Purpose = Literal["privacy", "unlearning"]
Count = Annotated[int, Field(ge=1)]


# -- against k ---------------------------------------------------------------------------------------------------------


@validated(frozen=True, config=STRICT)
class Variant:
    """One curve of each profile and claim: what it is called, and its overrides."""

    label: str = ""
    run: Overrides = ()


@validated(frozen=True, config=STRICT)
class ByKConfig:
    """Settings of ``certified_by_k``.

    Attributes:
        run: overrides of every run.
        variants: the curves, such as several clip levels.
        claims: one panel each.
        at: the k in the table.
        only: test records with this label (an index) alone; None: all.
    """

    run: Overrides = ()
    variants: Annotated[tuple[Variant, ...], Field(min_length=1)] = (Variant(),)
    claims: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("privacy",)
    at: tuple[Count, ...] = (1, 5, 10)
    only: int | None = None


@kind
def certified_by_k(context: Context, settings: dict[str, Any]) -> Made:
    """Certified fraction of the test records against k, and their accuracy before and after training."""
    config = validate(ByKConfig, settings, context.artifact.id)
    frames, table = [], []
    values: dict[str, dict[str, float]] = {}
    for name in context.profiles:
        for variant in config.variants:
            before = _accuracy_before(context, name, (*config.run, *variant.run), config.only)
            for claim in config.claims:
                own = (*config.run, *variant.run, f"relation=@{claim}")
                finished = context.run(name, own, " ".join(filter(None, (claim, variant.label))))
                asked = finished.frame[_wanted(finished.frame["label"].to_numpy(), config.only, context.artifact.id)]
                fractions = certified_fractions(asked["distance"].to_numpy(), finished.ks)
                series = f"{variant.label} ({name})" if variant.label else name
                frames.append(fractions.assign(series=series, claim=claim, profile=name, variant=variant.label))
                at = {k: _at(fractions, k) for k in config.at}
                accuracy = float((asked["prediction"] == asked["label"]).mean())
                which = f", {variant.label}" if variant.label else ""
                for k, fraction in at.items():
                    values.setdefault(f"certified at k={k} ({claim}{which})", {})[name] = fraction
                values.setdefault(f"accuracy{which}", {})[name] = accuracy
                values.setdefault("accuracy before training", {})[name] = before
                table.append(
                    {
                        "profile": name,
                        "claim": claim,
                        "variant": variant.label or "-",
                        "k counts": RELATIONS[finished.relation].ball,
                        "test records": len(asked),
                        "accuracy before": before,
                        "accuracy": accuracy,
                        **{f"certified at k={k}": fraction for k, fraction in at.items()},
                        "seconds": round(float(finished.facts["seconds_training"]), 1),
                    }
                )
    what = Curves(
        context.artifact.id,
        "k",
        "certified_fraction",
        "k (what one counts: see the table)",
        "certified fraction of the test records",
        context.experiment.data,
        log=False,
        panels="claim",
    )
    curves(context.record, what, pd.concat(frames))
    caption = "Certified fraction of the test records against k."
    return Made(values, pd.DataFrame(table), {context.artifact.id: caption})


def certified_fractions(distance: np.ndarray, ks: tuple[int, ...]) -> pd.DataFrame:
    """For each k >= 1 of the grid, the fraction of records whose stable distance is at least k."""
    grid = np.array([k for k in ks if k > 0])
    return pd.DataFrame({"k": grid, "certified_fraction": (distance[None] >= grid[:, None]).mean(axis=1)})


def _at(fractions: pd.DataFrame, k: int) -> float:
    """The fraction at one k; NaN where the grid does not have it."""
    found = fractions.loc[fractions["k"] == k, "certified_fraction"]
    return float(found.iloc[0]) if len(found) else float("nan")


def _wanted(labels: np.ndarray, only: int | None, where: str) -> np.ndarray:
    """[n] bool: the records with this label; all of them for None."""
    rows: np.ndarray = np.ones(len(labels), dtype=bool) if only is None else labels == only
    if not rows.any():
        raise ConfigError(f"{where}: only={only}: no test record has this label")
    return rows


def _accuracy_before(context: Context, name: ProfileName, own: Overrides, only: int | None) -> float:
    """Of the head as training finds it: a base model's, or random; NaN where another certificate knows no such head."""
    overrides = context.overrides(context.profiles[name], own)
    _, settings = context.runs.settings(overrides)
    if not isinstance(settings.certificate, BoxConfig):
        return float("nan")
    prepared = context.runs.prepared(overrides)
    test = prepared.dataset.test
    rows = _wanted(test.labels, only, context.artifact.id)
    return float((_untrained(prepared, settings).predict(test.features[rows]) == test.labels[rows]).mean())


def _untrained(prepared: Prepared, settings: RunSettings) -> BoxModel:
    """The head before its first step: every box is a point."""
    problem = prepared.problem(settings)
    head = build_head(prepared.dataset.train.features.shape[1:], prepared.classes, settings.model, settings.training)
    if prepared.initial:
        start_from(head, prepared.initial)
    point = {name: tensor.detach() for name, tensor in head.state_dict().items()}
    return BoxModel(problem, head, Box.start((0,), point), problem.plan)


# -- over training -----------------------------------------------------------------------------------------------------


@validated(frozen=True, config=STRICT)
class TrainingCurveConfig:
    """Settings of ``training_curve``.

    Attributes:
        run: overrides of every run.
        ks: the few k to follow.
        claims: one panel each.
    """

    run: Overrides = ()
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 10)
    claims: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("privacy", "unlearning")


@kind
def training_curve(context: Context, settings: dict[str, Any]) -> Made:
    """Accuracy, its bounds and the certified fraction after each epoch of one run (000 Fig 4, 001 Fig 8)."""
    config = validate(TrainingCurveConfig, settings, context.artifact.id)
    frames, table = [], []
    values: dict[str, dict[str, float]] = {}
    for name, profile in context.profiles.items():
        for claim in config.claims:
            overrides = _on_grid(config.ks, context.overrides(profile, (*config.run, f"relation=@{claim}")))
            frame = once(context, overrides, f"{name}, {claim}", _over_training)
            frames.append(frame.assign(profile=name, claim=claim))
            last = frame[frame["epoch"] == frame["epoch"].max()].set_index("k")
            for k, row in last.iterrows():
                values.setdefault(f"certified at k={k} ({claim})", {})[name] = float(row["certified_fraction"])
            values.setdefault("nominal accuracy", {})[name] = float(last["nominal_accuracy"].iloc[0])
            table.append(
                {
                    "profile": name,
                    "claim": claim,
                    "k counts": RELATIONS[context.runs.settings(overrides)[1].relation.name].ball,
                    "epochs": int(frame["epoch"].max()),
                    "accuracy at the start": float(frame["nominal_accuracy"].iloc[0]),
                    "accuracy": float(last["nominal_accuracy"].iloc[0]),
                    **{f"certified at k={k}": float(last.loc[k, "certified_fraction"]) for k in config.ks},
                    **{f"worst case at k={k}": float(last.loc[k, "worst_accuracy"]) for k in config.ks},
                }
            )
    captions = _draw_training(context, pd.concat(frames))
    return Made(values, pd.DataFrame(table), captions)


def _on_grid(ks: tuple[int, ...], overrides: list[str]) -> list[str]:
    """The overrides with these k, whatever grid the profile insists on: nothing is released from a curve."""
    grid = f"[{','.join(map(str, ks))}]"
    own = {"kgrid": "kgrid=sparse", "kgrid.max": "kgrid.max=null", "kgrid.values": f"kgrid.values={grid}"}
    return [word for word in overrides if word.split("=")[0] not in own] + list(own.values())


def _over_training(prepared: Prepared, settings: RunSettings, context: Context, label: str) -> pd.DataFrame:
    """After each epoch and for each k: nominal, worst-case and best-case accuracy, certified fraction."""
    start, test = _untrained(prepared, settings), prepared.dataset.test
    rows: list[dict[str, float]] = []

    def on_epoch(epoch: int, reached: Box) -> None:
        certificates: Certificates = replace(start, box=reached).certify(test.features)
        rows.extend({"epoch": epoch, **row} for row in certificates.table(test.labels))

    console = context.runs.console
    with console.progress(f"training, {label}") as report:

        def on_progress(at: Progress) -> None:
            report(at.step, at.steps, at.done, at.total)

        train(start.head, start.problem.recipe, prepared.dataset.train, on_progress, on_epoch=on_epoch)
    return pd.DataFrame(rows).astype({"k": int})


def once(
    context: Context,
    overrides: list[str],
    label: str,
    make: Callable[[Prepared, RunSettings, Context, str], pd.DataFrame],
) -> pd.DataFrame:
    """What ``make`` makes of a run, found again by the run's signature, the function's name and its module's code."""
    config, settings = context.runs.settings(overrides)
    prepared = context.runs.prepared(overrides)
    place = context.runs.folder / signature(config, prepared, make.__name__, modules=(make.__module__,))
    before = kept(place)
    if before is not None:
        return before[0]
    context.runs.console.note(f"running: {context.artifact.source}, {label}")
    table = make(prepared, settings, context, label)
    keep(place, table, {"config": config})
    return table


def _draw_training(context: Context, frame: pd.DataFrame) -> dict[str, str]:
    """Two figures, certified fractions and accuracies, with a panel for each claim and profile."""
    frame = frame.assign(panel=frame["claim"] + " (" + frame["profile"] + ")")
    name, data = context.artifact.id, context.experiment.data
    first = Curves(
        name, "epoch", "certified_fraction", "epoch", "certified fraction of the test records", data, False, panels="panel"
    )
    fractions = frame.assign(series=[f"k = {k}" for k in frame["k"]])
    curves(context.record, first, fractions[["panel", "series", "epoch", "k", "certified_fraction"]])
    nominal = frame.assign(series="nominal", accuracy=frame["nominal_accuracy"])
    lines = [nominal.drop_duplicates(["panel", "epoch"])]
    for end in ("worst", "best"):
        series = [f"{end} case, k = {k}" for k in frame["k"]]
        lines.append(frame.assign(series=series, accuracy=frame[f"{end}_accuracy"]))
    second = Curves(f"{name}_accuracy", "epoch", "accuracy", "epoch", "test accuracy", data, False, panels="panel")
    curves(context.record, second, pd.concat(lines)[["panel", "series", "epoch", "k", "accuracy"]])
    return {
        name: "Certified fraction of the test records after each epoch of one run.",
        f"{name}_accuracy": "Nominal test accuracy, and what any neighbouring data set could make of it, after each epoch.",
    }


# -- half certified ----------------------------------------------------------------------------------------------------


@validated(frozen=True, config=STRICT)
class HalfConfig:
    """Settings of ``half_certified``.

    Attributes:
        run: overrides of every run.
        grids: profile -> overrides that choose its grid: every integer around the answer.
        seeds: initialisations, the same in every profile.
    """

    run: Overrides = ()
    grids: dict[ProfileName, Overrides] = Field(default_factory=dict)
    seeds: Count = 10


HALF = "k at half certified"
RATIO = "k at half certified, ours over paper"


@kind
def half_certified(context: Context, settings: dict[str, Any]) -> Made:
    """The largest k at which at least half of the test records are certified; median over initialisations.

    The claim is the same in both profiles: nothing that changes up to k records in all, added or removed, moves the label.
    paper_privacy's ball of k (k removed and k added) holds all such changes, and no smaller of its balls does.
    """
    config = validate(HalfConfig, settings, context.artifact.id)
    rows, frames = [], []
    for name in context.profiles:
        for seed in range(config.seeds):
            own = (*config.run, *config.grids.get(name, ()), f"training.seed={seed}")
            finished = context.run(name, own, f"seed {seed}")
            frames.append(certified_fractions(finished.distance, finished.ks).assign(profile=name, seed=seed))
            rows.append({"profile": name, "seed": seed, **_half(finished)})
    found = pd.DataFrame(rows)
    context.record.table(f"{context.artifact.id}_seeds", found)
    medians = found.groupby("profile", sort=False)[HALF].median()
    values = {HALF: {str(profile): float(k) for profile, k in medians.items()}}
    if {"paper", "ours"} <= set(medians.index):
        values[RATIO] = {"ours": float(medians["ours"] / medians["paper"]) if medians["paper"] else float("inf")}
    table = found.groupby("profile", sort=False).agg(
        **{
            "initialisations": ("seed", "count"),
            "k counts": ("k counts", "first"),
            "accuracy, median": ("accuracy", "median"),
            HALF: (HALF, "median"),
            "known": ("known", "min"),
            "least": (HALF, "min"),
            "greatest": (HALF, "max"),
        }
    )
    _draw_half(context, pd.concat(frames))
    caption = "Certified fraction of the test records against k: median of the initialisations, and their range."
    notes = ["The same claim in both profiles: no change of up to k records in all, added or removed, moves the label."]
    if (found["known"] != "exactly").any():
        notes.append("Some k are at least so large: the grid ends, or has a gap, right above.")
    return Made(values, table.reset_index(), {context.artifact.id: caption}, tuple(notes))


def _half(finished: Finished) -> dict[str, Any]:
    k, exact = at_half(finished.distance, finished.ks)
    ball = RELATIONS[finished.relation].ball
    return {HALF: k, "known": "exactly" if exact else "at least", "accuracy": finished.accuracy, "k counts": ball}


def at_half(distance: np.ndarray, ks: tuple[int, ...]) -> tuple[int, bool]:
    """(the largest k of the grid at which at least half of the records are certified, or 0; whether k + 1 is on it too)."""
    fractions = certified_fractions(distance, ks)
    held = fractions.loc[fractions["certified_fraction"] >= 0.5, "k"]
    k = int(held.max()) if len(held) else 0
    return k, k + 1 in ks


def _draw_half(context: Context, frame: pd.DataFrame) -> None:
    by = frame.groupby(["profile", "k"], sort=False)["certified_fraction"]
    band = by.agg(certified_fraction="median", low="min", high="max").reset_index()
    what = Curves(
        context.artifact.id,
        "k",
        "certified_fraction",
        "k: records added or removed in all",
        "certified fraction of the test records",
        context.experiment.data,
        log=False,
        level=0.5,
        level_name="half",
    )
    curves(context.record, what, band.assign(series=band["profile"]))
