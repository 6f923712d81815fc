"""``certificate=votes`` with agt's own learners: many small models on disjoint shards, which answer
by certified vote (method.md section 12).

| file | tensors and constants |
|---|---|
| model.safetensors | "weight" [T, J, width] int32 |
| features.safetensors, votes.json | the public features, the public constants |

Under relation=flip (``FlipModel``) there are also, for the data owner alone:

| file | tensors |
|---|---|
| model.safetensors | "ends" [T] int64: how many records the members up to each have together |
| flips.safetensors | "pulls" [n, width] int32: each label's influence; "given" [n]: each label |

That a member is a function of its own shard, to the last bit, is proved in docs/proofs/ridge.md.
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


def _to_integer_features(phi: np.ndarray) -> np.ndarray:
    """Return public features [n, width] as the integers that members are trained on."""
    return to_integers(phi.astype(np.float64))


@dataclass(frozen=True)
class VotesModel(Votes):
    """T small models on one feature map, which answer by vote.

    Attributes:
        weight: [T, J, width] int32, the members' weights; J = 1 of two classes, else C.
        config: the settings of the certificate.
    """

    weight: Tensor
    config: "VotesKind"

    @classmethod
    def untrained(cls, config: "VotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Return the model before training, whose weights are 0."""
        outputs = 1 if problem.classes == 2 else problem.classes
        shape = (problem.settings.ensemble.members, outputs, features.outputs)
        zero = torch.zeros((), dtype=torch.int32)
        return cls(problem, features, zero.expand(shape), config)  # expanding takes no memory

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Return the model with each member trained on its shard of other records.

        Args:
            records: the records of all members.
            on_progress: called after every member.
            checkpoints: not used, as a member takes no steps.

        Raises:
            ConfigError: a unit has too many rows.
        """
        learn = LEARNERS[self.config.learner]
        count = len(self.weight)
        weight = torch.zeros(self.weight.shape, dtype=torch.int32)
        for member, (features, labels) in enumerate(self._training_arrays(records)):
            targets = encode_targets(labels, self.problem.classes)
            weight[member] = torch.from_numpy(learn(features, targets, self.config.strength))
            on_progress(Progress(member + 1, count, member + 1, count))
        return replace(self, weight=weight)

    def _training_arrays(self, records: Records) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield each member's integer features [n, width] and labels [n]."""
        for shard in self._member_records(records):
            yield _to_integer_features(self.phi(shard.features)), shard.labels

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, reader: FileReader) -> Self:
        """Read the model back.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a file is not what the settings imply.
        """
        model = cls.untrained(config, problem, read_features(problem, reader))
        check_constants(reader, CONSTANTS, model.constants)
        tensors = read_tensors(reader, MODEL, {"weight": model.weight})
        return replace(model, weight=tensors["weight"])

    def save(self, writer: FileWriter) -> None:
        """Write model.safetensors, features.safetensors and votes.json."""
        write_tensors(writer, MODEL, self.tensors)
        write_tensors(writer, FEATURES, self.features.matrices)
        writer.write(CONSTANTS, as_json(self.constants))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors, by name."""
        return {"weight": self.weight}

    @property
    def constants(self) -> dict[str, float | int | str]:
        """The public constants, as in votes.json."""
        constants: dict[str, float | int | str] = {
            "members": self.settings.ensemble.members,
            "key": self.settings.ensemble.key,
            "strength": self.config.strength,
            "relation": self.settings.relation.name,
        }
        # Files from before there was any other learner name none, and must still be read.
        if self.config.learner != "ridge":
            constants["learner"] = self.config.learner
        return constants

    @property
    def release_head(self) -> LinearModel:
        """The untrained head of ``certificate=erm`` on the same records and features.

        No member enters it: its weights are trained and released beside the votes.

        Raises:
            ConfigError: a setting of training that such a head does not take.
        """
        certificate = ErmKind(features=self.settings.certificate.features)
        settings = replace(self.settings, certificate=certificate, ensemble=EnsembleConfig())
        problem = replace(self.problem, settings=settings)
        return certificate.untrained_head(problem, self.features)

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """Why each member is a function of its shard, by conditions: its arithmetic is exact."""
        stated = proved("members_stated")
        exact = proved("sums_of_integers")
        return {"b": (), "c": (stated,), "e": self.features.public, "f": (exact,)}

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The number of parameters, and what all votes have."""
        return {"parameters": self.weight.numel(), **super().metrics}

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16.

        Args:
            phi: [n, width] public features of the queries.
        """
        queries = _to_integer_features(phi)
        weight = self.weight.numpy()
        members, outputs, width = weight.shape
        member_bytes = 8 * outputs * (width + len(phi))
        memory_bytes = self.settings.compute.memory_mb * 2**20
        members_at_once = max(1, memory_bytes // member_bytes)
        chunks = []
        for start in range(0, members, members_at_once):
            chunks.append(predict_labels(queries, weight[start : start + members_at_once]))
        return np.concatenate(chunks)


FLIPS = "flips.safetensors"


class MemberInfluence(NamedTuple):
    """The labels that one member was trained on, and their influence on its weights.

    Attributes:
        influence: [n, width] int32, what each record's label adds to the weights
            (``agt.training.ridge.label_influence``).
        labels: [n] integers, the records' labels.
    """

    influence: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class FlipModel(VotesModel):
    """Ridge regressions that vote, with distances in flipped labels.

    How many flipped labels change a member's label is counted exactly (certificates/flips.py).

    Attributes:
        members: the influence of each member's labels; empty before training.
    """

    members: tuple[MemberInfluence, ...] = ()
    instant: ClassVar[bool] = False

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Return the model with each member trained on its shard of other records.

        Arguments and errors are those of ``VotesModel.retrained``.
        """
        count = len(self.weight)
        members: list[MemberInfluence] = []
        for features, labels in self._training_arrays(records):
            influence = label_influence(features, self.config.strength)
            members.append(MemberInfluence(influence, labels))
            on_progress(Progress(len(members), count, len(members), count))
        return self._with_members(members)

    def _with_members(self, members: Sequence[MemberInfluence]) -> Self:
        """Return the model of members whose weights are the sums of their labels' influence."""
        weights = []
        for member in members:
            targets = encode_targets(member.labels, self.problem.classes)
            weights.append(targets.T @ member.influence.astype(np.float64))
        # The sums are exact: load refuses influence that is too long for that.
        weight = torch.from_numpy(np.stack(weights).astype(np.int32))
        return replace(self, weight=weight, members=tuple(members))

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, reader: FileReader) -> Self:
        """Read the model back.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a file is not what the settings imply; labels are of no class; influence
                is too long to be summed exactly; or the weights are not the sum of the influence.
        """
        untrained = cls.untrained(config, problem, read_features(problem, reader))
        check_constants(reader, CONSTANTS, untrained.constants)
        members, _, width = untrained.weight.shape
        zero = torch.zeros((), dtype=torch.int64)
        expected_model = {"weight": untrained.weight, "ends": zero.expand(members)}
        stored = read_tensors(reader, MODEL, expected_model)
        ends = [0, *stored["ends"].tolist()]
        if ends != sorted(ends):
            raise UnsoundError(
                f"{reader.folder / MODEL}: the positions at which the shards of members end "
                "must not decrease: train again"
            )
        records = ends[-1]
        expected_influence = zero.int().expand(records, width)
        expected_labels = zero.short().expand(records)
        expected_flips = {"pulls": expected_influence, "given": expected_labels}
        flips = read_tensors(reader, FLIPS, expected_flips)
        influence = flips["pulls"].numpy()
        labels = flips["given"].numpy().astype(np.int64)
        shards = [
            MemberInfluence(influence[start:end], labels[start:end])
            for start, end in pairwise(ends)
        ]
        if not all(_is_countable(shard, problem.classes) for shard in shards):
            raise UnsoundError(
                f"{reader.folder / FLIPS}: the recorded influence of a record is too large "
                "for exact counting, or a label is not a class: train again"
            )
        model = untrained._with_members(shards)
        if not torch.equal(model.weight, stored["weight"]):
            raise UnsoundError(
                f"{reader.folder / MODEL}: the weights are not those that follow from the "
                f"records' influence in {FLIPS}: train again"
            )
        return model

    def save(self, writer: FileWriter) -> None:
        """Write the files of ``VotesModel.save``, and flips.safetensors."""
        super().save(writer)
        influence = np.concatenate([member.influence for member in self.members])
        labels = np.concatenate([member.labels for member in self.members]).astype(np.int16)
        tensors = {"pulls": torch.from_numpy(influence), "given": torch.from_numpy(labels)}
        write_tensors(writer, FLIPS, tensors)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors, by name."""
        sizes = torch.tensor([len(member.labels) for member in self.members])
        return {**super().tensors, "ends": sizes.cumsum(0)}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3; d also says that flips are counted exactly."""
        exact = proved("flips_counted")
        conditions = []
        for condition in super().conditions:
            if condition.letter == "d":
                condition = condition.with_facts(exact)
            conditions.append(condition)
        return tuple(conditions)

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return [n, J] float64: shares of votes; or the scores of the one member there is.

        Args:
            phi: [n, width] public features of the queries.
        """
        if len(self.weight) > 1:
            return super().logits(phi)
        weight = self.weight[0].numpy().T.astype(np.float64)
        scores = _to_integer_features(phi) @ weight
        return np.ldexp(scores, -51)  # products of integers, of which 2^51 are 1

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return [n, C] each class's share of votes; of one member the sigmoid or softmax."""
        if len(self.weight) > 1:
            return super().shares(features)
        return logistic_shares(self.margins(features))

    @property
    def max_distance(self) -> int:
        """A number that no distance exceeds: what turning every member costs at most.

        It depends on the number of records, which this relation does not protect.
        """
        return self._more_than_all_labels * len(self.members)

    @property
    def _more_than_all_labels(self) -> int:
        """The price of what no number of flipped labels does: one more than there are labels."""
        return 1 + sum(len(member.labels) for member in self.members)

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
        count = len(features)
        largest_shard = max(len(member.labels) for member in self.members)
        query_bytes = _FLIP_BYTES * (largest_shard + 1)
        memory_bytes = self.settings.compute.memory_mb * 2**20
        queries_at_once = min(ROWS, max(1, memory_bytes // query_bytes))

        def vote_on(rows: slice) -> tuple[np.ndarray, np.ndarray, Vote]:
            return self._vote(features[rows])

        report = row_reporter(on_progress, count)
        parts = group().shared(count, queries_at_once, vote_on, report)
        labels, distances, votes = zip(*parts, strict=True)
        vote = Vote.concatenate(votes)
        if ks is not None:
            certified = np.array([vote.distance >= k for k in ks])
            return Certificates(ks, relation, vote.prediction, certified)
        member_labels = np.concatenate(labels, axis=1)
        member_distances = np.concatenate(distances, axis=1)
        return VoteCertificates.from_members(
            relation, vote, vote, member_labels, member_distances, self.problem.classes
        )

    def _vote(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, Vote]:
        """Return the vote on queries, and what it is made from.

        Args:
            features: [n, ...] queries.

        Returns:
            Each member's labels [T, n]; each member's distances [T, n] int64; and the vote.
        """
        classes = self.problem.classes
        never = self._more_than_all_labels
        phi = self.phi(features)
        queries = _to_integer_features(phi)
        labels = self.labels(phi)
        # Of one member or two classes, it is enough to know when any rival passes the answer.
        beating_suffices = len(self.members) == 1 or classes == 2
        member_prices = []
        for member, answers in zip(self.members, labels, strict=True):
            influence = queries @ member.influence.T.astype(np.float64)
            if beating_suffices:
                price = count_flips_to_beat(influence, member.labels, answers, classes, never)
            else:
                price = count_flips_to_answer(influence, member.labels, classes, never)
            member_prices.append(price)
        cheapest = [*map(cheapest_other_class, member_prices, labels)]
        distances = np.stack(cheapest) - 1
        prices = np.stack(member_prices, axis=1)  # [C, T, n]
        touches = RELATIONS[self.settings.relation.name].touches
        vote = certified_vote(labels, distances, classes, touches=touches, prices=prices)
        return labels, distances, vote


def _is_countable(member: MemberInfluence, classes: int) -> bool:
    """Return whether influence is short enough to be summed exactly, and labels are of classes."""
    if sum_of_row_lengths(member.influence.astype(float)) >= 2**INFLUENCE_BITS:
        return False
    return set(member.labels.tolist()) <= {*range(classes)}


@schema
class VotesKind(VotingKind):
    """Votes of many small models on disjoint shards, ``ensemble.members`` of them (method.md
    section 12).

    Attributes:
        features: the public feature map that all members share.
        learner: what each member is: a ridge regression, or a logistic regression of each class
            against the others (training/ridge.py).
        strength: the weight of each member's regulariser, beside a sum of losses over the records
            of its shard; their features have a norm of at most 1.
    """

    name: Literal["votes"] = "votes"
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    learner: Literal["ridge", "logistic"] = "ridge"
    strength: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.1

    @classmethod
    def reads(cls, node: Mapping[str, Any]) -> bool:
        """Return whether settings name one of agt's own learners, and not one by a mapping."""
        return super().reads(node) and not isinstance(node.get("learner"), Mapping)

    def covers_changed_labels(self) -> bool:
        """Return whether the proof covers changed labels: that of ridge regressions does."""
        return self.learner == "ridge"

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return the kind of votes by another learner, and the learner if it is the user's own.

        Args:
            learner: the name of one of agt's learners, or an estimator of the user's.

        Raises:
            ConfigError: there is no such learner.
        """
        if isinstance(learner, str):
            # The settings' own check refuses names that there are not.
            return replace(self, learner=learner), None  # type: ignore[arg-type]
        own = Learner.wrap(learner)
        return OwnVotesKind(features=self.features, learner=own.description), own

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> VotesModel:
        """Train each member on the records of its shard; raises as ``VotesModel.retrained``."""
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        untrained = self._model_class(problem).untrained(self, problem, features)
        return untrained.retrained(problem.dataset.train, on_progress, checkpoints)

    def load(self, problem: Problem, reader: FileReader) -> VotesModel:
        """Read the members back; raises as ``VotesModel.load``."""
        return self._model_class(problem).load(self, problem, reader)

    def _model_class(self, problem: Problem) -> type[VotesModel]:
        """Return the class of model for the relation: one that counts flipped labels, or none."""
        counts_flips = RELATIONS[problem.settings.relation.name].counts_label_flips
        return FlipModel if counts_flips else VotesModel
