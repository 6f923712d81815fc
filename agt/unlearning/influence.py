"""Which answers of a trained model are the same without one person's records.

The training records with and without a person are two known datasets, so nothing is bounded over
all neighbours: the answers without the person are computed, by training again as little as can be.

| model | what is trained again for a person |
|---|---|
| votes, ensembles | the members whose shards have the person's records |
| minimisers (``certificate=erm``) | nothing: one Newton step with a proved radius |
| all others | the model, as ``agt unlearn method=retrain`` does |

The result depends on the records. It is for the data owner or that person alone, and is no evidence
for a release. Proofs: docs/proofs/influence.md.
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
from agt.models.store import FileReader
from agt.models.voting import Votes
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.training.ensemble import assign_shards
from agt.unlearning.minimiser_influence import MinimisersWithout, is_covered
from agt.unlearning.sisa import retrain_affected

MAX_RETRAINED_PEOPLE = 20
"""For how many people a minimiser is trained again where the Newton step decides too little."""

InfluenceMethod = Literal["nothing", "members", "newton", "retraining"]
"""How the answers without a person were found. ``nothing``: the person has no training record;
``members``: the affected members were trained again; ``newton``: one Newton step with a radius;
``retraining``: the whole model was trained again."""


class Outcome(IntEnum):
    """How a query's answer without a person's records compares with the answer with them."""

    SAME = 0
    CHANGED = 1
    NOT_SHOWN = 2


@dataclass(frozen=True)
class Influence:
    """The answers of a model without one person's records.

    Attributes:
        outcomes: [n] int64, an ``Outcome`` for each query.
        labels: [n] int64 the labels without the records; ``UNANSWERED`` where not shown.
        method: how they were found.
        retrained: how many models, or members of an ensemble, were trained without the records.
    """

    outcomes: np.ndarray
    labels: np.ndarray
    method: InfluenceMethod
    retrained: int = 0

    def count(self, outcome: Outcome) -> int:
        """Return how many queries have an outcome."""
        return int((self.outcomes == outcome).sum())


@dataclass(frozen=True)
class Neighbour:
    """The input of a training without one person's records.

    Attributes:
        problem: the remaining records, with the settings of the training.
        queries: [n, ...] the queries' features, as this problem's dataset scales them.
        untouched: True if every remaining record, and every query, has the same features as with
            the person's records.
    """

    problem: Problem
    queries: np.ndarray
    untouched: bool


@dataclass(frozen=True)
class AnsweredModel:
    """A trained model with its records, and its answers to queries.

    Attributes:
        problem: the training records, and the settings as training began with them.
        model: the trained model.
        reader: the folder of the model; read only for an ensemble of models.
        queries: [n, ...] the queries' features.
    """

    problem: Problem
    model: Model
    reader: FileReader | None
    queries: np.ndarray

    @cached_property
    def labels(self) -> np.ndarray:
        """The model's labels of the queries, [n] int64."""
        return self.model.predict(self.queries)

    def influences(
        self,
        people: Sequence[np.ndarray],
        neighbour_of: Callable[[np.ndarray], Neighbour],
        reads_no_constants: bool,
        on_person: Callable[[int, int], None] = lambda done, people: None,
    ) -> list[Influence]:
        """Return the answers without each person's records; each person alone, not together.

        Formal guarantees:
            - ``Outcome.SAME`` and ``CHANGED`` say what training without the person's records
              gives: with the same settings, seeds and keys, by the same software on the same
              machine (Lemmas 1 and 4 of docs/proofs/influence.md).

        Args:
            people: for each person the row numbers of the person's training records.
            neighbour_of: makes the problem without the records of these row numbers.
            reads_no_constants: True if no constant of the data (such as a scale) is read off the
                training records, so that every neighbour is ``untouched``.
            on_person: called with how many people are done, and how many there are.

        Raises:
            CheckError: training again with everybody's records does not give this model's answers,
                so that a comparison would not be of the person's records alone.
            ConfigError, DataError, UnsoundError: as training raises.
        """
        stepped = self._by_newton(people) if reads_no_constants else {}
        undecided = [index for index, found in stepped.items() if found.count(Outcome.NOT_SHOWN)]
        may_retrain = len(undecided) <= MAX_RETRAINED_PEOPLE
        influences = []
        for index, rows in enumerate(people):
            influence = stepped.get(index)
            if not len(rows):
                influence = Influence(np.zeros(len(self.labels), int), self.labels, "nothing")
            elif influence is None or (index in undecided and may_retrain):
                influence = self._by_training(neighbour_of(rows), rows)
            influences.append(influence)
            on_person(len(influences), len(people))
        return influences

    def _by_newton(self, people: Sequence[np.ndarray]) -> dict[int, Influence]:
        """Return what one Newton step shows of each person that has training records.

        Empty if the model is no minimiser that the step is proved for.

        Args:
            people: for each person the row numbers of the person's training records.
        """
        head = self.model.linear_head
        train = self.problem.dataset.train
        # Without a declared size, the strength and the normaliser depend on the number of records.
        if head is None or self.problem.dataset.declared_size is None:
            return {}
        if head.settings.certificate.minimiser_tolerance is None:
            return {}
        if not is_covered(head.trained.loss):
            return {}
        with_records = [index for index, rows in enumerate(people) if len(rows)]
        if not with_records:
            return {}
        rows_of_people = [people[index] for index in with_records]
        phi = head.phi_of_records(train.features)
        minimisers = MinimisersWithout.from_head(head, phi, train.labels, rows_of_people)
        labels, is_proved = minimisers.labels(head.phi(self.queries))
        found = {}
        for index, without, proved in zip(with_records, labels, is_proved, strict=True):
            found[index] = self._influence(without, "newton", shown=proved)
        return found

    def _by_training(self, neighbour: Neighbour, rows: np.ndarray) -> Influence:
        """Return the answers without a person's records, by training without them.

        Args:
            neighbour: the problem without the records.
            rows: the row numbers of the records.
        """
        votes = self.model.shard_votes
        if votes is not None and neighbour.untouched:
            return self._by_shards(votes, neighbour, rows)
        if self.problem.settings.ensembled and self.reader is not None:
            retrained = retrain_affected(neighbour.problem, self.reader)
            if retrained.changed:
                raise CheckError(
                    "members that are trained now would differ from the stored ones even without "
                    f"a change of the records ({', '.join(retrained.changed)}): use the machine "
                    "and the software of the training"
                )
            labels = retrained.model.predict(neighbour.queries)
            return self._influence(labels, "members", len(retrained.trained))
        self._check_repeats()
        labels = fit(neighbour.problem).predict(neighbour.queries)
        return self._influence(labels, "retraining", 1)

    def _by_shards(self, votes: Votes, neighbour: Neighbour, rows: np.ndarray) -> Influence:
        """Return the answers without a person's records, of members that vote as one model.

        Args:
            votes: the model.
            neighbour: the problem without the records.
            rows: the row numbers of the records.
        """
        # Lemma 1 of docs/proofs/influence.md: every other member is the same, bit for bit.
        train = self.problem.dataset.train
        shards = assign_shards(train.units[rows], self.problem.settings.ensemble)
        affected = np.unique(shards).tolist()
        phi, labels = self._member_labels
        if not np.array_equal(votes.retrained_labels(train, affected, phi), labels[affected]):
            raise self._not_repeated("members")
        without = labels.copy()
        without[affected] = votes.retrained_labels(neighbour.problem.dataset.train, affected, phi)
        touches = RELATIONS[self.problem.settings.relation.name].members_changed_per_edit
        vote = plain_vote(count_votes(without, self.problem.classes), touches=touches)
        return self._influence(vote.prediction, "members", len(affected))

    @cached_property
    def _member_labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The queries as the members take them [n, w], and the members' labels of them [T, n]."""
        votes = self.model.shard_votes
        assert votes is not None  # the caller checked it
        phi = votes.phi(self.queries)
        return phi, votes.labels(phi)

    def _check_repeats(self) -> None:
        """Raise CheckError unless training again with everybody's records gives these answers."""
        if not self._repeats:
            raise self._not_repeated("the model")

    @cached_property
    def _repeats(self) -> bool:
        """True if training again with everybody's records gives the model's answers."""
        return np.array_equal(fit(self.problem).predict(self.queries), self.labels)

    def _not_repeated(self, what: str) -> CheckError:
        """Return the error for a training that does not repeat.

        Args:
            what: what was trained again: the model, or some members.
        """
        return CheckError(
            f"training {what} again with everybody's records does not give this run's answers, so "
            "agt cannot tell what the person's records alone change: use the machine and the "
            "software of the training"
        )

    def _influence(
        self,
        labels: np.ndarray,
        method: InfluenceMethod,
        retrained: int = 0,
        shown: np.ndarray | None = None,
    ) -> Influence:
        """Compare labels without a person's records with the model's labels.

        Args:
            labels: [n] int64, without the person's records.
            method: how they were found.
            retrained: how many models or members were trained for them.
            shown: [n] bool, where ``labels`` are known to be right; None: everywhere.
        """
        is_shown = np.ones(len(labels), dtype=bool) if shown is None else shown
        outcomes = np.where(labels == self.labels, Outcome.SAME, Outcome.CHANGED).astype(np.int64)
        outcomes[~is_shown] = Outcome.NOT_SHOWN
        return Influence(outcomes, np.where(is_shown, labels, UNANSWERED), method, retrained)
