"""Sharded, isolated, aggregated training (SISA of Bourtoule et al. 2021, without its slices).

After a removal, ``retrain_affected`` trains again only the members of an ensemble whose shard
(their part of the training records) changed. Until then ``answerable`` returns the queries whose
vote is certain in spite of the pending removal. ``reasons_not_covered`` returns why the
certificates of a run do not cover removals. Proofs: docs/proofs/sisa.md.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from agt.certificates.conditions import Condition
from agt.certificates.votes import count_selected_votes
from agt.data.dataset import Dataset
from agt.data.digests import fingerprint
from agt.errors import CheckError, ConfigError, UnsoundError, altered
from agt.facts import Fact
from agt.models.ensemble import EnsembleModel, fit_members, load_members
from agt.models.fitting import load
from agt.models.model import Model
from agt.models.shards import SHARDS, ShardRecord, read_shards
from agt.models.votes import VotesModel
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.store.folder import Folder
from agt.training.ensemble import member_folder, member_records
from agt.training.loop import OnProgress, ignore_progress
from agt.unlearning.sentences import Remark

USE_RETRAIN = "use method=retrain"


@dataclass(frozen=True)
class Retrained:
    """An ensemble of which some members were trained again after a removal.

    Attributes:
        model: the ensemble on the remaining records.
        trained: the indices of the members that were trained again, in ascending order.
        removed: the number of records that the members lost, computed from the recorded numbers of
            records; None: these numbers were not recorded.
    """

    model: EnsembleModel | VotesModel
    trained: tuple[int, ...]
    removed: int | None = None

    @property
    def environment_differences(self) -> tuple[str, ...]:
        """The names of the entries that differ between the members' training environments, sorted.

        An environment has what a member's bits depend on in addition to records and settings, for
        example the code version, the machine and the number of threads.
        """
        environments = [shard.environment for shard in self.model.shards]
        first = environments[0]
        different = set()
        for environment in environments:
            names = {*first, *environment}
            different |= {name for name in names if environment.get(name) != first.get(name)}
        return tuple(sorted(different))

    @property
    def steps(self) -> int:
        """The number of steps in one member's batch plan.

        For a minimiser it says nothing, because its solver stops at a tolerance.
        """
        return self.model.plan.steps


def retrain_affected(
    problem: Problem, reader: Folder, on_progress: OnProgress = ignore_progress
) -> Retrained:
    """Train again the members of a stored ensemble whose shards lost records.

    A shard is the part of the training records that one member is trained on.

    Formal guarantees:
        - The result has the same bits as an ensemble that is trained again completely, if the
          environments of all members are the same (Lemma 1 of docs/proofs/sisa.md).
          ``Retrained.environment_differences`` lists what differs.

    Args:
        problem: the remaining records, and the settings that the ensemble was trained with.
        reader: the folder of the ensemble, as ``Model.save_shards`` writes it.
        on_progress: called after every member that was trained.

    Raises:
        CheckError: the run is no ensemble, a file on its shards is missing or damaged, or public
            rows that all members depend on changed.
        ConfigError: another file is missing or damaged.
    """
    if problem.settings.ensemble.members == 1:
        raise CheckError(
            "method=sisa: the run is a single model that was trained on all records "
            f"(ensemble.members=1): {USE_RETRAIN}"
        )
    if problem.settings.ensembled:
        return _retrain_models(problem, reader, on_progress)
    return _retrain_members(problem, reader, on_progress)


def _retrain_models(problem: Problem, reader: Folder, on_progress: OnProgress) -> Retrained:
    """Train again the affected members of an ensemble whose members are separate models.

    The other members are loaded.

    The arguments and the errors are those of ``retrain_affected``.
    """
    ensemble = problem.settings.ensemble
    indices = range(ensemble.members)
    with _naming_missing_shards():
        shard_records = [ShardRecord.read(reader.part(member_folder(index))) for index in indices]
    remaining = member_records(problem.dataset.train, ensemble)
    digests = [fingerprint(records) for records in remaining]
    affected = _changed_shards(shard_records, digests)
    unaffected = [index for index in indices if index not in affected]
    loaded = load_members(problem, reader, unaffected)
    members = dict(zip(unaffected, loaded, strict=True))
    for index, member in members.items():
        shard = problem.dataset.without_records.with_training_records(remaining[index], None)
        _check_features(member, shard)
    trained = fit_members(problem, affected, on_progress)
    for index, (member, shard_record) in zip(affected, trained, strict=True):
        members[index] = member
        shard_records[index] = shard_record
    member_models = tuple(members[index] for index in indices)
    model = EnsembleModel(problem, member_models, tuple(shard_records))
    return Retrained(model, tuple(affected))


def _retrain_members(problem: Problem, reader: Folder, on_progress: OnProgress) -> Retrained:
    """Train again the affected members of a model that has all its members in one file.

    The arguments and the errors are those of ``retrain_affected``.
    """
    with _naming_missing_shards():
        recorded = read_shards(reader, problem.settings.ensemble.members)
    model = load(problem, reader)
    if not isinstance(model, VotesModel):
        raise TypeError(f"a {type(model).__name__} does not have its members in one file")
    _check_features(model, problem.dataset)
    records = problem.dataset.train
    remaining = model.shard_records(records)
    affected = _changed_shards(recorded, [shard.digest for shard in remaining])
    removed = _count_lost_records(recorded, remaining, affected, reader)
    shards = list(recorded)
    for index in affected:
        shards[index] = remaining[index]
    if affected:
        model = model.with_members_retrained(records, affected, on_progress)
    return Retrained(replace(model, shards=tuple(shards)), tuple(affected), removed)


def _count_lost_records(
    recorded: Sequence[ShardRecord],
    remaining: Sequence[ShardRecord],
    affected: Collection[int],
    reader: Folder,
) -> int:
    """Return the total number of records that the members lost since they were trained.

    Args:
        recorded: each member's shard when it was trained, as the model's file records it.
        remaining: each member's shard of the remaining records.
        affected: the indices of the members whose shard changed.
        reader: the folder of the model, for the message.

    Raises:
        CheckError: the file records another number of records for a member whose shard did not
            change, so the file was altered.
        ValueError: a shard has no number of records.
    """
    removed = 0
    for index, (before, now) in enumerate(zip(recorded, remaining, strict=True)):
        if before.records is None or now.records is None:
            raise ValueError(f"the number of records of member {index} is not known")
        lost = before.records - now.records
        if lost and index not in affected:
            raise CheckError(
                altered(
                    reader.folder / SHARDS,
                    f"member {index} has {now.records} records, not {before.records}",
                    "train again",
                )
            )
        removed += lost
    return removed


def _changed_shards(recorded: Sequence[ShardRecord], digests: Sequence[str]) -> list[int]:
    """Return the indices of the members whose shard changed since training, in ascending order.

    Args:
        recorded: each member's shard when it was trained.
        digests: the fingerprint of each member's shard of the remaining records.
    """
    changed = []
    for index, (shard, digest) in enumerate(zip(recorded, digests, strict=True)):
        if shard.digest != digest:
            changed.append(index)
    return changed


@contextmanager
def _naming_missing_shards() -> Iterator[None]:
    """Turn errors of reading records of shards, in a block, into CheckError with a remedy."""
    try:
        yield
    except (ConfigError, UnsoundError) as error:
        raise CheckError(
            "method=sisa: the run does not record what each member was trained on "
            f"({error}): {USE_RETRAIN}"
        ) from None


def _check_features(member: Model, shard: Dataset) -> None:
    """Raise CheckError if a stored member computes other features than a newly trained one would.

    Features may depend on public rows. If these changed since the member was trained, every member
    that is trained now would have other features than the stored one.

    Args:
        member: a stored member.
        shard: the dataset from which a new member would be trained: the member's records and the
            present public rows.
    """
    if not member.has_features_of(shard):
        raise CheckError(
            "method=sisa: the public rows from which the features are computed "
            f"(certificate.features.public) changed, so every member would change: {USE_RETRAIN}"
        )


# Names of condition d (one edit moves bounds by at most one step of k) for the certificates whose
# stable distances depend on it: linear heads in closed form, and votes.
CONDITION_D_NAMES = ("every step non-expansive", "a record moves one vote")


def reasons_not_covered(
    settings: Settings,
    conditions: Sequence[Condition],
    compared: Collection[Fact] = (),
    public: bool = False,
) -> list[Remark]:
    """Return the reasons why a run's certificates do not cover a removal; empty: they cover it.

    Args:
        settings: the settings of the run.
        conditions: the seven conditions of a certificate (docs/method.md), as the run recorded
            them.
        compared: facts about constants of the data that were found to be the same for the remaining
            records. They hold for this removal, so they need not hold for every dataset.
        public: whether one of the removed records was declared public.
    """
    relation = RELATIONS[settings.relation.name]
    certificate = settings.certificate
    reasons = []
    if not certificate.covers_retraining:  # it holds only for the noise of one training
        reasons.append(Remark("certificate_given_noise", {"certificate": certificate.name}))
    if settings.noise is not None:  # training again draws other noise
        reasons.append(Remark("noise_drawn_again"))
    if public and relation.private_only:  # edits of public records are not counted
        reasons.append(Remark("public_not_counted", {"relation": relation.name}))
    if public and certificate.features.public == "train":  # features depend on public records
        reasons.append(Remark("public_features"))
    # Training again uses the same settings, so how they were chosen does not matter here.
    not_required = {settings.choices, *compared}
    for fact in required_facts(conditions):
        if not fact.held and fact not in not_required:
            reasons.append(Remark("condition_not_held", {"fact": fact}))
    return reasons


def required_facts(conditions: Sequence[Condition]) -> tuple[Fact, ...]:
    """Return every fact that must hold for a certified answer to stay the same after a removal.

    Whether the facts hold is not checked.

    Args:
        conditions: the seven conditions of a certificate (docs/method.md), as the run recorded
            them.
    """
    # Lemma 2 of docs/proofs/sisa.md: a removal leaves a certified label unchanged if each record is
    # processed by itself (condition b), constants are public (c), preprocessing and settings are
    # public (e), and for linear heads and votes one edit moves bounds by one step at most (d).
    facts: list[Fact] = []
    for condition in conditions:
        if condition.letter in "bce" or condition.name in CONDITION_D_NAMES:
            facts.extend(condition.evidence.facts)
    return tuple(facts)


def answerable(
    distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int = 2
) -> np.ndarray:
    """Return whether the label of each query is certain although removals are pending.

    Formal guarantees:
        - An answerable query has the label that the ensemble will give it after the removals,
          whichever units they remove (Lemma 3 of docs/proofs/sisa.md).
        - Every query is answerable whose stable distance under the whole ensemble's certificate is
          at least the number of pending removals (Lemma 4 of docs/proofs/sisa.md). Other queries
          may be answerable, too.

    Args:
        distances: [T, n] the stable distances of the T members' labels: the number of removed units
            (for example people) that leave a member's label unchanged. The relation must cover
            removals. Zeros if there are no certificates: then a member with a pending removal is
            not counted.
        labels: [T, n] the members' labels, from 0 to classes - 1 (``VoteCertificates.members``).
        pending: [T] the number of units of each member's shard that are to be removed, at least 0.
        classes: C, the number of classes.

    Returns:
        [n] bool, True for an answerable query.

    Raises:
        ConfigError: labels or distances do not fit (``count_selected_votes``).
        ValueError: ``pending`` is not one count, at least 0, for each member.
    """
    pending = np.asarray(pending)
    if pending.shape != labels.shape[:1] or (pending < 0).any():
        raise ValueError(
            f"the pending requests must be one count for each of the {len(labels)} members, but "
            f"are {pending}"
        )
    # Lemma 3 of docs/proofs/sisa.md: a member's vote is known if its distance covers its pending
    # removals. A query is answerable if the winner leads every rival by at least the number of
    # unknown votes, which could all go to the rival.
    known = pending[:, None] <= distances
    counts = count_selected_votes(labels, distances, classes, known)
    unknown = (~known).sum(axis=0)
    winner = counts.argmax(axis=0)
    rivals = np.arange(classes)[:, None]
    # The smaller class wins a tie, so the winner needs one more vote than a smaller rival.
    leads = counts.max(axis=0) - counts
    is_ahead = leads >= unknown + (rivals < winner)
    is_winner = rivals == winner
    return (is_ahead | is_winner).all(axis=0)
