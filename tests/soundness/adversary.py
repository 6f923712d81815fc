"""The standing adversary: it trains at random, edits the data where that hurts most, trains again,
and counts what broke.

One assault is one configuration drawn at random (``draw_setting``), trained once, and many
neighbours of its data: single edits, mixed sequences, greedy searches for the edits that move one
query's margin most, and other orders of the same rows. Queries stand where a certificate is about
to end: bisected onto the last bit before a distance or a label changes.

What must hold, and is counted whether it does:
  contained   a neighbour's parameters lie in the box for its distance; a linear head moves by at
              most k times its bound
  labels      a label certified at k is the neighbour's too, wherever its distance is at most k
  nested      box(D', k-1) inside box(D, k), where the product is exact and the grid dense
  distances   of neighbours one edit apart differ by at most 1 (on a sparse grid: indices), labels
              only where both are 0
  reorder     the same rows in another order are at distance 0, and give the same bits to ensembles
              and public feature maps
  crash       nothing is NaN, and nothing fails but with an error that says what to do
No tolerance anywhere. An ensemble is its members: each is looked at, and so is the vote.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle, product

import numpy as np
import torch
from adversary_settings import (
    KINDS,
    Data,
    DrawnEditor,
    Fitted,
    Neighbour,
    Setting,
    Trained,
    draw_setting,
    fit,
)
from checks import draw, ends, moved_by, thresholds
from pydantic import ValidationError
from synthetic import RELATIONS

from agt.bounds.box import Box
from agt.certificates.box import Certificates, count_grid_steps
from agt.certificates.vote_certificates import VoteCertificates
from agt.data.records import Records
from agt.errors import ConfigError, DataError, UnboundedError
from agt.training.linear import LinearTrained
from agt_audit.editor import TargetQuery

CELLS = tuple(product(RELATIONS, KINDS))
EXPECTED = (ConfigError, DataError, UnboundedError)
"""Errors that say what to do: settings that the rules refuse, a batch above n_max, numbers out
of the machine's range.
"""


# -- what was seen


@dataclass(frozen=True)
class Escape:
    """Something that must not happen.

    Attributes:
        claim: which of the claims above it breaks.
        setting: what was trained.
        distance: of the neighbour.
        story: the edits that made it.
        count: parameters, queries or ends of boxes concerned.
        detail: more in words.
    """

    claim: str
    setting: Setting
    distance: int
    story: tuple[str, ...]
    count: int
    detail: str = ""

    def __str__(self) -> str:
        edits = ", ".join(self.story) or "nothing"
        return (
            f"{self.claim}: {self.count} at distance {self.distance} after {edits}. "
            f"{self.detail} {self.setting}"
        )


@dataclass
class Report:
    """What assaults saw; reports add up.

    Attributes:
        configurations: settings that trained.
        refused: settings that the rules refuse.
        retrainings: neighbours trained (an ensemble counts once).
        stopped: neighbours whose training ended in an error that says what to do.
        labels: certified labels looked at.
        distances: pairs of distances compared.
        ends: ends of boxes compared for nesting.
        reorders: trainings on the same rows in another order.
        rounded: ... of single boxes, in which some bit changed: a matrix product may round a
            record's gradient otherwise.
        apart: the largest difference between distances of neighbours one edit apart.
        deviation: the farthest that parameters went, relative to where their bound ends.
        escapes: what must not happen.
    """

    configurations: int = 0
    refused: int = 0
    retrainings: int = 0
    stopped: int = 0
    labels: int = 0
    distances: int = 0
    ends: int = 0
    reorders: int = 0
    rounded: int = 0
    apart: int = 0
    deviation: float = 0.0
    escapes: list[Escape] = field(default_factory=list)

    def __iadd__(self, other: "Report") -> "Report":
        for name in self.__dataclass_fields__:
            mine = getattr(self, name)
            theirs = getattr(other, name)
            setattr(
                self, name, max(mine, theirs) if name in ("apart", "deviation") else mine + theirs
            )
        return self


# -- the assault


def assault(
    setting: Setting,
    seed: int,
    retrainings: int = 24,
    records: Records | None = None,
    until: str | None = None,
) -> Report:
    """Train ``setting`` once and attack it with about ``retrainings`` neighbours.

    Args:
        records: the data; None: drawn.
        until: the claim that is looked at alone, up to its first escape; None: all of them.
    """
    report = Report()
    rng = np.random.default_rng(seed)
    try:
        attack = Attack.start(setting, rng, report, records)
    except (*EXPECTED, ValidationError):
        return Report(refused=1)
    except Exception as error:
        report.escapes.append(Escape("crash", setting, 0, (), 1, repr(error)))
        return report
    report.configurations = 1
    attack.reorder()
    moves = cycle((attack.single, attack.walk, attack.single, attack.hunt))
    while report.retrainings + report.stopped < retrainings and until not in {
        escape.claim for escape in report.escapes
    }:
        next(moves)()
    return report


@dataclass
class Attack:
    """An assault under way.

    Attributes:
        base: the data as drawn; ``whole``: what was trained on it, with every certificate.
        queries: at random, and at thresholds; ``known``: their certificates.
    """

    setting: Setting
    rng: np.random.Generator
    report: Report
    editor: DrawnEditor
    base: Neighbour
    whole: Fitted
    queries: np.ndarray
    known: Certificates
    seed: int

    @classmethod
    def start(
        cls, setting: Setting, rng: np.random.Generator, report: Report, records: Records | None
    ) -> "Attack":
        """Train, and find the queries."""
        editor = DrawnEditor(setting, rng)
        case = setting.case
        seed = int(rng.integers(2**31))
        records = editor.named(case.data(rng) if records is None else records)
        test = draw(rng, replace(case, unit_rows=1, public=0.0), int(rng.choice([3, 5, 30])), "t")
        base = Neighbour.unedited(Data(records, test))
        whole = fit(setting, base.data, setting.ks, seed)
        queries = np.concatenate(
            [rng.normal(size=(16, case.width)), cls.edges(setting, rng, whole)]
        )
        return cls(setting, rng, report, editor, base, whole, queries, whole.certify(queries), seed)

    @staticmethod
    def edges(setting: Setting, rng: np.random.Generator, fitted: Fitted) -> np.ndarray:
        """Queries a rounding away from where a label or a distance changes."""
        lines = 8 if setting.boxes else 16
        return thresholds(rng, fitted.certify, lines, setting.case.width)

    # -- moves

    def reorder(self) -> None:
        """The same rows in another order, under the same kernel and fragments."""
        edited = replace(self.base.edited, edits=("another order",))
        other = Neighbour(self.base.data.shuffled(self.rng), edited)
        there = self._train(other, self.setting.ks, self.seed)
        if there is None:
            return
        self.report.reorders += 1
        self._hold(there, other)
        if self.setting.nests:
            self._compare(there, other, self.queries)
        changed = _bits(self.whole.members, there.members)
        if self.setting.members > 1:
            self._found("reorder", changed, other, "parameters of members")
            apart = self.known.stable_distance != there.certify(self.queries).stable_distance
            self._found("reorder", int(apart.sum()), other, "distances of votes")
        elif self.setting.boxes:
            self.report.rounded += changed > 0
        for mine, yours in zip(self.whole.maps, there.maps, strict=True):
            if mine is not None and yours is not None:
                entries = sum(int((m != yours.matrices[n]).sum()) for n, m in mine.matrices.items())
                self._found("reorder", entries, other, "entries of a public matrix")

    def single(self) -> None:
        """One edit, with every certificate of the neighbour: distances and boxes are compared
        too.
        """
        other = self.editor.further(self.base, self._target(1))
        there = self._train(other, self.setting.ks)
        if there is None:
            return
        self._hold(there, other)
        self._nested(there, other)
        if self.setting.nests:
            more = (
                self.edges(self.setting, self.rng, there)
                if not self.setting.boxes or self.rng.random() < 0.25
                else None
            )
            self._compare(
                there, other, self.queries if more is None else np.concatenate([self.queries, more])
            )

    def walk(self) -> None:
        """A mixed sequence of edits, each after a target of its own."""
        other = self.base
        for _ in range(int(self.rng.integers(1, self.setting.farthest + 1))):
            other = self.editor.further(other, self._target(int(self.rng.integers(0, 3))))
        there = self._train(other, (0,))
        if there is not None:
            self._hold(there, other)

    def hunt(self, tries: int = 3) -> None:
        """Greedy: after one query, step by step the edit of several that costs its label most."""
        depth = int(self.rng.integers(1, min(3, self.setting.farthest) + 1))
        target = self._target(depth)
        best = self.base
        for _ in range(depth):
            found: list[tuple[float, int, Neighbour]] = []
            for index in range(tries):
                other = self.editor.further(best, target)
                there = self._train(other, (0,))
                if there is not None:
                    self._hold(there, other)
                    found.append((there.lead(target.query[None], target.label), index, other))
            if not found:
                return
            best = min(found)[2]

    def _target(self, distance: int) -> TargetQuery:
        """One of the queries that are barely certified at ``distance``, if there are any."""
        reach = self.known.stable_distance
        among = (
            np.flatnonzero(reach >= distance)
            if (reach >= distance).any()
            else np.arange(len(reach))
        )
        barely = among[np.argsort(reach[among], kind="stable")[:8]]
        row = int(self.rng.choice(barely))
        return TargetQuery(self.queries[row], int(self.known.prediction[row]))

    def _train(
        self, other: Neighbour, ks: tuple[int, ...], seed: int | None = None
    ) -> Fitted | None:
        try:
            there = fit(
                self.setting,
                other.data,
                ks,
                int(self.rng.integers(2**31)) if seed is None else seed,
            )
        except EXPECTED:
            self.report.stopped += 1
            return None
        except Exception as error:
            self._found("crash", 1, other, repr(error))
            self.report.stopped += 1
            return None
        self.report.retrainings += 1
        return there

    # -- claims

    def _found(self, claim: str, count: int, other: Neighbour, detail: str = "") -> None:
        if count:
            self.report.escapes.append(
                Escape(claim, self.setting, other.distance, other.story, count, detail)
            )

    def _hold(self, there: Fitted, other: Neighbour) -> None:
        self._contained(there, other)
        self._labels(there, other)

    def _contained(self, there: Fitted, other: Neighbour) -> None:
        for mine, yours in zip(self.whole.members, there.members, strict=True):
            if isinstance(mine, Box) and isinstance(yours, Box):
                outside, share = _outside(mine, yours, other.distance)
            elif isinstance(mine, LinearTrained) and isinstance(yours, LinearTrained):
                outside, share = _beyond(mine, yours, other.distance)
            self._found("contained", outside, other, f"{share:.4g} of the bound")
            if other.distance:
                self.report.deviation = max(self.report.deviation, share)

    def _labels(self, there: Fitted, other: Neighbour) -> None:
        ks = np.array(self.known.ks)
        held = self.known.certified[ks >= other.distance].any(axis=0)
        if other.distance:
            held |= self.known.stable_distance >= other.distance
        self.report.labels += int(held.sum())
        turned = there.certify(self.queries).prediction != self.known.prediction
        self._found("labels", int((turned & held).sum()), other)

    def _nested(self, there: Fitted, other: Neighbour) -> None:
        if not (
            self.setting.boxes
            and self.setting.dense
            and self.setting.case.config().product == "exact"
        ):
            return
        for mine, yours in zip(self.whole.members, there.members, strict=True):
            assert isinstance(mine, Box)
            assert isinstance(yours, Box)
            self._found("nested", self._ends(mine, yours), other, "D' in D")
            if self.setting.rule.symmetric:
                self._found("nested", self._ends(yours, mine), other, "D in D'")

    def _ends(self, outer: Box, inner: Box) -> int:
        self.report.ends += 2 * sum(int(end[1:].numel()) for end in outer.lower.values())
        return ends(outer, inner)[0]

    def _compare(self, there: Fitted, other: Neighbour, queries: np.ndarray) -> None:
        (label, near), (turned, far) = (
            self._evidence(fitted.certify(queries)) for fitted in (self.whole, there)
        )
        self.report.distances += len(near)
        self.report.apart = max(self.report.apart, int(abs(near - far).max(initial=0)))
        self._found(
            "distances",
            int((abs(near - far) > 1).sum()),
            other,
            f"up to {abs(near - far).max(initial=0)} apart",
        )
        early = (label != turned) & ((near > 0) | (far > 0))
        self._found(
            "distances", int(early.sum()), other, "a label turned before its distance was 0"
        )

    def _evidence(self, known: Certificates) -> tuple[np.ndarray, np.ndarray]:
        if self.setting.dense:
            return known.prediction, known.stable_distance
        steps = (
            known.steps
            if isinstance(known, VoteCertificates)
            else count_grid_steps(known.ks, known.certified)
        )
        return known.prediction, steps


def _outside(mine: Box, yours: Box, distance: int) -> tuple[int, float]:
    """(parameters outside the box for ``distance``, the farthest one's share of the way to its
    end).
    """
    index = next(i for i, k in enumerate(mine.ks) if k >= distance)
    outside = 0
    share = 0.0
    for name, value in yours.nominal.items():
        lower = mine.lower[name][index]
        point = mine.nominal[name]
        upper = mine.upper[name][index]
        outside += int((~((lower <= value) & (value <= upper))).sum())
        moved = (value - point).double()
        room = torch.where(moved > 0, upper - point, point - lower).double()
        share = max(share, float((moved.abs() / room.clamp(min=1e-300)).max()))
    return outside, share


def _beyond(mine: LinearTrained, yours: LinearTrained, distance: int) -> tuple[int, float]:
    """(1 if the head moved farther than its bound, or has another one; its share of it)."""
    bound = distance * mine.sensitivity.per_k or mine.sensitivity.rounding
    moved = moved_by(mine, yours)
    return int(not moved <= bound or mine.sensitivity != yours.sensitivity), moved / bound


def _bits(mine: tuple[Trained, ...], yours: tuple[Trained, ...]) -> int:
    """Numbers that are not the same, bit for bit."""
    return sum(int((a != b).sum()) for a, b in zip(_numbers(mine), _numbers(yours), strict=True))


def _numbers(members: tuple[Trained, ...]) -> Iterator[torch.Tensor]:
    for member in members:
        if isinstance(member, LinearTrained):
            yield member.weight
        else:
            for part in (member.nominal, member.lower, member.upper):
                yield from part.values()


def trial(seed: int, index: int, retrainings: int = 24) -> tuple[tuple[str, str], Report]:
    """The trial number ``index`` of a run: (relation, kind), and what was seen.

    Each depends on (seed, index) alone.
    """
    relation, kind = CELLS[index % len(CELLS)]
    rng = np.random.default_rng([seed, index])
    return (relation, kind), assault(
        draw_setting(rng, relation, kind), int(rng.integers(2**31)), retrainings
    )


def table(reports: Mapping[tuple[str, str], Report]) -> str:
    """One line for each relation and kind, and one for all."""
    whole = Report()
    for report in reports.values():
        whole += report
    columns = (
        "configurations",
        "refused",
        "retrainings",
        "stopped",
        "labels",
        "distances",
        "ends",
        "escapes",
        "apart",
    )
    lines = [
        f"{'relation':<17}{'kind':<16}" + "".join(f"{name:>15}" for name in (*columns, "deviation"))
    ]
    for (relation, kind), report in [*reports.items(), (("all", ""), whole)]:
        numbers = (getattr(report, name) for name in columns)
        shown = [str(len(n) if isinstance(n, list) else n) for n in numbers] + [
            f"{report.deviation:.4f}"
        ]
        lines.append(f"{relation:<17}{kind:<16}" + "".join(f"{number:>15}" for number in shown))
    lines.append(
        f"reorderings {whole.reorders}, of which single boxes whose last bits moved {whole.rounded}"
    )
    return "\n".join(lines)
