"""Ensembles of models that are trained on disjoint parts of the data and answer by certified vote.

The vote is over the members' labels or over their margins (docs/proofs/votes.md). Beside its
model, each member's folder has ``shard.json``: a digest of the member's records (its shard), and
what else its bits depend on. It allows retraining only some members later (docs/proofs/sisa.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agt.certificates.box import Certificates, count_grid_steps
from agt.certificates.conditions import Condition, add_facts, shards_fact
from agt.certificates.envelopes import MAX_MARGIN_EDITS
from agt.certificates.margin_votes import margin_labels, margin_vote
from agt.certificates.vote_certificates import VoteCertificates
from agt.certificates.vote_costs import count_votes
from agt.certificates.votes import Vote, certified_vote
from agt.data.arrays import rows_in
from agt.data.dataset import Dataset
from agt.data.digests import fingerprint
from agt.data.records import Records
from agt.facts import Fact, proved
from agt.models.model import Model, map_queries
from agt.models.shards import ShardRecord
from agt.models.shares import logistic_shares
from agt.models.store import FileWriter
from agt.numeric import signed_margins
from agt.problem import Problem
from agt.provenance import surroundings
from agt.relations import RELATIONS
from agt.store.folder import Folder
from agt.store.json_text import Metrics
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.ensemble import assign_shards, member_folder, train_members
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.setup import TrainingSetup

_MARGIN_BYTES = 40  # of working memory for each query, member and edit of a vote of margins


@dataclass(frozen=True)
class EnsembleModel(Model):
    """An ensemble: models that are trained on disjoint parts of the data and answer by vote.

    A part of the data is called a shard. A public hash of a record's id decides its shard, and all
    members have the same settings.

    Attributes:
        members: the T trained models, in the order of their shards.
        shards: a digest of each member's records; empty for an ensemble that was read back.
    """

    members: tuple[Model, ...]
    shards: tuple[ShardRecord, ...] = ()

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> "EnsembleModel":
        """Train all members of an ensemble.

        Args:
            problem: the records of all members, and the settings.
            on_progress: called after every member.
            checkpoints: where an interrupted training resumes from, and where it saves its state.

        Raises:
            ConfigError, UnsoundError: the training of a member raised it.
        """
        all_members = range(problem.settings.ensemble.members)
        trained = fit_members(problem, all_members, on_progress, checkpoints)
        models, shard_records = zip(*trained, strict=True)
        return cls(problem, models, shard_records)

    @classmethod
    def load(cls, problem: Problem, reader: Folder) -> "EnsembleModel":
        """Read all members of a saved ensemble back.

        Args:
            problem: the settings and data that the ensemble was trained with; its records may be
                missing.
            reader: the files of the ensemble, with a subfolder for each member.

        Raises:
            ConfigError: a file is missing, or is not what was written.
            UnsoundError: a recorded value differs from the one that the settings imply.
        """
        all_members = range(problem.settings.ensemble.members)
        return cls(problem, tuple(load_members(problem, reader, all_members)))

    def save(self, writer: FileWriter) -> None:
        """Write each member's model into a subfolder; ``save_shards`` writes the digests."""
        for index, member in enumerate(self.members):
            member.save(writer.part(member_folder(index)))

    def save_shards(self, writer: FileWriter) -> None:
        """Write a digest of each member's training records into the member's subfolder.

        Only the run that trains the members calls it. ``save`` does not, because it also exports
        models, and an exported model must not contain digests of records.
        """
        for index, shard in enumerate(self.shards):
            shard.save(writer.part(member_folder(index)))

    @property
    def member_models(self) -> tuple[Model, ...]:
        """The models of the ensemble's members."""
        return self.members

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether a dataset's public rows give every member the same public feature map.

        Args:
            dataset: the data, of which only the rows that are declared public are read.
        """
        return all(member.has_features_of(dataset) for member in self.members)

    @property
    def plan(self) -> BatchPlan:
        """The first member's plan of batches.

        If the size of the data is declared, all members have the same plan. If it is not declared,
        they differ in the number by which sums of gradients are divided, because it is derived from
        the number of the member's own records.
        """
        return self.members[0].plan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy guarantee, each with the evidence for or against it.

        They are conditions a to g of docs/method.md, in this order: those of the first member, with
        facts about the vote added to condition b (each record is processed by itself) and
        condition c (all constants are public).
        """
        # Condition b (each record is processed by itself): which member a record trains depends on
        # the record's own id only.
        in_shards = shards_fact(len(self.members), self.members_per_edit)
        vote_facts: dict[str, tuple[Fact, ...]] = {"b": (in_shards,)}
        if self._clip is not None:
            # Condition c (public constants): the clip level is public.
            clipped = proved("margins_clipped", clip=self._clip, edits=MAX_MARGIN_EDITS)
            vote_facts["c"] = (clipped,)
        return add_facts(self.members[0].conditions, vote_facts)

    @property
    def metrics(self) -> Metrics:
        """The first member's metrics, and the number of members."""
        return {**self.members[0].metrics, "members": len(self.members)}

    @property
    def max_distance(self) -> int:
        """A public upper bound on the stable distances of the vote and on the number of votes.

        A stable distance is the number of edits of the training data that a label withstands.
        """
        if self._clip is not None:
            # A vote of margins certifies no more than MAX_MARGIN_EDITS edits.
            return max(MAX_MARGIN_EDITS, len(self.members))
        # Lemma 10 of docs/proofs/votes.md: a vote's distance is below the number of edits after
        # which all members may have changed their labels, at most max_distance + 1 for each.
        return sum(member.max_distance + 1 for member in self.members)

    @property
    def _clip(self) -> float | None:
        """The absolute value at which members' margins are clipped; None for a vote of labels."""
        return self.settings.ensemble.margin_clip

    def check(self, features: np.ndarray) -> None:
        """Raise an error if the members cannot be applied to queries.

        The first member decides for all, because members differ only in their parameters.

        Args:
            features: [n, ...] the queries.

        Raises:
            ConfigError: a query has another shape than a training record.
            UnsoundError: a query is not finite in the model's precision.
        """
        self.members[0].check(features)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the label that the vote gives to each query.

        A vote of labels takes the class that most members predict; of tied classes, the smaller
        one wins. A vote of margins takes class 1 where the sum of clipped margins is positive.

        Args:
            features: [n, ...] the queries.

        Returns:
            [n] int64 class indices.
        """
        if self._clip is not None:
            labels, _ = self._labels_and_mean_margins(features, self._clip)
            return labels
        member_labels = self._member_labels(features)
        # Only the winner is needed here. It does not depend on the members' stable distances, so
        # zeros stand for these.
        no_distances = np.zeros_like(member_labels)
        vote = certified_vote(
            member_labels, no_distances, self.problem.classes, touches=self.members_per_edit
        )
        return vote.prediction

    def margins(self, features: np.ndarray) -> np.ndarray:
        """Return the signed margins of the vote; the predicted label changes where one is 0.

        Args:
            features: [n, ...] the queries.

        Returns:
            For two classes [1, n]: the share of votes for class 1 minus 1/2, or in a vote of
            margins the mean of the members' clipped margins, divided by the clip level.
            For C > 2 classes [C, n]: each class's share of the votes minus the largest other share.
        """
        if self._clip is not None:
            _, mean_margins = self._labels_and_mean_margins(features, self._clip)
            return mean_margins[None]
        shares = self._vote_shares(features)
        if len(shares) == 2:
            return shares[1:] - 0.5
        return signed_margins(shares.T)

    def shares(self, features: np.ndarray) -> np.ndarray:
        """Return each class's share of the members' votes, [n, C]; each row sums to 1.

        A vote of margins returns the sigmoid of the mean clipped margin instead.

        Args:
            features: [n, ...] the queries.
        """
        if self._clip is not None:
            return logistic_shares(self.margins(features))
        return self._vote_shares(features).T

    def _member_labels(self, features: np.ndarray) -> np.ndarray:
        """Return the label that each of the T members gives to each query [n, ...], [T, n]."""
        return np.stack([member.predict(features) for member in self.members])

    def _vote_shares(self, features: np.ndarray) -> np.ndarray:
        """Return the share of members that predict each class for each query [n, ...], [C, n]."""
        votes = count_votes(self._member_labels(features), self.problem.classes)
        return votes / len(self.members)

    def _labels_and_mean_margins(
        self, features: np.ndarray, clip: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels and the mean clipped margins of a vote of margins (two classes).

        Args:
            features: [n, ...] the queries.
            clip: the absolute value at which each member's margin is clipped.

        Returns:
            [n] int64 labels, 1 where the sum of clipped margins is positive; [n] float64 means of
            the clipped margins, divided by ``clip``.
        """
        # ``envelope`` returns the margins together with bounds. The bounds are not needed here, so
        # they are computed for only one number of edits.
        first_k = self.settings.kgrid.ks[:1]

        def labels_and_means(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return labels and mean clipped margins of a block of the queries."""
            margins = [member.envelope(queries, first_k).margin for member in self.members]
            return margin_labels(margins, clip)

        labels, means = zip(*map_queries(features, labels_and_means), strict=True)
        return np.concatenate(labels), np.concatenate(means)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return the vote's label of each query, and the number of edits of the data it withstands.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits for which members are certified; None: the grid of the
                settings.
            on_progress: called after every member.

        Returns:
            The labels [n] with their stable distances (the number of edits that each withstands),
            and the members' labels and stable distances.
        """
        count = len(self.members)
        certificates = []
        single_edit_certificates = []
        for done, member in enumerate(self.members, start=1):
            member_certificates = member.certify(features, ks)
            certificates.append(member_certificates)
            # A replaced record is two single edits, a removal and an addition, which may change two
            # members. A member that can count them separately is certified a second time.
            single_edit_member = member.counting_single_edits
            if single_edit_member is not member:
                member_certificates = single_edit_member.certify(features, ks)
            single_edit_certificates.append(member_certificates)
            on_progress(Progress.of_steps(done, count))
        label_vote = vote_certificates(certificates, single_edit_certificates, self.problem.classes)
        if self._clip is None:
            return label_vote
        by_distance, by_steps = self._margin_votes(features, ks, self._clip)
        return label_vote.with_margins(by_distance, by_steps)

    def _margin_votes(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float
    ) -> tuple[Vote, Vote]:
        """Return the vote of margins with two kinds of stable distance.

        In a vote of margins, class 1 wins if the sum of the members' clipped margins is positive. A
        stable distance is the number of edits of the training data that the label withstands.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits for which members' margins are bounded; None: all.
            clip: the absolute value at which each member's margin is clipped.

        Returns:
            The vote with distances in edits; and the vote with distances in steps of the grid of k
            (the numbers of edits for which the members have bounds).
        """
        grid = self.settings.kgrid
        by_distance = self._margin_vote(features, ks, clip, in_steps=False)
        if ks is None and grid.dense:  # a step of a grid without gaps is one edit
            return by_distance, by_distance
        if ks is None:
            ks = grid.ks
        by_steps = self._margin_vote(features, ks, clip, in_steps=True)
        return by_distance, by_steps

    def _margin_vote(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float, in_steps: bool
    ) -> Vote:
        """Return the labels of a vote of margins with their stable distances.

        Class 1 wins if the sum of the members' clipped margins is positive. A stable distance is
        the number of edits of the training data that the label withstands.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits for which members' margins are bounded; None: every number that
                a vote of margins uses.
            clip: the absolute value at which each member's margin is clipped.
            in_steps: True: a stable distance counts steps of ``ks``; False: it counts edits.
        """
        query_bytes = _MARGIN_BYTES * len(self.members) * MAX_MARGIN_EDITS
        queries_at_once = rows_in(self.settings.compute.memory_bytes, query_bytes)

        def vote_on(queries: np.ndarray) -> Vote:
            """Return the vote on a block of the queries."""
            envelopes = []
            for member in self.members:
                if in_steps:
                    envelope = member.envelope(queries, ks)
                else:
                    # Bounds at every number of edits, between the values of k as well.
                    single_edits = member.counting_single_edits.envelope(queries, ks)
                    envelope = single_edits.at_every_k(MAX_MARGIN_EDITS)
                envelopes.append(envelope)
            return margin_vote(envelopes, clip, touches=self.members_per_edit)

        votes = map_queries(features, vote_on, block_rows=queries_at_once)
        return Vote.concatenate(list(votes))


def vote_certificates(
    members: list[Certificates], single_edit_members: list[Certificates], classes: int
) -> VoteCertificates:
    """Return the certificates of a vote, from the certificates of the members that vote.

    The class that most members predict wins. The result bounds how many edits of the training data
    the winner withstands.

    Args:
        members: each member's certificates of the same n queries, at least one member.
        single_edit_members: each member's certificates where a replaced record is counted as two
            edits, a removal and an addition (Lemma 5 of docs/proofs/votes.md: the vote may use
            these, because both edits can fall into different members' data). A member that cannot
            count them has its entry of ``members`` here.
        classes: the number of classes.
    """
    relation = members[0].relation
    labels = np.stack([certificates.prediction for certificates in members])
    distances = np.stack([certificates.stable_distance for certificates in members])
    edit_distances = np.stack(
        [certificates.stable_distance for certificates in single_edit_members]
    )
    steps = np.stack([count_grid_steps(member.ks, member.certified) for member in members])
    # How many members one edit can change.
    members_per_edit = RELATIONS[relation].members_changed_per_edit
    # For each class, how many edits a member needs at least to predict it. The vote can use these
    # numbers only if all members have them.
    member_edits_to_win = [certificates.edits_to_win for certificates in single_edit_members]
    known_edits_to_win = [edits for edits in member_edits_to_win if edits is not None]
    edits_to_win = None
    if len(known_edits_to_win) == len(single_edit_members):
        edits_to_win = np.stack(known_edits_to_win, axis=1)
    # The vote's distance in edits, and in steps of the grid of k, which may have gaps.
    by_distance = certified_vote(
        labels, edit_distances, classes, touches=members_per_edit, edits_to_win=edits_to_win
    )
    by_steps = certified_vote(labels, steps, classes, touches=members_per_edit)
    return VoteCertificates.from_members(
        relation, by_distance, by_steps, labels, distances, classes
    )


def fit_members(
    problem: Problem,
    indices: Sequence[int],
    on_progress: OnProgress = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> list[tuple[Model, ShardRecord]]:
    """Train some members of an ensemble, in several processes at once.

    Args:
        problem: the settings of the ensemble, and the training records of all its members.
        indices: the numbers of the members to train, from 0 to the number of members less 1.
        on_progress: called after every member.
        checkpoints: where an interrupted training resumes from, and where it saves its state.

    Returns:
        Each member's model and a digest of what it was trained on, in the order of ``indices``.
    """
    dataset = problem.dataset
    # A worker process gets only its own member's records.
    problem_without_records = problem.with_dataset(dataset.without_records)
    # ``train_members`` calls it with the remaining arguments of each member.
    train_member = partial(_fit_member, problem_without_records, training_environment(problem))

    def report_member(done: int) -> None:
        """Report that ``done`` members have been trained."""
        on_progress(Progress.of_steps(done, len(indices)))

    return train_members(
        train_member,
        problem.setup,
        dataset.train,
        problem.settings.ensemble,
        on_done=report_member,
        checkpoints=checkpoints,
        indices=indices,
    )


def load_members(problem: Problem, reader: Folder, indices: Sequence[int]) -> list[Model]:
    """Read some members of a saved ensemble back.

    Args:
        problem: the settings of the ensemble, and the records of all its members or none.
        reader: the files of the ensemble, with a subfolder for each member.
        indices: the numbers of the members to read, from 0 to the number of members less 1.

    Returns:
        The members' models, in the order of ``indices``.

    Raises:
        ConfigError: a file is missing, or is not what was written.
        UnsoundError: a recorded value differs from the one that the settings imply.
    """
    dataset = problem.dataset
    ensemble = problem.settings.ensemble
    shard_of_rows = assign_shards(dataset.train.units, ensemble)  # the member of each record
    member_size = None
    if dataset.declared_size is not None:
        # A public number, in contrast to the count of the member's own records.
        member_size = dataset.declared_size / ensemble.members
    members = []
    for index in indices:
        records = dataset.train.take(shard_of_rows == index)
        shard = dataset.without_records.with_training_records(records, member_size)
        count = None
        if isinstance(problem.stored_record_counts, tuple):
            count = problem.stored_record_counts[index]
        member_problem = problem.with_dataset(shard, count)
        folder = reader.part(member_folder(index))
        members.append(problem.settings.certificate.load(member_problem, folder))
    return members


def training_environment(problem: Problem) -> dict[str, object]:
    """Return the software, machine and other inputs that the bits of a trained model depend on.

    A training in this process with the same settings and records gives the same bits as an earlier
    one if both have the same environment.

    Args:
        problem: has the settings of compute and the kind of certificate.

    Returns:
        Name -> value: versions of software and the machine, the settings that change the order of
        summation, and what else the kind of certificate reads, such as initial parameters.
    """
    compute = problem.settings.compute
    # Each of them changes how sums are divided into parts, and so the rounding.
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
    """Train one member of an ensemble; ``train_members`` calls it in a worker process.

    Args:
        problem: the settings of the ensemble, without any records.
        environment: the result of ``training_environment``.
        setup: the member's declared size, number of threads and memory; the other settings of
            training are taken from ``problem``.
        records: the member's own training records.
        checkpoints: where the member's training resumes from, and where it saves its state.

    Returns:
        The member's model, which holds no records, and a digest of what it was trained on.
    """
    settings = replace(problem.settings, compute=setup.compute)
    shard = problem.dataset.with_training_records(records, setup.declared_size)
    member_problem = replace(problem, dataset=shard, settings=settings)
    model = settings.certificate.fit(member_problem, checkpoints=checkpoints)
    # The process sends the model back, so its problem must be the one without records.
    return model.with_problem(problem), ShardRecord(fingerprint(records), environment)
