"""Ensembles whose votes are protected as if one edit moved one of them, where a record that is replaced moves two.

Four members learn from four shards. One record leaves the first's and another enters the second's, which is one edit under
relation=substitute. At a query that is near both members' decision lines, both change their labels: counting one
member (``certified_vote(touches=1)``, or noisy_argmax, whose noise covers one vote) protects half of what is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from agt.api import fit
from agt.audit.estimates import Claimed
from agt.audit.findings import Finding
from agt.audit.neighbours import retrained, with_added
from agt.audit.planted import SURE
from agt.audit.poisoning import newcomers
from agt.audit.prediction import Pair, alike, event_of, judged
from agt.audit.verdict import Attacked
from agt.certificates.box import Certificates
from agt.certificates.votes import certified_vote
from agt.data.arrays import Declared
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.published import NoisyArgmax
from agt.mechanisms.release import Labelling, OnProgress
from agt.mechanisms.rigour import Claim
from agt.models.ensemble import EnsembleModel, VoteCertificates
from agt.randomness import SeededRandomness

RECORDS, WIDTH = 160, 8
PUSHED = 0.5  # of what the records move the logits by: how far from the decision lines the query is
TRIALS, CONFIDENCE, EPS = 10_000, 0.95, 1.0


@dataclass(frozen=True)
class OneCounted(EnsembleModel):
    """An ensemble whose votes are certified as if one k could change one member, whatever the relation."""

    def certify(
        self, features: np.ndarray, ks: tuple[int, ...] | None = None, on_progress: OnProgress = lambda progress: None
    ) -> Certificates:
        """The vote, its members' costs added up and not halved."""
        known = super().certify(features, ks, on_progress)
        assert isinstance(known, VoteCertificates)
        counted = certified_vote(known.members, known.member_distances, self.problem.classes, touches=1)
        return replace(known, distance=counted.distance)


@dataclass(frozen=True)
class Moved:
    """Two ensembles of neighbouring data under relation=substitute, and a query at which two members' labels differ: four
    vote for 1 on one side, two of them for 0 on the other."""

    having: EnsembleModel
    lacking: EnsembleModel
    query: np.ndarray

    @classmethod
    def of(cls, seed: int) -> "Moved":
        """Made by construction: the query first, near two members' lines, then the record that is replaced, in the first
        one's shard, and the one in its place, in the second's. How far each pushes is seen once, at the lines."""
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(RECORDS, WIDTH)), rng.integers(2, size=RECORDS)
        known = Declared(classes=[0, 1], size=RECORDS, features=True, settings=True)
        base = fit(x, y, declared=known, relation="substitute", members=4, ks=5, compute={"threads": 1}).model
        assert isinstance(base, EnsembleModel)
        first = cls._replaced(base, _query(base, 0.0))
        pushes = first.having.members[0].margins(first.query), first.lacking.members[1].margins(first.query)
        return cls._replaced(base, _query(base, PUSHED * min(float(np.abs(push).min()) for push in pushes)))

    @classmethod
    def _replaced(cls, base: EnsembleModel, query: np.ndarray) -> "Moved":
        """A record at the query that says 1 in the first shard, one that says 0 in the second's in its place."""
        records, ensemble = base.problem.dataset.train, base.problem.settings.ensemble
        having, lacking = (
            retrained(base.problem, with_added(records, newcomers(records, query, [label], "replaced", shard, ensemble)))
            for shard, label in enumerate((1, 0))
        )
        assert isinstance(having, EnsembleModel)
        assert isinstance(lacking, EnsembleModel)
        return cls(having, lacking, query)


def _query(model: EnsembleModel, push: float) -> np.ndarray:
    """[1, d] of length 1, with the first two members' logits -push and push, the others' well above 0."""
    axes = np.eye(WIDTH)
    there, back = (model.members[0].phi(side * axes) for side in (1.0, -1.0))
    spread, middle = (there - back) / 2, (there + back).mean(axis=0) / 2  # features of such a query are affine in it
    weights = np.concatenate([member.trained.weight.numpy() for member in model.members])
    lines, aside = weights @ spread.T, 1.0
    while True:
        least, *_ = np.linalg.lstsq(lines, np.array([-push, push, aside, aside]) - weights @ middle, rcond=None)
        if least @ least <= 1:
            break
        aside /= 2
    query: np.ndarray = (least + np.linalg.svd(lines)[2][-1] * np.sqrt(1 - least @ least))[None]
    return query


def audited(
    having: EnsembleModel,
    lacking: EnsembleModel,
    mechanism: Mechanism,
    query: np.ndarray,
    seed: int,
    confidence: float = CONFIDENCE,
) -> Finding:
    """Audit what a mechanism says of two ensembles, whatever the gate would have said of it; draws come from the seed."""
    claim = Claim(mechanism.guarantee, having.settings.relation)
    pair = Pair(*(Labelling(model, mechanism, claim, "distance", "certified") for model in (having, lacking)))
    laws = pair.laws(pair.seen(query))
    attacked = Attacked(
        subject=f"{mechanism.name} on an ensemble's votes, one record replaced",
        claim=f"{mechanism.guarantee} per query, for one record replaced by another",
        attack="two members' votes moved by one edit, at a query near both of their decision lines",
        effort="",
        claimed=Claimed.of(mechanism.guarantee),
        confidence=confidence,
    )
    queries = alike(pair, query, TRIALS, np.random.default_rng(seed))
    drawn = [side.labels(queries, SeededRandomness(2 * seed + at)) for at, side in enumerate((pair.having, pair.lacking))]
    return judged(attacked, event_of(laws[0][0], laws[1][0]), *drawn)


@lru_cache(maxsize=4)
def moved_by(seed: int) -> Moved:
    """As ``Moved.of``, once."""
    return Moved.of(seed)


def certified_as_one(seed: int) -> Finding:
    """Certified votes that count one member where an edit moves two."""
    moved = moved_by(seed)
    having, lacking = (OneCounted(side.problem, side.members) for side in (moved.having, moved.lacking))
    return audited(having, lacking, RandomizedResponse(eps=EPS), moved.query, seed)


def noise_for_one(seed: int) -> Finding:
    """noisy_argmax, whose noise covers one vote, where an edit moves two."""
    moved = moved_by(seed)
    return audited(moved.having, moved.lacking, NoisyArgmax(eps=EPS), moved.query, seed)


def certified_as_two(seed: int) -> Finding:
    """Certified votes that count both members that an edit moves."""
    moved = moved_by(seed)
    return audited(moved.having, moved.lacking, RandomizedResponse(eps=EPS), moved.query, seed, SURE)


PLANTED: dict[str, Callable[[int], Finding]] = {
    "certified votes that count one member where an edit moves two": certified_as_one,
    "noisy votes that cover one member where an edit moves two": noise_for_one,
}
SOUND: dict[str, Callable[[int], Finding]] = {"certified votes that count both members": certified_as_two}
