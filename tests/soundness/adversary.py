"""The standing adversary: it trains at random, edits the data where that hurts most, trains again, and counts what broke.

One assault is one configuration drawn at random (``draw_setting``), trained once, and many neighbours of its data: single
edits, mixed sequences, greedy searches for the edits that move one query's margin most, and other orders of the same rows.
Queries stand where a certificate is about to end: bisected onto the last bit before a distance or a label changes.

What must hold, and is counted whether it does:
  contained   a neighbour's parameters lie in the box for its distance; a linear head moves by at most k times its bound
  labels      a label certified at k is the neighbour's too, wherever its distance is at most k
  nested      box(D', k-1) inside box(D, k), where the product is exact and the grid dense
  distances   of neighbours one edit apart differ by at most 1 (on a sparse grid: indices), labels only where both are 0
  reorder     the same rows in another order are at distance 0, and give the same bits to ensembles and public feature maps
  crash       nothing is NaN, and nothing fails but with an error that says what to do
No tolerance anywhere. An ensemble is its members: each is looked at, and so is the vote.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import torch
from checks import Case, concatenate, draw, moved_by, nested, run, thresholds
from checks import certificates as certify_boxes
from pydantic import ValidationError
from synthetic import RELATIONS, make_records

from agt_cli.bounds.network import Network
from agt_cli.certificates.box import Certificates
from agt_cli.certificates.stability import certify_linear, logits_of
from agt_cli.data.dataset import DataError, Dataset, Fact, Records
from agt_cli.data.ids import content_ids
from agt_cli.errors import ConfigError, UnboundedError
from agt_cli.mechanisms.rigour import grid_index
from agt_cli.models.features import FeatureMap
from agt_cli.schema import (
    BoxConfig,
    CertificateConfig,
    ComputeConfig,
    ErmConfig,
    FeaturesConfig,
    RelationConfig,
    StabilityConfig,
)
from agt_cli.tasks.boxes import signed_margins
from agt_cli.tasks.ensemble import VoteCertificates, vote
from agt_cli.training import relations
from agt_cli.training.agt import Trained
from agt_cli.training.batches import BatchPlan
from agt_cli.training.ensemble import EnsembleConfig, shards, train_members
from agt_cli.training.erm import train_erm
from agt_cli.training.linear import Examples, LinearTrained, train_linear
from agt_cli.training.optimizer import learning_rate

Member = tuple[Trained | LinearTrained, FeatureMap | None]
KINDS = ("linear box", "one hidden", "two hidden", "stability", "erm", "votes of boxes", "votes of heads")
CELLS = tuple(product(RELATIONS, KINDS))
DENSE = tuple(range(5))
EXPECTED = (ConfigError, DataError, UnboundedError)
"""Errors that say what to do: settings that the rules refuse, a batch above n_max, numbers out of the machine's range."""


# -- what was seen -------------------------------------------------------------------------------------------------------


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
    setting: "Setting"
    distance: int
    story: tuple[str, ...]
    count: int
    detail: str = ""

    def __str__(self) -> str:
        edits = ", ".join(self.story) or "nothing"
        return f"{self.claim}: {self.count} at distance {self.distance} after {edits}. {self.detail} {self.setting}"


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
        rounded: ... of single boxes, in which some bit changed: a matrix product may round a record's gradient otherwise.
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
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, theirs) if name in ("apart", "deviation") else mine + theirs)
        return self


# -- settings ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What is trained, how it is certified, and how its records are named.

    Attributes:
        case: head, data and training.
        relation: what a neighbour is.
        kind: one of ``KINDS``.
        certificate: boxes, or a closed form with its public features.
        members: 1, or the size of an ensemble.
        content: ids are hashes of the content, identical copies numbered; else they are given.
    """

    case: Case
    relation: str
    kind: str
    dtype: str = "float64"
    ks: tuple[int, ...] = DENSE
    certificate: CertificateConfig = field(default_factory=BoxConfig)
    members: int = 1
    content: bool = False

    @property
    def boxes(self) -> bool:
        """Parameters are bounded one by one."""
        return isinstance(self.certificate, BoxConfig)

    @property
    def rule(self) -> relations.Relation:
        """The relation's rule."""
        return relations.RELATIONS[self.relation]

    @property
    def dense(self) -> bool:
        """Distances are 1-Lipschitz, not just indices in the grid."""
        return not self.boxes or self.ks == tuple(range(len(self.ks)))

    @property
    def nests(self) -> bool:
        """The certificates could carry a privacy guarantee but for the grid: exact products, a symmetric relation."""
        exact = not self.boxes or self.case.config().product == "exact"
        return exact and self.rule.symmetric

    @property
    def farthest(self) -> int:
        """The greatest distance worth trying."""
        return self.ks[-1] if self.boxes else 6


def draw_setting(rng: np.random.Generator, relation: str, kind: str) -> Setting:
    """A configuration of this relation and kind; some are ones that the rules refuse."""
    members = int(rng.integers(2, 6)) if kind.startswith("votes") else 1
    linear = kind in ("stability", "erm", "votes of heads")
    unit_rows = int(rng.choice([1, 1, 1, 3]))
    n = int(rng.integers(10, 41)) if members == 1 else 10 * members + int(rng.integers(0, 11))
    n = max(4 * members, n // 2) if unit_rows > 1 else n
    content = unit_rows == 1 and rng.random() < 0.3
    public = 0.0 if content or rng.random() < 0.7 else 0.35
    case = Case("drawn", n=n, width=int(rng.integers(2, 7)), unit_rows=unit_rows, public=public)
    make = _linear_setting if linear else _box_setting
    return make(rng, Setting(case, relation, kind, members=members, content=content))


def _box_setting(rng: np.random.Generator, setting: Setting) -> Setting:
    hidden = {"linear box": 0, "one hidden": 1, "two hidden": 2}.get(setting.kind, int(rng.integers(0, 2)))
    count, epochs = (1, 1) if rng.random() < 0.3 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    loss, classes = ("binary_cross_entropy", 2) if rng.random() < 0.5 else ("cross_entropy", int(rng.integers(2, 5)))
    momentum = float(rng.choice([0.0, 0.0, 0.3, 0.9]))
    nesterov = momentum > 0 and rng.random() < 0.4
    training = {
        "loss": loss,
        "epochs": epochs,
        "lr": float(10 ** rng.uniform(-2, 0.5)),
        "clip": float(rng.choice([0.05, 0.1, 0.3, 1 / 3, 1.0])),
        "momentum": momentum,
        "nesterov": nesterov,
        "dampening": float(rng.choice([0.0, 0.4])) if momentum and not nesterov else 0.0,
        "weight_decay": float(rng.choice([0.0, 0.0, 0.1, 0.5])),
        "decay": float(rng.choice([0.0, 0.0, 0.5])),
        "lr_min": float(rng.choice([0.0, 0.02])),
        "product": str(rng.choice(["exact", "exact", "exact", "rump"])),
        "batch": {"count": count, "normalizer": float(rng.choice([4.0, 7.3, setting.case.n / count]))},
    }
    case = replace(
        setting.case,
        hidden=tuple(int(w) for w in rng.integers(2, 6, size=hidden)),
        classes=classes,
        dyadic=bool(rng.random() < 0.15),
        zero=bool(hidden == 0 and rng.random() < 0.2),
        noise=0.3 if rng.random() < 0.1 else 0.0,
        training=training,
    )
    if setting.relation == "paper_privacy" and rng.random() < 0.7:
        case = replace(case, public=0.0)
    ks = DENSE if rng.random() < 0.75 else ((0, 2, 5), (1, 3), (0, 1, 4))[rng.integers(3)]
    return replace(setting, case=case, ks=ks, dtype=str(rng.choice(["float64", "float64", "float32"])))


def _linear_setting(rng: np.random.Generator, setting: Setting) -> Setting:
    """Learning rates up to the limit that the closed form allows."""
    case, erm = setting.case, setting.kind == "erm" or (setting.kind == "votes of heads" and rng.random() < 0.25)
    softmax, classes = rng.random() < 0.3, int(rng.choice([2, 2, 3, 4]))
    count, epochs = (1 if erm else int(rng.integers(1, 4))), int(rng.integers(1, 6))
    n_max = (case.n + 8) * case.unit_rows
    normalizer = float(rng.choice([n_max / 1.1, n_max / 2.5, case.n / setting.members / count]))
    weight_decay = float(rng.choice([0.05, 0.3, 1.0])) if erm else float(rng.choice([0.0, 0.0, 0.2]))
    limit = 2 / (2 * weight_decay + (0.5 if softmax else 0.25) * n_max / normalizer)
    features = _features(rng, case)
    case = replace(
        case,
        classes=classes,
        public=0.4 if features.public == "train" else case.public,
        training={
            "loss": "cross_entropy" if softmax else "binary_cross_entropy",
            "epochs": epochs,
            "lr": 0.1 if erm else limit * float(rng.choice([0.999, 0.5, 0.1])),
            "clip": 1.0 if softmax else float(rng.choice([0.02, 0.3, 0.5, 1.0])),
            "decay": 0.0 if erm else float(rng.choice([0.0, 0.4])),
            "weight_decay": weight_decay,
            "batch": {"count": count, "normalizer": normalizer, "n_max": n_max},
        },
    )
    average = int(rng.integers(2, 1 + max(2, count * epochs))) if rng.random() < 0.25 else 1
    certificate = (
        ErmConfig(features=features, tolerance=1e-7) if erm else StabilityConfig(features=features, average=average)
    )
    content = setting.content and not case.public
    dtype = "float64" if features.map == "fourier" else str(rng.choice(["float64", "float64", "float32"]))
    return replace(setting, case=case, certificate=certificate, content=content, dtype=dtype)


def _features(rng: np.random.Generator, case: Case) -> FeaturesConfig:
    name = str(rng.choice(["none", "none", "relu", "fourier"]))
    whiten = float(rng.choice([0.0, 0.0, 0.5, 1.0]))
    public = None if not whiten else "train" if rng.random() < 0.4 else "test"
    radius = None if rng.random() < 0.7 else 2.0
    count = None if name == "none" else 6
    ridge = float(rng.choice([1e-3, 1e-6, 0.0]))  # fewer public rows than features leave the rest to the ridge alone
    return FeaturesConfig(name, count, whiten=whiten, public=public, ridge=ridge, radius=radius)  # type: ignore[arg-type]


# -- training ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Training records, and the test rows that public features may look at."""

    records: Records
    test: Records

    def shuffled(self, rng: np.random.Generator) -> "Data":
        """The same rows in another order."""
        return Data(*(part.take(rng.permutation(len(part))) for part in (self.records, self.test)))


@dataclass(frozen=True)
class Fitted:
    """What training made: one member, or several that vote.

    Attributes:
        ks: the values of k it has certificates for.
        maps: each member's public features; None for boxes.
    """

    setting: Setting
    ks: tuple[int, ...]
    members: tuple[Trained | LinearTrained, ...]
    maps: tuple[FeatureMap | None, ...]

    def certify(self, x: np.ndarray) -> Certificates:
        """Labels and distances of queries [n, width]."""
        each = [self._certify(member, features, x) for member, features in zip(self.members, self.maps, strict=True)]
        return each[0] if self.setting.members == 1 else vote(each, self.setting.case.classes)

    def _certify(self, member: Trained | LinearTrained, features: FeatureMap | None, x: np.ndarray) -> Certificates:
        setting = self.setting
        if isinstance(member, Trained):
            return certify_boxes(setting.case, member, x, setting.relation, setting.dtype)
        phi = features(x, setting.dtype)  # type: ignore[misc]
        return certify_linear(member.weight, member.loss, member.sensitivity, phi, setting.relation, self.ks)  # type: ignore[arg-type]

    def lead(self, x: np.ndarray, label: int) -> float:
        """By how much the members, on average, prefer ``label`` for the one query [1, width]."""
        return float(np.mean([self._lead(m, f, x, label) for m, f in zip(self.members, self.maps, strict=True)]))

    def _lead(self, member: Trained | LinearTrained, features: FeatureMap | None, x: np.ndarray, label: int) -> float:
        case, dtype = self.setting.case, self.setting.dtype
        if isinstance(member, Trained):
            network = Network.of(case.head(dtype), case.config(dtype).loss, case.classes)
            logits = network.logits(torch.from_numpy(x).to(getattr(torch, dtype)), member.nominal).numpy()
        else:
            logits = logits_of(member.weight, features(x, dtype))  # type: ignore[misc]
        margins = signed_margins(logits)
        return float(margins[label, 0] if len(margins) > 1 else margins[0, 0] * (1 if label else -1))


def fit(setting: Setting, data: Data, ks: tuple[int, ...], seed: int) -> Fitted:
    """Train as the commands do; ``seed`` draws kernels and fragments, which must not matter."""
    rng = np.random.default_rng(seed)

    def member(
        records: Records, size: float | None, compute: ComputeConfig
    ) -> tuple[Trained | LinearTrained, FeatureMap | None]:
        if setting.boxes:
            return run(setting.case, records, setting.relation, ks, setting.dtype, rng), None
        return _fit_linear(setting, Data(records, data.test))

    if setting.members == 1:
        pairs = [member(data.records, None, ComputeConfig())]
    else:
        pairs = train_members(member, data.records, None, EnsembleConfig(setting.members), ComputeConfig(threads=1))
    members, maps = zip(*pairs, strict=True)
    return Fitted(setting, ks, members, maps)


def _fit_linear(setting: Setting, data: Data) -> tuple[LinearTrained, FeatureMap]:
    case, certificate, records = setting.case, setting.certificate, data.records
    assert not isinstance(certificate, BoxConfig)
    classes = tuple(str(c) for c in range(case.classes))
    known = Fact(True, "")
    dataset = Dataset("drawn", classes, records, data.test, None, {}, known, known, shard=True)
    features = FeatureMap.of(certificate.features, dataset)
    examples = Examples(features(records.features, setting.dtype), records.labels, records.units)
    relation = RelationConfig(name=setting.relation, unit_rows=case.unit_rows)  # type: ignore[arg-type]
    common = (examples, case.classes, None, case.config(setting.dtype), relation, features.slack)
    if isinstance(certificate, ErmConfig):
        return train_erm(*common, certificate.tolerance), features
    return train_linear(*common, certificate.average), features


# -- edits ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A query whose label an attack is after."""

    query: np.ndarray
    label: int
    distance: int


@dataclass(frozen=True)
class Neighbour:
    """An edited dataset, at most ``distance`` away, and how it came about."""

    data: Data
    distance: int = 0
    story: tuple[str, ...] = ()


class Editor:
    """Makes neighbours of ``setting``, one step of its relation at a time."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        self.setting, self.rng, self.made = setting, rng, 0
        training = setting.case.config()
        plan = BatchPlan.of(training.batch, training.epochs, None, setting.case.n)
        self.plan = replace(plan, n_max=2**31)  # a probe of many names is no batch
        rates = [learning_rate(training, step) for step in range(plan.steps)]
        kept = np.array([1 - rate * training.weight_decay for rate in rates])
        self.weight = np.array([rate * kept[step + 1 :].prod() for step, rate in enumerate(rates)])

    def step(self, of: Neighbour, target: Target) -> Neighbour:
        """One k further: what the relation counts as one."""
        records, relation = of.data.records, self.setting.relation
        gone, come = True, not relation.startswith("remove") and relation != "paper_unlearning"
        if relation == "add_remove":
            gone = self.rng.random() < 0.4
            come = not gone
        if relation in ("substitute", "paper_privacy"):  # one side alone is within one k too (training/relations.py)
            gone, come = ((True, True), (True, True), (True, True), (True, False), (False, True))[self.rng.integers(5)]
        leaving, why = self._leaving(records, target) if gone else (None, "")
        kept = records if leaving is None else records.take(records.units != leaving)
        story = [f"less {why}"] if leaving is not None else []
        if come:
            newcomer, what = self._newcomer(records, leaving, target)
            kept = concatenate(kept, newcomer)
            story.append(f"plus {what}")
        data = Data(self.named(kept), of.data.test).shuffled(self.rng)
        return Neighbour(data, of.distance + 1, (*of.story, " ".join(story) or "nobody"))

    def named(self, records: Records) -> Records:
        """The records under the ids that their content gives them, where the setting has it so."""
        if not self.setting.content:
            return records
        ids = content_ids(records.features, records.labels)
        return replace(records, ids=ids, units=ids.copy())

    def _leaving(self, records: Records, target: Target) -> tuple[str | None, str]:
        """A private unit: any, the one that speaks most for the target's label, or the one that weighs most."""
        units = np.unique(records.units[~records.public])
        if not len(units):
            return None, ""
        way = str(self.rng.choice(["any", "best", "heaviest"]))
        if way == "any":
            return str(self.rng.choice(units)), "any"
        if way == "heaviest":
            return str(units[self._reach(units).argmax()]), way
        lengths = np.maximum(np.abs(records.features).max(axis=1), 1e-300)
        along = (records.features / lengths[:, None]) @ target.query
        speaks = np.where(records.labels == target.label, along, -along)
        return str(max(units, key=lambda unit: speaks[records.units == unit].sum())), way

    def _newcomer(self, records: Records, leaving: str | None, target: Target) -> tuple[Records, str]:
        """A unit of new rows, under a name that the keyed hash sends where it hurts."""
        case, rng = self.setting.case, self.rng
        self.made += 1
        prefix = f"n{self.made}-"
        way = str(rng.choice(["against", "against", "against", "saturating", "mixed", "copy", "zero", "huge"]))
        if way in ("saturating", "mixed"):
            rows = draw(rng, replace(case, public=0.0), 1, prefix, way)
        else:
            features, label = self._rows(way, records, target)
            count = case.unit_rows if way == "against" else int(rng.integers(1, case.unit_rows + 1))
            features = np.tile(features, (count, 1))
            rows = make_records(features, [label] * count, [f"{prefix}0"] * count, prefix=f"{prefix}row")
        return self._placed(rows, leaving, keep=way in ("copy", "zero"))

    def _rows(self, way: str, records: Records, target: Target) -> tuple[np.ndarray, int]:
        case, rng = self.setting.case, self.rng
        others = [c for c in range(case.classes) if c != target.label]
        if way == "copy" and len(records):
            row = int(rng.integers(len(records)))
            label = int(records.labels[row]) if rng.random() < 0.5 else int(rng.integers(case.classes))
            return records.features[row], label
        if way in ("copy", "zero"):
            return np.zeros(case.width), int(rng.integers(case.classes))
        if way == "huge":
            return rng.choice([-1.0, 1.0], case.width) * float(rng.choice([1e6, 1e15, 1e30])), int(rng.choice(others))
        direction = np.sign(target.query) if self.setting.boxes and rng.random() < 0.7 else target.query
        size = float(rng.choice([1.0, 30.0, 1e4]))
        if rng.random() < 0.3:  # from the other side: the same pull, were it not for the bias
            return -direction * size, target.label
        return direction * size, int(rng.choice(others))

    def _placed(self, rows: Records, leaving: str | None, keep: bool) -> tuple[Records, str]:
        """``rows`` under the best of several names: the leaver's own, elsewhere than its, or where steps weigh most.

        Content ids follow the content: it is varied in its last digits, unless it is to stay as it is.
        """
        rng, name = self.rng, str(rows.units[0])
        way = str(rng.choice(["any", "heaviest", *(["elsewhere", "elsewhere", "same"] if leaving is not None else [])]))
        if way == "same" and not self.setting.content:
            return replace(rows, units=np.full(len(rows), leaving)), "under the same name"
        tries = 1 if keep and self.setting.content else 24
        if self.setting.content:
            variants = [replace(rows, features=rows.features * (1 + i * 2.0**-40)) for i in range(tries)]
            names = np.array([content_ids(v.features, v.labels)[0] for v in variants])
        else:
            names = np.array([f"{name}.{i}" for i in range(tries)])
            variants = [replace(rows, units=np.full(len(rows), n)) for n in names]
        score = self._reach(names)
        if way == "any":
            score = np.arange(tries) == 0
        if way == "elsewhere":
            score = score / (1 + score.max()) + self._elsewhere(names, str(leaving))
        return variants[int(np.argmax(score))], f"one {way}"

    def _steps(self, names: np.ndarray) -> np.ndarray:
        """[steps, names] bool: who takes part in which step."""
        return np.array([np.isin(np.arange(len(names)), rows) for rows in self.plan.batches(names)])

    def _reach(self, names: np.ndarray) -> np.ndarray:
        """[names] how far a constant gradient of each would move the parameters."""
        reach: np.ndarray = self.weight @ self._steps(names)
        return reach

    def _elsewhere(self, names: np.ndarray, leaving: str) -> np.ndarray:
        """[names] other shards, and shares of other batches, than the leaver's."""
        config = EnsembleConfig(self.setting.members)
        shard = shards(names, config) != shards(np.array([leaving]), config)
        batch: np.ndarray = (self._steps(names) != self._steps(np.array([leaving]))).mean(axis=0)
        return shard + batch


# -- the assault ---------------------------------------------------------------------------------------------------------


def assault(setting: Setting, seed: int, retrainings: int = 24, records: Records | None = None) -> Report:
    """Train ``setting`` once and attack it with about ``retrainings`` neighbours.

    Args:
        records: the data; None: drawn.
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
    while report.retrainings + report.stopped < retrainings:
        for move in (attack.single, attack.walk, attack.single, attack.hunt):
            move()
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
    editor: Editor
    base: Neighbour
    whole: Fitted
    queries: np.ndarray
    known: Certificates
    seed: int

    @classmethod
    def start(cls, setting: Setting, rng: np.random.Generator, report: Report, records: Records | None) -> "Attack":
        """Train, and find the queries."""
        editor, case, seed = Editor(setting, rng), setting.case, int(rng.integers(2**31))
        records = editor.named(case.data(rng) if records is None else records)
        test = draw(rng, replace(case, unit_rows=1, public=0.0), int(rng.choice([3, 5, 30])), "t")
        base = Neighbour(Data(records, test))
        whole = fit(setting, base.data, setting.ks, seed)
        queries = np.concatenate([rng.normal(size=(16, case.width)), cls.edges(setting, rng, whole)])
        return cls(setting, rng, report, editor, base, whole, queries, whole.certify(queries), seed)

    @staticmethod
    def edges(setting: Setting, rng: np.random.Generator, fitted: Fitted) -> np.ndarray:
        """Queries a rounding away from where a label or a distance changes."""
        lines = 8 if setting.boxes else 16
        return thresholds(rng, fitted.certify, lambda c: (c.prediction, c.stable_distance), lines, setting.case.width)

    # -- moves ---------------------------------------------------------------------------------------------------------

    def reorder(self) -> None:
        """The same rows in another order, under the same kernel and fragments."""
        other = Neighbour(self.base.data.shuffled(self.rng), 0, ("another order",))
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
        """One edit, with every certificate of the neighbour: distances and boxes are compared too."""
        other = self.editor.step(self.base, self._target(1))
        there = self._train(other, self.setting.ks)
        if there is None:
            return
        self._hold(there, other)
        self._nested(there, other)
        if self.setting.nests:
            more = self.edges(self.setting, self.rng, there) if not self.setting.boxes or self.rng.random() < 0.25 else None
            self._compare(there, other, self.queries if more is None else np.concatenate([self.queries, more]))

    def walk(self) -> None:
        """A mixed sequence of edits, each after a target of its own."""
        other = self.base
        for _ in range(int(self.rng.integers(1, self.setting.farthest + 1))):
            other = self.editor.step(other, self._target(int(self.rng.integers(0, 3))))
        there = self._train(other, (0,))
        if there is not None:
            self._hold(there, other)

    def hunt(self, tries: int = 3) -> None:
        """Greedy: after one query, step by step the edit of several that costs its label most."""
        depth = int(self.rng.integers(1, min(3, self.setting.farthest) + 1))
        target, best = self._target(depth), self.base
        for _ in range(depth):
            found: list[tuple[float, int, Neighbour]] = []
            for index in range(tries):
                other = self.editor.step(best, target)
                there = self._train(other, (0,))
                if there is not None:
                    self._hold(there, other)
                    found.append((there.lead(target.query[None], target.label), index, other))
            if not found:
                return
            best = min(found)[2]

    def _target(self, distance: int) -> Target:
        """One of the queries that are barely certified at ``distance``, if there are any."""
        reach = self.known.stable_distance
        among = np.flatnonzero(reach >= distance) if (reach >= distance).any() else np.arange(len(reach))
        barely = among[np.argsort(reach[among], kind="stable")[:8]]
        row = int(self.rng.choice(barely))
        return Target(self.queries[row], int(self.known.prediction[row]), int(reach[row]))

    def _train(self, other: Neighbour, ks: tuple[int, ...], seed: int | None = None) -> Fitted | None:
        try:
            there = fit(self.setting, other.data, ks, int(self.rng.integers(2**31)) if seed is None else seed)
        except EXPECTED:
            self.report.stopped += 1
            return None
        except Exception as error:
            self._found("crash", 1, other, repr(error))
            self.report.stopped += 1
            return None
        self.report.retrainings += 1
        return there

    # -- claims --------------------------------------------------------------------------------------------------------

    def _found(self, claim: str, count: int, other: Neighbour, detail: str = "") -> None:
        if count:
            self.report.escapes.append(Escape(claim, self.setting, other.distance, other.story, count, detail))

    def _hold(self, there: Fitted, other: Neighbour) -> None:
        self._contained(there, other)
        self._labels(there, other)

    def _contained(self, there: Fitted, other: Neighbour) -> None:
        for mine, yours in zip(self.whole.members, there.members, strict=True):
            if isinstance(mine, Trained) and isinstance(yours, Trained):
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
        if not (self.setting.boxes and self.setting.dense and self.setting.case.config().product == "exact"):
            return
        for mine, yours in zip(self.whole.members, there.members, strict=True):
            assert isinstance(mine, Trained)
            assert isinstance(yours, Trained)
            self._found("nested", self._ends(mine, yours), other, "D' in D")
            if self.setting.rule.symmetric:
                self._found("nested", self._ends(yours, mine), other, "D in D'")

    def _ends(self, outer: Trained, inner: Trained) -> int:
        nobody = Certificates(outer.ks, "add_remove", np.zeros(0, dtype=np.int64), np.zeros((len(outer.ks), 0), dtype=bool))
        self.report.ends += 2 * sum(int(end[1:].numel()) for end in outer.lower.values())
        return nested((outer, nobody), (inner, nobody)).outside

    def _compare(self, there: Fitted, other: Neighbour, queries: np.ndarray) -> None:
        (label, near), (turned, far) = (self._evidence(fitted.certify(queries)) for fitted in (self.whole, there))
        self.report.distances += len(near)
        self.report.apart = max(self.report.apart, int(abs(near - far).max(initial=0)))
        self._found("distances", int((abs(near - far) > 1).sum()), other, f"up to {abs(near - far).max(initial=0)} apart")
        early = (label != turned) & ((near > 0) | (far > 0))
        self._found("distances", int(early.sum()), other, "a label turned before its distance was 0")

    def _evidence(self, known: Certificates) -> tuple[np.ndarray, np.ndarray]:
        if self.setting.dense:
            return known.prediction, known.stable_distance
        steps = known.steps if isinstance(known, VoteCertificates) else grid_index(known.ks, known.certified)
        return known.prediction, steps


def _outside(mine: Trained, yours: Trained, distance: int) -> tuple[int, float]:
    """(parameters outside the box for ``distance``, the farthest one's share of the way to its end)."""
    index = next(i for i, k in enumerate(mine.ks) if k >= distance)
    outside, share = 0, 0.0
    for name, value in yours.nominal.items():
        lower, point, upper = mine.lower[name][index], mine.nominal[name], mine.upper[name][index]
        outside += int((~((lower <= value) & (value <= upper))).sum())
        moved = (value - point).double()
        room = torch.where(moved > 0, upper - point, point - lower).double()
        share = max(share, float((moved.abs() / room.clamp(min=1e-300)).max()))
    return outside, share


def _beyond(mine: LinearTrained, yours: LinearTrained, distance: int) -> tuple[int, float]:
    """(1 if the head moved farther than its bound, its share of it)."""
    bound = distance * mine.sensitivity.per_k or mine.sensitivity.rounding
    moved = moved_by(mine, yours)
    return int(not moved <= bound), moved / bound


def _bits(mine: tuple[Trained | LinearTrained, ...], yours: tuple[Trained | LinearTrained, ...]) -> int:
    """Numbers that are not the same, bit for bit."""
    return sum(int((a != b).sum()) for a, b in zip(_numbers(mine), _numbers(yours), strict=True))


def _numbers(members: tuple[Trained | LinearTrained, ...]) -> Iterator[torch.Tensor]:
    for member in members:
        if isinstance(member, LinearTrained):
            yield member.weight
        else:
            for part in (member.nominal, member.lower, member.upper):
                yield from part.values()


def trial(seed: int, index: int, retrainings: int = 24) -> tuple[tuple[str, str], Report]:
    """The trial number ``index`` of a run: (relation, kind), and what was seen. Each depends on (seed, index) alone."""
    relation, kind = CELLS[index % len(CELLS)]
    rng = np.random.default_rng([seed, index])
    return (relation, kind), assault(draw_setting(rng, relation, kind), int(rng.integers(2**31)), retrainings)


def table(reports: Mapping[tuple[str, str], Report]) -> str:
    """One line for each relation and kind, and one for all."""
    whole = Report()
    for report in reports.values():
        whole += report
    columns = ("configurations", "refused", "retrainings", "stopped", "labels", "distances", "ends", "escapes", "apart")
    lines = [f"{'relation':<17}{'kind':<16}" + "".join(f"{name:>15}" for name in (*columns, "deviation"))]
    for (relation, kind), report in [*reports.items(), (("all", ""), whole)]:
        numbers = (getattr(report, name) for name in columns)
        shown = [str(len(n) if isinstance(n, list) else n) for n in numbers] + [f"{report.deviation:.4f}"]
        lines.append(f"{relation:<17}{kind:<16}" + "".join(f"{number:>15}" for number in shown))
    lines.append(f"reorderings {whole.reorders}, of which single boxes whose last bits moved {whole.rounded}")
    return "\n".join(lines)
