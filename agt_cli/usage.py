"""Commands, their help, and what shells complete of them.

Nothing here imports torch, Hydra or a task, so that help is immediate.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from shutil import get_terminal_size
from textwrap import TextWrapper, dedent

import agt_cli
from agt.errors import ConfigError, nearest

DESCRIPTION = "Certified private machine learning: train with bounds, certify predictions."
FLAGS = (
    ("--json", "one JSON object on stdout, and nothing else there"),
    ("-q", "no progress and no hints"),
    ("-v", "tracebacks for failures that are bugs"),
    ("--version", "print the version"),
    ("-h, --help", "this help; after a command, the command's"),
)
HYDRA = (
    ("KEY=VALUE", "change a setting: agt train training.lr=0.5 kgrid.max=20"),
    ("+KEY={a: 1}", "add entries to a setting that is a mapping"),
    ("GROUP=NAME", "choose a file of a group: agt train dataset=digits"),
    ("--cfg job", "print the composed configuration instead of running"),
)
SWEEPS = (
    ("-m, --multirun", "run every combination of comma-separated values: agt train -m training.seed=0,1,2"),
    ("sweep=NAME", "with -m: keep the sweep under this name; the same line again runs only what is not done yet"),
    ("hydra/launcher=joblib", "with -m: several at once; or submitit_local, slurm (which need submitit)"),
)
ALSO = (
    ("help COMMAND", "the same as agt COMMAND --help"),
    ("completion SHELL", 'completion for bash, zsh or fish: eval "$(agt completion bash)" in ~/.bashrc installs it'),
)
OPTIONS = (
    *("--json", "-q", "--quiet", "-v", "--verbose", "--version", "--help"),
    *("--multirun", "--cfg", "--resolve", "--hydra-help", "--config-dir"),
)
WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd")
"""Hydra's options that take the word after them."""

_LIST = "agt runs lists what was run; filter and sort the list with pandas: agt runs limit=null --json"
_INFO = "agt shows what is composed: agt COMMAND --cfg all prints it, with Hydra's own settings"
_AUDITS = "agt audit summary was removed: agt runs command=audit lists the audits of all runs, with their verdicts"
_TUBE = (
    "the curvature tube was removed, because a linear head went at least as far at equal accuracy: "
    "use certificate=stability model=linear, or certificate=votes"
)
_NO_FOURIER = "fourier features were removed: use landmarks, which need rows that are declared public"
_NO_CROSSES = "crosses of vectors were removed: use dataset.crosses=1024, of a table's columns"
_NO_TRIALS = "private tuning was removed: tune on rows declared public (tune.public), or take the recipe"
_SIGNED = "agt signs nothing itself: ssh-keygen -Y sign signs manifest.json, and -Y verify checks it (docs/trust.md)"
_RELEASED = "weights that were released answer by themselves: agt predict release=FOLDER, the folder release/ of their run"
_SHADOWS = (
    "agt audit shadows was removed: agt audit membership trains the shadow models, and agt audit memorisation of the "
    "same run uses them again"
)
_POISONS = "agt audit prediction has no poisoned records any more: leave it out; every other attack is as it was"
OLD_SPELLINGS = {
    "runs where=": _LIST,
    "runs sort=": _LIST,
    "unlearn key=": _SIGNED,
    "verify public=": _SIGNED,
    "audit=summary": _AUDITS,
    "certificate=tube": _TUBE,
    "certificate.length": _TUBE,
    "certificate.norms": _TUBE,
    "certificate.spread": _TUBE,
    "experiment=imdb_tube": _TUBE,
    "experiment=imdb_tube_far": _TUBE,
    "model=smooth": _TUBE,
    "training=imdb_tube": _TUBE,
    "training=imdb_tube_far": _TUBE,
    "mechanism.weights": _RELEASED,
    "mechanism.weights_digest": _RELEASED,
    "audit=shadows": _SHADOWS,
    "audit audit.poisons=": _POISONS,
    "audit audit.retrainings=": _POISONS,
    "--info": _INFO,
    "-i": _INFO,
    "certificate/features=fourier": _NO_FOURIER,
    "certificate.features.map=fourier": _NO_FOURIER,
    "certificate/features=crosses": _NO_CROSSES,
    "certificate.features.map=crosses": _NO_CROSSES,
    "certificate.features.order": _NO_CROSSES,
    "certificate.features.weight": _NO_CROSSES,
    "tune.private": _NO_TRIALS,
    "tune.trials": _NO_TRIALS,
    "tune.trials.mean": _NO_TRIALS,
    "tune.trials.eta": _NO_TRIALS,
    "tune.seed": _NO_TRIALS,
    "mechanism.shrink": "shrinkage of released weights was removed: leave it out, or agt plan names what answers better",
    "ensemble.slices": "slices of shards were removed: leave it out; agt unlearn method=sisa trains members whole",
    "hydra.sweeper.devices": "CUDA_VISIBLE_DEVICES=0,1 before agt says which GPUs the jobs of a sweep use, one each",
    "hydra.sweep.subdir": "the folder of a sweep's job is named by what it computes: leave it out",
}
"""What earlier versions took -> what to type instead: an option, KEY, ``COMMAND KEY=``, KEY=VALUE, or
GROUP=NAME, for which a command's word stands, too."""

_NAME = re.compile(r"\w[\w.-]*")
_GRAMMAR = re.compile(r"""["'\[\]{},$\\]""")  # what is meant for Hydra: quotes, lists, mappings, sweeps, interpolations
QUOTES = "'\""
PATHS = ("ledger", "run", "release", "inputs", "ids", "file", "path", "page", "head", "resume", "unreadable")
"""Settings that name a file, a folder or a ledger: in no name is an interpolation resolved."""
_FUNCTION = re.compile(r"[a-z_]+\(.*\)")
_FOREIGN = re.compile(r"[^\w\s/+.%*@?|:-]|[^\x00-\x7f]")


def instead_of(command: str, word: str) -> str | None:
    """Return what to type instead of a word that an earlier version took; None: it did not."""
    setting = word.lstrip("+")
    key, equals, _ = setting.partition("=")
    for spelling in (f"{command} {key}{equals}", setting, key):
        if spelling in OLD_SPELLINGS:
            return OLD_SPELLINGS[spelling]
    return None


@dataclass(frozen=True)
class Word:
    """A word that stands right after the command (``agt data prepare imdb``): it becomes the setting KEY=WORD.

    Attributes:
        key: the configuration key, or the group, that the word chooses.
        choices: the words there are; empty: the options of the configuration group ``key``, or, for ``name``, what
            experiments/ holds.
        free: it may be any word: what help calls it.
        after: it stands only after this word; empty: always.
    """

    key: str
    choices: tuple[str, ...] = ()
    free: str = ""
    after: str = ""

    @property
    def known(self) -> tuple[str, ...]:
        """The words there are, or the name of a free one."""
        if self.free:
            return (self.free,)
        if self.key == "name":
            return tuple(sorted(path.stem for path in experiments_dir().glob("*.yaml")))
        return self.choices or tuple(options(self.key))


@dataclass(frozen=True)
class Command:
    """One command: the module that runs it, its primary configuration, what its help says, and the words it takes.

    Attributes:
        path: of its module.
        recorded: it leaves a run record; False: it looks, and writes nothing.
    """

    path: str
    config: str
    help: str
    examples: tuple[str, ...]
    words: tuple[Word, ...] = ()
    recorded: bool = True

    @property
    def module(self) -> str:
        return self.path.replace("/", ".")


COMMANDS: dict[str, Command] = {
    "start": Command(
        "agt_cli/commands/start",
        "start",
        "FILE: from a table to a model by a few questions: how good it is, how private answers could be; nothing is spent",
        (
            "agt start loans.csv                           asks what it must",
            "agt start loans.csv label=default id=none public=yes purpose=both eps=1",
            "agt start loans.csv answers=answers.yaml eps=0.5",
        ),
        (Word("file", free="FILE"),),
        recorded=False,
    ),
    "train": Command(
        "agt_cli/commands/train",
        "train",
        "train a model together with bounds on every neighbouring dataset's model, for every k of the grid",
        (
            "agt train                                     the embedded default: blobs, a minute on a CPU",
            "agt train dataset=digits model=linear         real digits, 3 against 8",
            "agt train dataset=table dataset.path=my.csv dataset.label=y '+dataset.numeric={age: [0, 100]}'",
            "agt train relation=remove kgrid=sparse        certificates about deletions alone",
            "agt train resume=outputs/train/2026-01-31_12-00-00-000000     a run that was killed goes on, to the same bits",
        ),
    ),
    "tune": Command(
        "agt_cli/commands/tune",
        "tune",
        "choose settings on data declared public, by folds, as an experiment for agt train; or privately, at a price",
        (
            "agt tune dataset=loans                        training records that dataset.public marks as public",
            "agt tune dataset=loans tune.public=public.csv tune.objective=accuracy",
            "agt tune dataset=loans tune.public=test 'tune.grid={training.caution: [1, 2], dataset.bins: [10, 20]}'",
        ),
    ),
    "measure": Command(
        "agt_cli/commands/measure",
        "measure",
        "a table's ranges, lists, classes and size from its records, with noise, where nobody knows them in public",
        (
            "agt measure dataset=loans total.eps=0.2",
            "agt measure dataset=loans total.eps=0.2 ledger=people dataset.unit=customer relation.unit_rows=12",
        ),
    ),
    "certify": Command(
        "agt_cli/commands/certify",
        "certify",
        "stable distance of every test record, or of the queries in a file, with table, figures and report",
        (
            "agt certify run=outputs/train/2026-01-31_12-00-00-000000",
            "agt certify run=... inputs=queries.csv",
        ),
    ),
    "plan": Command(
        "agt_cli/commands/plan",
        "plan",
        "how accurate private answers would be, for each mechanism and budget, before anything is released",
        (
            "agt plan run=outputs/train/2026-01-31_12-00-00-000000",
            "agt plan run=... eps=[0.5,1] delta=1e-6 queries=[1,100,10000]",
        ),
    ),
    "predict": Command(
        "agt_cli/commands/predict",
        "predict",
        "private labels for a file of queries, each with a stated guarantee; refuses where the guarantee would not hold",
        (
            "agt predict run=... inputs=queries.csv mechanism.eps=0.1      pure eps = 0.1 for each query",
            "agt predict run=... inputs=queries.csv mechanism=release_weights total.eps=1 total.delta=1e-5",
            "agt predict run=... inputs=queries.npz mechanism=release_weights total.eps=1 total.delta=1e-5",
            "agt predict run=... ledger=people inputs=q.csv mechanism.eps=0.01   counted first; repeats are free",
            "agt predict run=... ledger=people inputs=- mechanism.eps=0.01 lot=1000     JSON lines, in and out",
        ),
    ),
    "ledger": Command(
        "agt_cli/commands/ledger",
        "ledger",
        "one population's budget, for good: init makes it, show and verify look at it, admit adds a table about the people",
        (
            "agt ledger init loans run=latest total.eps=1 total.delta=1e-5 unit='one customer' head=/media/stick",
            "agt ledger show loans                         what was spent, on what, and what is left",
            "agt ledger verify loans head=COUNT:HASH       against what show once printed; exit code 3: it is wrong",
            "agt ledger admit loans run=FOLDER             this run's data are the same people, and share the budget",
        ),
        (Word("action", ("init", "show", "verify", "admit")), Word("ledger", free="NAME")),
        recorded=False,
    ),
    "unlearn": Command(
        "agt_cli/commands/unlearn",
        "unlearn",
        "erasure requests in; out of it the run's next state, in the same folder, and an account that can be checked",
        (
            "agt unlearn run=latest ids=requests.txt               the cheapest method whose guarantee holds",
            "agt unlearn run=... ids=requests.csv method=certificate    noted; what is stable without them is answered",
            "agt unlearn run=...                                   what was noted is carried out",
            "agt unlearn run=... ids=- by=id fresh=true",
            "agt unlearn -m run=... ids=requests.txt method=newton,retrain rehearse=true   compared, on copies",
        ),
    ),
    "reproduce": Command(
        "agt_cli/_experiments/reproduce",
        "reproduce",
        "NAME: the papers' figures and tables on one data set, ours beside the published numbers; goes on where it stopped",
        (
            "agt reproduce blobs                           both profiles side by side",
            "agt reproduce imdb data_dir=/data profile=ours",
            "agt reproduce blobs profile=smoke             small, in a minute",
            "agt reproduce blobs only=[001_fig2,001_fig6]",
        ),
        (Word("name"),),
    ),
    "data": Command(
        "agt_cli/commands/data",
        "data",
        "inspect FILE: look at a table and write a dataset configuration for it; prepare NAME: turn raw data into a folder",
        (
            "agt data inspect loans.csv                    writes conf/dataset/loans.yaml, which agt train takes",
            "agt data inspect loans.csv label=default id=contract name=loans2024 force=true",
            "agt data prepare imdb prepare.reviews=imdb.parquet prepare.model=gpt2",
            "agt data prepare amex data_dir=/mnt/large",
        ),
        (
            Word("action", ("prepare", "inspect")),
            Word("prepare", after="prepare"),
            Word("file", free="FILE", after="inspect"),
        ),
    ),
    "verify": Command(
        "agt_cli/commands/verify",
        "verify",
        "PATH: whether a run, a release or a ledger is what was made, and what it rests on, for an auditor; writes nothing",
        (
            "agt verify outputs/predict/2026-01-31_12-00-00-000000",
            "agt verify release digest=sha256:...          as its publisher told you",
            "agt verify outputs/train/... page=audit.html  the same as a page",
            "agt verify ledgers/loans.ledger head=COUNT:HASH",
        ),
        (Word("path", free="PATH"),),
        recorded=False,
    ),
    "audit": Command(
        "agt_audit/command",
        "audit",
        "KIND: attack a run's own claims; what was claimed, what was tried, how hard, what was found; exit code 3: false",
        (
            "agt audit certificate run=latest              neighbours of the data, trained again: does every bound hold?",
            "agt audit mechanism run=latest mechanism=randomized_response mechanism.eps=1",
            "agt audit selftest                            what is planted on purpose must be caught",
            "agt audit certificate --help                  a kind's own settings",
        ),
        (Word("audit"),),
    ),
    "doctor": Command(
        "agt_cli/commands/doctor",
        "doctor",
        "device, kernels and floating point: what is wrong, and what to do",
        (
            "agt doctor",
            "agt doctor --json",
        ),
        recorded=False,
    ),
    "runs": Command(
        "agt_cli/commands/runs",
        "runs",
        "what was run, the newest first: chosen by state, data set or kind, or side by side; writes nothing",
        (
            "agt runs                                      every run below outputs/",
            "agt runs command=train state=failed since=2026-01-31",
            "agt runs data=adult kind=erm limit=null --json",
            "agt runs compare=[2026-01-31_12-00-00-000000,2026-02-01_09-30-00-000000]",
        ),
        recorded=False,
    ),
}


@cache
def config_dir() -> Path:
    """The configuration: inside the package if installed from a wheel, beside it in a source tree."""
    return _folder("conf")


def user_conf() -> Path | None:
    """The user's own configuration, ./conf; None where there is none, or it is the package's."""
    folder = Path("conf").absolute()
    return folder if folder.is_dir() and not folder.samefile(config_dir()) else None


@cache
def experiments_dir() -> Path:
    """What the papers' figures and tables need, found the same way."""
    return _folder("experiments")


def _folder(name: str) -> Path:
    package = Path(agt_cli.__file__).resolve().parent
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parent / name


def settings_from_words(name: str, rest: Sequence[str]) -> list[str]:
    """The rest of a command line with the command's words as settings; they may stand anywhere in it.

    Args:
        name: the command.
        rest: what follows it.

    Raises:
        ConfigError: a word is missing or unknown; says which there are.
    """
    bare, before = bare_words(rest), [name]
    found, missing = words_of(name, [rest[place] for place in bare])
    for word, given in found:
        if not word.free and given not in word.known:
            unknown = f"agt {' '.join(before)}: unknown word '{given}'{nearest(given, word.known)}"
            raise ConfigError(OLD_SPELLINGS.get(f"{word.key}={given}", unknown))
        before.append(given)
    if missing:
        raise ConfigError(f"agt {' '.join(before)}: one more word is needed, right here: {', '.join(missing.known)}")
    settings = [f"{word.key}={quoted(given) if word.free else given}" for word, given in found]
    taken, options = bare[: len(settings)], _options(rest)
    others = [word for place, word in enumerate(rest) if place not in (*taken, *options)]
    # Hydra wants its options on one side.
    return [*settings, *map(_readable, others), *(rest[place] for place in options)]


def words_of(name: str, bare: Sequence[str]) -> tuple[list[tuple[Word, str]], Word | None]:
    """(the words that a command takes, each with what stands there; the first that is missing)."""
    found: list[tuple[Word, str]] = []
    for word in COMMANDS[name].words:
        if word.after in ("", found[-1][1] if found else ""):
            if len(found) == len(bare):
                return found, word
            found.append((word, bare[len(found)]))
    return found, None


def settings_of_sweep(rest: Sequence[str]) -> list[str]:
    """A command line in which ``sweep=NAME`` has become the folder that Hydra gives the sweep.

    Raises:
        ConfigError: it is no sweep, or no name for a folder.
    """
    named = [word for word in rest if word.partition("=")[0] == "sweep"]
    if not named:
        return list(rest)
    name = named[-1].partition("=")[2].strip("'\"").removesuffix(agt_cli.SWEEP_SUFFIX)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{named[-1]}: a sweep's name is letters, digits and . _ - behind the first")
    if not is_sweep(rest):
        raise ConfigError(f"{named[-1]} names the folder of a sweep: add -m, and values to try: training.seed=0,1,2")
    folder = f"hydra.sweep.dir='${{output_dir}}/${{hydra.job.config_name}}/{name}{agt_cli.SWEEP_SUFFIX}'"
    return [folder, *(word for word in rest if word not in named)]


def is_sweep(rest: Sequence[str]) -> bool:
    """Whether a command line asks for a job for each combination of values."""
    return bool({"-m", "--multirun"} & set(rest))


def bare_words(rest: Sequence[str]) -> list[int]:
    """Where words stand that are neither options, with their values, nor settings."""
    options = _options(rest)
    return [
        place
        for place, word in enumerate(rest)
        if place not in options and "=" not in word and not word.startswith(("+", "~"))
    ]


def _options(rest: Sequence[str]) -> list[int]:
    """Where options stand, and the words that they take."""
    before = ["", *rest]
    return [place for place, word in enumerate(rest) if word.startswith("-") or before[place] in WITH_VALUE]


def _readable(word: str) -> str:
    """A setting whose value Hydra's grammar would not take is text: names of files, in any language and with any sign.

    A home directory is put in its place, which shells leave alone behind an equals sign. A learner of the user's own has
    settings that no configuration knows.
    """
    if word.startswith("certificate.learner."):
        word = f"++{word}"
    key, equals, value = word.partition("=")
    if value.startswith("~/"):
        value = os.path.expanduser(value)
        word = f"{key}={value}"
    if "${" in value and key in PATHS:
        return f"{key}={quoted(value.strip(QUOTES))}"
    plain = not _GRAMMAR.search(value) and not _FUNCTION.fullmatch(value)
    return f"{key}={quoted(value)}" if equals and plain and _FOREIGN.search(value) else word


def quoted(value: str) -> str:
    """Any text as a value of an override that is read back as this text, also where it holds an interpolation.

    In Hydra's grammar a blank, a comma or a bracket says something, and so does a quote.
    """
    value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    return "'" + re.sub(r"(\\*)('|$)", lambda tail: 2 * tail[1] + ("\\'" if tail[2] else ""), value) + "'"


def overview() -> str:
    """The text of ``agt --help``."""
    commands = [(name, command.help) for name, command in COMMANDS.items()]
    return "\n".join(
        [
            DESCRIPTION,
            "",
            "usage: agt COMMAND [WORD ...] [KEY=VALUE ...] [options]",
            *_section("commands", commands),
            *_section("also", ALSO),
            *_section("options", FLAGS),
            "",
            "agt COMMAND --help lists a command's examples and settings.",
            "exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 a check not met, 4 data missing, 130 interrupted,",
            "143 terminated (SIGTERM), 129 hung up (SIGHUP)",
        ]
    )


def command_help(name: str, rest: Sequence[str] = ()) -> str:
    """The text of ``agt COMMAND --help``: purpose, examples, groups with their options, settings.

    Args:
        rest: of the command line; what it chooses of a group (``agt audit mechanism``, ``mechanism=gaussian_margin``) is
            told with its settings.
    """
    command = COMMANDS[name]
    usage = ["", *(f"usage: agt {name} {words} [KEY=VALUE ...] [options]" for words in _ways(command.words))]
    usage = usage if command.words else []
    lines = [f"agt {name}: {command.help}", *usage, "", "examples:", *(f"  {line}" for line in command.examples)]
    for group in groups(command.config):
        lines += _section(f"{group}=", [(option, summary(text)) for option, text in options(group).items()])
    lines += _section("settings", _settings(_lines(command.config)))
    for group, option in _chosen(name, rest):
        inside = _settings(options(group)[option].splitlines())
        own = [(f"{group}.{setting}", about) for setting, about in inside if not setting.startswith("_target_=")]
        lines += _section(f"settings of {group}={option}", own or [("", "it has none")])
    lines += _section("ways to change and combine them", HYDRA + SWEEPS * command.recorded)
    return "\n".join([*lines, *_section("options", FLAGS)])


def _ways(words: Sequence[Word]) -> list[str]:
    """How the words of a command may follow each other, as help shows it."""
    starts = [word.after for word in words if word.after] or [""]
    return [
        " ".join(start if start in word.known else "|".join(word.known) for word in words if word.after in ("", start))
        for start in starts
    ]


def groups(config: str) -> list[str]:
    """The configuration groups that a command's primary file chooses from, last those inside them
    (``certificate/features``); Hydra's own left out."""
    chosen = [line.removeprefix("  - ").strip() for line in _lines(config) if line.startswith("  - ")]
    below = [group for name in chosen if name in COMMANDS for group in groups(name)]  # tune's settings are train's and more
    names = [name for line in chosen if ":" in line and (name := line.split(":")[0]) != "hydra"]
    return [*below, *names, *(inside for name in names for inside in sorted(packed()) if inside.startswith(f"{name}/"))]


@cache
def packed() -> dict[str, dict[str, str]]:
    """Group -> option -> its YAML text, of groups of one file: groups/GROUP.yaml in conf/ or experiments/conf/.

    Each entry of such a file is what a file GROUP/OPTION.yaml would be; the comment above it is that file's head.
    """
    found: dict[str, dict[str, str]] = {}
    for folder in (config_dir() / "groups", experiments_dir() / "conf" / "groups"):
        for path in sorted(folder.rglob("*.yaml")):
            group = found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), {})
            for part in re.split(r"\n\n(?=[#\w])", path.read_text(encoding="utf-8").rstrip("\n")):
                head, name, body = re.split(r"^(\w+):\n", part, maxsplit=1, flags=re.MULTILINE)
                group[name] = head + dedent(body) + "\n"
    return found


def options(group: str) -> dict[str, str]:
    """Option name -> YAML text, for one group: the package's own, and behind them those of the working directory."""
    folders = [folder for folder in (user_conf(), config_dir()) if folder]
    paths = {path.stem: path for folder in folders for path in (folder / group).glob("*.yaml")}
    texts = {name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items()}
    return dict(sorted({**texts, **packed().get(group, {})}.items()))


def is_own(group: str, option: str) -> bool:
    """Whether agt itself has this option of a group; with an empty group, this primary file."""
    return option in packed().get(group, {}) or (config_dir() / group / f"{option}.yaml").exists()


def summary(text: str) -> str:
    """What a configuration file says it is: its first comment that is no directive."""
    for line in text.splitlines():
        if line.startswith("# ") and not line.startswith("# @package"):
            return line.removeprefix("# ")
    return ""


def _chosen(name: str, rest: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(group, option) of what a command line chooses, by a word or by GROUP=NAME; what there is not is left out."""
    chosen = dict(word.split("=", 1) for word in rest if "=" in word)
    chosen |= {word.key: given for word, given in words_of(name, [rest[place] for place in bare_words(rest)])[0]}
    known = (group for group in groups(COMMANDS[name].config) if chosen.get(group) in options(group))
    yield from ((group, chosen[group]) for group in known)


def _settings(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Top-level ``key: value`` lines with the comment above or behind each; those of a block with the comment behind."""
    settings, comment, block = [], "", ""
    for before, line in pairwise(["", *lines]):
        if line.startswith("# "):
            text = line.removeprefix("# ")
            comment = f"{comment} {text}" if before.startswith("# ") else text
        elif block and line.startswith("  "):
            setting, _, about = line.strip().partition(" # ")
            settings.append((f"{block}.{setting.strip().replace(': ', '=', 1)}", about))
        elif line and not line.startswith((" ", "#", "defaults:")):
            setting, _, about = line.partition(" # ")
            block = line.removesuffix(":") if line.endswith(":") else ""
            settings += [] if block else [(setting.strip().replace(": ", "=", 1), about or comment)]
            comment = "" if setting.startswith("_target_") else comment  # that was the whole file's
    return settings


def _lines(config: str) -> list[str]:
    return (config_dir() / f"{config}.yaml").read_text(encoding="utf-8").splitlines()


def _section(title: str, rows: "list[tuple[str, str]] | tuple[tuple[str, str], ...]") -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"  {name:<{width}}  {text}".rstrip() for name, text in rows]
    if sys.stdout.isatty():  # else a line stays one, as grep wants it
        broken = TextWrapper(max(get_terminal_size().columns, width + 44), subsequent_indent=" " * (width + 4))
        lines = [part for line in lines for part in broken.wrap(line)]
    return ["", f"{title}:", *lines] if rows else []


# -- what a shell completes: names of files are its own --------------------------------------------------------------------

SCRIPTS = {
    "bash": r"""# completion of agt for bash; in ~/.bashrc: eval "$(agt completion bash)"
_agt_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
        "${COMP_WORDS[0]}" completion --query bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac
    return 0
}
complete -o default -F _agt_complete agt""",
    "zsh": r"""# completion of agt for zsh; in ~/.zshrc, after compinit: eval "$(agt completion zsh)"
_agt_complete() {
    local -a open whole
    local line
    while IFS= read -r line; do
        case "$line" in *=) open+=("$line") ;; *) whole+=("$line") ;; esac
    done < <("${words[1]}" completion --query zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
    (( ${#open} + ${#whole} )) || { compset -P '*='; _files }
}
compdef _agt_complete agt""",
    "fish": r"""# completion of agt for fish; in ~/.config/fish/config.fish: agt completion fish | source
complete -c agt -a '(agt completion --query fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}
INSTALL = (
    'eval "$(agt completion bash)" completes in this bash; the same line in ~/.bashrc in every one (zsh, fish: likewise)'
)


def completion(arguments: Sequence[str]) -> int:
    """``agt completion SHELL`` prints what the shell is to load; the shell then asks with ``--query``.

    Raises:
        ConfigError: no shell is named, or one that has no script.
    """
    if arguments[:1] == ["--query"]:
        typed = re.sub("\0?([=:]+)\0?", r"\1", "\0".join(arguments[2:])).split("\0")  # bash cuts words at = and : as well
        done = typed[-1].rfind("=") + 1 if arguments[1] == "bash" else 0
        with suppress(Exception):  # whatever a user's own file holds: nobody asked for a message here
            for candidate in sorted(set(candidates(typed))):
                print(candidate[done:])
        return 0
    shell = next((word for word in arguments if not word.startswith("-")), "")
    if {"-h", "--help", "help"} & set(arguments):
        print(f"usage: agt completion {'|'.join(SCRIPTS)}\n\n{INSTALL}")
    elif shell in SCRIPTS:
        print(SCRIPTS[shell])
    else:
        missing = f"unknown shell '{shell}'{nearest(shell, SCRIPTS)}" if shell else f"which shell: {', '.join(SCRIPTS)}?"
        raise ConfigError(f"agt completion: {missing}; {INSTALL}")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last word may become.

    Args:
        words: those behind ``agt``, the last one as far as it was typed.
    """
    *before, typed = words
    line = [word for word in before if word not in ("-q", "-v", "--quiet", "--verbose", "--json")]
    known: Iterable[str] = ()
    if typed.startswith("-"):
        known = OPTIONS
    elif not line or line == ["help"]:
        known = (*COMMANDS, *([] if line else ["help", "completion"]))
    elif line == ["completion"]:
        known = SCRIPTS
    elif line[0] in COMMANDS:
        known = _open_settings(line[0], line[1:], typed)
    return [word for word in known if word.startswith(typed)]


def _open_settings(name: str, before: Sequence[str], typed: str) -> Iterator[str]:
    """A word that the command takes, a group, or an option of one."""
    known = groups(COMMANDS[name].config)
    group, equals, _ = typed.partition("=")
    if equals:
        yield from (f"{group}={option}" for option in (options(group) if group in known else ()))
        return
    _, missing = words_of(name, [before[place] for place in bare_words(before)])
    if missing:
        yield from () if missing.free else missing.known
        return
    yield from (f"{group}=" for group in known)
