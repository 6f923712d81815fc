"""Where an audit plays a release through: neighbouring runs, test ledgers, real answers; the folder is gone after it.

Formal guarantees
    Nobody's ledger pays for what is drawn here, as nobody is told it: answers lie in this folder alone, below the audit's
    own record, and the folder is removed when the audit ends, however it ends. Only a process that is killed outright
    leaves it, until the next audit below the same folder removes it; its name begins with a dot and it lies too deep to be
    listed as a run. Test ledgers are made in it, each in a
    folder of its own; ledgers of the working directory, ``ledger=`` and AGT_LEDGER_HEAD are not looked at.
"""

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd

from agt.data.dataset import UNLABELLED, Records
from agt.errors import CheckError, ConfigError
from agt.ledger.book import Population
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.questions import UNANSWERED
from agt.mechanisms.account import Allowance, Cost, Lot
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.rigour import Accounting, Counting
from agt.models.model import fit
from agt.numeric import UP, gaussian_epsilon
from agt.randomness import SystemRandomness
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.unfinished import is_alive
from agt_cli.runs.account import Account
from agt_cli.runs.delivery import deliver
from agt_cli.runs.ledger import Subject
from agt_cli.runs.mechanisms import MechanismConfig, TotalConfig
from agt_cli.runs.prepare import Prepared, RunSettings
from agt_cli.runs.publish import Request
from agt_cli.runs.queries import LINES, OpenedRun, TrainedRun
from agt_cli.runs.trained import write_trained

SILENT = Console(json=True, quiet=True)  # nothing that is drawn is said
DELTA = 0.01  # of a test ledger for Gaussian releases
SCRATCH = (".stage-*", ".copies-*")
MOST_LEAKED = 0.2  # of the deltas of the answers on one test ledger


@dataclass(frozen=True)
class Answers:
    """What one call of the release path gave.

    Attributes:
        labels: [n] int64; ``UNANSWERED`` where the budget held no more. Private: for counting, never for showing.
        refused: what was said of those, or of all of them; empty: all were answered.
        claim: what was said to be guaranteed of each.
    """

    labels: np.ndarray
    refused: str
    claim: str = ""


@dataclass
class Stage:
    """A scratch folder.

    Attributes:
        folder: the folder.
        compute: as in the command's configuration.
        accounting, counting: of every release.
    """

    folder: Path
    compute: Any
    accounting: Accounting
    counting: Counting
    _calls: int = field(default=0, init=False)

    @classmethod
    @contextmanager
    def below(cls, place: Path, config: Mapping[str, Any]) -> Iterator["Stage"]:
        """Make one below a folder, and remove it at the end.

        Args:
            config: of the audit: its compute, accounting and counting.

        Raises:
            ConfigError: nothing can be written there.
        """
        try:
            folder = Path(mkdtemp(prefix=".stage-", dir=place))
        except OSError as error:
            raise ConfigError(
                f"audit.scratch={place}: neighbouring runs and test ledgers cannot be written there ({error.strerror}): "
                "give a folder on a local disk that can be written"
            ) from None
        try:
            accounting, counting = config.get("accounting", "rigorous"), config.get("counting", "distance")
            yield cls(folder, config.get("compute"), accounting, counting)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def train(self, config: Mapping[str, Any], prepared: Prepared, settings: RunSettings) -> OpenedRun:
        """Train a run as ``agt train`` does, write its record, and open that; raises as training does."""
        with RunRecord(self._next("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run by its folder alone, as ``agt predict`` does for queries that are brought along."""
        config = {"run": str(run), "digest": digest, "inputs": str(LINES), "compute": self.compute}
        with RunRecord(self._next("open"), "predict", self._config) as record:
            return TrainedRun.of(config).open(record, SILENT)

    def ask(self, opened: OpenedRun, mechanism: Mechanism, queries: np.ndarray, ledger: Ledger | None) -> Answers:
        """Release labels of queries [n, ...] as ``agt predict`` does, drawn by the operating system.

        Args:
            ledger: that pays; None: none does, as of what is not proved.
        """
        asked = replace(opened, queries=_named(queries))
        given = {name: value for name, value in asdict(mechanism).items() if value is not None}
        config, folder = MechanismConfig(type(mechanism), given, TotalConfig()), self._next("predict")
        refused, claim = "", ""
        try:
            with RunRecord(folder, "predict", self._config) as record:
                request = Request(config, self.accounting, self.counting, asked, Account(ledger), record, SILENT)
                claim = deliver(request, SystemRandomness())["claim"]
        except Exhausted as error:
            refused = str(error)
        except CheckError as error:
            refused, claim = str(error), error.result.get("claim", "")
        labels = _read(folder / "labels.csv", opened.dataset.classes, len(queries))
        shutil.rmtree(folder)
        return Answers(labels, refused, claim)

    @contextmanager
    def ledger(self, opened: OpenedRun, allowance: Allowance) -> Iterator[Ledger]:
        """A new ledger that admits the run's data."""
        subject = Subject.of_finished(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, allowance)
        with Ledger.create(self._next("ledger") / "audit.ledger", population, tables=[subject.table]) as ledger:
            yield ledger

    def drawn(self, opened: OpenedRun, mechanism: Mechanism, queries: np.ndarray, payable: bool) -> np.ndarray:
        """[n] labels of queries, each a question of its own, on as few fresh test ledgers as hold them.

        Args:
            payable: a ledger takes it: the guarantee is proved.

        Raises:
            CheckError: a ledger with room for all of them refused one.
        """
        if not payable:
            return self.ask(opened, mechanism, queries, None).labels
        guarantee, parts = mechanism.guarantee, []
        for start in range(0, len(queries), most_of(guarantee, len(queries))):
            some = queries[start : start + most_of(guarantee, len(queries))]
            with self.ledger(opened, room_for(guarantee, len(some))) as ledger:
                answers = self.ask(opened, mechanism, some, ledger)
            if answers.refused:
                raise CheckError(f"a test ledger with room for {len(some)} labels refused some: {answers.refused}")
            parts.append(answers.labels)
        return np.concatenate(parts)

    def _next(self, name: str) -> Path:
        self._calls += 1
        return self.folder / f"{name}-{self._calls}"

    @property
    def _config(self) -> dict[str, Any]:
        return {"output_dir": str(self.folder), "compute": self.compute}


def remove_leftovers(audits: Path) -> None:
    """Remove the copies of private data that audits below a folder left there, whose process was killed outright."""
    for folder in audits.iterdir():
        if is_alive(folder) is False:  # where nobody can tell, it stays
            for path in [path for name in SCRATCH for path in folder.glob(name)]:
                shutil.rmtree(path, ignore_errors=True)


def most_of(guarantee: Guarantee, wanted: int) -> int:
    """How many answers one test ledger pays for: those whose deltas add up to little."""
    if not isinstance(guarantee, ApproximateDP):
        return wanted
    return max(1, min(wanted, int(MOST_LEAKED / guarantee.delta)))


def room_for(guarantee: Guarantee, size: int) -> Allowance:
    """A budget that holds so many releases in one lot, and hardly more.

    Raises:
        ConfigError: none does.
    """
    cost = Lot(guarantee, size).cost
    if isinstance(guarantee, PureDP):
        allowance = Allowance(float(cost.pure))
    elif isinstance(guarantee, GaussianDP):
        allowance = Allowance(gaussian_epsilon(math.sqrt(cost.square) * (1 + UP), DELTA), DELTA, 0.0)
    else:
        allowance = Allowance(float(cost.pure), min(0.99, 1.01 * float(cost.leak)), 1.0)
    if allowance.fitting(Cost(), guarantee, size) < size:
        raise ConfigError(f"audit.trials: no budget holds {size} releases, each {guarantee}: ask for fewer")
    return allowance


def _named(queries: np.ndarray) -> Records:
    names = np.array([f"q{row}" for row in range(len(queries))])
    labels, private = np.full(len(queries), UNLABELLED), np.zeros(len(queries), dtype=bool)
    return Records(queries, labels, names, names.copy(), private)


def _read(path: Path, classes: tuple[str, ...], count: int) -> np.ndarray:
    labels = np.full(count, UNANSWERED)
    if path.exists():
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        index = {name: label for label, name in enumerate(classes)}
        labels[[int(name[1:]) for name in table["record_id"]]] = [index[name] for name in table["label"]]
    return labels
