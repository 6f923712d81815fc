"""Runs that are trained, and labels that are released, as by the commands, in a temporary folder.

What is drawn here is not published, so no ledger of the user is charged. Answers are written into a
folder within the audit's own record, which is removed when the audit ends. If the process is
killed, the folder stays; its name begins with a dot, and it is too deep to be listed as a run. Test
ledgers are created in this folder. Ledgers of the working directory, ``ledger=`` and
AGT_LEDGER_HEAD are not read.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agt.data.records import Records
from agt.errors import CheckError
from agt.ledger.book import Population
from agt.ledger.ledger import Ledger
from agt.ledger.payer import LedgerPayer, NoPayer
from agt.mechanisms.budget import Allowance, Cost
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import MechanismConfig
from agt.models.fitting import fit
from agt.release import ReleaseTerms
from agt.release_settings import MAX_TOTAL_EPS
from agt.settings import Accounting, Counting, TotalConfig
from agt_audit.job import SILENT
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.releasing.file import release_file
from agt_cli.releasing.ledgers import people_of_run
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings, write_trained
from agt_cli.runs.queries import OpenedRun, TrainedRun

TEST_BUDGET = Allowance(MAX_TOTAL_EPS / 2, 0.99, 0.5)  # of each test ledger


class ReleaseSandbox:
    """A temporary folder in which runs are trained and labels are released as by the commands.

    Args:
        folder: the folder, which exists.
        config: the configuration of the audit, of which compute, accounting and counting are used.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.compute = config.get("compute")
        self.calls = count(1)
        self.config = {"output_dir": str(folder), "compute": self.compute}
        self.accounting: Accounting = config.get("accounting", "rigorous")
        self.counting: Counting = config.get("counting", "distance")

    def train(
        self, config: Mapping[str, Any], prepared: Prepared, settings: RunSettings
    ) -> OpenedRun:
        """Train a run as ``agt train`` does, write its run folder, and open it.

        Args:
            config: the configuration that the run folder records.
            prepared: the data to train on.
            settings: the settings of the training.

        Raises:
            AgtError: training refuses the data.
        """
        with RunRecord(self._next_folder("train"), "train", config) as record:
            model = fit(prepared.problem(settings))
            write_trained(record, prepared, settings, model, 0.0)
            record.finish()
        return self.open(record.folder, None)

    def open(self, run: Path, digest: str | None) -> OpenedRun:
        """Open a finished run as ``agt predict`` does, without queries of its own.

        Args:
            run: the run's folder.
            digest: the digest that the run must have; None: any.
        """
        config = {
            "run": str(run),
            "digest": digest,
            "inputs": str(STANDARD_INPUT),
            "compute": self.compute,
        }
        with RunRecord(self._next_folder("open"), "predict", self.config) as record:
            return TrainedRun.from_config(config).open(record, SILENT)

    def ask(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        payer: LedgerPayer | NoPayer,
    ) -> np.ndarray:
        """Release answers to queries as ``agt predict`` does, and read them from its files, [n].

        Args:
            opened: the run.
            mechanism: the mechanism that draws the answers.
            queries: [n, ...] the queries.
            payer: pays with a ledger whose budget covers all answers; or nobody pays, as for a
                guarantee that is not proved.

        Raises:
            CheckError: the ledger refused some of the answers.
        """
        folder = self._next_folder("predict")
        with RunRecord(folder, "predict", self.config) as record:
            asked = replace(opened, queries=_as_records(queries, opened))
            request = PredictRequest(
                _config_of(mechanism),
                self._terms(opened, payer),
                payer,
                asked,
                record,
                SILENT,
                force=True,
            )
            try:
                release_file(request)
            except CheckError as error:
                raise CheckError(
                    f"a test ledger refused some of {len(queries)} labels, although its budget "
                    f"covers all of them. This is an error in agt: please report it ({error})"
                ) from None
        answers = _read_answers(folder / "labels.csv", asked.queries, opened)
        shutil.rmtree(folder)
        return answers

    def _terms(self, opened: OpenedRun, payer: LedgerPayer | NoPayer) -> ReleaseTerms:
        """Return how releases from a run are judged and paid for, by the audit's settings."""
        return ReleaseTerms(
            conditions=opened.conditions,
            accounting=self.accounting,
            counting=self.counting,
            payer=payer,
        )

    @contextmanager
    def ledger(self, opened: OpenedRun) -> Iterator[Ledger]:
        """Create a test ledger with ``TEST_BUDGET`` for the run's data, and close it at the end."""
        subject = people_of_run(opened.trained.finished)
        population = Population("audit", subject.table.unit.name, subject.relation, TEST_BUDGET)
        path = self._next_folder("ledger") / "audit.ledger"
        with Ledger.create(path, population, tables=[subject.table]) as ledger:
            yield ledger

    def draw_labels(
        self,
        opened: OpenedRun,
        mechanism: Mechanism | LaplaceMean,
        queries: np.ndarray,
        payable: bool,
    ) -> np.ndarray:
        """Release an answer to each query, paid for by new test ledgers, and return all, [n].

        Args:
            opened: the run.
            mechanism: the mechanism that draws the answers.
            queries: [n, ...] distinct queries, so that none gets a stored answer.
            payable: whether test ledgers pay; False: none does, because ledgers refuse a guarantee
                that is not proved.

        Raises:
            CheckError: a ledger whose budget covers all of its answers refused one.
        """
        if not payable:
            return self.ask(opened, mechanism, queries, NoPayer())
        trained = opened.trained.finished
        people = people_of_run(trained)
        affordable = TEST_BUDGET.max_lot_size(Cost(), mechanism.guarantee, len(queries))
        per_ledger = max(1, affordable)
        parts = []
        for start in range(0, len(queries), per_ledger):
            chunk = queries[start : start + per_ledger]
            with self.ledger(opened) as ledger:
                payer = LedgerPayer(ledger, people, trained.digest)
                parts.append(self.ask(opened, mechanism, chunk, payer))
        return np.concatenate(parts)

    def _next_folder(self, name: str) -> Path:
        """Return the path of a folder that does not exist yet, within the sandbox."""
        return self.folder / f"{name}-{next(self.calls)}"


def _as_records(queries: np.ndarray, opened: OpenedRun) -> Records:
    """Return queries [n, ...] as private records without labels, with the ids q0, q1, ..."""
    labels = np.full(len(queries), opened.dataset.target.unlabelled)
    names = np.array([f"q{row}" for row in range(len(queries))])
    return Records(queries, labels, names, names, np.zeros(len(queries), dtype=bool))


def _config_of(mechanism: Mechanism | LaplaceMean) -> MechanismConfig:
    """Return the settings that make a mechanism; None is left out, as in a user's settings."""
    settings = {name: value for name, value in asdict(mechanism).items() if value is not None}
    return MechanismConfig(type(mechanism), settings, TotalConfig())


def _read_answers(path: Path, queries: Records, opened: OpenedRun) -> np.ndarray:
    """Return the answer to each query from a file of released labels, [n].

    Args:
        path: the file, with the columns record_id and label, in any order of rows.
        queries: the queries, as ``_as_records`` makes them.
        opened: the run, whose target says how labels are written.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    rows = [int(name[1:]) for name in table["record_id"]]  # the names are q0, q1, ...
    answers = queries.labels.copy()
    answers[rows] = opened.dataset.target.labels_of(table["label"].tolist())
    return answers
