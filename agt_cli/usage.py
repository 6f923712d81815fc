"""Commands, their help, and what shells complete of them.

Nothing here imports torch, Hydra or a task, so that help is immediate.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import agt_cli
from agt.errors import ConfigError, nearest
from agt_cli.config_files import experiment_names, options_of_group

IDS_NEED_A_FILE = (
    "ids cannot be listed on the command line. Write them into a file, one id per line, and give "
    "ids=FILE"
)


def ids_by_pipe(run: str = "RUN") -> str:
    """Return what to type to give ids of records without a file."""
    return f"give the ids on standard input: printf 'ID1\\nID2\\n' | agt unlearn run={run} ids=-"


FLAGS = (
    ("--json", "print one JSON object on stdout and nothing else"),
    ("-q", "print no progress and no hints"),
    ("-v", "print the Python traceback of an error that is a bug in agt"),
    ("--version", "print the version"),
    ("-h, --help", "print this help; after a command, print the help of that command"),
)

OPTIONS = (
    "--json",
    "-q",
    "--quiet",
    "-v",
    "--verbose",
    "--version",
    "--help",
    "--multirun",
    "--cfg",
    "--resolve",
    "--config-dir",
)

OPTIONS_WITH_VALUE = ("--cfg", "-c", "--config-dir", "-cd")
"""Hydra's options that take the word after them."""

_LIST = (
    "this setting was removed. agt runs limit=null --json prints all runs, which you can then "
    "filter or sort yourself (with pandas, for example)"
)

_INFO = (
    "this option was removed. To print the whole configuration of a command, including Hydra's "
    "own settings, type agt COMMAND --cfg all"
)

_AUDITS = (
    "agt audit summary was removed. To list all audits with their verdicts, type agt runs "
    "command=audit"
)

_TUBE = (
    "certificate=tube was removed, because a linear model certified at least as many answers at "
    "the same accuracy. Give certificate=stability model=linear, or certificate=votes"
)

_NO_FOURIER = (
    "the feature map 'fourier' was removed. Give certificate/features=landmarks instead, which "
    "needs rows that are declared public"
)

_NO_CROSSES = (
    "the feature map 'crosses' was removed. For a table, give dataset.crosses=1024 instead, which "
    "adds features made from pairs of columns"
)

_NO_TRIALS = (
    "tuning on private records was removed. Choose settings on rows that are declared public "
    "(agt tune with tune.public=...), or train with training=recipe, which needs no tuning"
)

_SIGNED = (
    "agt does not sign files itself. Sign manifest.json with `ssh-keygen -Y sign`, and check the "
    "signature with `ssh-keygen -Y verify` (see docs/trust.md)"
)

_RELEASED = (
    "this setting was removed. To answer queries with released weights, type agt predict "
    "release=FOLDER (the folder release/ that an earlier agt predict wrote)"
)

_SHADOWS = (
    "agt audit shadows was removed. Type agt audit membership, which trains the shadow models "
    "itself; agt audit memorisation reuses these models"
)

_POISONS = (
    "this setting was removed, because agt audit prediction no longer makes a poisoning "
    "attack. Leave the setting out"
)

_TRAINER = "this setting was removed, because its two values meant the same. Leave it out"
_CHOOSING = (
    "this setting was removed: the audit always chooses the attacked event on releases of their "
    "own. Leave it out"
)
_LEFT_OUT = (
    "this setting was removed, because `agt audit certificate` tests the same claim: type agt "
    "audit certificate run=latest audit.units=NUMBER"
)

_PAIRS_OF_A_RUN = (
    "this setting was removed, because this audit attacks a mechanism by itself. Leave it and "
    "run=... out, or type agt audit replay run=latest mechanism=..."
)

_SCRATCH = (
    "this setting was removed, because temporary runs and test ledgers are in the audit's own "
    "folder: give output_dir=FOLDER, a folder on a local disk"
)

_CLUSTER = (
    "the launchers of the package submitit were removed. For several jobs at once on this machine, "
    "give hydra/launcher=joblib. On a cluster, let its scheduler run one command line for each job "
    "(docs/running.md)"
)

_CONFIGURATION_NAME = (
    "this option was removed. Put settings of your own into a file conf/experiment/NAME.yaml, "
    "whose first line is '# @package _global_', and give experiment=NAME"
)

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
    "audit audit.scratch=": _SCRATCH,
    "audit audit.trainer=": _TRAINER,
    "audit audit.choosing=": _CHOOSING,
    "audit audit.left_out=": _LEFT_OUT,
    "audit audit.segments=": _PAIRS_OF_A_RUN,
    "audit=mechanism audit.neighbours": _PAIRS_OF_A_RUN,
    "audit=weights audit.neighbours": _PAIRS_OF_A_RUN,
    "audit audit.pairs=": _LEFT_OUT,
    "audit audit.retrainings=": _POISONS,
    "--info": _INFO,
    "-i": _INFO,
    "--package": _INFO,
    "-p": _INFO,
    "--config-name": _CONFIGURATION_NAME,
    "-cn": _CONFIGURATION_NAME,
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
    "mechanism.shrink": (
        "this setting, which made released weights smaller, was removed. Leave it out; agt "
        "plan shows which mechanism is the most accurate"
    ),
    "ensemble.slices": (
        "this setting was removed, because agt unlearn method=sisa now retrains each affected "
        "member of the ensemble as a whole. Leave it out"
    ),
    "hydra.sweeper.devices": (
        "this setting was removed. To choose the GPUs for the jobs of a sweep (one GPU for each "
        "job), set an environment variable, for example CUDA_VISIBLE_DEVICES=0,1 agt train -m ..."
    ),
    "hydra.sweeper.max_batch_size": (
        "this setting was removed. To run fewer jobs at the same time, give hydra.launcher.n_jobs"
    ),
    "hydra/launcher=slurm": _CLUSTER,
    "hydra/launcher=submitit_local": _CLUSTER,
    "hydra/launcher=submitit_slurm": _CLUSTER,
    "hydra.sweep.subdir": (
        "this setting was removed, because the folder of each job of a sweep is now named after "
        "what the job computes. Leave the setting out"
    ),
}
"""What earlier versions took -> what to type instead: an option, KEY, ``COMMAND KEY=``, KEY=VALUE,
or GROUP=NAME, for which a command's word stands, too. ``GROUP=NAME KEY`` is a key that one option
of a group had, and others may still have.
"""

_NAME = re.compile(r"\w[\w.-]*")

# what is meant for Hydra: quotes, lists, mappings, sweeps, interpolations
_HYDRA_GRAMMAR = re.compile(r"""["'\[\]{},$\\]""")

QUOTES = "'\""

PATH_SETTINGS = (
    "ledger",
    "run",
    "release",
    "inputs",
    "ids",
    "file",
    "path",
    "page",
    "head",
    "resume",
    "unreadable",
)
"""Settings that name a file, a folder or a ledger: in no name is an interpolation resolved."""

_FUNCTION = re.compile(r"[a-z_]+\(.*\)")

_NEEDS_QUOTES = re.compile(r"[^\w\s/+.%*@?|:-]|[^\x00-\x7f]")


def replacement_of(command: str, word: str) -> str | None:
    """Return what to type instead of a word that an earlier version took; None: no version did."""
    setting = word.lstrip("+")
    key, equals, _ = setting.partition("=")
    for spelling in (f"{command} {key}{equals}", setting, key):
        if spelling in OLD_SPELLINGS:
            return OLD_SPELLINGS[spelling]
    return None


@dataclass(frozen=True)
class PositionalArgument:
    """An argument that a command takes without a key (``agt data prepare imdb``).

    Its value becomes the setting KEY=VALUE.

    Attributes:
        key: the configuration key or group that the argument sets.
        choices: the values that are allowed; empty: the options of the configuration group
            ``key``, or, if the key is ``name``, the experiments in experiments/.
        placeholder: the argument's name in help, if any value is allowed; empty: only the values
            in ``allowed`` are.
        after: the value that the previous argument must have; empty: any.
    """

    key: str
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    after: str = ""

    @property
    def allowed(self) -> tuple[str, ...]:
        """The values that are allowed; if any value is, only the placeholder."""
        if self.placeholder:
            return (self.placeholder,)
        if self.key == "name":
            return experiment_names()
        return self.choices or tuple(options_of_group(self.key))


@dataclass(frozen=True)
class Command:
    """One command of agt.

    Attributes:
        path: the path of the module that runs it, without its suffix.
        config: the name of its primary configuration.
        help: a sentence on what the command does, for help pages.
        examples: command lines, for help pages.
        positionals: the arguments that it takes without a key, in this order.
        recorded: True: each run of the command leaves a record.
    """

    path: str
    config: str
    help: str
    examples: tuple[str, ...]
    positionals: tuple[PositionalArgument, ...] = ()
    recorded: bool = True

    @property
    def module(self) -> str:
        """The full name of the module that runs the command."""
        return self.path.replace("/", ".")


COMMANDS: dict[str, Command] = {
    "start": Command(
        "agt_cli/commands/start",
        "start",
        "ask a few questions about the table in FILE, train a model, and show how accurate the "
        "model is and how private answers could be published; spends no privacy budget",
        (
            "agt start loans.csv                           # asks what it needs to know",
            "agt start loans.csv label=default id=none public=yes purpose=both eps=1",
            "agt start loans.csv answers=answers.yaml eps=0.5",
        ),
        (PositionalArgument("file", placeholder="FILE"),),
        recorded=False,
    ),
    "train": Command(
        "agt_cli/commands/train",
        "train",
        "train a model, and bound how far the model could change if up to k training records "
        "were different, for each k of a list (settings kgrid)",
        (
            "agt train                                     # trains on the built-in data set "
            "blobs, which takes one minute on a CPU",
            "agt train dataset=digits model=linear         # classifies images of the "
            "handwritten digits 3 and 8",
            "agt train dataset=table dataset.path=my.csv dataset.label=y '+dataset.numeric={age: "
            "[0, 100]}'",
            "agt train relation=remove kgrid=sparse        # certifies answers only against "
            "the removal of records",
            "agt train resume=outputs/train/2026-01-31_12-00-00-000000 # resumes a killed run; "
            "the result is bit-identical",
        ),
    ),
    "tune": Command(
        "agt_cli/commands/tune",
        "tune",
        "choose settings by cross-validation on data that are declared public, and write them to "
        "a file for agt train experiment=NAME",
        (
            "agt tune dataset=loans                        # uses the training records that "
            "the column dataset.public marks as public",
            "agt tune dataset=loans tune.public=public.csv tune.objective=accuracy",
            "agt tune dataset=loans tune.public=test 'tune.grid={training.caution: [1, 2], "
            "dataset.bins: [10, 20]}'",
        ),
    ),
    "measure": Command(
        "agt_cli/commands/measure",
        "measure",
        "estimate the ranges, lists of values, classes and size of a table from its records, with "
        "noise, where no public values are known; spends privacy budget",
        (
            "agt measure dataset=loans total.eps=0.2",
            "agt measure dataset=loans total.eps=0.2 ledger=people dataset.unit=customer "
            "relation.unit_rows=12",
        ),
    ),
    "certify": Command(
        "agt_cli/commands/certify",
        "certify",
        "compute the stable distance of each answer (the largest k at which the answer is "
        "certified), for the test records or the queries in a file; writes a table, figures "
        "and a report",
        (
            "agt certify run=outputs/train/2026-01-31_12-00-00-000000",
            "agt certify run=... inputs=queries.csv",
            "agt certify run=... person=p17                # which answers are the same "
            "without this person's records",
        ),
    ),
    "plan": Command(
        "agt_cli/commands/plan",
        "plan",
        "show how accurate private answers would be, for each mechanism and budget, before "
        "anything is released",
        (
            "agt plan run=outputs/train/2026-01-31_12-00-00-000000",
            "agt plan run=... eps=[0.5,1] delta=1e-6 queries=[1,100,10000]",
        ),
    ),
    "predict": Command(
        "agt_cli/commands/predict",
        "predict",
        "release differentially private labels for the queries in a file, with a stated "
        "guarantee; refuses if the guarantee would not hold",
        (
            "agt predict run=... inputs=queries.csv mechanism.eps=0.1 # pure differential "
            "privacy with eps = 0.1 for each query",
            "agt predict run=... inputs=queries.csv mechanism=release_weights total.eps=1 "
            "total.delta=1e-5",
            "agt predict run=... inputs=queries.npz mechanism=release_weights total.eps=1 "
            "total.delta=1e-5",
            "agt predict run=... ledger=people inputs=q.csv mechanism.eps=0.01 # charges the "
            "ledger before an answer is drawn; a repeated query costs nothing",
            "agt predict run=... ledger=people inputs=- mechanism.eps=0.01 reserve=1000 # "
            "reads queries and writes answers as JSON lines",
        ),
    ),
    "ledger": Command(
        "agt_cli/commands/ledger",
        "ledger",
        "keep one privacy budget for all releases about the same people: init creates the "
        "ledger NAME, show and verify read it, admit adds another table about these people",
        (
            "agt ledger init loans run=latest total.eps=1 total.delta=1e-5 unit='one customer' "
            "head=/media/stick",
            "agt ledger show loans                         # shows how much of the budget was "
            "spent, what it was spent on, and how much is left",
            "agt ledger verify loans head=COUNT:HASH       # checks that the ledger still "
            "contains its earlier last entry, which agt ledger show printed as COUNT:HASH; "
            "exit code 3: it does not",
            "agt ledger admit loans run=FOLDER             # adds the table of a run that is "
            "about the same people, so that both share the budget",
        ),
        (
            PositionalArgument("action", ("init", "show", "verify", "admit")),
            PositionalArgument("ledger", placeholder="NAME"),
        ),
        recorded=False,
    ),
    "unlearn": Command(
        "agt_cli/commands/unlearn",
        "unlearn",
        "carry out erasure requests: changes the trained run in its own folder, and writes "
        "an account of the erasure that others can check",
        (
            "agt unlearn run=latest ids=requests.txt       # uses the cheapest method whose "
            "guarantee holds",
            "agt unlearn run=... ids=requests.csv method=certificate # only notes the "
            "requests; until the model is updated, certified answers that do not depend on "
            "these records are still given",
            "agt unlearn run=...                           # carries out all requests that are "
            "still pending",
            "agt unlearn run=... ids=- by=id new_seeds=true",
            "agt unlearn -m run=... ids=requests.txt method=newton,retrain dry_run=true # "
            "tries both methods on copies of the run, to compare them",
        ),
    ),
    "reproduce": Command(
        "agt_cli/_experiments/reproduce",
        "reproduce",
        "reproduce the figures and tables of the papers on the data set NAME, next to the "
        "published numbers; after an interruption, type the same command to continue",
        (
            "agt reproduce blobs                           # runs the papers' settings and "
            "ours, and shows the results side by side",
            "agt reproduce imdb data_dir=/data profile=ours",
            "agt reproduce blobs profile=smoke             # runs a small version, which takes "
            "one minute",
            "agt reproduce blobs only=[001_fig2,001_fig6]",
        ),
        (PositionalArgument("name"),),
    ),
    "data": Command(
        "agt_cli/commands/data",
        "data",
        "inspect FILE reads a table and writes a dataset configuration for it; prepare NAME "
        "converts the raw files of a data set into a folder that agt train can read",
        (
            "agt data inspect loans.csv                    # writes conf/dataset/loans.yaml, "
            "for agt train dataset=loans",
            "agt data inspect loans.csv label=default id=contract name=loans2024 force=true",
            "agt data prepare imdb prepare.reviews=imdb.parquet prepare.model=gpt2",
            "agt data prepare amex data_dir=/mnt/large",
        ),
        (
            PositionalArgument("action", ("prepare", "inspect")),
            PositionalArgument("prepare", after="prepare"),
            PositionalArgument("file", placeholder="FILE", after="inspect"),
        ),
    ),
    "verify": Command(
        "agt_cli/commands/verify",
        "verify",
        "for auditors: check whether the run, release or ledger at PATH is unchanged, and show "
        "what its claims depend on; changes nothing there",
        (
            "agt verify outputs/predict/2026-01-31_12-00-00-000000",
            "agt verify release digest=sha256:...          # also compares the digest of the "
            "folder release with the one that its publisher gave you",
            "agt verify outputs/train/... page=audit.html  # also writes the result to a file",
            "agt verify ledgers/loans.ledger head=COUNT:HASH",
        ),
        (PositionalArgument("path", placeholder="PATH"),),
        recorded=False,
    ),
    "audit": Command(
        "agt_audit/command",
        "audit",
        "attack the claims of a run (KIND says which claims), and report what was claimed, what "
        "was tried and what was found; exit code 3: a claim is false",
        (
            "agt audit certificate run=latest              # trains on neighbouring datasets, "
            "and tests whether every bound holds",
            "agt audit prediction run=latest mechanism=randomized_response mechanism.eps=1",
            "agt audit selftest                            # tests whether the audits detect "
            "faults that are planted on purpose",
            "agt audit certificate --help                  # shows the settings of this audit",
        ),
        (PositionalArgument("audit"),),
    ),
    "doctor": Command(
        "agt_cli/commands/doctor",
        "doctor",
        "check whether the GPU, the compiled kernels and floating-point arithmetic work "
        "correctly on this machine, and show how to fix problems",
        (
            "agt doctor",
            "agt doctor --json",
        ),
        recorded=False,
    ),
    "runs": Command(
        "agt_cli/commands/runs",
        "runs",
        "list earlier runs, newest first (all, or those of one state, data set or kind), or "
        "compare runs side by side; writes nothing",
        (
            "agt runs                                      # lists every run below outputs/",
            "agt runs command=train state=failed since=2026-01-31",
            "agt runs data=adult kind=erm limit=null --json",
            "agt runs compare=[2026-01-31_12-00-00-000000,2026-02-01_09-30-00-000000]",
        ),
        recorded=False,
    ),
}


def settings_from_positionals(name: str, rest: Sequence[str]) -> list[str]:
    """Return a command line with settings in place of the command's positional arguments.

    Args:
        name: the name of the command.
        rest: the words that follow the command; positional arguments may be anywhere among settings
            and options.

    Returns:
        First the settings that positional arguments became, then the other settings, then the
        options.

    Raises:
        ConfigError: a positional argument is missing or unknown; the message names those that are
            allowed.
    """
    command_line = f"agt {name}"
    matched = match_positionals(name, rest)
    settings = []
    for positional, typed in matched.given:
        _check_positional(positional, typed, command_line)
        command_line += f" {typed}"
        value = quoted(typed) if positional.placeholder else typed
        settings.append(f"{positional.key}={value}")
    if matched.missing is not None:
        if matched.missing.placeholder:
            _check_no_path_setting(command_line, matched.missing, rest)
        possible = " or ".join(matched.missing.allowed)
        raise ConfigError(f"`{command_line}` is incomplete: add {possible}")
    option_indices = _option_indices(rest)
    used = {*_positional_indices(rest)[: len(matched.given)], *option_indices}
    for index, word in enumerate(rest):
        if index not in used:
            settings.append(_as_hydra_override(word))
    # Options come last, because Hydra's parser does not accept them between settings.
    options = [rest[index] for index in option_indices]
    return settings + options


def _check_positional(positional: PositionalArgument, typed: str, command_line: str) -> None:
    """Raise ConfigError if a command does not allow what was typed as a positional argument.

    Args:
        positional: the argument.
        typed: its value.
        command_line: the words that were typed before the argument, for the message.
    """
    if positional.placeholder or typed in positional.allowed:
        return
    hint = nearest(typed, positional.allowed)
    if "inspect" in positional.allowed and os.path.exists(typed):
        hint = f"; to describe this table, type {command_line} inspect {typed}"
    unknown = f"unknown word '{typed}' after `{command_line}`{hint}"
    raise ConfigError(OLD_SPELLINGS.get(f"{positional.key}={typed}", unknown))


def _check_no_path_setting(
    command_line: str, missing: PositionalArgument, rest: Sequence[str]
) -> None:
    """Raise ConfigError if the path that a command takes without a key was given with one.

    Args:
        command_line: the command, and what was matched.
        missing: the positional argument that is missing.
        rest: the words that follow the command.
    """
    for word in rest:
        key, equals, value = word.partition("=")
        if equals and key in ("run", "release", "folder", missing.key):
            # `latest` stands for a run where a setting run=... is read, and is no path here.
            shown = value if value not in ("", "latest") else missing.placeholder
            raise ConfigError(
                f"{command_line} takes {missing.placeholder} without a key: type {command_line} "
                f"{shown} instead of {word}"
            )


class MatchedPositionals(NamedTuple):
    """The positional arguments of a command line.

    Attributes:
        given: the arguments that were given, each with its value.
        missing: the first argument that is missing; None: no argument is missing.
    """

    given: list[tuple[PositionalArgument, str]]
    missing: PositionalArgument | None


def match_positionals(name: str, rest: Sequence[str]) -> MatchedPositionals:
    """Match what was typed with the positional arguments of a command, in their order.

    Args:
        name: the name of the command.
        rest: the words that follow the command. Settings and options are skipped.
    """
    typed = [rest[index] for index in _positional_indices(rest)]
    matched: list[tuple[PositionalArgument, str]] = []
    previous = ""
    for positional in COMMANDS[name].positionals:
        if positional.after in ("", previous):
            if len(matched) == len(typed):
                return MatchedPositionals(matched, positional)
            previous = typed[len(matched)]
            matched.append((positional, previous))
    return MatchedPositionals(matched, None)


def with_sweep_folder(rest: Sequence[str]) -> list[str]:
    """Return a command line in which Hydra's setting of a sweep's folder replaces ``sweep=NAME``.

    Without ``sweep=NAME`` it is returned unchanged.

    Raises:
        ConfigError: the name is not allowed, or the command line is not a sweep.
    """
    sweep_settings = [word for word in rest if word.partition("=")[0] == "sweep"]
    if not sweep_settings:
        return list(rest)
    name = sweep_settings[-1].partition("=")[2].strip("'\"").removesuffix(agt_cli.SWEEP_SUFFIX)
    typed = sweep_settings[-1]
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{typed}: the name of a sweep may contain only letters, digits, '.', '_' and '-', "
            "and must not start with '.' or '-': give another name"
        )
    if not is_sweep(rest):
        raise ConfigError(
            f"{typed}: only a sweep can have a name, but this command is not a sweep. Leave "
            "sweep=... out. For a sweep, add -m and the values to try, such as "
            "training.seed=0,1,2"
        )
    folder = (
        f"hydra.sweep.dir='${{output_dir}}/${{hydra.job.config_name}}/{name}{agt_cli.SWEEP_SUFFIX}'"
    )
    return [folder, *(word for word in rest if word not in sweep_settings)]


def is_sweep(rest: Sequence[str]) -> bool:
    """Return whether a command line asks for a job for each combination of values (``-m``)."""
    return bool({"-m", "--multirun"} & set(rest))


def _positional_indices(rest: Sequence[str]) -> list[int]:
    """Return the positions of words that are neither settings, options nor values of options."""
    options = _option_indices(rest)
    return [
        position
        for position, word in enumerate(rest)
        if position not in options
        and "=" not in word
        and (not word.startswith(("+", "~")) or word.startswith("~/"))
    ]


def _option_indices(rest: Sequence[str]) -> list[int]:
    """Return the positions of options, and of the words that are their values."""
    return [
        position
        for position, (before, word) in enumerate(pairwise(["", *rest]))
        if word.startswith("-") or before in OPTIONS_WITH_VALUE
    ]


def _as_hydra_override(word: str) -> str:
    """Return a setting as Hydra reads it, also if the name of a file has special characters.

    The value is put in quotes if Hydra's grammar does not allow it, unless it seems to be written
    for that grammar (a list, a sweep, quotes). ``~/`` is replaced by the home directory, because
    shells leave it unchanged after an equals sign. Settings of a user's own learner get ``++``,
    because no configuration has their keys.

    Args:
        word: KEY=VALUE; other words are returned unchanged.
    """
    if word.startswith("certificate.learner."):
        word = f"++{word}"
    key, equals, value = word.partition("=")
    if value.startswith("~/"):
        value = os.path.expanduser(value)
        word = f"{key}={value}"
    if "${" in value and key in PATH_SETTINGS:
        return f"{key}={quoted(value.strip(QUOTES))}"
    is_grammar = _HYDRA_GRAMMAR.search(value) or _FUNCTION.fullmatch(value)
    if equals and not is_grammar and _NEEDS_QUOTES.search(value):
        return f"{key}={quoted(value)}"
    return word


def quoted(value: str) -> str:
    """Return text in quotes, as the value of an override that Hydra reads back as this text.

    Without quotes, blanks, commas, brackets and quotes have a meaning in Hydra's grammar, and
    ``${`` begins an interpolation.

    | value           | result              |
    |-----------------|---------------------|
    | ``a, b``        | ``'a, b'``          |
    | ``it's``        | ``'it\\'s'``        |
    | ``${x}``        | ``'\\${x}'``        |
    | ``C:\\folder\\`` | ``'C:\\folder\\\\'`` |

    Args:
        value: any text.
    """
    # Hydra takes backslashes literally, except those before "${", before a quote, and at the end:
    # there two stand for one.
    without_interpolation = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    without_quotes = re.sub(r"(\\*)'", r"\1\1\\'", without_interpolation)
    body = re.sub(r"(\\+)\Z", r"\1\1", without_quotes)
    return f"'{body}'"
