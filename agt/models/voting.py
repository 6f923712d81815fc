"""The base classes of ``certificate=votes``: members trained on disjoint shards that vote.

A shard is one member's part of the training records. A member depends only on its own shard. So one
edit of the dataset (one unit of k) can change only the votes of the members whose shards it
touches, and the margin of the vote gives the certificate.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, conditions_from, shards_fact, symmetric_fact
from agt.certificates.vote_certificates import VoteCertificates
from agt.certificates.vote_costs import count_votes
from agt.certificates.votes import Vote, plain_vote
from agt.data.records import Records
from agt.data.target import Target
from agt.errors import ConfigError
from agt.facts import Fact, declared, evidence, proved
from agt.messages import Message
from agt.models.closed_form import ClosedFormKind, ClosedFormModel
from agt.models.kind import UnreadReason
from agt.models.model import map_queries
from agt.models.shares import shares_of_leads
from agt.models.votes_recipe import VotesRecipe
from agt.numeric import signed_margins
from agt.problem import Settings
from agt.relations import RELATIONS
from agt.settings import RECIPE, BatchConfig, TrainingConfig
from agt.store.json_text import Metrics
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.ensemble import assign_shards
from agt.training.loop import OnProgress, ignore_progress

CONSTANTS = "votes.json"
MAX_CLASSES = 2**15 - 1  # a vote is stored as a signed integer of 16 bits


class VotingKind(ClosedFormKind):
    """A kind of certificate for an ensemble whose members vote, which is handled as one model.

    The members have no certificates of their own.

    Attributes:
        strength: the factor of the regulariser of agt's own members; a learner of the user's own
            does not read it. "recipe" is replaced by a number before training.
    """

    strength: float | Literal["recipe"]
    bounded = "vote counts"
    covers_retraining = True

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Dotted name of a setting that training does not read -> the reason.

        Members do not read the settings of gradient training. Their only setting is the strength of
        the regulariser.
        """
        names = ("epochs", "lr", "lr_min", "decay", "loss", "clip", "weight_decay")
        unread: Mapping[str, UnreadReason] = {f"training.{name}": "own strength" for name in names}
        return {**super().unread_settings, **unread}

    @classmethod
    def default_members(
        cls, size: float, unit_rows: int, caution: float, relation: str, recipe: VotesRecipe
    ) -> int:
        """Return the default number of members.

        Args:
            size: the declared number of records.
            unit_rows: the public limit on the records of one person.
            caution: a factor on the number of members. More members certify more edits, and are
                less accurate.
            relation: the name of the neighbour relation. Under ``flip`` (labels change) the
                default is 1, because the edits that change a single member's label can be counted
                exactly.
            recipe: the number of records and people for each member.
        """
        if RELATIONS[relation].counts_label_flips:
            return 1
        return recipe.members(size, caution, unit_rows)

    def with_recipe(self, recipe: VotesRecipe) -> Self:
        """Return the settings with the recipe's strength if the strength was left at "recipe".

        Args:
            recipe: the default settings of votes on data of this kind.
        """
        if self.strength != RECIPE:
            return self
        return replace(self, strength=recipe.strength)  # type: ignore[type-var]

    def check(self, settings: Settings) -> None:
        """Raise ConfigError unless there are several members that vote by their labels.

        Under ``relation=flip`` (labels change) one member is allowed, too. Other settings are
        checked as for every kind in closed form.

        Args:
            settings: all settings.
        """
        super().check(settings)
        ensemble = settings.ensemble
        needs_several = not RELATIONS[settings.relation.name].counts_label_flips
        if (needs_several and ensemble.members == 1) or ensemble.vote != "labels":
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members} and {config:ensemble.vote}={vote} are "
                    "not possible with certificate=votes, which counts the labels of many small "
                    "members. Give the declared size with {config:dataset.declared_size}=N, from "
                    "which the recipe computes the number of members. Or give "
                    "{config:ensemble.members}=T, a public constant, with "
                    "{config:ensemble.vote}=labels",
                    members=ensemble.members,
                    vote=ensemble.vote,
                )
            )

    def check_target(self, target: Target, settings: Settings) -> None:
        """Raise ConfigError if there are more classes than a 16-bit integer, a vote, can hold.

        Numbers are supported by members whose learner gives numbers, unless the relation counts
        changed labels, which is done for classes only.

        Args:
            target: the kind of labels: classes, or numbers in a public range.
            settings: all settings of the training.
        """
        if target.numeric is not None:
            self.check_numbers(settings)
            return
        classes = len(target.classes)
        if classes > MAX_CLASSES:
            raise ConfigError(
                f"certificate=votes: the data set has {classes:,} classes, but a vote "
                f"supports at most {MAX_CLASSES:,}: merge classes, or use another certificate"
            )

    def check_numbers(self, settings: Settings) -> None:
        """Raise ConfigError if members cannot answer with numbers under these settings.

        Args:
            settings: all settings of the training.
        """
        relation = settings.relation.name
        if RELATIONS[relation].counts_label_flips:
            raise ConfigError(
                Message(
                    "{config:relation}={relation} counts changed labels of classes, but "
                    "{config:dataset.target}=numeric: use {config:relation}=add_remove or "
                    "{config:relation}=substitute",
                    relation=relation,
                )
            )


@dataclass(frozen=True)
class Votes(ClosedFormModel):
    """A model of T members that vote; each member depends only on its own shard of the records.

    A subclass defines ``labels``, ``constants`` and ``member_facts``.
    """

    @property
    def constants(self) -> dict[str, Any]:
        """The public constants that votes.json records, by name.

        Every subclass overrides it; this default raises NotImplementedError.
        """
        raise NotImplementedError

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """The reasons why each member depends only on its own shard.

        Every subclass overrides it; this default raises NotImplementedError.

        Returns:
            The letter of a condition of a privacy claim (docs/method.md) -> the facts that support
            it. There are letters b, c, e and f.
        """
        raise NotImplementedError

    @property
    def shard_votes(self) -> Self:
        """The model itself: each of its members depends on its own shard alone."""
        return self

    @property
    def public_features(self) -> Callable[[np.ndarray], np.ndarray]:
        """The function from raw features [n, ...] to the features [n, w] that members take."""
        return self.phi

    def member_margins(self, features: np.ndarray) -> np.ndarray:
        """Return the votes of each of the T members as margins, 1 for a class and -1 against it.

        Args:
            features: [n, ...] the queries.

        Returns:
            For two classes [T, 1, n], 1 where the member votes for class 1. For more classes
            [T, C, n], 1 where the member votes for that class.
        """
        classes = self.problem.classes
        first_class = 1 if classes == 2 else 0
        compared_classes = np.arange(first_class, classes)
        labels = self.labels_of_queries(features)
        votes_for_class = labels[:, None] == compared_classes[:, None]  # [T, classes, n]
        return np.where(votes_for_class, 1.0, -1.0)

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            phi: [n, w] the values of the public feature map for the queries.
        """
        raise NotImplementedError

    def labels_of_queries(self, features: np.ndarray) -> np.ndarray:
        """Return each member's label of each query [n, ...], [T, n]."""
        return self.labels(self.phi(features))

    def retrained_labels(
        self, records: Records, indices: Sequence[int], phi: np.ndarray
    ) -> np.ndarray:
        """Train some members on their shards of other records, and return their labels of queries.

        The model itself, and votes that it stores, are not changed. Every subclass overrides it;
        this default raises NotImplementedError.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            indices: the indices of the members to train.
            phi: [n, w] the values of the public feature map for the queries.

        Returns:
            [len(indices), n] int16.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``; or the members' learner
                is the user's own, and is not available in this process.
        """
        raise NotImplementedError

    def _shards_of(self, records: Records, indices: Sequence[int]) -> list[Records]:
        """Return the shards of some members, in the order of ``indices``.

        Args:
            records: the records of all members.
            indices: the indices of the members.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        is_in_shards = np.isin(assign_shards(records.units, self.settings.ensemble), indices)
        shards = list(self._member_records(records.take(is_in_shards)))
        return [shards[index] for index in indices]

    def _member_records(self, records: Records) -> Iterator[Records]:
        """Return an iterator over the T shards of the records, in the order of the members.

        All rows of a unit (a person) are in the same shard. The rows of a shard are sorted by
        their ids, so that a member does not depend on the order of the records.

        Args:
            records: the records of all members.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        # A generator is returned, and not made by ``yield``, so that this check is made at once.
        check_unit_rows(records.units, self.settings.relation.unit_rows)
        ensemble = self.settings.ensemble
        shard_of_rows = assign_shards(records.units, ensemble)
        # Sorted by shard and, within a shard, by id.
        rows_by_shard = np.lexsort((records.ids, shard_of_rows))
        member_indices = np.arange(ensemble.members + 1)
        # Member i has rows_by_shard[bounds[i]:bounds[i + 1]].
        bounds = np.searchsorted(shard_of_rows[rows_by_shard], member_indices)
        return (records.take(rows_by_shard[start:end]) for start, end in pairwise(bounds))

    @property
    def training(self) -> TrainingConfig:
        """The training settings, of which members use only the precision of features."""
        return self.settings.training

    @property
    def plan(self) -> BatchPlan:
        """The plan of a single batch with all records, which reports show; no member reads it."""
        return BatchPlan.from_settings(
            BatchConfig(count=1), 1, self.problem.dataset.declared_size, self.problem.record_count
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order.

        Each says whether it is proved, declared by the user, or not met, and from which facts.
        """
        settings = self.settings
        dataset = self.problem.dataset
        facts = self.member_facts
        in_shards = shards_fact(settings.ensemble.members, self.members_per_edit)
        votes_change = proved("vote_changes")
        if self.members_per_edit != 1:
            votes_change = proved("votes_change", touches=self.members_per_edit)
        evidence_of = {
            # every k is certified
            "a": evidence(proved("every_k_counted")),
            # a record's split and shard, and the member trained on it, depend on no other record
            "b": dataset.selection.with_facts(in_shards, *facts["b"]),
            # the members' settings are public constants
            "c": evidence(*facts["c"], *self._size_facts),
            # one edit changes few votes
            "d": evidence(votes_change),
            # preprocessing and settings use public data only
            "e": dataset.preprocessing.with_facts(*facts["e"], settings.choices),
            # no rounding error is left out
            "f": evidence(*facts["f"]),
            # if D' is a neighbour of D, then D is one of D'
            "g": evidence(symmetric_fact(settings.relation)),
        }
        name_of_condition_d = "a record moves one vote"
        return conditions_from(evidence_of, name_of_condition_d)

    @property
    def _size_facts(self) -> tuple[Fact, ...]:
        """Why the declared size of the data is public; empty: no size was declared.

        The recipe computes the number of members from it (docs/recipe_reference.md), so a size that
        depended on the records would make this number depend on them.
        """
        dataset = self.problem.dataset
        size = dataset.declared_size
        if size is None:
            return ()
        fact = dataset.size
        if fact is None:  # the dataset has no separate evidence for the declared size
            fact = declared("size_public", size=size, setting="dataset.declared_size")
        return (fact,)

    @property
    def metrics(self) -> Metrics:
        """The number of members, and an upper bound on every stable distance, for a run's metrics.

        The stable distance of a query is the largest number of edits of the training records that
        cannot change its label.
        """
        return {"members": self.settings.ensemble.members, "k_max": self.max_distance}

    @property
    def max_distance(self) -> int:
        """A public upper bound on every stable distance: the number of votes.

        The stable distance of a query is the largest number of edits of the training records that
        cannot change its label.
        """
        return self.settings.ensemble.members

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the fraction of the votes that each class has, in the place of logits.

        Args:
            phi: [n, w] the values of the public feature map for the queries.

        Returns:
            For two classes [n, 1] float64, the fraction of class 1 less that of class 0. For more
            classes [n, C] float64, the fraction of each class.
        """
        return self._logits_of_labels(self.labels(phi))

    def _logits_of_labels(self, labels: np.ndarray) -> np.ndarray:
        """Return the logits of queries, computed from their members' labels.

        Args:
            labels: [T, n] each member's label of each query.
        """
        votes = count_votes(labels, self.problem.classes)
        shares = votes.T / self.settings.ensemble.members
        if self.problem.classes != 2:
            return shares
        return shares[:, 1:] - shares[:, :1]

    def certified_margins(self, features: np.ndarray, certificates: Certificates) -> np.ndarray:
        """Return ``margins`` of queries that were certified, to the same bits.

        The members' labels are those of the certificates, if these have them.

        Args:
            features: [n, ...] the queries.
            certificates: the certificates of these queries, as ``certify`` of this model returned
                them.
        """
        if not isinstance(certificates, VoteCertificates):
            return self.margins(features)
        return signed_margins(self._logits_of_labels(certificates.members))

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return the fraction of the votes that each class has, [n, C] float64.

        Args:
            features: [n, ...] the queries.
        """
        return shares_of_leads(self.margins(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return the labels of queries, and the numbers of edits that cannot change them.

        Args:
            features: [n, ...] the queries.
            ks: None: the result has the exact stable distances (the largest number of edits that
                cannot change a label). Else it says only for these k whether k edits can change a
                label, so that no stable distance exceeds the last of them.
            on_progress: called with the number of finished queries.
        """
        blocks = map_queries(features, self.labels_of_queries, on_progress)
        labels = np.concatenate(list(blocks), axis=1)
        counts = count_votes(labels, self.problem.classes)
        vote = plain_vote(counts, touches=self.members_per_edit)
        # A member's own stable distance is 0: any change of its shard may change its label. All
        # entries are a view of one number.
        member_distances = np.broadcast_to(np.int64(0), labels.shape)
        return self._certificates_of_vote(vote, labels, member_distances, ks)

    def _certificates_of_vote(
        self,
        vote: Vote,
        labels: np.ndarray,
        distances: np.ndarray,
        ks: tuple[int, ...] | None,
    ) -> Certificates:
        """Return the certificates of queries on which the members voted.

        Args:
            vote: the winners [n] and their stable distances.
            labels: [T, n] each member's label of each query.
            distances: [T, n] the members' own stable distances.
            ks: None: the result has the exact stable distances and the votes; else only whether
                each winner is certified at these k.
        """
        relation = self.settings.relation.name
        if ks is not None:
            certified = np.array([vote.distance >= k for k in ks])
            return Certificates(ks, relation, vote.prediction, certified)
        return VoteCertificates.from_members(
            relation, vote, vote, labels, distances, self.problem.classes
        )
