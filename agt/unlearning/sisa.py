"""Sharded, isolated, aggregated training (SISA of Bourtoule et al. 2021, without its slices).

After a removal, ``retrain_affected`` trains again only the members of an ensemble whose shard
changed. Until then ``answerable`` says for which queries the vote is certain all the same, and
``gaps`` says why the certificates of a run do not cover removals. Proofs: docs/proofs/sisa.md.
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
        model: the ensemble on the records that remain.
        trained: the members that were trained again, in ascending order.
    """

    model: EnsembleModel
    trained: tuple[int, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of what bits depend on, records and settings aside, that differ by member."""
        environments = [shard.environment for shard in self.model.shards]
        first = environments[0]
        changed = set()
        for environment in environments:
            names = {*first, *environment}
            changed |= {name for name in names if environment.get(name) != first.get(name)}
        return tuple(sorted(changed))

    @property
    def steps(self) -> int:
        """The number of steps in one member's batch plan; a minimiser takes other steps."""
        return self.model.plan.steps


def retrain_affected(
    problem: Problem, reader: FileReader, on_progress: OnProgress = lambda progress: None
) -> Retrained:
    """Train again the members of a stored ensemble whose shards lost records.

    Formal guarantees
        * The result has the bits of an ensemble that is trained anew, if all else that bits depend
          on is the same, which ``Retrained.changed`` tells (Lemma 1 of docs/proofs/sisa.md).

    Args:
        problem: the records that remain, and the settings that the ensemble was trained with.
        reader: the folder of the ensemble, with what ``EnsembleModel.save_shards`` writes.
        on_progress: called after every member that was trained.

    Raises:
        CheckError: the run is no ensemble, or its members depend on more than their shards.
        ConfigError: a file is missing or not what was written.
    """
    if not problem.settings.ensembled:
        raise CheckError(
            "method=sisa: the run is a single model that was trained on all records "
            f"(ensemble.members=1): {INSTEAD}"
        )
    ensemble = problem.settings.ensemble
    indices = range(ensemble.members)
    shard_records = _read_shard_records(reader, indices)
    remaining = member_records(problem.dataset.train, ensemble)
    affected = []
    unaffected = []
    for index in indices:
        if fingerprint(remaining[index]) == shard_records[index].digest:
            unaffected.append(index)
        else:
            affected.append(index)
    members = dict(zip(unaffected, load_members(problem, reader, unaffected), strict=True))
    for index, member in members.items():
        _check_features(member, problem.dataset.bare.with_shard(remaining[index], None))
    trained = fit_members(problem, affected, on_progress)
    for index, (member, shard_record) in zip(affected, trained, strict=True):
        members[index] = member
        shard_records[index] = shard_record
    member_models = tuple(members[index] for index in indices)
    return Retrained(EnsembleModel(problem, member_models, tuple(shard_records)), tuple(affected))


def _read_shard_records(reader: FileReader, indices: Sequence[int]) -> list[ShardRecord]:
    """Read what each member of an ensemble was trained on.

    Raises:
        CheckError: a file is missing or not what was written.
    """
    try:
        return [ShardRecord.read(reader.part(member_folder(index))) for index in indices]
    except ConfigError as error:
        raise CheckError(
            "method=sisa: the run does not record what each member was trained on "
            f"({error}): {INSTEAD}"
        ) from None


def _check_features(member: Model, shard: Dataset) -> None:
    """Raise CheckError if a member's public features are not those of the public rows of now.

    A member that is trained now would have these, so that the others would not be as trained anew.
    """
    if not member.has_features_of(shard):
        raise CheckError(
            "method=sisa: the public rows from which the features are computed "
            f"(certificate.features.public) changed, so every member would change: {INSTEAD}"
        )


# The names of condition d where an answer's certificate depends on it.
STEPS = ("every step non-expansive", "a record moves one vote")


def reasons_not_covered(
    settings: Settings,
    conditions: Sequence[Condition],
    compared: Collection[Fact] = (),
    public: bool = False,
) -> list[Remark]:
    """Return the reasons why the certificates of a run do not cover removals; empty: they do.

    Args:
        settings: the settings of the run.
        conditions: a to g, as the run recorded them.
        compared: facts about constants that were compared with those of the remaining records, so
            that they need not be proved for every dataset (``untouched``).
        public: whether one of the removed records was declared public.
    """
    relation = RELATIONS[settings.relation.name]
    certificate = settings.certificate
    reasons = []
    if not certificate.covers_retraining:
        reasons.append(Remark("certificate_given_noise", {"certificate": certificate.name}))
    if settings.noise is not None:
        reasons.append(Remark("noise_drawn_again"))
    if public and relation.private_only:
        reasons.append(Remark("public_not_counted", {"relation": relation.name}))
    if public and certificate.features.public == "train":
        reasons.append(Remark("public_features"))
    not_required = {settings.choices, *compared}
    for fact in required_facts(conditions):
        if not fact.held and fact not in not_required:
            reasons.append(Remark("condition_not_held", {"fact": fact}))
    return reasons


def required_facts(conditions: Sequence[Condition]) -> tuple[Fact, ...]:
    """Return every fact that must hold for a certified answer to stay after a removal.

    Args:
        conditions: a to g, as the run recorded them.
    """
    # Lemma 2 of docs/proofs/sisa.md
    facts: list[Fact] = []
    for condition in conditions:
        if condition.letter in "bce" or condition.name in STEPS:
            facts.extend(condition.evidence.facts)
    return tuple(facts)


def answerable(
    distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int = 2
) -> np.ndarray:
    """Return for which queries the vote's label is certain while removals wait, [n] bool.

    Formal guarantees
        * An answerable query has the label that the ensemble gives it after the removals, whichever
          units they remove (Lemma 3 of docs/proofs/sisa.md).
        * A query is answerable wherever the ensemble's own stable distance covers the removals
          (Lemma 4 of docs/proofs/sisa.md), and in more cases.

    Args:
        distances: [T, n] stable distances of the members, under a relation that covers removals.
            Zeros: there are no certificates, so a member with a waiting removal is not counted.
        labels: [T, n] the members' labels, 0..classes-1 (``VoteCertificates.members``).
        pending: [T] how many units of each member's shard are to be removed.
        classes: C.

    Raises:
        ConfigError: labels or distances do not fit (``count_selected_votes``).
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
    unknown = (~known).sum(axis=0)
    winner = counts.argmax(axis=0)
    rivals = np.arange(classes)[:, None]
    # A rival of smaller number wins a tie, so the winner needs one vote more against it.
    leads = counts.max(axis=0) - counts
    is_ahead = leads >= unknown + (rivals < winner)
    is_winner = rivals == winner
    return (is_ahead | is_winner).all(axis=0)


def spread_requests(members: int, requests: int) -> np.ndarray:
    """Return how many requests each member gets from an adversary who spreads them, [T] int64.

    The adversary knows the public key, and sends one request to each member in turn.

    Args:
        members: T.
        requests: the number of requests, each to remove one unit.
    """
    return np.bincount(np.arange(requests) % members, minlength=members)


def availability(
    distances: np.ndarray,
    labels: np.ndarray,
    shard_of_units: np.ndarray,
    requests: Sequence[int],
    rng: np.random.Generator,
    classes: int = 2,
    draws: int = 100,
) -> np.ndarray:
    """Estimate the share of queries that are answerable while random requests wait.

    Args:
        distances: [T, n], as in ``answerable``.
        labels: [T, n], as in ``answerable``.
        shard_of_units: [units] the member of each unit (``training.ensemble.shards``).
        requests: numbers of waiting requests, each at most the number of units. The requests of a
            draw are of different units, chosen uniformly.
        rng: draws the units.
        classes: C.
        draws: how often requests are drawn for each number of them.

    Returns:
        [len(requests)] the mean share over the draws.
    """
    members = len(labels)

    def share_of_draw(count: int) -> float:
        shards_of_requests = rng.choice(shard_of_units, size=count, replace=False)
        pending = np.bincount(shards_of_requests, minlength=members)
        return float(answerable(distances, labels, pending, classes).mean())

    means = []
    for count in requests:
        shares = [share_of_draw(count) for _ in range(draws)]
        means.append(float(np.mean(shares)))
    return np.array(means)
