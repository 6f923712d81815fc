"""agt audit: records, exit codes and pages; a run that changes meanwhile; many audits on one
page; the auditor itself.
"""

import json
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from erasing import erase, pending

from agt.data.blobs import Blobs
from agt.documents import LAST_READER
from agt.store.lock import Lock
from agt.store.manifest import MANIFEST_FILE as MANIFEST, Manifest
from agt_audit.selftest import PLANTED, Plant
from agt_cli.cli import main
from agt_cli.report.findings import Finding, Outcome, read_audit
from agt_cli.report.finished import LOCK_FILE

from .conftest import TINY, Agt

OTHER = f"sha256:{'0' * 64}".encode()
RUN = Path("outputs/train/one")
CONF = (
    "# a toy of one's own\n_target_: cli.toy_audits.Toy\nfound: 0.5  # what it finds\naccident: "
    "none\n"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a trained run, and a kind of audit of its own."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("conf/audit").mkdir(parents=True)
        Path("conf/audit/toy.yaml").write_text(CONF)
        assert main(["train", *TINY, "hydra.run.dir=outputs/train/one", "-q"]) == 0
        yield folder


@pytest.fixture
def audited(agt: Agt, home: Path, tmp_path: Path) -> Agt:
    """Runs a command line beside a copy of the run."""
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    return agt


def audits() -> list[Path]:
    return sorted(Path("outputs/audit").iterdir(), key=lambda folder: folder.name)


def test_a_violation_ends_with_3_and_a_record_that_is_whole(audited: Agt) -> None:
    said = audited("audit", "toy", "run=latest", "audit.found=1.2", "--json").ended(3)
    folder = Path(said.json["run"])
    assert "1 of 2" in said.json["error"]
    assert said.json["audit"]["findings"][0]["outcome"] == "violated"
    audit = read_audit((folder / "audit.json").read_bytes())
    assert (audit.kind, len(audit.violations), audit.digest) == (
        "toy",
        1,
        said.json["audit"]["digest"],
    )
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert "VIOLATED" in audited("runs", "command=audit").out
    seen = audited("verify", str(folder)).ended(0)
    assert "audit.json" in seen.out
    assert f"training run {RUN}" in seen.out.replace(str(Path.cwd()) + "/", "")


def test_the_page_says_what_was_found_and_no_word_of_it_is_a_proof(audited: Agt) -> None:
    audited("audit", "toy", "run=latest", "audit.found=0.981").ended(0)
    page = (audits()[0] / "report.md").read_text()
    for words in (
        "2 attacks, 0 violations found (this is not a proof); 1 attack could not be carried out.",
        "a \\| toy",
        "its \\*label\\*; 100 labels a side",
        "epsilon ≥ 0.981 (95 %)",
        "epsilon about 1.01 (95 %, Katz)",
        "A loss above 1.1",
        "an attacker who is 50 % sure that a person's record is among the training records can "
        "be at most 73.2 % sure after seeing the answer, and an attacker who is 1 % sure "
        "before can be at most 2.7 % sure. In general, the true positive rate of any membership "
        "attack exceeds its false positive rate by at most 46.3 percentage points",
        "an audit cannot prove a claim. Other attacks or more effort",
        "Thresholds: the first 8 of 9 rows of tables/thresholds.csv",
        "- it is a toy",
    ):
        assert words in page, words
    assert page.index("**not tested**") < page.index("**not contradicted**"), "the worst first"
    assert not {"proved that", "safe", "passed"} & {word.strip(".,") for word in page.split()}
    html = (audits()[0] / "report.html").read_text()
    assert 'class="standing declared">not tested' in html
    assert (
        "proved"
        not in html.split("<body>")[1].split("not contradicted</strong>")[0].rpartition("<td>")[2]
    )


def test_help_of_a_kind_tells_its_settings(audited: Agt) -> None:
    text = audited("audit", "toy", "--help").out
    for setting in ("audit=toy", "audit.found=0.5", "audit.accident=none"):
        assert setting in text
    assert "audit.found" not in audited("audit", "--help").out
    assert "mechanism.mu" in audited("audit", "mechanism=gaussian_margin", "--help").out


@pytest.mark.parametrize(
    ("accident", "code", "words"),
    [
        ("changed", 3, "changed this run during the audit"),
        ("full", 1, "No space left"),
        ("interrupted", 130, "interrupted"),
    ],
)
def test_an_audit_that_does_not_end_says_nothing_of_the_claims(
    audited: Agt, accident: str, code: int, words: str
) -> None:
    said = audited(
        "audit", "toy", "run=latest", "audit.found=1.2", f"audit.accident={accident}"
    ).ended(code, words)
    assert "VIOLATED" not in said.out + said.err
    status = json.loads((audits()[0] / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("failed", code)
    assert not (audits()[0] / "audit.json").exists()


def reseal(folder: Path, content: bytes) -> None:
    """Put another audit.json into a record, with a manifest of what lies there now."""
    (folder / "audit.json").write_bytes(content)
    manifest = Manifest.read((folder / MANIFEST).read_bytes())
    files = {name: sha256((folder / name).read_bytes()).hexdigest() for name in manifest.files}
    (folder / MANIFEST).write_bytes(Manifest(manifest.command, files).content)


def test_an_edited_audit_does_not_verify(audited: Agt) -> None:
    """Nor one that was sealed anew with what contradicts the record beside it."""
    audited("audit", "toy", "run=latest", "audit.found=1.2")
    path = audits()[0] / "audit.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"violated"', b'"not contradicted"'))
    assert "audit.json" in audited("verify", str(path.parent)).ended(3).out
    reseal(path.parent, content.replace(json.loads(content)["digest"].encode(), OTHER))
    assert "env.json" in audited("verify", str(path.parent)).ended(3).out


def test_an_audit_of_an_earlier_form_does_not_verify_and_names_the_version_that_reads_it(
    audited: Agt,
) -> None:
    audited("audit", "toy", "run=latest")
    folder = audits()[0]
    node = json.loads((folder / "audit.json").read_text()) | {"schema": "agt.audit/1"}
    reseal(folder, json.dumps(node).encode())
    said = audited("verify", str(folder), "--json").ended(3)
    (check,) = (each for each in said.json["checks"] if each["check"] == "audit.json")
    assert LAST_READER in check["words"]


REMOVED = {
    (
        "summary",
        "run=latest",
    ): "To list all audits with their verdicts, type agt runs command=audit",
    ("summary", "run=latest", "audit.audits=[one]"): "type agt runs command=audit",
    (
        "shadows",
        "run=latest",
        "audit.part=0",
        "audit.parts=2",
    ): "agt audit membership, which trains the shadow models",
    (
        "prediction",
        "run=latest",
        "audit.poisons=0",
    ): "agt audit prediction no longer makes a poisoning attack",
    (
        "mechanism",
        *("mechanism=randomized_response", "mechanism.eps=1"),
        "audit.segments=3",
    ): "agt audit replay run=latest",
    (
        "mechanism",
        *("mechanism=randomized_response", "mechanism.eps=1"),
        "audit.neighbours=2",
    ): "audit.neighbours: this setting was removed, because this audit attacks",
    (
        "weights",
        *("mechanism=release_weights", "mechanism.mu=1"),
        "audit.neighbours=2",
    ): "agt audit replay run=latest",
    ("prediction", "run=latest", "audit.scratch=/tmp"): "give output_dir=FOLDER, a folder on a",
    (
        "prediction",
        "run=latest",
        "audit.retrainings=9",
    ): "agt audit prediction no longer makes a poisoning attack",
}


@pytest.mark.parametrize(("line", "words"), REMOVED.items(), ids=map(" ".join, REMOVED))
def test_what_was_removed_says_what_to_type_instead(
    audited: Agt, line: tuple[str, ...], words: str
) -> None:
    said = audited("audit", *line).ended(2)
    assert words in said.err
    assert not Path("outputs/audit").exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [("summary", "type agt runs command=audit"), ("shadows", "agt audit membership, which")],
)
def test_a_configuration_that_names_a_removed_kind_says_so_too(
    audited: Agt, kind: str, words: str
) -> None:
    Path("conf/audit/mine.yaml").write_text(f"defaults: [{kind}, _self_]\n")
    assert words in audited("audit", "mine", "run=latest").ended(2).err


def test_what_a_killed_audit_left_is_removed_and_a_living_ones_stays(audited: Agt) -> None:
    dead, living = (Path("outputs/audit") / name / ".stage-x" for name in ("dead", "living"))
    for scratch in (dead, living):
        scratch.mkdir(parents=True)
    (dead.parent / LOCK_FILE).touch()
    lock = Lock(living.parent / LOCK_FILE)
    assert lock.acquire()
    assert audited("audit", "toy", "run=latest").code == 0
    lock.release()
    assert (dead.exists(), living.exists()) == (False, True)


def test_where_requests_wait_nothing_is_trained_as_a_neighbour(audited: Agt) -> None:
    """The model is of all records and its data of those alone that do not wait: what is trained
    is no neighbour.
    """
    ids = Blobs(center=1.25, std=0.35, n_train=80).load().train.ids[:40].tolist()
    erase(RUN, ids, pending)
    answers = ("mechanism=randomized_response", "mechanism.eps=1")
    for kind, given in {
        **dict.fromkeys(("certificate", "membership", "memorisation", "toy"), ()),
        **dict.fromkeys(("prediction", "replay"), answers),
    }.items():
        said = audited("audit", kind, "run=latest", *given).ended(2)
        assert "40 people" in said.err, kind
    assert (
        "audit.methods" in audited("audit", "unlearning", "run=latest", "audit.methods=[none]").err
    ), "it is not refused"


ANSWERS = ("mechanism=randomized_response", "mechanism.eps=1")
REFUSED = {
    **dict.fromkeys(
        [
            ("certificate", "run=null"),
            ("membership", "run=null"),
            ("unlearning", "run=null"),
            ("dpsgd", "run=null"),
        ],
        "run: give the folder",
    ),
    ("certificate", "inputs=rows.csv"): "inputs=rows.csv: this audit uses",
    ("certificate", "audit.farthest=0"): "audit.farthest",
    ("certificate", "audit.seconds=0"): "audit.seconds",
    ("membership", *ANSWERS): "agt audit prediction",
    ("membership", "audit.shadows=5"): "audit.shadows: must be a multiple of 2, got 5",
    ("dpsgd", "audit.canary=record"): "audit.canary",
    ("dpsgd",): "was trained without noise",
    ("unlearning", "audit.releases=10"): "audit.releases",
    ("unlearning", "audit.records=1000"): "audit.records=1000",
    ("unlearning", "audit.methods=[forget]"): "audit.methods",
    ("prediction", *ANSWERS, "inputs=-"): "inputs=",
    ("mechanism", *ANSWERS): "agt audit replay run=",
    ("weights", "mechanism=release_weights", "mechanism.mu=1"): "agt audit replay run=",
    ("mechanism", "run=null"): "mechanism: name the mechanism to audit",
    ("mechanism", "run=null", "mechanism=release_weights", "mechanism.mu=1"): "agt audit weights",
    (
        "mechanism",
        "run=null",
        "mechanism=noisy_argmax",
        "mechanism.eps=1",
        "audit.values=[0,5]",
    ): "ensemble members, so audit.values",
    ("weights", "run=null"): "mechanism=release_weights",
}


@pytest.mark.parametrize(("line", "words"), REFUSED.items(), ids=map(" ".join, REFUSED))
def test_what_cannot_be_audited_is_refused_by_key(
    audited: Agt, line: tuple[str, ...], words: str
) -> None:
    said = audited("audit", line[0], *(() if "run=null" in line else ("run=latest",)), *line[1:])
    assert (said.code, words in said.err) == (2, True), said.err


CAUGHT = PLANTED[
    "fault: mechanism=smooth_cauchy with stable distances that jump between neighbouring datasets"
]


def missed(seed: int) -> Finding:
    about = (
        "twice the noise",
        "claims",
        "attack",
        "effort",
        Outcome.NOT_CONTRADICTED,
        "nothing was seen",
        "epsilon",
    )
    return Finding(*about, 1.0, 0.0, 0.2, confidence=0.95)


@pytest.mark.parametrize(
    ("planted", "sound", "code", "words"),
    [
        (
            [CAUGHT],
            [missed],
            0,
            "1 of 1 planted faults were detected; 1 of 1 correct claims passed (no false alarm).",
        ),
        (
            [CAUGHT],
            [CAUGHT],
            3,
            "1 of 1 planted faults were detected; 1 of 1 correct claims were wrongly "
            "REJECTED (false alarms).",
        ),
        ([CAUGHT] * 9 + [missed], [], 3, "1 of 10 planted faults were MISSED."),
    ],
)
def test_the_auditor_is_broken_where_it_misses_or_accuses_one(
    agt: Agt,
    monkeypatch: pytest.MonkeyPatch,
    planted: list[Plant],
    sound: list[Plant],
    code: int,
    words: str,
) -> None:
    for name, plants in (("PLANTED", planted), ("SOUND", sound)):
        monkeypatch.setattr(
            f"agt_audit.selftest.{name}", {f"{name} {at}": plant for at, plant in enumerate(plants)}
        )
    agt("audit", "selftest", "--json").ended(code)
    page = (audits()[-1] / "report.md").read_text()
    assert f"**{words}**" in page
    assert ("FALSE ALARM" in page, "| MISSED |" in page) == ("REJECTED" in words, "MISSED" in words)
