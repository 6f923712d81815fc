"""Which code a kept result comes from, so that no edit of it is missed."""

from pathlib import Path

import pytest

from agt.errors import AgtError
from agt.provenance import code_digest, machine, package_digest, targets


def test_the_code_of_a_users_own_target_is_its_package_and_this_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    files = [
        tmp_path / name
        for name in ("mine/__init__.py", "mine/data.py", "mine/fast.so", "alone.py", "other.py")
    ]
    for path in files:
        path.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {
        "dataset": {"_target_": "mine.data.Source", "part": [{"_target_": "alone.f"}]},
        "model": {"hidden": [1]},
    }
    assert targets(config) == ("alone", "mine.data")
    digests = [code_digest(targets(config))]
    for path in files:
        path.write_text("x = 1")
        digests.append(code_digest(targets(config)))
    assert len(set(digests[:5])) == 5
    assert digests[5] == digests[4], "nobody names other.py"
    files[1].rename(files[1].with_name("renamed.py"))
    assert code_digest(["mine"]) not in (*digests, code_digest([]))
    monkeypatch.setattr(
        "agt.provenance.package_digest",
        lambda name: "edited" if name == "agt" else package_digest(name),
    )
    assert code_digest(targets(config)) not in digests


def test_code_that_is_in_no_file_is_refused() -> None:
    for name in ("__main__", "builtins.dict", "mine_is_not_there.data"):
        with pytest.raises(AgtError, match=rf"\b{name.partition('.')[0]}\b"):
            code_digest([name])


def test_the_machine_is_told_by_versions_and_kind() -> None:
    told = machine()
    assert {
        "python",
        "torch",
        "numpy",
        "numba",
        "scipy",
        "scikit-learn",
        "machine",
        "system",
    } <= told.keys()
    assert told["numpy"] is not None
    assert told["gpu"] is None
