"""Runs from which records were erased, or wait to be: their data, answers and ledger, and
whoever is asked meanwhile.
"""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.data.blobs import Blobs
from agt.data.records import Records
from agt.errors import CheckError
from agt.ledger.ledger import Ledger
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, PureDP
from agt.unlearning.sentences import Remark
from agt_cli.report.opening import open_run
from agt_cli.runs.pending import abstentions
from agt_cli.runs.prepare import prepare
from agt_cli.runs.queries import TrainedRun
from agt_cli.unlearn.account import Earlier
from agt_cli.unlearn.earlier import UpdatedRun, group_guarantee, judge_earlier
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.methods import pending
from tests.erasing import QUIET, again, erase

from .conftest import TINY, Agt
from .test_service import entries, open_ledger, points

CERTIFIED = (
    *TINY,
    "kgrid.max=8",
    "training.epochs=3",
    "training.lr=1",
    "training.chosen_on=public",
)
IDS = [str(name) for name in Blobs(center=1.25, std=0.35, n_train=80).load().train.ids]
EACH = ("mechanism.eps=0.1",)
LINE = np.stack([np.linspace(-0.6, 0.6, 25)] * 2, axis=1)
TABLE = (
    *(
        "dataset=table",
        "dataset.path=people.csv",
        "dataset.label=rich",
        "dataset.id=name",
        "dataset.classes=[no,yes]",
    ),
    *(
        "+dataset.numeric={age: [0, 100]}",
        "+dataset.categorical={job: [a, b]}",
        "dataset.declared_size=45",
    ),
    *(
        "model=linear",
        "training.epochs=2",
        "kgrid.max=6",
        "compute.kernel=reference",
        "training.chosen_on=public",
    ),
)


@pytest.fixture
def run(agt: Agt, trained_as: Callable[..., Path]) -> Path:
    """A copy of a training run."""
    return Path(shutil.copytree(trained_as("certified", CERTIFIED), "run"))


def certified(agt: Agt, *more: str, run: str = "run") -> tuple[dict[str, Any], pd.DataFrame]:
    said = agt("certify", f"run={run}", "map_resolution=0", *more, "-q", "--json").ended(0)
    return said.json, pd.read_parquet(Path(said.json["run"]) / "certificates.parquet")


# -- data


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 60
    age = 18 + rng.permutation(72)[:n]
    columns = {
        "name": [f"p{i * 7919 % 1009}" for i in range(n)],
        "age": age,
        "job": rng.choice(["a", "b"], n),
    }
    return pd.DataFrame(columns).assign(rich=np.where(age > 50, "yes", "no"))


def training_records(run: Path) -> Records:
    """Those of a run, as its data has them."""
    config = {"run": run, "compute": open_run(run, "train").config["compute"]}
    return prepare(TrainedRun.from_config(config).settings, QUIET).loaded.train


def test_rows_may_be_deleted_or_not(agt: Agt) -> None:
    """Also where a range was found in the data; where it is stated:
    tests/unit/test_data_erasure.py.
    """
    table = people()
    table.to_csv("people.csv", index=False)
    found = ("dataset.classes=null", "++dataset.numeric.age=null")
    assert agt("train", *TABLE, *found, "hydra.run.dir=run", "-q").code == 0
    before = open_run(Path("run"), "train").environment
    train = training_records(Path("run"))
    oldest = str(table.set_index("name").loc[train.ids.tolist()].age.idxmax())
    asked = [oldest, str(train.ids[5])]
    job, _ = erase(Path("run"), asked)
    assert sorted(job.erased.ids.tolist()) == sorted(asked)
    assert not job.prepared.untouched.held, "the oldest decides the range, where it was found"
    after = open_run(Path("run"), "train").environment
    assert after["data_digest"] != before["data_digest"]
    assert after["earlier_data"] == [before["data_digest"]]
    _, with_rows = certified(agt)
    table[~table.name.isin(asked)].to_csv("people.csv", index=False)
    _, without = certified(agt)
    pd.testing.assert_frame_equal(with_rows.drop(columns="row"), without.drop(columns="row"))
    table[~table.name.isin([*asked, str(train.ids[7])])].to_csv("people.csv", index=False)
    agt("certify", "run=run").ended(2, "lack 1 of the")


def test_rows_that_are_gone_unasked_stop_an_erasure(agt: Agt) -> None:
    table = people()
    table.to_csv("people.csv", index=False)
    assert agt("train", *TABLE, "hydra.run.dir=run", "-q").code == 0
    gone, asked = training_records(Path("run")).ids[:2]
    table[table.name != gone].to_csv("people.csv", index=False)
    for name, code in ((asked, 2), (gone, 0)):
        Path("ids.txt").write_text(f"{name}\n")
        before = open_run(Path("run"), "train").digest
        agt("unlearn", "run=run", "ids=ids.txt", "-q").ended(code)
        assert (open_run(Path("run"), "train").digest == before) == (code == 2)


def test_whoever_was_erased_before_is_not_erased_again(run: Path) -> None:
    erase(run, IDS[:3])
    job, _ = erase(run, IDS[3:5])
    assert job.erased.ids.tolist() == IDS[3:5]
    assert len(job.prepared.dataset.train) == 75
    assert len(open_run(run, "train").environment["earlier_data"]) == 2


# -- what waits


def test_what_is_stable_is_answered_and_the_rest_is_owed(agt: Agt, run: Path) -> None:
    model = (run / "model.safetensors").read_bytes()
    _, plain = certified(agt, points(LINE))
    job, removal = erase(run, IDS[:2], pending)
    assert (run / "model.safetensors").read_bytes() == model
    assert removal.promise.exact
    assert removal.promise.adaptive
    assert removal.facts["pending"] == 2
    said, table = certified(agt, points(LINE))
    stable = plain.stable_distance >= 2
    assert 0 < stable.sum() < len(LINE)
    assert (table.prediction == np.where(stable, plain.prediction, "")).all()
    assert table.answer[~stable].nunique() == 1, "the sentence of those that abstain"
    assert table.score[~stable].isna().all()
    assert (
        said["metrics"]["abstained"]
        == (~stable).sum()
        == abstentions(run, {open_run(run, "train").digest})
    )
    assert "2 people" in said["owed"]
    job, _ = erase(run, IDS[2:3])
    assert (job.units, len(job.erased)) == (3, 3)
    assert abstentions(run, {open_run(run, "train").digest}) == 0, "its answers are whole again"
    assert abstentions(run, {job.run.digest}) >= (~stable).sum()
    _, table = certified(agt, points(LINE))
    assert "answer" not in table
    assert (table.prediction != "").all()


def test_an_answer_that_is_given_is_that_of_training_without(agt: Agt, run: Path) -> None:
    erase(run, IDS[:4], pending)
    _, waiting = certified(agt, points(LINE))
    erase(run, [], again)
    _, updated = certified(agt, points(LINE))
    given = waiting.prediction != ""
    assert given.any()
    assert (waiting.prediction[given] == updated.prediction[given]).all()


def test_nothing_private_is_released_meanwhile(agt: Agt, run: Path) -> None:
    erase(run, IDS[:1], pending)
    for more in ((points(LINE),), ("inputs=-",)):
        agt("predict", "run=run", *EACH, *more).ended(2, "1 person", "agt unlearn run=run")
    assert not list(Path().glob("outputs/predict/*/spent.json"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("dataset.declared_size=null",), "which was computed from the number of records"),
        (("++dataset.from_data=[age]",), "'age'"),
        (("relation.name=remove", "dataset.classes=null"), None),
    ],
    ids=["size", "from_data", "compared"],
)
def test_certificates_that_do_not_cover_a_removal(
    agt: Agt, settings: tuple[str, ...], named: str | None
) -> None:
    people().to_csv("people.csv", index=False)
    assert agt("train", *TABLE, *settings, "hydra.run.dir=run", "-q").code == 0
    train = training_records(Path("run"))
    oldest = str(people().set_index("name").reindex(train.ids.tolist()).age.idxmax())
    before = open_run(Path("run"), "train").digest
    if named is None:
        assert erase(Path("run"), [oldest], pending)[1].promise.exact
        return
    with pytest.raises(CheckError, match=named):
        erase(Path("run"), [oldest], pending)
    assert open_run(Path("run"), "train").digest == before


# -- earlier answers


def judged(run: Path, ids: list[str]) -> dict[str, dict[bool, Remark]]:
    """After an erasure of these ids: of each record, why answers stand, and why some are void."""
    found = dict[str, dict[bool, Remark]]()
    for one in earlier_results(run, ids):
        assert one.name not in found, "one entry for each folder"
        found[one.name] = {}
        if one.answers_standing:
            found[one.name][True] = one.reasons[0]
        if one.answers_void:
            found[one.name][False] = one.reasons[1 if one.answers_standing else 0]
    return found


def earlier_results(run: Path, ids: list[str]) -> tuple[Earlier, ...]:
    """What became of earlier results after an erasure of these ids."""
    job, _ = erase(run, ids)
    now = open_run(run, "train")
    updated = UpdatedRun(now, Log.of(now), job.settings, job.prepared)
    return judge_earlier(updated, [Path("outputs")])


def test_which_earlier_answers_stand(agt: Agt, run: Path) -> None:
    said, table = certified(agt, points(LINE))
    labels = agt("predict", "run=run", points(LINE), *EACH, "force=true", "-q", "--json").json
    simulated = agt(
        "predict", "run=run", points(LINE), *EACH, "force=true", "seed=3", "-q", "--json"
    ).json
    before = {path: path.read_bytes() for path in Path("outputs").rglob("*") if path.is_file()}
    now = judged(run, IDS[:2])
    name = f"certify/{Path(said['run']).name}"
    stable = (table.stable_distance >= 2).sum()
    lost = (table.stable_distance < 2).sum()
    given = {"given": 25, "units": 2}
    assert now[name][True] == Remark("answers_stand", {"stable": stable, **given})
    assert now[name][False] == Remark("answers_lost", {"lost": lost, **given})
    released = f"predict/{Path(labels['run']).name}"
    assert now[released].keys() == {True}
    group_of_two = now[released][True]
    assert group_of_two.code == "group_pure"
    assert group_of_two.values == {
        "releases": 25,
        "output": "labels",
        "mechanism": "randomized_response",
        "eps": pytest.approx(0.2),
        "units": 2,
    }
    assert now[f"predict/{Path(simulated['run']).name}"].keys() == {False}
    assert before == {
        path: path.read_bytes() for path in Path("outputs").rglob("*") if path.is_file()
    }
    later = judged(run, IDS[2:5])  # of a state that is two updates old
    assert later[name][True].values["stable"] == (table.stable_distance >= 5).sum()
    group_of_five = later[released][True].values
    assert (group_of_five["eps"], group_of_five["units"]) == (pytest.approx(0.5), 5)


def test_what_was_answered_while_they_waited_stands(agt: Agt, run: Path) -> None:
    erase(run, IDS[:3], pending)
    said, table = certified(agt, points(LINE))
    given = (table.prediction != "").sum()
    name = f"certify/{Path(said['run']).name}"
    assert judged(run, [])[name].keys() == {True}
    standing = judged(run, IDS[3:4])[name][True].values
    assert standing["stable"] == (table.stable_distance >= 4).sum()
    assert standing["given"] == given


def test_records_that_are_damaged_are_void(agt: Agt, run: Path) -> None:
    said, _ = certified(agt, points(LINE))
    Path(said["run"], "certificates.parquet").write_bytes(b"PAR1")
    now = judged(run, IDS[:1])
    assert len(now) == 1
    assert now[f"certify/{Path(said['run']).name}"][False].code == "record_not_whole"


def test_a_record_that_cannot_be_read_is_listed_and_void(agt: Agt, run: Path) -> None:
    """From which run it was made cannot be told, and so not that it was from none of these."""
    said, _ = certified(agt, points(LINE))
    Path(said["run"], "env.json").write_bytes(b"{")
    (result,) = earlier_results(run, IDS[:1])
    assert (result.answers_standing, result.answers_void, result.state) == (0, 1, None)
    assert result.reasons[0].code == "record_not_whole"


def test_groups() -> None:
    assert group_guarantee(PureDP(0.5), 4) == PureDP(np.nextafter(2.0, 3))
    assert group_guarantee(PureDP(1.0), 101) is None
    assert group_guarantee(GaussianDP(0.3), 3).mu == pytest.approx(0.9)  # type: ignore[union-attr]
    both = group_guarantee(ApproximateDP(1.0, 1e-6), 3)
    assert isinstance(both, ApproximateDP)
    assert both.delta == pytest.approx(1e-6 * (1 + np.e + np.e**2))
    assert both.delta >= 1e-6 * (1 + np.e + np.e**2)
    assert group_guarantee(ApproximateDP(1.0, 1e-6), 20) is None, "delta is beyond 1"


def test_a_group_of_two_against_the_exact_loss() -> None:
    """Two people, one leaked with probability d: the loss over both steps is beyond d, and
    within what the sum says.
    """
    eps = 0.7
    delta = 0.01
    p = [np.array([1 - delta, 0, delta]), None, None]
    step = np.exp(eps)
    middle = np.array([(1 - delta) / step, 1 - (1 - delta) / step, 0.0])
    far = np.array(
        [((1 - delta) / step - delta) / step, 1 - ((1 - delta) / step - delta) / step, 0.0]
    )
    loss = max((p[0] - np.exp(2 * eps) * far).clip(min=0).sum(), 0)  # type: ignore[operator]
    for one, other in ((p[0], middle), (middle, far)):
        assert (one - step * other).clip(min=0).sum() <= delta + 1e-12  # type: ignore[operator]
    told = group_guarantee(ApproximateDP(eps, delta), 2)
    assert isinstance(told, ApproximateDP)
    assert delta < loss <= told.delta


# -- the ledger


def test_the_account_goes_on(agt: Agt, run: Path) -> None:
    path = open_ledger(run, 10)
    ask = ("predict", "run=run", points(LINE), *EACH, "force=true", "-q", "--json")
    first = agt(*ask, "ledger=people").json
    assert agt(*ask, "ledger=people").json["metrics"]["stored"] == 25
    erase(run, IDS[:2])
    agt("predict", "run=run", points(LINE), *EACH).ended(2, "the ledger of people")
    second = agt(*ask, "ledger=people").ended(0)
    assert second.json["metrics"]["stored"] == 0, "another state: another question, paid for"
    assert [entry["size"] for entry in entries(path, "debit")] == [25, 25]
    assert [entry["table"] for entry in entries(path, "admit")] == ["table", "table"]
    with Ledger.open(path) as ledger:
        assert float(ledger.book.spent.pure) == pytest.approx(5.0)
    assert agt("verify", "ledgers/people.ledger", "-q").code == 0
    twice = ("ledger", "init", "twice", "run=run", "total.eps=1", "unit=one person")
    agt(*twice).ended(2, "ledgers/people.ledger")
    assert Path(first["run"], "labels.csv").exists()
    erase(run, IDS[2:3])
    assert agt(*ask, "ledger=people").code == 0
    assert len(entries(path, "admit")) == 3


# -- changed while it is asked


@pytest.fixture
def changing(run: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Erases somebody from the run when a function is called for the first time."""

    def at(module: str, name: str) -> None:
        import importlib

        home = importlib.import_module(module)
        done = []
        true = getattr(home, name)

        def changed(*given: Any, **more: Any) -> Any:
            if not done:
                done.append(True)
                erase(run, IDS[:1])
            return true(*given, **more)

        monkeypatch.setattr(home, name, changed)

    return at


def test_a_session_stops(agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lines(io.BytesIO):
        read = 0

        def readline(self, *given: Any) -> bytes:
            self.read += 1
            if self.read == 3:
                erase(run, IDS[:1])
            return super().readline(*given)

    sent = b"".join(
        json.dumps({"id": id, "features": [1.25, 1.0]}).encode() + b"\n" for id in range(5)
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Lines(sent)))
    said = agt("predict", "run=run", "inputs=-", *EACH).ended(3)
    answers = [json.loads(line) for line in said.out.splitlines()][1:]
    assert ["label" in answer for answer in answers] == [True, True, False]
    assert answers[2].keys() == {"id", "error", "code"}, "to be passed on"
    assert (answers[2]["id"], answers[2]["code"]) == (2, 3)


@pytest.mark.parametrize(
    ("place", "spent"),
    [
        (("agt_cli.releasing.file", "judge"), False),
        (("agt_cli.releasing.file", "doubt_worth"), True),
    ],
)
def test_a_file_of_queries_is_not_answered_from_an_earlier_state(
    agt: Agt, run: Path, changing: Callable[[str, str], None], place: tuple[str, str], spent: bool
) -> None:
    changing(*place)
    asked = agt("predict", "run=run", points(LINE), *EACH, "force=true")
    assert asked.code == (1 if spent else 3)
    assert bool(list(Path().glob("outputs/predict/*/spent.json"))) == spent
    written = [
        path.read_text().splitlines() for path in Path().glob("outputs/predict/*/labels.csv")
    ]
    assert all(len(lines) <= 1 for lines in written)
    assert agt("predict", "run=run", points(LINE), *EACH, "force=true", "-q").code == 0


def test_certificates_of_an_earlier_state_are_not_finished(
    agt: Agt, run: Path, changing: Callable[[str, str], None]
) -> None:
    changing("agt_cli.commands.certify", "write_tables")
    agt("certify", "run=run", points(LINE), "map_resolution=0").ended(3)
