"""Released weights as a folder: what is in it, who can answer from it, and that nothing private
is there.
"""

import json
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext, suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile

import numpy as np
import pandas as pd
import pytest
from records import reseal

from agt.errors import AgtError, ConfigError
from agt.mechanisms.claims import read_claim
from agt.mechanisms.output import Output
from agt.models import portable
from agt.models.portable import Portable
from agt_cli.cli import main

RNG = np.random.default_rng(0)
N = 120
ODD = "Straße, no. 1"
LABELS = np.arange(N) % 2
AGE = np.where(LABELS, 60.0, 30.0) + RNG.uniform(-9, 9, N).round(1)
TABLE = {
    "age": AGE,
    "net.income €": RNG.normal(40, 9, N).round(2),
    "since": "2021-07-01",
    ODD: RNG.choice(["a b", "ü", "7"], N),
    "y": LABELS,
}
VECTORS = {
    "x": RNG.normal(size=(N, 2, 2)).astype(np.float32) + LABELS[:, None, None],
    "label": LABELS,
}
HEAD = (
    "training=generic",
    "training.lr=0.3",
    "training.chosen_on=public",
    "certificate=stability",
    "training.clip=0.5",
)
LINEAR = (*HEAD, "training.loss=binary_cross_entropy", "model=linear", "compute.threads=1")
COLUMNS = {
    "defaults": ["table", "_self_"],
    "path": "t.csv",
    "label": "y",
    "numeric": {"age": [18, 100], "net.income €": [0, 80], "since": ["2020-01-01", "2024-01-01"]},
    "categorical": {ODD: ["a b", "ü", 7]},
    "classes": [0, 1],
    "missing": "indicator",
}
OF_TABLE = ("dataset=mine", "dataset.declared_size=90", *LINEAR)
OF_VECTORS = (
    "dataset=embeddings",
    "dataset.path=e.npz",
    "dataset.classes=[0, 1]",
    "dataset.declared_size=90",
    *LINEAR,
)
CENTER = (
    "+dataset.center=middle",
    "dataset.public_scaling=true",
    "dataset.unit_norm=true",
    "dataset.scale=3",
)
RUNS: dict[str, tuple[str, ...]] = {
    "table": OF_TABLE,
    "table of shorter vectors by softmax": (
        *OF_TABLE,
        "certificate.features.radius=4",
        "certificate.features.bias=0.5",
        "training.loss=cross_entropy",
        "training.clip=1",
    ),
    "table of the recipe": (
        "dataset=mine",
        "dataset.declared_size=90",
        "training.chosen_on=public",
        "compute.threads=1",
    ),
    "table of bins": (*OF_TABLE, "dataset.bins=5", "dataset.numeric.age=[18,30,40.5,60,100]"),
    "vectors with a center": (*OF_VECTORS, *CENTER),
    "random features of crosses": (
        *OF_TABLE,
        "dataset.crosses=32",
        "certificate.features.map=relu",
        "certificate.features.count=20",
    ),
    "landmarks": (
        *OF_TABLE,
        "certificate/features=landmarks",
        "certificate.features.count=9",
        "certificate.features.public=test",
    ),
    "whitened": (*OF_TABLE, "certificate.features.whiten=0.5", "certificate.features.public=test"),
    "points": ("dataset=blobs", "dataset.n_train=80", *LINEAR),
}
ALONE = [name for name in RUNS if name.startswith(("table", "vectors"))]
RELEASE = ("mechanism=release_weights", "total.eps=10", "total.delta=1e-5")
FILES = {"release.json", "weights.npz", "README.md", "claim.json", "manifest.json"}

Home = Callable[[str], Path]


def published(home: Path, name: str, table: pd.DataFrame) -> Path:
    """Trains the run of that name in a folder, releases its weights and labels ``queries``;
    returns the folder.
    """
    home.mkdir()
    table.to_csv(home / "t.csv", index=False)
    np.savez(home / "e.npz", **VECTORS, middle=np.full((2, 2), 0.5))
    (home / "conf" / "dataset").mkdir(parents=True)
    (home / "conf" / "dataset" / "mine.yaml").write_text(json.dumps(COLUMNS))
    into = (
        f"data_dir={home}",
        f"hydra.run.dir={home / 'train'}",
        f"output_dir={home}",
        "-q",
        "--json",
    )
    assert main(["train", "--config-dir", str(home / "conf"), *RUNS[name], *into]) == 0
    asked = (
        f"run={home / 'train'}",
        f"inputs={write_queries(home, name)}",
        f"hydra.run.dir={home / 'predict'}",
    )
    assert (
        main(["predict", *asked, f"output_dir={home}", *RELEASE, "force=true", "-q", "--json"]) == 0
    )
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """``published`` once for each name; no test changes it."""
    root = tmp_path_factory.mktemp("portable")

    def make(name: str) -> Path:
        folder = root / name.replace(" ", "_")
        return folder if folder.exists() else published(folder, name, pd.DataFrame(TABLE))

    return make


def write_queries(folder: Path, name: str) -> Path:
    """500 queries, some of which are missing, unknown, out of range, or oddly written."""
    rng = np.random.default_rng(1)
    if name.startswith("vectors"):
        np.savez(folder / "queries.npz", x=rng.normal(size=(500, 2, 2)).astype(np.float32))
        return folder / "queries.npz"
    if name == "points":
        columns: dict[str, Any] = {"x1": rng.normal(size=500), "x2": rng.normal(size=500)}
    else:
        odd = rng.choice(
            ["a b", "ü", "7", "nowhere", "", "NA", " ü", "7.0", "x,y", 'say "no"'], 500
        )
        age = rng.choice(
            ["20", "55.5", " 70", "-3", "1e3", "", "NaN", "NAN", " -nan", "0.1e2"], 500
        )
        since = rng.choice(
            [
                "2019-12-31",
                *["2021-07-01 06:30", " 2023-01-01T23:59:59.5", "NA", "19000"] * 3,
                "1.2e-5",
            ],
            500,
        )
        columns = {
            ODD: odd,
            "net.income €": rng.normal(40, 60, 500),
            "unused": 1,
            "age": age,
            "since": since,
        }
    pd.DataFrame(columns).to_csv(folder / "queries.csv", index=False)
    return folder / "queries.csv"


def queries_of(home: Path) -> Path:
    return next(home.glob("queries.*"))


def labels_in(folder: Path) -> list[str]:
    return [str(label) for label in pd.read_csv(folder / "labels.csv", dtype=str)["label"]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RUNS)
def test_the_release_answers_without_the_run(home: Home, tmp_path: Path, name: str) -> None:
    there = home(name)
    shutil.copytree(there / "predict" / "release", tmp_path / "published")
    asked = (
        f"release={tmp_path / 'published'}",
        f"inputs={queries_of(there)}",
        f"output_dir={tmp_path}",
    )
    assert (
        main(["predict", *asked, f"hydra.run.dir={tmp_path / 'out'}", "force=true", "-q", "--json"])
        == 0
    )
    assert labels_in(tmp_path / "out") == labels_in(there / "predict")
    assert set(labels_in(tmp_path / "out")) <= (
        {"left", "right"} if name == "points" else {"0", "1"}
    )
    assert not (tmp_path / "out" / "spent.json").exists(), "answers spend nothing more"
    claim = json.loads((there / "predict" / "claim.json").read_text())
    assert claim["words"][0] in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize("name", ALONE)
def test_a_few_lines_of_plain_numpy_answer_as_agt_does(
    home: Home, tmp_path: Path, name: str
) -> None:
    """The lines of the README themselves, in a folder with the release and the queries, with
    NumPy and nothing else.
    """
    there = home(name)
    shutil.copytree(there / "predict" / "release", tmp_path / "published")
    shutil.copy(queries_of(there), tmp_path / "published")
    lines = re.search(
        r"```python\n(.*?)```", (tmp_path / "published" / "README.md").read_text(), re.S
    )
    assert lines is not None
    assert lines[1].count("\n") <= 11
    packages = tmp_path / "packages"
    installed = Path(np.__file__).parent
    packages.mkdir()
    for found in (installed, installed.parent / "numpy.libs"):
        if found.exists():
            (packages / found.name).symlink_to(found)
    code = f"import sys; sys.path.append({str(packages)!r})\n{lines[1]}"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path / "published", capture_output=True, text=True, timeout=120
    )
    assert not done.stderr
    assert done.stdout.split() == labels_in(there / "predict")


def test_answers_load_nothing_that_trains_certifies_or_draws(home: Home, tmp_path: Path) -> None:
    there = home("vectors with a center")
    asked = [
        "predict",
        f"release={there / 'predict'}",
        f"inputs={queries_of(there)}",
        f"output_dir={tmp_path}",
    ]
    ours = {"agt.relations.relation", "agt.mechanisms", "agt.training.setup", "agt.training.loop"}
    heavy = {
        "torch",
        "numba",
        "joblib",
        "sklearn",
        "matplotlib",
        "scipy.special",
        "scipy.linalg",
        *ours,
    }
    code = (
        f"import sys; from agt_cli.cli import main; sys.exit(main({asked}) or sorted({heavy} & "
        f"{{*sys.modules}}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_readme_is_for_strangers_and_tells_the_owner_nothing(home: Home) -> None:
    """Whoever reads it knows neither the publisher nor agt, and has the folder alone."""
    for name in RUNS:
        folder = home(name) / "predict" / "release"
        readme = (folder / "README.md").read_text()
        claim = json.loads((folder / "claim.json").read_text())
        for words in (claim["mechanism"], *claim["words"], "agt verify THIS_FOLDER digest="):
            assert words in readme
        for told in ("agt ledger", "run=", "agt train"):
            assert told not in readme, "a command for the owner"


def test_features_that_numpy_cannot_make_are_agts(home: Home) -> None:
    for name in set(RUNS) - set(ALONE):
        readme = (home(name) / "predict" / "release" / "README.md").read_text()
        assert "```" not in readme, "no code that makes them without agt"


@pytest.mark.parametrize("name", RUNS)
def test_it_holds_what_may_be_published_and_nothing_else(home: Home, name: str) -> None:
    folder = home(name) / "predict" / "release"
    assert {path.name for path in folder.iterdir()} == FILES
    node = json.loads((folder / "release.json").read_text())
    assert set(node) - {"columns", "missing", "separator", "encoding", "vectors"} == {
        "format", "name", "words", "brief", "noise", "classes",
        "source", "features", "width", "dtype", "radius", "bias",
    }  # fmt: skip
    claim = read_claim((folder / "claim.json").read_bytes())
    assert (claim.output, claim.publishable) == (Output.WEIGHTS, True)
    assert claim.declared
    assert (node["words"], node["brief"]) == (claim.lines(), claim.lines(brief=True))
    run = json.loads((home(name) / "train" / "env.json").read_text())
    release = json.loads((home(name) / "predict" / "env.json").read_text())
    private = [
        str(home(name)),
        run["data_digest"],
        run["features_digest"],
        release["trained_digest"],
        "accuracy",
    ]
    for path in folder.iterdir():
        text = path.read_bytes().decode(errors="replace")
        # A claim names results by which nothing may have been chosen, but gives none.
        text = text.replace("such as an accuracy, a stable distance or agt's advice", "")
        assert not [word for word in private if word in text], path.name


def test_another_owners_folder_differs_in_its_weights_alone(home: Home, tmp_path: Path) -> None:
    """Two data sets that agree in nothing but what was declared."""
    table = pd.DataFrame(TABLE).iloc[::-1][: N - 7]
    table["age"] += 1
    found = [
        folder / "predict" / "release"
        for folder in (home("table"), published(tmp_path / "other", "table", table))
    ]
    for name in ("release.json", "README.md"):
        assert (found[0] / name).read_bytes() == (found[1] / name).read_bytes()
    weights = [(folder / "weights.npz").read_bytes() for folder in found]
    assert weights[0] != weights[1]
    assert len(weights[0]) == len(weights[1])


# -- refusals


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["predict", *arguments, "-q"]) == 2
    return capsys.readouterr().err


def test_what_is_not_a_release_is_refused_by_name(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    there = home("table")
    release = there / "predict" / "release"
    queries = f"inputs={queries_of(there)}"
    assert "nowhere" in refused(capsys, "release=nowhere", queries)
    assert "the folder of a run" in refused(capsys, f"release={there / 'train'}", queries)
    assert "inputs=FILE" in refused(capsys, f"release={release}")
    for setting in (
        f"run={there / 'train'}",
        "seed=1",
        "total.eps=1",
        "mechanism.eps=1",
        "total.queries=5",
    ):
        assert setting.split("=")[0] in refused(capsys, f"release={release}", queries, setting)
    assert "0" * 64 in refused(capsys, f"release={release}", queries, f"digest={'0' * 64}")
    listed = json.loads((there / "predict" / "manifest.json").read_text())["files"]
    digest = f"digest={listed['release/manifest.json']}"
    itself = ("predict", f"release={there / 'predict'}", queries, digest, "force=true", "-q")
    assert main(itself) == 0, "the record itself, too"
    shutil.copytree(release, tmp_path / "spoilt")
    for name, edit in {"weights.npz": b"x", "release.json": b"{}"}.items():
        (tmp_path / "spoilt" / name).write_bytes(edit)
        changed = refused(capsys, "release=spoilt", queries)
        assert name in changed
        assert "manifest.json" in changed
        reseal(tmp_path / "spoilt")
        assert "release=spoilt" in refused(capsys, "release=spoilt", queries)
        shutil.copy(release / name, tmp_path / "spoilt" / name)
        reseal(tmp_path / "spoilt")
    assert main(["predict", "release=spoilt", queries, "force=true", "-q"]) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"words": []}, r"\bwords\b"),
        ({"words": ["\x1b[2Jproved"]}, "control"),
        ({"brief": ["\x1b[2Jproved"]}, "control"),
        ({"classes": ["0", "1", "2"]}, r"\b3 classes\b.*\b1\b"),
        ({"noise": {"proved": 1}}, r"\bnoise\b"),
        ({"noise": {"mu": float("nan")}}, r"release\.json .*\bNaN\b"),
        ({"dtype": "int8"}, r"\bdtype\b.*\bint8\b"),
        ({"format": 2}, r"format 2\b.*format 1\b"),
        ({"format": 3}, r"format 3\b.*format 1\b"),
        ({"source": {"_target_": "foreign.Table"}}, r"'foreign\.Table'"),
        ({"source": None}, r"\bsource\b.*\bNoneType\b"),
        ({"classes": ["0", "\x1b[2J"]}, "control"),
        ({"classes": ["0", "=cmd|' /C calc'!A0"]}, "formula"),
        *(
            ({"classes": ["0", name]}, "formula")
            for name in (
                'a;=HYPERLINK("http://e.vil")',
                "\uff1dcmd|x",
                " =1+1",
                "+.",
                'a"+b',
                "a,\uff20x",
                "x| -y",
            )
        ),
        ({"classes": ["-1", "+1.5"]}, ""),
        ({"classes": ["a; -1.", "b-c = d, e+"]}, ""),
        ({"noise": {"mu": 1.0, "sigma": 1.0}}, r"\bnoise\b"),
        (
            {
                "mechanism": "laplace",
                "noise": {"sigma": 1.0, "step": 1.0, "eps": 1.0, "apart": 3.0},
            },
            "",
        ),
        (
            {"mechanism": "laplace", "noise": {"sigma": 1.0, "step": 1.0, "proved": 1.0}},
            r"\bnoise\b",
        ),
        (
            {"mechanism": "laplace", "noise": {"sigma": 1.0, "step": 1.0, "a b": 1.0}},
            r"\bnoise\b",
        ),
        ({"mechanism": "a | b"}, r"\bmechanism\b.*'a \| b'"),
        ({"mechanism": 3}, r"\bmechanism\b.*\b3\b"),
        ({"noise": None}, "cannot be read"),
        ({"width": 10**12, "features": {"map": "relu", "count": 10**6}}, "cannot be read"),
        (
            {"width": 2**40, "features": {"whiten": 1.0, "public": "test"}},
            r"\bshapes\b",
        ),
    ],
)
def test_what_a_stranger_wrote_into_a_release_is_checked(
    home: Home, tmp_path: Path, change: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest fits, as anybody can make one: no code beyond agt's is imported, and no other
    form is believed.
    """
    (tmp_path / "foreign.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copytree(home("table") / "predict" / "release", tmp_path / "theirs")
    path = tmp_path / "theirs" / "release.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    reseal(tmp_path / "theirs")
    with pytest.raises(ConfigError, match=text) if text else nullcontext():
        Portable.open(tmp_path / "theirs").queries()


def _npz(content: bytes, packed: int = ZIP_STORED) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", packed) as archive:
        archive.writestr("weight.npy", content)
    return file.getvalue()


def _lying(content: bytes) -> bytes:
    """An archive whose entry says that it is of 128 bytes, whatever comes out of it."""
    raw = bytearray(_npz(content, ZIP_DEFLATED))
    for mark, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = raw.rfind(mark) + place
        raw[at : at + 4] = (128).to_bytes(4, "little")
    return bytes(raw)


HEAD = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 7), "
    b"}".ljust(127)
    + b"\n"
)
SPOILT: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "unpacks to much": ("weights.npz", lambda _: _npz(bytes(2**26), ZIP_DEFLATED)),
    "unpacks to more than it says": ("weights.npz", lambda _: _lying(bytes(2**26))),
    "packed otherwise": ("weights.npz", lambda _: _npz(bytes(99), ZIP_LZMA)),
    "a head of trillions": ("weights.npz", lambda _: _npz(HEAD)),
    "no array": ("weights.npz", lambda _: _npz(b"x")),
    "no archive": ("weights.npz", lambda raw: raw[:-9]),
    "levels": ("release.json", lambda _: b"[" * 200_000 + b"]" * 200_000),
    "utf-16": ("release.json", lambda raw: raw.decode().encode("utf-16")),
    "no object": ("release.json", lambda _: b"null"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_no_file_of_a_release_takes_more_than_it_may(
    home: Home, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "MAX_ARRAY_BYTES", 2**22)
    shutil.copytree(home("table") / "predict" / "release", tmp_path / "theirs")
    path = tmp_path / "theirs" / SPOILT[name][0]
    path.write_bytes(SPOILT[name][1](path.read_bytes()))
    reseal(tmp_path / "theirs")
    tracemalloc.start()
    with pytest.raises(ConfigError, match="theirs"):
        Portable.open(tmp_path / "theirs").queries()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


def test_an_entry_that_is_missing_or_odd_is_refused_or_read(home: Home, tmp_path: Path) -> None:
    """Whatever release.json holds: no other error, here or while its queries are answered."""
    release = home("table") / "predict" / "release"
    queries = tmp_path / "queries.csv"  # a few: they are read again for each value
    pd.read_csv(queries_of(home("table")), dtype=str, keep_default_na=False).head(4).to_csv(
        queries, index=False
    )
    shutil.copytree(release, tmp_path / "theirs")
    path = tmp_path / "theirs" / "release.json"
    node = json.loads(path.read_text())
    odd = (None, [], {}, -1, True, 10**30, 1e300, "x", "\ud800", ["a"], {"a": [[]]})
    places = [(key,) for key in node] + [("source", key) for key in node["source"]]
    answered = 0
    for *inside, key in places:
        for value in (*odd, ...):
            spoilt = json.loads(json.dumps(node))
            part = spoilt[inside[0]] if inside else spoilt
            part.pop(key) if value is ... else part.update({key: value})
            path.write_bytes(json.dumps(spoilt).encode())
            reseal(tmp_path / "theirs")
            with suppress(AgtError):
                opened = Portable.open(tmp_path / "theirs")
                opened.labels(opened.queries().load_queries(queries).features[:2])
                answered += 1
    assert 0 < answered < len(places) * 12


def test_a_simulation_makes_no_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    there = home("table")
    asked = (
        f"run={there / 'train'}",
        f"inputs={queries_of(there)}",
        "hydra.run.dir=simulated",
        *RELEASE,
        "seed=1",
        "-q",
    )
    assert main(["predict", *asked]) == 0
    assert not (tmp_path / "simulated" / "release").exists()
