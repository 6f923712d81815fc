"""Votes of labels against votes of margins: ensembles of 25, the same members, certified fractions and accuracy.

    python scripts/compare_votes.py [--data-dir DIR] [--only NAME ...] [--members 25] [--seeds 3] [--json]

Nothing but the vote differs between the two lines of an ensemble. The clip of a vote of margins is chosen on one half of
the public rows, by what is certified and right at the values of k below, and the other half reports; swapped, and averaged.
Of networks the median over initialisations; a linear head has none. add_remove, every record a unit. The public rows are
the test rows, which no training sees.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from halves import halves

from agt.certificates.envelope import REACH
from agt.certificates.margin_votes import margin_vote
from agt.certificates.votes import Vote
from agt.data.dataset import Records
from agt.models.ensemble import EnsembleModel
from agt.models.model import fit
from agt.problem import Problem
from agt.relations import RELATIONS
from agt_cli.runs.compose import composed
from agt_cli.runs.prepare import settings_of

KS = (1, 10, 50)
ROWS = 500  # queries at once
CLIPS = tuple(float(2.0**power) for power in range(-7, 4))
SGD = ["training.loss=binary_cross_entropy", "training.clip=0.5", "training.lr=4.5", "training.epochs=40"]
LINEAR = ["model=linear", "certificate=stability", *SGD, "training.decay=0", "training.lr_min=0"]
IMDB = ["experiment=imdb_linear", "training.lr=6"]  # a member's batch may hold more than 1.1 B
SETS: dict[str, list[str]] = {
    "blobs, linear": ["experiment=blobs_separable", *LINEAR],
    "overlapping blobs, linear": ["experiment=blobs_overlapping", *LINEAR],
    "overlapping blobs, boxes": ["experiment=blobs_overlapping", "kgrid=dense", "kgrid.max=20"],
    "IMDB, linear": IMDB,
    "IMDB, linear, 40 steps": [*IMDB, "training.epochs=40"],
    "IMDB, boxes": ["experiment=imdb_minilm", "kgrid=dense", "kgrid.max=12"],
}


@dataclass(frozen=True)
class Line:
    """What one vote reaches: accuracy, and the fraction certified at each of ``KS``."""

    ensemble: str
    vote: str
    clips: str
    accuracy: float
    certified: tuple[float, ...]
    seconds: float

    def __str__(self) -> str:
        numbers = "".join(f"{share:>9.3f}" for share in (self.accuracy, *self.certified))
        return f"{self.ensemble:<27}{self.vote:<9}{numbers}{self.seconds:>9.1f}   {self.clips}"


HEAD = f"{'ensemble':<27}{'vote':<9}{'accuracy':>9}{''.join(f'k = {k}'.rjust(9) for k in KS)}{'seconds':>9}   clips"


def trained(overrides: Sequence[str], data_dir: Path, members: int, seed: int) -> tuple[EnsembleModel, Records]:
    """(an ensemble, its public rows)."""
    words = [
        *overrides,
        f"ensemble.members={members}",
        f"training.seed={seed}",
        "compute.threads=1",
        f"data_dir={data_dir}",
    ]
    settings = settings_of(composed("train", words))
    dataset = settings.source.load()
    model = fit(Problem(dataset, settings))
    assert isinstance(model, EnsembleModel)
    return model, dataset.test


def by_margins(model: EnsembleModel, features: np.ndarray) -> dict[float, Vote]:
    """Clip -> the vote of margins of queries, whose envelopes are made once for all clips."""
    touches = RELATIONS[model.settings.relation.name].touches
    votes: dict[float, list[Vote]] = {clip: [] for clip in CLIPS}
    for start in range(0, len(features), ROWS):
        some = [member.envelope(features[start : start + ROWS]).by_record(REACH) for member in model.members]
        for clip in CLIPS:
            votes[clip].append(margin_vote(some, clip, touches=touches))
    return {clip: Vote.joined(parts) for clip, parts in votes.items()}


def reached(known: Vote, rows: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """(accuracy, the fraction certified at each k) of some rows."""
    right, distance = (known.prediction == labels)[rows], known.distance[rows]
    return float(right.mean()), *(float((distance >= k).mean()) for k in KS)


def worth(known: Vote, rows: np.ndarray, labels: np.ndarray) -> float:
    """What a clip is chosen by: certified and right, the mean over the values of k."""
    right, distance = (known.prediction == labels)[rows], known.distance[rows]
    return float(np.mean([(right & (distance >= k)).mean() for k in KS]))


def compared(name: str, overrides: Sequence[str], options: argparse.Namespace) -> tuple[Line, Line]:
    """One ensemble by both votes."""
    seeds = 1 if "linear" in name else options.seeds
    labels, margins = [], []
    for seed in range(seeds):
        model, public = trained(overrides, options.data_dir, options.members, seed)
        second = np.isin(public.ids, halves(public)[1].ids)
        start = time.process_time()
        certificates = model.certify(public.features)
        known = Vote(certificates.prediction, certificates.stable_distance, lipschitz=True)
        middle = time.process_time()
        every = by_margins(model, public.features)
        end = time.process_time()
        labels.append(
            (*np.mean([reached(known, rows, public.labels) for rows in (~second, second)], axis=0), middle - start)
        )
        seen, clips = [], []
        for choose, report in ((~second, second), (second, ~second)):
            clips.append(max(CLIPS, key=lambda clip, rows=choose: worth(every[clip], rows, public.labels)))
            seen.append(reached(every[clips[-1]], report, public.labels))
        margins.append((*np.mean(seen, axis=0), end - middle))
    return tuple(
        Line(name, vote, said, float(numbers[0]), tuple(map(float, numbers[1:-1])), float(numbers[-1]))
        for vote, said, numbers in (
            ("labels", "", np.median(labels, axis=0)),
            ("margins", " and ".join(f"{clip:g}" for clip in clips), np.median(margins, axis=0)),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--members", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(
            f"ensembles of {options.members}; certified fractions of the public rows; seconds of the processor, to certify"
        )
        print(HEAD)
    for name in options.only:
        for line in compared(name, SETS[name], options):
            print(json.dumps(asdict(line)) if options.json else line, flush=True)


if __name__ == "__main__":
    main()
