"""agt verify of a run whose state gave way, of accounts, and of what was made before: as made,
and spoilt in every way.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import name_training_run

from agt.data.blobs import Blobs
from agt.documents import LAST_READER
from agt.store.manifest import MANIFEST_FILE as MANIFEST, Manifest
from agt.unlearning.sentences import Remark
from agt_cli.cli import main
from agt_cli.report.finished import COMMIT_FOLDER, NEXT_STATE_FOLDER
from agt_cli.unlearn.account import read_account
from agt_cli.unlearn.account_md import account_markdown
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry, state_of
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE
from cli.conftest import Agt
from cli.test_verify import Edit, change, digest, problems, tamper

TRAIN = (
    "train",
    "model=linear",
    "dataset.n_train=80",
    "training.epochs=1",
    "kgrid.max=3",
    "compute.kernel=reference",
)


def erase(to: str, rows: range, *settings: str) -> None:
    """Give the ids of these rows of the blobs to ``agt unlearn``."""
    ids = Blobs(center=1.25, std=0.35, n_train=80).load().train.ids
    Path("ids.txt").write_text("".join(f"{ids[row]}\n" for row in rows))
    line = ["unlearn", "run=train/a", "ids=ids.txt", f"hydra.run.dir={to}", *settings]
    assert main([*line, "-q", "--json"]) == 0


LOSS = ("certificate.masking=loss", "certificate.sigma=1")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a release from it, then three people who wait, two who go with them, and one more:
    nobody changes it.
    """
    home = tmp_path_factory.mktemp("erased")
    before = Path.cwd()
    os.chdir(home)
    try:
        assert (
            main([*TRAIN, "training.chosen_on=public", "hydra.run.dir=train/a", "-q", "--json"])
            == 0
        )
        assert (
            main(
                [
                    "predict",
                    "run=train/a",
                    "mechanism.eps=1",
                    "force=true",
                    "hydra.run.dir=predict/one",
                    "-q",
                    "--json",
                ]
            )
            == 0
        )
        shutil.copytree("train/a", "copies/a")
        erase("unlearn/wait", range(3), "method=certificate")
        erase("unlearn/go", range(3, 5), "method=retrain")
        erase("unlearn/more", range(5, 6), "method=retrain")
    finally:
        os.chdir(before)
    return home


@pytest.fixture
def home(made: Path, agt: Agt, tmp_path: Path) -> Path:
    """A copy of it all, to be spoilt; records name the run by a relative path, so it is the
    copy's.
    """
    shutil.copytree(made, tmp_path / "copy")
    os.chdir(tmp_path / "copy")
    for made_from in ("predict/one", "unlearn/wait", "unlearn/go", "unlearn/more"):
        name_training_run(Path(made_from), "train/a")
    return Path()


def reseal(folder: Path) -> None:
    """Write the manifest again for the files that it lists, as far as they are there."""
    manifest = Manifest.read((folder / MANIFEST).read_bytes())
    files = {name: folder / name for name in manifest.files if (folder / name).is_file()}
    hashes = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    (folder / MANIFEST).write_bytes(Manifest(manifest.command, hashes).content)


def checks(said: Any) -> dict[str, str]:
    return {check["check"]: check["state"] for check in said.json["checks"]}


# -- as it was made


@pytest.mark.parametrize(
    "name", ["train/a", "unlearn/wait", "unlearn/go", "unlearn/more", "predict/one"]
)
def test_what_was_made_verifies_and_nothing_is_written(made: Path, agt: Agt, name: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    os.chdir(made)
    said = agt("verify", name, f"digest={digest(Path(name))}", "--json", "-q").ended(0)
    assert {checks(said)[check] for check in ("manifest", "digest", "files", "nothing else")} == {
        "ok"
    }
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_what_was_made_from_an_earlier_state_is_recognised(made: Path, agt: Agt) -> None:
    os.chdir(made)
    said = agt("verify", "predict/one", "-q")
    words = " ".join(said.out.split())
    assert said.code == 0
    for value in ("entry 1", "3 people", "method=certificate"):
        assert value in words
    first = " ".join(agt("verify", "unlearn/go", "-q").ended(0).out.split())
    for value in ("entry 3", "1 person", "method=retrain"):
        assert value in first


def test_a_copy_of_an_earlier_state_is_used_where_it_lies(home: Path, agt: Agt) -> None:
    shutil.rmtree("train/a")
    shutil.move("copies/a", "train/a")
    said = agt("verify", "predict/one", "--json", "-q")
    assert checks(said)["claim"] == "ok"
    (trained,) = said.json["rests_on"]
    assert "erasure 1 " in str(trained["checks"]), "an account beside it says which replaced it"
    gone = problems(agt("verify", "unlearn/more", "--json", "-q"))
    assert not gone, "the account is whole; the run that it names is not the one that lies there"


def test_a_run_that_was_replaced_by_another_is_no_successor(home: Path, agt: Agt) -> None:
    """Only the log knows earlier states: one that is gone without an entry does not verify."""
    path = home / "train/a" / REQUEST_LOG_FILE
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[1])
    reseal(home / "train/a")
    said = agt("verify", "predict/one", "--json", "-q").ended(3)
    states = {check["check"]: check["state"] for check in said.json["rests_on"][0]["checks"]}
    assert states["digest"] == "PROBLEM"


# -- spoilt


def test_a_log_that_was_written_anew_must_fit_the_index(home: Path, agt: Agt) -> None:
    """Everything sealed again, state and all: the erased are still listed."""
    folder = home / "train/a"
    shutil.copy("copies/a/records.bin", folder / RECORD_INDEX_FILE)
    log = Log.read((folder / REQUEST_LOG_FILE).read_bytes())
    listed = Manifest.read((folder / MANIFEST).read_bytes()).files
    files = {name: sha256((folder / name).read_bytes()).hexdigest() for name in listed}
    again = Log()
    for entry in log.entries:
        last = entry.number == len(log.entries)
        again = again.append(replace(entry, after=state_of(files) if last else entry.after))
    (folder / REQUEST_LOG_FILE).write_bytes(again.content)
    reseal(folder)
    assert "6 of the 6" in problems(agt("verify", "train/a", "--json", "-q"))["request log"]


def account(
    edit: Callable[[Any], object], words: str
) -> tuple[str, dict[str, Edit], dict[str, str]]:
    """An edited account, which contradicts the log."""
    return "unlearn/more", {"account.json": edit}, {"entry": words}


# the run, its files, what each check tells
EDITS: dict[str, tuple[str, dict[str, Edit], dict[str, str]]] = {
    "a byte of the log": (
        "train/a",
        {REQUEST_LOG_FILE: ('"by":"id"', '"by":"ie"')},
        {"request log": "line 1: entry 1"},
    ),
    "the last line gone": (
        "train/a",
        {REQUEST_LOG_FILE: lambda text: "".join(text.splitlines(keepends=True)[:-1])},
        {"request log": "number 2)"},
    ),
    "the first line gone": (
        "train/a",
        {REQUEST_LOG_FILE: lambda text: text.split("\n", 1)[1]},
        {"request log": "line 1"},
    ),
    "no log": (
        "train/a",
        {REQUEST_LOG_FILE: None},
        {"request log": f"should list the request log {REQUEST_LOG_FILE}"},
    ),
    "states that gave way": (
        "train/a",
        {"env.json": lambda env: env["succeeds"].pop(0)},
        {"request log": "succeeds"},
    ),
    "a rehearsal": (
        "unlearn/more",
        {"env.json": lambda env: env.update(rehearsed=True)},
        {"env.json": "rehearsed is recorded as True, but should be None"},
    ),
    "a rehearsal everywhere": (
        "unlearn/more",
        {
            "env.json": lambda env: env.update(rehearsed=True),
            "config.yaml": lambda config: config.update(rehearse=True),
        },
        {"account.json": "config.yaml has rehearse=true"},
    ),
    "another state of the run": (
        "unlearn/more",
        {"env.json": lambda env: env.update(trained_digest=f"sha256:{'0' * 64}")},
        {"account.json": "in env.json (trained_digest)"},
    ),
    "the time of the last update": (
        "train/a",
        {"env.json": lambda env: env["updated"].__setitem__(-1, "2001-01-01T00:00:00+00:00")},
        {"env.json": "updated[2] is recorded as '2001"},
    ),
    "an update more": (
        "train/a",
        {"env.json": lambda env: env["updated"].insert(0, "2001-01-01T00:00:00+00:00")},
        {"env.json": "updated is recorded as"},
    ),
    "fewer people": account(
        lambda account: account["asked"].update(people_requested=2, people_with_training_records=2),
        "people",
    ),
    "adaptive": account(
        lambda account: account["removal"]["promise"].update(adaptive=True), "promise.adaptive"
    ),
    "method": account(
        lambda account: account["removal"]["promise"].update(method="sisa"), "promise.method"
    ),
    "before": account(
        lambda account: account["state"].update(before=f"sha256:{'0' * 64}"), "state.before"
    ),
    "log": account(lambda account: account["state"].update(log=f"3:{'0' * 64}"), "state.log"),
    "entry": account(lambda account: account["state"].update(entry=2), "request log"),
    "outside": account(lambda account: account["outside"].pop(), "outside"),
    "outside, of another version": (
        "unlearn/more",
        {
            "account.json": lambda account: account.update(agt="0.16.0", outside=[]),
            "env.json": lambda env: env.update(agt="0.16.0"),
        },
        {"entry": "outside"},
    ),
    "a number that is left out": (
        "unlearn/more",
        {"metrics.json": lambda metrics: metrics.pop("removed")},
        {"metrics": "removed is recorded as None"},
    ),
    "terms": account(
        lambda account: account["removal"]["promise"].update(
            terms=[{"code": "as_promised", "values": {}}]
        ),
        "removal.promise.terms",
    ),
    "numbers that stand twice": (
        "unlearn/more",
        {"account.json": lambda account: account["removal"]["facts"].update(steps_retrained=2)},
        {"metrics": "steps_retrained"},
    ),
    "twice in the account": (
        "unlearn/more",
        {"account.json": ("{\n", '{"agt": "",\n')},
        {"account.json": ""},
    ),
    "twice in env.json": ("unlearn/more", {"env.json": ("{\n", '{"agt": "",\n')}, {"env.json": ""}),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_edited_and_sealed_again_contradicts_the_rest(
    home: Path, agt: Agt, name: str
) -> None:
    run, edits, told = EDITS[name]
    tamper(home / run, edits, reseal)
    said = problems(agt("verify", run, "--json", "-q"))
    assert all(words in said[check] for check, words in told.items()), said
    if REQUEST_LOG_FILE in edits:
        assert agt("verify", "unlearn/go", "--json", "-q").code == 3, (
            "what rests on it does not verify either"
        )


# -- a head with a removal budget, by the command itself


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that two people were removed from by a Newton step."""
    home = tmp_path_factory.mktemp("head")
    before = Path.cwd()
    os.chdir(home)
    rng = np.random.default_rng(0)
    rows = [
        f"p{n:04d},{x:.3f},{y:.3f},{int(x > y)}"
        for n, (x, y) in enumerate(rng.uniform(size=(200, 2)))
    ]
    Path("people.csv").write_text("\n".join(["who,x,y,label", *rows]) + "\n")
    table = (
        "dataset=table",
        "dataset.path=people.csv",
        "dataset.label=label",
        "dataset.classes=[0,1]",
        "dataset.id=who",
    )
    table += (
        "dataset.id_permanent=true",
        "+dataset.numeric={x: [0, 1], y: [0, 1]}",
        "dataset.declared_size=150",
    )
    Path("asked.txt").write_text("\n".join(row.split(",")[0] for row in rows[:8]))
    try:
        train = (
            "train",
            *table,
            "model=linear",
            "certificate=removal",
            *LOSS,
            "training.chosen_on=public",
        )
        assert main([*train, "hydra.run.dir=train/h", "-q", "--json"]) == 0
        unlearn = (
            "unlearn",
            "run=train/h",
            "ids=asked.txt",
            "method=newton",
            "hydra.run.dir=unlearn/h",
        )
        assert main([*unlearn, "-q", "--json"]) == 0
    finally:
        os.chdir(before)
    return home


@pytest.fixture
def removed(head: Path, agt: Agt, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    shutil.copytree(head, tmp_path / "copy")
    os.chdir(tmp_path / "copy")
    change(Path("unlearn/h/env.json"), lambda env: env.update(trained_run="train/h"))
    reseal(Path("unlearn/h"))
    return Path()


def test_what_the_command_leaves_verifies(removed: Path, agt: Agt) -> None:
    said = agt("verify", "unlearn/h", "--json", "-q").ended(0)
    assert {checks(said)[name] for name in ("account.json", "entry", "removal budget")} == {"ok"}
    assert checks(agt("verify", "train/h", "--json", "-q"))["removal budget"] == "ok"
    assert "p000" not in (removed / "unlearn/h/account.json").read_text()


def rewrite(home: Path, promise: dict[str, Any]) -> None:
    """Tell of another promise everywhere, log, account, page and seals: whoever holds the
    folders can.
    """
    run = home / "train/h"
    record = home / "unlearn/h"
    (entry,) = Log.read((run / REQUEST_LOG_FILE).read_bytes()).entries
    log = Log().append(replace(entry, promise={**entry.promise, **promise}))
    (run / REQUEST_LOG_FILE).write_bytes(log.content)
    reseal(run)
    node = json.loads((record / "account.json").read_text())
    node["state"] |= {"log": str(log.head), "after": digest(run)}
    node["removal"]["promise"] |= promise
    account = read_account(json.dumps(node).encode())
    (record / "account.json").write_bytes(account.content)
    (record / "report.md").write_text(account_markdown(account))
    change(record / "env.json", lambda env: env.update(trained_digest=digest(run)))
    reseal(record)


@pytest.mark.parametrize("promise", [{"eps": 0.1}, {"adaptive": True}])
def test_a_promise_beyond_the_noise_is_refused_everywhere(
    removed: Path, agt: Agt, promise: dict[str, Any]
) -> None:
    rewrite(removed, promise)
    for name, check in (("train/h", "request log"), ("unlearn/h", "entry")):
        assert "method=newton" in problems(agt("verify", name, "--json", "-q"))[check]


def test_a_budget_is_not_believed(removed: Path, agt: Agt) -> None:
    rewrite(removed, {})
    assert agt("verify", "unlearn/h", "--json", "-q").code == 0, "nothing was changed"
    edits: tuple[tuple[Callable[[Any], object], str], ...] = (
        (lambda account: account["removal"]["budget"].update(total=9.0), "total=9.0"),
        (lambda account: account["removal"]["budget"].update(spent=0.0), "says that 0.0 "),
        (lambda account: account["removal"]["steps"].pop(), "removal.steps"),
    )
    for edit, words in edits:
        path = removed / "unlearn/h/account.json"
        before = path.read_bytes()
        change(path, edit)
        reseal(path.parent)
        assert words in problems(agt("verify", "unlearn/h", "--json", "-q"))["entry"]
        path.write_bytes(before)
    change(removed / "train/h/removal.json", lambda numbers: numbers.update(residual=9.0))
    reseal(removed / "train/h")
    found = problems(agt("verify", "train/h", "--json", "-q"))
    assert "as large as 9.0, but" in found["removal budget"]


# -- as earlier versions wrote it


def spoken(remarks: list[dict[str, Any]]) -> list[str]:
    return [Remark(remark["code"], remark["values"]).sentence for remark in remarks]


def write_log(run: Path, entry: RequestEntry) -> Log:
    """Write a request log with this entry, and seal the run."""
    log = Log().append(entry)
    (run / REQUEST_LOG_FILE).write_bytes(log.content)
    reseal(run)
    return log


def write_log_of_sentences(run: Path) -> None:
    """Write the request log as it was before its sentences became codes."""
    (entry,) = Log.read((run / REQUEST_LOG_FILE).read_bytes()).entries
    promise = dict(entry.promise)
    removal = dict(entry.facts["removal"])
    promise["words"], removal["words"] = spoken(promise.pop("terms")), spoken(removal.pop("steps"))
    removal["allowance"] = removal.pop("budget") | {"unit": "bound on a norm"}
    write_log(run, replace(entry, promise=promise, facts=entry.facts | {"removal": removal}))


def test_an_account_names_the_version_of_its_record(removed: Path, agt: Agt) -> None:
    change(
        removed / "unlearn/h/account.json", lambda account: account.update(agt="0.6.0", outside=[])
    )
    reseal(removed / "unlearn/h")
    assert "env.json" in problems(agt("verify", "unlearn/h", "--json", "-q"))["account.json"]


def test_a_log_of_sentences_still_says_who_was_erased(removed: Path, agt: Agt) -> None:
    """Versions up to 0.7.0 wrote it. What one of its entries did cannot be shown again."""
    erased = Log.read((removed / "train/h" / REQUEST_LOG_FILE).read_bytes()).erased
    write_log_of_sentences(removed / "train/h")
    said = agt("verify", "train/h", "--json", "-q").ended(0)
    assert checks(said)["request log"] == "ok"
    assert Log.read((removed / "train/h" / REQUEST_LOG_FILE).read_bytes()).erased == erased
    assert f"erased from the run: {len(erased)} records" in str(said.json["claims"])
    agt("unlearn", "run=train/h").ended(2, LAST_READER)


def test_an_account_with_short_names_is_a_problem_that_names_the_version_that_reads_it(
    removed: Path, agt: Agt
) -> None:
    """Versions 0.9 to 0.14 wrote it."""
    path = removed / "unlearn/h/account.json"
    change(path, lambda account: account.update(schema="agt.erasure/3"))
    reseal(path.parent)
    found = problems(agt("verify", "unlearn/h", "--json", "-q"))
    assert LAST_READER in found["account.json"]


# -- an erasure that did not come to its end


def test_an_erasure_on_its_way_is_said_and_left_alone(home: Path, agt: Agt) -> None:
    commit = home / "train/a" / COMMIT_FOLDER
    commit.mkdir()
    shutil.copy("copies/a/manifest.json", commit / MANIFEST)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    for name in ("train/a", "unlearn/more", "predict/one"):
        agt("verify", name, "--json", "-q").ended(3)
        assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def test_what_a_killed_erasure_left_is_a_note(home: Path, agt: Agt) -> None:
    (home / "train/a" / NEXT_STATE_FOLDER).mkdir()
    (home / "train/a" / NEXT_STATE_FOLDER / "model.safetensors").write_bytes(b"half")
    (home / "train/a/unlearning/lock").write_bytes(b"")
    said = agt("verify", "train/a", "--json", "-q").ended(0)
    assert checks(said)["nothing else"] in ("note", "ok")
    (home / "train/a/unlearning/notes.txt").write_text("mine")
    assert (
        "unlearning/notes.txt" in problems(agt("verify", "train/a", "--json", "-q"))["nothing else"]
    )


def test_the_key_is_looked_at_where_it_lies(home: Path, agt: Agt) -> None:
    key = home / "train/a/unlearning/key"
    content = key.read_bytes()
    key.write_bytes(content[::-1])
    said = problems(agt("verify", "train/a", "--json", "-q"))
    assert "records.bin" in said["key"]
    for spoil in (
        lambda: key.write_bytes(b""),
        lambda: key.write_bytes(content + b"\n"),
        lambda: (key.unlink(), os.mkfifo(key)),
    ):
        spoil()
        assert "key" in problems(agt("verify", "train/a", "--json", "-q"))
    key.unlink()
    assert checks(agt("verify", "train/a", "--json", "-q"))["key"] == "not checked"
