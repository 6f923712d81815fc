"""agt audit certificate: neighbours of a run are trained, and every claim of its certificates is held against them.

What is audited is the model as it was saved. A violation is a counterexample, certain but for the claim's own conditions.
No violation is no proof; so it is counted how close the neighbours came, and with that which narrowing of a bound would
have been noticed.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from agt.audit.findings import Finding, Outcome, Strength, counterexamples
from agt.audit.neighbours import (
    Edited,
    Editor,
    Target,
    Terms,
    bisected,
    neighbour_of,
    neighbouring,
    neighbours_of,
    on_line,
    retrained,
)
from agt.bounds.network import Network
from agt.certificates.box import Certificates
from agt.data.dataset import Records
from agt.errors import AgtError, ConfigError
from agt.models.box import BoxModel
from agt.models.linear import LinearModel, TubeModel
from agt.models.model import Model
from agt.models.votes import VotesModel
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.settings import MOST_ROWS, schema
from agt.training.batches import BatchPlan
from agt.training.ensemble import shards
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

Count = Annotated[int, Field(ge=0)]
CODE_KEYS = ("agt", "revision")  # of env.json
MAX_BESIDE = 100  # queries that are asked beside bounds, but for those bisected for it
GRAINS = {"float64": 1e-6, "float32": 2e-3}
"""Dtype -> how far ends of boxes may be from those of training again on another processor, in widths of a box."""
MAX_REFUSALS_SHOWN = 3
SLACK = 1 - 2.0**-30  # of a distance between heads, as computed: rounded down
EDITS_AT_ONCE = 64  # made before the next are made from those that went farthest
KEPT_EDITS = 16  # that went farthest
LONG_SECONDS = 300  # of an audit in which other processes are worth their start
LabelsAndDistances = tuple[np.ndarray, np.ndarray]
Shares = dict[str, float]  # parameters by name -> how far they went of what is allowed


# -- what each kind of model bounds ------------------------------------------------------------------------------------


def steepest(model: Any, queries: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """[n] bool: queries whose label changes at parameters within the bound of their k: those where the label's lead falls
    most steeply. A certificate says it does at none.

    A kind of model has ``parameters(model)`` by name, ``logits(model, query, parameters)`` [1, J] less thresholds, and
    ``within(model, k)``, which moves parameters against a gradient as far as k allows; None: no bound is kept.
    """
    bounds, turned = bounds_of(model), np.zeros(len(queries), dtype=bool)
    for row, (label, k) in enumerate(zip(model.predict(queries).tolist(), ks.tolist(), strict=True)):
        query, moved = queries[row : row + 1], bounds.within(model, k)
        if moved is not None:
            leaves = {name: each.detach().clone().requires_grad_() for name, each in bounds.parameters(model).items()}
            _lead(bounds.logits(model, query, leaves)[0], label).backward()
            steep = {name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
            with torch.no_grad():
                turned[row] = float(_lead(bounds.logits(model, query, moved(steep))[0], label)) < 0
    return turned


def _lead(logits: Tensor, label: int) -> Tensor:
    """By how much a label's logit leads, of [J]; of one logit, how far it lies on the label's side."""
    if len(logits) == 1:
        return logits[0] * (2 * label - 1)
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return logits[label] - others.max()


class Bounds:
    """What bounds a model's parameters. A kind says its own, but where bounds do not depend on the records."""

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
    def logits(model: BoxModel, query: np.ndarray, parameters: Mapping[str, Tensor]) -> Tensor:
        """The network's, with other parameters."""
        training = model.settings.training
        network = Network.of(model.head, training.loss, model.problem.classes)
        x = torch.from_numpy(np.array(query)).to(getattr(torch, training.dtype))
        return network.logits(x, dict(parameters)) - network.loss.threshold

    @staticmethod
    def within(model: BoxModel, k: int) -> Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]:
        """To the corner of the box of the last k of the grid that is no farther."""
        box = model.box
        index = max(i for i, each in enumerate(box.ks) if each <= k)
        return lambda steep: {
            name: torch.where(down > 0, box.lower[name][index], box.upper[name][index]) for name, down in steep.items()
        }

    @staticmethod
    def shares(mine: BoxModel, theirs: BoxModel, k: int) -> Shares | None:
        """How far each parameter went of what ``mine`` allows at k; above 1: out of bounds. None: no bound is kept, as k is
        beyond the grid."""
        box, shares = mine.box, Shares()
        index = next((i for i, each in enumerate(box.ks) if each >= k), None)
        if index is None:
            return None
        for name, value in theirs.box.nominal.items():
            lower, point, upper = box.lower[name][index], box.nominal[name], box.upper[name][index]
            moved = (value - point).double()
            room = torch.where(moved > 0, upper.double() - point.double(), point.double() - lower.double())
            inside = (lower <= value) & (value <= upper)
            share = torch.where(moved == 0, 0.0, moved.abs() / room.clamp(min=1e-300))
            share = torch.where(inside, share.clamp(max=1.0), share.clamp(min=1 + 2.0**-20))
            shares[name] = float(share.max()) if share.numel() else 0.0
        return shares

    @staticmethod
    def outside(outer: BoxModel, inner: BoxModel) -> tuple[int, int]:
        """(ends of ``inner`` at k - 1 that stick out of ``outer`` at k, ends looked at); on a dense grid."""
        out = looked = 0
        for name in outer.box.lower:
            low, high = outer.box.lower[name][1:], outer.box.upper[name][1:]
            out += int((low > inner.box.lower[name][:-1]).sum() + (inner.box.upper[name][:-1] > high).sum())
            looked += 2 * low.numel()
        return out, looked

    @staticmethod
    def bounds(model: BoxModel) -> list[Tensor]:
        """Both ends of every box."""
        return [*model.box.lower.values(), *model.box.upper.values()]

    @staticmethod
    def drift(recorded: BoxModel, again: BoxModel) -> float:
        """How far recorded ends of boxes lie from those of training again, at most, in widths of the latter's boxes."""
        farthest, mine, theirs = 0.0, recorded.box, again.box
        for name, lower in theirs.lower.items():
            width = (theirs.upper[name].double() - lower.double()).clamp(min=1e-300)
            for there, here in ((mine.lower[name], lower), (mine.upper[name], theirs.upper[name])):
                difference = (there.double() - here.double()).abs()
                shares = torch.where(difference == 0, 0.0, difference / width)[1:]
                if shares.numel():  # nothing of a grid of k = 0 alone
                    farthest = max(farthest, float(shares.max().nan_to_num()))
        return farthest


class BallBounds(Bounds):
    """All weights are bounded together, by a radius for each k."""

    @staticmethod
    def parameters(model: Any) -> Mapping[str, Tensor]:
        """The weights, of a network the first."""
        return {"weight": model.trained.weight}

    @classmethod
    def within(cls, model: Any, k: int) -> Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None:
        """To the edge of the ball, or nearly."""
        radius = cls.radius(model, k)

        def down(steep: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            length = cls.length(model, steep["weight"]).clamp(min=1e-300)
            return {"weight": model.trained.weight - SLACK * radius * steep["weight"] / length}

        return down if np.isfinite(radius) else None

    @classmethod
    def shares(cls, mine: Any, theirs: Any, k: int) -> Shares | None:
        """As ``BoxBounds.shares``."""
        radius = cls.radius(mine, k)
        return {"weight": cls.distance(mine, theirs) / radius} if np.isfinite(radius) else None

    @classmethod
    def distance(cls, mine: Any, theirs: Any) -> float:
        """How far apart two models' weights are, rounded down."""
        return float(cls.length(mine, theirs.trained.weight - mine.trained.weight).max()) * SLACK

    @staticmethod
    def length(model: Any, weight: Tensor) -> Tensor:
        """[J, 1] or [1, 1]: what a radius bounds."""
        return torch.linalg.vector_norm(weight).reshape(1, 1)

    @staticmethod
    def radius(model: Any, k: int) -> float:
        """Infinite where no bound is kept."""
        return float(model.trained.radii[k]) if k <= model.farthest else math.inf


class TubeBounds(BallBounds):
    """A network of one hidden layer."""

    @staticmethod
    def logits(model: TubeModel, query: np.ndarray, parameters: Mapping[str, Tensor]) -> Tensor:
        """The network's, with other weights."""
        return model.network.logits(parameters["weight"], torch.from_numpy(model.phi(query)).double())[0]

    @classmethod
    def outside(cls, outer: TubeModel, inner: TubeModel) -> tuple[int, int]:
        """(radii of ``inner`` at k - 1 whose ball sticks out of that of ``outer`` at k, radii looked at)."""
        large, small = outer.trained.radii[1:], inner.trained.radii[:-1]
        return int((small + cls.distance(outer, inner) > large).sum()), len(large)

    @staticmethod
    def bounds(model: TubeModel) -> list[Tensor]:
        """The radii."""
        return [torch.from_numpy(model.trained.radii)]

    @staticmethod
    def drift(recorded: TubeModel, again: TubeModel) -> float:
        """How far recorded radii lie from those of training again, at most, of the latter's."""
        mine, theirs = recorded.trained.radii, again.trained.radii
        known = np.isfinite(mine) & np.isfinite(theirs) & (theirs > 0)
        shares = np.abs(mine[known] - theirs[known]) / theirs[known]
        return float(shares.max(initial=0.0)) if ((mine == theirs) | known).all() else math.inf


class HeadBounds(BallBounds):
    """A linear head, which a sensitivity bounds: of one classifier for each class, each of them."""

    @staticmethod
    def logits(model: LinearModel, query: np.ndarray, parameters: Mapping[str, Tensor]) -> Tensor:
        """Of a head with other weights."""
        return torch.from_numpy(model.phi(query)).double() @ parameters["weight"].T

    @staticmethod
    def length(model: LinearModel, weight: Tensor) -> Tensor:
        """As of a ball."""
        each = model.trained.loss.kind == "one_vs_all"
        return torch.linalg.vector_norm(weight, dim=1, keepdim=True) if each else BallBounds.length(model, weight)

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
        counts = np.stack([(labels == c).sum(axis=0) for c in range(model.problem.classes)])
        winner, turned = counts.argmax(axis=0), np.zeros(len(queries), dtype=bool)
        votes = np.minimum(ks * RELATIONS[model.settings.relation.name].touches, counts[winner, rows])
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
        return {"weight": changed / max(k * RELATIONS[mine.settings.relation.name].touches, 1e-9)}


BOUNDS: Mapping[type, Any] = {BoxModel: BoxBounds, TubeModel: TubeBounds, LinearModel: HeadBounds, VotesModel: VotesBounds}


def bounds_of(model: Model) -> Any:
    """What bounds a model's parameters."""
    return next(BOUNDS[kind] for kind in type(model).__mro__ if kind in BOUNDS)


# -- queries -----------------------------------------------------------------------------------------------------------


def roots(
    read: Callable[[np.ndarray], LabelsAndDistances], low: np.ndarray, high: np.ndarray, level: np.ndarray
) -> np.ndarray:
    """[2 m, ...]: pairs of queries a rounding apart, between which the label changes or a certificate ends.

    Args:
        read: queries -> labels and distances.
        low, high: [n, ...] ends of lines.
        level: [n] of each line: the label alone is followed (0), or whether the distance is at least this beside it; lines
            along which that does not change are left out.
    """

    def key(queries: np.ndarray, level: np.ndarray) -> np.ndarray:
        label, near = read(queries)
        code: np.ndarray = 2 * label + ((near >= level) & (level > 0))
        return code

    rows = np.flatnonzero(key(low, level) != key(high, level))
    low, high, level = low[rows], high[rows], level[rows]
    if not len(rows):
        return low
    return np.concatenate([on_line(low, high, share) for share in bisected(partial(key, level=level), low, high)])


def torn(one: LabelsAndDistances, two: LabelsAndDistances, symmetric: bool) -> np.ndarray:
    """[n] bool: queries of which neighbours say what no two may.

    Args:
        one, two: (labels, distances) of the run, and of a neighbour one k away.
        symmetric: the run is a neighbour of its neighbour too.
    """
    (label, near), (other, far) = one, two
    if not symmetric:
        jumped: np.ndarray = (near > far + 1) | ((label != other) & (near > 0))
        return jumped
    either: np.ndarray = (abs(near - far) > 1) | ((label != other) & ((near > 0) | (far > 0)))
    return either


def changed(mine: np.ndarray, theirs: np.ndarray, held: np.ndarray) -> np.ndarray:
    """[n] bool: labels that are held fast and differ all the same."""
    turned: np.ndarray = (mine != theirs) & held
    return turned


def ks_apart(edit: Edited, relation: str) -> int:
    """How many k a neighbour is away: units gone and come, counted as the relation counts; at most ``edit.distance``."""
    gone, come = len(np.unique(edit.base.units[edit.gone])), len(edit.come)
    return gone + come if relation in ("add_remove", "remove", "paper_unlearning") else max(gone, come)


# -- the audit ---------------------------------------------------------------------------------------------------------


@schema
class Certificate:
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

    def check(self, given: AuditInputs) -> None:
        """It needs a run, and asks test records: queries that were brought along come without the training data."""
        given.need_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, attack, and say what was found.

        Raises:
            ConfigError: its data is gone or changed; or the run drew noise that nobody kept.
        """
        trained = TrainedRun.of(given.config)
        opened = trained.open(record, console)
        model, noise = opened.model, opened.model.problem.settings.noise
        if noise is not None and noise.seed is None:
            raise ConfigError(
                "noise.seed=null: the run added noise that was drawn for it alone and not kept, so that no neighbour can "
                "be trained with the same: audit a run of the same settings with noise.seed"
            )
        if self.farthest > max(model.farthest, 1):
            console.note(f"audit.farthest={self.farthest} is beyond the run's grid of k, {model.farthest}")
        with console.progress("certificate audit", "neighbour") as report:
            auditor = audit_certificates(
                model, self, given.seed, lambda stage, done, of: report(done, of, done, of)
            )  # fmt: skip
        conditions = (
            f"condition {c.letter} ({c.name}): {c.standing}: {c.why.removeprefix(f'{c.standing}: ')}"
            for c in opened.conditions
        )
        tally, found = auditor.tally, findings(auditor, _other_code(trained.finished, record))
        metrics = {"neighbours": tally.trained, "deviation": tally.share, "pairs": tally.pairs}
        said = (*notes(auditor), *conditions)
        return Audited.of(trained.finished, found, said, tables=tables(auditor), metrics=metrics)


@dataclass
class EditTally:
    """What one kind of edit showed: neighbours planned, trained and refused; the largest deviation over its bound."""

    planned: int = 0
    trained: int = 0
    refused: int = 0
    share: float = 0.0


@dataclass
class Tally:
    """What an audit saw; counterexamples with the edits that made them.

    Attributes:
        kinds: (edit in words, distance) -> what it showed.
        groups: parameters by name -> the largest deviation over its bound.
        outside: neighbours whose parameters left their bound, in words.
        labels: certified (neighbour, query) pairs looked at; ``turned``: in words, neighbours that changed a label;
            ``wrong``: labels that changed.
        units: left out, one at a time; ``memorised``: (certified, memorisation) of their records.
        why: what training refused, in its words.
        unreached: (neighbour, member) pairs farther than the grid reaches.
        pairs: neighbours trained with all their bounds; ``ends`` of boxes compared, of which ``stuck`` out; ``compared``
            (pair, query), of which ``torn``: distances more than 1 apart, or a label that turned before its distance was 0.
        bits: numbers of the run compared with those of training it again, of which ``differ``; None: it was not.
        idle: the largest deviation of that training over what rounding is allowed.
        drift: how far ends of boxes lie from its own, at most, in widths of a box.
        constants, moved: plans of two neighbours with other constants; records that both sides have, in other batches.
        beside: queries asked at parameters within the bound of their distance, of which ``within`` changed their label.
    """

    kinds: dict[tuple[str, int], EditTally] = field(default_factory=dict)
    groups: Shares = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)
    labels: int = 0
    turned: list[str] = field(default_factory=list)
    wrong: int = 0
    units: int = 0
    memorised: list[tuple[bool, int]] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)
    unreached: int = 0
    pairs: int = 0
    ends: int = 0
    stuck: int = 0
    compared: int = 0
    torn: int = 0
    bits: int | None = None
    differ: int = 0
    idle: float = 0.0
    drift: float = 0.0
    constants: int = 0
    moved: int = 0
    beside: int = 0
    within: int = 0

    @property
    def share(self) -> float:
        """The largest deviation over its bound."""
        return max(self.groups.values(), default=0.0)

    @property
    def trained(self) -> int:
        """Neighbours."""
        return sum(each.trained for each in self.kinds.values())

    def of(self, edit: Edited) -> EditTally:
        """Where an edit's kind is counted: by one step's story, or how many steps."""
        words = edit.story[0] if len(edit.story) == 1 else f"{len(edit.story)} edits after one query"
        return self.kinds.setdefault((words, edit.distance), EditTally())


@dataclass
class Auditor:
    """An audit of one saved model.

    Attributes:
        model: as saved; its problem holds the records that it was trained on.
        extent: how hard to try.
        rng: of every choice.
        on_progress: called with how many neighbours are done, of how many.
        until: the time at which the stage at work begins nothing new.
        cut: a stage had more to do than time.
        farthest: the neighbour that went farthest of its bound.
    """

    model: Model
    extent: Certificate
    rng: np.random.Generator
    on_progress: Callable[[int, int], None] = lambda done, of: None
    tally: Tally = field(default_factory=Tally)
    started: float = field(default_factory=time.monotonic)
    until: float = math.inf
    cut: bool = False
    farthest: tuple[Edited, Model] | None = None

    def __post_init__(self) -> None:
        settings, dataset = self.problem.settings, self.problem.dataset
        self.certificate, self.relation = settings.certificate.name, settings.relation.name
        self.symmetric, ks = RELATIONS[self.relation].symmetric, settings.kgrid.ks
        self.dense = self.certificate != "box" or ks == tuple(range(len(ks)))
        asked = dataset.test if len(dataset.test) > 1 else dataset.train
        chosen = np.sort(self.rng.permutation(len(asked))[: max(self.extent.queries, 2)])
        self.line_ends = np.asarray(asked.take(chosen).features)
        self.queries = np.concatenate([self.line_ends[: self.extent.queries], self.roots_of(self.model)])
        self.known = self.model.certify(self.queries)
        self.editor = Editor(Terms.of(self.problem), self.rng)
        self.unchanged = Edited(dataset.train)

    @property
    def problem(self) -> Problem:
        """What was trained."""
        return self.model.problem

    def read(self, known: Certificates) -> LabelsAndDistances:
        """Labels and distances, of a grid that skips values in its steps."""
        return known.prediction, known.stable_distance if self.dense else known.grid_steps

    @property
    def exact(self) -> bool:
        """Whether distances and bounds of neighbours are claimed to go together: not where a tube has actual gradients."""
        if self.certificate == "tube":
            return self.symmetric
        return self.certificate != "box" or self.problem.recipe.training.product == "exact"

    @property
    def nests(self) -> bool:
        """Whether boxes or balls of neighbours are claimed to lie within one another."""
        return self.certificate in ("box", "tube") and self.dense and self.exact

    @property
    def late(self) -> bool:
        """Whether no time is left to the stage at work."""
        late = time.monotonic() > self.until
        self.cut |= late
        return late

    def run(self, on_progress: Callable[[str, int, int], None]) -> None:
        """Every stage, each with its equal share of the time that is left."""
        stages = {"training it again": self.again} if self.extent.again else {}
        stages |= {"edits": self.attack, "pairs with bounds": self.pairs, "leaving one out": self.leave_out}
        for place, (name, stage) in enumerate(stages.items()):
            self.on_progress = lambda done, of, name=name: on_progress(name, done, of)  # type: ignore[misc]
            self.share_time(len(stages) - place)
            stage()
        self.aimed()
        self.beside_bounds()
        self.batches()

    def share_time(self, stages: int) -> None:
        """Give the next of so many stages its equal share of the time that is left."""
        if self.extent.seconds is not None:
            now = time.monotonic()
            self.until = now + max(0.0, self.started + self.extent.seconds - now) / stages

    def roots_of(self, model: Model, most: int | None = None) -> np.ndarray:
        """Queries a rounding away from where a model's label changes, or its certificate of a k ends.

        Lines go from one record to another, and as far again.

        Args:
            most: the greatest k, any of which may be looked at; None: each within reach of the edits in turn.
        """
        rows = self.rng.integers(0, len(self.line_ends), (2, 4 * self.extent.lines))
        low, high = self.line_ends[rows].astype(np.float64)
        level = np.arange(len(low)) % (self.extent.farthest + 1)
        level = level if most is None else self.rng.integers(1, most + 1, len(low))
        found = roots(lambda queries: self.read(model.certify(queries)), low, 2 * high - low, level)
        half = len(found) // 2
        chosen = np.sort(self.rng.permutation(half)[: self.extent.lines])
        pairs: np.ndarray = found[np.concatenate([chosen, half + chosen])]
        return pairs

    def target(self, distance: int) -> Target:
        """One of the queries that are barely certified at ``distance``, if there are any."""
        reach = self.known.stable_distance
        if not len(reach):
            return Target(self.rng.normal(size=self.editor.terms.low.size), 0)
        among = np.flatnonzero(reach >= distance) if (reach >= distance).any() else np.arange(len(reach))
        row = int(self.rng.choice(among[np.argsort(reach[among], kind="stable")[:8]]))
        return Target(self.queries[row].astype(np.float64).ravel(), int(self.known.prediction[row]))

    # -- neighbours ----------------------------------------------------------------------------------------------------

    def leave_out(self) -> None:
        """Train without each unit, and see what the model had memorised of it."""
        train, tally = self.problem.dataset.train, self.tally
        names = np.unique(train.units[~train.public])
        if self.extent.units is not None and len(names) > self.extent.units:
            names = np.sort(self.rng.choice(names, self.extent.units, replace=False))
        features = np.asarray(train.features)
        near = next((k for k in self.problem.settings.kgrid.ks if k >= 1), 0) if self.certificate == "box" else 1
        distance = self.model.certify(features, (near,)).stable_distance if near else np.zeros(len(train), dtype=np.int64)
        right = self.model.predict(features) == train.labels
        order = np.argsort(train.units, kind="stable")
        starts, stops = (np.searchsorted(train.units[order], names, side) for side in ("left", "right"))
        rows = [np.sort(order[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        for edit, theirs, _ in self._trained([Edited(train, gone, (), 1, ("less one",)) for gone in rows]):
            tally.units += 1
            there = theirs.predict(features[edit.gone]) == train.labels[edit.gone]
            change = right[edit.gone].astype(int) - there.astype(int)
            tally.memorised += list(zip((distance[edit.gone] >= 1).tolist(), change.tolist(), strict=True))

    def attack(self) -> None:
        """Neighbours made to hurt: half of them anew, half from those that went farthest, one edit further."""
        left, best = self.extent.neighbours, list[tuple[float, Edited]]()
        while left and not self.late:
            count = min(EDITS_AT_ONCE, left)
            left -= count
            edits = [self._next([edit for _, edit in best]) for _ in range(count)]
            best += [(share, edit) for edit, _, share in self._trained(edits)]
            best = sorted(best, key=lambda each: -each[0])[:KEPT_EDITS]

    def _next(self, best: Sequence[Edited]) -> Edited:
        """A new edit, a walk, or one that went far taken further: by another, or by the same newcomer once more."""
        near = [edit for edit in best if edit.distance < self.extent.farthest]
        if near and self.rng.random() < 0.5:
            of = near[int(self.rng.integers(len(near)))]
            if of.come and self.rng.random() < 0.7:
                return self.editor.repeated(of)
            return self.editor.step(of, self.target(of.distance + 1))
        edit = self.unchanged
        for _ in range(int(self.rng.integers(1, self.extent.farthest + 1)) if self.rng.random() < 0.3 else 1):
            edit = self.editor.step(edit, self.target(edit.distance + 1))
        return edit

    def _trained(self, edits: Sequence[Edited]) -> Iterator[tuple[Edited, Model, float]]:
        """Train neighbours while there is time, and hold them against parameters and labels; with how far each went."""
        for edit in edits:
            self.tally.of(edit).planned += 1
        long = self.extent.seconds is None or self.extent.seconds >= LONG_SECONDS
        neighbours = neighbours_of(self.model, edits, processes=long)
        for done, edit in enumerate(edits):
            if self.late:
                return
            self.on_progress(done, len(edits))
            theirs, counts = next(neighbours), self.tally.of(edit)
            if isinstance(theirs, AgtError):
                counts.refused += 1
                self.tally.why[str(theirs)] += 1
                continue
            counts.trained += 1
            share = self._contained(edit, theirs)
            if share > max((each.share for each in self.tally.kinds.values()), default=0.0):
                self.farthest = edit, theirs
            counts.share = max(counts.share, share)
            self._labels(edit, theirs, self.queries, self.known)
            yield edit, theirs, share
        self.on_progress(len(edits), len(edits))

    def _contained(self, edit: Edited, theirs: Model) -> float:
        """How far a neighbour's parameters went of what the model allows them, all members together."""
        shares = Shares()
        for member, k in self._changed(edit).items():
            mine = members_of(self.model)[member]
            one = bounds_of(mine).shares(mine, members_of(theirs)[member], k)
            if one is None:
                self.tally.unreached += 1
                continue
            shares = {name: max(share, shares.get(name, 0.0)) for name, share in one.items()}
        for name, share in shares.items():
            self.tally.groups[name] = max(self.tally.groups.get(name, 0.0), share)
        if max(shares.values(), default=0.0) > 1:
            name = max(shares, key=lambda each: shares[each])
            self.tally.outside.append(f"{name} at distance {edit.distance} ({', '.join(edit.story)})")
        return max(shares.values(), default=0.0)

    def _changed(self, edit: Edited) -> dict[int, int]:
        """Member -> how many k its records are away; those that an edit leaves alone are left out. One model: 0."""
        if not self.problem.settings.ensembled:
            return {0: ks_apart(edit, self.relation)}
        ensemble = self.problem.settings.ensemble
        gone = shards(edit.base.units[edit.gone], ensemble)
        comers = [(int(shards(each.units[:1], ensemble)[0]), each) for each in edit.come]
        changed = {}
        for member in sorted({*gone.tolist(), *(home for home, _ in comers)}):
            come = tuple(each for home, each in comers if home == member)
            changed[member] = ks_apart(replace(edit, gone=edit.gone[gone == member], come=come), self.relation)
        return changed

    def _labels(self, edit: Edited, theirs: Model, queries: np.ndarray, known: Certificates) -> None:
        """Labels that are certified as far as the neighbour is, and what it says of these queries."""
        if not len(queries):
            return
        k = max(1, ks_apart(edit, self.relation))
        held = known.stable_distance >= k
        count = int(changed(known.prediction, theirs.predict(queries), held).sum())
        self.tally.labels += int(held.sum())
        self.tally.wrong += count
        if count:
            self.tally.turned.append(f"{count} of them at distance {k} ({', '.join(edit.story)})")

    # -- pairs, each with all its bounds -------------------------------------------------------------------------------

    def pairs(self) -> None:
        """Neighbours one k away with all their bounds: nesting, and distances 1 apart at most."""
        for done in range(self.extent.bounded):
            if self.late:
                return
            self.on_progress(done, self.extent.bounded)
            edit = self.editor.step(self.unchanged, self.target(1))
            try:
                theirs = neighbour_of(self.model, edit.records)
            except AgtError as error:
                self.tally.why[str(error)] += 1
                continue
            self.tally.pairs += 1
            if self.nests:
                self._nested(theirs)
            queries = np.concatenate([self.queries, self.roots_of(theirs)]) if len(self.queries) else self.queries
            if len(queries):
                sides = self.read(self.model.certify(queries)), self.read(theirs.certify(queries))
                self.tally.compared += len(queries)
                self.tally.torn += int(torn(*sides, self.symmetric).sum())

    def _nested(self, theirs: Model) -> None:
        for mine, other in zip(members_of(self.model), members_of(theirs), strict=True):
            for outer, inner in ((mine, other), (other, mine))[: 2 if self.symmetric else 1]:
                out, looked = bounds_of(mine).outside(outer, inner)
                self.tally.stuck += out
                self.tally.ends += looked

    def beside_bounds(self) -> None:
        """Ask labels at parameters within the bound of a query's distance: no neighbour may reach them, and the certificate
        speaks of them all the same. Members of an ensemble are bounded one by one, and left out."""
        if self.problem.settings.ensembled:
            return
        queries = self.queries[-MAX_BESIDE:]
        farthest = int(self.known.stable_distance.max(initial=0))
        if farthest:
            queries = np.concatenate([queries, self.roots_of(self.model, min(farthest, self.model.farthest))])
        known = self.model.certify(queries)
        reach = np.minimum(known.stable_distance, self.model.farthest)
        queries, ks = queries[reach >= 1], reach[reach >= 1]
        self.tally.beside = len(queries)
        self.tally.within = int(bounds_of(self.model).turned(self.model, queries, ks).sum())

    def aimed(self) -> None:
        """Ask queries that are barely certified, where the farthest neighbour moved the label's own line most."""
        if self.farthest is None or self.late:
            return
        edit, theirs = self.farthest
        k = max(1, ks_apart(edit, self.relation))
        rows = self.rng.integers(0, len(self.line_ends), (2, 4 * self.extent.lines))
        low, high = self.line_ends[rows].astype(np.float64)
        low, high = (np.concatenate(sides) for sides in zip((low, 2 * high - low), self._across(theirs), strict=True))
        both = np.concatenate([low, high]), np.concatenate([high, low])
        queries = roots(lambda queries: self.read(self.model.certify(queries)), *both, np.full(2 * len(low), k))
        if len(queries):
            self._labels(edit, theirs, queries, self.model.certify(queries))

    def _across(self, theirs: Model) -> tuple[np.ndarray, np.ndarray]:
        """([m, ...], [m, ...]) ends of lines along a linear head's weights, through points as far as can be along what a
        neighbour moved of them at a right angle to these; none of other models, or of features that are no columns."""
        mine, other = self.model.linear_head, theirs.linear_head
        if mine is None or other is None or mine.features.config.map != "none" or mine.features.whitening is not None:
            return self.line_ends[:0], self.line_ends[:0]
        weight, moved = mine.trained.weight.numpy(), (other.trained.weight - mine.trained.weight).numpy()
        first, *rest = np.argsort(-np.linalg.norm(moved, axis=1)).tolist()
        weight, moved = (each[first] - (each[rest[0]] if rest else 0) for each in (weight, moved))
        width = int(np.prod(self.line_ends.shape[1:]))
        along = weight[:width] / max(float(np.linalg.norm(weight[:width])), 1e-300)
        across = moved[:width] - (moved[:width] @ along) * along
        size = max(float(np.linalg.norm(self.line_ends.reshape(len(self.line_ends), -1), axis=1).mean()), 1e-300)
        across *= size / max(float(np.linalg.norm(across)), 1e-300)
        ends = np.array([[sign * across - size * along, sign * across + size * along] for sign in (-1, 1)])
        low, high = ends.transpose(1, 0, 2).reshape(2, 2, *self.line_ends.shape[1:])
        return low, high

    def batches(self) -> None:
        """Hold the constants and batches of two neighbours, one of them far away, against the run's: no other record may
        have a part in either."""
        problem, train, tally = self.problem, self.problem.dataset.train, self.tally
        config, size, mine = problem.recipe.training.batch, problem.dataset.declared_size, problem.plan
        derived = mine.normalizer if size is None else size / config.count
        due = (config.normalizer or derived, config.n_max or mine.n_max)
        for edit in (self.editor.step(self.unchanged, self.target(1)), Edited(train, np.arange(0, len(train), 2))):
            records = edit.records
            theirs = neighbouring(problem, records).plan
            tally.constants += sum((plan.normalizer, plan.n_max) != due for plan in (mine, theirs))
            steps = zip(_dealt(mine, train), _dealt(theirs, records), strict=False)
            common = np.intersect1d(train.ids, records.ids)
            apart = (np.intersect1d(np.setxor1d(*both), common) for both in islice(steps, 2 * mine.count))
            tally.moved += sum(map(len, apart)) + common.size * (mine.steps != theirs.steps)
            sides = ((each.units, np.isin(each.ids, common)) for each in (train, records))
            here, there = (shards(units, problem.settings.ensemble)[rows] for units, rows in sides)
            tally.moved += int((here != there).sum())

    def again(self) -> None:
        """Train the run's own records: the same bits, or at least what its bounds allow two runs on the same records."""
        records, tally = self.problem.dataset.train, self.tally
        kept = self.certificate == "removal"  # its draws are on record, and training would draw anew
        theirs = neighbour_of(self.model, records) if kept else retrained(self.problem, records)
        tally.bits = 0
        for mine, other in zip(members_of(self.model), members_of(theirs), strict=True):
            bounds = bounds_of(mine)
            numbers = ([*bounds.parameters(each).values(), *bounds.bounds(each)] for each in (mine, other))
            for a, b in zip(*numbers, strict=True):
                tally.bits += a.numel()
                tally.differ += int((a != b).sum())
            tally.idle = max(tally.idle, *(bounds.shares(mine, other, 0) or {"": 0.0}).values())
            tally.drift = max(tally.drift, bounds.drift(mine, other))


def audit_certificates(
    model: Model,
    extent: Certificate,
    seed: int,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, of: None,
) -> Auditor:
    """Attack every certificate claim of a saved model.

    Args:
        model: its problem holds the records that it was trained on.
        extent: how hard.
        seed: of the audit's own choices.
        on_progress: called with the stage and how many of its neighbours are done, of how many.

    Returns:
        The auditor, whose tally says what was seen.
    """
    auditor = Auditor(model, extent, np.random.default_rng(seed))
    auditor.run(on_progress)
    return auditor


def _dealt(plan: BatchPlan, records: Records) -> Iterator[np.ndarray]:
    """The ids of each step's batch, however many they are."""
    return (records.ids[rows] for rows in replace(plan, n_max=MOST_ROWS).batches(records.units))


def members_of(model: Model) -> Sequence[Model]:
    """The members of an ensemble, or the one model."""
    members: Sequence[Model] = getattr(model, "members", (model,))
    return members


def _other_code(run: Run, record: RunRecord) -> str:
    """Why training may give other numbers than the run's, rounding aside; empty: it may not."""
    now, then = Run.at(record.folder).environment, run.environment
    other = [f"{key} was {then.get(key)}, is {now.get(key)}" for key in CODE_KEYS if then.get(key) != now.get(key)]
    return f"the run was made by another agt ({'; '.join(other)})" if other else ""


def findings(auditor: Auditor, other_code: str = "") -> tuple[Finding, ...]:
    """One for each claim.

    Args:
        other_code: why this machine may train to other bits than the run's; empty: it trains to the same.
    """
    return (*_again(auditor, other_code), _contained(auditor), *_labels(auditor), *_pairs(auditor), _dealing(auditor))


def _subject(auditor: Auditor) -> str:
    kind, members = (
        f"certificate={auditor.certificate}, relation={auditor.relation}",
        auditor.problem.settings.ensemble.members,
    )
    return kind if members == 1 else f"{kind}, {members} members"


def _effort(auditor: Auditor) -> str:
    """What was made, and what was not."""
    tally, train = auditor.tally, auditor.problem.dataset.train
    there = len(np.unique(train.units[~train.public]))
    refused, edited = sum(each.refused for each in tally.kinds.values()), tally.trained - tally.units
    farthest = max((k for (_, k), each in tally.kinds.items() if each.trained), default=0)
    out = f"{tally.units:,} of {there:,} units left out, one at a time"
    hurt = f"{edited:,} neighbours edited to hurt, up to k = {farthest}" if edited else "no neighbour edited to hurt"
    cut = "; audit.seconds ended the search" if auditor.cut else ""
    return f"{out}; {hurt}{f'; {refused:,} more refused by training' if refused else ''}{cut}"


def _again(auditor: Auditor, other_code: str) -> Iterator[Finding]:
    tally, grain = auditor.tally, GRAINS[auditor.problem.settings.training.dtype]
    if tally.bits is None:
        return
    differ, outcome = f"{tally.differ} of {tally.bits} numbers", Outcome.REPORTED
    if not tally.differ:
        meaning, outcome = f"all {tally.bits} numbers are those of the run, bit for bit", Outcome.STANDS
    elif tally.idle > 1 or (tally.drift > grain and not other_code):
        meaning, outcome = f"{differ} are not what training gives: the record was changed", Outcome.VIOLATED
    else:
        reason = other_code or (
            "another processor or number of threads would explain it; if env.json of both names the same, nothing does"
        )
        meaning = f"{differ} differ, parameters within what rounding is allowed: {reason}"
    on_record = {"box": "parameters and boxes", "tube": "weights and radii"}.get(auditor.certificate, "weights")
    yield Finding(
        subject=f"{on_record} on record",
        claim="they are what the run's settings and records make",
        attack="trained again on the same records, with the same bounds",
        effort=f"{tally.bits} numbers compared",
        outcome=outcome,
        meaning=meaning,
        measure="numbers that differ",
        claimed=0.0,
        found=float(tally.differ),
        strength=Strength.CERTAIN,
        noticeable="parameters beyond what rounding is allowed" if other_code else "any change beyond rounding",
    )


def _dealing(auditor: Auditor) -> Finding:
    tally = auditor.tally
    meaning = "they are the run's own, and those declared"
    if tally.constants or tally.moved:
        meaning = f"{tally.constants} of 4 plans have other constants, {tally.moved} records change their batch or shard"
    return counterexamples(
        f"batches and constants: {_subject(auditor)}",
        "B and n_max are those declared, and a record's batch and shard are its own, whatever other records there are",
        "plans of the run and of two neighbours, one of them with every other record left out",
        "all records that both have, in the first two epochs", "constants and records that differ",
        float(tally.constants + tally.moved), meaning, "any that differs",
    )  # fmt: skip


def _contained(auditor: Auditor) -> Finding:
    tally, relation = auditor.tally, auditor.problem.settings.relation
    bound = {"box": "the box of k", "tube": "the radius of k"}.get(auditor.certificate, "k times the recorded sensitivity")
    meaning = f"the farthest neighbour went {share_words(tally.share)}"
    if tally.outside:
        meaning = f"a neighbour went {share_words(tally.share)}: {tally.outside[0]}"
    elif not tally.trained:
        meaning = "no neighbour was trained (audit.units, audit.neighbours, audit.seconds)"
    elif not tally.groups:
        meaning = "every neighbour was farther away than the run's bounds reach: none was kept"
    return counterexamples(
        f"parameters: {_subject(auditor)}",
        f"with {RELATIONS[relation.name].ball_of(relation.unit_rows)}, training stays within {bound}",
        "neighbours trained by the run's own constants: units left out, and edits made to hurt",
        _effort(auditor), "deviation/bound", tally.share if tally.groups else None, meaning, _narrowing(auditor), 1.0,
    )  # fmt: skip


def share_words(share: float) -> str:
    """How far of the way to its bound a neighbour went: only the bound itself is 100 %, whatever is left or beyond."""
    apart = abs(1 - share)
    if share >= 2:
        return f"{share:.3g} times as far as its bound"
    if 0 < apart < 0.01:
        digits = max(1, math.ceil(-math.log10(100 * apart)))
        return f"{100 * share:.{digits}f} % of the way to its bound"
    return f"{100 * share:.3g} % of the way to its bound"


def _narrowing(auditor: Auditor) -> str:
    """Which narrowing would have put a neighbour outside: of the parameters that came nearest to it, and farthest. It is of
    all elements, both ends and every k of a group: a share is that of the one that came nearest."""
    shares = sorted(auditor.tally.groups.items(), key=lambda each: -each[1])
    ends = [f"{name} by more than {100 * max(0.0, 1 - share):.3g} %" for name, share in (*shares[:1], *shares[-1:])]
    both = " ... ".join(dict.fromkeys(ends))
    return f"all bounds of a group narrowed together: of {both}; the others lie between them. Of one bound alone, maybe not"


def _labels(auditor: Auditor) -> Iterator[Finding]:
    tally, left_out = auditor.tally, "each unit left out, and the model asked for its own records"
    meaning = f"none of {tally.labels} certified labels changed" if tally.labels else "no query is certified at such k"
    yield counterexamples(
        f"certified labels: {_subject(auditor)}",
        "a label of stable distance L is the same on every dataset within L",
        f"{len(auditor.queries)} queries, those bisected onto the edges of labels and distances among them",
        _effort(auditor), "certified labels that changed", float(tally.wrong) if tally.labels else None,
        f"certified labels changed: {tally.turned[0]}" if tally.turned else meaning, "one label",
    )  # fmt: skip
    looked = f"none of {tally.beside} labels turns" if tally.beside else "no label was asked beside bounds"
    yield counterexamples(
        f"labels within bounds: {_subject(auditor)}",
        "a label of stable distance L is the same at all parameters within the bound of L",
        "parameters moved as far as the bound allows, against the label's lead; queries bisected onto edges of distances",
        f"{tally.beside} queries", "labels that turn", float(tally.within) if tally.beside else None,
        f"{tally.within} of {tally.beside} labels turn within the bound of their distance" if tally.within else looked,
        "one label; of a linear head a distance that is too long by more than its rounding",
    )  # fmt: skip
    certified, others = ([change for held, change in tally.memorised if held == side] for side in (True, False))
    broken, moved = (sum(change != 0 for change in side) for side in (certified, others))
    meaning = f"it is exactly 0 for all {len(certified)} certified records" if certified else "no record was certified"
    yield counterexamples(
        f"memorisation of certified records: {_subject(auditor)}",
        "P(label right | in) - P(label right | out) is exactly 0 where the record's stable distance is 1 or more",
        left_out, f"{tally.units} units left out, {len(tally.memorised)} records asked", "records memorised",
        float(broken) if certified else None,
        f"{broken} of {len(certified)} certified records were memorised all the same" if broken else meaning, "one record",
    )  # fmt: skip
    if others:
        about = ("memorisation of other records", "nothing is claimed of records whose stable distance is 0", left_out)
        meaning = f"{moved} of {len(others)} are labelled otherwise by the model that never saw them"
        yield Finding(
            *about, f"{len(others)} records asked", Outcome.REPORTED, meaning, "records memorised", found=float(moved),
            strength=Strength.CERTAIN,
        )  # fmt: skip


def _pairs(auditor: Auditor) -> Iterator[Finding]:
    tally, about = auditor.tally, f": {_subject(auditor)}"
    nesting = {
        "box": ("box(D', k-1) lies within box(D, k) for neighbours D and D'", "ends of boxes"),
        "tube": ("the ball of k - 1 around D's neighbour lies within that of k around D", "radii"),
    }
    if auditor.certificate in nesting:
        claim, unit = nesting[auditor.certificate]
        yield _of_pairs(auditor, f"nesting{about}", claim, auditor.nests, tally.ends, tally.stuck, unit)
    unit = "distances" if auditor.dense else "steps of the grid"
    claim = f"{unit} of neighbours differ by 1 at most, and labels only where both are 0"
    yield _of_pairs(auditor, f"stable distances{about}", claim, auditor.exact, tally.compared, tally.torn, "queries")


def _of_pairs(auditor: Auditor, about: str, claim: str, claimed: bool, looked: int, broken: int, unit: str) -> Finding:
    pairs = auditor.tally.pairs
    why = (
        "no neighbour was trained with its bounds (audit.bounded, audit.seconds)"
        if not pairs
        else f"no {unit} were compared"
    )
    if not claimed and not auditor.exact and auditor.certificate == "tube":
        why = "nothing is claimed: under relation=remove radii go with the run's own gradients, a neighbour's with others"
    elif not claimed and not auditor.exact:
        why = f"nothing is claimed: product={auditor.problem.recipe.training.product} keeps no boxes within one another"
    elif not claimed:
        why = "nothing is claimed: the grid of k skips values"
    tested = claimed and pairs and looked
    attack = "neighbours one k away, trained with all their bounds; queries bisected onto the edges of both"
    meaning = f"{broken} of {looked} {unit} break it" if tested else why
    effort, found = f"{pairs} such neighbours", float(broken) if tested else None
    return counterexamples(about, claim, attack, effort, f"{unit} that break it", found, meaning)


def notes(auditor: Auditor) -> Iterator[str]:
    """What a reader must know beside the findings."""
    tally, units = auditor.tally, len(np.unique(auditor.problem.dataset.train.units))
    yield (
        "violations are counterexamples and certain; where none was found nothing is proved: the largest deviation over "
        "its bound says what narrowing would have been noticed"
    )
    if tally.units < units:
        limit = "audit.seconds" if auditor.cut else "audit.units"
        yield f"{tally.units} of {units} units were left out one by one ({limit} limits them, public ones stay)"
    if auditor.cut:
        planned = sum(each.planned for each in tally.kinds.values())
        yield (
            f"audit.seconds={auditor.extent.seconds:g} ended the search, each kind of attack having its share: "
            f"{tally.trained:,} of {planned:,} neighbours begun were trained, and {tally.pairs} of "
            f"{auditor.extent.bounded} with all their bounds"
        )
    yield from (f"training refused {n} neighbours: {why}" for why, n in tally.why.most_common(MAX_REFUSALS_SHOWN))
    if tally.unreached:
        yield f"{tally.unreached} neighbours were farther away than the run's bounds reach: none was kept"
    if any("beyond the ranges" in kind for kind, _ in tally.kinds):
        yield (
            "newcomers marked as beyond the ranges have features that the columns may never hold: certificates are about "
            "them too"
        )
    yield "the edits and deviations tell of private records: this report is for the data owner"


def tables(auditor: Auditor) -> dict[str, pd.DataFrame]:
    """Neighbours by edit and distance, and how near each group of parameters came to its bound."""
    edits = [
        {"edit": kind, "k": k, "planned": each.planned, "trained": each.trained, "refused": each.refused,
         "deviation / bound": each.share}
        for (kind, k), each in sorted(auditor.tally.kinds.items(), key=lambda one: -one[1].share)
    ]  # fmt: skip
    groups = [
        {"parameters": name, "deviation / bound": share, "narrowing of all noticed above, %": 100 * max(0.0, 1 - share)}
        for name, share in auditor.tally.groups.items()
    ]
    return {"certificate_edits": pd.DataFrame(edits), "certificate_parameters": pd.DataFrame(groups)}
