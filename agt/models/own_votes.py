"""``certificate=votes`` with members by a learner of the user's own (training/learners.py).

Members exist only in the process that trained them, so that no foreign object is ever loaded from a
file. What is stored is how each member labelled the queries that it was asked. A model that was
read back answers these queries and no others.

| file | tensors and constants |
|---|---|
| ballots.safetensors | "queries" [q, 32] uint8, the SHA-256 of each query's features |
| | "votes" [T, q] int16; "raised" [T] uint8, whether the learner raised on the member's shard |
| features.safetensors, votes.json | the public features, the public constants |
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field

from agt.data.arrays import pieces
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.facts import Fact, declared, proved
from agt.messages import Message
from agt.models.closed_form import read_features
from agt.models.features import FeatureMap
from agt.models.kind import UnreadReason
from agt.models.store import (
    FEATURES,
    FileReader,
    FileWriter,
    check_constants,
    read_tensors,
    write_tensors,
)
from agt.models.voting import CONSTANTS, Votes, VotingKind
from agt.problem import Problem
from agt.settings import FeaturesConfig, schema
from agt.store import as_json
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.learners import (
    COMPARED_QUERIES,
    RETRAINED_MEMBERS,
    Learner,
    Member,
    Shard,
    check_retrained,
    member_seed,
    single_threaded,
    unused_copy,
)
from agt.training.loop import OnProgress, Progress

BALLOTS = "ballots.safetensors"


@dataclass(frozen=True)
class OwnVotesModel(Votes):
    """Members by a learner of the user's own, or the votes that they gave.

    Formal guarantees
        * A query's label is that of the first time it was asked, whatever is asked beside it or
          later. So it is a function of the members, and of their shards under what condition b
          declares.
        * A query is identified by a hash of all its features. So the votes that are read back for
          it are its own, unless two queries collide under SHA-256.
        * Which queries are refused depends on those that were asked, and on no record.

    Attributes:
        raised: [T] uint8, 1 where the learner raised on a member's shard.
        config: the settings, which name the learner.
        members: the T members; empty in a model that was read back.
        ballots: the votes so far, [T] int16 by the query's digest.
    """

    raised: np.ndarray
    config: "OwnVotesKind"
    members: tuple[Member, ...] = ()
    ballots: dict[bytes, np.ndarray] = field(default_factory=dict, compare=False)

    @classmethod
    def untrained(cls, config: "OwnVotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Return the model before training, without members."""
        raised = np.zeros(problem.settings.ensemble.members, dtype=np.uint8)
        return cls(problem, features, raised, config)

    @classmethod
    def fit(
        cls,
        config: "OwnVotesKind",
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Train every member, and train some again in a fresh process to compare their labels.

        Args:
            config: the settings of the certificate.
            problem: the records and all other settings.
            on_progress: called after every member.
            checkpoints: not used.

        Raises:
            ConfigError: the learner is not available, or cannot be used.
            UnsoundError: the learner is not a function of its shard.
        """
        records = problem.dataset.train
        features = FeatureMap.from_dataset(config.features, problem.dataset)
        untrained = cls.untrained(config, problem, features)
        learner = untrained._learner
        # Copied before training, so that nothing the learner remembers of it reaches the copy.
        unused_learner = unused_copy(learner)
        width = untrained.phi(records.features[:0]).shape[1]
        learner.check(width, problem.classes)
        model = untrained.retrained(records, on_progress, checkpoints)
        model._compare_with_retrained(unused_learner, records)
        return model

    def _compare_with_retrained(self, unused_learner: Learner, records: Records) -> None:
        """Raise UnsoundError if the last members label otherwise when trained in a fresh process.

        Args:
            unused_learner: the learner as it was before any training.
            records: the records that all members were trained on.
        """
        last_shards = deque(enumerate(self._member_records(records)), RETRAINED_MEMBERS)
        last_shards.reverse()
        indices = [index for index, _ in last_shards]
        with single_threaded():
            shards = [self._shard(index, shard_records) for index, shard_records in last_shards]
        query_count = min(COMPARED_QUERIES, len(records))
        evenly_spaced = np.linspace(0, len(records) - 1, query_count)
        queries = records.take(evenly_spaced.astype(np.int64))
        phi = self.phi(queries.features)
        check_retrained(unused_learner, shards, phi, self._ask_members(phi, indices))

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Return the model with each member trained on its shard of other records, and no votes.

        Args:
            records: the records of all members.
            on_progress: called after every member.
            checkpoints: not used.

        Raises:
            ConfigError: the learner is not available, or a unit has too many rows.
        """
        count = self.max_distance
        members: list[Member] = []
        with single_threaded():
            for index, shard_records in enumerate(self._member_records(records)):
                shard = self._shard(index, shard_records)
                members.append(self._learner.train_member(shard))
                on_progress(Progress(index + 1, count, index + 1, count))
        raised = np.array([member.raised for member in members], dtype=np.uint8)
        return replace(self, raised=raised, members=tuple(members), ballots={})

    def _shard(self, member: int, records: Records) -> Shard:
        """Return all that a member is a function of: its features, labels and public seed."""
        seed = member_seed(self.settings.ensemble.key, member)
        return Shard(self.phi(records.features), records.labels, seed)

    def _ask_members(self, phi: np.ndarray, indices: Sequence[int]) -> np.ndarray:
        """Return the labels that some members give now, [len(indices), n].

        Args:
            phi: [n, w] public features of the queries.
            indices: the members to ask.
        """
        with single_threaded():
            return np.stack([self.members[index].labels(phi) for index in indices])

    @property
    def _learner(self) -> Learner:
        """The learner; raises ConfigError where only its name is known."""
        if self.settings.learner is None:
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: only the name of the learner {learner} is "
                    "known here, and agt does not import code that a record names: give the "
                    "learner on the command line of agt train, or as learner= of agt.fit",
                    learner=self.config.learner["_target_"],
                )
            )
        return self.settings.learner

    def phi(self, features: np.ndarray) -> np.ndarray:
        """Return what the members see of features [n, ...], [n, w] float64.

        These are the features as they are, unless the settings name a feature map.

        Raises:
            ConfigError: features of another width.
        """
        if not self._sees_features_as_they_are:
            return super().phi(features).astype(np.float64)
        super().phi(features[:0])  # called because it refuses features of another width
        flat = features.reshape(len(features), self.features.width)
        return flat.astype(np.float64)

    @property
    def _sees_features_as_they_are(self) -> bool:
        """Whether there is no feature map in front of the members."""
        return self.config.features == FeaturesConfig()

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError where queries cannot be answered.

        These are queries of another width, and those that a model without members was not asked.

        Args:
            features: [n, ...] queries.
        """
        for piece in pieces(features):
            self._new_queries(_digests(self.phi(piece)))

    def _new_queries(self, digests: Sequence[bytes]) -> list[int]:
        """Return the indices of the queries that were not asked before.

        Raises:
            ConfigError: there are such queries, and no members to answer them.
        """
        new = [query for query, digest in enumerate(digests) if digest not in self.ballots]
        if new and not self.members:
            raise ConfigError(
                Message(
                    "{unknown} of {queries} queries are new, but this model only stores the "
                    "votes of its learners on the queries given in training, not the "
                    "learners, so it can only answer those {saved} queries (for a run, the "
                    "test records: {config:dataset.test}; a map of the plane needs more "
                    "queries: map_resolution=0)",
                    unknown=len(new),
                    queries=len(digests),
                    saved=len(self.ballots),
                )
            )
        return new

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16, and remember it.

        Args:
            phi: [n, w] public features of the queries.

        Raises:
            ConfigError: a query was not asked before, and there are no members to answer it.
        """
        digests = _digests(phi)
        new = self._new_queries(digests)
        if new:
            new_digests = [digests[query] for query in new]
            votes = self._ask_members(phi[new], range(self.max_distance)).T
            self.ballots.update(zip(new_digests, votes, strict=True))
        return self._stored_votes(digests)

    def _stored_votes(self, digests: Sequence[bytes]) -> np.ndarray:
        """Return the stored votes on queries that were asked before, [T, n] int16."""
        votes = np.array([self.ballots[digest] for digest in digests], dtype=np.int16)
        return votes.reshape(-1, self.max_distance).T  # the shape of no queries is [T, 0], too

    @classmethod
    def load(cls, config: "OwnVotesKind", problem: Problem, reader: FileReader) -> Self:
        """Read the votes back.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a file is not what the settings imply, or a vote is for no class.
        """
        untrained = cls.untrained(config, problem, read_features(problem, reader))
        members = untrained.max_distance
        count = reader.json(CONSTANTS).get("queries")
        if type(count) is not int or count < 0:
            raise UnsoundError(
                f"{reader.folder}/{CONSTANTS}: the number of queries is {count!r}, which is "
                "not valid: train again"
            )
        byte = torch.zeros((), dtype=torch.uint8)
        label = torch.zeros((), dtype=torch.int16)
        expected = {"queries": byte.expand(count, 32), "votes": label.expand(members, count)}
        expected["raised"] = byte.expand(members)
        tensors = read_tensors(reader, BALLOTS, expected)
        digests = tensors["queries"].numpy()
        votes = tensors["votes"].numpy()
        raised = tensors["raised"].numpy()
        if not ((votes >= 0) & (votes < problem.classes)).all() or raised.max(initial=0) > 1:
            raise UnsoundError(
                f"{reader.folder}/{BALLOTS}: a vote is for a class that does not exist: train again"
            )
        ballots = {}
        for digest, votes_on_query in zip(digests, votes.T, strict=True):
            ballots[digest.tobytes()] = votes_on_query
        model = replace(untrained, raised=raised, ballots=ballots)
        # After the votes were read: the constants state how many queries are answered.
        check_constants(reader, CONSTANTS, model.constants)
        return model

    def save(self, writer: FileWriter) -> None:
        """Write the votes on the test records and on all other queries that were asked.

        The files are ballots.safetensors, features.safetensors and votes.json.
        """
        for piece in pieces(self.problem.dataset.test.features):
            self.labels(self.phi(piece))  # called because it remembers the votes
        digests = sorted(self.ballots)
        digest_bytes = np.frombuffer(b"".join(digests), dtype=np.uint8)
        queries = digest_bytes.reshape(-1, 32)
        votes = self._stored_votes(digests)
        arrays = {"queries": queries, "votes": votes, "raised": self.raised}
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        write_tensors(writer, BALLOTS, tensors)
        write_tensors(writer, FEATURES, self.features.matrices)
        writer.write(CONSTANTS, as_json(self.constants))

    @property
    def constants(self) -> dict[str, Any]:
        """The public constants, as in votes.json, and how many queries are answered."""
        ensemble = self.settings.ensemble
        return {
            "members": ensemble.members,
            "key": ensemble.key,
            "relation": self.settings.relation.name,
            "learner": dict(self.config.learner),
            "queries": len(self.ballots),
        }

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """Why each member is a function of its shard, by conditions: the user declares it."""
        is_function = declared(
            "learner_is_function",
            learner=str(self.config.learner["_target_"]),
            members=min(RETRAINED_MEMBERS, self.max_distance),
            setting="certificate.learner",
        )
        stated = proved("learner_stated")
        integers = proved("votes_are_integers")
        map_facts = () if self._sees_features_as_they_are else self.features.public
        return {"b": (is_function,), "c": (stated,), "e": map_facts, "f": (integers,)}

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """What all votes have, and on how many shards the learner raised."""
        return {**super().metrics, "raised": int(self.raised.sum())}


def _digests(phi: np.ndarray) -> list[bytes]:
    """Return the SHA-256 digests by which queries [n, w] float64 are identified."""
    without_negative_zeros = phi + 0.0  # equal features must have equal bytes
    return [sha256(row.tobytes()).digest() for row in without_negative_zeros]


@schema
class OwnVotesKind(VotingKind):
    """Votes of members by any deterministic learner (training/learners.py).

    Attributes:
        features: the public feature map in front of the members; by default they see features as
            they are.
        learner: the import path of the learner (``_target_``) and its settings. Reading these
            settings imports nothing; ``import_learner`` does.
        strength: not used, but a key of every configuration of votes.
    """

    name: Literal["votes"] = "votes"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    learner: Mapping[str, Any] = Field(default_factory=dict)
    strength: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.learner.get("_target_"), str):
            raise ValueError(
                "learner: give ridge, logistic, or the full name of your own learner in "
                "learner._target_"
            )

    @classmethod
    def reads(cls, node: Mapping[str, Any]) -> bool:
        """Return whether settings name a learner of the user's own, by a mapping."""
        return super().reads(node) and isinstance(node.get("learner"), Mapping)

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings that no vote reads, and the strength: the learner has its own settings."""
        return {**super().unread_settings, "certificate.strength": "own learner"}

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return the kind of votes by another learner of the user's own, and that learner.

        Raises:
            ConfigError: the argument is not a learner.
        """
        own = Learner.wrap(learner)
        return replace(self, learner=own.description), own

    def import_learner(self) -> Learner:
        """Return the learner that the settings name. Raises ConfigError: it cannot be imported."""
        return Learner.from_target(self.learner, "certificate.learner")

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> OwnVotesModel:
        """Train every member; raises as ``OwnVotesModel.fit``."""
        return OwnVotesModel.fit(self, problem, on_progress, checkpoints)

    def load(self, problem: Problem, reader: FileReader) -> OwnVotesModel:
        """Read the votes back; raises as ``OwnVotesModel.load``."""
        return OwnVotesModel.load(self, problem, reader)
