"""Processes that share a job: the same bits as alone, whatever their number, and one that fails
stops all.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agt.bounds.interval import Interval
from agt.distributed import (
    ALONE,
    SPANS,
    Group,
    PeerLost,
    _branches_within,
    _pieces_of,
    _sum_of_branch,
    group,
    joined,
    spans,
    together,
)
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.kernels.select import load_kernel
from agt.training.selections import selected_sums

TESTS = Path(__file__).parents[1]
Outcomes = Callable[[str], list[dict[str, str]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What every process came to, by the phase of ``spreading.py``."""
    folder = tmp_path_factory.mktemp("spread")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, TESTS / "spreading.py", folder],
        env={**os.environ, **threads, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    def of(phase: str) -> list[dict[str, str]]:
        files = sorted(folder.glob(f"{phase}.*.json"))
        assert files, done.stderr
        return [json.loads(file.read_text()) for file in files]

    return of


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_gives_the_bits_of_one(outcomes: Outcomes, size: int) -> None:
    (alone,) = outcomes("1")
    shared = outcomes(str(size))
    assert len(shared) == size
    for rank, each in enumerate(shared):
        del each["seconds"]
        assert len(each) == (3 if size == 2 else 15), each
        assert {name: bits == alone[name] for name, bits in each.items()} == dict.fromkeys(
            each, True
        ), rank


def test_sums_in_the_order_of_processes_and_selections_not_merged_would_be_noticed(
    outcomes: Outcomes,
) -> None:
    (alone,) = outcomes("1")
    for each in outcomes("broken"):
        del each["seconds"]
        assert {name: bits != alone[name] for name, bits in each.items()} == dict.fromkeys(
            each, True
        )


def test_noise_is_drawn_once_for_all(outcomes: Outcomes) -> None:
    first, second = outcomes("drawn")
    assert {**first, "seconds": ""} == {**second, "seconds": ""}


def test_a_process_that_differs_is_named_before_the_first_step(outcomes: Outcomes) -> None:
    for each in outcomes("unlike"):
        assert each["error"] == "ConfigError"
        assert re.match(
            r"settings\.training\.lr .*\b0\.1\b.*\b0\b.*\b1\.1\b.*\b2\b", each["message"]
        )


def test_a_process_that_fails_stops_all_with_its_words(outcomes: Outcomes) -> None:
    heard = outcomes("mistaken")
    assert [each["error"] for each in heard] == ["PeerLost", "ConfigError", "PeerLost"]
    assert all(re.search(r"\b1\b.*training\.lr", each["message"]) for each in heard[::2])


def test_a_process_that_is_killed_stops_all(outcomes: Outcomes) -> None:
    heard = outcomes("killed")
    assert [each["error"] for each in heard] == ["PeerLost"] * 2


# -- one process, the others made up
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5, 63, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 70])
def test_a_tree_cut_anywhere_is_the_same_tree(count: int, size: int) -> None:
    numbers = torch.from_numpy(
        np.random.default_rng(count).normal(size=count) * 10.0 ** np.arange(count)
    )
    calls: list[int] = []

    def leaf(branch: tuple[int, int]) -> tuple[torch.Tensor] | None:
        if branch[1] - branch[0] > 1:
            return None
        calls.append(branch[0])
        return (numbers[branch[0]],)

    whole = _sum_of_branch((0, count), leaf)
    calls.clear()
    branches = [_branches_within((0, count), _pieces_of(count, rank, size)) for rank in range(size)]
    known = {branch: _sum_of_branch(branch, leaf) for branch in chain.from_iterable(branches)}
    assert calls == list(range(count))
    assert _sum_of_branch((0, count), known.get) == whole
    if size in (2, 4) and count >= size:
        assert all(len(each) == 1 for each in branches)


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 64 * 32, 64 * 32 + 1, 10_000])
def test_spans_are_whole_blocks_that_depend_on_rows_alone(rows: int) -> None:
    cut = spans(rows, 32)
    assert 1 <= len(cut) <= SPANS
    assert list(chain.from_iterable(range(s.start, s.stop) for s in cut)) == list(range(rows))
    assert all(s.start % 32 == 0 for s in cut)
    assert all(s.stop > s.start for s in cut) or rows == 0


class Echo(Group):
    """One of two processes, whose other one does as this one does."""

    def all_to_all(self, parts: torch.Tensor) -> torch.Tensor:
        return torch.stack([parts[self.rank]] * self.size)


@pytest.mark.parametrize("kernel", ["reference", "cpu"])
@pytest.mark.parametrize("counts", [[0, 2], [1, 12], [0, 0]])
def test_selections_are_made_anew_from_what_processes_kept(kernel: str, counts: list[int]) -> None:
    rng = np.random.default_rng(0)
    wanted = torch.tensor(counts)
    d, x = (
        Interval.point(torch.from_numpy(rng.integers(-9, 9, s).astype(float)))
        for s in ((2, 7, 3), (1, 7, 5))
    )
    once, twice = (
        load_kernel(kernel).start_selection(wanted, (3, 5), False, "exact") for _ in range(2)
    )
    for each in (once, twice, twice):
        each.update(d, x)
    shares = [selected_sums(Echo(rank, 2), once, wanted) for rank in range(2)]
    for whole, first, second in zip(twice.result(), *shares, strict=True):
        assert torch.equal(whole, first + second)


def test_alone_nothing_is_exchanged() -> None:
    assert group() is ALONE
    assert ALONE.all_gather(3) == [3]
    assert ALONE.broadcast("x") == "x"
    assert [*ALONE.map_blocks(5, 2, lambda rows: rows.stop - rows.start)] == [2, 2, 1]
    assert [*ALONE.map_blocks(0, 2, lambda rows: rows.stop - rows.start)] == [0]


@dataclass(frozen=True)
class Second(Group):
    """The second of two processes; what the first came to is made up."""

    first: Any = None

    def all_gather(self, value: Any) -> list[Any]:
        return [self.first, value]


def test_work_that_is_shared_out_is_done_alone_and_fails_for_all() -> None:
    with joined(Second(1, 2, first=([7], None))) as ours:
        assert ours.map_blocks(4, 2, lambda rows: (rows, group())) == [7, (slice(2, 4), ALONE)]
    with (
        joined(Second(1, 2, first=([], UnsoundError("a query is NaN")))) as ours,
        pytest.raises(UnsoundError, match="NaN"),
    ):
        ours.map_blocks(4, 2, lambda rows: rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"RANK": "0"}, "RANK is set but WORLD_SIZE is not"),
        (
            {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"},
            "RANK=2 and WORLD_SIZE=2",
        ),
        ({"RANK": "a", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "RANK=a"),
    ],
)
def test_variables_that_make_no_job_are_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with together() as alone:
        assert alone is ALONE
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message), together():
        raise AgtError("not reached")


def test_a_job_whose_torchrun_was_killed_at_the_start_ends_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody told this process of it, and nobody else of the job will come."""
    with socket.socket() as nobody:  # bound, and not listened at
        nobody.bind(("127.0.0.1", 0))
        place = {
            "RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(nobody.getsockname()[1]),
        }
        for name, value in {**place, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("agt.distributed.TORCHRUN_WAIT_SECONDS", 0.5)
        with (
            pytest.raises(PeerLost, match=r"torchrun.*127\.0\.0\.1:\d+"),
            together(timeout=20),
        ):
            raise AssertionError("never begun")
