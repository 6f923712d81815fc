"""What agt doctor looks at, each with something wrong put in its way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from agt.errors import UnsoundError
from agt.kernels import select
from agt_cli.doctor import compute, settings, storage, versions
from agt_cli.report.checks import Check, Findings, State


def told(findings: Findings, name: str) -> Check:
    """The worst check of a name."""
    return max((check for check in findings.checks if check.name == name), key=lambda check: check.state.badness)


# -- versions --------------------------------------------------------------------------------------------------------------


def needing(monkeypatch: pytest.MonkeyPatch, *lines: str, python: str = ">=3.11") -> Findings:
    monkeypatch.setattr(versions, "declared", lambda: (SpecifierSet(python), [Requirement(line) for line in lines]))
    findings = Findings()
    versions.check(findings)
    return findings


def test_what_is_installed_here_fits() -> None:
    findings = Findings()
    versions.check(findings)
    assert not [check for check in findings.checks if check.state is State.PROBLEM]
    assert {"python", "packages"} <= {check.name for check in findings.checks}


@pytest.mark.parametrize(
    ("line", "words"),
    [("numpy>=99", "numpy"), ("omegaconf<2.0", "omegaconf"), ("no-such-package>=1", "no-such-package is not installed")],
)
def test_a_package_out_of_its_range_is_named(monkeypatch: pytest.MonkeyPatch, line: str, words: str) -> None:
    check = told(needing(monkeypatch, line, "scipy>=1"), "packages")
    assert check.state is State.PROBLEM
    assert words in check.words


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(needing(monkeypatch, python=">=9"), "python").state is State.PROBLEM


def test_an_extra_that_is_not_there_says_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = needing(monkeypatch, "no-such-package>=1; extra == 'dpsgd'")
    assert told(findings, "packages").state is State.OK, "it is only an extra"
    check = told(findings, "extra dpsgd")
    assert check.state is State.NOTE
    assert "the DP-SGD baselines" in check.words
    assert "agt-certified[dpsgd]" in check.remedy


def test_a_torchvision_for_cuda_beside_a_cpu_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "package_version", lambda name: "0.24.0")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(versions.sys, "platform", "linux")
    assert told(needing(monkeypatch), "torchvision").state is State.NOTE


# -- what computes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def flushed() -> Iterator[None]:
    """A thread in which numbers below 2^-1022 are zero, as a library's -ffast-math leaves it."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    yield
    torch.set_flush_denormal(False)


def test_floating_point_is_as_it_should_be() -> None:
    assert not compute.floating_point()


def test_flushing_to_zero_is_seen(flushed: None) -> None:
    wrong = compute.floating_point()
    assert any("NumPy" in line for line in wrong)
    assert any("set_flush_denormal" in line for line in wrong)


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (UnsoundError("its numbers differ"), State.PROBLEM, "its numbers differ"),
        (ImportError("Numba needs NumPy 2.0 or less"), State.NOTE, "more slowly"),
    ],
)
def test_a_kernel_that_is_wrong_is_a_problem_and_one_that_is_not_there_a_note(
    monkeypatch: pytest.MonkeyPatch, error: Exception, state: State, words: str
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(select, "load", fail)
    findings = Findings()
    compute.check(findings)
    assert told(findings, "kernel cpu").state is state
    assert words in told(findings, "kernel cpu").words


GROUPS = {
    "version 2": ({"cpu.max": "150000 100000"}, "0::/\n", 1.5),
    "version 2, below": ({"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, "0::/a/b\n", 0.5),
    "version 1": ({"cpu/x/cpu.cfs_quota_us": "200000", "cpu/x/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/x\n", 2.0),
    "no limit": ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/\n0::/\n", None),
    "nonsense": ({"cpu.max": "all of them"}, "0::/\nx\n", None),
    "nothing": ({}, "", None),
}


@pytest.mark.parametrize("name", GROUPS)
def test_what_a_container_may_use(tmp_path: Path, name: str) -> None:
    files, own, expected = GROUPS[name]
    for place, content in files.items():
        path = tmp_path / "groups" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "own").write_text(own)
    assert compute.cpu_quota(tmp_path / "groups", tmp_path / "own") == expected


def test_more_threads_than_processors_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "cpu_quota", lambda: 0.4)
    findings = Findings()
    compute.check(findings)
    assert told(findings, "threads").state is State.NOTE
    assert told(findings, "threads").remedy == "compute.threads=1"


# -- disk ------------------------------------------------------------------------------------------------------------------


def test_a_disk_is_tried_where_runs_would_be_and_left_as_it_was(tmp_path: Path) -> None:
    findings = Findings()
    storage.check(tmp_path / "outputs/of/mine", findings)
    assert told(findings, "disk").state in (State.OK, State.NOTE)
    assert "durable writes a second" in told(findings, "disk").words
    assert told(findings, "locks").state is State.OK
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_nothing_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(storage.tempfile, "TemporaryDirectory", refuse)
    findings = Findings()
    storage.check(tmp_path, findings)
    assert told(findings, "disk").state is State.PROBLEM
    assert "Read-only file system" in told(findings, "disk").words


def test_a_network_disk_takes_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "file_system", lambda _: "nfs4")
    findings = Findings()
    storage.check(tmp_path, findings)
    assert "nfs4" in told(findings, "ledgers").words
    assert told(findings, "ledgers").state is State.NOTE


def test_locks_that_lock_nothing_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.fcntl, "flock", lambda *_: None)
    findings = Findings()
    storage.check(tmp_path, findings)
    assert told(findings, "locks").state is State.PROBLEM
    assert "no file locks here" in told(findings, "locks").words


# -- configuration, data, clock --------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a ./conf of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/dataset").mkdir(parents=True)
    return tmp_path


def of_settings(here: Path) -> Findings:
    findings = Findings()
    settings.check(here / "outputs", here / "data", findings)
    return findings


def test_a_file_of_the_users_own_that_cannot_be_read_is_named(here: Path) -> None:
    (here / "conf/dataset/mine.yaml").write_text("a: [\n")
    check = told(of_settings(here), "conf")
    assert check.state is State.PROBLEM
    assert "mine.yaml, line 2" in check.words


def test_a_file_that_agts_own_hides_is_a_note(here: Path) -> None:
    (here / "conf/dataset/blobs.yaml").write_text("n_train: 5\n")
    check = told(of_settings(here), "conf")
    assert check.state is State.NOTE
    assert "never read" in check.words


def test_data_is_there_or_not(here: Path) -> None:
    (here / "conf/dataset/mine.yaml").write_text("defaults: [table, _self_]\npath: mine.csv\n")
    assert "mine (mine.csv)" in told(of_settings(here), "data").words
    (here / "data").mkdir()
    (here / "data/mine.csv").write_text("a\n")
    assert any(check.words == "there: mine" for check in of_settings(here).checks)


def test_an_official_file_of_another_hash_is_a_problem(here: Path) -> None:
    (here / "data").mkdir()
    (here / "data/pneumoniamnist.npz").write_bytes(b"")
    check = told(of_settings(here), "data")
    if versions.find_spec("medmnist") is None:
        pytest.skip("needs medmnist for the hash")
    assert check.state is State.PROBLEM
    assert "MD5" in check.words


@pytest.mark.parametrize(("year", "state"), [(2020, State.OK), (2999, State.NOTE)])
def test_a_clock_behind_the_newest_run_is_a_note(here: Path, year: int, state: State) -> None:
    folder = here / "outputs/train/x"
    folder.mkdir(parents=True)
    times = f'"started": "{year}-01-01T00:00:00+00:00"'
    (folder / "status.json").write_text(f'{{"command": "train", "state": "done", {times}}}')
    assert told(of_settings(here), "clock").state is state


def test_completion_is_there_or_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setenv("HOME", str(here))
    assert told(of_settings(here), "completion").state is State.NOTE
    (here / ".zshrc").write_text('eval "$(agt completion zsh)"\n')
    assert told(of_settings(here), "completion").state is State.OK
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert told(of_settings(here), "completion").state is State.UNCHECKED
