"""The wheel carries the configuration, and the installed package finds it there."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import agt_cli
from agt_cli import config_files

ROOT = Path(__file__).parents[2]


def test_configuration_is_found_in_the_source_tree() -> None:
    config_files.config_dir.cache_clear()
    assert config_files.config_dir() == ROOT / "conf"


def test_configuration_inside_the_package_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "agt_cli"
    (package / "_conf").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    monkeypatch.setattr(agt_cli, "__file__", str(package / "__init__.py"))
    config_files.config_dir.cache_clear()
    try:
        assert config_files.config_dir() == package / "_conf"
    finally:
        config_files.config_dir.cache_clear()


@pytest.mark.sweep  # make wheel runs what it builds
def test_wheel_contains_package_and_configuration(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="needs the dev extra")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "conf").rglob("*.yaml"):
        assert f"agt_cli/_conf/{path.relative_to(ROOT / 'conf')}" in inside
    packages = ("agt", "agt_cli", "agt_audit")
    modules = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    for path in (*modules, *(ROOT / "agt_cli" / "report" / "page").iterdir()):
        if path.name != "_experiments.py":  # a wheel has the folder that it finds in a source tree
            assert str(path.relative_to(ROOT)) in inside
    assert "agt_cli/_experiments/__init__.py" in inside
