"""What a release gives away is on disk before it is drawn; the next one says what an unfinished
one may have given.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd
import pytest

from agt.data.prepared import FORMAT
from agt.errors import AgtError
from agt.numeric import SystemRandomness
from agt.store.atomic import Pending
from agt.store.manifest import seal_manifest
from agt.store.reading import file_sha256
from agt.store.sealed import seal
from agt_cli.releasing import spent as spending
from agt_cli.releasing.label_table import LabelTable
from agt_cli.report.finished import spent_lines
from agt_cli.report.record import RunRecord

from .conftest import TINY, Agt

WITH_SOURCE = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
LABELS = ("mechanism.eps=1",)
WEIGHTS = ("mechanism=release_weights", "total.eps=1", "total.delta=1e-5")
QUANTILE = ("mechanism=certified_quantile", "mechanism.eps=1")
KINDS = {
    "labels": (LABELS, "labels.csv", "(20, 0)"),
    "weights": (WEIGHTS, "released_weights.safetensors", "(1, 1e-05)"),
    "a number": (QUANTILE, "report.md", "1-differentially"),
}


Break = Callable[[str], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Makes every later write of a file of that name fail, as a full disk does; an empty name:
    none.
    """
    real = Pending.opened
    names = [""]

    def opened(self: Pending) -> AbstractContextManager[BinaryIO]:
        if self.path.name == names[0]:
            raise OSError(28, "No space left on device", str(self.path))
        return real(self)

    monkeypatch.setattr(Pending, "opened", opened)
    return lambda name: names.__setitem__(0, name)


def of(home: Path, what: str) -> str:
    return f"run={home / ('linear' if what == 'weights' else 'box')}"


def only(pattern: str) -> Path:
    (path,) = Path("outputs/predict").glob(pattern)
    return path


@pytest.mark.parametrize("what", KINDS)
def test_what_is_spent_is_told_before_and_an_attempt_that_failed_is_remembered(
    agt: Agt, home: Path, broken: Break, what: str
) -> None:
    asked, file, total = KINDS[what]
    broken(file)
    failed = agt("predict", of(home, what), *asked)
    folder = only("*/spent.json").parent
    assert failed.code == 1
    assert f"{file}: " in failed.err
    assert f"{folder}/spent.json" in failed.err, "what may have been drawn"
    errors = [line.startswith("agt: error: ") for line in failed.err.splitlines()]
    assert errors.index(True) == len(errors) - 1, "one, after what the owner may expect"
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"
    spent = json.loads((folder / "spent.json").read_text())
    assert (spent["what"], spent["simulated"], spent["queries"]) == (what, False, 20)
    assert total in spent_lines(spent)[0]
    assert spent["trained_run"] == str(Path(of(home, what)[4:]).resolve())
    assert (
        spent["trained_digest"] == json.loads((folder / "env.json").read_text())["trained_digest"]
    )
    broken("")
    again = agt("predict", of(home, what), *asked).ended(0)
    report = max(Path("outputs/predict").glob("*/report.md")).read_text()
    for part in (str(folder), spent["time"], "failed", what, spent["mechanism"]):
        assert part in again.out.splitlines()[0], "before anything is drawn"
        assert part in report
    assert total in again.out.splitlines()[0]
    value = agt("predict", of(home, what), *asked, "--json", "-q").json
    assert sum(str(folder) in line for line in value["words"]) == 1
    others = [run for run in folder.parent.iterdir() if run != folder]
    assert not any(str(run) in line for run in others for line in value["words"]), (
        "one that ended well is not said"
    )
    assert str(folder) not in value["claim"]


def test_another_model_s_attempts_and_simulations_are_not_counted(
    agt: Agt, home: Path, broken: Break
) -> None:
    broken("labels.csv")
    assert agt("predict", f"run={home / 'linear'}", *LABELS).code == 1
    simulated = agt("predict", f"run={home / 'box'}", *LABELS, "seed=1").ended(1)
    assert "spent.json" not in simulated.err
    attempts = [str(path.parent) for path in Path("outputs/predict").glob("*/spent.json")]
    assert len(attempts) == 2
    broken("")
    linear = f"run={home / 'linear'}"
    for words, told in (
        ((f"run={home / 'box'}", *LABELS), 0),
        ((linear, *LABELS), 1),
        ((linear, *LABELS, "seed=1"), 0),
    ):
        first = agt("predict", *words).ended(0).out.splitlines()[0]
        assert sum(attempt in first for attempt in attempts) == told, "of this model, not simulated"


def test_an_attempt_whose_budget_is_not_in_fields_may_have_spent_any_amount(
    agt: Agt, home: Path, broken: Break
) -> None:
    broken("labels.csv")
    agt("predict", of(home, "labels"), *LABELS).ended(1)
    path = only("*/spent.json")
    value = {
        key: entry
        for key, entry in json.loads(path.read_text()).items()
        if key not in ("seal", "format")
    }
    sentences = {
        "guarantee": "1-differentially private",
        "totals": ["all 20 together: (20, 0)-as it was said"],
    }
    path.write_bytes(seal_manifest({**value, **sentences}))
    broken("")
    again = agt("predict", of(home, "labels"), *LABELS).ended(0)
    assert "assume that this attempt spent an unknown amount" in again.out.splitlines()[0]


def test_nothing_is_drawn_unless_what_it_spends_is_on_disk(
    agt: Agt, home: Path, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = []
    for name in ("words", "below"):
        real = getattr(SystemRandomness, name)
        monkeypatch.setattr(
            SystemRandomness, name, lambda self, n, real=real: draws.append(n) or real(self, n)
        )
    broken("spent.json")
    for what, (asked, _, _) in KINDS.items():
        agt("predict", of(home, what), *asked).ended(1, "spent.json: ")
    assert not draws
    assert not list(Path("outputs").rglob("spent.json"))
    assert not list(Path("outputs").rglob("*.part*")), (
        "the room that was taken for the labels is given back"
    )
    broken("")
    failed = [str(path) for path in Path("outputs/predict").iterdir()]
    said = agt("predict", f"run={home / 'box'}", *LABELS).ended(0)
    assert not any(path in said.out for path in failed), "nothing was spent"
    assert draws, "the count would show a draw"


def child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own that runs ``code`` first."""
    code = (
        f"import os, resource, sys\nfrom agt_cli.cli import main\n{code}\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=WITH_SOURCE
    )


def test_a_disk_too_full_for_the_labels_is_found_out_before_they_are_drawn(
    agt: Agt, home: Path
) -> None:
    """No file of over 30,000 bytes may be written; 2,000 labels need more."""
    names = [f"query number {place}" for place in range(2000)]
    pd.DataFrame({"id": names, "x1": np.zeros(2000), "x2": 0.0}).to_csv("many.csv", index=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        said = agt("predict", f"run={home / 'box'}", "inputs=many.csv", *LABELS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said.ended(1, "labels.csv: ")
    assert "spent.json" not in said.err
    (folder,) = Path("outputs/predict").iterdir()
    assert not {"spent.json", "labels.csv"} & {path.name for path in folder.iterdir()}
    assert str(folder) not in agt("predict", f"run={home / 'box'}", *LABELS).out


def test_jobs_of_a_sweep_are_remembered(agt: Agt, home: Path, broken: Break) -> None:
    broken("labels.csv")
    assert agt("predict", "-m", f"run={home / 'box'}", "mechanism.eps=1,2").code == 1
    broken("")
    earlier = [str(path.parent) for path in Path("outputs/predict").rglob("spent.json")]
    out = agt("predict", f"run={home / 'box'}", *LABELS).out
    assert [attempt in out for attempt in earlier] == [True, True]
    for total in ("(20, 0)", "(40, 0)"):
        assert total in out
    beside = agt(
        "predict", f"run={home / 'box'}", *LABELS, f"output_dir={Path.cwd() / 'other'}"
    ).out
    assert not any(attempt in beside for attempt in earlier), "elsewhere is not looked at"


@pytest.mark.parametrize("content", [b"", b"{}", b"flipped"])
def test_a_note_that_cannot_be_read_counts_as_spent(
    agt: Agt, home: Path, broken: Break, content: bytes
) -> None:
    broken("labels.csv")
    assert agt("predict", f"run={home / 'box'}", *LABELS).code == 1
    broken("")
    path = only("*/spent.json")
    good = path.read_bytes()
    path.write_bytes(
        good.replace(b'"queries": 20', b'"queries": 10') if content == b"flipped" else content
    )
    assert path.read_bytes() != good
    said = agt("predict", f"run={home / 'box'}", *LABELS).ended(0)
    assert f"{path.parent}, failed" in said.out.splitlines()[0]
    assert "(20, 0)" not in said.out.splitlines()[0], "the amount is unknown"


@pytest.mark.parametrize(
    "classes",
    [("a", "b"), ("no", "yes, it is"), ('"', "xx"), ("é", "ab"), ("a\nb", "abcd"), ("", "q")],
)
def test_labels_never_need_more_than_the_room_that_was_taken(classes: tuple[str, ...]) -> None:
    table = LabelTable(np.array(["1", "two", "3,4"]), classes)
    sizes = []
    for labels in product(range(2), repeat=3):
        file = BytesIO()
        table.write(file, [np.array(labels)])
        sizes.append(len(file.getvalue()))
    assert table.size == max(sizes)


def test_noise_in_training_is_a_release_too(agt: Agt, broken: Break) -> None:
    noisy = ("train", *TINY, "training.chosen_on=public", "noise.epsilon=2")
    broken("model.safetensors")
    agt(*noisy).ended(1, "spent.json")
    (spent,) = Path("outputs/train").glob("*/spent.json")
    told = json.loads(spent.read_text())
    assert (told["guarantee"], told["totals"]) == (
        {"kind": "approximate", "eps": 2.0, "delta": 1e-5},
        [],
    )
    broken("")
    again = agt(*noisy).ended(0)
    assert str(spent.parent) in again.out.splitlines()[0]
    assert "(2, 1e-05)" in again.out.splitlines()[0]
    simulated = agt(*noisy, "noise.seed=1")
    assert str(spent.parent) not in simulated.out
    plain = agt("train", *TINY).ended(0)
    assert str(spent.parent) not in plain.out
    assert not (max(Path("outputs/train").iterdir()) / "spent.json").exists()


def test_a_status_alone_does_not_end_an_attempt(agt: Agt, home: Path, broken: Break) -> None:
    broken("labels.csv")
    assert agt("predict", of(home, "labels"), *LABELS).code == 1
    broken("")
    status = only("*/status.json")
    status.write_text(status.read_text().replace("failed", "done"))
    assert str(status.parent) in agt("predict", of(home, "labels"), *LABELS).out


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"state": 3}', None], ids=["deep", "odd", "pipe"]
)
def test_odd_files_beside_a_run_stop_nothing(
    agt: Agt, home: Path, broken: Break, content: bytes | None
) -> None:
    place = Path("outputs/predict/odd")
    place.mkdir(parents=True)
    (place / "spent.json").write_bytes(b"{}")
    if content is None:
        os.mkfifo(place / "status.json")
    else:
        (place / "status.json").write_bytes(content)
    said = agt("predict", of(home, "labels"), *LABELS).ended(0)
    assert str(place) in said.out.splitlines()[0]
    agt("certify", f"run={place}").ended(2, "status.json")


def test_a_preparation_that_is_forgotten_makes_no_claim(agt: Agt) -> None:
    """prepared.json says that records were not prepared each on its own; without it the run's
    own record still does.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3)).astype(np.float32)
    folder = Path("data/prep")
    folder.mkdir(parents=True)
    arrays = {"x": x, "label": (x[:, 0] > 0).astype(np.uint8)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    described = {
        name: {
            "shape": a.shape,
            "dtype": a.dtype.str,
            "sha256": file_sha256(folder / f"{name}.npy"),
        }
        for name, a in arrays.items()
    }
    why = "embedded eight at once"
    alone = {"rows": {"held": False, "why": why}}
    (folder / "prepared.json").write_bytes(
        seal({"format": FORMAT, "arrays": described, "alone": alone})
    )
    settings = (
        "dataset=embeddings",
        "training=generic",
        "certificate=box",
        "dataset.path=prep",
        "dataset.declared_size=60",
    )
    more = (
        "dataset.classes=['0','1']",
        "training.chosen_on=public",
        "training.epochs=1",
        "kgrid.max=2",
    )
    run = agt("train", *settings, *more, "--json", "-q").json["run"]
    assert why in agt("predict", f"run={run}", *LABELS).err
    (folder / "prepared.json").unlink()
    agt("predict", f"run={run}", *LABELS).ended(2, "condition b", why)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_release_that_runs_out_of_memory_says_so_and_that_it_counts(
    tmp_path: Path, error: Exception
) -> None:
    """Of these, one has no words of its own, and the other the allocator's, which would hide
    that labels are spent.
    """
    about = spending.Spending("labels", "randomized_response", "each", (), 1, "blobs", False)
    with RunRecord(tmp_path / "run", "predict", {}) as record:
        told = pytest.raises(AgtError, match=r"compute\.memory_mb.*labels.*spent\.json")
        with told, spending.spending(record, {}, about):
            raise error
        record.finish()
