"""Kinds about certified fractions.

Against k (000 Fig 3, 001 Fig 7), over training (000 Fig 4, 001 Fig 8), and the k at which half of
the test records are certified.

What one k counts differs between the profiles and between privacy and unlearning; every table says
it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from torch import nn

from agt.bounds.box import Box
from agt.errors import ConfigError
from agt.models.box import BoxModel
from agt.relations import RELATIONS
from agt.settings import Count, keyword_schema, schema
from agt.training.loop import Progress, train
from agt_cli.report.figures import SERIES_STYLES
from agt_cli.runs.prepare import Prepared, RunSettings

from .bench import Weights
from .curves import Looks
from .entry import Entry, Key, Overrides, Purpose
from .experiment import OneOrMore, ProfileName
from .figures import lines, marks
from .kinds import Figure, Kind, Shown, grid, wide
from .runs import TableAndFacts

Claims = OneOrMore[Purpose]
FRACTION = "certified fraction of test records"
HALF = "k at half certified"
RATIO = "k at half certified, ours over paper"


@schema
class Variant:
    """One curve, panel or row: what it is called, its overrides, and which data it is on, where
    not the experiment's.
    """

    label: str = ""
    run: Overrides = ()
    data: str = ""


Variants = OneOrMore[Variant]
PLAIN: Variants = (Variant(),)
UNNAMED = "-"  # in the column ``variant``: the only one, without a label


@keyword_schema
class CertifiedByK(Kind):
    """Certified fraction of the test records against k, and their accuracy before and after
    training.

    Attributes:
        variants: the curves, such as several clip levels.
        claims: one panel each.
        at: the k in the table.
        only: test records with this label (an index) alone; None: all.
    """

    run: Overrides = ()
    variants: Variants = PLAIN
    claims: Claims = ("privacy",)
    at: tuple[Count, ...] = (1, 5, 10)
    only: int | None = None
    index = ("profile", "claim", "variant", "k")

    @property
    def own(self) -> Mapping[str, Overrides]:
        """The overrides of each variant, by its label."""
        return {variant.label or UNNAMED: (*self.run, *variant.run) for variant in self.variants}

    @property
    def keys(self) -> list[Key]:
        return [
            {"profile": name, "claim": claim, "variant": label}
            for name, label, claim in product(self.profiles, self.own, self.claims)
        ]

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        name = key["profile"]
        claim = key["claim"]
        label = "" if key["variant"] == UNNAMED else key["variant"]
        words = " ".join(filter(None, (claim, label)))
        overrides = self.own[key["variant"]]
        finished = entry.run(name, (*overrides, f"relation=@{claim}"), words)
        asked = finished.frame
        if self.only is not None:
            asked = asked[asked["label"] == self.only]
        if asked.empty:
            raise ConfigError(
                f"{entry.artifact.id}: only={self.only}: no test record has this label"
            )
        is_right = asked["prediction"] == asked["label"]
        seconds = float(finished.facts["seconds_training"])
        about = {
            "series": f"{label} ({name})" if label else name,
            "k counts": finished.counts,
            "test records": len(asked),
            "accuracy before": _accuracy_before(entry, name, overrides, self.only),
            "accuracy": float(is_right.mean()),
            "seconds": round(seconds, 1),
        }
        fractions = certified_fractions(asked["distance"].to_numpy(), finished.ks)
        return ({**row, **about} for row in fractions.to_dict("records"))

    def shown(self, rows: pd.DataFrame) -> Shown:
        about = [
            "profile",
            "claim",
            "variant",
            "k counts",
            "test records",
            "accuracy before",
            "accuracy",
        ]
        found = wide(
            rows, [*about, "seconds"], "k", "certified_fraction", self.at, "certified at k={}"
        )
        draw = lines(
            "k",
            "certified_fraction",
            "k: number of changed records",
            FRACTION,
            log=False,
            panels="claim",
            share=True,
        )
        points = rows[["k", "certified_fraction", "series", "claim", "profile", "variant"]]
        points = points.assign(method=rows["variant"])
        after = found.drop(columns="seconds")
        mark = partial(
            marks,
            x="accuracy",
            y="variant",
            series="profile",
            panels="claim",
            xlabel="accuracy before and after training",
            panel="{}",
            start="accuracy before",
            start_name="before training",
            mark_name="after training",
        )
        words = (
            "Accuracy on the same test records before training (vertical line) and after it "
            "(the mark that the arrow leads to)."
        )
        figures = [
            Figure(
                "Certified fraction of the test records against k, whose unit the table names.",
                points,
                draw,
            ),
            Figure(words, after, mark, "_accuracy"),
        ]
        return Shown(after.assign(seconds=found["seconds"]), figures)

    def compared(self, key: Key) -> Key:
        which = "" if key["variant"] == UNNAMED else f", {key['variant']}"
        found = {
            f"certified at k={k} ({key['claim']}{which})": f"certified at k={k}" for k in self.at
        }
        return {
            **found,
            f"accuracy{which}": "accuracy",
            "accuracy before training": "accuracy before",
        }


@keyword_schema
class TrainingCurve(Kind):
    """Accuracy, its bounds and the certified fraction after each epoch of one run, for a few k
    (000 Fig 4, 001 Fig 8).
    """

    run: Overrides = ()
    ks: OneOrMore[Count] = (1, 5, 10)
    claims: Claims = ("privacy", "unlearning")
    index = ("profile", "claim", "epoch", "k")

    @property
    def keys(self) -> list[Key]:
        return [
            {"profile": name, "claim": claim, "panel": f"{claim} ({name})"}
            for name, claim in product(self.profiles, self.claims)
        ]

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        own = (*self.run, f"relation=@{key['claim']}")
        overrides = _on_grid(self.ks, entry.overrides(key["profile"], own))
        label = f"{entry.artifact.source}, {key['profile']}, {key['claim']}"
        head = entry.bench(key["profile"], own).head

        def make(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
            with entry.runs.console.progress(f"training, {label}") as report:
                return _over_training(report, head, prepared, settings), {}

        frame, _ = entry.runs.once(overrides, label, make, "_over_training")
        relation = entry.runs.settings(overrides)[1].relation.name
        about = {
            "k counts": RELATIONS[relation].describe_neighbours(),
            "accuracy at the start": float(frame["nominal_accuracy"].iloc[0]),
        }
        about["epochs"] = int(frame["epoch"].max())
        return ({**row, **about} for row in frame.to_dict("records"))

    def shown(self, rows: pd.DataFrame) -> Shown:
        last = rows[rows["epoch"] == rows["epochs"]]
        last = last.rename(columns={"nominal_accuracy": "accuracy"})
        about = ["profile", "claim", "k counts", "epochs", "accuracy at the start", "accuracy"]
        worst = wide(last, about, "k", "worst_accuracy", self.ks, "worst case at k={}").drop(
            columns=about
        )
        table = wide(last, about, "k", "certified_fraction", self.ks, "certified at k={}").join(
            worst
        )
        fractions = rows.assign(series=[f"k = {k}" for k in rows["k"]])
        nominal = rows.assign(series="nominal", accuracy=rows["nominal_accuracy"])
        parts = [nominal.drop_duplicates(["panel", "epoch"])]
        for end in ("worst", "best"):
            series = [f"{end} case, k = {k}" for k in rows["k"]]
            parts.append(rows.assign(series=series, accuracy=rows[f"{end}_accuracy"]))
        about = ["panel", "series", "epoch", "k"]
        fraction_looks, accuracy_looks = _looks_by_k(self.ks)
        shares = partial(lines, "epoch", log=False, panels="panel", share=True)
        fraction = shares("certified_fraction", "epoch", FRACTION, looks=fraction_looks)
        accuracy = shares("accuracy", "epoch", "test accuracy", looks=accuracy_looks)
        caption = "Certified fraction of the test records after each epoch of one run."
        accuracies = (
            "Nominal test accuracy after each epoch, and the accuracies that any neighbouring "
            "data set could lead to."
        )
        fraction_points = fractions[[*about, "certified_fraction"]]
        accuracy_points = pd.concat(parts)[[*about, "accuracy"]]
        figures = [
            Figure(caption, fraction_points, fraction),
            Figure(accuracies, accuracy_points, accuracy, "_accuracy"),
        ]
        is_curve = rows["epochs"].max() > 1  # start and one epoch: the table has these numbers
        return Shown(table, figures if is_curve else ())

    def compared(self, key: Key) -> Key:
        found = {f"certified at k={k} ({key['claim']})": f"certified at k={k}" for k in self.ks}
        return {**found, "nominal accuracy": "accuracy"}


def _looks_by_k(ks: Sequence[int]) -> tuple[Looks, Looks]:
    """Return how lines of certified fractions and of accuracies look, by their series.

    All lines of one k share a colour and a marker; a best case is dotted.
    """
    fractions: Looks = {}
    accuracies: Looks = {"nominal": {"color": "black", "linestyle": "-", "marker": ""}}
    for position, k in enumerate(ks):
        line = SERIES_STYLES[position % len(SERIES_STYLES)]
        look = {"color": line["color"], "marker": line["marker"]}
        fractions[f"k = {k}"] = {**look, "linestyle": "-"}
        accuracies[f"worst case, k = {k}"] = {**look, "linestyle": "-"}
        accuracies[f"best case, k = {k}"] = {**look, "linestyle": ":"}
    return fractions, accuracies


@keyword_schema
class HalfCertified(Kind):
    """The largest k at which at least half of the test records are certified; median over
    initialisations.

    The claim is the same in both profiles: nothing that changes up to k records in all, added or
    removed, moves the label. paper_privacy's ball of k (k removed and k added) holds all such
    changes, and no smaller of its balls does.

    Attributes:
        grids: profile -> overrides that choose its grid: every integer around the answer.
        seeds: initialisations, the same in every profile.
    """

    run: Overrides = ()
    grids: dict[ProfileName, Overrides] | None = None
    seeds: Count = 10
    index = ("profile", "seed", "k")

    @property
    def keys(self) -> list[Key]:
        return grid(profile=self.profiles, seed=range(self.seeds))

    def measure(self, entry: Entry, key: Key) -> Iterator[Key]:
        ks = self.grids.get(key["profile"], ()) if self.grids else ()
        own = (*self.run, *ks, f"training.seed={key['seed']}")
        finished = entry.run(key["profile"], own, f"seed {key['seed']}")
        half, exact = at_half(finished.distance, finished.ks)
        about = {
            HALF: half,
            "known": "exactly" if exact else "at least",
            "accuracy": finished.accuracy,
        }
        fractions = certified_fractions(finished.distance, finished.ks)
        return (
            {**about, "k counts": finished.counts, **row} for row in fractions.to_dict("records")
        )

    def shown(self, rows: pd.DataFrame) -> Shown:
        by_seed = rows[["profile", "seed", HALF, "known", "accuracy", "k counts"]].drop_duplicates()
        columns = {
            "initialisations": ("seed", "count"),
            "k counts": ("k counts", "first"),
            "accuracy, median": ("accuracy", "median"),
            HALF: (HALF, "median"),
            "known": ("known", "min"),
            "least": (HALF, "min"),
            "greatest": (HALF, "max"),
        }
        table = by_seed.groupby("profile", sort=False).agg(**columns).reset_index()
        paper = table.loc[table["profile"] == "paper", HALF]
        ratio = table[HALF] / paper.iloc[0] if len(paper) else np.nan
        measured = table.assign(**{RATIO: ratio})
        band = rows.groupby(["profile", "k"], sort=False)["certified_fraction"]
        points = band.agg(certified_fraction="median", low="min", high="max").reset_index()
        xlabel = "k: records added or removed"
        draw = lines(
            "k",
            "certified_fraction",
            xlabel,
            FRACTION,
            log=False,
            level=0.5,
            level_name="half",
            steps=True,
            share=True,
        )
        caption = (
            "Certified fraction of the test records against k: median and range over "
            "initialisations. Between measured values of k, the fraction at the next one is "
            "shown."
        )
        notes = [
            "Both profiles claim the same: no change of up to k records in all, added or "
            "removed, changes the label."
        ]
        if (rows["known"] != "exactly").any():
            notes.append(
                "Some values of k are only lower bounds, because the list of values of k ends "
                "or has a gap right above them."
            )
        looks = {"series": points["profile"], "method": points["profile"]}
        figures = [Figure(caption, points.assign(**looks), draw)]
        return Shown(table, figures, tuple(notes), measured, {"_seeds": by_seed})

    def compared(self, key: Key) -> Key:
        names = {HALF: HALF}
        if key["profile"] == "ours" and "paper" in self.profiles:
            names[RATIO] = RATIO
        return names


def certified_fractions(distance: np.ndarray, ks: tuple[int, ...]) -> pd.DataFrame:
    """For each k >= 1 of the grid, the fraction of records whose stable distance is at least k."""
    positive = np.array([k for k in ks if k > 0])
    fraction = (distance[None] >= positive[:, None]).mean(axis=1)
    return pd.DataFrame({"k": positive, "certified_fraction": fraction})


def at_half(distance: np.ndarray, ks: Sequence[int]) -> tuple[int, bool]:
    """(the largest k at which at least half of the records are certified, or 0; whether k + 1 was
    looked at, too: a closed form's distances go beyond its grid).
    """
    middle = np.sort(distance)[len(distance) // 2]
    half = max(0, int(middle))
    is_exact = half + 1 in ks or half > max(ks, default=0)
    return half, is_exact


def _accuracy_before(entry: Entry, name: ProfileName, own: Overrides, only: int | None) -> float:
    """Of the head as training finds it: a base model's, or random; NaN where another certificate
    knows no such head.
    """
    prepared, settings = entry.data(name, own)
    if not settings.certificate.draws_start:
        return float("nan")
    test = prepared.dataset.test
    bench = entry.bench(name, own)
    asked = test if only is None else test.take(test.labels == only)
    parameters: Weights = dict(bench.head.named_parameters())
    before = bench.labels(parameters, asked.features.astype(settings.training.dtype))
    return float((before == asked.labels).mean())


def _on_grid(ks: tuple[int, ...], overrides: Overrides) -> Overrides:
    """The overrides with these k, whatever grid the profile insists on: nothing is released from
    a curve.
    """
    of_grid = ("kgrid", "kgrid.max", "kgrid.values")
    others = [word for word in overrides if word.split("=")[0] not in of_grid]
    listed = ",".join(map(str, ks))
    return (*others, "kgrid=sparse", "kgrid.max=null", f"kgrid.values=[{listed}]")


def _over_training(
    report: Callable[[int, int, int, int], None],
    head: nn.Sequential,
    prepared: Prepared,
    settings: RunSettings,
) -> pd.DataFrame:
    """After each epoch and for each k: nominal, worst-case and best-case accuracy, certified
    fraction.
    """
    problem = prepared.problem(settings)
    dataset = prepared.dataset
    epochs: dict[int, pd.DataFrame] = {}

    def on_epoch(epoch: int, reached: Box) -> None:
        certificates = BoxModel(problem, head, reached, problem.plan).certify(dataset.test.features)
        epochs[epoch] = pd.DataFrame(certificates.table(dataset.test.labels))

    def on_progress(at: Progress) -> None:
        report(at.step, at.steps, at.done, at.total)

    train(head, problem.setup, dataset.train, on_progress, on_epoch=on_epoch)
    table = pd.concat(epochs, names=["epoch"])
    return table.reset_index(level="epoch").astype({"k": int})
