"""Sharded, isolated, aggregated training (SISA of Bourtoule et al. 2021, without its slices): after
a removal, only what it touched is trained.

Formal guarantees of ``retrain_affected``
    The result is what training on the data as they are now gives, bit for bit, if what else bits
    depend on (code, machine, threads: ``ShardRecord.made``) is the same. A member is a function of
    the records of its own shard, in an order of their own, and of settings and public constants
    (docs/proofs/ensembles.md). It is kept if and only if the digest of its shard is the one that it was
    trained on; else it is trained from its beginning. So it does not matter which records are gone,
    nor whether anybody still knows their ids, and a shard is touched by its own requests alone,
    since a unit's shard is a keyed hash of its id.
    What could tie members to the number of all records does not. The declared size, the normaliser
    and what the recipe settles from them are public constants; where no size is declared, a
    member's come from its own shard. Threads are divided by the number of members, not of those
    that are trained. Features that were whitened by public rows are compared, and other rows
    refused; a linear head's constants are compared as it is read (``LinearModel.load``).

What a run's certificates say about removals: which conditions that needs, and what of an answer
then stands.

Formal guarantees
    Let T be the training with its settings and public constants, D the records of a state, E any of
    its units, m of them, and x a query of stable distance L >= m. Then T(D - E) gives x the label
    that T(D) gives it, bit for bit, if
    - the relation's ball of m holds D - E: add_remove and remove count units gone (remove: private
      ones); one gone and none come is within one k of substitute and paper_privacy too
      (Lemma 7 of docs/proofs/relations.md;
      a linear head's k is two moves of one record); paper_unlearning holds for its own rule, the
      mean over what is left;
    - (b) each other record stays in its batch, shard and split, with its features: its place
      depends on itself alone;
    - (c) T(D - E) has the constants of T(D): a normaliser that was derived from the number of
      records has not;
    - (d) of a closed form: every step is non-expansive, which the distance rests on. Of boxes:
      containment is proved rule for rule; that rules are inclusion-monotone is for nesting, which
      no removal needs;
    - (e) the constants that make features are those of D - E: ``ErasedDataset.untouched``, public
      or compared; and no record of E is one of the public rows that features are made from
      (certificate.features.public=train). That settings were chosen on these records leaves T what
      it is: it is said, as T is what the answer is compared with.
    Not needed: (a), as L >= m means certified at some k >= m of any grid, and boxes hold all of a
    smaller ball; (f), as what may be void there is nesting in the last digits, while bounds are
    widened for containment; (g), as removals go one way. So ``gaps`` asks for b, c, e and a closed
    form's d.
    A certificate is about all sets of m units at once. So it covers those that somebody chose after
    seeing every answer; and E may be taken out in any order and number of updates, as T(D - E) does
    not depend on them.
    Noise in training or in the loss is outside: training again draws anew.

Which queries an ensemble still answers while erasure requests wait in its shards (000 section 4.2).

Shards are disjoint, so a request concerns one member. Until that member was retrained its vote may
not be used as it is. Without certificates it is offline: nobody knows what it will say. With them
it still votes wherever its label is certified for as many removals as wait in its shard.

Formal guarantees of ``answerable``
    Let member i have label y_i and stable distance d_i, and k_i units of its shard to be removed.
    Its vote is known if k_i <= d_i: then every dataset with those k_i units removed gives it the
    label y_i, whichever they are, and so does the retrained member (the certificate's relation must
    cover removals). Let U be how many votes are not known, n_c how many known ones are for c, and y
    the class that wins among known votes, ties to the smaller class as in
    docs/proofs/votes.md. The vote is y whatever the U say if and only if, for each rival r,
    n_y - n_r >= U + [r < y]:
    if: r gains at most U from them, and y loses none, so y stays ahead of r, or level with r > y,
    which y wins;
    only if: all U may say r, and then r is ahead of y, or level with r < y.
    With U >= 1 no other class can be certain either: it would have to win where the U vote y. So a
    query is answerable if and only if its label is the same for all votes of the unknown.
    It takes in whatever the ensemble's own stable distance L allows. Let sum_i k_i <= L. Each
    unknown member has k_i >= d_i + 1, so to change all of them costs at most sum_i k_i <= L < F
    (docs/proofs/votes.md: F is the least sum of d_i + 1 over members whose change turns the
    vote), and the vote stands. The converse fails: requests that lie in many shards, a few in each,
    change nothing however many they are.
    Without certificates all distances are 0, and a member is known if and only if nothing waits for
    it.
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
            "method=sisa: the run is one model, and each record is in it (ensemble.members=1): "
            f"{INSTEAD}"
        )
    try:
        kept = [
            ShardRecord.read(shelf.part(member_folder(index))) for index in range(ensemble.members)
        ]
    except ConfigError as error:
        raise CheckError(
            f"method=sisa: the run tells not what each member was trained on ({error}): {INSTEAD}"
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
            "method=sisa: the public rows that the features are made from "
            "(certificate.features.public) are others now, so "
            f"every member would be: {INSTEAD}"
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
    asked = (c for c in conditions if c.letter in "bce" or c.name in STEPS)
    return tuple(fact for condition in asked for fact in condition.evidence.facts)


def answerable(
    distances: np.ndarray, labels: np.ndarray, pending: np.ndarray, classes: int = 2
) -> np.ndarray:
    """[queries] bool: whether the vote's label is certain while requests wait.

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
            f"pending requests {pending} are not one count for each of {len(labels)} members"
        )
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
