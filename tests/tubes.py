"""Curvature tubes on tiny data: trained as the library trains them, and once more in plain numpy, from the formulas."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from scipy.special import expit, ndtr, softmax
from synthetic import make_recipe, make_records, make_training

from agt.certificates.stability import ClosedForm
from agt.data.dataset import Records
from agt.models.features import FeatureMap
from agt.relations import rows_at_stake
from agt.settings import FeaturesConfig, RelationConfig, TrainingConfig
from agt.training.ensemble import EnsembleConfig
from agt.training.linear import LinearLoss, rows_moved
from agt.tube.network import SMOOTH, TubeNetwork, TubeSetting, start_norm
from agt.tube.training import TubeTrained, certify_tube, train_tube
from agt_audit.neighbours import Editor, Terms, weights

WIDTH = 3
KS = tuple(range(5))
PLAIN = {  # s and s', written down once more
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "softplus": (lambda z: np.logaddexp(0, z), expit),
    "gelu": (lambda z: z * ndtr(z), lambda z: ndtr(z) + z * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)),
}


@dataclass(frozen=True)
class TubeCase:
    """One way to train ``n`` units; ``training``: beside the defaults; ``near``: the share of a radius that edits reach."""

    name: str
    activation: str = "tanh"
    classes: int = 2
    relation: str = "add_remove"
    n: int = 20
    unit_rows: int = 1
    hidden: int = 6
    length: float = 1.0
    exact: bool = False
    near: float = 0.4
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    training: dict = field(default_factory=dict)

    @cached_property
    def config(self) -> TrainingConfig:
        loss, clip = ("binary_cross_entropy", 0.5) if self.classes == 2 else ("cross_entropy", 1.0)
        batch = {"normalizer": float(self.n * self.unit_rows), "n_max": 8 * self.n, **self.training.get("batch", {})}
        return make_training(**{"loss": loss, "clip": clip, "epochs": 6, "lr": 1.0, **self.training, "batch": batch})

    @cached_property
    def features_map(self) -> FeatureMap:
        bare, draw = FeatureMap(self.features, WIDTH), np.random.default_rng(5)
        matrices = {n: np.rint(draw.normal(size=shape) * 2**24) for n, shape in bare.shapes.items()}
        return bare.with_matrices(matrices)

    @cached_property
    def network(self) -> TubeNetwork:
        loss = LinearLoss.of(self.config, self.classes)
        return TubeNetwork.of(loss, SMOOTH[self.activation], self.hidden, self.length, 0)

    @cached_property
    def initial(self) -> torch.Tensor:
        return self.network.initial(self.features_map.outputs, 1.0, 0)

    @cached_property
    def setting(self) -> TubeSetting:
        network, width = self.network, self.features_map.outputs
        plan = make_recipe(self.config, classes=self.classes).plan(self.n)
        relation = RelationConfig(name=self.relation, unit_rows=self.unit_rows)  # type: ignore[arg-type]
        return TubeSetting(
            network.loss, network.activation, network.outputs.numpy(), start_norm(self.initial), width, self.config, plan,
            relation, self.features_map.slack,
        )  # fmt: skip

    @cached_property
    def counts(self) -> np.ndarray:
        return np.array(rows_at_stake(KS, rows_moved(self.setting.relation)))

    def phi(self, x: np.ndarray) -> np.ndarray:
        return self.features_map(x, self.config.dtype)

    def train(self, records: Records) -> TubeTrained:
        """As the library does it."""
        seen = replace(records, features=self.phi(records.features))
        return train_tube(self.setting, self.network, self.initial, seen, self.counts, self.exact)

    def certify(self, trained: TubeTrained, queries: np.ndarray) -> ClosedForm:
        """Labels and distances of raw queries."""
        relation = self.setting.relation.name
        return certify_tube(self.setting, self.network, trained, self.counts, self.phi(queries), relation, KS)

    def retrain(self, records: Records) -> np.ndarray:
        """[m, d] the weights of the same run, from the formulas."""
        weight, output = self.initial.numpy().copy(), self.network.outputs.numpy()
        phi, config = self.phi(records.features).astype(float), self.config
        for step, rows in enumerate(self.setting.plan.batches(records.units)):
            lr = max(config.lr / (1 + config.decay * step), config.lr_min)
            gradient = self.gradients(weight, phi[rows], records.labels[rows]).sum(axis=0) / self.setting.plan.normalizer
            weight = weight - lr * config.weight_decay * weight - lr * gradient
        assert len(output) == (1 if self.classes == 2 else self.classes)
        return weight

    def gradients(self, weight: np.ndarray, phi: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """[n, m, d] single records' gradients."""
        (value, slope), output = PLAIN[self.activation], self.network.outputs.numpy()
        z = phi @ weight.T
        f = value(z) @ output.T
        if self.classes == 2:
            q = np.clip(expit(f) - labels[:, None], -self.config.clip, self.config.clip)
        else:
            q = softmax(f, axis=1) - np.eye(self.classes)[labels]
        return ((q @ output) * slope(z))[:, :, None] * phi[:, None, :]

    def labels(self, weight: np.ndarray, queries: np.ndarray) -> np.ndarray:
        """The classes that weights give raw queries."""
        f = PLAIN[self.activation][0](self.phi(queries).astype(float) @ weight.T) @ self.network.outputs.numpy().T
        return (f[:, 0] > 0).astype(int) if self.classes == 2 else f.argmax(axis=1)

    def data(self, rng: np.random.Generator, prefix: str = "r", turned: bool = False) -> Records:
        """A class for each direction; a few records far out. ``turned``: most records carry another class's label."""
        rows = rng.integers(1, self.unit_rows + 1, size=self.n)
        x = rng.normal(size=(rows.sum(), WIDTH)) * rng.choice([1e-3, 1.0, 50.0], size=(rows.sum(), 1), p=[0.1, 0.7, 0.2])
        y = (np.abs(x[:, 0]) * 2).astype(int) % self.classes if self.classes > 2 else (x[:, 0] > 0).astype(int)
        y = np.where(rng.random(len(x)) < 0.85, (y + turned) % self.classes, rng.integers(0, self.classes, len(x)))
        return make_records(x, y, [f"{prefix}{u}" for u in np.repeat(np.arange(self.n), rows)], prefix=f"{prefix}row")

    def editor(self, rng: np.random.Generator) -> Editor:
        """Makes neighbours that hurt."""
        plan, wide = self.setting.plan, np.ones(WIDTH)
        weight, alone = weights(self.config, plan), EnsembleConfig(1)
        terms = Terms(self.relation, self.unit_rows, self.classes, plan, weight, alone, -wide, wide, False)
        return Editor(terms, rng)


BATCHES = {"batch": {"count": 3, "normalizer": 7.0, "n_max": 50}, "epochs": 3, "lr": 0.35}
CASES = (
    TubeCase("tanh"),
    TubeCase("tanh, exact", exact=True),
    TubeCase("softplus", "softplus", training={"lr": 2.0}),
    TubeCase("gelu, exact", "gelu", exact=True),
    TubeCase("clamped hard", training={"clip": 0.05, "lr": 3.0, "epochs": 12}),
    TubeCase("batches", training=BATCHES),
    TubeCase("batches, softplus, exact", "softplus", exact=True, training=BATCHES),
    TubeCase("decays", training={"weight_decay": 0.3, "decay": 0.3, "lr": 1.5, "lr_min": 0.3}),
    TubeCase("weights forgotten", training={"weight_decay": 1.0, "lr": 1.0}),
    TubeCase("batches decay, gelu", "gelu", training={**BATCHES, "weight_decay": 0.4, "decay": 0.1}),
    TubeCase("float32 features", training={"dtype": "float32"}),
    TubeCase("replaced", relation="substitute", training={"lr": 0.6}),
    TubeCase("replaced, batches", "softplus", relation="substitute", training=BATCHES),
    TubeCase("removed", relation="remove"),
    TubeCase("removed, batches, exact", relation="remove", exact=True, training=BATCHES),
    TubeCase("units of two rows", unit_rows=2),
    TubeCase("softmax", classes=3, n=400, hidden=32, near=0.15, training={"lr": 2.0}),
    TubeCase(
        "softmax of batches, gelu, exact",
        "gelu",
        4,
        n=400,
        hidden=32,
        exact=True,
        near=0.2,
        training={"batch": {"count": 2, "normalizer": 200.0, "n_max": 300}, "epochs": 3, "lr": 1.5},
    ),
    TubeCase("fourier", features=FeaturesConfig(map="fourier", count=8)),
    TubeCase("far apart", length=0.3, hidden=20, training={"lr": 8.0}),
)
