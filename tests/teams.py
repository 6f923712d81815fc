"""Command lines carried out by one process or by several that share them: a script, which a test
tells what to run.

Each line of standard input is a job: {"size": 2, "words": [...], "kill": [1, "outputs/**/step=*"]};
each line of standard output says what became of its processes. They are what torchrun starts, board
included, but for the start: forks of an interpreter that has everything loaded, and has computed
nothing.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sklearn.datasets  # noqa: F401  each process would load it anew, and the commands
from matplotlib.figure import Figure
from torch.distributed import TCPStore

from agt_cli import configuration, jobs  # noqa: F401
from agt_cli.cli import main
from agt_cli.commands import certify, ledger, plan, predict, train  # noqa: F401

LONGEST = 300.0  # seconds of a job


def forked(work: Callable[[], int]) -> int:
    """A process that ends with what ``work`` returns."""
    process = os.fork()
    if not process:
        code = 70
        try:
            code = work()
            sys.stdout.flush()
        finally:
            os._exit(code)
    return process


def board(port: int) -> int:
    """What torchrun keeps for the processes of a job, until it is killed."""
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    signal.pause()
    return int(store is None)


def one(rank: int, place: dict[str, str], words: list[str]) -> int:
    """One process of a job; what it says is in said.RANK.out and .err."""
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"said.{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ |= place
    return main(words)


def carried_out(size: int, words: list[str], kill: tuple[int, str] | None = None) -> dict[str, Any]:
    """What became of a job: exit codes by rank, and what each said.

    Args:
        kill: a rank that gets SIGKILL, as soon as there is a file of such a name.
    """
    processes = []
    kept = list[int]()
    port = 0
    if size > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        kept = [forked(partial(board, port))]
    for rank in range(size):
        place = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        place |= {"TORCHELASTIC_USE_AGENT_STORE": True}
        named = {name: str(value) for name, value in place.items()} if size > 1 else {}
        processes.append(forked(partial(one, rank, named, words)))
    codes = _ended(processes, kill)
    for process in kept:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    said = [
        {name: Path(f"said.{rank}.{name}").read_text() for name in ("out", "err")}
        for rank in range(size)
    ]
    return {"codes": codes, "said": said}


def _ended(processes: list[int], kill: tuple[int, str] | None) -> list[int]:
    codes = dict[int, int]()
    until = time.monotonic() + LONGEST
    while len(codes) < len(processes):
        for process in (p for p in processes if p not in codes):
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                codes[process] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > until:
                os.kill(process, signal.SIGKILL)
        if kill and any(Path().glob(kill[1])):
            os.kill(processes[kill[0]], signal.SIGKILL)
            kill = None
        time.sleep(0.01)
    return [codes[process] for process in processes]


if __name__ == "__main__":
    Figure.savefig = lambda *arguments, **more: None  # type: ignore[method-assign]
    for line in sys.stdin:
        print(json.dumps(carried_out(**json.loads(line))), flush=True)
