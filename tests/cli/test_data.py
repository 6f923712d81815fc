"""agt data prepare NAME: its words, its record, and what it says when data is not there."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from .conftest import Agt

ROOT = Path(__file__).parents[2]


@pytest.fixture
def statements(tmp_path: Path) -> Path:
    """A folder with a thousand statements in AMEX's schema; synthetic."""
    spec = spec_from_file_location("make_amex_like", ROOT / "scripts" / "make_amex_like.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make(tmp_path / "raw", 1_000, "csv")
    return tmp_path / "raw"


def test_prepare_and_train(agt: Agt, statements: Path) -> None:
    said = agt("data", "prepare", "amex", f"data_dir={statements}", "--json", "-q").ended(0)
    assert said.json["metrics"]["records"] == 1_000
    assert said.json["metrics"]["peak_memory_mib"] > 0
    assert (Path(said.json["run"]) / "report.md").read_text().count("experiment=amex") == 1
    again = agt("data", "prepare", "amex", f"data_dir={statements}", "--json", "-q")
    assert again.json["metrics"]["records"] == 1_000, (
        "a finished folder is reported again, not made again"
    )
    other = ("data", "prepare", "amex", f"data_dir={statements}", "prepare.missing=.5")
    agt(*other).ended(2, "prepare.missing=0.0", "prepare.missing=0.5")

    train = (
        "train",
        f"data_dir={statements}",
        "model=linear",
        "kgrid.max=2",
        "dataset.declared_size=900",
    )
    small = ("training.batch.count=1", "hydra.run.dir=t", "-q")
    assert agt(*train, "dataset=amex", *small).code == 0, (
        "customers, 13 statements at most, without a further setting"
    )
    conditions = pd.read_json(Path(statements.parent) / "t" / "conditions.json").set_index("letter")
    assert conditions.loc["b", "held"]
    assert "prepared_alone" in [fact["code"] for fact in conditions.loc["b", "facts"]]
    boxes = Path(statements.parent) / "t"
    assert "unit_rows: 13" in (boxes / "config.yaml").read_text()
    agt(*train, "dataset=amex_rows", *small[:1], "hydra.run.dir=r", "-q").ended(0)
    assert "unit_rows: 1\n" in (Path(statements.parent) / "r" / "config.yaml").read_text()
    agt(*train, "dataset=amex", "relation.unit_rows=12", *small[:1]).ended(
        2, "13", "relation.unit_rows"
    )


NO_REVIEWS = (
    (),
    ("load_dataset('stanfordnlp/imdb')", "prepare.reviews=imdb.parquet prepare.id=null"),
)
NO_MODEL = (
    ("prepare.reviews=r.csv", "prepare.id=null"),
    ("hf download openai-community/gpt2 config.json", "prepare.model=gpt2"),
)


@pytest.mark.sweep
@pytest.mark.parametrize(("more", "fragments"), [NO_REVIEWS, NO_MODEL])
def test_no_network(tmp_path: Path, more: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    """The hub out of reach: the commands to run where there is a network, and nothing in the
    models' place.
    """
    np.savetxt(
        tmp_path / "r.csv",
        [("good", 1), ("bad", 0)],
        fmt="%s",
        delimiter=",",
        header="text,label",
        comments="",
    )
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "hub"),
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
    }
    command = [
        sys.executable,
        "-m",
        "agt_cli",
        "data",
        "prepare",
        "imdb",
        f"data_dir={tmp_path}",
        *more,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=quiet, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    for fragment in fragments:
        assert fragment in done.stderr
    assert not list(tmp_path.glob("imdb_gpt2*"))
