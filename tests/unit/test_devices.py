"""Training and certifying leave no tensor behind on the CPU: tried on a device that computes as the
CPU does.

``Elsewhere`` holds a tensor of the CPU and says that it is on another device. An operation on
tensors of two devices, and NumPy, are errors, as with a GPU; numbers may go over by ``.to`` and
``.cpu()`` alone. A GPU's own kernels and copies are not tried here.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import RELATIONS, make_head, make_recipe, make_records, make_training
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from agt.bounds.linear import LinearRule
from agt.bounds.rounding import check_precision
from agt.certificates import box as certificates
from agt.certificates.box import certify, compute_envelope
from agt.errors import ConfigError
from agt.kernels import selftest
from agt.kernels.reference import ReferenceKernel
from agt.training import loop, stream
from agt.training.checkpoint import CheckpointState
from agt.training.loop import TrainingRun, train

AWAY = torch.device("meta")


class Elsewhere(Tensor):
    """A tensor whose numbers are ``here``."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "Elsewhere":
        made = Tensor._make_wrapper_subclass(
            cls, here.shape, here.stride(), here.storage_offset(), dtype=here.dtype, device=AWAY
        )
        made.here = here
        return made

    def data_ptr(self) -> int:
        return self.here.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        to = kwargs.get("device")
        copies = func is torch.ops.aten._to_copy.default
        strangers = [t for t in tensors if not isinstance(t, Elsewhere) and t.dim() > 0]
        if strangers and not copies and func is not torch.ops.aten.copy_.default:
            raise RuntimeError(f"{func}: tensors on two devices")
        if to is not None:
            kwargs["device"] = torch.device("cpu")
        out = func(*(tree_map(inside, args)), **tree_map(inside, kwargs))
        if copies and to is not None and torch.device(to) != AWAY:
            return out
        if func._schema.is_mutable:
            return args[0]
        return tree_map(lambda x: cls(x) if isinstance(x, Tensor) else x, out)


def inside(value: Any) -> Any:
    return value.here if isinstance(value, Elsewhere) else value


class Factories(TorchDispatchMode):
    """Tensors made on, or sent to, the other device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if (
            kwargs.get("device") is not None
            and torch.device(kwargs["device"]) == AWAY
            and not any(isinstance(x, Elsewhere) for x in tree_flatten((args, kwargs))[0])
        ):
            return Elsewhere(func(*args, **{**kwargs, "device": torch.device("cpu")}))
        return func(*args, **kwargs)


class Literals(TorchFunctionMode):
    """Tensors made from Python numbers, which PyTorch fills before any operation is dispatched."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu") == AWAY:
            return Elsewhere(torch.tensor(*args, **{**kwargs, "device": "cpu"}))
        if func is Tensor.new_tensor and isinstance(args[0], Elsewhere):
            return Elsewhere(torch.tensor(args[1], **{"dtype": args[0].dtype, **kwargs}))
        if func is Tensor.tolist and isinstance(args[0], Elsewhere):
            return args[0].here.tolist()
        return func(*args, **kwargs)


class Card:
    """The other device as a card with room for everything."""

    def free_bytes(self) -> int:
        return 1 << 40

    def copy(self, tensor: Tensor) -> Tensor:
        return Elsewhere(tensor.clone())

    send = None


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Everything that asks for the GPU gets the other device; settings that ask for it."""
    for module in (loop, certificates):
        monkeypatch.setattr(
            module,
            "pick_device",
            lambda compute: AWAY if compute.device == "cuda" else torch.device("cpu"),
        )
    known = torch.is_autocast_enabled
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind != "meta" and known(kind))
    monkeypatch.setattr(stream, "CudaDevice", Card)
    monkeypatch.setattr(stream, "device_memory", lambda device: 1 << 40)
    with Literals(), Factories():
        yield {"device": "cuda", "kernel": "reference"}


def data(classes: int = 2) -> Any:
    rng = np.random.default_rng(0)
    return make_records(
        rng.normal(size=(30, 4)),
        rng.integers(0, classes, 30),
        public=[i % 7 == 0 for i in range(30)],
    )


CASES = {
    "two classes": (2, "tanh", {"batch": {"count": 2}, "epochs": 2}, "exact"),
    "three classes, Nesterov": (
        3,
        "relu",
        {"momentum": 0.9, "nesterov": True, "epochs": 2},
        "rump",
    ),
    "one output, float32": (
        2,
        "gelu",
        {"loss": "binary_cross_entropy", "dtype": "float32"},
        "exact",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_on_the_cpu(case: str, relation: str, away: dict[str, str]) -> None:
    classes, activation, settings, product = CASES[case]
    training = make_training(**settings, product=product)
    records = data(classes)
    if relation == "paper_privacy":
        records = make_records(records.features, records.labels)
    head = make_head(training, 4, classes, (5,), activation)
    draws = {
        name: torch.full(p.shape, 0.001, dtype=torch.float64)
        for name, p in head.state_dict().items()
    }
    boxes = []
    for where in ({"kernel": "reference"}, away):
        setup = make_recipe(training, relation, (0, 1, 4), classes, fragment=16, **where)
        box = train(head, setup, records, noise=lambda step: draws)
        made = certify(head, setup, box, records.features[:9])
        boxes.append(
            (
                box,
                made,
                compute_envelope(head, setup, box, records.features[:9]) if classes == 2 else None,
            )
        )
    (ours, mine, reach), (theirs, other, limit) = boxes
    for name in ours.nominal:
        assert torch.equal(ours.nominal[name], theirs.nominal[name])
        assert torch.equal(ours.lower[name], theirs.lower[name])
        assert torch.equal(ours.upper[name], theirs.upper[name])
        assert theirs.lower[name].device == torch.device("cpu")
    assert np.array_equal(mine.certified, other.certified)
    assert np.array_equal(mine.prediction, other.prediction)
    assert reach is None or limit is None or np.array_equal(reach.lower, limit.lower)


def test_a_run_goes_on_there_from_a_checkpoint(away: dict[str, str]) -> None:
    training = make_training(momentum=0.9, batch={"count": 2})
    setup = make_recipe(training, "remove", (0, 2), fragment=16, **away)
    head = make_head(training, 4, 2, (5,))
    first, second = (TrainingRun(head, setup, data()) for _ in range(2))
    batches = list(first.plan.batches(data().units))
    with torch.no_grad():
        first.step(batches[0])
        second.restore(
            CheckpointState(1, {name: tensor.cpu() for name, tensor in first.tensors().items()}),
            batches[:1],
        )
        for run in (first, second):
            run.step(batches[1])
    for name in first.point:
        assert torch.equal(first.result().lower[name], second.result().lower[name])


@pytest.mark.parametrize("case", selftest.CASES)
def test_the_self_tests_cases_stay_where_they_are_put(case: str, away: dict[str, str]) -> None:
    for tensor in selftest.CASES[case](ReferenceKernel(), selftest.Probe("meta")):
        assert isinstance(tensor, Elsewhere)


def test_precision_that_pytorch_has_no_one_answer_about_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its newer settings, one for each backend, make it raise where it is asked for the one that
    all have.
    """

    def mixed() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    check_precision(torch.float64, torch.device("cpu"))
    with pytest.raises(ConfigError, match="reduced precision"):
        check_precision(torch.float32, torch.device("cpu"))


def test_a_tensor_left_behind_is_noticed(
    away: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules broken on purpose: one makes its zeros on the CPU, one goes through NumPy."""
    training = make_training()
    setup = make_recipe(training, fragment=16, **away)
    head = make_head(training, 4, 2, (5,))
    bound = LinearRule.nominal
    monkeypatch.setattr(
        LinearRule, "nominal", lambda self, x, point: bound(self, x, point) + torch.zeros(1)
    )
    with pytest.raises(RuntimeError, match="two devices"):
        train(head, setup, data())
    monkeypatch.setattr(
        LinearRule,
        "nominal",
        lambda self, x, point: torch.from_numpy(bound(self, x, point).numpy()),
    )
    with pytest.raises((RuntimeError, TypeError, NotImplementedError)):
        train(head, setup, data())
