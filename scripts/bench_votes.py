"""How far votes of many small ridge regressions reach (certificate=votes), and how long their training takes.

    python scripts/bench_votes.py [--data-dir ../shared/data] [--only adult imdb_minilm mnist pneumonia] [--keys 5]
    python scripts/bench_votes.py --flips [--only adult imdb_minilm]
    python scripts/bench_votes.py --answers --only adult
    python scripts/bench_votes.py --speed

For each set and accuracy asked for: the number of members and the strength that certify half of the answers furthest
(add_remove) among those that reach it on one half of the test records, reported on the other, both ways; medians over the
shards' keys. ``--flips``: the same of one ridge regression on all records, by its strength, under relation=flip.
``--answers``: the expected accuracy of votes with noise (gaussian_argmax), total eps = 1, delta = 1e-5, chosen likewise for
each number of queries. ``--speed``: training and answering beside scikit-learn's Ridge on the same features.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench_recipe import public_sets
from sklearn.linear_model import Ridge

from agt.certificates.flips import flips_to_turn
from agt.certificates.votes import plain_vote
from agt.mechanisms.planning import Budget, Evidence, afford
from agt.mechanisms.published import MECHANISMS
from agt.models.features import FeatureMap, whole
from agt.settings import FeaturesConfig
from agt.training.ensemble import EnsembleConfig, shards
from agt.training.ridge import labels, pulls, ridge, targets_of

FLIPPED = (1, 3, 10, 30, 100, 300, 1000)
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
QUERIES = (100, 1_000, 10_000)
ANSWERING = (250, 350, 500, 700, 1000, 1400, 2000, 3000)  # members to choose among for private answers
ADULT = (125, 250, 350, 500, 700, 1000, 1400), (0.855, 0.848, 0.84)  # members to choose among; accuracies asked for
IMDB = (250, 500, 700, 1000, 1500, 2000, 3000, 4000), (0.806, 0.795, 0.783, 0.768)
IMAGES = (("mnist", "mnist_t10k.npz", (0.97, 0.945, 0.93)), ("pneumonia", "pneumoniamnist.npz", (0.77, 0.75, 0.72)))


@dataclass(frozen=True)
class Split:
    """A set's public features as integers [n, w], labels [n], and which records are tested."""

    rows: np.ndarray
    labels: np.ndarray
    tested: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, tested: np.ndarray, features: str = "none") -> "Split":
        x = x.reshape(len(x), -1).astype(np.float64)
        return cls(whole(FeatureMap(FeaturesConfig(map=features), x.shape[1])(x)), y, tested)  # type: ignore[arg-type]

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    def members(self, members: int, key: str) -> list[np.ndarray]:
        """The training rows of each shard."""
        train = np.flatnonzero(~self.tested)
        home = shards(train.astype(str), EnsembleConfig(members=members, key=key))
        return [train[home == member] for member in range(members)]

    def trained(self, dealt: Sequence[np.ndarray], strength: float) -> np.ndarray:
        targets = targets_of(self.labels, self.classes)
        return np.stack([ridge(self.rows[rows], targets[rows], strength) for rows in dealt])


Found = list[tuple[float, Evidence]]
"""Of each setting: what it is called by, what it answers the test records."""


def votes(split: Split, counts: Sequence[int], key: str) -> Found:
    """Ensembles by their number of members, under add_remove."""
    test, found = np.flatnonzero(split.tested), []
    for members in counts:
        dealt = split.members(members, key)
        for strength in STRENGTHS:
            said = labels(split.rows[test], split.trained(dealt, strength))
            tally = np.stack([(said == c).sum(axis=0) for c in range(split.classes)])
            vote = plain_vote(tally, touches=1)
            tally = abs(tally[1] - tally[0]) if split.classes == 2 else tally.T
            known = split.labels[test], vote.prediction, vote.distance, split.classes, tally, vote.prediction
            found.append((float(members), Evidence(*known)))
    return found


def flips(split: Split) -> Found:
    """One ridge regression by its strength, under relation=flip: exact."""
    train, found = np.flatnonzero(~split.tested), []
    queries, given = split.rows[split.tested], split.labels[train]
    for strength in FLIPPED:
        pulled = pulls(split.rows[train], strength).astype(np.float64)
        said = labels(queries, (targets_of(given, split.classes).T @ pulled)[None].astype(np.int32))[0]
        parts = range(0, len(queries), 200)
        turned = [
            flips_to_turn(queries[at : at + 200] @ pulled.T, given, said[at : at + 200], split.classes, len(given) + 1)
            for at in parts
        ]
        found.append((strength, Evidence(split.labels[split.tested], said, np.concatenate(turned) - 1, split.classes)))
    return found


def reached(found: Found, asked: float) -> tuple[float, float, float]:
    """(setting, accuracy, k at which half is certified), each half's setting chosen on the other."""
    chosen = crossed(
        found,
        lambda one: (1, np.median(one.distance), one.accuracy) if one.accuracy >= asked else (0, one.accuracy),
    )
    settings, far = [setting for setting, _ in chosen], np.concatenate([one.distance for _, one in chosen])
    return float(np.mean(settings)), float(np.mean([one.accuracy for _, one in chosen])), float(np.median(far))


def answered(found: Found, queries: int) -> tuple[float, float]:
    """(members, expected accuracy of so many private answers), each half's setting chosen on the other."""
    noisy = afford(MECHANISMS["gaussian_argmax"], Budget(1.0, 1e-5, queries), 2)
    members, expected = np.mean(
        [(c, one.expected(noisy)) for c, one in crossed(found, lambda e: e.expected(noisy))], axis=0
    )
    return float(members), float(expected)


def crossed(found: Found, worth: Callable[[Evidence], Any]) -> Found:
    """For each half of the test records, the setting that is worth most on the other half, and what it answers the half."""
    half = np.random.default_rng(0).permutation(len(found[0][1].labels)) % 2 == 0
    chosen = [(max(found, key=lambda each: worth(_part(each[1], ~report))), report) for report in (half, ~half)]
    return [(setting, _part(one, report)) for (setting, one), report in chosen]


def _part(whole: Evidence, which: np.ndarray) -> Evidence:
    return replace(whole, **{name: part[which] for name, part in vars(whole).items() if isinstance(part, np.ndarray)})


def reach(split: Split, name: str, tables: Sequence[Found], asked: Sequence[float]) -> None:
    """A line for each accuracy that is asked for: medians over the tables."""
    size = int((~split.tested).sum())
    for least in asked:
        setting, accuracy, far = np.median([reached(one, least) for one in tables], axis=0)
        print(
            f"| {name}, {size:,} | {least:.3f} | {setting:g} | {accuracy:.4f} | {far:.0f} | {far / size:.2%} |", flush=True
        )


def speed(split: Split, members: int = 1000) -> None:
    """Seconds of training and answering beside scikit-learn's Ridge."""
    train, queries = np.flatnonzero(~split.tested), split.rows[np.arange(10_000) % len(split.rows)]
    known, y = split.rows[train] * 2.0**-22, targets_of(split.labels[train], split.classes)
    dealt = split.members(members, "agt")
    split.trained(dealt[:2], 0.1)  # compiled
    weight = split.trained(dealt, 0.1)
    timed: list[tuple[str, Callable[[], object]]] = [
        ("scikit-learn's Ridge, one head", lambda: Ridge(alpha=0.1, fit_intercept=False).fit(known, y)),
        (f"{members} members", lambda: split.trained(dealt, 0.1)),
        (f"10,000 queries by {members} members", lambda: labels(queries, weight)),
    ]
    for what, work in timed:
        seconds = []
        for _ in range(3):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
        print(f"{what}: {min(seconds):.2f} s")


def _images(path: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.load(path) as file:
        if name == "mnist":
            x, y = file["images"], file["labels"]
            return x, y.astype(np.int64), np.random.default_rng(0).permutation(len(x)) < 2000
        x, y = (
            np.concatenate([file[f"{part}_{what}"] for part in ("train", "val", "test")]) for what in ("images", "labels")
        )
        return x, y.ravel().astype(np.int64), np.arange(len(x)) >= len(x) - len(file["test_labels"])


def main() -> None:
    """The sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="*", default=["adult", "imdb_minilm", "mnist", "pneumonia"])
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--flips", action="store_true")
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    tables = {"adult": ADULT, "imdb_minilm": IMDB}
    for data in public_sets(options.data_dir):
        if data.name in options.only and data.name in tables:
            _, test = next(iter(data.splits()))
            split = Split.of(data.features(20), data.labels, test)
            if options.speed:
                speed(split)
            elif options.flips:
                reach(split, f"{data.name}, flips", [flips(split)], tables[data.name][1])
            else:
                counts, asked = (ANSWERING, ()) if options.answers else tables[data.name]
                keys = [votes(split, counts, f"key {at}") for at in range(options.keys)]
                reach(split, data.name, keys, asked)
                for queries in QUERIES if options.answers else ():
                    members, expected = np.median([answered(one, queries) for one in keys], axis=0)
                    print(f"| {data.name}, {queries:,} private answers | {members:g} | {expected:.4f} |", flush=True)
    for name, file, asked in IMAGES:
        if name in options.only and not (options.speed or options.flips or options.answers):
            split = Split.of(*_images(options.data_dir / file, name), "scattering")
            counts = (11, 25, 50, 100, 200, 300, 400)
            reach(split, f"{name}, scattering", [votes(split, counts, f"key {at}") for at in range(options.keys)], asked)


if __name__ == "__main__":
    main()
