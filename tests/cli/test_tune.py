"""agt tune: an experiment chosen on public rows, of which private records know nothing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from .conftest import Agt, Said

TABLE = (
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.split=split",
    "dataset.declared_size=200",
    "dataset.bins=4",
    "dataset.classes=[no,yes]",
    "+dataset.numeric={a: [-4, 4], b: [-4, 4]}",
)
GRID = "tune.grid={training.caution: [0.5, 1.0, 2.0], dataset.bins: [4, 8]}"
QUIET = ("-q", "--json", "tune.k=3", "tune.folds=3", GRID)


def write(seed: int = 0, private: int = 200, test_seed: int = 9) -> None:
    """t.csv: private training rows, public training rows, and test rows."""
    parts = []
    for split, n, s, public in (
        ("train", private, seed, 0),
        ("train", 60, 50, 1),
        ("test", 60, test_seed, 0),
    ):
        rng = np.random.default_rng(s)
        y = rng.integers(0, 2, n)
        x = rng.normal(size=(n, 2)) + y[:, None]
        parts.append(
            pd.DataFrame(
                {
                    "a": x[:, 0],
                    "b": x[:, 1],
                    "y": np.where(y, "yes", "no"),
                    "split": split,
                    "p": public,
                }
            )
        )
    pd.concat(parts).to_csv("t.csv", index=False)


def condition_e(said: Said) -> dict[str, str]:
    conditions = json.loads((Path(said.json["run"]) / "conditions.json").read_text())
    (e,) = (c for c in conditions if c["letter"] == "e")
    return {str(key): str(value) for key, value in e.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("public", ["test", "train", "public.csv"])
def test_an_experiment_chosen_on_public_rows_and_the_run_made_with_it(
    agt: Agt, public: str
) -> None:
    write()
    pd.read_csv("t.csv").iloc[-60:, :3].to_csv("public.csv", index=False)
    marks = ("dataset.public=p",) if public == "train" else ()
    said = agt("tune", *TABLE, *marks, *QUIET, f"tune.public={public}").ended(0)
    record = Path(said.json["run"])
    assert len(pd.read_csv(record / "tables" / "candidates.csv")) == 6
    assert "conf/experiment/table_tuned.yaml" in (record / "report.md").read_text()
    written = yaml.safe_load(Path("conf/experiment/table_tuned.yaml").read_text())
    assert written["training"]["chosen_on"] == "public"
    assert written["training"]["chosen_from"]["rows"] == public

    trained = agt("train", "experiment=table_tuned", "-q", "--json").ended(0)
    config = yaml.safe_load((Path(trained.json["run"]) / "config.yaml").read_text())
    for key, value in said.json["chosen"].items():
        part, name = key.split(".")
        assert config[part][name] == value
    e = condition_e(trained)
    assert e["standing"] == "declared", e["facts"]
    assert written["training"]["chosen_from"]["digest"] in e["facts"]
    again = agt("tune", *TABLE, *marks, *QUIET, f"tune.public={public}")
    assert (again.code, "tune.name=NAME" in again.err) == (2, True)


def test_private_records_leave_no_trace_in_the_file(agt: Agt) -> None:
    """Other private rows, and more of them: the same experiment, byte for byte."""
    files = []
    for seed, private in ((0, 200), (1, 200), (2, 230)):
        write(seed, private)
        said = agt("tune", *TABLE, *QUIET, "tune.public=test", f"tune.name=n{seed}").ended(0)
        files.append(Path(said.json["experiment"]).read_bytes())
    assert files[0] == files[1] == files[2]


def test_other_public_rows_void_the_declaration_and_a_word_on_the_line_renews_it(agt: Agt) -> None:
    write()
    assert agt("tune", *TABLE, *QUIET, "tune.public=test").code == 0
    write(test_seed=10)
    e = condition_e(agt("train", "experiment=table_tuned", "-q", "--json"))
    assert e["standing"] == "not held"
    assert "chosen_on_other_rows" in e["facts"]
    e = condition_e(agt("train", "experiment=table_tuned", "training.caution=7", "-q", "--json"))
    assert "'declared_for_other_settings'" in e["facts"]
    assert "'changed': ['training']" in e["facts"]
    e = condition_e(
        agt("train", "experiment=table_tuned", "training.chosen_on=public", "-q", "--json")
    )
    assert e["standing"] == "declared"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ((), "tune.public: no training record is marked public"),
        (("tune.public=test", "dataset.declared_size=null"), "dataset.declared_size"),
        (("tune.public=test", "dataset.classes=null"), "dataset.classes"),
        (("tune.public=test", "tune.folds=1"), "tune.folds"),
        (("tune.public=test", "tune.objective=acuracy"), "did you mean 'accuracy'"),
        (("tune.public=test", "tune.grid={training.cuation: [1]}"), "did you mean 'caution'"),
        (("tune.public=test", "tune.name=a/b"), "tune.name"),
        (("tune.public=test", "certificate=box"), "certificate"),
        (("tune.public=t.csv", "dataset.label=z"), "z"),
        (
            ("tune.private=true", "total.eps=1"),
            "tune.private=true: tuning on private records was removed",
        ),
        (("tune.trials.mean=2",), "tune.trials.mean=2: tuning on private records was removed"),
    ],
)
def test_what_is_refused_names_its_key(agt: Agt, more: tuple[str, ...], text: str) -> None:
    write()
    agt("tune", *TABLE, "tune.k=3", "-q", *more).ended(2, text)
    assert not Path("conf").exists()
