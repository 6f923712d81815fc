"""What every folder of files owes whoever reads it: each kind of file, spoilt in each way, is
refused by name.

A kind of file is checked in the first run that has it. The same changes pass unnoticed by a reader
that compares no hashes, so the suite can fail.
"""

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from museum import COMMANDS, FinishedRuns
from records import reseal
from safetensors.numpy import load_file, save
from torch import nn

import agt
from agt.errors import AgtError, ConfigError
from agt.store.manifest import Manifest, seal_manifest
from agt_cli.cli import main
from agt_cli.report.opening import open_run
from agt_cli.unlearn.hash_key import KEY_FILE

RUNS = [name for name in COMMANDS if not name.startswith("ledgers/")]
TRAINED = [name for name in RUNS if name.startswith("train/")]
SAVED: dict[str, dict[str, Any]] = {
    "linear head": {},
    "boxes of a network": {
        "network": nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)),
        "ks": 1,
        "epochs": 4,
        "lr": 2.0,
        "clip": 0.06,
    },
    "ensemble": {"members": 2},
}
SHA256 = 64 * "0"


def read(folder: Path, name: str) -> object:
    return agt.load(folder) if name in SAVED else open_run(folder, name.split("/")[0])


def kind_of(name: str) -> str:
    """A file's name without its numbers: bounds/k=#.safetensors."""
    return re.sub(r"\d+", "#", name)


def files_of(folder: Path) -> list[str]:
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and path != folder / KEY_FILE
    )
    return [path.relative_to(folder).as_posix() for path in paths]


@pytest.fixture(scope="module")
def folders(
    finished_runs: FinishedRuns, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A copy of each run, and a saved model of each kind."""
    home = tmp_path_factory.mktemp("tampered")
    found = {name: finished_runs.copy(name, home / name) for name in RUNS}
    y = np.arange(20) % 2
    for name, given in SAVED.items():
        x = np.random.default_rng(0).normal(size=(20, 2)) + y[:, None]
        found[name] = home / name.replace(" ", "_")
        agt.fit(x, y, declared=agt.Declared(size=20), compute={"threads": 1}, **given).save(
            found[name]
        )
    return found


def _flip(path: Path, place: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[min(len(content) - 1, int(place * len(content)))] ^= 1
    path.write_bytes(content)


def _link(path: Path) -> None:
    path.rename(path.with_name(".moved"))
    path.symlink_to(".moved")


def _numbers(path: Path) -> None:
    if path.suffix == ".safetensors":
        path.write_bytes(save({name: 100 * tensor for name, tensor in load_file(path).items()}))
    elif path.suffix == ".json":
        path.write_text(
            re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), path.read_text(), count=1)
        )


def _other(path: Path) -> None:
    siblings = (
        other
        for other in path.parent.iterdir()
        if other.is_file() and other.read_bytes() != path.read_bytes()
    )
    path.write_bytes(next(siblings, path).read_bytes())


WAYS: dict[str, Callable[[Path], object]] = {
    "a bit": _flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "a link": _link,
    "other numbers": _numbers,
    "another file": _other,
}


# all of them: make sweep
QUICK = {what: WAYS[what] for what in ("a bit", "gone", "a link", "another file")}


def tamperings(
    folder: Path, names: list[str], ways: dict[str, Callable[[Path], object]]
) -> Iterator[tuple[str, str]]:
    """Spoil a file, let the caller look, and put it back: (name of the file, what was done)."""
    for name in names:
        path = folder / name
        content = path.read_bytes()
        for what, spoil in ways.items():
            spoil(path)
            if path.is_symlink() or not path.exists() or path.read_bytes() != content:
                yield name, what
            path.unlink(missing_ok=True)
            path.with_name(".moved").unlink(missing_ok=True)
            path.write_bytes(content)


def refused(folder: Path, name: str, file: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(folder, name)
    said = str(caught.value)
    assert str(folder) in said, (name, file, what)
    assert file in said.replace(str(folder), ""), (name, file, what, said)


def test_every_kind_of_file_is_listed_and_refused_by_name_when_spoilt(
    folders: dict[str, Path],
) -> None:
    seen = set[str]()
    count = 0
    for name, folder in folders.items():
        files = files_of(folder)
        listed = json.loads((folder / "manifest.json").read_bytes())["files"]
        hashes = {
            file: sha256((folder / file).read_bytes()).hexdigest()
            for file in files
            if file != "manifest.json"
        }
        assert listed == hashes, (
            "nothing is written past the record, and nothing is listed that is not there"
        )
        first = {kind_of(file): file for file in reversed(files) if kind_of(file) not in seen}
        seen |= first.keys()
        for file, what in tamperings(folder, [*first.values()], QUICK):
            refused(folder, name, file, what)
            count += 1
        read(folder, name)
    assert len(seen) > 40
    assert count > 3 * len(seen)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*RUNS, *SAVED])
def test_every_file_of_every_run_is_refused_by_name_when_spoilt(
    folders: dict[str, Path], name: str
) -> None:
    rng = np.random.default_rng(0)
    bits = {
        f"bit {place:.3f}": lambda path, place=place: _flip(path, place) for place in rng.random(5)
    }
    for file, what in tamperings(folders[name], files_of(folders[name]), {**WAYS, **bits}):
        refused(folders[name], name, file, what)


def manifests(value: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The list itself, changed by hand, and by somebody who knows how its seal is made."""
    files: dict[str, str] = value["files"]
    plain = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
    yield "other whitespace", plain.replace(b"  ", b"    ")
    yield "windows lines", plain.replace(b"\n", b"\r\n")
    yield "a list", b"[]\n"
    yield (
        "no seal",
        json.dumps(
            {key: entry for key, entry in value.items() if key != "seal"}, indent=2
        ).encode(),
    )
    for number in (0, 2, True, "1", None):
        yield f"format {number!r}", json.dumps(value | {"format": number}).encode()
    without = {name: digest for name, digest in files.items() if name != "metrics.json"}
    yield (
        "an entry removed",
        json.dumps(value | {"files": without}, indent=2, sort_keys=True).encode() + b"\n",
    )
    for name in ("absent.txt", "../other/config.yaml", "/dev/zero", "a//b", "./config.yaml"):
        yield (
            f"{name} added, sealed",
            seal_manifest({"command": value["command"], "files": files | {name: SHA256}}),
        )
    for name in ("config.yaml", "env.json", "metrics.json", "status.json"):
        rest = {file: digest for file, digest in files.items() if file != name}
        yield f"{name} removed, sealed", seal_manifest({"command": value["command"], "files": rest})
        yield (
            f"another hash of {name}, sealed",
            seal_manifest({"command": value["command"], "files": files | {name: SHA256}}),
        )
    yield "another command, sealed", seal_manifest({"command": "audit", "files": files})


def test_every_change_of_the_manifest_is_refused(folders: dict[str, Path]) -> None:
    folder = folders["train/box"]
    path = folder / "manifest.json"
    content = path.read_bytes()
    for what, spoilt in manifests(json.loads(content)):
        path.write_bytes(spoilt)
        with pytest.raises(ConfigError, match=re.escape(str(folder))):
            read(folder, "train/box")
        assert spoilt != content, what
    path.write_bytes(content)
    read(folder, "train/box")


def test_without_the_hashes_most_changes_pass_unnoticed(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite itself: it would show a reader that compares nothing."""
    monkeypatch.setattr(Manifest, "verify", lambda *_: None)
    monkeypatch.setattr(Manifest, "_compare", lambda *_: None)
    unnoticed = 0
    count = 0
    name = "train/linear_ensemble"
    files = [file for file in files_of(folders[name]) if file != "manifest.json"]
    for _ in tamperings(folders[name], files, WAYS):
        count += 1
        try:
            read(folders[name], name)
            unnoticed += 1
        except (AgtError, UnicodeDecodeError):
            pass
    assert unnoticed > 0.7 * count, (unnoticed, count)


READERS = (
    ("certify", "map_resolution=0"),
    ("plan", *COMMANDS["plan/linear"][2:]),
    ("predict", "mechanism.eps=1"),
)


@pytest.mark.parametrize(
    ("name", "command"),
    [(name, READERS[at % 3]) for at, name in enumerate(TRAINED[::2]) if name != "train/trees"],
)
def test_commands_refuse_a_spoilt_run(
    finished_runs: FinishedRuns,
    tmp_path: Path,
    name: str,
    command: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2 and the file's name; with the digest, also where the manifest was made to fit."""
    folder = finished_runs.copy(name, tmp_path / "run")
    digest = f"digest=sha256:{sha256((folder / 'manifest.json').read_bytes()).hexdigest()}"
    bounds = sorted(folder.rglob("bounds/*.safetensors"))
    models = sorted(folder.rglob("model.safetensors"))
    spoilt = bounds[-1] if bounds else models[0]
    if bounds:  # the widest box under the narrowest one's name
        spoilt.write_bytes(bounds[0].read_bytes())
    else:
        _numbers(spoilt)
    arguments = (
        command[0],
        f"run={folder}",
        f"hydra.run.dir={tmp_path / 'out'}",
        f"output_dir={tmp_path}",
        *command[1:],
    )
    capsys.readouterr()
    assert main([*arguments, "-q"]) == 2
    out, err = capsys.readouterr()
    assert spoilt.name in err
    assert not out
    reseal(folder)
    assert main([*arguments, digest, "-q"]) == 2
    refused = capsys.readouterr().err
    assert "manifest.json" in refused
    assert digest.removeprefix("digest=") in refused
