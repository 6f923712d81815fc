"""What the soundness tests train, and what they count: nothing for the rules as they are, something
for each rule broken on purpose. No tolerance anywhere: the claims are about the numbers as
computed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from synthetic import (
    KERNELS,
    make_head,
    make_recipe,
    make_records,
    make_training,
    random_interval,
    sample,
)

from agt.bounds.box import Box
from agt.bounds.interval import Interval
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.certificates.box import Certificates, certify
from agt.certificates.votes import Vote
from agt.data.records import Records
from agt.kernels.select import pick_kernel
from agt.models.heads import ACTIVATIONS
from agt.settings import ComputeConfig, TrainingConfig
from agt.training.linear import LinearTrained
from agt.training.loop import train
from agt.training.setup import TrainingSetup

WIDTH = 3


@dataclass(frozen=True)
class Case:
    """A head, a training configuration and a kind of data, all small.

    Attributes:
        name: the test's id.
        hidden, classes, activation: the head.
        n: units in the data.
        width: features of a record.
        channels: of two convolutions in front of the hidden layers, over a record as an image of
            one row; 0: none.
        pooled: with means over three places between the two.
        unit_rows: rows that a unit may have.
        public: share of units that are public.
        dyadic: features are multiples of 1/8 and the first weights are too, so that products fall
            on ties of rounding.
        zero: the first weights are 0.
        noise: standard deviation of DP-SGD's noise on each step's direction, one seeded draw for
            every dataset.
        training: settings that differ from the defaults.
    """

    name: str
    hidden: tuple[int, ...] = ()
    classes: int = 2
    n: int = 24
    unit_rows: int = 1
    public: float = 0.0
    dyadic: bool = False
    zero: bool = False
    noise: float = 0.0
    width: int = WIDTH
    channels: int = 0
    pooled: bool = False
    activation: str = "relu"
    training: dict = field(default_factory=dict)

    def config(self, dtype: str = "float64") -> TrainingConfig:
        """The training configuration: three batches, three epochs, the normaliser a public
        constant.
        """
        batch = {"count": 3, "normalizer": 8.0, **self.training.get("batch", {})}
        return make_training(
            **{"epochs": 3, "lr": 0.2, **self.training, "batch": batch, "dtype": dtype}
        )

    def setup(
        self, relation: str, ks: tuple[int, ...] = (0,), dtype: str = "float64", **compute: object
    ) -> TrainingSetup:
        """How it trains under a relation; no size is declared."""
        return make_recipe(
            self.config(dtype), relation, ks, self.classes, None, self.unit_rows, **compute
        )

    def head(self, dtype: str) -> torch.nn.Sequential:
        """The head, always from the same seed."""
        width = self.channels * self.width or self.width
        head = make_head(self.config(dtype), width, self.classes, self.hidden, self.activation)
        if self.channels:
            head = torch.nn.Sequential(*self._convolutions(dtype), *head)
        grain = 0.0 if self.zero else 1 / 8
        if self.dyadic or self.zero:
            with torch.no_grad():
                for p in head.parameters():
                    p.copy_((p * 8).round() * grain)
        return head

    def _convolutions(self, dtype: str) -> list[torch.nn.Module]:
        """To a row of channels * width numbers; with two or more channels, two groups."""
        torch.default_generator.manual_seed(self.config(dtype).seed)
        sizes = [
            (1, self.channels, {"padding": (0, 1)}),
            (self.channels, self.channels, {"groups": min(2, self.channels)}),
        ]
        layers: list[torch.nn.Module] = [torch.nn.Unflatten(1, (1, 1, self.width))]
        for inputs, outputs, settings in sizes:
            conv = torch.nn.Conv2d(inputs, outputs, (1, 2), dtype=torch.float64, **settings)  # type: ignore[arg-type]
            layers += [conv.to(getattr(torch, dtype)), ACTIVATIONS[self.activation]()]
        if self.pooled:
            layers.insert(3, torch.nn.AvgPool2d((1, 3), stride=1, padding=(0, 1)))
        return [*layers, torch.nn.Flatten()]

    def data(self, rng: np.random.Generator, prefix: str = "r") -> Records:
        """A fresh dataset: a class for each direction of the first features, a fifth of the
        records saturating the clip.
        """
        return draw(rng, self, self.n, prefix)


CASES = (
    Case("linear-bce", training={"loss": "binary_cross_entropy"}),
    Case("linear-momentum", training={"momentum": 0.9, "lr": 0.05}),
    Case(
        "mlp-nesterov-decay",
        (5,),
        training={"momentum": 0.5, "nesterov": True, "weight_decay": 0.3, "decay": 0.2},
    ),
    Case(
        "three-layers-dampening",
        (4, 3),
        training={
            "loss": "binary_cross_entropy",
            "momentum": 0.6,
            "dampening": 0.4,
            "weight_decay": 0.1,
        },
    ),
    Case(
        "softmax-four-classes",
        (4,),
        classes=4,
        training={"weight_decay": 0.5, "lr_min": 0.15, "decay": 1.0},
    ),
    Case(
        "units-of-three-rows",
        (3,),
        n=12,
        unit_rows=3,
        training={"momentum": 0.3, "lr": 0.05, "batch": {"normalizer": 24.0}},
    ),
    Case("public-records", (3,), public=0.4),
    Case(
        "sparse-batches",
        (3,),
        n=7,
        training={"momentum": 0.3, "lr": 0.01, "batch": {"count": 6, "normalizer": 2.0}},
    ),
    Case("rounding-ties", (4,), dyadic=True, training={"clip": 0.0625, "lr": 0.25}),
    Case("convolutions", (3,), channels=2, training={"momentum": 0.3, "lr": 0.05}),
    Case("noise", (4,), noise=0.3, training={"momentum": 0.3, "lr": 0.05}),
    Case(
        "odd-constants",
        (),
        classes=3,
        training={"clip": 0.3, "lr": 0.07, "batch": {"normalizer": 7.3}},
    ),
    # From 16 outputs on, the fast kernel's products are vectorised, and summed in double precision.
    Case("wide", (20, 17), training={"lr": 0.05}),
)
RUMP = tuple(
    replace(c, name=f"rump-{c.name}", training={**c.training, "product": "rump"})
    for c in CASES[2:5]
)


# -- data


def draw(rng: np.random.Generator, case: Case, units: int, prefix: str) -> Records:
    """Records of ``units`` new units; a fifth of them saturate the clip."""
    rows = rng.integers(1, case.unit_rows + 1, size=units)
    n = int(rows.sum())
    features = rng.normal(size=(n, case.width))
    labels = np.where(
        rng.random(n) < 0.85,
        features.argmax(axis=1) % case.classes,
        rng.integers(0, case.classes, n),
    )
    if case.classes > case.width:
        labels = np.where(features.max(axis=1) < 0, case.classes - 1, labels)
    if case.dyadic:
        features = np.round(features * 8) / 8
    loud = rng.random(n) < 0.2
    features[loud] *= 1e3
    names = [f"{prefix}{u}" for u, count in enumerate(rows) for _ in range(count)]
    public = rng.random(units) < case.public
    return make_records(features, labels, names, np.repeat(public, rows), prefix=f"{prefix}row")


# -- running


def run(
    case: Case,
    data: Records,
    relation: str,
    ks: tuple[int, ...],
    dtype: str,
    rng: np.random.Generator,
) -> Box:
    """Train with a kernel and a fragment size drawn at random: neither may matter to any claim."""
    fragment = (
        "auto" if rng.random() < 0.5 else min(int(rng.choice([1, 3, 5, 7])), max(1, len(data)))
    )
    kernel = str(rng.choice(KERNELS))
    head = case.head(dtype)
    noise = None
    if case.noise:
        noise = partial(draw_noise, dict(head.state_dict()), case.noise)
    return train(
        head, case.setup(relation, ks, dtype, kernel=kernel, fragment=fragment), data, noise=noise
    )


def draw_noise(
    parameters: dict[str, torch.Tensor], scale: float, step: int
) -> dict[str, torch.Tensor]:
    """The step's noise, the same for whoever asks."""
    generator = torch.Generator().manual_seed(step)
    return {
        n: scale * torch.randn(p.shape, generator=generator, dtype=p.dtype)
        for n, p in parameters.items()
    }


def certificates(
    case: Case, trained: Box, queries: np.ndarray, relation: str, dtype: str
) -> Certificates:
    """Certify ``queries``."""
    return certify(case.head(dtype), case.setup(relation, trained.ks, dtype), trained, queries)


def factors(
    case: Case, dtype: str, product: str, samples: int, kernel: str = "cpu", seed: int = 0
) -> int:
    """Draw a box, then ``samples`` models from it, ends as often as insides: logits and the factors
    of each record's gradient, as computed, that are outside their bounds.
    """
    rng = np.random.default_rng(seed)
    outside = 0
    data = case.data(rng)
    training = case.config(dtype)
    head = case.head(dtype)
    products = pick_kernel(ComputeConfig(kernel=kernel)).products(product)  # type: ignore[arg-type]
    network = Network.from_head(head, training.loss, case.classes, products)
    box = {}
    for name, p in head.state_dict().items():
        around = random_interval(rng, 2, *p.shape, radius=0.3, dtype=dtype)
        box[name] = Interval(around.lower + p, around.upper + p)
    x = torch.from_numpy(data.features).to(getattr(torch, dtype))
    y = torch.from_numpy(data.labels)
    rounding = Rounding.for_grid((0, 0), x.dtype, x.device)
    with torch.no_grad():
        logits = network.bound_logits(x, box, rounding)
        bounds = list(network.factors(x, y, box, rounding))
        for index in range(samples):
            draws = {
                name: sample(rng, interval, corners=index % 2 == 0)
                for name, interval in box.items()
            }
            for k in range(2):
                point = {name: value[k] for name, value in draws.items()}
                computed = network.logits(x, network.convert_to_logit_difference(point))
                outside += _beyond(logits[k], computed)
                for bound, (_, d, inputs) in zip(
                    bounds, network.nominal_factors(x, y, point), strict=True
                ):
                    outside += _beyond(bound.output_gradient[k], d) + _beyond(
                        bound.inputs[min(k, bound.inputs.shape[0] - 1)], inputs
                    )
    return outside


def _beyond(interval: Interval, value: torch.Tensor) -> int:
    return int((~((interval.lower <= value) & (value <= interval.upper))).sum())


def ends(outer: Box, inner: Box) -> tuple[int, int]:
    """(ends of ``inner`` for k - 1 beyond those of ``outer`` for k, bit for bit; those that are
    the same numbers).
    """
    beyond = touching = 0
    for name in outer.nominal:
        uppers = outer.upper[name][1:], inner.upper[name][:-1]
        lowers = inner.lower[name][:-1], outer.lower[name][1:]
        for high, low in (uppers, lowers):
            beyond = beyond + int((~(high >= low)).sum())
            touching = touching + int((high == low).sum())
    return beyond, touching


# -- distances of neighbours

Model = Callable[[np.ndarray], Certificates]


def thresholds(rng: np.random.Generator, model: Model, lines: int, width: int) -> np.ndarray:
    """[2 lines, width]: pairs of queries a rounding apart, between which the label or the distance
    changes.

    Bisection along lines between two random queries that differ: half of the lines follow the label
    alone. None, where every query gets the same label and distance.
    """
    low, high = rng.normal(size=(2, 20 * lines, width))
    one = model(low)
    other = model(high)
    turned = one.prediction != other.prediction
    apart = one.stable_distance != other.stable_distance
    crossing = np.flatnonzero(turned)[: lines // 2]
    moving = np.flatnonzero(turned | apart)[: lines - len(crossing)]
    chosen = np.concatenate([crossing, moving])
    weight = np.repeat([0, 100], [len(crossing), len(moving)])
    low = low[chosen]
    high = high[chosen]

    def key(x: np.ndarray) -> np.ndarray:
        known = model(x)
        return weight * known.stable_distance + known.prediction

    start = key(low) if len(chosen) else weight
    for _ in range(52 if len(chosen) else 0):
        middle = (low + high) / 2
        same = (key(middle) == start)[:, None]
        low = np.where(same, middle, low)
        high = np.where(same, high, middle)
    return np.concatenate([low, high])


def moved_by(one: LinearTrained, two: LinearTrained) -> float:
    """How far two linear heads lie apart, in the norm that rho bounds."""
    apart = one.weight - two.weight
    length = torch.linalg.vector_norm
    return float(length(apart, dim=1).max() if one.loss.kind == "one_vs_all" else length(apart))


# -- votes, over all states that there are

Edits = list[tuple[np.ndarray, np.ndarray]]
"""(from, to): the states that one edit joins, for each way to make it."""


def one_after_another(joined: Edits, states: int) -> Edits:
    """Two edits, every two of these."""
    found = []
    for (start, middle), (later, end) in product(joined, repeat=2):
        to = np.full(states, -1)
        to[later] = end
        found.append((start[to[middle] >= 0], to[middle][to[middle] >= 0]))
    return found


def edits_to_another(label: np.ndarray, joined: Edits) -> np.ndarray:
    """[n]: how many edits it takes at least until the label is another; 99: it never is."""
    away = np.full(len(label), 99)
    for own in np.unique(label):
        reached = np.where(label != own, 0, 99)
        for _ in range(60):
            for start, end in joined:
                np.minimum.at(reached, start, reached[end] + 1)
        away = np.where(label == own, np.minimum(reached, 99), away)
    return away


def torn(vote: Vote, joined: Edits) -> int:
    """Edits over which a distance moves by more than 1, or a label turns that has one."""
    count = 0
    for start, end in joined:
        far = abs(vote.distance[start] - vote.distance[end]) > 1
        turned = vote.prediction[start] != vote.prediction[end]
        count += int((far | turned & ((vote.distance[start] > 0) | (vote.distance[end] > 0))).sum())
    return count


def check_every_subset(label: np.ndarray, distance: np.ndarray, relation: str) -> None:
    """What the answers [2^n, queries] on all subsets of n records must obey, the subset of row i
    being the bits of i.

    No label changes within its distance, and the distances of neighbours differ by 1 at most.
    """
    sets = np.arange(len(label))
    for one in sets:  # each pair comes twice
        away = np.bitwise_count(sets ^ one)
        gone = np.bitwise_count(one & ~sets)
        # replaced: one is gone, and one come
        k = away if relation == "add_remove" else np.where(away == 2 * gone, gone, 0)
        assert not ((label != label[one]) & (distance[one] >= k[:, None]))[k > 0].any()
        assert (abs(distance - distance[one]) <= 1)[k == 1].all()
