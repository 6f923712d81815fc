"""agt audit certificate: neighbours of a run are trained, and every claim of its certificates is
held against them.

What is audited is the model as it was saved. A violation is a counterexample, certain but for the
claim's own conditions. No violation is no proof; so it is counted how close the neighbours came,
and with that which narrowing of a bound would have been noticed.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from agt.bounds.network import Network
from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.vote_costs import count_votes
from agt.data.records import Records
from agt.errors import AgtError, ConfigError, counted
from agt.facts import Standing
from agt.models.box import BoxModel
from agt.models.features import to_integers
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.votes import FlipModel, VotesModel
from agt.relations import RELATIONS
from agt.settings import MOST_ROWS, schema
from agt.training.batches import BatchPlan
from agt.training.ensemble import assign_shards
from agt_audit.intervals import audit_intervals
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.neighbours import (
    Edited,
    EditKind,
    Editor,
    Target,
    Terms,
    bisected,
    edits_of,
    kinds_of,
    neighbour_of,
    neighbouring,
    neighbours_of,
    on_line,
    retrained,
)
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, Strength, counterexamples
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

Count = Annotated[int, Field(ge=0)]
CODE_KEYS = ("agt", "revision")  # of env.json
MAX_BESIDE = 100  # queries that are asked beside bounds, but for those bisected for it
GRAINS = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> how far ends of boxes may be from those of training again on another processor, in
widths of a box.
"""
MAX_REFUSALS_SHOWN = 3
SLACK = 1 - 2.0**-30  # of a distance between heads, as computed: rounded down
EDITS_AT_ONCE = 64  # made before the next are made from those that went farthest
KEPT_EDITS = 16  # that went farthest
LONG_SECONDS = 300  # of an audit in which other processes are worth their start
NESTING = {
    "each parameter": (
        "if D and D' are neighbouring datasets, the parameter bounds computed on D' for "
        "distance k - 1 lie within those computed on D for distance k",
        "ends of parameter bounds",
    ),
}
"""What is bounded -> (what is claimed of neighbours' bounds, what is compared)."""
ON_RECORD = {"each parameter": "parameters and boxes"}
# What findings are about; their subjects begin so.
ON_RECORD_AGAIN, PARAMETERS = "on record", "parameters"
CERTIFIED_LABELS, LABELS_WITHIN_BOUNDS = "certified labels", "labels within bounds"
MEMORISATION, OTHER_MEMORISATION = (
    "memorisation of certified records",
    "memorisation of records whose stable distance is 0",
)
NESTING_BOXES, STABLE_DISTANCES, BATCHES = "nesting", "stable distances", "batches and constants"
LabelsAndDistances = tuple[np.ndarray, np.ndarray]
Kind = tuple[str, int]  # an edit in words, and its distance
Shares = dict[str, float]  # parameters by name -> how far they went of what is allowed


# -- what each kind of model bounds
# ------------------------------------------------------------------------------------


def steepest(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """[n] bool: queries whose label changes at parameters within the bound of their k: those where
    the label's lead falls most steeply. A certificate says it does at none.

    A kind of model has ``parameters(model)`` by name, ``logits(model, query, parameters)`` [1, J]
    less thresholds, and ``within(model, k)``, which moves parameters against a gradient as far as k
    allows; None: no bound is kept.
    """
    bounds, turned, labels = (
        bounds_of(model),
        np.zeros(len(queries), dtype=bool),
        torch.from_numpy(model.predict(queries)),
    )
    for row, k in enumerate(ks.tolist()):
        query, label, moved = queries[row : row + 1], labels[row : row + 1], bounds.within(model, k)
        if moved is not None:
            steep = ascent(model, query, label)
            with torch.no_grad():
                turned[row] = float(leads(bounds.logits(model, query, moved(steep)), label)) < 0
    return turned


def ascent(model: Any, query: np.ndarray, label: Tensor) -> dict[str, Tensor]:
    """The gradient, by parameter, of the lead of a label [1] at a query [1, ...]."""
    bounds = bounds_of(model)
    leaves = {
        name: each.detach().clone().requires_grad_()
        for name, each in bounds.parameters(model).items()
    }
    leads(bounds.logits(model, query, leaves), label).sum().backward()
    return {
        name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        for name, leaf in leaves.items()
    }


def leads(logits: Tensor, labels: Tensor) -> Tensor:
    """[n] by how much each label's logit leads, of [n, J]; of one logit, how far it lies on the
    label's side.
    """
    if logits.shape[1] == 1:
        return logits[:, 0] * (2 * labels - 1)
    own = labels[:, None]
    return logits.gather(1, own)[:, 0] - logits.scatter(1, own, -math.inf).amax(dim=1)


def uphill(model: Any, records: Records) -> np.ndarray:
    """[n, ...] the signs of the directions in which each record's label loses its lead."""
    x = torch.from_numpy(np.array(records.features)).double().requires_grad_()
    lead = leads(BoxBounds.logits(model, x, model.box.nominal), torch.from_numpy(records.labels))
    (slope,) = torch.autograd.grad(lead.sum(), x)
    return -slope.sign().numpy()


class Bounds:
    """What bounds a model's parameters.

    A kind says its own, but where bounds do not depend on the records.
    """

    turned: ClassVar[Any] = staticmethod(steepest)
    bounds: ClassVar[Any] = staticmethod(lambda model: [])
    drift: ClassVar[Any] = staticmethod(lambda recorded, again: 0.0)


class BoxBounds(Bounds):
    """Parameters are bounded one by one, by boxes."""

    @staticmethod
    def parameters(model: BoxModel) -> Mapping[str, Tensor]:
        """The nominal ones."""
        return model.box.nominal

    @staticmethod
    def logits(
        model: BoxModel, query: np.ndarray | Tensor, parameters: Mapping[str, Tensor]
    ) -> Tensor:
        """The network's, with other parameters."""
        training = model.settings.training
        network = Network.from_head(model.head, training.loss, model.problem.classes)
        x = query if isinstance(query, Tensor) else torch.from_numpy(np.array(query))
        return (
            network.logits(x.to(getattr(torch, training.dtype)), dict(parameters))
            - network.loss.threshold
        )

    @staticmethod
    def within(model: BoxModel, k: int) -> Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]:
        """To the corner of the box of the last k of the grid that is no farther."""
        box = model.box
        index = max(i for i, each in enumerate(box.ks) if each <= k)
        return lambda steep: {
            name: torch.where(down > 0, box.lower[name][index], box.upper[name][index])
            for name, down in steep.items()
        }

    @staticmethod
    def shares(mine: BoxModel, theirs: BoxModel, k: int) -> Shares | None:
        """How far each parameter went of what ``mine`` allows at k; above 1: out of bounds. None:
        no bound is kept, as k is beyond the grid.
        """
        box, shares = mine.box, Shares()
        index = next((i for i, each in enumerate(box.ks) if each >= k), None)
        if index is None:
            return None
        for name, value in theirs.box.nominal.items():
            lower, point, upper = box.lower[name][index], box.nominal[name], box.upper[name][index]
            moved = (value - point).double()
            room = torch.where(
                moved > 0, upper.double() - point.double(), point.double() - lower.double()
            )
            inside = (lower <= value) & (value <= upper)
            share = torch.where(moved == 0, 0.0, moved.abs() / room.clamp(min=1e-300))
            share = torch.where(inside, share.clamp(max=1.0), share.clamp(min=1 + 2.0**-20))
            shares[name] = float(share.max()) if share.numel() else 0.0
        return shares

    @staticmethod
    def outside(outer: BoxModel, inner: BoxModel) -> tuple[int, int]:
        """(ends of ``inner`` at k - 1 that stick out of ``outer`` at k, ends looked at); on a
        dense grid.
        """
        out = looked = 0
        for name in outer.box.lower:
            low, high = outer.box.lower[name][1:], outer.box.upper[name][1:]
            out += int(
                (low > inner.box.lower[name][:-1]).sum() + (inner.box.upper[name][:-1] > high).sum()
            )
            looked += 2 * low.numel()
        return out, looked

    @staticmethod
    def bounds(model: BoxModel) -> list[Tensor]:
        """Both ends of every box."""
        return [*model.box.lower.values(), *model.box.upper.values()]

    @staticmethod
    def drift(recorded: BoxModel, again: BoxModel) -> float:
        """How far recorded ends of boxes lie from those of training again, at most, in widths of
        the latter's boxes.
        """
        farthest, mine, theirs = 0.0, recorded.box, again.box
        for name, lower in theirs.lower.items():
            width = (theirs.upper[name].double() - lower.double()).clamp(min=1e-300)
            for there, here in ((mine.lower[name], lower), (mine.upper[name], theirs.upper[name])):
                difference = (there.double() - here.double()).abs()
                shares = torch.where(difference == 0, 0.0, difference / width)[1:]
                if shares.numel():  # nothing of a grid of k = 0 alone
                    farthest = max(farthest, float(shares.max().nan_to_num()))
        return farthest


class HeadBounds(Bounds):
    """A linear head: all weights are bounded together, by a radius for each k; of one classifier
    for each class, each of them.
    """

    @staticmethod
    def parameters(model: LinearModel) -> Mapping[str, Tensor]:
        """The weights."""
        return {"weight": model.trained.weight}

    @staticmethod
    def logits(model: LinearModel, query: np.ndarray, parameters: Mapping[str, Tensor]) -> Tensor:
        """Of a head with other weights."""
        return torch.from_numpy(model.phi(query)).double() @ parameters["weight"].T

    @classmethod
    def within(
        cls, model: LinearModel, k: int
    ) -> Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None:
        """To the edge of the ball, or nearly."""
        radius = cls.radius(model, k)

        def down(steep: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            length = cls.length(model, steep["weight"]).clamp(min=1e-300)
            return {"weight": model.trained.weight - SLACK * radius * steep["weight"] / length}

        return down if np.isfinite(radius) else None

    @classmethod
    def shares(cls, mine: LinearModel, theirs: LinearModel, k: int) -> Shares | None:
        """As ``BoxBounds.shares``; the distance is rounded down."""
        radius = cls.radius(mine, k)
        distance = (
            float(cls.length(mine, theirs.trained.weight - mine.trained.weight).max()) * SLACK
        )
        return {"weight": distance / radius} if np.isfinite(radius) else None

    @staticmethod
    def length(model: LinearModel, weight: Tensor) -> Tensor:
        """[J, 1] or [1, 1]: what a radius bounds."""
        if model.trained.loss.kind == "one_vs_all":
            return torch.linalg.vector_norm(weight, dim=1, keepdim=True)
        return torch.linalg.vector_norm(weight).reshape(1, 1)

    @staticmethod
    def radius(model: LinearModel, k: int) -> float:
        """What k moves it by."""
        sensitivity = model.trained.sensitivity
        return k * sensitivity.per_k or sensitivity.rounding


class VotesBounds(Bounds):
    """Members of a vote: one k changes as many as the relation says, and no other by a bit."""

    @staticmethod
    def parameters(model: VotesModel) -> Mapping[str, Tensor]:
        """All members'."""
        return {"weight": model.weight}

    @staticmethod
    def turned(model: VotesModel, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """As ``steepest``: so many votes of the winner go to one other class."""
        labels, rows = model.labels(model.phi(queries)), np.arange(len(queries))
        counts = count_votes(labels, model.problem.classes)
        winner, turned = counts.argmax(axis=0), np.zeros(len(queries), dtype=bool)
        votes = np.minimum(
            ks * RELATIONS[model.settings.relation.name].members_changed_per_edit,
            counts[winner, rows],
        )
        for rival in range(len(counts)):
            moved = counts.copy()
            moved[winner, rows] -= votes
            moved[rival] += votes
            turned |= moved.argmax(axis=0) != winner
        return turned

    @staticmethod
    def shares(mine: VotesModel, theirs: VotesModel, k: int) -> Shares | None:
        """As ``BoxBounds.shares``: how many members changed, of those that k may change."""
        changed = int((mine.weight != theirs.weight).flatten(1).any(dim=1).sum())
        return {
            "weight": changed
            / max(k * RELATIONS[mine.settings.relation.name].members_changed_per_edit, 1e-9)
        }


class FlipBounds(VotesBounds):
    """Members whose labels flip. Their weights have no bound but what that many flips can do."""

    @staticmethod
    def turned(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """Return as ``steepest``: labels flip that bring members to a rival, the cheapest first.

        The flips are looked for one by one, and not counted as certificates/flips.py does.
        """
        classes = model.problem.classes
        scaled = to_integers(model.phi(queries).astype(np.float64))
        turned = np.zeros(len(queries), dtype=bool)
        for row, k in enumerate(ks.tolist()):
            influences = [member.influence @ scaled[row] for member in model.members]
            members = list(
                zip(influences, (member.labels for member in model.members), strict=True)
            )
            answers = np.array([scores_of(*each, classes).argmax() for each in members])
            winner = np.bincount(answers, minlength=classes).argmax()
            for rival in range(classes):
                costs = np.array([flips_to_rival(*each, rival, classes, k) for each in members])
                cheapest = np.argsort(costs, kind="stable")
                edited = answers.copy()
                edited[cheapest[costs[cheapest].cumsum() <= k]] = rival
                turned[row] |= np.bincount(edited, minlength=classes).argmax() != winner
        return turned


def scores_of(influence: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Return each class's score, [C]: the sum of its records' influence [n] on a query."""
    return np.bincount(labels, weights=influence, minlength=classes)


def flips_to_rival(
    influence: np.ndarray, given: np.ndarray, rival: int, classes: int, most: int
) -> int:
    """Return after how many flipped labels a member answers ``rival``; above ``most``: not found.

    The labels that bring the rival past the class that leads are flipped, the strongest first, and
    the scores are added up again, until the rival leads.

    Args:
        influence: [n] whole numbers, what each record adds to its class's score.
        given: [n] the records' labels.
    """
    labels = given.copy()
    for _ in range(2 * classes):  # what brings it past one class may let another lead
        scores = scores_of(influence, labels, classes)
        leader = int(scores.argmax())
        flips = int((labels != given).sum())
        if flips > most:
            break
        if leader == rival:
            return flips
        to_rival = np.where(labels != rival, influence * (1 + (labels == leader)), 0)
        to_leader = np.where(labels != leader, -influence * (1 + (labels == rival)), 0)
        gain = np.maximum(to_rival, to_leader)
        strongest = np.argsort(-gain, kind="stable")
        # of equal scores the lower class answers
        lead = scores[leader] - scores[rival] + (leader < rival)
        count = int(np.searchsorted(gain[strongest].cumsum(), lead)) + 1
        chosen = strongest[:count]
        labels[chosen] = np.where(to_rival >= to_leader, rival, leader)[chosen]
    return most + 1


BOUNDS: Mapping[type, Any] = {
    BoxModel: BoxBounds,
    LinearModel: HeadBounds,
    FlipModel: FlipBounds,
    VotesModel: VotesBounds,
}


def bounds_of(model: Model) -> Any:
    """What bounds a model's parameters."""
    return next(BOUNDS[kind] for kind in type(model).__mro__ if kind in BOUNDS)


# -- queries
# --------------------------------------------------------------------------------------------------


def roots(
    read: Callable[[np.ndarray], LabelsAndDistances],
    low: np.ndarray,
    high: np.ndarray,
    level: np.ndarray,
) -> np.ndarray:
    """[2 m, ...]: pairs of queries a rounding apart, between which the label changes or a
    certificate ends.

    Args:
        read: queries -> labels and distances.
        low, high: [n, ...] ends of lines.
        level: [n] of each line: the label alone is followed (0), or whether the distance is at
            least this beside it; lines along which that does not change are left out.
    """

    def key(queries: np.ndarray, level: np.ndarray) -> np.ndarray:
        label, near = read(queries)
        return 2 * label + ((near >= level) & (level > 0))

    rows = np.flatnonzero(key(low, level) != key(high, level))
    low, high, level = low[rows], high[rows], level[rows]
    if not len(rows):
        return low
    return np.concatenate(
        [on_line(low, high, share) for share in bisected(partial(key, level=level), low, high)]
    )


def torn(one: LabelsAndDistances, two: LabelsAndDistances, symmetric: bool) -> np.ndarray:
    """[n] bool: queries of which neighbours say what no two may.

    Args:
        one, two: (labels, distances) of the run, and of a neighbour one k away.
        symmetric: the run is a neighbour of its neighbour too.
    """
    (label, near), (other, far) = one, two
    if not symmetric:
        return (near > far + 1) | ((label != other) & (near > 0))
    return (abs(near - far) > 1) | ((label != other) & ((near > 0) | (far > 0)))


def ks_apart(edit: Edited, relation: str) -> int:
    """How many k a neighbour is away: units gone and come, counted as the relation counts; at
    most ``edit.distance``.
    """
    gone, come = len(np.unique(edit.base.units[edit.gone])), len(edit.come)
    # A unit that stays is gone as it was and comes as it is, in one k.
    one_way = kinds_of(relation) <= {EditKind.LEAVES, EditKind.COMES}
    units = max(map(len, edits_of(relation)))
    return math.ceil((gone + come if one_way else max(gone, come)) / units)


# -- the audit
# --------------------------------------------------------------------------------------------------


@schema
class Certificate(AuditKind):
    """How hard an audit tries.

    Attributes:
        units: as many are left out one by one, drawn at random where there are more; None: all.
        neighbours: edited datasets made to hurt, at distances 1 to ``farthest``.
        farthest: the greatest k.
        bounded: neighbours that are trained with all their bounds.
        queries: test records that are asked.
        lines: lines between them along which roots are looked for.
        seconds: no new neighbours are begun after so many; None: no limit.
        again: train the run itself again, with its bounds.
    """

    name: ClassVar[str] = "certificate"
    units: Count | None = 200
    neighbours: Count = 100
    farthest: Annotated[int, Field(ge=1, le=10_000)] = 3
    bounded: Count = 4
    queries: Count = 200
    lines: Count = 8
    seconds: Annotated[float, Field(gt=0)] | None = None
    again: bool = True

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, attack, and say what was found.

        Raises:
            ConfigError: its data is gone or changed; or the run drew noise that nobody kept.
        """
        opened = given.open(record, console)
        if opened.model.number_votes is not None:
            return self._intervals(opened, given.seed)
        model, noise = opened.model, opened.model.problem.settings.noise
        if noise is not None and noise.seed is None:
            raise ConfigError(
                "noise.seed=null: the noise of this run was not stored, so models of "
                "neighbouring datasets cannot be trained with the same noise. Train a run with "
                "the same settings and noise.seed=NUMBER, then audit that run"
            )
        usable = max(model.max_distance, 1)
        if self.farthest > usable:
            console.note(
                f"audit.farthest={self.farthest} exceeds {model.max_distance}, the largest "
                "distance k for which this run has bounds, so datasets that are farther away "
                f"are not used: set audit.farthest={usable} or less"
            )
        then, now = opened.trained.finished.environment, Run.at(record.folder).environment
        differing = [(key, then.get(key), now.get(key)) for key in CODE_KEYS]
        differences = "; ".join(
            f"{key}={old_value} in the run, {key}={new_value} in this audit"
            for key, old_value, new_value in differing
            if old_value != new_value
        )
        other_code = (
            f"the run was made by another version of agt ({differences})" if differences else ""
        )
        with console.progress("certificate audit", "neighbour") as report:
            auditor = Auditor(
                model, self, given.seed, other_code, lambda done, of: report(done, of, done, of)
            )
            found = auditor.run()
        conditions = map(_condition_line, opened.conditions)
        metrics = {
            "neighbours": auditor.trained,
            "deviation": auditor.share,
            "pairs": auditor.pairs,
        }
        said = (*auditor.notes(), *conditions)
        return Audited.of(
            opened.trained.finished,
            tuple(found.values()),
            said,
            tables=auditor.tables(),
            metrics=metrics,
        )

    def _intervals(self, opened: OpenedRun, seed: int) -> Audited:
        """Attack the certified intervals of a run of numbers."""
        model = opened.model
        dataset = model.problem.dataset
        asked = dataset.test if len(dataset.test) else dataset.train
        rows = np.random.default_rng(seed).permutation(len(asked))[: max(self.queries, 1)]
        queries = np.asarray(asked.take(np.sort(rows)).features)
        counts = audit_intervals(model, queries, self.neighbours, self.farthest, seed, self.seconds)
        settings = model.problem.settings
        members = settings.ensemble.members
        subject = (
            f"certificate={settings.certificate.name}, relation={settings.relation.name}, "
            f"{members} members"
        )
        return Audited.of(
            opened.trained.finished,
            tuple(counts.findings(subject, len(queries)).values()),
            map(_condition_line, opened.conditions),
            metrics={"neighbours": counts.neighbours},
        )


def _condition_line(condition: Condition) -> str:
    """Return how a condition stands and why; the first reason of a declared one says itself that
    it is declared.
    """
    said = (
        condition.why
        if condition.standing is Standing.DECLARED
        else f"{condition.standing}: {condition.why}"
    )
    return f"condition {condition.letter} ({condition.name}): {said}"


class Auditor:
    """An audit of one saved model, and what it saw; counterexamples with the edits that made them.

    Args:
        model: as saved; its problem holds the records that it was trained on.
        extent: how hard to try.
        seed: of every choice.
        other_code: why training may give other numbers than the run's, rounding aside; empty: it
            may not.
        on_progress: called with how many neighbours are done, of how many.

    Attributes:
        until: the time at which the stage at work begins nothing new.
        cut: a stage had more to do than time.
        planned, refused: (edit in words, distance) -> neighbours begun, and those that training
            refused; ``why``, in its words.
        went: (edit in words, distance) -> how far each trained neighbour's parameters went of their
            bound.
        farthest: how far the neighbour that went farthest of its bound did, its edit and model.
        groups: parameters by name -> the largest deviation over its bound.
        outside: neighbours whose parameters left their bound, in words.
        labels: certified (neighbour, query) pairs looked at; ``turned``: in words, neighbours that
            changed a label; ``wrong``: labels that changed.
        units: left out, one at a time; ``memorised``: (certified, memorisation) of their records.
        unreached: (neighbour, member) pairs farther than the grid reaches.
        names_far_newcomers: the table of edits names newcomers that lie beyond the ranges.
        stay: no record goes or comes.
        pairs: neighbours trained with all their bounds; ``ends`` of boxes compared, of which
            ``stuck`` out; ``compared`` (pair, query), of which ``torn``: distances more than 1
            apart, or a label that turned before its distance was 0.
    """

    def __init__(
        self,
        model: Model,
        extent: Certificate,
        seed: int,
        other_code: str = "",
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.model, self.extent, self.other_code, self.on_progress = (
            model,
            extent,
            other_code,
            on_progress,
        )
        self.started, self.until, self.cut = time.monotonic(), math.inf, False
        self.planned, self.refused, self.why = Counter[Kind](), Counter[Kind](), Counter[str]()
        self.went: dict[Kind, list[float]] = defaultdict(list)
        self.farthest: tuple[float, Edited | None, Model | None] = (0.0, None, None)
        self.groups, self.outside, self.turned = Shares(), list[str](), list[str]()
        self.memorised = list[tuple[bool, int]]()
        self.labels = self.wrong = self.units = self.unreached = 0
        self.names_far_newcomers = False
        self.pairs = self.ends = self.stuck = self.compared = self.torn = 0
        self.rng, self.problem = np.random.default_rng(seed), model.problem
        settings, dataset = self.problem.settings, self.problem.dataset
        self.certificate, self.relation = settings.certificate, settings.relation.name
        self.symmetric, ks = RELATIONS[self.relation].symmetric, settings.kgrid.ks
        self.stay = not RELATIONS[self.relation].edits_whole_records
        self.dense = self.certificate.covers_every_k or ks == tuple(range(len(ks)))
        asked = dataset.test if len(dataset.test) > 1 else dataset.train
        chosen = np.sort(self.rng.permutation(len(asked))[: max(self.extent.queries, 2)])
        self.line_ends = np.asarray(asked.take(chosen).features)
        self.queries = np.concatenate(
            [self.line_ends[: self.extent.queries], self.roots_of(self.model)]
        )
        self.known = self.model.certify(self.queries)
        self.editor = Editor(Terms.of(self.problem), self.rng, partial(uphill, self.model))
        self.unchanged = Edited(dataset.train)
        members = settings.ensemble.members
        kind = f"certificate={self.certificate.name}, relation={self.relation}"
        self.subject = kind if members == 1 else f"{kind}, {members} members"

    def read(self, known: Certificates) -> LabelsAndDistances:
        """Labels and distances, of a grid that skips values in its steps."""
        return known.prediction, known.stable_distance if self.dense else known.grid_steps

    @property
    def share(self) -> float:
        """The largest deviation over its bound."""
        return max(self.groups.values(), default=0.0)

    @property
    def trained(self) -> int:
        """Neighbours."""
        return sum(map(len, self.went.values()))

    @property
    def exact(self) -> bool:
        """Whether distances and bounds of neighbours are claimed to go together."""
        return self.certificate.distances_differ_by_one(self.problem.settings)

    @property
    def nests(self) -> bool:
        """Whether boxes of neighbours are claimed to lie within one another."""
        return self.certificate.bounded in NESTING and self.dense and self.exact

    @property
    def late(self) -> bool:
        """Whether no time is left to the stage at work."""
        late = time.monotonic() > self.until
        self.cut |= late
        return late

    def run(self) -> dict[str, Finding]:
        """Every stage, each with its equal share of the time that is left; what a claim is about
        -> its finding.
        """
        found: dict[str, Finding] = {}
        stages = [self.attack, self.pair, *([] if self.stay else [self.leave_out])]
        if self.extent.again:
            self.share_time(len(stages) + 1)
            found[ON_RECORD_AGAIN] = self.again()
        for place, stage in enumerate(stages):
            self.share_time(len(stages) - place)
            stage()
        self.aimed()
        within, dealing = self.beside_bounds(), self.batches()
        found |= {
            PARAMETERS: self._parameters(),
            CERTIFIED_LABELS: self._certified(),
            LABELS_WITHIN_BOUNDS: within,
        }
        found |= {} if self.stay else self._memorisation()
        return found | dict(self._of_pairs()) | {BATCHES: dealing}

    def share_time(self, stages: int) -> None:
        """Give the next of so many stages its equal share of the time that is left."""
        if self.extent.seconds is not None:
            now = time.monotonic()
            self.until = now + max(0.0, self.started + self.extent.seconds - now) / stages

    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        """([n, ...], [n, ...]) ends of lines from one record to another, and as far again."""
        rows = self.rng.integers(0, len(self.line_ends), (2, 4 * self.extent.lines))
        low, high = self.line_ends[rows].astype(np.float64)
        return low, 2 * high - low

    def roots_of(self, model: Model, most: int | None = None) -> np.ndarray:
        """Queries a rounding away from where a model's label changes, or its certificate of a k
        ends.

        Args:
            most: the greatest k, any of which may be looked at; None: each within reach of the
                edits in turn.
        """
        low, high = self.lines()
        level = np.arange(len(low)) % (self.extent.farthest + 1)
        level = level if most is None else self.rng.integers(1, most + 1, len(low))
        found = roots(lambda queries: self.read(model.certify(queries)), low, high, level)
        half = len(found) // 2
        chosen = np.sort(self.rng.permutation(half)[: self.extent.lines])
        return found[np.concatenate([chosen, half + chosen])]

    def target(self, distance: int) -> Target:
        """One of the queries that are barely certified at ``distance``, if there are any."""
        reach = self.known.stable_distance
        if not len(reach):
            return Target(self.rng.normal(size=self.editor.terms.low.size), 0)
        among = (
            np.flatnonzero(reach >= distance)
            if (reach >= distance).any()
            else np.arange(len(reach))
        )
        row = int(self.rng.choice(among[np.argsort(reach[among], kind="stable")[:8]]))
        return Target(self.queries[row].astype(np.float64).ravel(), int(self.known.prediction[row]))

    # -- neighbours
    # ----------------------------------------------------------------------------------------------

    def leave_out(self) -> None:
        """Train without each unit, and see what the model had memorised of it."""
        train = self.problem.dataset.train
        names = np.unique(train.units[~train.public])
        if self.extent.units is not None and len(names) > self.extent.units:
            names = np.sort(self.rng.choice(names, self.extent.units, replace=False))
        features = np.asarray(train.features)
        ks = (1,) if self.certificate.covers_every_k else self.problem.settings.kgrid.ks
        near = next((k for k in ks if k >= 1), 0)
        distance = (
            self.model.certify(features, (near,)).stable_distance
            if near
            else np.zeros(len(train), dtype=np.int64)
        )
        right = self.model.predict(features) == train.labels
        order = np.argsort(train.units, kind="stable")
        starts, stops = (
            np.searchsorted(train.units[order], names, side) for side in ("left", "right")
        )
        rows = [np.sort(order[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        for edit, theirs, _ in self._trained(
            [Edited(train, gone, (), 1, ("less one",)) for gone in rows]
        ):
            self.units += 1
            there = theirs.predict(features[edit.gone]) == train.labels[edit.gone]
            change = right[edit.gone].astype(int) - there.astype(int)
            self.memorised += zip((distance[edit.gone] >= 1).tolist(), change.tolist(), strict=True)

    def attack(self) -> None:
        """Neighbours made to hurt: half of them anew, half from those that went farthest, one
        edit further.
        """
        left, best = self.extent.neighbours, list[tuple[float, Edited]]()
        while left and not self.late:
            count = min(EDITS_AT_ONCE, left)
            left -= count
            edits = [self._next([edit for _, edit in best]) for _ in range(count)]
            best += [(share, edit) for edit, _, share in self._trained(edits)]
            best = sorted(best, key=lambda each: -each[0])[:KEPT_EDITS]

    def _next(self, best: Sequence[Edited]) -> Edited:
        """A new edit, a walk, or one that went far taken further: by another, or by the same
        newcomer once more.
        """
        near = [edit for edit in best if edit.distance < self.extent.farthest]
        if near and self.rng.random() < 0.5:
            of = near[int(self.rng.integers(len(near)))]
            if of.come and self.rng.random() < 0.7:
                return self.editor.repeated(of)
            return self.editor.step(of, self.target(of.distance + 1))
        edit = self.unchanged
        for _ in range(
            int(self.rng.integers(1, self.extent.farthest + 1)) if self.rng.random() < 0.3 else 1
        ):
            edit = self.editor.step(edit, self.target(edit.distance + 1))
        return edit

    def _trained(self, edits: Sequence[Edited]) -> Iterator[tuple[Edited, Model, float]]:
        """Train neighbours while there is time, and hold them against parameters and labels;
        with how far each went.
        """
        self.planned.update(map(kind_of, edits))
        self.names_far_newcomers |= any(
            len(edit.story) == 1 and edit.times_range > 1 for edit in edits
        )
        long = self.extent.seconds is None or self.extent.seconds >= LONG_SECONDS
        neighbours = neighbours_of(self.model, edits, processes=long)
        for done, edit in enumerate(edits):
            if self.late:
                return
            self.on_progress(done, len(edits))
            theirs = next(neighbours)
            if isinstance(theirs, AgtError):
                self.refused[kind_of(edit)] += 1
                self.why[str(theirs)] += 1
                continue
            share = self._contained(edit, theirs)
            self.went[kind_of(edit)].append(share)
            self.farthest = max(self.farthest, (share, edit, theirs), key=lambda each: each[0])
            self._asked(edit, theirs, self.queries, self.known)
            yield edit, theirs, share
        self.on_progress(len(edits), len(edits))

    def _contained(self, edit: Edited, theirs: Model) -> float:
        """How far a neighbour's parameters went of what the model allows them, all members
        together.
        """
        shares = Shares()
        for member, k in self._changed(edit).items():
            mine = members_of(self.model)[member]
            one = bounds_of(mine).shares(mine, members_of(theirs)[member], k)
            if one is None:
                self.unreached += 1
                continue
            shares = {name: max(share, shares.get(name, 0.0)) for name, share in one.items()}
        for name, share in shares.items():
            self.groups[name] = max(self.groups.get(name, 0.0), share)
        name = max(shares, key=lambda each: shares[each], default="")
        if shares.get(name, 0.0) > 1:
            edits = ", ".join(edit.story)
            self.outside.append(
                f"the parameters '{name}' left their bound on a neighbouring dataset at distance "
                f"{edit.distance} (made by these edits: {edits})"
            )
        return shares.get(name, 0.0)

    def _changed(self, edit: Edited) -> dict[int, int]:
        """Member -> how many k its records are away; those that an edit leaves alone are left out.

        One model: 0.
        """
        if not self.problem.settings.ensembled:
            return {0: ks_apart(edit, self.relation)}
        ensemble = self.problem.settings.ensemble
        gone = assign_shards(edit.base.units[edit.gone], ensemble)
        comers = [(int(assign_shards(each.units[:1], ensemble)[0]), each) for each in edit.come]
        changed = {}
        for member in sorted({*gone.tolist(), *(home for home, _ in comers)}):
            come = tuple(each for home, each in comers if home == member)
            changed[member] = ks_apart(
                replace(edit, gone=edit.gone[gone == member], come=come), self.relation
            )
        return changed

    def _asked(self, edit: Edited, theirs: Model, queries: np.ndarray, known: Certificates) -> None:
        """Labels that are certified as far as the neighbour is, and what it says of these
        queries.
        """
        if not len(queries):
            return
        k = max(1, ks_apart(edit, self.relation))
        held = known.stable_distance >= k
        count = int((held & (known.prediction != theirs.predict(queries))).sum())
        self.labels += int(held.sum())
        self.wrong += count
        if count:
            edits = ", ".join(edit.story)
            changed_labels = counted(count, "label")
            self.turned.append(
                f"{changed_labels} changed on a neighbouring dataset at distance {k} (made by "
                f"these edits: {edits})"
            )

    # -- pairs, each with all its bounds
    # -------------------------------------------------------------------------------

    def pair(self) -> None:
        """Neighbours one k away with all their bounds: nesting, and distances 1 apart at most. One
        agt makes both: of a run that another made, bounds may be wider than those of today's
        neighbours, and hold.
        """
        model = self.trained_again if self.other_code else self.model
        for done in range(self.extent.bounded):
            if self.late:
                return
            self.on_progress(done, self.extent.bounded)
            edit = self.editor.step(self.unchanged, self.target(1))
            try:
                theirs = neighbour_of(model, edit.records)
            except AgtError as error:
                self.why[str(error)] += 1
                continue
            self.pairs += 1
            for mine, other in (
                zip(members_of(model), members_of(theirs), strict=True) if self.nests else ()
            ):
                for outer, inner in ((mine, other), (other, mine))[: 2 if self.symmetric else 1]:
                    out, looked = bounds_of(mine).outside(outer, inner)
                    self.stuck += out
                    self.ends += looked
            queries = (
                np.concatenate([self.queries, self.roots_of(theirs)])
                if len(self.queries)
                else self.queries
            )
            if len(queries):
                sides = self.read(model.certify(queries)), self.read(theirs.certify(queries))
                self.compared += len(queries)
                self.torn += int(torn(*sides, self.symmetric).sum())

    def beside_bounds(self) -> Finding:
        """Ask labels at parameters within the bound of a query's distance: no neighbour may reach
        them, and the certificate speaks of them all the same. Members of an ensemble are bounded
        one by one, and left out.
        """
        asked = within = 0
        untested_because = (
            "this claim was not tested, because each member of this ensemble has bounds of its own"
        )
        if not self.problem.settings.ensembled:
            queries = self.queries[-MAX_BESIDE:]
            farthest = int(self.known.stable_distance.max(initial=0))
            if farthest:
                queries = np.concatenate(
                    [queries, self.roots_of(self.model, min(farthest, self.model.max_distance))]
                )
            reach = np.minimum(self.model.certify(queries).stable_distance, self.model.max_distance)
            asked = int((reach >= 1).sum())
            untested_because = (
                "this claim was not tested, because no query has a stable distance of 1 or more"
            )
            within = int(
                bounds_of(self.model)
                .turned(self.model, queries[reach >= 1], reach[reach >= 1])
                .sum()
            )
        meaning = untested_because
        if asked:
            meaning = (
                f"{within} of {asked} labels change for some parameters that are within the bounds "
                "for the label's stable distance"
            )
        return counterexamples(
            f"{LABELS_WITHIN_BOUNDS}: {self.subject}",
            "a label with stable distance L is the same for all parameters within the run's "
            "bounds for k = L",
            "the parameters were moved as far as their bounds allow, towards a change of the "
            "label. Some queries lie where the stable distance changes (found by bisection)",
            f"{asked} queries",
            "labels that change",
            float(within) if asked else None,
            meaning,
            "this audit detects a single label that changes. For a linear model, it also "
            "detects a stable distance that is too large by more than its rounding",
        )

    def aimed(self) -> None:
        """Ask queries that are barely certified, where the farthest neighbour moved the label's
        own line most.
        """
        _, edit, theirs = self.farthest
        if edit is None or theirs is None or self.late:
            return
        k = max(1, ks_apart(edit, self.relation))
        low, high = (
            np.concatenate(sides) for sides in zip(self.lines(), self._across(theirs), strict=True)
        )
        both = np.concatenate([low, high]), np.concatenate([high, low])
        queries = roots(
            lambda queries: self.read(self.model.certify(queries)), *both, np.full(2 * len(low), k)
        )
        if len(queries):
            self._asked(edit, theirs, queries, self.model.certify(queries))

    def _across(self, theirs: Model) -> tuple[np.ndarray, np.ndarray]:
        """([m, ...], [m, ...]) ends of lines along a linear head's weights, through points as far
        as can be along what a neighbour moved of them at a right angle to these; none of other
        models, or of features that are no columns.
        """
        mine, other = self.model.linear_head, theirs.linear_head
        if (
            mine is None
            or other is None
            or mine.features.config.map != "none"
            or mine.features.whitening is not None
        ):
            return self.line_ends[:0], self.line_ends[:0]
        weight, moved = (
            mine.trained.weight.numpy(),
            (other.trained.weight - mine.trained.weight).numpy(),
        )
        first, *rest = np.argsort(-np.linalg.norm(moved, axis=1)).tolist()
        weight, moved = (each[first] - (each[rest[0]] if rest else 0) for each in (weight, moved))
        width = int(np.prod(self.line_ends.shape[1:]))
        along = weight[:width] / max(float(np.linalg.norm(weight[:width])), 1e-300)
        across = moved[:width] - (moved[:width] @ along) * along
        size = max(
            float(np.linalg.norm(self.line_ends.reshape(len(self.line_ends), -1), axis=1).mean()),
            1e-300,
        )
        across *= size / max(float(np.linalg.norm(across)), 1e-300)
        ends = np.array(
            [[sign * across - size * along, sign * across + size * along] for sign in (-1, 1)]
        )
        low, high = ends.transpose(1, 0, 2).reshape(2, 2, *self.line_ends.shape[1:])
        return low, high

    def batches(self) -> Finding:
        """Hold the constants and batches of two neighbours, one of them far away, against the
        run's: no other record may have a part in either.
        """
        problem, train, constants, moved = self.problem, self.problem.dataset.train, 0, 0
        config, size, mine = (
            problem.setup.training.batch,
            problem.dataset.declared_size,
            problem.plan,
        )
        derived = mine.normalizer if size is None else size / config.count
        due = (config.normalizer or derived, config.n_max or mine.n_max)
        for edit in (
            self.editor.step(self.unchanged, self.target(1)),
            Edited(train, np.arange(0, len(train), 2)),
        ):
            records = edit.records
            theirs = neighbouring(problem, records).plan
            constants += sum((plan.normalizer, plan.n_max) != due for plan in (mine, theirs))
            steps = zip(_dealt(mine, train), _dealt(theirs, records), strict=False)
            common, mine_at, theirs_at = np.intersect1d(train.ids, records.ids, return_indices=True)
            apart = (
                np.intersect1d(np.setxor1d(*both), common) for both in islice(steps, 2 * mine.count)
            )
            moved += sum(map(len, apart)) + common.size * (mine.steps != theirs.steps)
            sides = ((train.units, mine_at), (records.units, theirs_at))
            here, there = (
                assign_shards(units, problem.settings.ensemble)[rows] for units, rows in sides
            )
            moved += int((here != there).sum())
        return counterexamples(
            f"{BATCHES}: {self.subject}",
            "the divisor B of gradient sums and the maximum batch size n_max have their "
            "declared values, and a record's batch and shard depend on that record only",
            "the run's batches were compared with those of two other datasets: one is a "
            "neighbouring dataset, the other has half of the records",
            "for all records that are in the run's dataset and in the other one, the shards and "
            "the batches of the first two epochs were compared",
            "wrong constants, and records in another batch or shard",
            float(constants + moved),
            f"{constants} of 4 batch plans have other constants than declared, and {moved} records "
            "are in another batch or shard than in the run",
            "this audit detects a single wrong constant, and a single record in another batch "
            "or shard",
        )

    @cached_property
    def trained_again(self) -> Model:
        """The model that training makes of the run's own records, by this agt."""
        records = self.problem.dataset.train
        if self.model.stores_noise:  # training would draw anew
            return neighbour_of(self.model, records)
        return retrained(self.problem, records)

    def again(self) -> Finding:
        """Train the run's own records: the same bits, or at least what its bounds allow two runs
        on the same records.
        """
        numbers, differ, idle, drift = 0, 0, 0.0, 0.0
        for mine, other in zip(members_of(self.model), members_of(self.trained_again), strict=True):
            bounds = bounds_of(mine)
            sides = (
                [*bounds.parameters(each).values(), *bounds.bounds(each)] for each in (mine, other)
            )
            for a, b in zip(*sides, strict=True):
                numbers += a.numel()
                differ += int((a != b).sum())
            idle = max(idle, *(bounds.shares(mine, other, 0) or {"": 0.0}).values())
            drift = max(drift, bounds.drift(mine, other))
        meaning = (
            f"{differ:,} of {numbers:,} numbers stored in the run's folder differ from those that "
            "training again gives"
        )
        outcome = Outcome.STANDS
        if differ and (
            idle > 1
            or (drift > GRAINS[self.problem.settings.training.dtype] and not self.other_code)
        ):
            outcome = Outcome.VIOLATED
            meaning = (
                f"{meaning}. The run was altered or damaged after training: restore it from a "
                "backup, or train again"
            )
        elif differ:
            reason = self.other_code or (
                "another processor or another number of threads can cause such differences. If "
                "env.json names the same processor and number of threads for the run and for this "
                "audit, the run was altered or damaged"
            )
            outcome = Outcome.REPORTED
            meaning = (
                f"{meaning}, but the parameters differ by no more than the allowed rounding: "
                f"{reason}"
            )
        on_record = ON_RECORD.get(self.certificate.bounded, "weights")
        return Finding(
            f"{on_record} on record",
            "training with the run's settings on the run's records gives the numbers that are "
            "stored in the run's folder",
            "the run was trained again on the same records, and its bounds were computed again",
            f"{numbers:,} numbers compared",
            outcome,
            meaning,
            "numbers that differ",
            0.0,
            found=float(differ),
            strength=Strength.CERTAIN,
            noticeable="this audit detects parameters that differ by more than the allowed rounding"
            if self.other_code
            else "this audit detects any change of the stored numbers beyond rounding",
        )

    # -- findings
    # ----------------------------------------------------------------------------------------------

    @property
    def effort(self) -> str:
        """What was made, and what was not."""
        train = self.problem.dataset.train
        refused = self.refused.total()
        edited = self.trained - self.units
        private_units = len(np.unique(train.units[~train.public]))
        farthest = max((k for _, k in self.went), default=0)
        changed = "no neighbouring dataset was made with edits chosen to change answers"
        if edited:
            changed = (
                f"{edited:,} neighbouring datasets, up to distance k = {farthest}, were made with "
                "edits chosen to change answers"
            )
        parts = [
            f"{self.units:,} of {private_units:,} units (people) were left out of training, one at "
            "a time",
            changed,
        ]
        if refused:
            refused_datasets = counted(refused, "more neighbouring dataset")
            parts.append(f"training refused {refused_datasets}")
        if self.cut:
            parts.append("the time limit audit.seconds ended the search early")
        return "; ".join(parts)

    def _parameters(self) -> Finding:
        """That neighbours stay within bounds; and which narrowing would have put one outside: of
        the parameters that came nearest to it, and farthest. It is of all elements, both ends and
        every k of a group: a share is that of the one that came nearest.
        """
        relation = self.problem.settings.relation
        edits_within_k = RELATIONS[relation.name].describe_ball(relation.unit_rows)
        deviation = share_words(self.share)
        meaning = (
            "models trained on neighbouring datasets deviate from the run's parameters by at "
            f"most {deviation}"
        )
        if self.outside:
            first_case = self.outside[0]
            meaning = (
                "a model trained on a neighbouring dataset deviates from the run's parameters "
                f"by {deviation}, which is more than allowed. First case found: {first_case}"
            )
        elif not self.trained:
            meaning = (
                "no model was trained on a neighbouring dataset, so the bounds were not tested: "
                "raise audit.units, audit.neighbours or audit.seconds"
            )
        elif not self.groups:
            meaning = (
                "the bounds were not tested, because all neighbouring datasets are farther from "
                "the run's dataset than the largest distance k for which the run has bounds"
            )
        shares = sorted(self.groups.items(), key=lambda each: -each[1])
        narrowings = {
            group: 100 * max(0.0, 1 - share) for group, share in (*shares[:1], *shares[-1:])
        }
        detectable = " and ".join(
            f"by more than {narrowing:.3g} % in {group}" for group, narrowing in narrowings.items()
        )
        return counterexamples(
            f"{PARAMETERS}: {self.subject}",
            f"on every dataset with {edits_within_k}, the trained parameters stay within the "
            "run's bounds for distance k",
            "models were trained on neighbouring datasets with the run's settings. Some of "
            "these datasets lack a unit (a person), others were edited to change answers",
            self.effort, "deviation/bound", self.share if self.groups else None, meaning,
            "this audit detects if all bounds of a group of parameters are too narrow "
            f"{detectable}. For other groups, the percentage lies between those given. It may "
            "miss a single bound that is too narrow",
            1.0,
        )  # fmt: skip

    def _certified(self) -> Finding:
        meaning = (
            f"0 of {self.labels:,} certified labels changed on neighbouring datasets"
            if self.labels
            else "no certified label was tested, because no query is certified at the distance "
            "of any neighbouring dataset that was made"
        )
        if self.turned:
            first_case = self.turned[0]
            meaning = f"some certified labels changed; for example, {first_case}"
        return counterexamples(
            f"{CERTIFIED_LABELS}: {self.subject}",
            "a label with stable distance L is the same for models trained on any dataset "
            "within distance L of the run's dataset",
            f"{len(self.queries)} queries were asked. Some of them lie where the label or the "
            "stable distance changes (found by bisection)",
            self.effort, "certified labels that changed",
            float(self.wrong) if self.labels else None,
            meaning, "this audit detects a single label that changed",
        )  # fmt: skip

    def _memorisation(self) -> dict[str, Finding]:
        left_out = (
            "each unit (person) was left out in turn, and the model trained without it was "
            "asked about the unit's own records"
        )
        certified, others = (
            [change for held, change in self.memorised if held == side] for side in (True, False)
        )
        broken, moved = (sum(change != 0 for change in side) for side in (certified, others))
        meaning = "no record was certified, so memorisation of certified records was not tested"
        if certified:
            meaning = f"{broken:,} of {len(certified):,} certified records were memorised"
        found: dict[str, Finding] = {}
        found[MEMORISATION] = counterexamples(
            f"{MEMORISATION}: {self.subject}",
            "training on a record whose stable distance is at least 1 does not change the "
            "probability that the model labels this record correctly",
            left_out,
            f"{self.units} units (people) were left out of training, one at a time, and "
            f"{len(self.memorised)} records were used as queries",
            "records memorised",
            float(broken) if certified else None,
            meaning,
            "this audit detects a single memorised record",
        )
        if others:
            found[OTHER_MEMORISATION] = Finding(
                OTHER_MEMORISATION,
                "nothing is claimed about the memorisation of records whose stable distance is 0",
                left_out,
                f"{len(others)} records asked",
                Outcome.REPORTED,
                f"{moved} of {len(others)} uncertified records get another label from the model "
                "that was trained without them",
                "records memorised",
                found=float(moved),
                strength=Strength.CERTAIN,
            )
        return found

    def _of_pairs(self) -> Iterator[tuple[str, Finding]]:
        largest_difference = "1" if self.dense else "one step in the run's list of values of k"
        apart = (
            "on two neighbouring datasets, the stable distances of a query differ by at most "
            f"{largest_difference}, and its labels differ only if its stable distance is 0 on "
            "both datasets"
        )
        attack = (
            "models were trained on neighbouring datasets (at distance 1), and all their bounds "
            "were computed. Some queries were chosen by bisection: they lie where the answer of "
            "one of the models changes"
        )
        if self.other_code:
            attack = (
                f"{attack}. These models were compared with the run's own model, which this "
                "version of agt trained again"
            )
        claims = [(STABLE_DISTANCES, apart, self.exact, self.compared, self.torn, "queries")]
        if nesting := NESTING.get(self.certificate.bounded):
            claims.insert(
                0, (NESTING_BOXES, nesting[0], self.nests, self.ends, self.stuck, nesting[1])
            )
        for about, claim, claimed, looked, broken, compared in claims:
            why = f"no {compared} were compared"
            if not claimed:
                why = self._unclaimed
            elif not self.pairs:
                why = (
                    "no bounds were computed on a neighbouring dataset, so this claim was not "
                    "tested: raise audit.bounded (or audit.seconds, if the time ran out)"
                )
            tested = claimed and self.pairs and looked
            yield about, counterexamples(
                f"{about}: {self.subject}", claim,
                attack, f"{self.pairs} neighbouring datasets", f"{compared} that violate the claim",
                float(broken) if tested else None,
                f"{broken} of {looked} {compared} violate the claim" if tested else why,
            )  # fmt: skip

    @property
    def _unclaimed(self) -> str:
        """Why bounds of neighbours are not claimed to go together."""
        if self.exact:
            return (
                "nothing is claimed here, because the run's list of values of k (numbers of "
                "changed records) leaves out some numbers"
            )
        if self.stay:
            return (
                "nothing is claimed here, because a record that was changed in a neighbouring "
                "dataset may be changed again by up to relation.radius, and may then be farther "
                "than that from the run's record"
            )
        product = self.problem.setup.training.product
        return (
            f"nothing is claimed here, because with training.product={product} the parameter "
            "bounds of a neighbouring dataset need not lie within those of the run"
        )

    def notes(self) -> Iterator[str]:
        """What a reader must know beside the findings."""
        units = len(np.unique(self.problem.dataset.train.units))
        yield (
            "a violation is a counterexample and therefore certain, but finding none proves "
            "nothing. If the largest deviation is 90 % of its bound, for example, this audit "
            "detects only bounds that are too narrow by more than 10 %"
        )
        if self.units < units and not self.stay:
            limit = "audit.seconds" if self.cut else "audit.units"
            yield (
                f"{self.units} of {units} units (people) were left out of training, one at a time. "
                f"{limit} limits their number, and public units are never left out"
            )
        if self.cut:
            planned = self.planned.total()
            yield (
                f"audit.seconds={self.extent.seconds:g} ended the search early. On neighbouring "
                f"datasets, {self.trained:,} of {planned:,} planned models were trained, and the "
                f"bounds of {self.pairs} of {self.extent.bounded} planned models were computed"
            )
        for reason, refused in self.why.most_common(MAX_REFUSALS_SHOWN):
            refused_datasets = counted(refused, "neighbouring dataset")
            yield f"training refused {refused_datasets}, for this reason: {reason}"
        if self.unreached:
            yield (
                f"{self.unreached} comparisons with neighbouring datasets were not made, because "
                "these datasets are farther from the run's data than the largest k for which the "
                "run has bounds"
            )
        if self.names_far_newcomers:
            yield (
                "some records that the audit added have values outside the declared ranges of "
                "their columns (marked 'beyond the ranges of the columns'). The certificates "
                "must hold for these records as well"
            )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Neighbours by edit and distance, and how near each group of parameters came to its
        bound.
        """
        farthest = {kind: max(self.went.get(kind, ()), default=0.0) for kind in self.planned}
        edits = [
            {
                "edit": kind[0],
                "k": kind[1],
                "planned": self.planned[kind],
                "trained": len(self.went.get(kind, ())),
                "refused": self.refused[kind],
                "deviation / bound": share,
            }
            for kind, share in sorted(farthest.items(), key=lambda each: -each[1])
        ]
        groups = [
            {"parameters": name, "deviation / bound": share,
             "smallest narrowing of all bounds that is detected, %": 100 * max(0.0, 1 - share)}
            for name, share in self.groups.items()
        ]  # fmt: skip
        return {
            "certificate_edits": pd.DataFrame(edits),
            "certificate_parameters": pd.DataFrame(groups),
        }


def kind_of(edit: Edited) -> Kind:
    """Where an edit is counted: by one step's story, or how many steps; and its distance."""
    return edit.story[0] if len(edit.story) == 1 else (
        f"{len(edit.story)} edits, all chosen to change the answer to one query"
    ), edit.distance


def _dealt(plan: BatchPlan, records: Records) -> Iterator[np.ndarray]:
    """The ids of each step's batch, however many they are."""
    return (records.ids[rows] for rows in replace(plan, n_max=MOST_ROWS).batches(records.units))


def members_of(model: Model) -> Sequence[Model]:
    """The members of an ensemble, or the one model."""
    return model.member_models


def share_words(share: float) -> str:
    """How far of the way to its bound a neighbour went: only the bound itself is 100 %, whatever
    is left or beyond.
    """
    apart = abs(1 - share)
    percentage = 100 * share
    if share >= 2:
        return f"{share:.3g} times the bound"
    if 0 < apart < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * apart)))
        return f"{percentage:.{digits}f} % of the bound"
    return f"{percentage:.3g} % of the bound"
