"""No sentence of ours is read back: of accounts of erasures, of reports, and of what ``agt start`` says.

The sentences that templates make are of a class whose string methods raise where our own code calls
them; whoever shows text (markdown, the console, other libraries) may still escape and wrap it.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Agt
from museum import FinishedRuns

from agt.data.blobs import Blobs
from agt.unlearning import sentences
from agt.unlearning.sentences import TEMPLATES, Remark
from agt_cli.commands import start
from agt_cli.report import plan_words, quality, sections_md, training_md
from agt_cli.unlearn import account_md
from agt_cli.unlearn.account import read_account
from agt_cli.unlearn.log import REQUEST_LOG_FILE

OURS = ("agt", "agt_cli", "agt_audit", "experiments")
SHOWING = ("agt_cli.report.markdown", "agt_cli.report.console", "agt_cli.process", "agt_cli.report.figures")
METHODS = (
    *("__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__getitem__", "__iter__"),
    *("count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex"),
    *("rpartition", "rsplit", "split", "splitlines", "startswith", "strip", "lstrip", "rstrip"),
)
FUNCTIONS = ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")  # of re
TEMPLATE_FUNCTIONS: Mapping[Any, tuple[str, ...]] = {  # which functions of a module make sentences
    sentences: ("sentences",),
    account_md: ("headline", "summary", "account_lines", "exception_lines"),
    sections_md: ("ball", "within", "guarantee", "unmet", "half_stands"),
    training_md: ("caution_words",),
    plan_words: ("verdict", "advice"),
    quality: ("rate_words",),
    start: ("ways",),
}


class ReadBackError(Exception):
    """A sentence that a template made was looked into."""


class GuardedSentence(str):
    """Text that may be shown and joined, but not looked into by code of ours."""

    __slots__ = ()


def _guarded_method(name: str) -> Callable[..., Any]:
    plain = getattr(str, name)

    def method(self: str, *values: Any) -> Any:
        module = str(sys._getframe(1).f_globals.get("__name__"))
        if module.split(".")[0] in OURS and module not in SHOWING:
            raise ReadBackError(f"{module} calls {name} of {str.__str__(self)!r}")
        return plain(self, *values)

    return method


for method_name in METHODS:
    setattr(GuardedSentence, method_name, _guarded_method(method_name))


def guarded(value: Any) -> Any:
    """Return a value of a template with its texts guarded."""
    if isinstance(value, str):
        return GuardedSentence(value)
    if isinstance(value, dict):
        return {key: guarded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(guarded(item) for item in value)
    if isinstance(value, Iterator):
        return (guarded(item) for item in value)
    return value


@pytest.fixture
def sentences_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard what templates make, wherever they were imported; and refuse guarded text in regular expressions."""
    plain = Remark.sentence.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Remark, "sentence", property(lambda remark: guarded(plain(remark))))
    verdict = quality.Quality.__dict__["verdict"].func
    monkeypatch.setattr(quality.Quality, "verdict", property(lambda judged: guarded(verdict(judged))))
    for module, names in TEMPLATE_FUNCTIONS.items():
        for name in names:
            template = getattr(module, name)
            _replace_everywhere(monkeypatch, template, _guarding(template))
    for name in FUNCTIONS:
        monkeypatch.setattr(re, name, _refusing_guarded(getattr(re, name)))


def _guarding(template: Callable[..., Any]) -> Callable[..., Any]:
    def made(*given: Any, **named: Any) -> Any:
        return guarded(template(*given, **named))

    return made


def _replace_everywhere(monkeypatch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] in OURS]
    for module in modules:
        for name, value in list(vars(module).items()):
            if value is old:
                monkeypatch.setattr(module, name, new)


def _refusing_guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    def refusing(*given: Any, **named: Any) -> Any:
        module = str(sys._getframe(1).f_globals.get("__name__"))
        reads = any(isinstance(value, GuardedSentence) for value in given)
        if reads and module.split(".")[0] in OURS and module not in SHOWING:
            raise ReadBackError(f"{module} searches {given!r}")
        return function(*given, **named)

    return refusing


def run_as_ours(code: str, **names: Any) -> Any:
    """Evaluate code as if it stood in a module of the package."""
    return eval(code, {"__name__": "agt_cli.verify.example", "re": re, **names})


READS = (
    "'data' in text",
    "text == 'data'",
    "'data' != text",
    "text.startswith('data')",
    "text.replace('a', 'b')",
    "text.partition(' ')",
    "text.removesuffix('a')",
    "text.split()",
    "text[0]",
    "{text: 1}",
    "text in ['data']",
    "re.search('a', text)",
    "re.sub('a', 'b', text)",
)


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("code", READS)
def test_a_sentence_that_is_looked_into_is_noticed(code: str) -> None:
    with pytest.raises(ReadBackError):
        run_as_ours(code, text=Remark("simulated").sentence)


@pytest.mark.usefixtures("sentences_are_guarded")
def test_a_sentence_may_be_shown_and_joined() -> None:
    text = Remark("simulated").sentence
    assert run_as_ours("f'{text}; ' + ', '.join([text, text])", text=text).count("simulation") == 3


TRAIN = ("train", "dataset.n_train=80", "training.epochs=1", "kgrid.max=3", "compute.kernel=reference", "model=linear")
LINEAR = ("training.loss=binary_cross_entropy", "training.clip=0.5", "training.momentum=0", "training.weight_decay=0.1")
PUBLIC = "training.chosen_on=public"
ERASURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # how a run is trained, and how records go
    "retrain": ((), ("method=retrain",)),
    "fresh": ((), ("method=retrain", "fresh=true")),
    "certificate": ((), ("method=certificate",)),
    "sisa": (("ensemble.members=2",), ("method=sisa",)),
    "newton": ((*LINEAR, "certificate=removal"), ("method=newton",)),
    "newton, too small a budget": (
        (*LINEAR, "certificate=removal", "certificate.bound=worst", "certificate.sigma=0.02"),
        ("method=newton",),
    ),
}


def ask(rows: range) -> None:
    """Write the ids of these rows of the blobs to ids.txt."""
    ids = Blobs(center=1.25, std=0.35, n_train=80).load().train.ids
    Path("ids.txt").write_text("".join(f"{ids[row]}\n" for row in rows))


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("name", ERASURES)
def test_erasures_and_their_verification_read_no_sentence(agt: Agt, name: str) -> None:
    trained, method = ERASURES[name]
    agt(*TRAIN, *trained, PUBLIC, "hydra.run.dir=outputs/train/a", "-q").ended(0)
    if name == "retrain":
        agt("certify", "run=outputs/train/a", "map_resolution=0", "-q").ended(0)
        agt("predict", "run=outputs/train/a", "mechanism.eps=1", "force=true", "-q").ended(0)
    ask(range(3))
    line = ("unlearn", "run=outputs/train/a", "ids=ids.txt", *method)
    agt(*line, "rehearse=true").ended(0)
    agt(*line, "hydra.run.dir=outputs/unlearn/a").ended(0)
    for folder in ("outputs/unlearn/a", "outputs/train/a"):
        agt("verify", folder).ended(0)
    if name == "certificate":
        agt("certify", "run=outputs/train/a", "map_resolution=0", "-q").ended(0)
        agt("unlearn", "run=outputs/train/a", "hydra.run.dir=outputs/unlearn/b").ended(0)
        agt("verify", "outputs/unlearn/b").ended(0)


@pytest.mark.parametrize("name", ["retrain", "newton"])
def test_accounts_and_logs_hold_no_sentence_of_a_template(agt: Agt, name: str) -> None:
    trained, method = ERASURES[name]
    agt(*TRAIN, *trained, PUBLIC, "hydra.run.dir=outputs/train/a", "-q").ended(0)
    ask(range(3))
    agt("unlearn", "run=outputs/train/a", "ids=ids.txt", *method, "hydra.run.dir=outputs/unlearn/a", "-q").ended(0)
    account = Path("outputs/unlearn/a/account.json").read_text(encoding="utf-8")
    log = (Path("outputs/train/a") / REQUEST_LOG_FILE).read_text(encoding="utf-8")
    made = [*read_account(account.encode()).removal.sentences, *read_account(account.encode()).removal.promise.sentences]
    assert made
    for text in (*made, *(template for template in TEMPLATES.values() if "{" not in template)):
        assert json.dumps(text) not in account
        assert json.dumps(text) not in log


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("run", ["train/box", "train/linear"])
def test_reports_of_a_run_read_no_sentence(finished_runs: FinishedRuns, agt: Agt, tmp_path: Path, run: str) -> None:
    finished_runs.copy(run, tmp_path / "run")
    os.chdir(tmp_path)
    agt("certify", "run=run", "map_resolution=0").ended(0)
    agt("plan", "run=run", "eps=[1.0]", "queries=[10]", "mechanisms=[randomized_response]").ended(0)
    agt("verify", "run").ended(0)


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("public", ["yes", "no"])
def test_start_reads_no_sentence(agt: Agt, tmp_path: Path, public: str) -> None:
    rows = [f"{row},{row % 7},{row % 11},{int(row % 7 > 3)}" for row in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,b,y", *rows]) + "\n")
    os.chdir(tmp_path)
    agt("start", "t.csv", "label=y", "id=none", f"public={public}", "purpose=answers", "eps=1").ended(0)
