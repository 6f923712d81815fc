"""What every folder of files owes whoever reads it: each file, spoilt in every way that comes to mind, is refused by name.

``KINDS`` is the registry: a run of each command, a saved model of each kind; a new kind adds a line and inherits the suite.
The same changes pass almost all of them unnoticed by a reader that does not compare hashes, so the suite can fail.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from records import reseal
from safetensors import safe_open
from safetensors.numpy import load_file, save
from torch import nn

import agt
from agt.errors import AgtError, ConfigError
from agt.manifest import Manifest, seal
from agt.unlearning.keys import NAME as KEY
from agt_cli.cli import main
from agt_cli.report.finished import open_run

PUBLIC = "training.chosen_on=public"
DATA = ("dataset.n_train=80", "training.epochs=2", "kgrid.max=3", "compute.kernel=reference", "compute.threads=1", PUBLIC)
BOX = (*DATA, "model=linear")
LINEAR = (*DATA, "model=linear", "training.loss=binary_cross_entropy", "training.clip=0.5", "training.momentum=0")
TWO = ("ensemble.members=2",)
TRAINED = {
    "boxes of an mlp": (*DATA, "model.hidden=[4]"),
    "stability": (*LINEAR, "certificate=stability"),
    "erm": (*LINEAR, "certificate=erm", "training.weight_decay=0.1", "certificate.tolerance=1e-6"),
    "removal": (*LINEAR, "certificate=removal", "training.weight_decay=0.1"),
    "ensemble of boxes": (*BOX, *TWO),
    "ensemble of linear heads": (*LINEAR, *TWO, "certificate=stability"),
    "tube": (*DATA, "certificate=tube", "model.hidden=[4]"),
    "noise": (*BOX, "noise.epsilon=1", "training.clip=0.05"),
    "whitened features": (
        *LINEAR, "certificate=stability", "certificate.features.whiten=0.5", "certificate.features.public=test",
    ),
}  # fmt: skip
WEIGHTS = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")
PLAN = ("eps=[1.0]", "queries=[10]", "mechanisms=[randomized_response]")
READ = {
    "certificates": ("certify", "boxes of an mlp", ("map_resolution=12",)),
    "plan": ("plan", "stability", PLAN),
    "labels": ("predict", "boxes of an mlp", ("mechanism.eps=1",)),
    "released weights": ("predict", "stability", WEIGHTS),
    "quantile": ("predict", "boxes of an mlp", ("mechanism=certified_quantile", "mechanism.eps=1")),
}
SAVED: dict[str, dict[str, Any]] = {
    "saved linear head": {},
    "saved boxes of a network": {"network": nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), "ks": 1},
    "saved ensemble": {"members": 2},
}
KINDS = (*TRAINED, *READ, *SAVED)
AT_LEAST = {"train": 150, "certify": 150, "plan": 150, "predict": 100, "agt.save": 100}  # tamperings of each folder


@dataclass(frozen=True)
class Run:
    """A finished run, or a saved model, that must not change between tests."""

    folder: Path
    command: str

    def read(self) -> object:
        return agt.load(self.folder) if self.command == "agt.save" else open_run(self.folder, self.command)

    @property
    def files(self) -> dict[str, Path]:
        unlisted = self.folder / KEY  # the run's secret, which is no part of a state (agt/unlearning/keys.py)
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file() and path != unlisted)
        return {path.relative_to(self.folder).as_posix(): path for path in paths}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One small folder of every kind."""
    home = tmp_path_factory.mktemp("runs")
    found = {}
    for name, settings in TRAINED.items():
        found[name] = Run(home / name.replace(" ", "_"), "train")
        assert main(["train", *settings, f"hydra.run.dir={found[name].folder}", "-q", "--json"]) == 0, name
    for name, (command, trained, settings) in READ.items():
        found[name] = Run(home / name.replace(" ", "_"), command)
        here = (f"run={found[trained].folder}", f"hydra.run.dir={found[name].folder}", f"output_dir={home}")
        assert main([command, *here, *settings, "-q", "--json"]) == 0, name
    y = np.arange(20) % 2
    for name, given in SAVED.items():
        found[name] = Run(home / name.replace(" ", "_"), "agt.save")
        x = np.random.default_rng(0).normal(size=(20, 2)) + y[:, None]
        agt.fit(x, y, declared=agt.Declared(size=20), compute={"threads": 1}, **given).save(found[name].folder)
    return found


# -- the ways to spoil a file ----------------------------------------------------------------------------------------------

Change = tuple[str, Callable[[bytes], bytes | None]]  # what it does; None: the file is deleted


def flip(place: int, bit: int, content: bytes) -> bytes:
    spoilt = bytearray(content)
    spoilt[place] ^= 1 << bit
    return bytes(spoilt)


def of_bytes(content: bytes, rng: np.random.Generator) -> Iterator[Change]:
    """What a disk, a transfer or a careless hand does to any file."""
    places = {"first": 0, "middle": len(content) // 2, "last": len(content) - 1}
    places |= {f"random {i}": int(rng.integers(len(content))) for i in range(3)}
    for name, place in places.items():
        yield f"flip a bit of the {name} byte", partial(flip, place, int(rng.integers(8)))
    yield "truncate", lambda content: content[: len(content) // 2]
    yield "cut the last byte", lambda content: content[:-1]
    yield "append a byte", lambda content: content + b"\n"
    yield "empty", lambda _: b""
    yield "delete", lambda _: None


def of_tensors(path: Path) -> Iterator[Change]:
    """A valid safetensors file with other numbers in it; boxes stay boxes."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    for name in tensors:
        yield f"scale {name}", partial(lambda n, _: save(tensors | {n: 100 * tensors[n]}, metadata), name)
        yield f"negate {name}", partial(lambda n, _: save(tensors | {n: -tensors[n]}, metadata), name)
    if any(name.startswith("lower.") for name in tensors):
        middle = {n: (tensors[n] + tensors[n.replace("lower", "upper")]) / 2 for n in tensors if n.startswith("lower.")}
        narrow = {end + n[5:]: m for n, m in middle.items() for end in ("lower", "upper")}
        yield "shrink the boxes to points", lambda _: save(narrow, metadata)


def other(value: Any) -> Any:
    """A value of the same type that is not this one."""
    if isinstance(value, bool) or value is None:
        return not value
    return value * 2 + 1 if isinstance(value, int | float) else f"{value}x"


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict | list) and node:
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from leaves(node[key], (*path, key))
    else:
        yield path


def edited(text: bytes, path: tuple[Any, ...], parse: Callable[[bytes], Any], write: Callable[[Any], str]) -> bytes:
    value = parse(text)
    node = value
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = other(node[path[-1]])
    return write(value).encode()


def of_text(path: Path) -> Iterator[Change]:
    """A valid file with one value edited, each in its turn."""
    if path.suffix == ".json":
        parse, write = json.loads, partial(json.dumps, indent=2)
    elif path.suffix == ".yaml":
        parse = partial(yaml.load, Loader=yaml.CSafeLoader)
        write = partial(yaml.dump, Dumper=yaml.CSafeDumper, sort_keys=False)
    else:
        return
    for place in leaves(parse(path.read_bytes())):
        if place:
            yield f"edit {'.'.join(map(str, place))}", partial(edited, path=place, parse=parse, write=write)


def of_manifest(path: Path) -> Iterator[Change]:
    """The list itself: by hand, and by somebody who knows how its seal is made."""
    value = json.loads(path.read_bytes())
    files: dict[str, str] = value["files"]
    absent = dict(files) | {"absent.txt": 64 * "0"}
    yield "other whitespace", lambda content: content.replace(b"  ", b"    ")
    yield "a space at the end", lambda content: content + b" "
    yield "windows lines", lambda content: content.replace(b"\n", b"\r\n")
    yield "no seal", lambda _: json.dumps({k: v for k, v in value.items() if k != "seal"}, indent=2).encode()
    yield "a list", lambda _: b"[]\n"
    yield "an entry added", lambda _: json.dumps(value | {"files": absent}, indent=2, sort_keys=True).encode()
    for number in (0, 2, True, "1", None):
        yield f"format {number!r}", partial(lambda n, _: json.dumps(value | {"format": n}).encode(), number)
    for name in files:
        rest = {n: h for n, h in files.items() if n != name}
        zeros = files | {name: 64 * "0"}
        by_hand = json.dumps(value | {"files": rest}, indent=2, sort_keys=True).encode() + b"\n"
        yield f"{name} removed", partial(lambda content, _: content, by_hand)
        sealed = seal({"command": value["command"], "files": zeros})
        yield f"another hash of {name}, sealed", partial(lambda content, _: content, sealed)
    for name in ("config.yaml", "env.json", "metrics.json", "status.json"):
        rest = {n: h for n, h in files.items() if n != name}
        sealed = seal({"command": value["command"], "files": rest})
        yield f"{name} removed, sealed", partial(lambda content, _: content, sealed)
    yield "an entry added, sealed", lambda _: seal({"command": value["command"], "files": absent})
    yield "another command, sealed", lambda _: seal({"command": "audit", "files": files})
    for name in ("../other/config.yaml", "/dev/zero", "a//b", "./config.yaml"):
        sealed = seal({"command": value["command"], "files": files | {name: 64 * "0"}})
        yield f"{name} added, sealed", partial(lambda content, _: content, sealed)


def tamperings(run: Run) -> Iterator[tuple[str, str]]:
    """Spoil a file, let the caller look, and put it back: (name of the file, what was done)."""
    rng = np.random.default_rng(0)
    for name, path in run.files.items():
        content = path.read_bytes()
        ways = [*of_bytes(content, rng), *of_text(path)]
        ways += [*of_tensors(path)] if path.suffix == ".safetensors" else []
        ways += [*of_manifest(path)] if name == "manifest.json" else []
        siblings = [p for p in path.parent.iterdir() if p.is_file() and p != path and p.read_bytes() != content]
        ways += [(f"put {p.name} in its place", partial(lambda p, _: p.read_bytes(), p)) for p in siblings[:2]]
        for what, change in ways:
            spoilt = change(content)
            if spoilt == content:
                continue
            if spoilt is None:
                path.unlink()
            else:
                path.write_bytes(spoilt)
            try:
                yield name, what
            finally:
                path.write_bytes(content)


# -- what the reader does --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_is_listed_with_its_hash(runs: dict[str, Run], kind: str) -> None:
    """Nothing is written past the record, and nothing is listed that is not there."""
    run = runs[kind]
    files = run.files
    listed = json.loads(files.pop("manifest.json").read_bytes())["files"]
    assert listed == {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


COUNTED: dict[str, int] = {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_change_is_refused_by_name(runs: dict[str, Run], kind: str) -> None:
    run, count = runs[kind], 0
    run.read()
    for name, what in tamperings(run):
        with pytest.raises(ConfigError) as caught:
            run.read()
        said = str(caught.value)
        assert str(run.folder) in said, (name, what)
        assert name in said.replace(str(run.folder), ""), (name, what, said)
        assert "\n" not in said.strip() or name == "status.json", (name, what, said)
        count += 1
    run.read()
    COUNTED[kind] = count
    assert count >= AT_LEAST[run.command], count


def test_there_were_enough_of_them() -> None:
    if len(COUNTED) < len(KINDS):
        pytest.skip("counts all kinds together: run the whole file")
    print(COUNTED, sum(COUNTED.values()))  # pytest -s shows it
    assert sum(COUNTED.values()) >= 500, COUNTED


@pytest.mark.parametrize("kind", ["boxes of an mlp", "ensemble of linear heads", "certificates", "released weights"])
def test_without_the_hashes_most_changes_pass_unnoticed(
    runs: dict[str, Run], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite itself: it would show a reader that compares nothing."""
    run, unnoticed, count = runs[kind], 0, 0
    monkeypatch.setattr(Manifest, "verify", lambda *_: None)
    monkeypatch.setattr(Manifest, "_compare", lambda *_: None)
    for name, _ in tamperings(run):
        if name == "manifest.json":
            continue
        count += 1
        try:
            run.read()
            unnoticed += 1
        except (AgtError, UnicodeDecodeError):
            pass
    assert unnoticed > 0.7 * count, (unnoticed, count)


def spoil(folder: Path) -> str:
    """A change that today's numbers would hide: the widest box under the narrowest one's name, or weights times 100."""
    bounds = sorted(folder.rglob("bounds/*.safetensors"))
    if bounds:
        bounds[-1].write_bytes(bounds[0].read_bytes())
        return bounds[-1].name
    path = sorted(folder.rglob("model.safetensors"))[0]
    path.write_bytes(save({name: 100 * tensor for name, tensor in load_file(path).items()}))
    return path.name


READERS = {"certify": ("map_resolution=0",), "plan": PLAN, "predict": ("mechanism.eps=1",)}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("kind", TRAINED)
def test_from_the_command_line(
    runs: dict[str, Run], tmp_path: Path, kind: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused with exit code 2 and the file's name; with the digest, also where the manifest was made to fit."""
    folder = tmp_path / "run"
    shutil.copytree(runs[kind].folder, folder)
    digest = f"digest=sha256:{sha256((folder / 'manifest.json').read_bytes()).hexdigest()}"
    name = spoil(folder)
    capsys.readouterr()
    arguments = (command, f"run={folder}", f"hydra.run.dir={tmp_path / 'out'}", f"output_dir={tmp_path}", *READERS[command])
    assert main([*arguments, "-q"]) == 2
    out, err = capsys.readouterr()
    assert name in err
    assert not out
    reseal(folder)
    assert main([*arguments, digest, "-q"]) == 2
    assert re.search(r"manifest\.json has the digest sha256:[0-9a-f]{64} and digest asks for", capsys.readouterr().err)


def test_released_weights_from_the_command_line(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(runs["released weights"].folder, folder)
    digest = sha256((folder / "manifest.json").read_bytes()).hexdigest()
    arguments = ["predict", f"run={runs['stability'].folder}", "mechanism=release_weights", f"mechanism.weights={folder}"]
    arguments += [f"hydra.run.dir={tmp_path / 'out'}", f"output_dir={tmp_path}", "-q"]
    path = folder / "released_weights.safetensors"
    path.write_bytes(save({"weight": -load_file(path)["weight"]}))
    assert main(arguments) == 2
    assert "released_weights.safetensors is not what manifest.json says" in capsys.readouterr().err
    reseal(folder)
    shutil.rmtree(tmp_path / "out")
    assert main([*arguments, f"mechanism.weights_digest={digest}"]) == 2
    assert "mechanism.weights_digest asks for" in capsys.readouterr().err
    labels = tmp_path / "labels"
    shutil.copytree(runs["labels"].folder, labels)
    for name in ("released_weights.safetensors", "released_weights.json"):
        shutil.copy(runs["released weights"].folder / name, labels)
    shutil.rmtree(tmp_path / "out")
    assert main([*arguments, f"mechanism.weights={labels}"]) == 2
    err = capsys.readouterr().err
    assert "released from the run" in err, "of another run, before it is asked what it released"


def test_weights_dropped_into_another_release_are_not_read(
    runs: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"run={runs['stability'].folder}", f"output_dir={tmp_path}", "-q"]
    labels = tmp_path / "labels"
    assert main(["predict", *arguments, "mechanism.eps=1", f"hydra.run.dir={labels}"]) == 0
    for name in ("released_weights.safetensors", "released_weights.json"):
        shutil.copy(runs["released weights"].folder / name, labels)
    capsys.readouterr()
    assert main(["predict", *arguments, "mechanism=release_weights", f"mechanism.weights={labels}"]) == 2
    assert "labels: released no weights: was it a run with" in capsys.readouterr().err
