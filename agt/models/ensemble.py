"""Ensembles of models on disjoint shards that answer by certified vote (001 section 5; method.md
section 4).

The vote is of the members' labels, or of their margins. Each member's folder has, beside its model,
``shard.json``: a digest of the records of its shard, and what else its bits depend on. A later
training of some members alone needs it (docs/proofs/sisa.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agt.certificates.box import Certificates, count_grid_steps
from agt.certificates.conditions import Condition, shards_fact
from agt.certificates.envelopes import MAX_MARGIN_EDITS
from agt.certificates.margin_votes import margin_labels, margin_vote
from agt.certificates.vote_certificates import VoteCertificates
from agt.certificates.votes import Vote, certified_vote
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import Records, fingerprint
from agt.distributed import group
from agt.facts import proved
from agt.models.model import Model, ModelDefaults
from agt.models.shares import logistic_shares
from agt.models.store import FileReader, FileWriter
from agt.problem import Problem
from agt.provenance import surroundings
from agt.relations import RELATIONS
from agt.store import as_json
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.ensemble import member_folder, shards, train_members
from agt.training.loop import OnProgress, Progress
from agt.training.setup import TrainingSetup

SHARD = "shard.json"
_MARGIN_BYTES = 40  # of working memory for each query, member and edit of a vote of margins


@dataclass(frozen=True)
class ShardRecord:
    """What one member of an ensemble was trained on, and in which environment.

    Attributes:
        digest: the digest of the shard's records (``agt.data.records.fingerprint``).
        environment: what a model's bits depend on beside settings and records, as
            ``training_environment`` returns it.
    """

    digest: str
    environment: Mapping[str, object]

    @classmethod
    def read(cls, reader: FileReader) -> "ShardRecord":
        """Read the record from a member's folder.

        Raises:
            ConfigError: the file is missing, or is not what was written.
        """
        node = reader.json(SHARD)
        (digest,) = node["digests"]  # a list, as shards had several slices in earlier versions
        return cls(digest, node["made"])

    def save(self, writer: FileWriter) -> None:
        """Write the record into a member's folder."""
        writer.write(SHARD, as_json({"digests": [self.digest], "made": self.environment}))


@dataclass(frozen=True)
class EnsembleModel(ModelDefaults):
    """Models that were trained alike on disjoint shards, and answer by vote.

    Attributes:
        members: T models, in the order of their shards.
        shards: what each member was trained on; empty for a model that was read back.
    """

    members: tuple[Model, ...]
    shards: tuple[ShardRecord, ...] = ()

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "EnsembleModel":
        """Train all members; arguments and errors are those of ``fit_members``."""
        all_members = range(problem.settings.ensemble.members)
        trained = fit_members(problem, all_members, on_progress, checkpoints)
        models, shard_records = zip(*trained, strict=True)
        return cls(problem, models, shard_records)

    @classmethod
    def load(cls, problem: Problem, reader: FileReader) -> "EnsembleModel":
        """Read all members back from the run's folder; raises as the members' kind does."""
        all_members = range(problem.settings.ensemble.members)
        return cls(problem, tuple(load_members(problem, reader, all_members)))

    def save(self, writer: FileWriter) -> None:
        """Write each member into a subfolder, as a run without an ensemble writes its model."""
        for index, member in enumerate(self.members):
            member.save(writer.part(member_folder(index)))

    def save_shards(self, writer: FileWriter) -> None:
        """Write what each member was trained on beside the members.

        It is written in the run that trained them, and not by ``save``, because a model that is
        exported must not contain digests of records.
        """
        for index, shard in enumerate(self.shards):
            shard.save(writer.part(member_folder(index)))

    @property
    def member_models(self) -> tuple[Model, ...]:
        """The members' models."""
        return self.members

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether all members' public features are those of a dataset's public rows."""
        return all(member.has_features_of(dataset) for member in self.members)

    @property
    def plan(self) -> BatchPlan:
        """The first member's batch plan.

        All members have the same plan if a size is declared. If not, their normalisers differ,
        because each is derived from the member's own shard.
        """
        return self.members[0].plan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3: the first member's, and facts about the vote."""
        # Which member a record trains depends on its own id, beside what members depend on.
        vote_facts = {"b": shards_fact(len(self.members), self._touches)}
        if self._clip is not None:
            vote_facts["c"] = proved("margins_clipped", clip=self._clip, edits=MAX_MARGIN_EDITS)
        conditions = []
        for condition in self.members[0].conditions:
            if condition.letter in vote_facts:
                condition = condition.with_facts(vote_facts[condition.letter])
            conditions.append(condition)
        return tuple(conditions)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The first member's metrics, and the number of members."""
        return {**self.members[0].metrics, "members": len(self.members)}

    @property
    def max_distance(self) -> int:
        """A public number that no distance of the vote, and no number of votes, exceeds."""
        if self._clip is not None:
            return max(MAX_MARGIN_EDITS, len(self.members))
        # Lemma 10 of docs/proofs/votes.md
        return sum(member.max_distance + 1 for member in self.members)

    @property
    def _clip(self) -> float | None:
        """What members' margins are clipped to; None where labels are counted instead."""
        return self.settings.ensemble.margin_clip

    @property
    def _touches(self) -> int:
        """How many members one k of the relation can change."""
        return RELATIONS[self.settings.relation.name].touches

    def check(self, features: np.ndarray) -> None:
        """Raise where queries [n, ...] are not what the members take; raises as a member does."""
        self.members[0].check(features)  # members differ only in their parameters

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the vote's labels of queries [n, ...], [n] int64; ties go to the smaller class."""
        if self._clip is not None:
            labels, _ = self._labels_and_mean_margins(features, self._clip)
            return labels
        member_labels = self._member_labels(features)
        no_distances = np.zeros_like(member_labels)
        vote = certified_vote(
            member_labels, no_distances, self.problem.classes, touches=self._touches
        )
        return vote.prediction

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return signed margins of queries [n, ...]; the prediction changes where one is 0.

        Returns:
            Of two classes [1, n]: the mean of the members' clipped margins, or the share of votes
            for class 1 less a half. Of more classes [C, n]: each class's share of the votes, less
            the largest share of another class.
        """
        if self._clip is not None:
            _, mean_margins = self._labels_and_mean_margins(features, self._clip)
            return mean_margins[None]
        shares = self._vote_shares(features)
        if len(shares) == 2:
            return shares[1:] - 0.5
        largest_others = []
        for label in range(len(shares)):
            other_shares = np.delete(shares, label, axis=0)
            largest_others.append(other_shares.max(axis=0))
        return shares - np.stack(largest_others)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return each class's share of the votes on queries [n, ...], [n, C].

        A vote of margins returns the sigmoid of the mean clipped margin instead.
        """
        if self._clip is not None:
            return logistic_shares(self.margins(features))
        return self._vote_shares(features).T

    def _member_labels(self, features: np.ndarray) -> np.ndarray:
        """Return each member's labels of queries [n, ...], [T, n] int64."""
        return np.stack([member.predict(features) for member in self.members])

    def _vote_shares(self, features: np.ndarray) -> np.ndarray:
        """Return the share of members that answer each class, [C, n]."""
        labels = self._member_labels(features)
        classes = range(self.problem.classes)
        return np.stack([(labels == label).mean(axis=0) for label in classes])

    def _labels_and_mean_margins(
        self, features: np.ndarray, clip: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return labels [n] and mean clipped margins [n] of a vote of margins."""
        # An envelope has the nominal margin beside its bounds. The bounds are not needed here, so
        # they are computed at one k alone.
        first_k = self.settings.kgrid.ks[:1]

        def labels_and_means(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            margins = [member.envelope(features[rows], first_k).margin for member in self.members]
            return margin_labels(margins, clip)

        parts = group().shared(len(features), ROWS, labels_and_means)
        labels, means = zip(*parts, strict=True)
        return np.concatenate(labels), np.concatenate(means)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return certificates of the vote on queries.

        Args:
            features: [n, ...] queries.
            ks: the values of k at which members are certified; None: the whole grid.
            on_progress: called after every member.
        """
        count = len(self.members)
        certificates = []
        single_edit_certificates = []
        for done, member in enumerate(self.members, start=1):
            member_certificates = member.certify(features, ks)
            certificates.append(member_certificates)
            counting = member.counting_single_edits
            if counting is not member:
                member_certificates = counting.certify(features, ks)
            single_edit_certificates.append(member_certificates)
            on_progress(Progress(done, count, done, count))
        label_vote = vote(certificates, single_edit_certificates, self.problem.classes)
        if self._clip is None:
            return label_vote
        by_distance, by_steps = self._margin_votes(features, ks, self._clip)
        return label_vote.with_margins(by_distance, by_steps)

    def _margin_votes(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float
    ) -> tuple[Vote, Vote]:
        """Return the votes of margins by distance in records, and by steps of the grid."""
        grid = self.settings.kgrid
        by_distance = self._margin_vote(features, ks, clip, in_steps=False)
        if ks is None and grid.dense:  # a step of a dense grid is one record
            return by_distance, by_distance
        step_ks = grid.ks if ks is None else ks
        return by_distance, self._margin_vote(features, step_ks, clip, in_steps=True)

    def _margin_vote(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float, in_steps: bool
    ) -> Vote:
        """Return the vote of margins on queries [n, ...].

        Args:
            features: [n, ...] queries.
            ks: where members' margins are bounded; None: at every k that a vote of margins uses.
            clip: what margins are clipped to.
            in_steps: whether the distance counts steps of ``ks``, instead of records.
        """
        memory_bytes = self.settings.compute.memory_mb * 2**20
        query_bytes = _MARGIN_BYTES * len(self.members) * MAX_MARGIN_EDITS
        queries_at_once = max(1, memory_bytes // query_bytes)

        def vote_on(rows: slice) -> Vote:
            envelopes = []
            for member in self.members:
                if in_steps:
                    envelope = member.envelope(features[rows], ks)
                else:
                    single_edits = member.counting_single_edits.envelope(features[rows], ks)
                    envelope = single_edits.at_every_k(MAX_MARGIN_EDITS)
                envelopes.append(envelope)
            return margin_vote(envelopes, clip, touches=self._touches)

        return Vote.concatenate([*group().shared(len(features), queries_at_once, vote_on)])


def vote(members: list[Certificates], edits: list[Certificates], classes: int) -> VoteCertificates:
    """Return the certificates of a vote of labels.

    Args:
        members: each member's certificates of the same queries.
        edits: each member's certificates with single edits counted (Lemma 5 of
            docs/proofs/votes.md); those of ``members`` where a member has no others.
        classes: C.
    """
    relation = members[0].relation
    labels = np.stack([certificates.prediction for certificates in members])
    distances = np.stack([certificates.stable_distance for certificates in members])
    edit_distances = np.stack([certificates.stable_distance for certificates in edits])
    steps = np.stack([count_grid_steps(member.ks, member.certified) for member in members])
    touches = RELATIONS[relation].touches
    member_prices = [certificates.edits_to_win for certificates in edits]
    known_prices = [prices for prices in member_prices if prices is not None]
    prices = None
    if len(known_prices) == len(edits):  # of some members alone they are of no use
        prices = np.stack(known_prices, axis=1)
    by_distance = certified_vote(
        labels, edit_distances, classes, touches=touches, edits_to_win=prices
    )
    by_steps = certified_vote(labels, steps, classes, touches=touches)
    return VoteCertificates.from_members(
        relation, by_distance, by_steps, labels, distances, classes
    )


def fit_members(
    problem: Problem,
    indices: Sequence[int],
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[tuple[Model, ShardRecord]]:
    """Train some members of an ensemble, in several processes at once.

    Args:
        problem: the problem of the whole ensemble, with all training records.
        indices: the members to train.
        on_progress: called after every member.
        checkpoints: where an interrupted training continues.

    Returns:
        Each member's model and what it was trained on, in the order of ``indices``.
    """
    dataset = problem.dataset
    # Member processes get no records but those of their own shard.
    train_member = partial(_fit_member, problem.on(dataset.bare), training_environment(problem))

    def report_member(done: int) -> None:
        on_progress(Progress(done, len(indices), done, len(indices)))

    return train_members(
        train_member,
        problem.setup,
        dataset.train,
        problem.settings.ensemble,
        report_member,
        checkpoints,
        indices,
    )


def load_members(problem: Problem, reader: FileReader, indices: Sequence[int]) -> list[Model]:
    """Read some members of an ensemble back.

    Args:
        problem: the problem of the whole ensemble.
        reader: the folder of the whole ensemble.
        indices: the members to read.

    Returns:
        The members' models, in the order of ``indices``.

    Raises:
        ConfigError, UnsoundError: as the members' kind of certificate raises.
    """
    dataset = problem.dataset
    ensemble = problem.settings.ensemble
    shard_of_rows = shards(dataset.train.units, ensemble)
    member_size = None
    if dataset.declared_size is not None:
        member_size = dataset.declared_size / ensemble.members
    members = []
    for index in indices:
        records = dataset.train.take(shard_of_rows == index)
        shard = dataset.bare.with_shard(records, member_size)
        count = problem.records[index] if isinstance(problem.records, tuple) else None
        folder = reader.part(member_folder(index))
        members.append(problem.settings.certificate.load(problem.on(shard, count), folder))
    return members


def training_environment(problem: Problem) -> dict[str, object]:
    """Return what a model's bits depend on beside settings and records, if it is trained now.

    Returns:
        The versions and the machine (``agt.provenance.surroundings``), settings of compute that
        divide sums otherwise, and what the kind of certificate reads beside them.
    """
    compute = problem.settings.compute
    names = ("device", "kernel", "fragment", "memory_mb")
    division = {f"compute.{name}": getattr(compute, name) for name in names}
    inputs = problem.settings.certificate.training_inputs(problem)
    return {**surroundings(compute.device, compute.threads), **division, **inputs}


def _fit_member(
    problem: Problem,
    environment: Mapping[str, object],
    setup: TrainingSetup,
    records: Records,
    checkpoints: Checkpoints,
) -> tuple[Model, ShardRecord]:
    """Train one member in a process of its own.

    Args:
        problem: the problem of the whole ensemble, without records.
        environment: that of the whole ensemble.
        setup: the member's.
        records: the member's shard.
        checkpoints: the member's.

    Returns:
        The member's model, which holds no data, and what it was trained on.
    """
    settings = replace(problem.settings, compute=setup.compute)
    shard = problem.dataset.with_shard(records, setup.declared_size)
    member_problem = replace(problem, dataset=shard, settings=settings)
    model = settings.certificate.fit(member_problem, checkpoints=checkpoints)
    # The process sends the model back, so its problem must be the one without records.
    return model.with_problem(problem), ShardRecord(fingerprint(records), environment)
