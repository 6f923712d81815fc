"""The exact methods on run folders: the files of the next state are those of a training without
the rows.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from agt.errors import CheckError
from agt.facts import Standing
from agt.models.fitting import load
from agt.unlearning.sentences import Remark
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import prepare, read_settings
from agt_cli.unlearn.methods import ErasureJob, changed_answers, fresh_config, retrain, sisa

from .conftest import Agt

TABLE = (
    *(
        "dataset=table",
        "dataset.path=people.csv",
        "dataset.id=id",
        "dataset.unit=person",
        "dataset.label=answer",
    ),
    "dataset.id_permanent=true",
    *(
        "+dataset.numeric={a: [-3, 3], b: [-3, 3]}",
        "dataset.classes=[no, yes]",
        "dataset.declared_size=150",
    ),
    *("relation.unit_rows=2", "compute.threads=1", "dataset.bins=0"),
)
MEMBERS = (*TABLE, "ensemble.members=3", "training.epochs=6")
BOXES = (
    "model=mlp",
    "model.hidden=[3]",
    "training=generic",
    "certificate=box",
    "kgrid.max=2",
    "compute.kernel=reference",
)


def write(folder: Path, without: str = "nobody") -> None:
    rng = np.random.default_rng(0)
    rows = [(f"r{i}", f"p{i // 2}", *rng.normal(size=2).clip(-3, 3).round(3)) for i in range(200)]
    with (folder / "people.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("id", "person", "a", "b", "answer"))
        table.writerows(
            (*row, "yes" if row[2] + row[3] / 2 > 0 else "no") for row in rows if row[1] != without
        )


def job_of(run: Run, fresh: bool = False, may_retrain: bool = True) -> ErasureJob:
    """One whose rows the owner has deleted from the table."""
    settings = read_settings(run.config)
    prepared = prepare(settings, Console(quiet=True))
    nobody = prepared.dataset.train.take(np.empty(0, dtype=np.int64))
    return ErasureJob(run, settings, prepared, nobody, 2, 1, may_retrain, fresh)


def states(run: Run) -> dict[str, bytes]:
    """The files of the model."""
    names = [
        n
        for n in run.manifest.files
        if n.endswith((".safetensors", "stability.json", "shard.json", "network.json"))
    ]
    return {name: run.read(name) for name in names}


def gone(agt: Agt, folder: Path, *settings: str) -> tuple[Run, Run]:
    """(a run on everybody; the same on everybody but one, whose rows are then no longer in the
    table).
    """
    for name, without in (("whole", "nobody"), ("fresh", "p7")):
        write(folder, without)
        agt("train", *settings, f"hydra.run.dir={name}", "-q").ended(0)
    return open_run(folder / "whole", "train"), open_run(folder / "fresh", "train")


def test_the_next_state_of_an_ensemble_is_that_of_a_training_without_the_rows(
    agt: Agt, tmp_path: Path
) -> None:
    whole, fresh = gone(agt, tmp_path, *MEMBERS, *BOXES)
    with RunRecord(tmp_path / "next", "train", whole.config) as record:
        removal = sisa(job_of(whole), record, Console(quiet=True))
    after = open_run(tmp_path / "next", "train")
    assert states(after) == states(fresh) != states(whole)
    assert removal.facts["members_retrained"] == 1
    assert removal.facts["members"] == 3
    assert removal.facts["steps_retrained"] * 3 == removal.facts["steps_of_all"]
    assert removal.steps == (Remark("members_trained_again", {"trained": 1, "members": 3}),)
    assert removal.promise.exact
    assert not removal.promise.adaptive, "the key is the one that earlier answers came from"
    assert [fact.standing for fact in removal.promise.assumptions] == [Standing.PROVED] * 2
    for key in ("n_train", "train_accuracy", "steps", "normalizer"):
        assert after.metrics[key] == fresh.metrics[key]


@pytest.mark.parametrize("changed", [0, 1, 5])
def test_an_erasure_counts_the_test_records_whose_answer_changes(
    agt: Agt, tmp_path: Path, changed: int
) -> None:
    class Next:
        """The next state's model, which answers the first few queries otherwise."""

        def predict(self, features: np.ndarray) -> np.ndarray:
            labels = before.predict(features)
            labels[:changed] = 1 - labels[:changed]
            return labels

    write(tmp_path)
    agt("train", *TABLE, "certificate=votes", "hydra.run.dir=run", "-q").ended(0)
    job = job_of(open_run(tmp_path / "run", "train"))
    before = load(job.prepared.problem(job.settings), job.run)
    counts = {"test_answers": 58, "test_answers_changed": changed}
    assert changed_answers(job, Next()) == counts  # type: ignore[arg-type]


def test_retraining_is_a_training_without_the_rows_and_fresh_is_another(
    agt: Agt, tmp_path: Path
) -> None:
    whole, fresh = gone(
        agt, tmp_path, *TABLE, *BOXES, "training.epochs=2", "training.batch.count=2"
    )
    with RunRecord(tmp_path / "next", "train", whole.config) as record:
        same = retrain(job_of(whole), record, Console(quiet=True))
    after = open_run(tmp_path / "next", "train")
    assert states(after) == states(fresh)
    with RunRecord(tmp_path / "anew", "train", whole.config) as record:
        anew = retrain(job_of(whole, fresh=True), record, Console(quiet=True))
    drawn = open_run(tmp_path / "anew", "train")
    assert states(drawn) != states(fresh)
    for key in ("seed", "batch"):
        assert drawn.config["training"][key] != whole.config["training"][key]
    assert same.promise.exact
    assert anew.promise.exact
    assert (same.promise.adaptive, same.promise.terms[1].code) == (False, "keys_recorded")
    assert (anew.promise.adaptive, anew.promise.terms[1].code) == (True, "keys_drawn_anew")
    with RunRecord(tmp_path / "again", "train", drawn.config) as record:
        retrain(job_of(drawn), record, Console(quiet=True))
    assert states(open_run(tmp_path / "again", "train")) == states(drawn), (
        "what was drawn is in the record"
    )


@pytest.mark.parametrize("count", ["1", "recipe"])
def test_a_training_that_draws_nothing_holds_whoever_asks(
    agt: Agt, tmp_path: Path, count: str
) -> None:
    write(tmp_path)
    minimum = (
        "certificate=erm",
        "training.lr=1.0",
        "training.weight_decay=0.05",
        "training.epochs=1",
    )
    assert (
        agt(
            "train", *TABLE, *minimum, f"training.batch.count={count}", "hydra.run.dir=run", "-q"
        ).code
        == 0
    )
    run = open_run(tmp_path / "run", "train")
    with RunRecord(tmp_path / "next", "train", run.config) as record:
        promise = retrain(job_of(run), record, Console(quiet=True)).promise
    assert (promise.adaptive, promise.terms[1].code) == (True, "draws_nothing")
    assert fresh_config(run.config, 1) == run.config


def test_what_cannot_be_kept_is_refused(agt: Agt, tmp_path: Path) -> None:
    write(tmp_path)
    for name, settings in (
        ("one", TABLE),
        ("many", MEMBERS),
        ("noisy", (*TABLE, *BOXES, "noise.epsilon=1")),
    ):
        assert agt("train", *settings, f"hydra.run.dir={name}", "-q").code == 0
    one, many, noisy = (open_run(tmp_path / name, "train") for name in ("one", "many", "noisy"))
    for method, job, words in (
        (sisa, job_of(one), "the run is a single model"),
        (
            sisa,
            job_of(many, fresh=True, may_retrain=False),
            "new_seeds=true trains all members again",
        ),
        (retrain, job_of(one, may_retrain=False), "forbid_retraining=true forbids (training|that)"),
        (retrain, job_of(noisy), "a second release about all remaining people"),
    ):
        record = RunRecord(tmp_path / "next", "train", job.run.config)
        with pytest.raises(CheckError, match=words):
            method(job, record, Console(quiet=True))


def test_fresh_keys_keep_a_declaration_that_the_settings_were_public(
    agt: Agt, tmp_path: Path
) -> None:
    write(tmp_path)
    lines = (*MEMBERS, *BOXES, "training.chosen_on=public", "hydra.run.dir=run", "-q")
    assert agt("train", *lines).code == 0
    run = open_run(tmp_path / "run", "train")
    with RunRecord(tmp_path / "anew", "train", run.config) as record:
        promise = sisa(job_of(run, fresh=True), record, Console(quiet=True)).promise
    assert (promise.method, promise.adaptive, promise.terms[1].code) == (
        "sisa",
        True,
        "keys_drawn_anew",
    )
    anew = open_run(tmp_path / "anew", "train")
    assert anew.config["ensemble"]["key"] != run.config["ensemble"]["key"]
    assert read_settings(anew.config).choices.standing is Standing.DECLARED
    other = {**anew.config, "ensemble": {**anew.config["ensemble"], "members": 2}}
    assert read_settings(other).choices.standing is Standing.VOID
