"""How long agt takes to answer a typing mistake: about 320 of them, a line each.

    python scripts/mistakes.py                       all; about twelve minutes on one core
    python scripts/mistakes.py --only train --repeat 1

Each command line has one mistake that its words alone tell, or a file or folder beside them. The
time is the processor time of the whole process (user and system), the median of several runs. On a
machine that does other work at the same time it is up to twice as long as on a quiet one. The first
lines are the floor: what Python and the libraries that compose and check settings take without any
mistake. Python's byte code is kept between runs, as in an installation.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MISTAKES = (
    "trian",
    "train eps=-1",
    "train total.delta=2",
    "train training.lr=-1",
    "train training.lr=fast",
    "train training.lrr=0.1",
    "train training.epochs=2.5",
    "train training.clip=true",
    "train training.momentum=1",
    "train training.dtype=float16",
    "train training.chosen_on=nobody",
    "train training.batch.count=0",
    "train training.loss=logistic",
    "train relation=add_removed",
    "train relation.unit_rows=0",
    "train kgrid.max=-5",
    "train kgrid.values=5",
    "train model=linaer",
    "train model=[linear]",
    "train model=linear certificate=stabilty",
    "train model=linear certificate=stability certificate.features.count=few",
    "train model=linear certificate=stability certificate.features.map=fourier",
    "train model=linear certificate=votes ensemble.members=0",
    "train model=linear certificate=votes ensemble.vote=margin",
    "train model.hidden=[0]",
    "train model.activation=rellu",
    "train compute.device=gpu",
    "train compute.threads=0",
    "train noise.epsilon=-1",
    "train datset=blobs",
    "train dataset=tabel",
    "train dataset=blobs dataset.std=-1",
    "train dataset=table",
    "train dataset=table dataset.path=clients.csv",
    "train dataset=table dataset.path=missing.csv dataset.label=bought",
    "train dataset=table dataset.path=clients.xlsx dataset.label=bought model=linear",
    "train dataset=table dataset.path=clients.csv dataset.label=bought dataset.bins=-1",
    "train dataset=table dataset.path=clients.csv dataset.label=bought dataset.lable=bought",
    "train resume=missing",
    "train experiment=digit",
    "tune dataset=digits tune.folds=1",
    "tune dataset=digits tune.objective=acuracy",
    "measure dataset=table dataset.path=clients.csv dataset.label=bought total.eps=-1",
    "certify",
    "certify run=missing",
    "certify run=RUN map_resolution=-1",
    "certify run=RUN inptus=queries.csv",
    "certify run=RUN digest=abc",
    "plan run=RUN eps=[-1]",
    "plan run=RUN queries=[0]",
    "plan run=RUN mechanisms=[gausian]",
    "predict run=RUN eps=-1",
    "predict run=RUN mechanism=gausian total.eps=1",
    "predict run=RUN total.eps=1 total.delta=2",
    "predict run=RUN mechanism.eps=-1",
    "unlearn run=RUN by=",
    "unlearn run=RUN method=",
    "unlearn run=RUN method=newtom",
    "verify RUN digest=xyz",
    "start clients.xlsx",
    "data inspect clients.xlsx",
    "data inspct clients.csv",
    "ledger init people run=RUN total.eps=-1 unit=person",
    "audit membershp run=RUN",
    "audit certificate",
    "audit mechanism mechanism=randomized_response",
    "audit selftest seed=-1",
    "train dataset=blobs training.lerning_rate=1",
    "audit certificate run=RUN audit.datasets=-1",
    "reproduce blobs profile=smok",
    "start .",
    "start clients.csv label=bought id=none public=ja",
    "start clients.csv answers=missing.yaml",
    "data clients.csv",
    "train dataset=clients.csv",
    "train --dataset=digits",
    "certify run=outputs/train",
    "certify run=RUN/model.safetensors",
    "certify run=RUN inputs=queries.csv",
    "plan run=RUN queries=100k",
    "predict run=RUN mechanism=noisy_statistics",
    "predict run=RUN mechanism=noisy_argmax mechanism.eps=1",
    "predict run=RUN ledger=people mechanism.eps=1",
    "predict release=outputs/train inputs=clients.csv",
    "unlearn run=RUN",
    "unlearn run=RUN ids=requests.txt",
    "ledger show people",
    "ledger init people run=RUN total.eps=1 unit=person head=stick/people.head",
    "verify latest",
    "verify clients.csv",
    "train training.lr=",
    "train training.lr=0,1",
    "train training.seed=-1",
    "train training.learning_rate=0.1",
    "train training.batch_size=64",
    "train --epochs 5",
    "train données=digits",
    "train dataset=blobs,digits",
    "train dataset=mnist dataset.classes=[0]",
    "train kgrid.values=[1,5]",
    "train certificate.name=votes",
    "train output_dir=clients.csv",
    "tune tune.name=a/b",
    "measure",
    "measure total.eps=1",
    "certify run=RUN inputs=clients.xlsx",
    "certify run=RUN training.lr=1",
    "plan run=RUN eps=[]",
    "unlearn run=RUN ids=[1,2]",
    "verify RUN page=report.pdf",
    "start clients.csv publik=yes",
    "ledger init people total.eps=1",
    "train training.epochs=3 training.epochs=5",
    "train training.decay=1 training.lr_decay=2",
    "train ++training.foo=1",
    "train +training.lr=1",
    "train ~training.lr",
    "train DATASET=blobs",
    "train total.eps=1",
    "train training.lr=1e400",
    "train training.lr=10%",
    "train training.epochs=",
    "train model.hidden=[16,16",
    "train model.hidden=16",
    "train kgrid=10",
    "train compute.memory_mb=4GB",
    "train dataset=table dataset.path=my clients.csv dataset.label=bought",
    "train dataset=table dataset.path=clients.csv dataset.label=bougth +dataset.numeric.age=[0,99]",
    "train dataset=table dataset.path=clients.csv dataset.label=bought +dataset.numeric.agee=[0,9]",
    "train certificate=dp",
    "train .",
    "help train trainig",
    "TRAIN",
    "certify RUN",
    "certify run=RUN k=5",
    "certify run=RUN digest=sha256:" + "0" * 64,
    "certify run=outputs",
    "plan run=RUN eps=1",
    "plan run=RUN mechanism=randomized_response",
    "predict run=RUN mechanism=RandomizedResponse",
    "predict run=RUN reserve=-1",
    "predict run=RUN ledger=",
    "unlearn run=RUN ids=5",
    "verify run=RUN",
    "verify https://example.org/run",
    "start file=clients.csv",
    "start clients.csv label=bougth",
    "start clients.csv label=bought id=agee",
    "start clients.csv eps=1,5",
    "start clients.csv size=1.000",
    "data inspect clients.csv label=bougth",
    "data inspect clients.csv id_column=age",
    "ledger init people total.eps=1 unit=",
    "ledger people show",
    "tune dataset=digits tune.public=nowhere.csv",
    "audit replay run=RUN confidence=95%",
    "reproduce Blobs",
    "runs limit=ten",
    "runs outputs",
    "doctor verbose=true",
    "reproduce blobs only=[x]",
    "reproduce blobs data=original",
    "reproduce blobs \"overrides=['relation=remove']\"",
    "predict run=RUN mechanism=randomized_response mechanism.eps=1",
    "predict run=RUN mechanism=release_weights total.eps=1 total.delta=1e-5",
    "predict run=RUN mechanism=laplace_mean mechanism.eps=1",
    "predict run=RUN mechanism.eps=1 reserve=5",
    "predict run=RUN mechanism=noisy_statistics mechanism.mu=1 counting=index",
    "predict run=RUN mechanism.eps=1 inputs=outputs",
    "plan run=RUN mechanisms=[noisy_argmax]",
    "plan run=RUN eps=0,5",
    "plan run=RUN inputs=outputs",
    "certify run=RUN inputs=clients.csv",
    "certify run=RUN inputs=[a,b]",
    "certify run=RUN tolerance=1",
    "verify RUN head=abc",
    "tune dataset=digits",
    "tune dataset=digits tune.public=test tune.grid={training.lrr:[1,2]}",
    "tune dataset=digits tune.public=test tune.grid={training.lr:[-1,2]}",
    "tune dataset=digits tune.public=test tune.grid={trainng.lr:[1]}",
    "train training.clip_derivative=1",
    "train model=linear certificate=stability training.clip_elementwise=1",
    "train model.hidden=64,32",
    "train kgrid.values=1,5",
    "train model._target_=my_net.make_net",
    "train model=custom model._target_=my_net.make_net +model.wdth=3",
    "train dataset=digits model=linear certificate=stability noise.epsilon=1",
    "train dataset=digits model=linear certificate=stability training.momentum=0.5",
    "train dataset=digits model=linear certificate=stability relation=flip",
    "train dataset=digits model=linear certificate=stability ledger=none",
    "train dataset=digits model=linear certificate=box training=recipe",
    "train dataset=blobs noise.epsilon=1 ensemble.members=3",
    "train dataset=table dataset.path=clients.csv dataset.label=bought dataset.unit=person "
    "+dataset.numeric.age=[0,99]",
    "train dataset=embeddings dataset.path=clients.csv dataset.label=bought",
    "train dataset=mnist",
    "train model.encoder=small_cnn",
    "train trust=my_net.make_net",
    "audit prediction run=RUN",
    "audit weights mechanism=release_weights",
    "predict run=RUN mechanism=certified_quantile mechanism.eps=1 mechanism.fraction=2",
    "predict run=RUN mechanism=certified_quantile total.eps=1 mechanism.fraction=half",
    "predict run=RUN mechanism=randomized_response mechanism.eps=1 mechanism.classes=1",
    "predict run=RUN mechanism=randomized_response mechanism.eps=1 mechanism.delta=0.7",
    "predict run=RUN mechanism=gaussian_margin mechanism.mu=1 mechanism.classes=3",
    "predict run=RUN mechanism=noisy_argmax mechanism.eps=1 mechanism.moves=3",
    "predict run=RUN mechanism=smooth_laplace mechanism.eps=1",
    "predict run=RUN mechanism=smooth_laplace mechanism.eps=90 mechanism.delta=1e-5",
    "predict run=RUN mechanism=noisy_statistics mechanism.mu=1 mechanism.width=1",
    "predict run=RUN mechanism=noisy_statistics mechanism.mu=1 mechanism.seed=-1",
    "predict run=RUN mechanism=objective_perturbation total.eps=1 total.delta=1e-5 "
    "mechanism.weight_decay=-1",
    "predict run=RUN mechanism=release_weights mechanism.mu=-1",
    "predict run=RUN mechanism.eps=200",
    "predict run=RUN mechanism.eps=1 total.eps=1",
    "predict run=RUN mechanism.eps=1 unproved=maybe",
    "predict run=RUN mechanism.eps=1 ledger=nobody",
    "predict --config-name other run=RUN",
    "audit mechanism mechanism=randomized_response mechanism.eps=1 mechanism.classes=1",
    "audit mechanism mechanism=randomized_response mechanism.eps=1 audit.trials=0",
    "audit mechanism mechanism=noisy_argmax mechanism.eps=1 audit.values=[0,5]",
    "audit mechanism run=RUN mechanism=randomized_response mechanism.eps=1",
    "audit weights mechanism=noisy_statistics mechanism.mu=1 mechanism.width=1",
    "audit weights mechanism=randomized_response mechanism.eps=1",
    "audit replay run=RUN",
    "audit replay run=RUN inputs=clients.csv mechanism=randomized_response mechanism.eps=1",
    "audit dpsgd run=RUN",
    "audit prediction run=RUN mechanism=release_weights mechanism.mu=1",
    "audit prediction run=RUN mechanism=randomized_response total.eps=1",
    "audit prediction run=RUN mechanism=randomized_response mechanism.eps=1 audit.together=20000",
    "audit certificate run=RUN audit.units=many",
    "audit certificate run=RUN mechanism=randomized_response mechanism.eps=1",
    "audit membership run=RUN audit.shadows=3",
    "audit membership run=RUN mechanism=randomized_response",
    "audit unlearning run=RUN audit.methods=[newtom]",
    "verify outputs",
    "verify .",
    "verify nowhere",
    "verify RUN ledger=nobody",
    "verify RUN head=1:abc",
    "unlearn run=RUN ids=requests.txt method=newton",
    "unlearn run=RUN ids=requests.txt method=sisa",
    "unlearn run=RUN ids=clients.xlsx",
    "unlearn run=RUN ids=clients.csv",
    "unlearn run=RUN ids=empty.csv",
    "unlearn run=RUN ids=outputs",
    "unlearn run=RUN ids=requests.txt by=person",
    "unlearn run=RUN ids=requests.txt unknown=maybe",
    "start clients.csv answers=outputs",
    "start my clients.csv",
    "data inspect my clients.csv",
    "data inspect empty.csv",
    "data inspect outputs",
    "start clients.csv label=bought unit_rows=0",
    "start clients.csv purpose=all",
    "train --config-name other",
    "train training.batch.n_max=1",
    "train dataset=digits training.batch.n_max=5",
    "train dataset=digits training.batch.normalizer=0",
    "train model=linear certificate=votes relation=perturb relation.radius=0.1",
    "train dataset=digits model=linear certificate=votes ensemble.members=5 "
    "relation=perturb relation.radius=0.1",
    "train relation=add_remove relation.radius=1",
    "train dataset=digits relation=flip",
    "train dataset=digits relation=remove noise.epsilon=1",
    "train dataset=blobs model=linear certificate=stability",
    "train dataset=digits model=linear certificate=stability compute.device=cuda",
    "train dataset=digits model=linear certificate=stability training.loss=squared_error",
    "train dataset=digits model=linear certificate=stability certificate.average=0",
    "train dataset=digits model=linear certificate=erm training.weight_decay=0",
    "train dataset=digits model=linear certificate=removal ensemble.members=3 "
    "training.weight_decay=0.1",
    "train dataset=digits model=linear certificate=votes certificate.learner=svm",
    "train dataset=digits dataset.declared_size=0",
    "train dataset=table dataset.path=semi.csv dataset.label=bought +dataset.numeric.age=[0,99]",
    "train dataset=table dataset.path=empty.csv dataset.label=bought +dataset.numeric.age=[0,99]",
    "train dataset=table dataset.path=clients.csv dataset.label=bought +dataset.numeric.age=[99,0]",
    "train dataset=embeddings dataset.path=semi.csv dataset.label=bought",
    "train dataset=embeddings dataset.path=outputs dataset.label=bought",
    "train hydra.run.dir=clients.csv",
    "train kgrid.max=100000",
    "train training.nesterov=true",
    "train noise.delta=0.1",
    "train resume=RUN",
    "certify run=RUN person=[]",
    "certify run=RUN inputs=empty.csv",
    "plan run=RUN delta=1",
    "plan run=RUN eps=[1,1]",
    "plan run=RUN mechanisms=[release_weights]",
    "tune dataset=digits tune.trials=0",
    "ledger init new total.eps=0 unit=person",
    "ledger show nobody",
    "train dataset=medmnist dataset.name=foo",
    "train dataset=blobs model=conv",
    "train dataset=digits model=conv",
    "train compute.kernel=cpu compute.device=cuda",
    "certify run=RUN compute.kernel=gpu",
    "train -m resume=",
    "train -m resume=RUN,RUN",
    "tune dataset=digits tune.public=test model.hidden=[16]",
    "tune dataset=digits tune.public=test model=linear certificate=votes ensemble.members=5",
    "tune dataset=digits tune.public=test model=linear certificate=stability ensemble.members=3",
    "start clients.csv drop=[age,visits,bought]",
    "start clients.csv drop=[age,visits] label=bought",
    "start header_only.csv",
    "data inspect header_only.csv",
    "certify run=SHOP inputs=header_only.csv",
    "predict run=SHOP inputs=header_only.csv mechanism.eps=1",
    "predict run=DIGITS mechanism=gaussian_margin mechanism.mu=1",
    "predict run=DIGITS mechanism=smooth_laplace total.eps=1 total.delta=1e-5",
    "predict run=SHOP mechanism=objective_perturbation total.eps=1 total.delta=1e-5",
    "plan run=PRICES mechanisms=[randomized_response]",
    "predict run=PRICES mechanism=certified_quantile mechanism.eps=1",
    "predict run=PRICES mechanism=release_weights mechanism.mu=1",
    "predict run=SHOP mechanism.eps=0.1",
    "predict run=SHOP ledger=spent/shop.ledger mechanism.eps=1",
    "predict run=SHOP ledger=spent/shop.ledger mechanism=certified_quantile total.eps=1",
    "predict run=SHOP ledger=spent/shop.ledger mechanism=release_weights mechanism.mu=0.1",
    "predict run=SHOP ledger=pure/shop.ledger mechanism=gaussian_margin mechanism.mu=0.1",
    "predict run=SHOP ledger=pure/shop.ledger mechanism=release_weights total.eps=1 "
    "total.delta=1e-5",
    "predict run=SHOP ledger=others/swaps.ledger mechanism.eps=0.1",
    "predict run=SHOP ledger=others/empty.ledger mechanism.eps=0.1",
    "predict run=SHOP inputs=text.csv mechanism.eps=0.1 ledger=none",
    "verify RUN digest=sha256:" + "0" * 64,
)
"""Command lines without ``agt``; words in capitals name folders of finished runs (``RUNS``)."""

FLOOR = (
    ("python", "pass"),
    ("pydantic", "import pydantic.dataclasses"),
    ("Hydra", "import hydra"),
    ("Hydra and settings", "import hydra, agt.settings"),
    ("the same, train composed", "from agt_cli.composing import composed; composed('train', [])"),
)
"""What it is -> a program that does it alone."""

ROWS = 300
TABLE = "model=linear dataset=table +dataset.numeric.age=[0,99] dataset.declared_size=225"
RUNS = {
    "RUN": "dataset=digits model=linear certificate=stability",
    "DIGITS": "dataset=digits dataset.classes=[1,2,3] dataset.declared_size=400 model=linear "
    "certificate=stability",
    "SHOP": f"{TABLE} dataset.path=clients.csv dataset.label=bought +dataset.classes=[no,yes] "
    "certificate=stability",
    "PRICES": f"{TABLE} dataset.path=prices.csv dataset.label=price dataset.target=numeric "
    "dataset.range=[0,50] certificate=votes",
}
"""Word of a mistake -> the settings of the training run that it names."""
LEDGERS = (
    "ledger init spent/shop.ledger run=SHOP total.eps=0.1",
    "predict run=SHOP ledger=spent/shop.ledger mechanism=certified_quantile mechanism.eps=0.1 "
    "inputs=ages.csv force=true",
    "ledger init pure/shop.ledger run=SHOP total.eps=1 another_population=true",
    "ledger init others/swaps.ledger total.eps=1 unit=person relation=substitute",
    "ledger init others/empty.ledger total.eps=1 unit=person",
)
"""Command lines that make the ledgers that mistakes name."""


@dataclass(frozen=True)
class Answer:
    """What one command line did.

    Attributes:
        seconds: processor time of the process, user and system.
        code: its exit code.
        line: the first line that it wrote to standard error.
    """

    seconds: float
    code: int
    line: str


def main() -> None:
    """Print the table, and how many lines took no longer than each of four limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only lines that contain this text")
    parser.add_argument("--repeat", type=int, default=5, help="the median time of how many runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = make_world(folder)
        for what, program in FLOOR:
            floor = answer([sys.executable, "-c", program], folder, options.repeat)
            print(f"{floor.seconds:6.2f}      {what}")
        answers = []
        for mistake in MISTAKES:
            if options.only not in mistake:
                continue
            words = _words(mistake, runs)
            found = answer([sys.executable, "-m", "agt_cli", *words], folder, options.repeat)
            print(f"{found.seconds:6.2f}  {found.code}   agt {mistake}\n            {found.line}")
            answers.append(found)
    for limit in (0.4, 0.5, 0.6, 1.0):
        below = sum(found.seconds <= limit for found in answers)
        print(f"{below} of {len(answers)} in at most {limit} s")
    slowest = max(found.seconds for found in answers)
    accepted = sum(found.code == 0 for found in answers)
    print(f"slowest: {slowest:.2f} s; accepted: {accepted}")


def make_world(folder: Path) -> dict[str, str]:
    """Write the files that the mistakes name, and train the runs; return the runs' folders."""
    rows = [f"{18 + row % 60},{row % 7},{'yes' if row % 3 else 'no'}" for row in range(ROWS)]
    (folder / "clients.csv").write_text("\n".join(["age,visits,bought", *rows]) + "\n")
    (folder / "my clients.csv").write_text("age,bought\n1,yes\n")
    (folder / "semi.csv").write_text("\n".join(["age;bought", *["30;yes", "40;no"] * 20]) + "\n")
    (folder / "empty.csv").write_text("")
    (folder / "header_only.csv").write_text("age,visits,bought\n")
    (folder / "text.csv").write_text("age\nold\n30\n")
    (folder / "ages.csv").write_text("\n".join(["age", *map(str, range(100, 120))]) + "\n")
    prices = [f"{18 + row % 60},{row % 50}" for row in range(ROWS)]
    (folder / "prices.csv").write_text("\n".join(["age,price", *prices]) + "\n")
    (folder / "requests.txt").write_text("3\n17\n")
    (folder / "clients.xlsx").write_bytes(b"PK\x03\x04" + bytes(2000))
    (folder / "my_net.py").write_text(
        "from torch import nn\n\n\ndef make_net(width=2):\n"
        "    return nn.Sequential(nn.Linear(width, 2))\n"
    )
    runs = {}
    for name, settings in RUNS.items():
        outputs = f"outputs/{name.lower()}" if name != "RUN" else "outputs"
        _run_agt(f"train {settings} output_dir={outputs} -q", folder, {})
        (run,) = (folder / outputs / "train").iterdir()
        runs[name] = str(run.relative_to(folder))
    for line in LEDGERS:
        _run_agt(line, folder, runs)
    return runs


def _run_agt(line: str, folder: Path, runs: Mapping[str, str]) -> None:
    """Run a command line of the world that mistakes are made in; it must succeed."""
    command = [sys.executable, "-m", "agt_cli", *_words(line, runs)]
    done = subprocess.run(
        command, cwd=folder, env=_environment(folder), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"agt {line}\n{done.stderr}")


def _words(line: str, runs: Mapping[str, str]) -> list[str]:
    """Return the words of a command line, with folders in place of the names of runs."""
    for name, run in runs.items():
        line = re.sub(rf"\b{name}\b", run, line)
    return shlex.split(line)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a command, with byte code and the user's lists in a folder."""
    environment = {
        **os.environ,
        "PYTHONPYCACHEPREFIX": str(folder / "byte_code"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def answer(command: list[str], folder: Path, repeat: int) -> Answer:
    """Run a command line several times; returns what it said, with the median of its times."""
    _answer_once(command, folder)  # writes the byte code
    answers = [_answer_once(command, folder) for _ in range(repeat)]
    answers.sort(key=lambda found: found.seconds)
    return answers[len(answers) // 2]


def _answer_once(command: list[str], folder: Path) -> Answer:
    environment = _environment(folder)
    with tempfile.TemporaryFile("w+") as written:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=written,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        written.seek(0)
        lines = written.read().splitlines()
    line = next((line for line in lines if "error" in line), lines[0] if lines else "")
    return Answer(usage.ru_utime + usage.ru_stime, process.returncode, line)


if __name__ == "__main__":
    main()
