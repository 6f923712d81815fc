"""``certificate=votes`` whose members are trained by a learner of the user's own.

Members exist only in the process that trained them, because loading foreign objects from a file can
run foreign code. What is saved are the members' labels of the queries that were asked. A model that
was read back answers only these queries.

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
from typing import Any, ClassVar, Self

import numpy as np
import torch

from agt.certificates.settings import OwnVotesConfig
from agt.data.arrays import pieces
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError, altered
from agt.facts import Fact, declared, proved
from agt.messages import Message
from agt.models.closed_form import read_features
from agt.models.features import FeatureMap
from agt.models.kind import UnreadReason
from agt.models.number_votes import NumberVotes
from agt.models.store import FEATURES, FileWriter, check_constants, read_tensors, write_tensors
from agt.models.voting import CONSTANTS, Votes, VotingKind
from agt.problem import Problem
from agt.settings import FeaturesConfig, schema
from agt.store.folder import Folder
from agt.store.json_text import Metrics, as_json
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.lattice import LATTICE_STEPS
from agt.training.learners import (
    COMPARED_QUERIES,
    RETRAINED_MEMBERS,
    Learner,
    Member,
    Shard,
    check_retrained,
    copy_for_fresh_process,
    member_seed,
    single_threaded,
)
from agt.training.loop import OnProgress, Progress, ignore_progress

BALLOTS = "ballots.safetensors"
DIGEST_BYTES = 32  # of SHA-256


@dataclass(frozen=True)
class OwnVotesModel(Votes):
    """T members trained by a learner of the user's own, and the votes that they have given so far.

    Formal guarantees
        * The first votes on a query are stored and returned ever after. So they depend only on the
          members, and each on its member's shard if the learner is deterministic, as the user
          declares (for condition b of a privacy guarantee: each record is processed by itself).
        * Votes are stored under the SHA-256 of all features of a query, so that a query gets its
          own votes, unless two queries collide under SHA-256.
        * Which queries a model without members refuses depends on the queries that were asked, and
          on no training record.

    Attributes:
        raised: [T] uint8, 1 if the learner raised an error on the member's shard, else 0.
        config: the settings of the certificate, which name the learner.
        members: the T trained members; empty in a model that was read back.
        ballots: the digest of a query -> the votes on it, [T] int16. It grows as queries are asked.
    """

    raised: np.ndarray
    config: "OwnVotesKind"
    members: tuple[Member, ...] = ()
    ballots: dict[bytes, np.ndarray] = field(default_factory=dict, compare=False)
    vote_type: ClassVar[type[np.signedinteger]] = np.int16

    @property
    def _largest_vote(self) -> int:
        """The largest value of a vote: that of the last class."""
        return self.problem.classes - 1

    @classmethod
    def untrained(cls, config: "OwnVotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Return the model before training, without members and votes.

        Args:
            config: the settings of the certificate.
            problem: all other settings; its records are not read.
            features: the public feature map.
        """
        raised = np.zeros(problem.settings.ensemble.members, dtype=np.uint8)
        return cls(problem, features, raised, config)

    @classmethod
    def fit(
        cls,
        config: "OwnVotesKind",
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> Self:
        """Train all members, then train the last few again to test that the learner repeats itself.

        The second training runs in a fresh process. A difference in labels shows that the learner
        is not a function of its shard, as the certificate assumes.

        Args:
            config: the settings of the certificate.
            problem: the training records and all other settings.
            on_progress: called after every member.
            checkpoints: not used.

        Raises:
            ConfigError: the learner is not available in this process, or fails on synthetic rows;
                or a unit has more rows than ``relation.unit_rows``.
            UnsoundError: a member that was trained again gives other labels.
        """
        records = problem.dataset.train
        features = FeatureMap.from_dataset(config.features, problem.dataset)
        untrained = cls.untrained(config, problem, features)
        learner = untrained._learner
        # Copied before the training, so that the copy has no state that training leaves behind.
        unused_learner = copy_for_fresh_process(learner)
        features_of_no_rows = untrained.phi(records.features[:0])
        width = features_of_no_rows.shape[1]
        # An error on synthetic rows depends on no record, so it may stop the training here.
        untrained._check_learner(learner, width)
        model = untrained.retrained(records, on_progress, checkpoints)
        model._check_retrained_members(unused_learner, records)
        return model

    def _check_learner(self, learner: Learner, width: int) -> None:
        """Raise ConfigError if the learner fails on synthetic rows, which depend on no record.

        Args:
            learner: trains the members.
            width: the number of features of a row.
        """
        learner.try_on_random_rows(width, self.problem.classes)

    def _check_retrained_members(self, unused_learner: Learner, records: Records) -> None:
        """Train the last few members again in a fresh process, and check that labels stay the same.

        They are the last ones, trained in the opposite order, so that a learner which remembers
        earlier trainings gives other labels (Lemma 3 of docs/proofs/learners.md). Equal labels
        prove nothing.

        Args:
            unused_learner: the learner as it was before any training.
            records: the records that all members were trained on; some are used as queries.

        Raises:
            UnsoundError: a label differs.
        """
        numbered_shards = enumerate(self._member_records(records))
        # Such a deque keeps only the last items, so that not all shards are in memory at once.
        last_shards = deque(numbered_shards, maxlen=RETRAINED_MEMBERS)
        last_shards.reverse()
        indices = [index for index, _ in last_shards]
        with single_threaded():
            shards = [self._shard(index, shard_records) for index, shard_records in last_shards]
        query_count = min(COMPARED_QUERIES, len(records))
        evenly_spaced = np.linspace(0, len(records) - 1, query_count)
        queries = records.take(evenly_spaced.astype(np.int64))
        phi = self.phi(queries.features)
        earlier_labels = self._compute_member_labels(phi, indices)
        check_retrained(unused_learner, shards, phi, earlier_labels)

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> Self:
        """Train the members on the shards of other records, and return their model.

        The votes of the old members are not carried over.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            on_progress: called after every member.
            checkpoints: not used.

        Raises:
            ConfigError: the learner is not available in this process, or a unit has more rows than
                ``relation.unit_rows``.
        """
        count = self.settings.ensemble.members
        members: list[Member] = []
        with single_threaded():
            for index, shard_records in enumerate(self._member_records(records)):
                shard = self._shard(index, shard_records)
                members.append(self._learner.train_member(shard))
                on_progress(Progress.of_steps(index + 1, count))
        raised = np.array([member.raised for member in members], dtype=np.uint8)
        return replace(self, raised=raised, members=tuple(members), ballots={})

    def retrained_labels(
        self, records: Records, indices: Sequence[int], phi: np.ndarray
    ) -> np.ndarray:
        """Train some members on their shards of other records, and return their labels of queries.

        Stored votes are neither read nor changed.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            indices: the indices of the members to train.
            phi: [n, w] the features of the queries, as members take them.

        Returns:
            [len(indices), n] int16.

        Raises:
            ConfigError: the learner is not available in this process, or a unit has more rows than
                ``relation.unit_rows``.
        """
        learner = self._learner
        labels = []
        with single_threaded():
            for index, shard in zip(indices, self._shards_of(records, indices), strict=True):
                member = learner.train_member(self._shard(index, shard))
                labels.append(member.labels(phi))
        return np.stack(labels)

    def _shard(self, member: int, records: Records) -> Shard:
        """Return the input of one member's training: features, labels and a public seed.

        Args:
            member: the index of the member, from which its seed follows.
            records: the member's part of the training records.
        """
        seed = member_seed(self.settings.ensemble.key, member)
        return Shard(self.phi(records.features), records.labels, seed)

    def _compute_member_labels(self, phi: np.ndarray, indices: Sequence[int]) -> np.ndarray:
        """Compute the labels of queries by some members, [len(indices), n] int16.

        Stored votes are neither read nor changed.

        Args:
            phi: [n, w] the features of the queries, as members take them.
            indices: the indices of the members to ask.
        """
        with single_threaded():
            return np.stack([self.members[index].labels(phi) for index in indices])

    @property
    def _learner(self) -> Learner:
        """The learner that trains members.

        Raises:
            ConfigError: the model was loaded from files, which have only the learner's name. Code
                is not imported because a file names it.
        """
        if self.settings.learner is None:
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: a run's file only names its learner, "
                    "{learner}, and agt never imports code only because a file names it. Give "
                    "the learner on the command line of `agt train`, or as learner= of agt.fit",
                    learner=self.config.learner["_target_"],
                )
            )
        return self.settings.learner

    def phi(self, features: np.ndarray) -> np.ndarray:
        """Return the features that the members take, [n, w] float64.

        They are the raw features, flattened, or the values of the feature map that the settings
        name.

        Args:
            features: [n, ...] raw features of records or queries.

        Raises:
            ConfigError: the features have another width than those of the training.
        """
        if not self._takes_raw_features:
            return super().phi(features).astype(np.float64)
        self.features.check_width(features)
        flat = features.reshape(len(features), self.features.width)
        return flat.astype(np.float64)

    @property
    def _takes_raw_features(self) -> bool:
        """True if the settings name no feature map."""
        return self.config.features == FeaturesConfig()

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError if queries cannot be answered.

        A query has the wrong width; or the model was read back without its members, and there are
        no stored votes on the query.

        Args:
            features: [n, ...] the queries.
        """
        for piece in pieces(features):
            digests = _digests(self.phi(piece))
            self._check_can_answer(self._new_queries(digests), len(digests))

    def _new_queries(self, digests: Sequence[bytes]) -> list[int]:
        """Return the indices of the queries without stored votes.

        Args:
            digests: the digests of the queries (``_digests``).
        """
        return [query for query, digest in enumerate(digests) if digest not in self.ballots]

    def _check_can_answer(self, new: Sequence[int], query_count: int) -> None:
        """Raise ConfigError if there are new queries, but no members to answer them.

        Args:
            new: the indices of the queries without stored votes.
            query_count: the number of all queries, for the message.
        """
        if new and not self.members:
            raise ConfigError(
                Message(
                    "{unknown} of {queries} queries are new, but this model stores only the "
                    "votes of its learners on the {saved} queries of its training, not the "
                    "learners. Ask only about these queries (in a run, the test records: "
                    "{config:dataset.test}). The figure 'map of the plane' asks other queries: "
                    "leave it out with map_resolution=0",
                    unknown=len(new),
                    queries=query_count,
                    saved=len(self.ballots),
                )
            )

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16, and store it as its vote.

        A query that was asked before gets its stored votes.

        Args:
            phi: [n, w] the features of the queries, as members take them.

        Raises:
            ConfigError: there are no stored votes on a query, and no members to answer it.
        """
        digests = _digests(phi)
        new = self._new_queries(digests)
        self._check_can_answer(new, len(digests))
        if new:
            new_digests = [digests[query] for query in new]
            all_members = range(self.settings.ensemble.members)
            votes = self._compute_member_labels(phi[new], all_members).T  # [new queries, T]
            self.ballots.update(zip(new_digests, votes, strict=True))
        return self._stored_votes(digests)

    def _stored_votes(self, digests: Sequence[bytes]) -> np.ndarray:
        """Return the stored votes of the T members on n queries, [T, n] int16.

        Args:
            digests: the digests of the queries, each of which has stored votes.
        """
        votes = np.array([self.ballots[digest] for digest in digests], dtype=self.vote_type)
        # Reshaped so that the result for no queries is [T, 0].
        return votes.reshape(-1, self.settings.ensemble.members).T

    @classmethod
    def load(cls, config: "OwnVotesKind", problem: Problem, reader: Folder) -> Self:
        """Read the stored votes back, as a model without members.

        Args:
            config: the settings of the certificate.
            problem: all other settings; its records are not read.
            reader: the folder that ``save`` wrote.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a constant, shape or type differs from what the settings imply, or a vote
                is not a class.
        """
        untrained = cls.untrained(config, problem, read_features(problem, reader))
        members = problem.settings.ensemble.members
        # How many queries there are is needed before their votes can be read.
        count = reader.json(CONSTANTS).get("queries")
        if type(count) is not int or count < 0:
            raise UnsoundError(
                altered(
                    reader.folder / CONSTANTS, f"the number of queries is {count!r}", "train again"
                )
            )
        # Each expected tensor is one number, expanded to the shape, so that it takes no memory.
        byte = torch.zeros((), dtype=torch.uint8)
        label = torch.from_numpy(np.zeros(1, dtype=cls.vote_type))
        expected = {
            "queries": byte.expand(count, DIGEST_BYTES),
            "votes": label.expand(members, count),
            "raised": byte.expand(members),
        }
        tensors = read_tensors(reader, BALLOTS, expected)
        digests = tensors["queries"].numpy()
        votes = tensors["votes"].numpy()
        raised = tensors["raised"].numpy()
        are_votes = (votes >= 0) & (votes <= untrained._largest_vote)
        if not are_votes.all() or raised.max(initial=0) > 1:
            raise UnsoundError(
                altered(
                    reader.folder / BALLOTS,
                    "a vote is for a class that does not exist",
                    "train again",
                )
            )
        ballots = {}
        for digest, votes_on_query in zip(digests, votes.T, strict=True):
            ballots[digest.tobytes()] = votes_on_query
        model = replace(untrained, raised=raised, ballots=ballots)
        # Checked last, because the constants include the number of queries with votes.
        check_constants(reader, CONSTANTS, model.constants)
        return model

    def save(self, writer: FileWriter) -> None:
        """Write the votes on the test records and on every other query that was asked.

        The files are ballots.safetensors, features.safetensors and votes.json. The members are not
        written.
        """
        for piece in pieces(self.problem.dataset.test.features):
            self.labels(self.phi(piece))  # called because it stores the votes
        digests = sorted(self.ballots)  # so that the files do not depend on the order of queries
        digest_bytes = np.frombuffer(b"".join(digests), dtype=np.uint8)
        queries = digest_bytes.reshape(-1, DIGEST_BYTES)
        votes = self._stored_votes(digests)
        arrays = {"queries": queries, "votes": votes, "raised": self.raised}
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        write_tensors(writer, BALLOTS, tensors)
        write_tensors(writer, FEATURES, self.features.matrices)
        writer.write(CONSTANTS, as_json(self.constants))

    @property
    def constants(self) -> dict[str, Any]:
        """The public constants that votes.json records, by name."""
        ensemble = self.settings.ensemble
        return {
            "members": ensemble.members,
            "key": ensemble.key,  # of the hash that assigns units to shards
            "relation": self.settings.relation.name,
            "learner": dict(self.config.learner),
            "queries": len(self.ballots),  # how many queries have stored votes
        }

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """The reasons why each member depends only on its own shard: the user declares it.

        Returns:
            The letter of a condition of a privacy claim (docs/method.md) -> the facts that support
            it.
        """
        is_function = declared(
            "learner_is_function",
            learner=str(self.config.learner["_target_"]),
            members=min(RETRAINED_MEMBERS, self.max_distance),
            setting="certificate.learner",
        )
        map_facts = () if self._takes_raw_features else self.features.facts
        return {
            "b": (is_function,),  # a member depends on no record outside of its shard
            "c": (proved("learner_stated"),),  # the learner is a public constant
            "e": map_facts,  # the feature map comes from public data only
            "f": (proved("votes_are_integers"),),  # votes have no rounding error
        }

    @property
    def metrics(self) -> Metrics:
        """The metrics of every vote, and ``raised``, the number of shards whose training failed."""
        return {**super().metrics, "raised": int(self.raised.sum())}


@dataclass(frozen=True)
class OwnNumberVotesModel(NumberVotes, OwnVotesModel):
    """T members of the user's own learner that answer with numbers, and their answers so far.

    Votes are points of the lattice of the declared range.
    """

    vote_type = np.int32

    @property
    def _largest_vote(self) -> int:
        """The last point of the lattice."""
        return LATTICE_STEPS

    def _check_learner(self, learner: Learner, width: int) -> None:
        """Raise ConfigError if the learner gives no finite numbers on synthetic rows."""
        learner.try_on_random_rows(width, 0, self.target)

    def _shard(self, member: int, records: Records) -> Shard:
        """Return the input of one member's training, with the range of its labels."""
        return replace(super()._shard(member, records), numbers=self.target)


def _digests(phi: np.ndarray) -> list[bytes]:
    """Return the SHA-256 of each row's bytes, under which votes on a query are stored.

    Args:
        phi: [n, w] float64 features of the queries.
    """
    without_negative_zeros = phi + 0.0  # -0.0 and 0.0 are equal, and must have equal bytes
    return [sha256(row.tobytes()).digest() for row in without_negative_zeros]


def _model_class(problem: Problem) -> type[OwnVotesModel]:
    """Return the class of models for the labels of a problem: classes or numbers."""
    return OwnVotesModel if problem.dataset.target.numeric is None else OwnNumberVotesModel


@schema
class OwnVotesKind(OwnVotesConfig, VotingKind):
    """Certificates by the vote of members that a learner of the user's own trains.

    The learner must be deterministic: the same shard and seed must give the same member.
    """

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Dotted name of a setting that training does not read -> the reason.

        The regulariser's strength is among them, because the learner has its own settings.
        """
        return {**super().unread_settings, "certificate.strength": "own learner"}

    @property
    def normalises_records(self) -> bool:
        """False without a feature map, because the learner gets the features as they are."""
        return self.features.map != "none" and super().normalises_records

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return these settings with another learner of the user's own, and that learner.

        Args:
            learner: an estimator with fit and predict, or a function.

        Raises:
            ConfigError: the object has neither ``fit`` and ``predict``, nor can it be called.
        """
        wrapped = Learner.wrap(learner)
        return replace(self, learner=wrapped.description), wrapped

    def import_learner(self) -> Learner:
        """Import and return the learner that the settings name.

        Raises:
            ConfigError: the code cannot be imported.
        """
        return Learner.from_target(self.learner, "certificate.learner")

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> OwnVotesModel:
        """Train all members, and train the last few again to test that the learner repeats itself.

        Args:
            problem: the training records and all other settings.
            on_progress: called after every member.
            checkpoints: not used.

        Raises:
            ConfigError: the learner is not available in this process, or fails on synthetic rows;
                or a unit has more rows than ``relation.unit_rows``.
            UnsoundError: a member that was trained again gives other labels.
        """
        return _model_class(problem).fit(self, problem, on_progress, checkpoints)

    def load(self, problem: Problem, reader: Folder) -> OwnVotesModel:
        """Read the stored votes back, as a model without members.

        Args:
            problem: all other settings; its records are not read.
            reader: the folder of the model.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what is stored is not what the settings imply.
        """
        return _model_class(problem).load(self, problem, reader)
