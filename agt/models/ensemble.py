"""An ensemble of models on disjoint shards, answering by certified vote (001 section 5; method.md
section 4).

The vote is of their labels, or of their margins. Beside each member's model lies what a later
training of some members needs to know (docs/proofs/sisa.md): shard.json has a digest of the
records of its shard, and what else its bits depend on.
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
from agt.training.recipe import Recipe

SHARD = "shard.json"
_MARGIN_BYTES = 40  # of working memory for each query, member and edit looked at


@dataclass(frozen=True)
class ShardRecord:
    """What one member was trained on, and by the way.

    Attributes:
        digest: of the records.
        made: what the bits depend on beside settings and records (``agt.provenance.surroundings``).
    """

    digest: str
    made: Mapping[str, object]

    @classmethod
    def read(cls, shelf: FileReader) -> "ShardRecord":
        """Of a member's folder. Raises ConfigError: a file is missing or not what was written."""
        node = shelf.json(SHARD)
        (digest,) = node["digests"]  # a list, as shards had several slices in earlier versions
        return cls(digest, node["made"])

    def save(self, store: FileWriter) -> None:
        """Into a member's folder."""
        store.write(SHARD, as_json({"digests": [self.digest], "made": self.made}))


@dataclass(frozen=True)
class EnsembleModel(ModelDefaults):
    """Members trained alike on disjoint shards.

    Attributes:
        members: their models.
        shards: what each was trained on; none of a model read back.
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
        """Train every member, several processes at once."""
        trained = fit_members(
            problem, range(problem.settings.ensemble.members), on_progress, checkpoints
        )
        return cls(
            problem, tuple(model for model, _ in trained), tuple(shard for _, shard in trained)
        )

    @classmethod
    def load(cls, problem: Problem, shelf: FileReader) -> "EnsembleModel":
        """Read every member back."""
        return cls(
            problem, tuple(load_members(problem, shelf, range(problem.settings.ensemble.members)))
        )

    def save(self, store: FileWriter) -> None:
        """members/000/..., each as a run without an ensemble keeps its model."""
        for index, member in enumerate(self.members):
            member.save(store.part(member_folder(index)))

    def save_shards(self, store: FileWriter) -> None:
        """Beside the members, in the run they were trained in: a model that travels takes no
        digests of records along.
        """
        for index, shard in enumerate(self.shards):
            shard.save(store.part(member_folder(index)))

    @property
    def member_models(self) -> tuple[Model, ...]:
        """Its members."""
        return self.members

    def has_features_of(self, dataset: Dataset) -> bool:
        """Return whether all members' public features are those that a dataset's public rows
        make.
        """
        return all(member.has_features_of(dataset) for member in self.members)

    @property
    def plan(self) -> BatchPlan:
        """The first member's batch plan; all are alike but for what an undeclared size would
        make of them.
        """
        return self.members[0].plan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g: those of each member; which member a record trains depends on its own
        id too.
        """
        conditions = self.members[0].conditions
        facts = {"b": shards_fact(len(self.members), self._touches)}
        if self._clip is not None:
            facts["c"] = proved("margins_clipped", clip=self._clip, edits=MAX_MARGIN_EDITS)
        return tuple(c.with_facts(facts[c.letter]) if c.letter in facts else c for c in conditions)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The first member's, and how many there are."""
        return {**self.members[0].metrics, "members": len(self.members)}

    @property
    def max_distance(self) -> int:
        """As far as all members together reach, or a vote of margins looks; and as many votes as
        there are.

        That covers votes of single edits: ``per_k`` being exactly two of theirs, a linear head
        withstands at most int(2 s) + 2 <= 2 int(s) + 3, s = reach / move of its ``max_distance`` >=
        int(s) + 2. So the vote's L < F / 2 <= sum (2 int(s) + 4) / 2, which is the sum of int(s) +
        2.
        """
        if self._clip is not None:
            return max(MAX_MARGIN_EDITS, len(self.members))
        return sum(member.max_distance + 1 for member in self.members)

    @property
    def _clip(self) -> float | None:
        """Of a vote of margins; None: it is one of labels."""
        return self.settings.ensemble.margin_clip

    @property
    def _touches(self) -> int:
        return RELATIONS[self.settings.relation.name].touches

    def check(self, features: np.ndarray) -> None:
        """As every member does: they are alike but for their parameters."""
        self.members[0].check(features)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64: the vote's labels, ties to the smaller class."""
        if self._clip is not None:
            return self._summed(features, self._clip)[0]
        labels = np.stack([member.predict(features) for member in self.members])
        return certified_vote(
            labels, np.zeros_like(labels), self.problem.classes, touches=self._touches
        ).prediction

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] of two classes: share of votes for class 1, less a half, or the mean of the
        clipped margins; else each class's share less the best other's.
        """
        if self._clip is not None:
            return self._summed(features, self._clip)[1][None]
        shares = self._vote_shares(features)
        if len(shares) == 2:
            return shares[1:] - 0.5
        return shares - np.stack(
            [np.delete(shares, c, axis=0).max(axis=0) for c in range(len(shares))]
        )

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] each class's share of the votes; of a vote of margins, the sigmoid of their
        clipped mean.
        """
        if self._clip is not None:
            return logistic_shares(self.margins(features))
        return self._vote_shares(features).T

    def _vote_shares(self, features: np.ndarray) -> np.ndarray:
        """[C, n] the shares of members that answer each class."""
        labels = np.stack([member.predict(features) for member in self.members])
        return np.stack([(labels == c).mean(axis=0) for c in range(self.problem.classes)])

    def _summed(self, features: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
        """``margin_labels`` of some queries."""
        least = self.settings.kgrid.ks[:1]  # bounds at one k, as none of them is looked at

        def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
            return margin_labels(
                [member.envelope(features[rows], least).margin for member in self.members], clip
            )

        labels, means = zip(*group().shared(len(features), ROWS, work), strict=True)
        return np.concatenate(labels), np.concatenate(means)

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Certify every member, then the vote."""
        certificates, edits, count = [], [], len(self.members)
        for done, member in enumerate(self.members, start=1):
            single = member.counting_single_edits
            certificates.append(member.certify(features, ks))
            edits.append(certificates[-1] if single is member else single.certify(features, ks))
            on_progress(Progress(done, count, done, count))
        known = vote(certificates, edits, self.problem.classes)
        return (
            known
            if self._clip is None
            else known.with_margins(*self._margin_votes(features, ks, self._clip))
        )

    def _margin_votes(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float
    ) -> tuple[Vote, Vote]:
        """The vote of margins with its distance in records, and in steps of the grid: on a dense
        one the first is both.
        """
        grid = self.settings.kgrid
        by_distance = self._margin_vote(features, ks, clip, steps=False)
        if ks is None and grid.dense:
            return by_distance, by_distance
        return by_distance, self._margin_vote(
            features, grid.ks if ks is None else ks, clip, steps=True
        )

    def _margin_vote(
        self, features: np.ndarray, ks: tuple[int, ...] | None, clip: float, steps: bool
    ) -> Vote:
        """Of as many queries at once as the working memory takes."""
        at_once = max(
            1,
            self.settings.compute.memory_mb
            * 2**20
            // (_MARGIN_BYTES * len(self.members) * MAX_MARGIN_EDITS),
        )

        def work(rows: slice) -> Vote:
            if steps:
                some = [member.envelope(features[rows], ks) for member in self.members]
            else:
                some = [
                    member.counting_single_edits.envelope(features[rows], ks).at_every_k(
                        MAX_MARGIN_EDITS
                    )
                    for member in self.members
                ]
            return margin_vote(some, clip, touches=self._touches)

        return Vote.concatenate([*group().shared(len(features), at_once, work)])


def vote(members: list[Certificates], edits: list[Certificates], classes: int) -> VoteCertificates:
    """The vote's certificates from the members', and from those that count single edits where a
    member has such.
    """
    labels = np.stack([c.prediction for c in members])
    distances, costs = (np.stack([c.stable_distance for c in each]) for each in (members, edits))
    steps = np.stack([count_grid_steps(c.ks, c.certified) for c in members])
    touches = RELATIONS[members[0].relation].touches
    priced = [c.prices for c in edits if c.prices is not None]
    prices = np.stack(priced, axis=1) if len(priced) == len(edits) else None
    by_distance = certified_vote(labels, costs, classes, touches=touches, prices=prices)
    by_steps = certified_vote(labels, steps, classes, touches=touches)
    return VoteCertificates.from_members(
        members[0].relation, by_distance, by_steps, labels, distances, classes
    )


def fit_members(
    problem: Problem,
    which: Sequence[int],
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[tuple[Model, ShardRecord]]:
    """Train some members, several processes at once.

    Args:
        which: the members.
        on_progress: called after every member.
        checkpoints: what a killed run goes on from.
    """
    dataset, ensemble = problem.dataset, problem.settings.ensemble
    member = partial(_fit_member, problem.on(dataset.bare), made_by(problem))

    def on_done(done: int) -> None:
        on_progress(Progress(done, len(which), done, len(which)))

    return train_members(
        member, problem.recipe, dataset.train, ensemble, on_done, checkpoints, which
    )


def load_members(problem: Problem, shelf: FileReader, which: Sequence[int]) -> list[Model]:
    """Read some members back."""
    dataset, ensemble = problem.dataset, problem.settings.ensemble
    home = shards(dataset.train.units, ensemble)
    share = None if dataset.declared_size is None else dataset.declared_size / ensemble.members
    certificate = problem.settings.certificate
    members = []
    for index in which:
        shard = dataset.bare.with_shard(dataset.train.take(home == index), share)
        count = problem.records[index] if isinstance(problem.records, tuple) else None
        members.append(certificate.load(problem.on(shard, count), shelf.part(member_folder(index))))
    return members


def made_by(problem: Problem) -> dict[str, object]:
    """What the bits of a model, or of members, that are trained now depend on beside settings
    and records.
    """
    compute = problem.settings.compute
    cut = {
        f"compute.{key}": getattr(compute, key)
        for key in ("device", "kernel", "fragment", "memory_mb")
    }
    inputs = problem.settings.certificate.training_inputs(problem)
    return {**surroundings(compute.device, compute.threads), **cut, **inputs}


def _fit_member(
    problem: Problem,
    made: Mapping[str, object],
    recipe: Recipe,
    records: Records,
    checkpoints: Checkpoints,
) -> tuple[Model, ShardRecord]:
    """Train one member in a process of its own; what it sends back holds the model and no data."""
    settings = replace(problem.settings, compute=recipe.compute)
    shard = replace(
        problem,
        dataset=problem.dataset.with_shard(records, recipe.declared_size),
        settings=settings,
    )
    model = settings.certificate.fit(shard, checkpoints=checkpoints).with_problem(problem)
    return model, ShardRecord(fingerprint(records), made)
