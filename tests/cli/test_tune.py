"""agt tune: an experiment chosen on public rows, of which private records know nothing; and weights chosen privately."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from agt.ledger.book import AdmittedTable, Population
from agt.ledger.ledger import Ledger
from agt.mechanisms.composition import Allowance
from agt.mechanisms.tuning import Trials
from agt.numeric import SeededRandomness

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
PRIVATE = ("tune.private=true", "training.chosen_on=public", "total.eps=1")
QUIET = ("-q", "--json", "tune.k=3", "tune.folds=3", GRID)


def write(seed: int = 0, private: int = 200, test_seed: int = 9) -> None:
    """t.csv: private training rows, public training rows, and test rows."""
    parts = []
    for split, n, s, public in (("train", private, seed, 0), ("train", 60, 50, 1), ("test", 60, test_seed, 0)):
        rng = np.random.default_rng(s)
        y = rng.integers(0, 2, n)
        x = rng.normal(size=(n, 2)) + y[:, None]
        parts.append(pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(y, "yes", "no"), "split": split, "p": public}))
    pd.concat(parts).to_csv("t.csv", index=False)


def condition_e(said: Said) -> dict[str, str]:
    conditions = json.loads((Path(said.json["run"]) / "conditions.json").read_text())
    (e,) = (c for c in conditions if c["letter"] == "e")
    return {str(key): str(value) for key, value in e.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("public", ["test", "train", "public.csv"])
def test_an_experiment_chosen_on_public_rows_and_the_run_made_with_it(agt: Agt, public: str) -> None:
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
    assert e["standing"] == "declared", e["why"]
    assert written["training"]["chosen_from"]["digest"] in e["why"]
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
    assert "these are other rows" in e["why"]
    e = condition_e(agt("train", "experiment=table_tuned", "training.caution=7", "-q", "--json"))
    assert "declared for other settings (what differs: training)" in e["why"]
    e = condition_e(agt("train", "experiment=table_tuned", "training.chosen_on=public", "-q", "--json"))
    assert e["standing"] == "declared"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ((), "tune.public: no training record is marked public"),
        (("tune.public=test", "dataset.declared_size=null"), "dataset.declared_size"),
        (("tune.public=test", "dataset.classes=null"), "the list of classes was found in the data"),
        (("tune.public=test", "tune.folds=1"), "tune.folds"),
        (("tune.public=test", "tune.objective=acuracy"), "did you mean 'accuracy'"),
        (("tune.public=test", "tune.grid={training.cuation: [1]}"), "did you mean 'caution'"),
        (("tune.public=test", "tune.name=a/b"), "tune.name"),
        (("tune.public=test", "certificate=box"), "certificate"),
        (("tune.public=t.csv", "dataset.label=z"), "z"),
        (("tune.private=true", "training.chosen_on=public"), "total.eps: private tuning spends it"),
        (
            (*PRIVATE, "tune.grid={certificate.features: [{map: fourier, count: 8}]}"),
            "certificate.features.map=fourier: cosines are computed to within rounding",
        ),
        (("tune.private=true", "total.eps=1"), "condition e (public preprocessing and choices) does not hold"),
        ((*PRIVATE, "total.delta=0"), "total.delta"),
        ((*PRIVATE, "tune.trials.mean=1"), "tune.trials.mean"),
        ((*PRIVATE, "dataset.unit=p"), "rows and relation.unit_rows is 1"),
        ((*PRIVATE, "dataset.declared_size=20"), "training.batch.n_max is"),
    ],
)
def test_what_is_refused_names_its_key(agt: Agt, more: tuple[str, ...], text: str) -> None:
    write()
    agt("tune", *TABLE, "tune.k=3", "-q", *more).ended(2, text)
    assert not Path("conf").exists()
    assert not list(Path("outputs").rglob("spent.json")), "nothing is paid for it"


def test_private_tuning_releases_weights_with_their_price(agt: Agt) -> None:
    write()
    said = agt("tune", *TABLE, *QUIET, *PRIVATE, "total.eps=2").ended(0)
    record, words = Path(said.json["run"]), said.json["words"]
    assert "(2, 1e-05)-differentially private" in said.json["claim"]
    assert any("the price of choosing: in all (2, 1e-05)" in line for line in words)
    assert any("candidates that private tuning chose from are public constants" in line for line in words)
    assert (record / "spent.json").exists()
    files = {"release.json", "weights.npz", "README.md", "claim.json", "manifest.json"}
    assert {p.name for p in (record / "release").iterdir()} == files
    constants = json.loads((record / "released_weights.json").read_text())
    assert (constants["eps"], constants["delta"]) == (2, 1e-5)
    assert "mu" not in constants, "one trial's budget is not the release's"
    numbers = json.loads((record / "metrics.json").read_text())
    assert set(numbers) >= {"chosen", "score"}
    assert not {name for name in numbers if "trial" in name or name == "k"}
    answered = agt("predict", f"release={record / 'release'}", "inputs=t.csv", "-q", "--json").ended(0)
    assert words[1] in answered.json["words"], "the price goes with the weights"
    e = condition_e(agt("train", "experiment=table_tuned", "-q", "--json"))
    assert (e["standing"], "by looking at results on this data" in e["why"]) == ("not held", True)


def test_private_tuning_is_debited_before_it_draws(agt: Agt) -> None:
    write()
    asked = ("tune", *TABLE, *QUIET, *PRIVATE, "tune.trials.mean=2", "ledger=people")
    names = iter(("tune.name=a", "tune.name=b", "tune.name=c", "tune.name=d"))
    data = agt("tune", *TABLE, *QUIET, *PRIVATE, "tune.seed=1").json["run"]
    digest = json.loads((Path(data) / "env.json").read_text())["data_digest"]
    people = Population("people", "one customer", "add_remove", Allowance(1.5, 1.2e-4))
    with Ledger.create(Path("ledgers/people.ledger"), people) as ledger:
        assert "was not admitted" in agt(*asked, next(names)).err
        ledger.admit(AdmittedTable("t", digest), "one customer")
    said = agt(*asked, next(names)).ended(0)
    assert "entry 3 of it counts this" in str(said.json["words"])
    assert json.loads((Path(said.json["run"]) / "claim.json").read_text())["account"]["entry"] == 3
    assert agt(*asked, next(names)).code == 3
    assert "are in the ledger of people" in agt(*asked[:-1], next(names)).err, "not beside it either"


def test_trials_scored_on_public_rows_and_a_simulation(agt: Agt) -> None:
    write()
    private = (*PRIVATE, "tune.public=test", "tune.seed=1", "tune.trials.eta=null")
    said = agt("tune", *TABLE, *QUIET, *private).ended(0)
    assert said.json["claim"].startswith("SIMULATION")
    assert 0 <= said.json["score"] <= 1
    assert not (Path(said.json["run"]) / "release").exists()
    assert any("which trials are scored on, are public with their labels" in line for line in said.json["words"])
    none = next(s for s in range(99) if Trials(mean=1.01, eta=None).draw(SeededRandomness(s)) == 0)
    said = agt("tune", *TABLE, *QUIET, *private, "tune.trials.mean=1.01", f"tune.seed={none}", "tune.name=none").ended(0)
    assert "chosen" not in said.json
    assert "was none: nothing is released" in (Path(said.json["run"]) / "report.md").read_text()
