"""Records on their way to a GPU: a fragment is the same however it came, and the next is under
way while one is used.
"""

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from synthetic import make_head, make_recipe, make_records, make_training
from torch import Tensor

from agt.errors import ConfigError
from agt.kernels.reference import ReferenceKernel
from agt.training import stream
from agt.training.stream import Stream
from agt.training.transfer import RESIDENT_SHARE, Pair, prefetch

# rows of 24 bytes: most begin at an address that is no multiple of 64
N = 150
WIDTH = 3


class Fake:
    """A card in ordinary memory, with so many bytes free."""

    def __init__(self, free: float) -> None:
        self.bytes = free
        self.sent = 0

    def free_bytes(self) -> int:
        return int(self.bytes)

    def copy(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def send(self, pair: Pair) -> Callable[[], Pair]:
        self.sent += 1
        return lambda: (pair[0].clone(), pair[1].clone())


def streamed(card: Fake | None, **compute: object) -> Stream:
    rng = np.random.default_rng(0)
    data = make_records(rng.normal(size=(N, WIDTH)), rng.integers(0, 2, N))
    training = make_training()
    point = dict(make_head(training, WIDTH, 2, (4,)).state_dict())
    return Stream.for_head(
        data, make_recipe(training, fragment=16, **compute), point, WIDTH + 5, card
    )


NEEDED = N * (8 * WIDTH + 8)


@pytest.mark.parametrize(
    "rows",
    [np.arange(N), np.arange(0, N, 2), np.arange(7, 40)],
    ids=["all", "every other", "a run"],
)
def test_a_fragment_is_the_same_however_it_came(rows: np.ndarray) -> None:
    cards = None, Fake(0), Fake(NEEDED / RESIDENT_SHARE)
    plain, sent, held = (list(streamed(card).fragments(rows, 20)) for card in cards)
    assert cards[1].sent == len(plain)  # type: ignore[union-attr]
    assert cards[2].sent == 0  # type: ignore[union-attr]
    for one, *others in zip(plain, sent, held, strict=True):
        for other in others:
            assert one[0] == other[0]
            assert torch.equal(one[1], other[1])
            assert torch.equal(one[2], other[2])
            assert other[1].is_contiguous()
            assert other[1].data_ptr() % 64 == 0


def test_records_are_held_where_they_fit_in_their_share() -> None:
    for spare, held in ((0, True), (-1, False)):
        staged = streamed(Fake(NEEDED / RESIDENT_SHARE + spare)).staged
        assert staged is not None
        assert (staged.resident is not None) is held
    assert streamed(None).staged is None


def test_the_next_part_is_sent_before_one_is_used() -> None:
    log: list[str] = []

    def send(part: object) -> Callable[[], Pair]:
        log.append(f"send {part}")
        return lambda: log.append(f"use {part}")  # type: ignore[func-returns-value,return-value]

    parts = prefetch([slice(0), slice(1), slice(2)], send)
    for _ in parts:
        pass
    order = [log.index(f"{act} {slice(i)}") for i in range(3) for act in ("send", "use")]
    assert order[0] < order[1] < order[3] < order[5]
    assert [entry for entry in log if entry.startswith("send")] == [
        f"send {slice(i)}" for i in range(3)
    ]


def test_a_part_that_cannot_be_read_is_an_error_and_the_others_are_used() -> None:
    def send(part: object) -> Callable[[], Pair]:
        if part == slice(1):
            raise OSError("the disk")
        return lambda: (torch.zeros(1), torch.zeros(1))

    parts = prefetch([slice(0), slice(1)], send)
    assert len(list(islice(parts, 1))) == 1
    with pytest.raises(OSError, match="the disk"):
        next(parts)


def test_a_selection_beyond_a_gpus_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "device_memory", lambda device: 2**20)
    at = streamed(Fake(0), device="cuda")
    assert at.k_groups([1, 2, 3], ReferenceKernel().selection_bytes) == [slice(0, 3)]
    # a quarter of the memory at once
    assert len(at.k_groups(list(range(900)), ReferenceKernel().selection_bytes)) > 4
    with pytest.raises(ConfigError, match=r"kgrid: .*100000.*compute=default"):
        at.k_groups([100_000], ReferenceKernel().selection_bytes)
