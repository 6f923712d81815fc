"""What the adversary attacks: configurations drawn at random, trained and certified as the
commands do it.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from checks import Case, certificates as certify_boxes, run

from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.certificates.box import Certificates
from agt.certificates.stability import certify_linear
from agt.data.dataset import Dataset
from agt.data.ids import content_ids
from agt.data.records import Records
from agt.data.target import ClassTarget
from agt.facts import evidence, proved
from agt.models.box import BoxKind
from agt.models.ensemble import vote_certificates
from agt.models.erm import ErmKind
from agt.models.features import FeatureMap
from agt.models.kind import CertificateKind
from agt.models.stability import StabilityKind
from agt.numeric import logits_of, signed_margins
from agt.relations import RELATIONS
from agt.relations.relation import Relation
from agt.settings import FeaturesConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.ensemble import train_members
from agt.training.erm import train_erm
from agt.training.linear import LinearTrained, train_linear
from agt.training.settings import EnsembleConfig
from agt.training.setup import TrainingSetup
from agt_audit.edited_records import EditedRecords
from agt_audit.editor import NAME_CANDIDATES, AttackSettings, Editor, TargetQuery, weights

ALONE = ("linear box", "one hidden", "two hidden", "convolutions", "stability", "erm")
KINDS = (*ALONE, "votes of boxes", "votes of heads")
DENSE = tuple(range(5))


Trained = Box | LinearTrained
Member = tuple[Trained, FeatureMap | None]


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
    certificate: CertificateKind = field(default_factory=BoxKind)
    members: int = 1
    content: bool = False

    @property
    def boxes(self) -> bool:
        """Parameters are bounded one by one."""
        return isinstance(self.certificate, BoxKind)

    @property
    def rule(self) -> Relation:
        """The relation's rule."""
        return RELATIONS[self.relation]

    @property
    def dense(self) -> bool:
        """Distances are 1-Lipschitz, not just indices in the grid."""
        return not self.boxes or self.ks == tuple(range(len(self.ks)))

    @property
    def nests(self) -> bool:
        """The certificates could carry a privacy guarantee but for the grid: exact products, a
        symmetric relation.
        """
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
    hidden = {"linear box": 0, "one hidden": 1, "two hidden": 2}.get(
        setting.kind, int(rng.integers(0, 2))
    )
    count, epochs = (
        (1, 1) if rng.random() < 0.3 else (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    )
    loss, classes = (
        ("binary_cross_entropy", 2)
        if rng.random() < 0.5
        else ("cross_entropy", int(rng.integers(2, 5)))
    )
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
        "batch": {
            "count": count,
            "normalizer": float(rng.choice([4.0, 7.3, setting.case.n / count])),
        },
    }
    case = replace(
        setting.case,
        hidden=tuple(int(w) for w in rng.integers(2, 6, size=hidden)),
        channels=int(rng.integers(1, 5)) // 2 * 2 or 1 if setting.kind == "convolutions" else 0,
        activation=str(rng.choice(["relu", "tanh"])) if setting.kind == "convolutions" else "relu",
        classes=classes,
        dyadic=bool(rng.random() < 0.15),
        zero=bool(hidden == 0 and rng.random() < 0.2),
        noise=0.3 if rng.random() < 0.1 else 0.0,
        training=training,
    )
    if setting.relation == "paper_privacy" and rng.random() < 0.7:
        case = replace(case, public=0.0)
    ks = DENSE if rng.random() < 0.75 else ((0, 2, 5), (1, 3), (0, 1, 4))[rng.integers(3)]
    return replace(
        setting, case=case, ks=ks, dtype=str(rng.choice(["float64", "float64", "float32"]))
    )


def _linear_setting(rng: np.random.Generator, setting: Setting) -> Setting:
    """Learning rates up to the limit that the closed form allows."""
    case = setting.case
    erm = setting.kind == "erm" or (setting.kind == "votes of heads" and rng.random() < 0.25)
    softmax = rng.random() < 0.3
    classes = int(rng.choice([2, 2, 3, 4]))
    count = 1 if erm else int(rng.integers(1, 4))
    epochs = int(rng.integers(1, 6))
    n_max = (case.n + 8) * case.unit_rows
    normalizer = float(rng.choice([n_max / 1.1, n_max / 2.5, case.n / setting.members / count]))
    weight_decay = (
        float(rng.choice([0.05, 0.3, 1.0])) if erm else float(rng.choice([0.0, 0.0, 0.2]))
    )
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
        ErmKind(features=features, tolerance=1e-7)
        if erm
        else StabilityKind(features=features, average=average)
    )
    content = setting.content and not case.public
    dtype = str(rng.choice(["float64", "float64", "float32"]))
    return replace(setting, case=case, certificate=certificate, content=content, dtype=dtype)


def _features(rng: np.random.Generator, case: Case) -> FeaturesConfig:
    name = str(rng.choice(["none", "relu"]))
    whiten = float(rng.choice([0.0, 0.0, 0.5, 1.0]))
    public = None if not whiten else "train" if rng.random() < 0.4 else "test"
    radius = None if rng.random() < 0.7 else 2.0
    count = None if name == "none" else 6
    # fewer public rows than features leave the rest to the ridge alone
    ridge = float(rng.choice([1e-3, 1e-6, 0.0]))
    return FeaturesConfig(name, count, whiten=whiten, public=public, ridge=ridge, radius=radius)  # type: ignore[arg-type]


# -- training


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
    members: tuple[Trained, ...]
    maps: tuple[FeatureMap | None, ...]

    def certify(self, x: np.ndarray) -> Certificates:
        """Labels and distances of queries [n, width]."""
        each = [
            self._certify(member, features, x)
            for member, features in zip(self.members, self.maps, strict=True)
        ]
        if self.setting.members == 1:
            return each[0]
        single = [
            self._certify(self._by_edit(m), f, x)
            for m, f in zip(self.members, self.maps, strict=True)
        ]
        return vote_certificates(each, single, self.setting.case.classes)

    def _by_edit(self, member: Trained) -> Trained:
        """A linear head that counts single edits, as ``LinearModel.counting_single_edits``."""
        if not isinstance(member, LinearTrained):
            return member
        return replace(
            member,
            sensitivity=replace(member.sensitivity, records_per_edit=self.setting.case.unit_rows),
        )

    def _certify(self, member: Trained, features: FeatureMap | None, x: np.ndarray) -> Certificates:
        setting = self.setting
        if isinstance(member, Box):
            return certify_boxes(setting.case, member, x, setting.relation, setting.dtype)
        phi = features(x, setting.dtype)  # type: ignore[misc]
        return certify_linear(member, phi, setting.relation, self.ks)  # type: ignore[arg-type]

    def lead(self, x: np.ndarray, label: int) -> float:
        """By how much the members, on average, prefer ``label`` for the one query [1, width]."""
        return float(
            np.mean(
                [self._lead(m, f, x, label) for m, f in zip(self.members, self.maps, strict=True)]
            )
        )

    def _lead(
        self, member: Trained, features: FeatureMap | None, x: np.ndarray, label: int
    ) -> float:
        case = self.setting.case
        dtype = self.setting.dtype
        if isinstance(member, Box):
            network = Network.from_head(case.head(dtype), case.config(dtype).loss, case.classes)
            logits = network.logits(
                torch.from_numpy(x).to(getattr(torch, dtype)), member.nominal
            ).numpy()
        else:
            logits = logits_of(member.weight, features(x, dtype))  # type: ignore[misc]
        margins = signed_margins(logits)
        return float(
            margins[label, 0] if len(margins) > 1 else margins[0, 0] * (1 if label else -1)
        )


def fit(setting: Setting, data: Data, ks: tuple[int, ...], seed: int) -> Fitted:
    """Train as the commands do; ``seed`` draws kernels and fragments, which must not matter."""
    rng = np.random.default_rng(seed)

    def member(
        setup: TrainingSetup, records: Records, checkpoints: Checkpoints = NO_CHECKPOINTS
    ) -> Member:
        if setting.boxes:
            return run(setting.case, records, setting.relation, ks, setting.dtype, rng), None
        return _fit_closed(setting, Data(records, data.test))

    setup = setting.case.setup(setting.relation, threads=1)
    if setting.members == 1:
        pairs = [member(setup, data.records)]
    else:
        pairs = train_members(member, setup, data.records, EnsembleConfig(setting.members))
    members, maps = zip(*pairs, strict=True)
    return Fitted(setting, ks, members, maps)


def _fit_closed(setting: Setting, data: Data) -> tuple[LinearTrained, FeatureMap]:
    case = setting.case
    certificate = setting.certificate
    records = data.records
    assert not isinstance(certificate, BoxKind)
    target = ClassTarget(tuple(str(c) for c in range(case.classes)))
    known = evidence(proved("own_words", text="made for a test"))
    dataset = Dataset(
        "drawn", target, records, data.test, None, {}, known, known, may_be_empty=True
    )
    features = FeatureMap.from_dataset(certificate.features, dataset)
    examples = replace(records, features=features(records.features, setting.dtype))
    setup = case.setup(setting.relation, dtype=setting.dtype)
    if isinstance(certificate, ErmKind):
        return train_erm(setup, examples, certificate.tolerance), features
    return train_linear(setup, examples, certificate.average), features


# -- neighbours built to hurt, as ``agt audit certificate`` builds them


@dataclass(frozen=True)
class Neighbour:
    """An edited dataset, as it is trained on."""

    data: Data
    edited: EditedRecords

    @classmethod
    def unedited(cls, data: Data) -> "Neighbour":
        """The data itself."""
        return cls(data, EditedRecords(data.records))

    @property
    def distance(self) -> int:
        """Within how many k."""
        return self.edited.distance

    @property
    def story(self) -> tuple[str, ...]:
        """How it came about."""
        return self.edited.edits


class DrawnEditor(Editor):
    """Makes neighbours of ``setting``, in another order of rows; of identical content, numbered,
    where it names so.
    """

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        training = setting.case.config()
        case = setting.case
        plan = BatchPlan.from_settings(training.batch, training.epochs, None, case.n)
        wide = np.ones(case.width)
        ensemble = EnsembleConfig(setting.members)
        weight = weights(training, plan)
        super().__init__(
            AttackSettings(
                setting.relation,
                case.unit_rows,
                case.classes,
                plan,
                weight,
                ensemble,
                -wide,
                wide,
                setting.boxes,
            ),
            rng,
        )
        self.setting = setting

    def further(self, of: Neighbour, target: TargetQuery) -> Neighbour:
        """One k further."""
        edited = self.step(of.edited, target)
        return Neighbour(Data(self.named(edited.records), of.data.test).shuffled(self.rng), edited)

    def named(self, records: Records) -> Records:
        """The records under the ids that their content gives them, where the setting has it so."""
        if not self.setting.content:
            return records
        ids = content_ids(records.features, records.labels)
        return replace(records, ids=ids, units=ids.copy())

    def _name_candidates(
        self, rows: Records, name: str | None, keep_features: bool
    ) -> list[Records]:
        """Content ids follow the content: it is varied in its last digits, unless it is to stay
        as it is.
        """
        if not self.setting.content:
            return super()._name_candidates(rows, name, keep_features)
        tries = 1 if keep_features else NAME_CANDIDATES
        variants = [
            replace(rows, features=rows.features * (1 + i * 2.0**-40)) for i in range(tries)
        ]
        return [replace(each, units=content_ids(each.features, each.labels)) for each in variants]
