"""Which answers of a trained model are the same without one person's records.

The training records with and without a person are two known datasets. So, unlike a certificate,
nothing here bounds all neighbouring datasets: the answers without the person are computed, by
training as little as possible again.

| model | what is trained again for a person |
|---|---|
| votes, ensembles | the members whose shards have the person's records |
| minimisers (``certificate=erm``) | nothing: one Newton step with a proved radius |
| all others | the model, as ``agt unlearn method=retrain`` does |

The result depends on the records. It is only for the data owner or that person, and no release may
be based on it. Proofs: docs/proofs/influence.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np

from agt.certificates.vote_costs import count_votes
from agt.certificates.votes import plain_vote
from agt.data.records import UNANSWERED
from agt.errors import CheckError
from agt.models.fitting import fit
from agt.models.model import Model
from agt.models.voting import Votes
from agt.problem import Problem
from agt.store.folder import Folder
from agt.training.ensemble import assign_shards
from agt.unlearning.minimiser_influence import MinimisersWithout, is_loss_covered
from agt.unlearning.sisa import retrain_affected

MAX_RETRAINED_PEOPLE = 20
"""The largest number of people for whom a minimiser is trained again.

It is trained again for a person if the Newton step leaves some of the answers undecided; but for
nobody, if there are more such people than this.
"""

InfluenceMethod = Literal["nothing", "members", "newton", "retraining"]
"""How the answers without a person were found. ``nothing``: the person has no training record;
``members``: the affected members were trained again; ``newton``: one Newton step with a radius;
``retraining``: the whole model was trained again."""


class Outcome(IntEnum):
    """The comparison of a query's label with and without a person's records.

    SAME: it is equal. CHANGED: it is another one. NOT_SHOWN: the method does not decide it.
    """

    SAME = 0
    CHANGED = 1
    NOT_SHOWN = 2


@dataclass(frozen=True)
class Influence:
    """The answers of a model without one person's records.

    Attributes:
        outcomes: [n] int64, an ``Outcome`` for each query.
        labels: [n] int64, the labels without the records; ``UNANSWERED`` if the outcome is
            NOT_SHOWN.
        method: the method that found the labels.
        retrained: the number of models, or members of an ensemble, that were trained without the
            records.
    """

    outcomes: np.ndarray
    labels: np.ndarray
    method: InfluenceMethod
    retrained: int = 0

    def count(self, outcome: Outcome) -> int:
        """Return the number of queries with an outcome."""
        return int((self.outcomes == outcome).sum())


@dataclass(frozen=True)
class Neighbour:
    """The neighbouring dataset without one person's records, as the input of a training.

    Attributes:
        problem: the remaining records, with the settings of the training.
        queries: [n, ...] the queries' features, as this problem's dataset scales them.
        same_features: whether every remaining record and every query has the same features as in
            the dataset with the person's records. They differ if scales are read off the records.
    """

    problem: Problem
    queries: np.ndarray
    same_features: bool


@dataclass(frozen=True)
class _MemberLabels:
    """The labels that the members of a voting model give to queries.

    Attributes:
        votes: the voting model.
        phi: [n, w] the queries' features as the members take them.
        labels: [T, n] the labels of the T members.
    """

    votes: Votes
    phi: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class AnsweredModel:
    """A trained model with its records, and its answers to queries.

    Attributes:
        problem: the training records, and the settings with which training began.
        model: the trained model.
        reader: the folder of the model, which is only read if the model is an ensemble of models;
            None: there is no folder, so all of an ensemble is trained again.
        queries: [n, ...] the queries' features.
    """

    problem: Problem
    model: Model
    reader: Folder | None
    queries: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray:
        """The model's labels of the queries, [n] int64."""
        return self.model.predict(self.queries)

    def influences(
        self,
        people: Sequence[np.ndarray],
        make_neighbour: Callable[[np.ndarray], Neighbour],
        constants_are_public: bool,
        on_person: Callable[[int, int], None] = lambda done, people: None,
    ) -> list[Influence]:
        """Compute the answers without each person's records, by training where needed, one by one.

        Formal guarantees:
            - ``Outcome.SAME`` and ``CHANGED`` say what training without the person's records
              gives: with the same settings, seeds and keys, by the same software on the same
              machine (Lemmas 1 and 4 of docs/proofs/influence.md).

        Args:
            people: an array for each person, with the row numbers of the person's training records;
                it may be empty.
            make_neighbour: returns the dataset without the records of some row numbers.
            constants_are_public: whether no constant of the data (such as a scale) is read off the
                training records, so that ``same_features`` holds for every neighbour.
            on_person: called with (the number of people that are done, the number of all people).

        Returns:
            The influence of each person, in the order of ``people``.

        Raises:
            CheckError: training again with everybody's records does not give this model's answers,
                so that a comparison would not be of the person's records alone.
            ConfigError, DataError, UnsoundError: training raised it.
        """
        by_newton: dict[int, Influence] = {}  # person -> what one Newton step shows
        if constants_are_public:
            by_newton = self._influences_by_newton(people)
        undecided = [
            person
            for person, influence in by_newton.items()
            if influence.count(Outcome.NOT_SHOWN) > 0
        ]
        may_retrain = len(undecided) <= MAX_RETRAINED_PEOPLE
        influences = []
        for person, rows in enumerate(people):
            influence = by_newton.get(person)
            if not len(rows):
                all_same = np.full(len(self.labels), Outcome.SAME, dtype=np.int64)
                influence = Influence(all_same, self.labels, "nothing")
            elif influence is None or (person in undecided and may_retrain):
                influence = self._influence_by_training(make_neighbour(rows), rows)
            influences.append(influence)
            on_person(len(influences), len(people))
        return influences

    def _influences_by_newton(self, people: Sequence[np.ndarray]) -> dict[int, Influence]:
        """Return the influence of each person with training records, computed by one Newton step.

        Args:
            people: an array for each person, with the row numbers of the person's training records.

        Returns:
            Index of the person -> influence, for each person with at least one record. Empty if the
            model is not a minimiser for which the radius of the step is proved.
        """
        head = self.model.linear_head
        train = self.problem.dataset.train
        # Without a declared size, the strength and the normaliser depend on the number of records.
        if head is None or self.problem.dataset.declared_size is None:
            return {}
        if head.settings.certificate.minimiser_tolerance is None:
            return {}
        if not is_loss_covered(head.trained.loss):
            return {}
        with_records = [person for person, rows in enumerate(people) if len(rows)]
        if not with_records:
            return {}
        rows_of_people = [people[person] for person in with_records]
        phi = head.phi_of_records(train.features)
        minimisers = MinimisersWithout.from_head(head, phi, train.labels, rows_of_people)
        without = minimisers.labels(head.phi(self.queries))
        influences = {}
        for index, person in enumerate(with_records):
            influences[person] = self._compare_labels(
                without.labels[index], "newton", is_shown=without.is_proved[index]
            )
        return influences

    def _influence_by_training(self, neighbour: Neighbour, rows: np.ndarray) -> Influence:
        """Train without a person's records, and return the answers without them.

        Only the affected members are trained if the model has members and features stay the same,
        or if it is an ensemble of models with a folder; otherwise the whole model.

        Args:
            neighbour: the dataset without the records.
            rows: the row numbers of the records.

        Raises:
            CheckError: training with all records does not give this model's answers.
        """
        members = self._member_labels
        if members is not None and neighbour.same_features:
            return self._influence_by_members(members, neighbour, rows)
        if self.problem.settings.ensembled and self.reader is not None:
            retrained = retrain_affected(neighbour.problem, self.reader)
            differences = ", ".join(retrained.environment_differences)
            if differences:
                raise CheckError(
                    "members that are trained now would differ from the stored ones even without "
                    f"a change of the records ({differences}): use the machine and the software of "
                    "the training"
                )
            labels = retrained.model.predict(neighbour.queries)
            return self._compare_labels(labels, "members", len(retrained.trained))
        if not self._training_repeats:
            raise _not_repeated("the model")
        labels = fit(neighbour.problem).predict(neighbour.queries)
        return self._compare_labels(labels, "retraining", 1)

    def _influence_by_members(
        self, members: _MemberLabels, neighbour: Neighbour, rows: np.ndarray
    ) -> Influence:
        """Return the answers without a person's records, by training the affected members again.

        Args:
            members: the labels of all members as trained.
            neighbour: the dataset without the records.
            rows: the row numbers of the records.

        Raises:
            CheckError: training these members with all records does not give their labels.
        """
        # Lemma 1 of docs/proofs/influence.md: every other member is the same, bit for bit.
        train = self.problem.dataset.train
        shards = assign_shards(train.units[rows], self.problem.settings.ensemble)
        affected = np.unique(shards).tolist()
        votes = members.votes
        repeated = votes.retrained_labels(train, affected, members.phi)
        if not np.array_equal(repeated, members.labels[affected]):
            raise _not_repeated("members")
        remaining = neighbour.problem.dataset.train
        labels = members.labels.copy()
        labels[affected] = votes.retrained_labels(remaining, affected, members.phi)
        counts = count_votes(labels, self.problem.classes)
        vote = plain_vote(counts, touches=votes.members_per_edit)
        return self._compare_labels(vote.prediction, "members", len(affected))

    @cached_property
    def _member_labels(self) -> _MemberLabels | None:
        """The members' labels of the queries; None if the model is not one of shards that vote."""
        votes = self.model.shard_votes
        if votes is None:
            return None
        phi = votes.phi(self.queries)
        return _MemberLabels(votes, phi, votes.labels(phi))

    @cached_property
    def _training_repeats(self) -> bool:
        """Train again with all records; True: this gives the model's answers to the queries.

        It is trained when this is first read.
        """
        return np.array_equal(fit(self.problem).predict(self.queries), self.labels)

    def _compare_labels(
        self,
        labels: np.ndarray,
        method: InfluenceMethod,
        retrained: int = 0,
        is_shown: np.ndarray | None = None,
    ) -> Influence:
        """Return the influence of a person, by comparing labels with the model's own labels.

        Args:
            labels: [n] int64, the labels without the person's records.
            method: the method that found these labels.
            retrained: the number of models or members that were trained for them.
            is_shown: [n] bool, whether each of the labels is known to be right; None: all are.
        """
        if is_shown is None:
            is_shown = np.ones(len(labels), dtype=bool)
        outcomes = np.where(labels == self.labels, Outcome.SAME, Outcome.CHANGED).astype(np.int64)
        outcomes[~is_shown] = Outcome.NOT_SHOWN
        return Influence(outcomes, np.where(is_shown, labels, UNANSWERED), method, retrained)


def _not_repeated(subject: str) -> CheckError:
    """Return the error for a training with all records that does not give a model's answers.

    Without it, a difference of answers would not show what the person's records change.

    Args:
        subject: the name of what was trained again, for the message: "the model" or "members".
    """
    return CheckError(
        f"training {subject} again with everybody's records does not give this run's answers, so "
        "agt cannot tell what the person's records alone change: use the machine and the "
        "software of the training"
    )
