"""The same operations on the same shapes for every query, whatever the private data make of it.

Recorded are PyTorch's operations with the shapes they take, and every line of the library that
runs: a loop that is one turn longer, a branch, a block of another size show. What compiled code
does inside an operation, and how long a machine takes for one, does not.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import make_head, make_recipe, make_training
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import agt
from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.certificates import box as boxes
from agt.certificates.box import Certificates, certify
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import SmoothLaplace
from agt.models.model import Model
from agt.numeric import SeededRandomness

LIBRARY = str(Path(agt.__file__).parent)


class Operations(TorchDispatchMode):
    """PyTorch's operations, with the shapes of what they take."""

    def __init__(self, trace: list[Any]) -> None:
        super().__init__()
        self.trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [tuple(a.shape) if isinstance(a, torch.Tensor) else None for a in args]
        self.trace.append((str(func), shapes))
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded() -> Iterator[list[Any]]:
    """Operations of PyTorch, and lines of the library, in their order."""
    trace: list[Any] = []

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        trace.append((frame.f_code.co_filename, frame.f_lineno))
        return line

    before = sys.gettrace()
    with Operations(trace):
        sys.settrace(
            lambda frame, event, argument: (
                line if frame.f_code.co_filename.startswith(LIBRARY) else None
            )
        )
        try:
            yield trace
        finally:
            sys.settrace(before)


def work(run: Callable[[], Any]) -> list[Any]:
    with recorded() as trace:
        run()
    return trace


def differ(one: list[Any], two: list[Any]) -> str:
    """The first place where two recordings do; empty: nowhere."""
    if len(one) == len(two) and one == two:
        return ""
    place = next(
        (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b),
        min(len(one), len(two)),
    )
    return (
        f"{len(one)} and {len(two)} steps, at {place}: {one[place : place + 1]}, "
        f"{two[place : place + 1]}"
    )


# -- certificates of boxes

QUERIES = np.random.default_rng(0).normal(size=(40, 3))


def box(
    classes: int, seed: int, radius: float, hidden: tuple[int, ...], weight: float = 1.0
) -> Box:
    """What training on some dataset may have given."""
    torch.manual_seed(seed)
    head = make_head(make_training(), 3, classes, hidden)
    nominal = {name: weight * torch.randn_like(p) for name, p in head.state_dict().items()}
    nominal[list(nominal)[-1]][0] += 1 - weight  # of little weight it always says the first class
    radii = [radius * 2**k for k in range(4)]
    ends = [
        {n: torch.stack([p + sign * r for r in radii]) for n, p in nominal.items()}
        for sign in (-1, 1)
    ]
    return Box.from_ends(tuple(range(4)), nominal, *ends)


def certified(classes: int, hidden: tuple[int, ...], trained: Box) -> Certificates:
    training = make_training()
    return certify(
        make_head(training, 3, classes, hidden),
        make_recipe(training, classes=classes),
        trained,
        QUERIES,
    )


@pytest.mark.parametrize("hidden", [(), (5,)], ids=["linear", "hidden"])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_certificates_of_boxes(classes: int, hidden: tuple[int, ...]) -> None:
    tight = box(classes, 0, 1e-3, hidden)
    loose = box(classes, 1, 0.3, hidden)
    constant = box(classes, 2, 1e-6, hidden, 1e-3)
    overflows = box(classes, 3, 1e307, hidden)
    seen = [certified(classes, hidden, trained) for trained in (tight, loose, constant, overflows)]
    assert len({result.prediction.tobytes() for result in seen}) > 1
    assert len({result.certified.mean() for result in seen}) > 1, "all, some, none"
    assert not seen[3].certified[-1].any()
    first, *others = (
        work(lambda trained=trained: certified(classes, hidden, trained))
        for trained in (tight, loose, overflows)
    )
    assert len(first) > 100
    for other in others:
        assert not differ(first, other)


def grouped(network: Network, x: Tensor, labels: Tensor, bounds: Any, rounding: Any) -> Tensor:
    """Broken on purpose: a block for each predicted label, of as many queries as it has."""
    held = torch.zeros((rounding.factor.shape[0], len(x)), dtype=torch.bool)
    for label in range(network.outputs):
        rows = torch.nonzero(labels == label)[:, 0]
        if len(rows):
            held[:, rows] = whole(network, x[rows], labels[rows], bounds, rounding)
    return held


def stopping(network: Network, x: Tensor, labels: Tensor, bounds: Any, rounding: Any) -> Tensor:
    """Broken on purpose: no k behind the first that certifies nothing."""
    held = torch.zeros((rounding.factor.shape[0], len(x)), dtype=torch.bool)
    for k in range(len(held)):
        part = slice(k, k + 1)
        held[part] = whole(network, x, labels, boxes.select_ks(bounds, part), rounding[part])
        if not held[part].any():
            break
    return held


whole = boxes.certify_labels


@pytest.mark.parametrize("broken", [grouped, stopping])
def test_work_that_depends_on_the_box_is_caught(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "certify_labels", broken)
    one, two = (
        work(partial(certified, 3, (), trained))
        for trained in (box(3, 0, 1e-3, ()), box(3, 1, 3.0, ()))
    )
    assert differ(one, two)


# -- releases, from a trained model to labels


@cache
def model(kind: str, seed: int) -> Model:
    """Trained on records of which nothing is public but how many there are."""
    rng = np.random.default_rng(seed)
    classes = 4 if kind == "four classes" else 2
    count = 4000 if classes == 4 else 400
    y = np.arange(count) % classes
    x = rng.normal(size=(count, 3)) * (0.1 if seed else 2.0) + np.eye(4, 3)[y] * (
        3 if seed else 0.1
    )
    declared = agt.Declared(
        classes=range(classes), size=count, features=True, settings=True, ids=True
    )
    names = np.array([f"r{n}" for n in range(count)])
    settings: dict[str, Any] = {
        "box": {
            "network": (4,),
            "ks": 6,
            "loss": "binary_cross_entropy",
            "epochs": 3,
            "lr": 2.0,
            "clip": 0.06,
        },
        "linear": {},
        "four classes": {},
        "ensemble": {"members": 3},
        "margins": {"members": 3, "vote": "margins", "margin_clip": 1.0},
    }[kind]
    return agt.fit(x, y, declared=declared, ids=names, **settings).model


RELEASES: dict[str, tuple[str, Callable[[], Mechanism]]] = {
    "box": ("box", lambda: RandomizedResponse(eps=0.5)),
    "box, Gaussian": ("box", lambda: GaussianMargin(mu=0.5)),
    "box, published": ("box", lambda: SmoothLaplace(eps=0.5, delta=1e-3)),
    "linear": ("linear", lambda: RandomizedResponse(eps=0.5)),
    "four classes": ("four classes", lambda: RandomizedResponse(eps=0.5, classes=4)),
    "ensemble": ("ensemble", lambda: GaussianMargin(mu=0.5)),
    "margins": ("margins", lambda: GaussianMargin(mu=0.5)),
    "votes": ("ensemble", lambda: NoisyArgmax(eps=0.5)),
}


@pytest.mark.parametrize("name", RELEASES)
def test_releases(name: str) -> None:
    kind, mechanism = RELEASES[name]
    models = [model(kind, seed) for seed in (0, 1)]
    traces = []
    seen = [trained.certify(QUERIES) for trained in models]
    assert models[0].max_distance == models[1].max_distance, "public"
    for result, trained in zip(seen, models, strict=True):
        assert result.stable_distance.max() <= trained.max_distance
    if name != "votes":
        assert (seen[0].stable_distance != seen[1].stable_distance).any()
    # one more, as what is kept from the mechanism before is no private value
    for trained in (models[0], *models):
        labelling = Labelling.judged(trained, mechanism())
        traces.append(work(partial(labelling.labels, QUERIES, SeededRandomness(0))))
    assert not differ(*traces[1:])


@pytest.mark.parametrize("name", ["box", "four classes", "votes"])
def test_a_table_as_long_as_the_farthest_query_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Mechanism.release

    def to_the_farthest(
        self: Mechanism, prediction: Any, evidence: Any, source: Any, farthest: int
    ) -> Any:
        return real(self, prediction, evidence, source)

    def released(evidence: int) -> list[Any]:
        _, mechanism = RELEASES[name]
        seen = np.zeros(40, dtype=int), np.full(40, evidence), SeededRandomness(0), 9
        return work(partial(mechanism().release, *seen))

    assert not differ(released(3), released(0))
    monkeypatch.setattr(Mechanism, "release", to_the_farthest)
    assert differ(released(3), released(0))
