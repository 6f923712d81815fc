"""Kinds about certified fractions: against k (000 Fig 3, 001 Fig 7), over training (000 Fig 4, 001 Fig 8), and the k at
which half of the test records are certified.

What one k counts differs between the profiles and between privacy and unlearning; every table says it.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.bounds.box import Box
from agt.errors import ConfigError
from agt.models.box import BoxModel
from agt.relations import RELATIONS
from agt.settings import STRICT, BoxConfig
from agt.training.loop import Progress, train
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, Purpose, kind, through, wide
from agt_cli.report.console import Console
from agt_cli.report.curves import Curves
from agt_cli.report.figures import between, percent
from agt_cli.runs.prepare import Prepared, RunSettings

Count = Annotated[int, Field(ge=1)]
Claims = Annotated[tuple[Purpose, ...], Field(min_length=1)]
FRACTION = "certified fraction of the test records"
HALF = "k at half certified"
RATIO = "k at half certified, ours over paper"


@validated(frozen=True, config=STRICT)
class Variant:
    """One curve of each profile and claim: what it is called, and its overrides."""

    label: str = ""
    run: Overrides = ()


@kind
def certified_by_k(
    profiles: Profiles,
    run: Overrides = (),
    variants: Annotated[tuple[Variant, ...], Field(min_length=1)] = (Variant(),),
    claims: Claims = ("privacy",),
    at: tuple[Count, ...] = (1, 5, 10),
    only: int | None = None,
) -> Kind:
    """Certified fraction of the test records against k, and their accuracy before and after training.

    Args:
        variants: the curves, such as several clip levels.
        claims: one panel each.
        at: the k in the table.
        only: test records with this label (an index) alone; None: all.
    """
    own = {variant.label or "-": (*run, *variant.run) for variant in variants}
    keys = [{"profile": name, "claim": claim, "variant": label} for name in profiles for label in own for claim in claims]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        name, label, claim = key["profile"], key["variant"].removeprefix("-"), key["claim"]
        words = " ".join(filter(None, (claim, label)))
        finished = entry.run(name, (*own[key["variant"]], f"relation=@{claim}"), words)
        asked = finished.frame if only is None else finished.frame[finished.frame["label"] == only]
        if asked.empty:
            raise ConfigError(f"{entry.artifact.id}: only={only}: no test record has this label")
        about = {
            "series": f"{label} ({name})" if label else name,
            "k counts": finished.counts,
            "test records": len(asked),
            "accuracy before": _accuracy_before(entry, name, own[key["variant"]], only),
            "accuracy": float((asked["prediction"] == asked["label"]).mean()),
            "seconds": round(float(finished.facts["seconds_training"]), 1),
        }
        fractions = certified_fractions(asked["distance"].to_numpy(), finished.ks)
        return ({**row, **about} for row in fractions.to_dict("records"))

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        about = ["profile", "claim", "variant", "k counts", "test records", "accuracy before", "accuracy"]
        found = wide(rows, [*about, "seconds"], "k", "certified_fraction", at, "certified at k={}")
        return found[[*found.columns.drop("seconds"), "seconds"]]

    def compared(key: Key) -> Key:
        which = "" if key["variant"] == "-" else f", {key['variant']}"
        found = {f"certified at k={k} ({key['claim']}{which})": f"certified at k={k}" for k in at}
        return {**found, f"accuracy{which}": "accuracy", "accuracy before training": "accuracy before"}

    def most(rows: pd.DataFrame) -> str:
        k = max((k for k in rows["k"] if k <= max(at)), default=rows["k"].min())
        here = rows[rows["k"] == k]
        top = here.iloc[int(here["certified_fraction"].argmax())]
        return f"At most {percent(top['certified_fraction'])} are certified at k = {k}: {top['series']}, {top['claim']}"

    columns = ["k", "certified_fraction", "series", "claim", "profile", "variant"]
    figure = Figure(
        "Certified fraction of the test records against k.",
        lambda rows: rows[columns],
        Curves(
            "", "k", "certified_fraction", "k (what one counts: see the table)", FRACTION, "", log=False, panels="claim"
        ),
        most,
    )
    return Kind(keys, through(keys, measure), ("profile", "claim", "variant", "k"), (figure,), table, compared=compared)


@kind
def training_curve(
    profiles: Profiles,
    run: Overrides = (),
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 5, 10),
    claims: Claims = ("privacy", "unlearning"),
) -> Kind:
    """Accuracy, its bounds and the certified fraction after each epoch of one run, for a few k (000 Fig 4, 001 Fig 8)."""
    keys = [{"profile": name, "claim": claim, "panel": f"{claim} ({name})"} for name in profiles for claim in claims]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, f"relation=@{key['claim']}")
        overrides = _on_grid(ks, entry.overrides(key["profile"], own))
        label = f"{entry.artifact.source}, {key['profile']}, {key['claim']}"
        make = partial(_over_training, entry.runs.console, label, entry.bench(key["profile"], own).head)
        frame, _ = entry.runs.once(overrides, label, make, "_over_training", modules=(__name__,))
        relation = entry.runs.settings(overrides)[1].relation.name
        about = {"k counts": RELATIONS[relation].ball, "accuracy at the start": float(frame["nominal_accuracy"].iloc[0])}
        return ({**row, **about, "epochs": int(frame["epoch"].max())} for row in frame.to_dict("records"))

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        last = rows[rows["epoch"] == rows["epochs"]].rename(columns={"nominal_accuracy": "accuracy"})
        about = ["profile", "claim", "k counts", "epochs", "accuracy at the start", "accuracy"]
        worst = wide(last, about, "k", "worst_accuracy", ks, "worst case at k={}").drop(columns=about)
        return wide(last, about, "k", "certified_fraction", ks, "certified at k={}").join(worst)

    def compared(key: Key) -> Key:
        return {
            **{f"certified at k={k} ({key['claim']})": f"certified at k={k}" for k in ks},
            "nominal accuracy": "accuracy",
        }

    def fractions(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(series=[f"k = {k}" for k in rows["k"]])[["panel", "series", "epoch", "k", "certified_fraction"]]

    def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
        nominal = rows.assign(series="nominal", accuracy=rows["nominal_accuracy"]).drop_duplicates(["panel", "epoch"])
        ends = [
            rows.assign(series=[f"{end} case, k = {k}" for k in rows["k"]], accuracy=rows[f"{end}_accuracy"])
            for end in ("worst", "best")
        ]
        return pd.concat([nominal, *ends])[["panel", "series", "epoch", "k", "accuracy"]]

    def last(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[(rows["epoch"] == rows["epochs"]) & (rows["k"] == max(ks))]

    def certified(rows: pd.DataFrame) -> str:
        shares = between(last(rows)["certified_fraction"], percent)
        return f"After the last epoch {shares} of the test records are certified at k = {max(ks)}"

    def reach(rows: pd.DataFrame) -> str:
        top = last(rows).sort_values("worst_accuracy").iloc[-1]
        ends = f"{top['worst_accuracy']:.3f} to {top['best_accuracy']:.3f}"
        return f"In the end no neighbour at k = {max(ks)} moves the accuracy out of {ends} ({top['panel']})"

    figures = (
        Figure(
            "Certified fraction of the test records after each epoch of one run.",
            fractions,
            Curves("", "epoch", "certified_fraction", "epoch", FRACTION, "", log=False, panels="panel"),
            certified,
        ),
        Figure(
            "Nominal test accuracy, and what any neighbouring data set could make of it, after each epoch.",
            accuracies,
            Curves("_accuracy", "epoch", "accuracy", "epoch", "test accuracy", "", log=False, panels="panel"),
            reach,
        ),
    )
    return Kind(keys, through(keys, measure), ("profile", "claim", "epoch", "k"), figures, table, compared=compared)


@kind
def half_certified(
    profiles: Profiles, run: Overrides = (), grids: dict[ProfileName, Overrides] | None = None, seeds: Count = 10
) -> Kind:
    """The largest k at which at least half of the test records are certified; median over initialisations.

    The claim is the same in both profiles: nothing that changes up to k records in all, added or removed, moves the label.
    paper_privacy's ball of k (k removed and k added) holds all such changes, and no smaller of its balls does.

    Args:
        grids: profile -> overrides that choose its grid: every integer around the answer.
        seeds: initialisations, the same in every profile.
    """
    keys = [{"profile": name, "seed": seed} for name in profiles for seed in range(seeds)]

    def measure(entry: Entry, key: Key) -> Iterator[Key]:
        own = (*run, *(grids or {}).get(key["profile"], ()), f"training.seed={key['seed']}")
        finished = entry.run(key["profile"], own, f"seed {key['seed']}")
        half, exact = at_half(finished.distance, finished.ks)
        about = {HALF: half, "known": "exactly" if exact else "at least", "accuracy": finished.accuracy}
        fractions = certified_fractions(finished.distance, finished.ks)
        return ({**about, "k counts": finished.counts, **row} for row in fractions.to_dict("records"))

    def by_seed(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[["profile", "seed", HALF, "known", "accuracy", "k counts"]].drop_duplicates()

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        columns = {
            "initialisations": ("seed", "count"),
            "k counts": ("k counts", "first"),
            "accuracy, median": ("accuracy", "median"),
            HALF: (HALF, "median"),
            "known": ("known", "min"),
            "least": (HALF, "min"),
            "greatest": (HALF, "max"),
        }
        return by_seed(rows).groupby("profile", sort=False).agg(**columns).reset_index()

    def measured(rows: pd.DataFrame) -> pd.DataFrame:
        found = table(rows)
        paper = found.loc[found["profile"] == "paper", HALF]
        return found.assign(**{RATIO: found[HALF] / paper.iloc[0] if len(paper) else np.nan})

    def compared(key: Key) -> Key:
        return {HALF: HALF, **({RATIO: RATIO} if key["profile"] == "ours" and "paper" in profiles else {})}

    def band(rows: pd.DataFrame) -> pd.DataFrame:
        by = rows.groupby(["profile", "k"], sort=False)["certified_fraction"]
        found = by.agg(certified_fraction="median", low="min", high="max").reset_index()
        return found.assign(series=found["profile"])

    def notes(rows: pd.DataFrame) -> tuple[str, ...]:
        same = "The same claim in both profiles: no change of up to k records in all, added or removed, moves the label."
        more = "Some k are at least so large: the grid ends, or has a gap, right above."
        return (same, more) if (rows["known"] != "exactly").any() else (same,)

    drawing = Curves("", "k", "certified_fraction", "k: records added or removed in all", FRACTION, "", log=False,
                     level=0.5, level_name="half")  # fmt: skip
    caption = "Certified fraction of the test records against k: median of the initialisations, and their range."

    def finding(rows: pd.DataFrame) -> str:
        found = table(rows)
        each = [f"{name} {'' if known == 'exactly' else 'at least '}{half:,.10g}" for name, half, known in
                zip(found["profile"], found[HALF], found["known"], strict=True)]  # fmt: skip
        return f"Half of the test records are certified up to this k: {'; '.join(each)}"

    figures, index = (Figure(caption, band, drawing, finding),), ("profile", "seed", "k")
    return Kind(keys, through(keys, measure), index, figures, table, {"_seeds": by_seed}, measured, compared, notes)


def certified_fractions(distance: np.ndarray, ks: tuple[int, ...]) -> pd.DataFrame:
    """For each k >= 1 of the grid, the fraction of records whose stable distance is at least k."""
    grid = np.array([k for k in ks if k > 0])
    return pd.DataFrame({"k": grid, "certified_fraction": (distance[None] >= grid[:, None]).mean(axis=1)})


def at_half(distance: np.ndarray, ks: tuple[int, ...]) -> tuple[int, bool]:
    """(the largest k of the grid at which at least half of the records are certified, or 0; whether k + 1 is on it too)."""
    fractions = certified_fractions(distance, ks)
    k = max(fractions.loc[fractions["certified_fraction"] >= 0.5, "k"], default=0)
    return int(k), k + 1 in ks


def _accuracy_before(entry: Entry, name: ProfileName, own: Overrides, only: int | None) -> float:
    """Of the head as training finds it: a base model's, or random; NaN where another certificate knows no such head."""
    prepared, settings = entry.data(name, own)
    if not isinstance(settings.certificate, BoxConfig):
        return float("nan")
    test, bench = prepared.dataset.test, entry.bench(name, own)
    rows = np.ones(len(test), dtype=bool) if only is None else test.labels == only
    before = bench.labels(dict(bench.head.named_parameters()), test.features[rows].astype(settings.training.dtype))
    return float((before == test.labels[rows]).mean())


def _on_grid(ks: tuple[int, ...], overrides: Overrides) -> Overrides:
    """The overrides with these k, whatever grid the profile insists on: nothing is released from a curve."""
    kept = [word for word in overrides if word.split("=")[0] not in ("kgrid", "kgrid.max", "kgrid.values")]
    return (*kept, "kgrid=sparse", "kgrid.max=null", f"kgrid.values=[{','.join(map(str, ks))}]")


def _over_training(
    console: Console, label: str, head: nn.Sequential, prepared: Prepared, settings: RunSettings
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """After each epoch and for each k: nominal, worst-case and best-case accuracy, certified fraction."""
    problem, dataset = prepared.problem(settings), prepared.dataset
    epochs: dict[int, pd.DataFrame] = {}

    def on_epoch(epoch: int, reached: Box) -> None:
        certificates = BoxModel(problem, head, reached, problem.plan).certify(dataset.test.features)
        epochs[epoch] = pd.DataFrame(certificates.table(dataset.test.labels))

    with console.progress(f"training, {label}") as report:

        def on_progress(at: Progress) -> None:
            report(at.step, at.steps, at.done, at.total)

        train(head, problem.recipe, dataset.train, on_progress, on_epoch=on_epoch)
    return pd.concat(epochs, names=["epoch"]).reset_index(level="epoch").astype({"k": int}), {}
