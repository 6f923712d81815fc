"""What all votes of members on disjoint shards have in common (``certificate=votes``).

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
MAX_CLASSES = 2**15 - 1  # a vote is stored as a signed integer of 16 bits


class VotingKind(ClosedFormKind):
    """A kind of certificate whose members form one model, and have no certificates of their own."""

    bounded: ClassVar[BoundedQuantity] = "vote counts"
    covers_retraining = True

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings of one head's training: members have one setting, their strength."""
        names = ("epochs", "lr", "lr_min", "decay", "loss", "clip", "weight_decay")
        unread: Mapping[str, UnreadReason] = {f"training.{name}": "own strength" for name in names}
        return {**super().unread_settings, **unread}

    def has_member_models(self, ensemble: EnsembleConfig) -> bool:
        """Return False: the members vote as one model."""
        return False

    @classmethod
    def usual_members(cls, size: float, caution: float, relation: str) -> int:
        """Return the recipe's number of members.

        Args:
            size: how many records were declared.
            caution: a factor on the number of members (``training.ensemble.usual_members``).
            relation: the neighbour relation; where it counts flipped labels there is one member,
                as its certificate is exact.
        """
        if RELATIONS[relation].counts_label_flips:
            return 1
        return usual_members(size, caution)

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where there is only one member, or the vote is not one of labels.

        One member is allowed where the relation counts flipped labels.
        """
        ensemble = settings.ensemble
        needs_several = not RELATIONS[settings.relation.name].counts_label_flips
        if (needs_several and ensemble.members == 1) or ensemble.vote != "labels":
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members} {config:ensemble.vote}={vote}: "
                    "certificate=votes counts the labels of many small members. Give the "
                    "declared size with {config:dataset.declared_size}=N (the recipe then "
                    "uses one member for every 100 records), or give "
                    "{config:ensemble.members}=T, a public constant, with "
                    "{config:ensemble.vote}=labels",
                    members=ensemble.members,
                    vote=ensemble.vote,
                )
            )

    def check_classes(self, classes: int) -> None:
        """Raise ConfigError where there are more classes than a stored vote can name."""
        if classes > MAX_CLASSES:
            raise ConfigError(
                f"certificate=votes: the data set has {classes:,} classes, but a vote "
                f"supports at most {MAX_CLASSES:,}"
            )


@dataclass(frozen=True)
class Votes(ClosedFormModel):
    """A model whose members vote, and are known only to be functions of their own shards."""

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """Why each member is such a function, by the letters of conditions b, c, e and f."""
        raise NotImplementedError

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray]:
        """The feature map whose values members see."""
        return self.phi

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return how each member labels queries, [T, lines, n]: 1 for the line's class, else -1.

        There is a line for each class; of two classes, one line for class 1.

        Args:
            features: [n, ...] queries.
        """
        classes = self.problem.classes
        first_class = 1 if classes == 2 else 0
        line_classes = np.arange(first_class, classes)
        labels = self.labels(self.phi(features))
        is_line_class = labels[:, None] == line_classes[:, None]
        return np.where(is_line_class, 1.0, -1.0)

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16.

        Args:
            phi: [n, w] public features of the queries.
        """
        raise NotImplementedError

    def _member_records(self, records: Records) -> Iterator[Records]:
        """Return an iterator over the members' records, each member's in the order of their ids.

        Raises:
            ConfigError: a unit has too many rows.
        """
        # This is no generator, so that it raises at the call and not at the first shard.
        check_unit_rows(records.units, self.settings.relation.unit_rows)
        ensemble = self.settings.ensemble
        shard_of_rows = shards(records.units, ensemble)
        rows_by_shard = np.lexsort((records.ids, shard_of_rows))
        shard_starts = np.arange(ensemble.members + 1)
        bounds = np.searchsorted(shard_of_rows[rows_by_shard], shard_starts)
        return (records.take(rows_by_shard[start:end]) for start, end in pairwise(bounds))

    @property
    def training(self) -> TrainingConfig:
        """The settings of training; members use only the precision of features."""
        return self.settings.training

    @property
    def plan(self) -> BatchPlan:
        """The plan of one batch with all records; no member uses its normaliser."""
        return BatchPlan.from_settings(
            BatchConfig(count=1), 1, self.problem.dataset.declared_size, self.problem.trained_on
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3."""
        settings = self.settings
        dataset = self.problem.dataset
        facts = self.member_facts
        touches = RELATIONS[settings.relation.name].touches
        in_shards = shards_fact(settings.ensemble.members, touches)
        votes_change = proved("vote_changes")
        if touches != 1:
            votes_change = proved("votes_change", touches=touches)
        evidence_of = {
            "a": evidence(proved("every_k_counted")),
            "b": dataset.selection.with_facts(in_shards, *facts["b"]),
            "c": evidence(*facts["c"]),
            "d": evidence(votes_change),
            "e": dataset.preprocessing.with_facts(*facts["e"], settings.choices),
            "f": evidence(*facts["f"]),
            "g": evidence(symmetric_fact(settings.relation)),
        }
        return conditions_from(evidence_of, "a record moves one vote")

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The number of members, and a number that no distance exceeds."""
        return {"members": self.settings.ensemble.members, "k_max": self.max_distance}

    @property
    def max_distance(self) -> int:
        """A public number that no distance exceeds: the number of votes."""
        return self.settings.ensemble.members

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return each class's share of votes, [n, C] float64.

        Of two classes it returns by how much the share of class 1 exceeds that of class 0, [n, 1].

        Args:
            phi: [n, w] public features of the queries.
        """
        votes = count_votes(self.labels(phi), self.problem.classes)
        shares = votes.T / self.settings.ensemble.members
        if self.problem.classes != 2:
            return shares
        return shares[:, 1:] - shares[:, :1]

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return each class's share of the votes on queries [n, ...], [n, C]."""
        return shares_of_leads(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return the stable distances of the vote.

        Args:
            features: [n, ...] queries.
            ks: None: the distances themselves, whatever k; else certificates at these k, so that
                no distance exceeds the last.
            on_progress: called with the number of finished queries.
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
