"""``certificate=votes`` with agt's own learners: small models on disjoint shards that vote.

See section 12 of docs/reference.md.

| file | tensors and constants |
|---|---|
| model.safetensors | "weight" [T, J, width] int32 |
| features.safetensors, votes.json | the public features, the public constants |
| shards.json (in a run alone) | what each member was trained on, by digest |

Under relation=flip (``FlipModel``) there are also, for the data owner alone:

| file | tensors |
|---|---|
| model.safetensors | "ends" [T] int64: the cumulative sums of the members' numbers of records |
| flips.safetensors | "pulls" [n, width] int32: each label's influence; "given" [n]: each label |

docs/proofs/ridge.md proves that a member depends only on its own shard, to the last bit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, add_facts
from agt.certificates.flips import count_flips_to_beat, count_flips_to_win, fewest_edits_to_change
from agt.certificates.settings import VotesConfig
from agt.certificates.votes import Vote, certified_vote
from agt.data.arrays import ROWS, block_slices, rows_in
from agt.data.digests import fingerprint
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError, altered
from agt.facts import Fact, proved
from agt.messages import Message
from agt.models.closed_form import read_features
from agt.models.ensemble import training_environment
from agt.models.erm import ErmKind
from agt.models.features import FeatureMap, to_integers
from agt.models.linear import LinearModel
from agt.models.model import map_queries
from agt.models.number_votes import NumberVotes
from agt.models.own_votes import OwnVotesKind
from agt.models.shards import ShardRecord, write_shards
from agt.models.shares import logistic_shares
from agt.models.store import (
    FEATURES,
    MODEL,
    FileWriter,
    check_constants,
    read_tensors,
    write_tensors,
)
from agt.models.voting import CONSTANTS, Votes, VotingKind
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import schema
from agt.store.folder import Folder
from agt.store.json_text import Metrics, as_json
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.lattice import to_lattice
from agt.training.learners import Learner
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.ridge import (
    INFLUENCE_BITS,
    LEARNERS,
    encode_targets,
    fit_number_ridge,
    label_influence,
    predict_labels,
    predict_numbers,
    sum_of_row_lengths,
)
from agt.training.settings import EnsembleConfig

_SCORE_BITS = 51  # scores of a single member are sums of integers of about this size
_FLIP_BYTES = 48  # working memory for each pair of a query and a member's record


def _to_integer_features(phi: np.ndarray) -> np.ndarray:
    """Round public features [n, width] to multiples of 2^-22, and return the integer multiples.

    Members are trained on these integers, stored as float64, so that sums of products are exact.
    """
    return to_integers(phi.astype(np.float64))


@dataclass(frozen=True)
class VotesModel(Votes):
    """T small linear models on one feature map that vote, each trained on its own shard.

    Attributes:
        weight: [T, J, width] int32, the members' weights; J is 1 for two classes, else their
            number.
        config: the settings of the certificate.
        shards: the shard record of each member; empty for a model that was not trained by ``fit``.
    """

    weight: Tensor
    config: "VotesKind"
    shards: tuple[ShardRecord, ...] = field(default=(), kw_only=True)

    @classmethod
    def untrained(cls, config: "VotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Return the model before training, with weights of 0.

        Args:
            config: the settings of the certificate.
            problem: all other settings; its records are not read.
            features: the public feature map.
        """
        outputs = 1 if problem.classes == 2 else problem.classes
        shape = (problem.settings.ensemble.members, outputs, features.outputs)
        zero = torch.zeros((), dtype=torch.int32)
        return cls(problem, features, zero.expand(shape), config)  # a view of one number

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> Self:
        """Return the model whose members are trained on the shards of other records.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            on_progress: called after every member.
            checkpoints: not used, because training a member takes too little time.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        count = self.settings.ensemble.members
        model = self._trained_on(self._member_records(records), count, on_progress)
        return replace(model, shards=())  # this model's are of its own records

    def with_members_retrained(
        self,
        records: Records,
        indices: Sequence[int],
        on_progress: OnProgress = ignore_progress,
    ) -> Self:
        """Return the model with some members trained on their shards of other records.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            indices: the indices of the members to train, at least one.
            on_progress: called after every member that was trained.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        trained = self._trained_on(self._shards_of(records, indices), len(indices), on_progress)
        return self._with_members_of(trained, indices)

    def _with_members_of(self, trained: Self, indices: Sequence[int]) -> Self:
        """Return the model with some members of another.

        Args:
            trained: a model that has these members only.
            indices: the place of each of them in this model.
        """
        tensors: dict[str, Any] = {}
        for name, tensor in self.tensors.items():
            tensors[name] = tensor.clone()
            tensors[name][list(indices)] = trained.tensors[name]
        return replace(self, **tensors)

    def shard_records(self, records: Records) -> tuple[ShardRecord, ...]:
        """Return the shard record of each of the T members, for the given training records.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
        """
        environment = training_environment(self.problem)
        return tuple(
            ShardRecord(fingerprint(shard), environment, len(shard))
            for shard in self._member_records(records)
        )

    def save_shards(self, writer: FileWriter) -> None:
        """Write a digest of each member's training records to shards.json.

        Only the run that trains the members calls it, because an exported model must not contain
        digests of records.
        """
        write_shards(writer, self.shards)

    def retrained_labels(
        self, records: Records, indices: Sequence[int], phi: np.ndarray
    ) -> np.ndarray:
        """Train some members on their shards of other records, and return their labels of queries.

        Args:
            records: the records of all members, on the scale of the model's own dataset.
            indices: the indices of the members to train.
            phi: [n, width] the values of the public feature map for the queries.

        Returns:
            [len(indices), n] int16.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        shards = self._shards_of(records, indices)
        return self._trained_on(shards, len(indices)).labels(phi)

    def _trained_on(
        self,
        shards: Iterable[Records],
        count: int,
        on_progress: OnProgress = ignore_progress,
    ) -> Self:
        """Return the model with one member for each shard.

        Args:
            shards: each member's part of the training records; at least one.
            count: the number of shards.
            on_progress: called after every member.
        """
        tensors: dict[str, Any] = {
            name: torch.zeros((count, *tensor.shape[1:]), dtype=tensor.dtype)
            for name, tensor in self.tensors.items()
        }
        arrays = self._training_arrays(shards, count, on_progress)
        for member, (features, labels) in enumerate(arrays):
            for name, values in self._train_member(features, labels).items():
                tensors[name][member] = torch.as_tensor(values)
        return replace(self, **tensors)

    def _train_member(self, features: np.ndarray, labels: np.ndarray) -> Mapping[str, Any]:
        """Train one member, and return its part of each of ``tensors``, by name.

        Args:
            features: [n, width] the integer features of the member's shard.
            labels: [n] the labels.
        """
        learn = LEARNERS[self.config.learner]
        targets = encode_targets(labels, self.problem.classes)
        return {"weight": learn(features, targets, self.config.member_strength)}

    def _training_arrays(
        self, shards: Iterable[Records], count: int, on_progress: OnProgress
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield for each member the integer features [n, width] and labels [n] of its shard.

        Args:
            shards: the members' shards.
            count: the number of shards.
            on_progress: called when the arrays after a member's are asked for: it is trained then.
        """
        for finished, shard in enumerate(shards, start=1):
            yield _to_integer_features(self.phi(shard.features)), shard.labels
            on_progress(Progress(step=finished, steps=count, done=finished, total=count))

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, reader: Folder) -> Self:
        """Read a saved model back, and check its files against the settings.

        Args:
            config: the settings of the certificate.
            problem: all other settings; its records are not read.
            reader: the folder that ``save`` wrote.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a constant differs from the one that the settings imply, or a tensor has
                another shape or type.
        """
        model = cls.untrained(config, problem, read_features(problem, reader))
        check_constants(reader, CONSTANTS, model.constants)
        tensors: dict[str, Any] = {**read_tensors(reader, MODEL, model.tensors)}
        return replace(model, **tensors)

    def save(self, writer: FileWriter) -> None:
        """Write the members' weights, the matrices of the feature map, and the public constants.

        The files are model.safetensors, features.safetensors and votes.json.
        """
        write_tensors(writer, MODEL, self.tensors)
        write_tensors(writer, FEATURES, self.features.matrices)
        writer.write(CONSTANTS, as_json(self.constants))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors, by name, which is that of the model's field."""
        return {"weight": self.weight}

    @property
    def constants(self) -> Metrics:
        """The public constants that votes.json records, by name."""
        constants: Metrics = {
            "members": self.settings.ensemble.members,
            "key": self.settings.ensemble.key,  # of the hash that assigns units to shards
            "strength": self.config.member_strength,  # of the regulariser
            "relation": self.settings.relation.name,
        }
        # The first versions had only ridge and recorded no learner. Their files must be readable.
        if self.config.learner != "ridge":
            constants["learner"] = self.config.learner
        return constants

    @property
    def release_head(self) -> LinearModel | None:
        """An untrained linear head of ``certificate=erm`` on the same records and feature map.

        A release of weights trains it. The members' weights are not used.

        Raises:
            ConfigError: such a head does not support a setting of the training.
        """
        head_kind = ErmKind(features=self.settings.certificate.features)
        no_ensemble = EnsembleConfig()
        settings = replace(self.settings, certificate=head_kind, ensemble=no_ensemble)
        problem = replace(self.problem, settings=settings)
        return head_kind.untrained_head(problem, self.features)

    @property
    def member_facts(self) -> Mapping[str, tuple[Fact, ...]]:
        """The reasons why each member depends only on its own shard: its arithmetic is exact.

        Returns:
            The letter of a condition of a privacy claim (docs/method.md) -> the facts that support
            it.
        """
        return {
            "b": (),  # a member depends on no record outside of its shard: shown by shards_fact
            "c": (proved("members_stated"),),  # the members' settings are public constants
            "e": self.features.facts,  # the feature map comes from public data only
            "f": (proved("sums_of_integers"),),  # sums have no rounding error
        }

    @property
    def metrics(self) -> Metrics:
        """The number of parameters, of members, and the bound on distances, for a run's metrics."""
        return {"parameters": self.weight.numel(), **super().metrics}

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's label of each query, [T, n] int16.

        Args:
            phi: [n, width] the values of the public feature map for the queries.
        """
        queries = _to_integer_features(phi)
        chunks = [
            self._labels_of_members(queries, members) for members in self._member_chunks(len(phi))
        ]
        return np.concatenate(chunks)

    def _labels_of_members(self, queries: np.ndarray, members: slice) -> np.ndarray:
        """Return the label that each of some members gives to each query, [members, n] int16.

        Args:
            queries: [n, width] integer features of the queries.
            members: a slice of consecutive members.
        """
        return predict_labels(queries, self.weight[members].numpy())

    def _member_chunks(self, queries: int) -> list[slice]:
        """Return slices of the members, each as large as ``compute.memory_mb`` allows.

        Args:
            queries: the number of queries whose scores by these members must fit into the memory.
        """
        members, outputs, width = self.weight.shape
        # The memory that one member takes: its weights and its scores, as float64.
        member_bytes = 8 * outputs * (width + queries)
        members_at_once = rows_in(self.settings.compute.memory_bytes, member_bytes)
        return block_slices(members, members_at_once)


@dataclass(frozen=True)
class NumberVotesModel(NumberVotes, VotesModel):
    """T ridge regressions of numbers on one feature map, each trained on its own shard.

    Attributes:
        exponents: [T] int32, the power of two of each member's integer weights.
    """

    exponents: Tensor

    @classmethod
    def untrained(cls, config: "VotesKind", problem: Problem, features: FeatureMap) -> Self:
        """Return the model before training, with weights of 0."""
        members = problem.settings.ensemble.members
        zero = torch.zeros((), dtype=torch.int32)
        weight = zero.expand((members, 1, features.outputs))
        return cls(problem, features, weight, config, zero.expand(members))

    def _train_member(self, features: np.ndarray, labels: np.ndarray) -> Mapping[str, Any]:
        """Train one member, and return its part of each of ``tensors``, by name.

        A member without records has weights of 0, so that it answers the middle of the range.

        Args:
            features: [n, width] the integer features of the member's shard.
            labels: [n] the labels, numbers of the range.
        """
        targets = self.target.scaled(labels)
        weight = fit_number_ridge(features, targets, self.config.member_strength)
        return {"weight": weight.array, "exponents": weight.exponent}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors, by name."""
        return {**super().tensors, "exponents": self.exponents}

    def _labels_of_members(self, queries: np.ndarray, members: slice) -> np.ndarray:
        """Return the answers of some members as points of the lattice, [members, n] int32.

        Args:
            queries: [n, width] integer features of the queries.
            members: a slice of consecutive members.
        """
        weight = self.weight[members, 0].numpy()
        return to_lattice(predict_numbers(queries, weight, self.exponents[members].numpy()))


FLIPS = "flips.safetensors"


class MemberInfluence(NamedTuple):
    """The labels that one member was trained on, and the influence of each on its weights.

    The weights of a ridge regression are linear in the labels: the targets [n, J] (+1, -1, or
    one-hot) transposed times ``influence``.

    Attributes:
        influence: [n, width] int32, what a target of 1 for each record adds to the weights.
        labels: [n] integers, the labels of the records in the member's shard.
    """

    influence: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class FlipModel(VotesModel):
    """Ridge regressions that vote under ``relation=flip``, where one edit changes one label.

    The number of flipped labels that changes a member's answer is counted exactly, because the
    weights are linear in the labels (Lemma 1 of docs/proofs/flips.md).

    Attributes:
        members: the labels of each member and their influence; empty before training.
    """

    members: tuple[MemberInfluence, ...] = ()
    instant = False

    def _trained_on(
        self,
        shards: Iterable[Records],
        count: int,
        on_progress: OnProgress = ignore_progress,
    ) -> Self:
        """Return the model with one member for each shard.

        Args:
            shards: each member's part of the training records; at least one.
            count: the number of shards.
            on_progress: called after every member.
        """
        members: list[MemberInfluence] = []
        for features, labels in self._training_arrays(shards, count, on_progress):
            influence = label_influence(features, self.config.member_strength)
            members.append(MemberInfluence(influence, labels))
        return self._with_members(members)

    def _with_members_of(self, trained: Self, indices: Sequence[int]) -> Self:
        """Return the model with some members of another.

        Args:
            trained: a model that has these members only.
            indices: the place of each of them in this model.
        """
        members = [*self.members]
        for index, member in zip(indices, trained.members, strict=True):
            members[index] = member
        return self._with_members(members)

    def _with_members(self, members: Sequence[MemberInfluence]) -> Self:
        """Return a copy of the model with these members, and the weights that follow from them.

        Args:
            members: each member's labels and their influence, which must pass ``_is_countable``.
        """
        weights = []
        for member in members:
            targets = encode_targets(member.labels, self.problem.classes)
            weights.append(targets.T @ member.influence.astype(np.float64))
        # The sums are exact integers: label_influence keeps them below 2^29, and load checks it.
        weight = torch.from_numpy(np.stack(weights).astype(np.int32))
        return replace(self, weight=weight, members=tuple(members))

    @classmethod
    def load(cls, config: "VotesKind", problem: Problem, reader: Folder) -> Self:
        """Read a saved model back, and check its files against the settings and each other.

        Args:
            config: the settings of the certificate.
            problem: all other settings; its records are not read.
            reader: the folder that ``save`` wrote.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: a constant, shape or type differs from what the settings imply; a label is
                not a class; the influence is too large to be summed exactly; or the weights are not
                those that labels and influence give.
        """
        untrained = cls.untrained(config, problem, read_features(problem, reader))
        check_constants(reader, CONSTANTS, untrained.constants)
        members, _, width = untrained.weight.shape
        zero = torch.zeros((), dtype=torch.int64)
        expected_model = {"weight": untrained.weight, "ends": zero.expand(members)}
        stored = read_tensors(reader, MODEL, expected_model)
        ends = [0, *stored["ends"].tolist()]  # member i has the records ends[i] to ends[i + 1]
        if ends != sorted(ends):
            raise _altered_file(
                reader.folder / MODEL,
                "the positions at which the members' parts of the records end are out of order",
            )
        record_count = ends[-1]
        # In the file, "pulls" is the influence and "given" are the labels of all members' records.
        expected_influence = zero.int().expand(record_count, width)
        expected_labels = zero.short().expand(record_count)
        expected_flips = {"pulls": expected_influence, "given": expected_labels}
        flips = read_tensors(reader, FLIPS, expected_flips)
        influence = flips["pulls"].numpy()
        labels = flips["given"].numpy().astype(np.int64)
        shards = [
            MemberInfluence(influence[start:end], labels[start:end])
            for start, end in pairwise(ends)
        ]
        if not all(_is_countable(shard, problem.classes) for shard in shards):
            raise _altered_file(
                reader.folder / FLIPS,
                "the influence or the label of a training record is outside its range",
            )
        model = untrained._with_members(shards)
        if not torch.equal(model.weight, stored["weight"]):
            raise _altered_file(
                reader.folder,
                f"the weights in {MODEL} do not result from the records' influences in {FLIPS}",
            )
        return model

    def save(self, writer: FileWriter) -> None:
        """Write the files of ``VotesModel.save``, and the labels with their influence.

        The labels and their influence go into flips.safetensors, which is for the data owner only.
        """
        super().save(writer)
        # The shards one after another; ``tensors`` has where each ends.
        influence = np.concatenate([member.influence for member in self.members])
        labels = np.concatenate([member.labels for member in self.members]).astype(np.int16)
        tensors = {"pulls": torch.from_numpy(influence), "given": torch.from_numpy(labels)}
        write_tensors(writer, FLIPS, tensors)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors by name: the weights, and where each shard ends."""
        sizes = torch.tensor([len(member.labels) for member in self.members])
        return {**super().tensors, "ends": sizes.cumsum(0)}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order.

        Condition d, that one edit changes the answer only by a bounded step, also names the fact
        that flipped labels are counted exactly.
        """
        flips_are_counted = proved("flips_counted")
        return add_facts(super().conditions, {"d": (flips_are_counted,)})

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the fractions of the votes for each class, or the scores of a single member.

        Args:
            phi: [n, width] the values of the public feature map for the queries.

        Returns:
            For several members and two classes [n, 1] float64, the fraction of class 1 less that of
            class 0; for more classes [n, C], the fraction of each class. For a single member its
            scores, of the same shape.
        """
        if len(self.weight) > 1:
            return super().logits(phi)
        weight = self.weight[0].numpy().T.astype(np.float64)
        scores = _to_integer_features(phi) @ weight
        # Sums of products of integers, which are below 2^51.1 in size; divided to be about 1.
        return np.ldexp(scores, -_SCORE_BITS)

    def certified_margins(self, features: np.ndarray, certificates: Certificates) -> np.ndarray:
        """Return ``margins`` of queries that were certified, to the same bits.

        The margins of a single member are computed from its scores, which certificates do not have.

        Args:
            features: [n, ...] the queries.
            certificates: the certificates of these queries, as ``certify`` of this model returned
                them.
        """
        if len(self.weight) == 1:
            return self.margins(features)
        return super().certified_margins(features, certificates)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return each class's fraction of the votes, [n, C] float64.

        For a single member it returns the sigmoid or softmax of its scores.

        Args:
            features: [n, ...] the queries.
        """
        if len(self.weight) > 1:
            return super().shares(features)
        return logistic_shares(self.margins(features))

    @property
    def max_distance(self) -> int:
        """An upper bound on every stable distance, the number of flips that cannot change a label.

        No member needs more flips than ``_more_than_all_labels``. This bound depends on the number
        of records, which ``relation=flip`` does not protect.
        """
        return self._more_than_all_labels * len(self.members)

    @property
    def _more_than_all_labels(self) -> int:
        """One more than the number of all labels, which means that no number of flips suffices."""
        return 1 + sum(len(member.labels) for member in self.members)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return the labels of queries, and the numbers of flipped training labels that keep them.

        Args:
            features: [n, ...] the queries.
            ks: None: the result has the exact stable distances (the largest number of flips that
                cannot change a label). Else it says only for these k whether k flips can change a
                label, so that no stable distance exceeds the last of them.
            on_progress: called with the number of finished queries.
        """
        largest_shard = max(len(member.labels) for member in self.members)
        query_bytes = _FLIP_BYTES * (largest_shard + 1)
        queries_at_once = min(ROWS, rows_in(self.settings.compute.memory_bytes, query_bytes))
        parts = map_queries(features, self._vote, on_progress, queries_at_once)
        labels, distances, votes = zip(*parts, strict=True)
        return self._certificates_of_vote(
            Vote.concatenate(votes),
            np.concatenate(labels, axis=1),
            np.concatenate(distances, axis=1),
            ks,
        )

    def _vote(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, Vote]:
        """Count the votes on queries, and bound the number of flipped labels that keep the winner.

        Args:
            features: [n, ...] the queries.

        Returns:
            Each member's labels [T, n]; each member's stable distances [T, n] int64 (the largest
            number of flips that cannot change its label); and the winners with their own.
        """
        classes = self.problem.classes
        impossible = self._more_than_all_labels
        phi = self.phi(features)
        queries = _to_integer_features(phi)
        labels = self.labels(phi)
        # With one member or two classes, the vote needs only the flips after which another class
        # beats the member's answer. Otherwise it needs those after which a class beats all others.
        beating_suffices = len(self.members) == 1 or classes == 2
        flips_of_members = []
        for member, answers in zip(self.members, labels, strict=True):
            # [n, records]: by how much each record's label moves the score of each query
            influence = queries @ member.influence.T.astype(np.float64)
            if beating_suffices:
                flips = count_flips_to_beat(influence, member.labels, answers, classes, impossible)
            else:
                flips = count_flips_to_win(influence, member.labels, classes, impossible)
            flips_of_members.append(flips)
        cheapest = [
            fewest_edits_to_change(flips, answers)
            for flips, answers in zip(flips_of_members, labels, strict=True)
        ]
        distances = np.stack(cheapest) - 1  # one flip fewer cannot change the member's label
        flips_to_win = np.stack(flips_of_members, axis=1)  # [C, T, n]
        vote = certified_vote(
            labels, distances, classes, touches=self.members_per_edit, edits_to_win=flips_to_win
        )
        return labels, distances, vote


def _altered_file(path: Path, finding: str) -> UnsoundError:
    """Return the error that a file or folder of a model was altered, which the finding shows."""
    return UnsoundError(altered(path, finding, "train again"))


def _is_countable(member: MemberInfluence, classes: int) -> bool:
    """Return whether labels are classes, and their influence is small enough for exact sums.

    Args:
        member: labels and influence as a file has them, which anybody may have written.
        classes: the number of classes; labels must be 0 to classes - 1.
    """
    # Lemma 4 of docs/proofs/flips.md: below this limit every sum in float64 is exact.
    if sum_of_row_lengths(member.influence.astype(float)) >= 2**INFLUENCE_BITS:
        return False
    return set(member.labels.tolist()) <= set(range(classes))


@schema
class VotesKind(VotesConfig, VotingKind):
    """Certificates by the vote of many small linear models, each trained on its own shard.

    ``ensemble.members`` says how many there are. See section 12 of docs/reference.md.
    """

    @property
    def trains_ridge_members(self) -> bool:
        """True if members are ridge regressions."""
        return self.learner == "ridge"

    def check_numbers(self, settings: Settings) -> None:
        """Raise ConfigError unless members are ridge regressions, which give numbers."""
        super().check_numbers(settings)
        if self.learner != "ridge":
            raise ConfigError(
                Message(
                    "{config:certificate.learner}={learner} gives classes, but "
                    "{config:dataset.target}=numeric: use ridge, or a learner of your own that "
                    "gives numbers",
                    learner=self.learner,
                )
            )

    def with_learner(self, learner: Any) -> tuple[VotingKind, Learner | None]:
        """Return these settings with another learner of the members.

        Args:
            learner: ``ridge``, ``logistic``, or an estimator or a function of the user's own.

        Returns:
            The settings; and the learner if it is the user's own, else None.

        Raises:
            ConfigError: agt has no learner of this name, or the object is no learner.
        """
        if isinstance(learner, str):
            # Validation by ``schema`` refuses unknown names.
            return replace(self, learner=learner), None  # type: ignore[arg-type]
        wrapped = Learner.wrap(learner)
        return OwnVotesKind(features=self.features, learner=wrapped.description), wrapped

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> VotesModel:
        """Train each member on the records of its own shard.

        Args:
            problem: the training records and all settings.
            on_progress: called after every member.
            checkpoints: not used, because training a member takes too little time.

        Raises:
            ConfigError: a unit has more rows than ``relation.unit_rows``.
        """
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        records = problem.dataset.train
        untrained = self._model_class(problem).untrained(self, problem, features)
        model = untrained.retrained(records, on_progress, checkpoints)
        return replace(model, shards=model.shard_records(records))

    def load(self, problem: Problem, reader: Folder) -> VotesModel:
        """Read a saved model back, and check its files against the settings.

        Args:
            problem: all other settings; its records are not read.
            reader: the folder of the model.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what is stored is not what the settings imply.
        """
        return self._model_class(problem).load(self, problem, reader)

    def _model_class(self, problem: Problem) -> type[VotesModel]:
        """Return the class of models for the labels and the relation of a problem."""
        if problem.dataset.target.numeric is not None:
            return NumberVotesModel
        counts_flips = RELATIONS[problem.settings.relation.name].counts_label_flips
        return FlipModel if counts_flips else VotesModel
