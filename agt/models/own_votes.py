"""``certificate=votes`` with members by a learner of the user's own (training/learners.py): votes,
and no models.

Members live as long as the process that trained them. What is kept is how each of them labelled the
queries that it was asked, so that nothing of a stranger's is ever loaded; a model read back answers
these queries and no others.

ballots.safetensors "queries" [q, 32] uint8, SHA-256 of each query's features; "votes" [T, q] int16;
"raised" [T] uint8, of which shards the learner raised; features.safetensors; votes.json: the public
constants

Formal guarantees
    A label is that of the query's first asking, whatever is asked beside it or later: a function of
    the members, and so of their shards, under what condition b declares. A query is known by a hash
    of all its features, so what is read back for it is what the members said of it, unless two
    queries collide under SHA-256. Which queries are refused depends on those that were asked, and
    on no record.
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
    """Members, or what is left of them.

    Attributes:
        raised: [T] uint8: whether the learner raised on a member's shard.
        config: the settings, which name the learner.
        members: who answers; none of a model read back.
        ballots: the votes so far, by a query's digest: [T] int16.
    """

    raised: np.ndarray
    config: "OwnVotesKind"
    members: tuple[Member, ...] = ()
    ballots: dict[bytes, np.ndarray] = field(default_factory=dict, compare=False)

    @classmethod
    def untrained(cls, config: "OwnVotesKind", problem: Problem, features: FeatureMap) -> Self:
        """No members."""
        return cls(
            problem, features, np.zeros(problem.settings.ensemble.members, dtype=np.uint8), config
        )

    @classmethod
    def fit(
        cls,
        config: "OwnVotesKind",
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Train every member, and some again in a fresh process.

        Raises:
            ConfigError: the learner is not at hand, or cannot be used.
            UnsoundError: it is no function of its shard.
        """
        features, records = (
            FeatureMap.from_dataset(config.features, problem.dataset),
            problem.dataset.train,
        )
        model = cls.untrained(config, problem, features)
        learner = model._learner
        unused = unused_copy(learner)  # whatever it keeps of its trainings stays here
        learner.check(model.phi(records.features[:0]).shape[1], problem.classes)
        made = model.retrained(records, on_progress, checkpoints)
        last = deque(enumerate(made._dealt(records)), RETRAINED_MEMBERS)
        with single_threaded():
            shards = [made._shard(at, some) for at, some in reversed(last)]
        count = min(COMPARED_QUERIES, len(records))
        compared = np.linspace(0, len(records) - 1, count).astype(np.int64)
        phi = made.phi(records.take(compared).features)
        check_retrained(unused, shards, phi, made._labels(phi, [at for at, _ in reversed(last)]))
        return made

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """A member for each shard."""
        members: list[Member] = []
        with single_threaded():
            for at, some in enumerate(self._dealt(records)):
                members.append(self._learner.train_member(self._shard(at, some)))
                on_progress(Progress(at + 1, self.max_distance, at + 1, self.max_distance))
        raised = np.array([member.raised for member in members], dtype=np.uint8)
        return replace(self, raised=raised, members=tuple(members), ballots={})

    def _shard(self, at: int, records: Records) -> Shard:
        """What a member is a function of."""
        return Shard(
            self.phi(records.features), records.labels, member_seed(self.settings.ensemble.key, at)
        )

    def _labels(self, phi: np.ndarray, which: Sequence[int]) -> np.ndarray:
        """[m, n]: what some of the members say now."""
        with single_threaded():
            return np.stack([self.members[at].labels(phi) for at in which])

    @property
    def _learner(self) -> Learner:
        if self.settings.learner is None:
            raise ConfigError(
                Message(
                    "{config:certificate.learner}: {learner} is only known by its name here, "
                    "and code named in a record is not imported: give it in the command line "
                    "of agt train, or as learner= of agt.fit",
                    learner=self.config.learner["_target_"],
                )
            )
        return self.settings.learner

    def phi(self, features: np.ndarray) -> np.ndarray:
        """[n, w] float64: the features as they are, unless a map is in front of them."""
        phi = super().phi(features[:0] if self._plain else features)  # which refuses another width
        return (
            features.reshape(len(features), self.features.width) if self._plain else phi
        ).astype(np.float64)

    @property
    def _plain(self) -> bool:
        return self.config.features == FeaturesConfig()

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width, and for one that nobody is left to
        answer.
        """
        for piece in pieces(features):
            self._unknown(_digests(self.phi(piece)))

    def _unknown(self, names: Sequence[bytes]) -> list[int]:
        """Which of the queries were not asked before."""
        new = [at for at, name in enumerate(names) if name not in self.ballots]
        if new and not self.members:
            raise ConfigError(
                Message(
                    "{unknown} of {queries} queries are new, but of this model only the "
                    "votes of its learners are stored, not the members, so it can only "
                    "answer the {saved} queries that were given in training (a run's test "
                    "records: {config:dataset.test}; a map of the plane needs more queries: "
                    "map_resolution=0)",
                    unknown=len(new),
                    queries=len(names),
                    saved=len(self.ballots),
                )
            )
        return new

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """[T, n] int16: each member's label of each query."""
        names = _digests(phi)
        if new := self._unknown(names):
            votes = self._labels(phi[new], range(self.max_distance)).T
            self.ballots.update(zip([names[at] for at in new], votes, strict=True))
        return (
            np.array([self.ballots[name] for name in names], dtype=np.int16)
            .reshape(-1, self.max_distance)
            .T
        )

    @classmethod
    def load(cls, config: "OwnVotesKind", problem: Problem, shelf: FileReader) -> Self:
        """Read the votes back.

        Raises ConfigError, UnsoundError: a file is missing, or not what the settings imply.
        """
        model, count = (
            cls.untrained(config, problem, read_features(problem, shelf)),
            shelf.json(CONSTANTS).get("queries"),
        )
        if type(count) is not int or count < 0:
            raise UnsoundError(
                f"{shelf.folder}/{CONSTANTS}: queries is {count!r}, which is not valid: train again"
            )
        zero, vote = torch.zeros((), dtype=torch.uint8), torch.zeros((), dtype=torch.int16)
        like = {"queries": zero.expand(count, 32), "votes": vote.expand(model.max_distance, count)}
        like["raised"] = zero.expand(model.max_distance)
        names, votes, raised = (
            tensor.numpy() for tensor in read_tensors(shelf, BALLOTS, like).values()
        )
        if not ((votes >= 0) & (votes < problem.classes)).all() or raised.max(initial=0) > 1:
            raise UnsoundError(
                f"{shelf.folder}/{BALLOTS}: a vote is for a class that does not exist: train again"
            )
        model = replace(
            model,
            raised=raised,
            ballots=dict(zip((n.tobytes() for n in names), votes.T, strict=True)),
        )
        check_constants(shelf, CONSTANTS, model.constants)
        return model

    def save(self, store: FileWriter) -> None:
        """ballots.safetensors, of the test records and of all that was asked;
        features.safetensors and votes.json.
        """
        for piece in pieces(self.problem.dataset.test.features):
            self.labels(self.phi(piece))
        names = sorted(self.ballots)
        votes = (
            np.array([self.ballots[name] for name in names], dtype=np.int16)
            .reshape(-1, self.max_distance)
            .T
        )
        queries = np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, 32)
        kept = {"queries": queries, "votes": votes, "raised": self.raised}
        write_tensors(store, BALLOTS, {name: torch.tensor(array) for name, array in kept.items()})
        write_tensors(store, FEATURES, self.features.matrices)
        store.write(CONSTANTS, as_json(self.constants))

    @property
    def constants(self) -> dict[str, Any]:
        """The public constants, as in votes.json, and how many queries are answered."""
        ensemble, relation = self.settings.ensemble, self.settings.relation.name
        public = {"members": ensemble.members, "key": ensemble.key, "relation": relation}
        return {**public, "learner": dict(self.config.learner), "queries": len(self.ballots)}

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """By declaration."""
        function = declared(
            "learner_is_function",
            learner=str(self.config.learner["_target_"]),
            members=min(RETRAINED_MEMBERS, self.max_distance),
            setting="certificate.learner",
        )
        stated = proved("learner_stated")
        counted = proved("votes_are_integers")
        return {
            "b": (function,),
            "c": (stated,),
            "e": () if self._plain else self.features.public,
            "f": (counted,),
        }

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, and of how many shards the learner raised."""
        return {**super().metrics, "raised": int(self.raised.sum())}


def _digests(phi: np.ndarray) -> list[bytes]:
    """What queries [n, w] float64 are known by."""
    return [sha256(row.tobytes()).digest() for row in phi + 0.0]  # -0.0 is 0.0


@schema
class OwnVotesKind(VotingKind):
    """Votes of members by any deterministic learner (training/learners.py).

    Attributes:
        features: the public feature map in front of it; none at all: features as they are.
        learner: its ``_target_`` and settings, in words: what they name is imported by nothing that
            reads these settings.
        strength: not read; it stands in every configuration of votes.
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
        """Return whether settings are of votes by a learner of the user's own, which a mapping
        names.
        """
        return super().reads(node) and isinstance(node.get("learner"), Mapping)

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The strength too: the learner has settings of its own."""
        return {**super().unread_settings, "certificate.strength": "own learner"}

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return votes by another learner of the user's own. Raises ConfigError: it is none."""
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
