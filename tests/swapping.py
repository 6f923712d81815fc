"""A run of a few small files whose state is swapped as an erasure swaps it, and what must be
true of it at any moment.
"""

from hashlib import sha256
from pathlib import Path

from agt_cli.report.finished import Run
from agt_cli.report.next_state import commit, run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState, RunRecord
from agt_cli.unlearn.hash_key import HashKey, as_words
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry

FILES = 5


def begin(folder: Path) -> str:
    """A finished run; returns its digest."""
    with RunRecord(folder, "train", {"output_dir": "outputs"}) as record:
        HashKey.read_or_create(record.key_folder)
        record.environment(data_digest="d")
        _write(record, 0, FILES)
    return str(record.digest)


def update(folder: Path) -> str:
    """The next state of it: every file another, one gone, one more; returns its digest."""
    with run_lock(folder):
        run = open_run(folder, "train")
        log = Log.of(run)
        key = HashKey.read_or_create(folder)
        number = len(log.entries) + 1
        with NextState(run) as record:
            _write(record, number, FILES - number % 2)
            hashes = as_words(key.names([f"r{number}"], "record"))
            entry = RequestEntry(
                "removed", "retrain", "id", hashes, hashes, {}, run.digest, record.state, key.check
            )
            record.write(REQUEST_LOG_FILE, log.append(entry).content)
            digest = record.finish()
        commit(folder)
    return digest


def state(run: Run) -> int:
    """Which state a run is in, if all of its files are of the one; else fails."""
    names = [
        name
        for name in run.manifest.files
        if name.startswith("bounds/") or name == "model.safetensors"
    ]
    numbers = {run.read(name).partition(b" ")[0] for name in names}
    assert len(numbers) == 1, numbers
    number = int(numbers.pop())
    log = Log.of(run)
    assert len(log.entries) == number == len(run.environment.get("succeeds", ()))
    assert len(names) == 1 + FILES - number % 2
    return number


def leftovers(folder: Path) -> list[str]:
    """Files that no manifest lists, but the key."""
    run = open_run(folder, "train")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return sorted(there - {*run.manifest.files, "manifest.json", "unlearning/key"})


def _write(record: RunRecord, number: int, count: int) -> None:
    for name in ("model.safetensors", *(f"bounds/k={k:05d}.safetensors" for k in range(count))):
        record.write(name, f"{number} {sha256(name.encode()).hexdigest()}".encode())
