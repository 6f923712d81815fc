"""Which public features for which data: accuracy, and the k at which half of the queries is certified, for each map.

    python scripts/compare_features.py [--data-dir ../shared/data] [--only blobs imdb adult pneumonia] [--maps relu crosses]

A map's own settings and ``training.caution`` are those with the highest accuracy by folds of the rows that choose, among
all with half of these certified at the k asked for. Then the head is trained as a run would train it, and reported on rows
that chose nothing. Twice, the halves exchanged, and averaged; of maps with a seed the median of three.

| set       | the rows that choose, and that landmarks and whitening come from | trained on   | reported on         |
|-----------|-------------------------------------------------------------------|--------------|---------------------|
| imdb      | a hash half of the 5,000 public reviews                           | 45,000 others | the other half     |
| the rest  | a hash half of the training rows                                  | all of them  | the test rows       |

For all but imdb a claim of privacy would be void: nobody declared those training rows public. blobs is synthetic.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from halves import halves
from recipe_sets import ADULT_NUMBERS, public_sets

from agt.api import CLOSED_FORM
from agt.data.blobs import Blobs
from agt.data.dataset import Dataset, Records
from agt.data.embeddings import Embeddings
from agt.data.medmnist import MedMnist
from agt.data.table import Table
from agt.facts import void
from agt.models.heads import HeadConfig
from agt.models.linear import LinearModel
from agt.problem import Problem, Settings
from agt.settings import (
    USUAL_COUNTS,
    ComputeConfig,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    StabilityConfig,
    TrainingConfig,
    validate,
)
from agt.training.ensemble import EnsembleConfig
from agt.tuning import Candidate

FOLDS, SEEDS = 2, (0, 1, 2)
MAPS: dict[str, list[dict[str, object]]] = {
    "none": [{}],
    "whitened": [{"whiten": 0.5}, {"whiten": 0.75}],
    "relu": [{"map": "relu"}],
    "fourier": [{"map": "fourier", "bandwidth": width} for width in (1.0, 2.0)],
    "landmarks": [{"map": "landmarks", "bandwidth": width} for width in (1.0, 2.0)],
    "crosses": [{"map": "crosses"}],
}
ASKED = {"blobs": (25, 50), "imdb": (75, 140), "adult": (50, 100), "pneumonia": (5, 15)}
CAUTIONS = (0.35, 0.7, 1.0, 1.4, 2.0, 3.0)


@dataclass(frozen=True)
class Part:
    """Rows that choose, and rows that report.

    Attributes:
        dataset: what a run is trained on.
        which: which of its rows are taken as public.
        choose, report: the rows.
    """

    dataset: Dataset
    which: str
    choose: Records
    report: Records


def parts(name: str, folder: Path) -> Iterator[Part]:
    """Both ways round."""
    dataset = load(name, folder)
    if name == "imdb":
        one, other = halves(dataset.test)
        yield from (Part(replace(dataset, test=a), "test", a, b) for a, b in ((one, other), (other, one)))
        return
    for half in halves(dataset.train):
        train = replace(dataset.train, public=np.isin(dataset.train.ids, half.ids))
        yield Part(replace(dataset, train=train), "train", half, dataset.test)


def load(name: str, folder: Path) -> Dataset:
    """The set, as a run would have it."""
    if name == "imdb":
        given = {"label": "y", "is_test": "is_test", "classes": ("0", "1"), "center": "center", "scale": 20.0}
        return Embeddings(
            path=Path("imdb_minilm.npz"), data_dir=folder, public_scaling=True, declared_size=45_000, **given
        ).load()
    if name == "adult":
        (adult,) = (each for each in public_sets(folder) if each.name == "adult")
        return Table(
            path=Path("adult.csv"),
            data_dir=folder,
            label="income",
            classes=("<=50K", ">50K"),
            numeric=ADULT_NUMBERS,
            categorical=adult.listed,
            bins=20,
            declared_size=24_400,
            missing_values=("?",),
            missing="indicator",
        ).load()
    if name == "pneumonia":
        path = Path("pneumoniamnist.npz")
        return MedMnist(name="pneumoniamnist", path=path, data_dir=folder, positive=(1,), declared_size=4708).load()
    return Blobs(center=1.0, std=0.75).load()


def settings(features: dict[str, object], caution: float) -> Settings:
    """A linear head by the recipe."""
    return Settings(
        model=HeadConfig(),
        training=validate(TrainingConfig, CLOSED_FORM | {"caution": caution}, "training"),
        relation=RelationConfig(name="add_remove"),
        kgrid=KGridConfig(max=0),
        compute=ComputeConfig(threads=1),
        certificate=StabilityConfig(features=validate(FeaturesConfig, features, "features")),
        ensemble=EnsembleConfig(),
        noise=None,
        choices=void("a comparison"),
    )


def judged(model: LinearModel, rows: Records) -> tuple[float, float]:
    """(accuracy, the k at which half of the rows is certified)."""
    known = model.certify(rows.features)
    return float((known.prediction == rows.labels).mean()), float(np.median(known.stable_distance))


def curve(part: Part, features: dict[str, object]) -> Iterator[tuple[Settings, float, float]]:
    """(settings, accuracy, k) by folds of the rows that choose, for each caution."""
    for caution in CAUTIONS:
        given = settings(features, caution)
        folds = Candidate.of(part.dataset, given, part.choose).stand_ins(FOLDS)
        accuracy, k = np.mean([judged(*each) for each in folds], axis=0)
        yield given, float(accuracy), float(k)


def features_of(name: str, part: Part) -> list[dict[str, object]]:
    """The map's candidates; none where it does not apply."""
    if name == "crosses" and part.choose.features.ndim > 2:
        return []
    count = min(USUAL_COUNTS.get(name, 0), len(part.choose) // 4 * 2)
    public = {"public": part.which} if name in ("whitened", "landmarks") else {}
    return [each | public | ({"count": count} if "map" in each else {}) for each in MAPS[name]]


def reached(part: Part, given: Settings) -> tuple[float, float]:
    """What the run reaches on the rows that report: the median of three seeds, where there is one."""
    certificate, found = given.certificate, []
    assert isinstance(certificate, StabilityConfig)
    for seed in SEEDS if certificate.features.map != "none" else SEEDS[:1]:
        seeded = replace(given, certificate=replace(certificate, features=replace(certificate.features, seed=seed)))
        found.append(judged(LinearModel.fit(Problem(part.dataset, seeded)), part.report))
    accuracy, k = np.median(found, axis=0)
    return float(accuracy), float(k)


def chosen(curves: list[tuple[Settings, float, float]], asked: int) -> Settings:
    """The most accurate with half certified at ``asked``; the farthest, where none is."""
    far = [each for each in curves if each[2] >= asked]
    return max(far, key=lambda each: each[1])[0] if far else max(curves, key=lambda each: each[2])[0]


def words_of(given: Settings) -> str:
    """What was chosen."""
    assert isinstance(given.certificate, StabilityConfig)
    features = given.certificate.features
    width = f"width {features.bandwidth:g} " if features.map in ("fourier", "landmarks") else ""
    return f"{width}{f'whiten {features.whiten:g} ' if features.whiten else ''}caution {given.training.caution:g}"


def compare(name: str, kinds: Sequence[str], folder: Path) -> None:
    """Print a set's lines."""
    both = list(parts(name, folder))
    for kind in kinds:
        started, candidates = time.perf_counter(), [features_of(kind, part) for part in both]
        if not candidates[0]:
            continue
        curves = [
            [point for features in some for point in curve(part, features)]
            for part, some in zip(both, candidates, strict=True)
        ]
        for asked in ASKED[name]:
            picked = [chosen(points, asked) for points in curves]
            accuracy, k = np.mean([reached(*pair) for pair in zip(both, picked, strict=True)], axis=0)
            said = " | ".join(map(words_of, picked))
            print(f"{name:10} {kind:10} k >= {asked:<4} {accuracy:.4f} / {k:5.1f}   {said}", flush=True)
        print(f"{name:10} {kind:10} {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    """One line for each set, map and k asked for: accuracy / k at which half is certified, and what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", choices=tuple(ASKED), default=tuple(ASKED))
    parser.add_argument("--maps", nargs="*", choices=tuple(MAPS), default=tuple(MAPS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.only:
        compare(name, given.maps, given.data_dir)


if __name__ == "__main__":
    main()
