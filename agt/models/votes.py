"""Many small models on disjoint shards, answering by certified vote: ``certificate=votes``
(method.md 12).

What makes a member a function of its own shard, to the last bit: docs/proofs/ridge.md, and a
shard's order, which is that of its ids.

model.safetensors "weight" [T, J, width] int32; features.safetensors; votes.json: the public
constants Under relation=flip (``FlipModel``) beside them, for the data owner alone:
model.safetensors "ends" [T] int64   how many records the members up to each have together
flips.safetensors                    of each record "pulls" [n, width] int32, what its label moves;
                                     "given" [n], its label
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.flips import cheapest_other_class, count_flips_to_answer, count_flips_to_beat
from agt.certificates.vote_certificates import VoteCertificates
from agt.certificates.votes import Vote, certified_vote
from agt.data.arrays import ROWS
from agt.data.records import Records
from agt.distributed import group
from agt.errors import UnsoundError
from agt.facts import Fact, proved
from agt.models.closed_form import read_features
from agt.models.erm import ErmKind
from agt.models.features import FeatureMap, to_integers
from agt.models.linear import LinearModel
from agt.models.own_votes import OwnVotesKind
from agt.models.shares import logistic_shares
from agt.models.store import (
    FEATURES,
    MODEL,
    FileReader,
    FileWriter,
    check_constants,
    read_tensors,
    write_tensors,
)
from agt.models.voting import CONSTANTS, Votes, VotingKind
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.settings import FeaturesConfig, schema
from agt.store import as_json
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.ensemble import EnsembleConfig
from agt.training.learners import Learner
from agt.training.loop import OnProgress, Progress, row_reporter
from agt.training.ridge import (
    INFLUENCE_BITS,
    LEARNERS,
    encode_targets,
    label_influence,
    predict_labels,
    sum_of_row_lengths,
)

_FLIP_BYTES = 48  # of working memory for each query and record of a member


@dataclass(frozen=True)
class VotesModel(Votes):
    """The members' weights [T, J, width] int32, on one feature map."""

    weight: Tensor
    config: "VotesKind"

    @classmethod
    def untrained(cls, config: "VotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Members that saw no record."""
        outputs = 1 if problem.classes == 2 else problem.classes
        shape = (problem.settings.ensemble.members, outputs, features.outputs)
        # takes no memory
        return cls(problem, features, torch.zeros((), dtype=torch.int32).expand(shape), config)

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Each member on the records of its shard, in the order of their ids."""
        weight = torch.zeros(self.weight.shape, dtype=torch.int32)
        for member, (features, given) in enumerate(self._shards(records)):
            targets = encode_targets(given, self.problem.classes)
            weight[member] = torch.from_numpy(
                LEARNERS[self.config.learner](features, targets, self.config.strength)
            )
            on_progress(Progress(member + 1, len(weight), member + 1, len(weight)))
        return replace(self, weight=weight)

    def _shards(self, records: Records) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(features, as integers [n, w]; labels [n]) of each member's records."""
        return (
            (to_integers(self.phi(some.features).astype(np.float64)), some.labels)
            for some in self._dealt(records)
        )

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, shelf: FileReader) -> Self:
        """Read the members back.

        Raises ConfigError, UnsoundError: a file is missing, or not what the settings imply.
        """
        model = cls.untrained(config, problem, read_features(problem, shelf))
        check_constants(shelf, CONSTANTS, model.constants)
        return replace(model, weight=read_tensors(shelf, MODEL, {"weight": model.weight})["weight"])

    def save(self, store: FileWriter) -> None:
        """model.safetensors, features.safetensors and votes.json."""
        write_tensors(store, MODEL, self.tensors)
        write_tensors(store, FEATURES, self.features.matrices)
        store.write(CONSTANTS, as_json(self.constants))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What model.safetensors holds."""
        return {"weight": self.weight}

    @property
    def constants(self) -> dict[str, float | int | str]:
        """The public constants, as in votes.json."""
        members, key = self.settings.ensemble.members, self.settings.ensemble.key
        config, relation = self.config, self.settings.relation.name
        # as before there was any other
        learner = {} if config.learner == "ridge" else {"learner": config.learner}
        return {
            "members": members,
            "key": key,
            "strength": config.strength,
            "relation": relation,
            **learner,
        }

    @property
    def release_head(self) -> LinearModel:
        """The head that ``certificate=erm`` has on the same records and features, before training:
        no member enters it.

        Raises:
            ConfigError: a setting of training that no such head takes.
        """
        certificate = ErmKind(features=self.settings.certificate.features)
        settings = replace(self.settings, certificate=certificate, ensemble=EnsembleConfig())
        return certificate.untrained_head(replace(self.problem, settings=settings), self.features)

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """By their arithmetic."""
        stated, exact = proved("members_stated"), proved("sums_of_integers")
        return {"b": (), "c": (stated,), "e": self.features.public, "f": (exact,)}

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes."""
        return {"parameters": self.weight.numel(), **super().metrics}

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """[T, n] int16: each member's label of each query, as many members at a time as the
        working memory takes.
        """
        queries, weight = to_integers(phi.astype(np.float64)), self.weight.numpy()
        each = 8 * weight.shape[1] * (weight.shape[2] + len(phi))
        some = max(1, self.settings.compute.memory_mb * 2**20 // each)
        return np.concatenate(
            [predict_labels(queries, weight[at : at + some]) for at in range(0, len(weight), some)]
        )


FLIPS = "flips.safetensors"


class Pulled(NamedTuple):
    """A member's records: what each label moves [n, width] int32 (training/ridge.py,
    ``label_influence``), and which it is [n].
    """

    pulls: np.ndarray
    given: np.ndarray


@dataclass(frozen=True)
class FlipModel(VotesModel):
    """Ridge regressions whose distances count flipped labels: exactly, in each member
    (certificates/flips.py).
    """

    members: tuple[Pulled, ...] = ()
    instant: ClassVar[bool] = False

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """As of votes."""
        strength, members = self.config.strength, list[Pulled]()
        for features, given in self._shards(records):
            members.append(Pulled(label_influence(features, strength), given))
            on_progress(Progress(len(members), len(self.weight), len(members), len(self.weight)))
        return self._of(members)

    def _of(self, members: Sequence[Pulled]) -> Self:
        """With the weights that these members' labels make."""
        each = [
            encode_targets(one.given, self.problem.classes).T @ one.pulls.astype(np.float64)
            for one in members
        ]
        return replace(
            self, weight=torch.from_numpy(np.stack(each).astype(np.int32)), members=tuple(members)
        )

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, shelf: FileReader) -> Self:
        """As of votes.

        Raises UnsoundError as well: labels or pulls that are none, or weights that these do not
        make.
        """
        bare = cls.untrained(config, problem, read_features(problem, shelf))
        check_constants(shelf, CONSTANTS, bare.constants)
        few, width = torch.zeros((), dtype=torch.int64), bare.weight.shape[2]
        kept = read_tensors(
            shelf, MODEL, {"weight": bare.weight, "ends": few.expand(len(bare.weight))}
        )
        ends = [0, *kept["ends"].tolist()]
        if ends != sorted(ends):
            raise UnsoundError(f"{shelf.folder / MODEL}: the ends must not decrease: train again")
        like = {"pulls": few.int().expand(ends[-1], width), "given": few.short().expand(ends[-1])}
        lie = {name: tensor.numpy() for name, tensor in read_tensors(shelf, FLIPS, like).items()}
        members = [
            Pulled(lie["pulls"][a:b], lie["given"][a:b].astype(np.int64)) for a, b in pairwise(ends)
        ]
        known = {*range(problem.classes)}
        if any(
            sum_of_row_lengths(one.pulls.astype(float)) >= 2**INFLUENCE_BITS
            or not set(one.given.tolist()) <= known
            for one in members
        ):
            raise UnsoundError(
                f"{shelf.folder / FLIPS}: the pulls are too long to be counted exactly, or a "
                "label is not a class: train again"
            )
        model = bare._of(members)
        if not torch.equal(model.weight, kept["weight"]):
            raise UnsoundError(
                f"{shelf.folder / MODEL}: the weights differ from those in {FLIPS}: train again"
            )
        return model

    def save(self, store: FileWriter) -> None:
        """As of votes, and flips.safetensors."""
        super().save(store)
        pulled, given = (np.concatenate(each) for each in zip(*self.members, strict=True))
        write_tensors(
            store,
            FLIPS,
            {"pulls": torch.from_numpy(pulled), "given": torch.from_numpy(given.astype(np.int16))},
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What model.safetensors holds."""
        return {
            **super().tensors,
            "ends": torch.tensor([len(one.given) for one in self.members]).cumsum(0),
        }

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        exact = proved("flips_counted")
        return tuple(c.with_facts(exact) if c.letter == "d" else c for c in super().conditions)

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64: of votes their shares; of one member its scores, of which 2^51 are
        one.
        """
        if len(self.weight) > 1:
            return super().logits(phi)
        return np.ldexp(
            to_integers(phi.astype(np.float64)) @ self.weight[0].numpy().T.astype(np.float64), -51
        )

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] of votes their shares; of one member, which has scores, their sigmoid or
        softmax.
        """
        if len(self.weight) > 1:
            return super().shares(features)
        return logistic_shares(self.margins(features))

    @property
    def max_distance(self) -> int:
        """What it costs to turn each member, at most: the number of records, which is no secret
        here.
        """
        return self._never * len(self.members)

    @property
    def _never(self) -> int:
        """More labels than there are."""
        return 1 + sum(len(one.given) for one in self.members)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Stable distances of the vote from its members'; at some k, tabulated there alone and
        no farther than the last.
        """
        relation, count, classes = self.settings.relation.name, len(features), self.problem.classes
        largest = max(len(one.given) for one in self.members)
        some = min(
            ROWS, max(1, self.settings.compute.memory_mb * 2**20 // (_FLIP_BYTES * (largest + 1)))
        )
        parts = group().shared(
            count, some, lambda rows: self._turned(features[rows]), row_reporter(on_progress, count)
        )
        labels, turns, votes = zip(*parts, strict=True)
        members, distances, vote = (
            np.concatenate(labels, axis=1),
            np.concatenate(turns, axis=1),
            Vote.concatenate(votes),
        )
        if ks is not None:
            return Certificates(
                ks, relation, vote.prediction, np.array([vote.distance >= k for k in ks])
            )
        return VoteCertificates.from_members(relation, vote, vote, members, distances, classes)

    def _turned(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, Vote]:
        """([T, n] each member's labels, [T, n] int64 their distances, the vote)."""
        phi, classes, never = self.phi(features), self.problem.classes, self._never
        queries, members, prices = (
            to_integers(phi.astype(np.float64)),
            self.labels(phi),
            list[np.ndarray](),
        )
        for one, answers in zip(self.members, members, strict=True):
            pulled = queries @ one.pulls.T.astype(np.float64)
            exact = len(self.members) == 1 or classes == 2  # one rival is enough to know
            prices.append(
                count_flips_to_beat(pulled, one.given, answers, classes, never)
                if exact
                else count_flips_to_answer(pulled, one.given, classes, never)
            )
        distances = np.stack([*map(cheapest_other_class, prices, members)]) - 1
        touches = RELATIONS[self.settings.relation.name].touches
        return (
            members,
            distances,
            certified_vote(
                members, distances, classes, touches=touches, prices=np.stack(prices, 1)
            ),
        )


@schema
class VotesKind(VotingKind):
    """Votes of many small models on disjoint shards, ``ensemble.members`` of them (method.md
    section 12).

    Attributes:
        features: the public feature map in front of them.
        learner: what each is: a ridge regression, or a logistic one, each class against the others
            (training/ridge.py).
        strength: of each member's regulariser, beside a sum over the records of its shard, whose
            norm is at most 1.
    """

    name: Literal["votes"] = "votes"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    learner: Literal["ridge", "logistic"] = "ridge"
    strength: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.1

    @classmethod
    def reads(cls, node: Mapping[str, Any]) -> bool:
        """Return whether settings are of votes by a learner that agt has, which its name says."""
        return super().reads(node) and not isinstance(node.get("learner"), Mapping)

    def covers_changed_labels(self) -> bool:
        """Return whether changed labels are counted: by ridge regressions, exactly."""
        return self.learner == "ridge"

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return votes by another of agt's learners, or by one of the user's own."""
        if isinstance(learner, str):
            return replace(self, learner=learner), None  # type: ignore[arg-type]  # refused by name
        own = Learner.wrap(learner)
        return OwnVotesKind(features=self.features, learner=own.description), own

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> VotesModel:
        """Train each member on the records of its shard."""
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        untrained = self._model_class(problem).untrained(self, problem, features)
        return untrained.retrained(problem.dataset.train, on_progress, checkpoints)

    def load(self, problem: Problem, reader: FileReader) -> VotesModel:
        """Read the members back; raises as ``VotesModel.load``."""
        return self._model_class(problem).load(self, problem, reader)

    def _model_class(self, problem: Problem) -> type[VotesModel]:
        flips = RELATIONS[problem.settings.relation.name].counts_label_flips
        return FlipModel if flips else VotesModel
