"""Sharded, isolated, aggregated training (SISA of Bourtoule et al. 2021, without its slices).

After a removal only the members of an ensemble whose shard changed are trained again
(``retrain_affected``). Until then a query may still be answered, where certificates say that the
vote stands (``answerable``). ``gaps`` says which conditions an earlier certificate lacks for that.
Proofs: docs/proofs/sisa.md.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from agt.certificates.conditions import Condition
from agt.certificates.votes import count_selected_votes
from agt.data.dataset import Dataset
from agt.data.records import fingerprint
from agt.errors import CheckError, ConfigError
from agt.facts import Fact
from agt.models.ensemble import EnsembleModel, ShardRecord, fit_members, load_members
from agt.models.model import Model
from agt.models.store import FileReader
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.training.ensemble import member_folder, member_records
from agt.training.loop import OnProgress
from agt.unlearning.sentences import Remark

INSTEAD = "use method=retrain"


@dataclass(frozen=True)
class Retrained:
    """An ensemble of which some members were trained again.

    Attributes:
        model: on the data as they are now.
        trained: the members that were trained again; the others were kept.
    """

    model: EnsembleModel
    trained: tuple[int, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """What else bits depend on and is not the same for all members, in words."""
        made = [shard.made for shard in self.model.shards]
        keys = sorted({key for node in made for key in node})
        return tuple(key for key in keys if any(node.get(key) != made[0].get(key) for node in made))

    @property
    def steps(self) -> int:
        """Steps of one member's training: of SGD, or what a minimiser would list."""
        return self.model.plan.steps


def retrain_affected(
    problem: Problem, shelf: FileReader, on_progress: OnProgress = lambda progress: None
) -> Retrained:
    """The ensemble that a shelf holds, on the records that remain.

    It has the bits of an ensemble trained anew, if all else that bits depend on is the same
    (Lemma 1 of docs/proofs/sisa.md).

    Args:
        problem: the data as they are now, and the settings that the ensemble was trained with.
        shelf: where it lies, with its shards (``EnsembleModel.save_shards``).
        on_progress: called after every member that was trained.

    Raises:
        CheckError: it is no ensemble, or its members depend on more than their shards.
        ConfigError: a file is missing or not what was written.
    """
    ensemble = problem.settings.ensemble
    if not problem.settings.ensembled:
        raise CheckError(
            "method=sisa: the run is a single model that was trained on all records "
            f"(ensemble.members=1): {INSTEAD}"
        )
    try:
        kept = [
            ShardRecord.read(shelf.part(member_folder(index))) for index in range(ensemble.members)
        ]
    except ConfigError as error:
        raise CheckError(
            "method=sisa: the run does not record what each member was trained on "
            f"({error}): {INSTEAD}"
        ) from None
    dealt = member_records(problem.dataset.train, ensemble)
    touched = tuple(i for i, records in enumerate(dealt) if fingerprint(records) != kept[i].digest)
    whole = [index for index in range(ensemble.members) if index not in touched]
    members = dict(zip(whole, load_members(problem, shelf, whole), strict=True))
    for index, member in members.items():
        _check_features(member, problem.dataset.bare.with_shard(dealt[index], None))
    shards = dict(enumerate(kept))
    fitted = fit_members(problem, touched, on_progress)
    for index, (member, shard) in zip(touched, fitted, strict=True):
        members[index], shards[index] = member, shard
    order = range(ensemble.members)
    return Retrained(
        EnsembleModel(problem, tuple(members[i] for i in order), tuple(shards[i] for i in order)),
        touched,
    )


def _check_features(member: Model, shard: Dataset) -> None:
    """Refuse public features that are others now: a fresh member would have those of the public
    rows as they are now.
    """
    if not member.has_features_of(shard):
        raise CheckError(
            "method=sisa: the public rows from which the features are computed "
            f"(certificate.features.public) changed, so every member would change: {INSTEAD}"
        )


STEPS = (
    "every step non-expansive",
    "a record moves one vote",
)  # condition d's names that containment rests on


def gaps(
    settings: Settings,
    conditions: Sequence[Condition],
    compared: Collection[Fact] = (),
    public: bool = False,
) -> list[Remark]:
    """Why certificates of a run say nothing about removals; empty: they say what they say of any
    neighbour.

    Args:
        conditions: a to g, as the run recorded them.
        compared: facts about constants that were compared since, and need not hold of every dataset
            (``untouched``).
        public: whether a record that goes was declared public.
    """
    relation, certificate, reasons = (
        RELATIONS[settings.relation.name],
        settings.certificate,
        list[Remark](),
    )
    if not certificate.covers_retraining:
        reasons.append(Remark("certificate_given_noise", {"certificate": certificate.name}))
    if settings.noise is not None:
        reasons.append(Remark("noise_drawn_again"))
    if public and relation.private_only:
        reasons.append(Remark("public_not_counted", {"relation": relation.name}))
    if public and certificate.features.public == "train":
        reasons.append(Remark("public_features"))
    apart = {settings.choices, *compared}
    missing = [fact for fact in needed(conditions) if not fact.held and fact not in apart]
    return [*reasons, *(Remark("condition_not_held", {"fact": fact}) for fact in missing)]


def needed(conditions: Sequence[Condition]) -> tuple[Fact, ...]:
    """Every fact of the conditions that an answer which stands rests on."""
    # Lemma 2 of docs/proofs/sisa.md
    asked = (c for c in conditions if c.letter in "bce" or c.name in STEPS)
    return tuple(fact for condition in asked for fact in condition.evidence.facts)


def answerable(
    distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int = 2
) -> np.ndarray:
    """[queries] bool: whether the vote's label is certain while requests wait.

    It answers whatever the ensemble's own stable distance allows, and more
    (Lemma 4 of docs/proofs/sisa.md).

    Args:
        distances: [members, queries] stable distances of the members, under a relation that covers
            removals; zeros: there are no certificates, and a member with a request is offline.
        labels: [members, queries] the members' labels, 0..classes-1 (``VoteCertificates.members``,
            ``VoteCertificates.member_distances``).
        pending: [members] how many units of each member's shard are to be removed.
        classes: how many there are.

    Raises:
        ConfigError: labels or distances are none (agt/certificates/votes.py).
        ValueError: pending is not one count, at least 0, for each member.
    """
    pending = np.asarray(pending)
    if pending.shape != labels.shape[:1] or (pending < 0).any():
        raise ValueError(
            f"the pending requests {pending} are not one count for each of the {len(labels)} "
            "members"
        )
    # Lemma 3 of docs/proofs/sisa.md
    known = pending[:, None] <= distances
    counts = count_selected_votes(labels, distances, classes, known)
    unknown, winner = (~known).sum(axis=0), counts.argmax(axis=0)
    rivals = np.arange(classes)[:, None]
    ahead = counts.max(axis=0) - counts >= unknown + (rivals < winner)
    return (ahead | (rivals == winner)).all(axis=0)


def spread_requests(members: int, requests: int) -> np.ndarray:
    """[members] the same of somebody who knows the public key and takes the members in turn, one
    request for each.
    """
    return np.bincount(np.arange(requests) % members, minlength=members)


def availability(
    distances: np.ndarray,
    labels: np.ndarray,
    home: np.ndarray,
    requests: Sequence[int],
    rng: np.random.Generator,
    classes: int = 2,
    draws: int = 100,
) -> np.ndarray:
    """[len(requests)] the mean share of queries that are answered while so many random requests
    wait.

    Args:
        distances, labels, classes: as in ``answerable``.
        home: [units] the member of each unit (``training.ensemble.shards``).
        requests: how many wait at once, of different units that are chosen uniformly; at most as
            many as there are.
        draws: of so many requests each, over which the mean is taken.
    """

    def share(count: int) -> float:
        chosen = (rng.choice(home, size=count, replace=False) for _ in range(draws))
        waiting = (np.bincount(members, minlength=len(labels)) for members in chosen)
        return float(
            np.mean([answerable(distances, labels, pending, classes).mean() for pending in waiting])
        )

    return np.array([share(count) for count in requests])
