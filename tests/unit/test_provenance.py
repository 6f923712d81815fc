"""Which code a kept result comes from: found from its imports, so that no edit of it is missed."""

import shutil
from pathlib import Path

import pytest

import agt
import agt_cli
import experiments
from agt import provenance
from agt.errors import AgtError
from agt.provenance import code_digest, machine, reachable, targets
from experiments.runs import COMPUTE

EDITS = [
    ("agt/settings.py", "1.1 * normalizer + 6 *", "1.1 * normalizer + 7 *"),
    ("agt/certificates/votes.py", "- 1", "- 2"),
    ("agt/training/loop.py", "import", "import  "),
    ("agt/problem.py", "import", "import  "),
    ("agt/models/box.py", "import", "import  "),
    ("experiments/answers.py", "columns = ", "columns  = "),
    ("agt/data/dataset.py", "2.0**-53", "2.0**-52"),
    ("agt/data/blobs.py", "points**3", "points**4"),
    ("agt/kernels/cpu.py", "import", "import  "),
    ("agt/kernels/gpu.py", "import", "import  "),
    ("agt/__init__.py", "__version__", "__version__ "),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' own source, in a folder where it can be edited."""
    folder = tmp_path_factory.mktemp("copy")
    for package in (agt, agt_cli, experiments):
        source, skip = Path(str(package.__file__)).parent, shutil.ignore_patterns("__pycache__", "_*s")
        shutil.copytree(source, folder / source.name, ignore=skip)
    return folder


def digest(copy: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_places", lambda package: [copy / package])
        return code_digest((*COMPUTE, "agt.data.blobs"))


def test_a_copy_is_the_same_code(copy: Path) -> None:
    assert digest(copy) == code_digest((*COMPUTE, "agt.data.blobs"))


def test_an_edit_of_what_computes_is_other_code(copy: Path) -> None:
    """Edits one after another: each time a digest that was not seen before."""
    digests = [digest(copy)]
    for name, old, new in EDITS:
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new))
        digests.append(digest(copy))
        assert len(set(digests)) == len(digests), name


def test_an_edit_of_what_is_out_of_reach_changes_nothing(copy: Path) -> None:
    before = digest(copy)
    for name in (
        "agt_cli/cli.py",
        "experiments/frontier.py",
        "agt_cli/report/figures.py",
        "agt/data/table.py",
        "agt/unused.py",
    ):
        with (copy / name).open("a") as file:
            file.write("x = 1\n")
    assert digest(copy) == before


def package(folder: Path, **files: str) -> None:
    """A package ``mine``; ``__`` in a name stands for a folder."""
    for name, text in {"__init__": "", **files}.items():
        path = folder / "mine" / f"{name if name == '__init__' else name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_every_form_of_import_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = "sub/__init__"
    package(
        tmp_path,
        start=(
            "import mine.plain, os\nfrom mine import sibling\nfrom mine.named import thing\nfrom . import near\n"
            "from .nearer import thing as other\nfrom .sub.deep import *\nfrom .open import *\n"
            "def later():\n    import mine.lazy\n    if 0:\n        from .lazier import x\n"
            "load = import_module('mine.by_name')\nTABLE = {'a': 'mine.table:make', 'b': 'mine.listed.Class'}\n"
        ),
        plain="",
        sibling="",
        named="from numpy import array",
        near="",
        nearer="",
        sub__deep="from ..up import y\nfrom .. import upper",
        up="",
        upper="import mine.start",
        lazy="",
        lazier="",
        by_name="",
        table="",
        listed="",
        unused="import mine.also_unused",
        also_unused="",
    )
    (tmp_path / "mine" / f"{sub}.py").write_text("from . import loaded_with_it")
    (tmp_path / "mine" / "sub" / "loaded_with_it.py").write_text("")
    (tmp_path / "mine" / "open").mkdir()
    for name in ("__init__", "starred"):
        (tmp_path / "mine" / "open" / f"{name}.py").write_text("")
    expected = (
        "start plain sibling named near nearer sub sub.deep sub.loaded_with_it up upper lazy lazier by_name table listed"
    )
    expected += " open open.starred"
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(reachable(["mine.start"])) == {"mine", *(f"mine.{name}" for name in expected.split())}


def test_a_users_own_target_is_followed_within_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, data="from mine.helper import f\nfrom agt.data.dataset import records", helper="", other="")
    (tmp_path / "alone.py").write_text("import mine.other\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = {"dataset": {"_target_": "mine.data.Source", "part": [{"_target_": "alone.f"}]}, "model": {"hidden": [1]}}
    assert targets(config) == ("alone", "mine.data")
    both = ("agt.errors", *targets({"dataset": {"_target_": "mine.data.Source"}}))
    found = reachable(both)
    assert {name for name in found if name.startswith("mine")} == {"mine", "mine.data", "mine.helper"}
    assert "agt.data.dataset" in found, "what it takes of agt_cli is followed too"
    before = code_digest(both)
    (tmp_path / "mine" / "other.py").write_text("x = 1")
    assert code_digest(both) == before
    (tmp_path / "mine" / "helper.py").write_text("f = 1")
    assert code_digest(both) != before
    assert set(reachable(["alone"])) == {"alone"}


def test_code_that_is_in_no_file_is_refused() -> None:
    for name in ("__main__", "mine_is_not_there.data", "agt_cli.nothing"):
        with pytest.raises(AgtError, match=rf"the code of {name} is not in a file"):
            code_digest([name])


def test_the_machine_is_told_by_versions_and_kind() -> None:
    told = machine()
    assert {"python", "torch", "numpy", "numba", "scipy", "scikit-learn", "machine", "system"} <= told.keys()
    assert told["numpy"] is not None
    assert told["gpu"] is None
