"""The certificate audit: neighbours of a run are trained, and every claim of its certificates is held against them.

What is audited is the model as it was saved. A violation is a counterexample, certain but for the claim's own conditions:
it is reported once training by itself has confirmed it. No violation is no proof; so each finding says how close the
neighbours came, and with that which narrowing of a bound would have been noticed (certificate_findings.py).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from agt.audit.claims import apart, beyond, by_distance, by_index, deviations, loose, rebent, redrawn, roots, torn
from agt.audit.edits import Edited, Editor, Target, Terms
from agt.audit.evidence import Evidence, Extent
from agt.audit.neighbours import retrained, retrained_members
from agt.audit.retraining import Refused, neighbours_of
from agt.certificates.box import Certificates
from agt.errors import AgtError
from agt.models.box import BoxModel
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.tube import TubeModel
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.settings import BoxConfig, RemovalConfig, TubeConfig
from agt.training.ensemble import shards

PART = 64  # neighbours that are trained together
CONFIRMED = 3  # violations of a kind that are trained again by themselves
Progress = Callable[[int, int], None]


@dataclass
class Auditor:
    """An audit of one saved model.

    Attributes:
        model: as saved; its problem holds the records that it was trained on.
        extent: how hard to try.
        rng: of every choice.
        unlike: why training here may make other bits than the run's; empty: it makes the same.
        on_progress: called with how many neighbours are done, of how many.
        until: the time at which the stage at work begins nothing new.
        cut: a stage had more to do than time.
    """

    model: Model
    extent: Extent
    rng: np.random.Generator
    unlike: str = ""
    on_progress: Progress = lambda done, of: None
    evidence: Evidence = field(default_factory=Evidence)
    started: float = field(default_factory=time.monotonic)
    until: float = math.inf
    cut: bool = False

    def __post_init__(self) -> None:
        dataset = self.problem.dataset
        asked = dataset.test if len(dataset.test) > 1 else dataset.train
        chosen = np.sort(self.rng.permutation(len(asked))[: max(self.extent.queries, 2)])
        self.ends = np.asarray(asked.take(chosen).features)
        self.queries = np.concatenate([self.ends[: self.extent.queries], self.roots_of(self.model)])
        self.known = self.model.certify(self.queries)
        self.editor = Editor(Terms.of(self.problem), self.rng)
        self.homes = shards(dataset.train.units, self.problem.settings.ensemble)
        self._last = 0.0

    @property
    def problem(self) -> Problem:
        """What was trained."""
        return self.model.problem

    @property
    def boxes(self) -> bool:
        """Parameters are bounded one by one."""
        return isinstance(self.problem.settings.certificate, BoxConfig)

    @property
    def tube(self) -> bool:
        """All parameters are bounded together, k by k."""
        return isinstance(self.problem.settings.certificate, TubeConfig)

    @property
    def dense(self) -> bool:
        """Distances are 1-Lipschitz, and not only indices in the grid."""
        ks = self.problem.settings.kgrid.ks
        return not self.boxes or ks == tuple(range(len(ks)))

    @property
    def read(self) -> Callable[[Certificates], tuple[np.ndarray, np.ndarray]]:
        """What the run claims to be 1-Lipschitz."""
        return by_distance if self.dense else by_index

    @property
    def late(self) -> bool:
        """Whether no time is left to the stage at work."""
        self.cut |= time.monotonic() > self.until
        return time.monotonic() > self.until

    def share_time(self, stages: int) -> None:
        """Give the next of so many stages its equal share of the time that is left."""
        if self.extent.seconds is not None:
            now = time.monotonic()
            self.until = now + max(0.0, self.started + self.extent.seconds - now) / stages

    def roots_of(self, model: Model) -> np.ndarray:
        """Queries a rounding away from where a model's label changes, or its certificate of a k within reach ends.

        Lines go from one record to another, and as far again.
        """
        low, high = (
            self.ends[self.rng.integers(0, len(self.ends), 4 * self.extent.lines)].astype(np.float64) for _ in range(2)
        )
        found = roots(model.certify, self.read, low, 2 * high - low, self.extent.farthest)
        half = len(found) // 2
        kept = np.sort(self.rng.permutation(half)[: self.extent.lines])
        pairs: np.ndarray = found[np.concatenate([kept, half + kept])]
        return pairs

    def target(self, distance: int) -> Target:
        """One of the queries that are barely certified at ``distance``, if there are any."""
        reach = self.known.stable_distance
        if not len(reach):
            return Target(self.rng.normal(size=self.editor.terms.low.size), 0)
        among = np.flatnonzero(reach >= distance) if (reach >= distance).any() else np.arange(len(reach))
        row = int(self.rng.choice(among[np.argsort(reach[among], kind="stable")[:8]]))
        return Target(self.queries[row].astype(np.float64).ravel(), int(self.known.prediction[row]))

    # -- neighbours ------------------------------------------------------------------------------------------------------

    def leave_out(self) -> None:
        """Train without each unit, and see what the model had memorised of it."""
        train = self.problem.dataset.train
        names = np.unique(train.units[~train.public])
        if self.extent.units is not None and len(names) > self.extent.units:
            names = np.sort(self.rng.choice(names, self.extent.units, replace=False))
        order = np.argsort(train.units, kind="stable")
        starts, stops = (np.searchsorted(train.units[order], names, side) for side in ("left", "right"))
        rows = [np.sort(order[a:b]) for a, b in zip(starts, stops, strict=True)]
        edits = [Edited(train, gone, (), 1, ("less one",)) for gone in rows]
        self._known_rows()
        for edit, theirs in self._held(edits):
            self.evidence.units += 1
            self._memorised(edit, theirs)

    def attack(self) -> None:
        """Neighbours made to hurt: half of them anew, half from those that went farthest, one edit further."""
        whole, base = self.extent.neighbours, Edited(self.problem.dataset.train)
        best: list[tuple[float, int, Edited]] = []
        made = 0
        while made < whole and not self.late:
            count = min(PART, whole - made)
            edits = [self._next(base, best) for _ in range(count)]
            made += count
            for edit, _ in self._held(edits):
                best.append((self._last, len(best), edit))
            best = sorted(best, key=lambda each: -each[0])[:16]

    def _next(self, base: Edited, best: Sequence[tuple[float, int, Edited]]) -> Edited:
        """A new edit, a walk, or one that went far taken further: by another, or by the same newcomer once more."""
        near = [edit for _, _, edit in best if edit.distance < self.extent.farthest]
        if near and self.rng.random() < 0.5:
            of = near[int(self.rng.integers(len(near)))]
            if of.come and self.rng.random() < 0.7:
                return self.editor.repeated(of)
            return self.editor.step(of, self.target(of.distance + 1))
        edit = base
        for _ in range(int(self.rng.integers(1, self.extent.farthest + 1)) if self.rng.random() < 0.3 else 1):
            edit = self.editor.step(edit, self.target(edit.distance + 1))
        return edit

    def _held(self, edits: Sequence[Edited]) -> Iterator[tuple[Edited, Model]]:
        """Train neighbours, a part at a time while there is time, and hold them against parameters and labels."""
        for edit in edits:
            self.evidence.of(edit).planned += 1
        start, size = 0, PART if self.extent.seconds is None else 1
        while start < len(edits):
            if self.late:
                return
            self.on_progress(start, len(edits))
            part = edits[start : start + size]
            start, size = start + size, min(2 * size, PART)  # a first part of few: a limit may be shorter than one of many
            for edit, theirs in zip(part, neighbours_of(self.model, part), strict=True):
                seen = self.evidence.of(edit)
                if isinstance(theirs, Refused):
                    seen.refused += 1
                    self.evidence.why[theirs.why] += 1
                    continue
                seen.trained += 1
                self._contained(edit, theirs)
                self._labels(edit, theirs)
                yield edit, theirs
        self.on_progress(len(edits), len(edits))

    def _contained(self, edit: Edited, theirs: Model) -> None:
        shares = self.shares(edit, theirs)
        if max(shares.values(), default=0.0) > 1 and len(self.evidence.outside) < CONFIRMED:
            alone = self._alone(edit)
            shares = {} if alone is None else self.shares(edit, alone)
            if max(shares.values(), default=0.0) > 1:
                name = max(shares, key=lambda each: shares[each])
                self.evidence.outside.append(f"{name} at distance {edit.distance} ({', '.join(edit.story)})")
            else:
                self.evidence.unconfirmed += 1
        self._last = max(shares.values(), default=0.0)
        seen = self.evidence.of(edit)
        seen.share = max(seen.share, self._last)
        for name, share in shares.items():
            self.evidence.groups[name] = max(self.evidence.groups.get(name, 0.0), share)

    def shares(self, edit: Edited, theirs: Model) -> dict[str, float]:
        """Parameters by name -> how far a neighbour's went of what the model allows it, all members together."""
        farthest: dict[str, float] = {}
        for member, k in self.changed(edit).items():
            one = deviations(members_of(self.model)[member], members_of(theirs)[member], k)
            if one is None:
                self.evidence.unreached += 1
                continue
            farthest = {name: max(share, farthest.get(name, 0.0)) for name, share in one.items()}
        return farthest

    def changed(self, edit: Edited) -> dict[int, int]:
        """Member -> how many k its records are away; those that an edit leaves alone are left out."""
        ensemble, relation = self.problem.settings.ensemble, self.problem.settings.relation.name
        homes = [int(home) for home in shards(np.array([str(each.units[0]) for each in edit.come], dtype=str), ensemble)]
        gone = self.homes[edit.gone]
        return {
            member: apart(
                replace(edit, gone=edit.gone[gone == member],
                        come=tuple(each for each, home in zip(edit.come, homes, strict=True) if home == member)), relation)
            for member in sorted({*gone.tolist(), *homes})
        }  # fmt: skip

    def _labels(self, edit: Edited, theirs: Model) -> None:
        if not len(self.queries):
            return
        k = max(1, apart(edit, self.problem.settings.relation.name))
        held = self.known.stable_distance >= k
        self.evidence.labels += int(held.sum())
        if self._turned(theirs, held).any() and len(self.evidence.turned) < CONFIRMED:
            alone = self._alone(edit)
            if alone is not None and self._turned(alone, held).any():
                count = int(self._turned(alone, held).sum())
                self.evidence.wrong += count
                self.evidence.turned.append(f"{count} of them at distance {k} ({', '.join(edit.story)})")

    def _turned(self, theirs: Model, held: np.ndarray) -> np.ndarray:
        changed: np.ndarray = (theirs.predict(self.queries) != self.known.prediction) & held
        return changed

    def _known_rows(self) -> None:
        """What the model says of its own training records: right or not, and certified at one k or not."""
        features, near = np.asarray(self.problem.dataset.train.features), 1
        if self.boxes:
            near = next((k for k in self.problem.settings.kgrid.ks if k >= 1), 0)
        distance = (
            self.model.certify(features, (near,)).stable_distance if near else np.zeros(len(features), dtype=np.int64)
        )
        self.right, self.certified = self.model.predict(features) == self.problem.dataset.train.labels, distance >= 1

    def _memorised(self, edit: Edited, theirs: Model) -> None:
        rows = self.problem.dataset.train.take(edit.gone)
        there = theirs.predict(np.asarray(rows.features)) == rows.labels
        change = self.right[edit.gone].astype(int) - there.astype(int)
        self.evidence.memorised += list(zip(self.certified[edit.gone].tolist(), change.tolist(), strict=True))

    def _alone(self, edit: Edited) -> Model | None:
        if isinstance(self.problem.settings.certificate, RemovalConfig):  # its draws were not kept
            (again,) = neighbours_of(self.model, [edit])
            return None if isinstance(again, Refused) else again
        try:
            return retrained(self.problem, edit.records, (0,))
        except AgtError:
            return None

    # -- pairs, each with all its bounds ---------------------------------------------------------------------------------

    def pairs(self) -> None:
        """Neighbours one k away with all their bounds: nesting, and distances 1 apart at most."""
        symmetric = RELATIONS[self.problem.settings.relation.name].symmetric
        for done in range(self.extent.bounded):
            if self.late:
                return
            self.on_progress(done, self.extent.bounded)
            edit = self.editor.step(Edited(self.problem.dataset.train), self.target(1))
            theirs = self._bounded(edit)
            if theirs is None:
                continue
            self.evidence.pairs += 1
            if self.nests:
                self._nested(theirs, symmetric)
            queries = np.concatenate([self.queries, self.roots_of(theirs)]) if len(self.queries) else self.queries
            if len(queries):
                torn_ones = torn(self.read(self.model.certify(queries)), self.read(theirs.certify(queries)), symmetric)
                self.evidence.compared += len(queries)
                self.evidence.torn += int(torn_ones.sum())

    @property
    def exact(self) -> bool:
        """Whether distances and bounds of neighbours are claimed to go together: not where a tube has actual gradients."""
        if self.tube:
            return RELATIONS[self.problem.settings.relation.name].symmetric
        return not self.boxes or self.problem.recipe.training.product == "exact"

    @property
    def nests(self) -> bool:
        """Whether boxes or balls of neighbours are claimed to lie within one another."""
        return (self.boxes or self.tube) and self.dense and self.exact

    def _nested(self, theirs: Model, symmetric: bool) -> None:
        for mine, other in zip(members_of(self.model), members_of(theirs), strict=True):
            for outer, inner in ((mine, other), (other, mine))[: 2 if symmetric else 1]:
                out, looked = _sticking(outer, inner)
                self.evidence.stuck += out
                self.evidence.ends += looked

    def _bounded(self, edit: Edited) -> Model | None:
        try:
            if isinstance(self.problem.settings.certificate, RemovalConfig):
                return self._alone(edit)
            if not isinstance(self.model, EnsembleModel):
                return retrained(self.problem, edit.records)
            members, which = list(self.model.members), list(self.changed(edit))
            for member, one in zip(which, retrained_members(self.problem, edit.records, which), strict=True):
                members[member] = one
            return replace(self.model, members=tuple(members))
        except AgtError as error:
            self.evidence.why[str(error)] += 1
            return None

    # -- the run itself --------------------------------------------------------------------------------------------------

    def again(self) -> None:
        """Train the run's own records: the same bits, or at least what its bounds allow two runs on the same records."""
        same = Edited(self.problem.dataset.train)
        theirs = self._bounded(same)
        if theirs is None:
            return
        evidence = self.evidence
        evidence.bits = evidence.apart = 0
        for mine, other in zip(members_of(self.model), members_of(theirs), strict=True):
            left, right = numbers(mine), numbers(other)
            evidence.bits += sum(tensor.numel() for tensor in left)
            evidence.apart += sum(int((a != b).sum()) for a, b in zip(left, right, strict=True))
            shares = deviations(mine, other, 0)
            evidence.idle = max(evidence.idle, *(shares or {"": 0.0}).values())
            if isinstance(mine, BoxModel) and isinstance(other, BoxModel):
                evidence.moved = max(evidence.moved, redrawn(mine.box, other.box))
            if isinstance(mine, TubeModel) and isinstance(other, TubeModel):
                evidence.moved = max(evidence.moved, rebent(mine.trained.radii, other.trained.radii))


def _sticking(outer: Model, inner: Model) -> tuple[int, int]:
    """(bounds of ``inner`` that stick out of those of ``outer`` one k further, bounds looked at)."""
    if isinstance(outer, BoxModel) and isinstance(inner, BoxModel):
        return beyond(outer.box, inner.box)
    assert isinstance(outer, TubeModel)
    assert isinstance(inner, TubeModel)
    return loose(outer, inner)


def members_of(model: Model) -> Sequence[Model]:
    """The members of an ensemble, or the one model."""
    return model.members if isinstance(model, EnsembleModel) else (model,)


def numbers(model: Model) -> list[torch.Tensor]:
    """All that is bounded, and the bounds."""
    if isinstance(model, BoxModel):
        box = model.box
        return [tensor for part in (box.nominal, box.lower, box.upper) for tensor in part.values()]
    if isinstance(model, TubeModel):
        return [model.trained.weight, torch.from_numpy(model.trained.radii)]
    assert isinstance(model, LinearModel)
    return [model.trained.weight]
