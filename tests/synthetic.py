"""Small synthetic training sets, heads and intervals that several tests share."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

from agt import relations
from agt.bounds.interval import Interval
from agt.data.records import Records
from agt.models.heads import HeadConfig
from agt.settings import BatchConfig, ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.setup import TrainingSetup

KERNELS = ("reference", "cpu")
RELATIONS = tuple(
    name for name, relation in relations.RELATIONS.items() if relation.edits_whole_records
)
"""Those of boxes whose edits move whole records."""
SYMMETRIC = tuple(name for name in RELATIONS if relations.RELATIONS[name].symmetric)


def ball(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records in the unit ball, half of them on its surface."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[::2] *= rng.random((len(x[::2]), 1))
    return x, rng.integers(0, 2, n)


def make_records(
    features: np.ndarray,
    labels: np.ndarray | Sequence[int],
    units: Sequence[str] | None = None,
    public: Sequence[bool] | None = None,
    prefix: str = "r",
) -> Records:
    """Records named ``<prefix>0``, ``<prefix>1``, ...; every record a private unit of its own
    unless told otherwise.
    """
    ids = np.array([f"{prefix}{i}" for i in range(len(features))], dtype=str)
    return Records(
        features=np.asarray(features),
        labels=np.asarray(labels, dtype=np.int64),
        ids=ids,
        units=ids.copy() if units is None else np.array(units, dtype=str),
        public=np.zeros(len(ids), dtype=bool) if public is None else np.array(public, dtype=bool),
    )


def make_training(**settings: object) -> TrainingConfig:
    """Two-class training with every constant declared; ``settings`` override."""
    batch = {"count": 1, "normalizer": 8.0, "n_max": 100_000, **settings.pop("batch", {})}  # type: ignore[dict-item]
    defaults = {
        "loss": "cross_entropy",
        "epochs": 1,
        "lr": 0.1,
        "clip": 0.1,
        "batch": BatchConfig(**batch),
    }
    return TrainingConfig(**{**defaults, **settings})  # type: ignore[arg-type]


def make_recipe(
    training: TrainingConfig,
    relation: str = "add_remove",
    ks: Sequence[int] = (0,),
    classes: int = 2,
    declared_size: float | None = None,
    unit_rows: int = 1,
    **compute: object,
) -> TrainingSetup:
    """``training`` under a relation, for these k; ``compute``: settings other than the defaults."""
    rule = RelationConfig(name=relation, unit_rows=unit_rows)  # type: ignore[arg-type]
    grid = KGridConfig(values=tuple(ks))
    return TrainingSetup(classes, training, rule, grid, ComputeConfig(**compute), declared_size)  # type: ignore[arg-type]


def make_head(
    training: TrainingConfig,
    width: int,
    classes: int,
    hidden: tuple[int, ...],
    activation: str = "relu",
) -> nn.Sequential:
    """A head with PyTorch's initialisation."""
    model = HeadConfig(hidden=hidden, activation=activation)  # type: ignore[arg-type]
    return model.build((width,), classes, training)


def random_interval(
    rng: np.random.Generator, *shape: int, radius: float = 0.5, dtype: str = "float64"
) -> Interval:
    """Signed intervals, a tenth of them points and a tenth with an end at exactly 0."""
    centre = rng.normal(size=shape)
    spread = radius * rng.random(shape)
    spread[rng.random(shape) < 0.1] = 0
    lower = centre - spread
    upper = centre + spread
    lower[(rng.random(shape) < 0.1) & (upper > 0)] = 0
    upper[(rng.random(shape) < 0.1) & (lower < 0)] = 0
    return Interval(*(torch.from_numpy(b).to(getattr(torch, dtype)) for b in (lower, upper)))


def sample(rng: np.random.Generator, interval: Interval, corners: bool = False) -> torch.Tensor:
    """A value of each element's interval: one of its ends, or anything between."""
    share = rng.integers(0, 2, size=interval.shape) if corners else rng.random(interval.shape)
    t = torch.as_tensor(share, dtype=interval.lower.dtype)
    value = interval.lower + t * (interval.upper - interval.lower)
    return torch.minimum(torch.maximum(value, interval.lower), interval.upper)


def refused(*faults: tuple[type[Exception], str, Callable[[], object]]) -> None:
    """Each call fails with an error of this class, in whose message the pattern is."""
    for error, message, call in faults:
        with pytest.raises(error, match=message):
            call()
