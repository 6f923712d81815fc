"""Members on disjoint shards that answer together by vote, whatever they are
(``certificate=votes``).

A member that is a function of its own shard alone needs no certificate of its own, because one k
changes at most the votes of the members whose shards it touches (``plain_vote`` in
certificates/votes.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, conditions_from, shards_fact, symmetric_fact
from agt.certificates.vote_certificates import VoteCertificates
from agt.certificates.vote_costs import count_votes
from agt.certificates.votes import plain_vote
from agt.data.arrays import ROWS
from agt.data.records import Records
from agt.distributed import group
from agt.errors import ConfigError
from agt.facts import Fact, evidence, proved
from agt.messages import Message
from agt.models.closed_form import ClosedFormKind, ClosedFormModel
from agt.models.kind import BoundedQuantity, UnreadReason
from agt.models.shares import shares_of_leads
from agt.problem import Settings
from agt.relations import RELATIONS
from agt.settings import BatchConfig, TrainingConfig
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.ensemble import EnsembleConfig, shards, usual_members
from agt.training.loop import OnProgress, row_reporter

CONSTANTS = "votes.json"
MOST_CLASSES = 2**15 - 1  # that a vote, of 16 bits, names


class VotingKind(ClosedFormKind):
    """A kind whose members are one model, and none has a certificate of its own."""

    bounded: ClassVar[BoundedQuantity] = "vote counts"
    covers_retraining = True

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Everything that trains one head: members have one setting, their strength."""
        names = ("epochs", "lr", "lr_min", "decay", "loss", "clip", "weight_decay")
        unread: Mapping[str, UnreadReason] = {f"training.{name}": "own strength" for name in names}
        return {**super().unread_settings, **unread}

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return False: the members vote as one model."""
        return False

    @classmethod
    def usual_members(cls, size: float, caution: float, relation: str) -> int:
        """Return the recipe's number of members for so many records; one head where labels flip."""
        if RELATIONS[relation].counts_label_flips:
            return 1  # one head, exactly certified, is what to begin with
        return usual_members(size, caution)

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where there is one member, or a vote of anything but labels."""
        ensemble = settings.ensemble
        needs_several = not RELATIONS[settings.relation.name].counts_label_flips
        if (needs_several and ensemble.members == 1) or ensemble.vote != "labels":
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members} {config:ensemble.vote}={vote}: "
                    "certificate=votes counts the labels of many small members: give the "
                    "declared size with {config:dataset.declared_size}=N (the recipe then "
                    "uses one member for every 100 records), or give "
                    "{config:ensemble.members}=T, a public constant, with "
                    "{config:ensemble.vote}=labels",
                    members=ensemble.members,
                    vote=ensemble.vote,
                )
            )

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError where there are more classes than a vote names."""
        if classes > MOST_CLASSES:
            raise ConfigError(
                f"certificate=votes: the data set has {classes:,} classes, but a vote "
                f"supports at most {MOST_CLASSES:,}"
            )


@dataclass(frozen=True)
class Votes(ClosedFormModel):
    """Members of which nothing is known but that each is a function of its own shard."""

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """Why each member is such a function, by the letters of the conditions that ask."""
        raise NotImplementedError

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray]:
        """The feature map whose values members see."""
        return self.phi

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return [T, lines, n] how each member labels: 1 for the line's class, -1 for another.

        There is a line for each class; of two classes, one line for class 1.
        """
        classes = self.problem.classes
        lines = np.arange(1 if classes == 2 else 0, classes)
        labels = self.labels(self.phi(features))
        return np.where(labels[:, None] == lines[:, None], 1.0, -1.0)

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return [T, n] int16: each member's label of each query, from its public features [n,
        w].
        """
        raise NotImplementedError

    def _dealt(self, records: Records) -> Iterator[Records]:
        """Return the records of each member in turn, in the order of their ids.

        Raises:
            ConfigError: a unit has too many rows.
        """
        # before the first shard is asked for
        check_unit_rows(records.units, self.settings.relation.unit_rows)
        ensemble = self.settings.ensemble
        member_of = shards(records.units, ensemble)
        by_member = np.lexsort((records.ids, member_of))
        bounds = np.searchsorted(member_of[by_member], np.arange(ensemble.members + 1))
        rows = (by_member[start:end] for start, end in pairwise(bounds))
        return map(records.take, rows)

    @property
    def training(self) -> TrainingConfig:
        """The settings of training, of which members take only the precision of features."""
        return self.settings.training

    @property
    def plan(self) -> BatchPlan:
        """The plan of one batch that holds every record; nothing is divided by its normaliser."""
        return BatchPlan.from_settings(
            BatchConfig(count=1), 1, self.problem.dataset.declared_size, self.problem.trained_on
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a to g."""
        settings = self.settings
        dataset = self.problem.dataset
        facts = self.member_facts
        touches = RELATIONS[settings.relation.name].touches
        moved = proved("vote_changes") if touches == 1 else proved("votes_change", touches=touches)
        found = {
            "a": evidence(proved("every_k_counted")),
            "b": dataset.selection.with_facts(
                shards_fact(settings.ensemble.members, touches), *facts["b"]
            ),
            "c": evidence(*facts["c"]),
            "d": evidence(moved),
            "e": dataset.preprocessing.with_facts(*facts["e"], settings.choices),
            "f": evidence(*facts["f"]),
            "g": evidence(symmetric_fact(settings.relation)),
        }
        return conditions_from(found, "a record moves one vote")

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The number of members, and the largest distance."""
        return {"members": self.settings.ensemble.members, "k_max": self.max_distance}

    @property
    def max_distance(self) -> int:
        """The largest distance: as many votes as there are."""
        return self.settings.ensemble.members

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return [n, C] float64, each class's share of votes; of two classes [n, 1], by how much
        class 1 leads class 0.
        """
        votes = count_votes(self.labels(phi), self.problem.classes)
        shares = votes.T / self.settings.ensemble.members
        if self.problem.classes != 2:
            return shares
        return shares[:, 1:] - shares[:, :1]

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return [n, C] each class's share of the members' votes."""
        return shares_of_leads(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return the stable distances of the vote.

        Args:
            features: [n, ...] the queries.
            ks: None: the distances themselves, whatever k; else certificates at these k, so that
                none reaches beyond the last.
            on_progress: is told of the queries that are done.
        """
        relation = self.settings.relation.name
        classes = self.problem.classes
        count = len(features)

        def labels_of_rows(rows: slice) -> np.ndarray:
            return self.labels(self.phi(features[rows]))

        parts = group().shared(count, ROWS, labels_of_rows, row_reporter(on_progress, count))
        labels = np.concatenate(list(parts), axis=1)
        vote = plain_vote(count_votes(labels, classes), touches=RELATIONS[relation].touches)
        if ks is not None:
            certified = np.array([vote.distance >= k for k in ks])
            return Certificates(ks, relation, vote.prediction, certified)
        no_distances = np.broadcast_to(np.int64(0), labels.shape)
        return VoteCertificates.from_members(relation, vote, vote, labels, no_distances, classes)
