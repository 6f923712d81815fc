"""agt audit certificate: neighbours of a user's own run are trained, and its certificates are held against them."""

import json
from typing import Annotated, ClassVar

from pydantic import Field

from agt.audit.certificate_findings import audit_certificates, findings, notes, tables
from agt.audit.evidence import Extent
from agt.errors import ConfigError
from agt.models.model import Model
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

Count = Annotated[int, Field(ge=0)]
CODE = ("agt", "revision")  # of env.json


@schema
class Certificate:
    """How hard it tries (``agt.audit.evidence.Extent``): see conf/audit/certificate.yaml."""

    name: ClassVar[str] = "certificate"
    units: Count | None = 2000
    neighbours: Count = 200
    farthest: Annotated[int, Field(ge=1, le=10_000)] = 3
    bounded: Count = 4
    queries: Count = 200
    lines: Count = 8
    seconds: Annotated[float, Field(gt=0)] | None = None
    again: bool = True

    def check(self, given: Given) -> None:
        """It needs a run, and asks test records: queries that were brought along come without the training data."""
        if given.run is None:
            raise ConfigError("run: give the folder of the agt train run whose certificates are to be audited")
        if given.config.get("inputs") is not None:
            raise ConfigError(
                f"inputs={given.config['inputs']}: a certificate audit asks the run's test records and queries that it "
                "bisects between them: leave it out"
            )

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Open the run with its data, attack, and say what was found.

        Raises:
            ConfigError: its data is gone or changed; or the run drew noise that nobody kept.
        """
        trained = TrainedRun.of(given.config)
        opened = trained.open(record, console)
        _check_noise(opened.model)
        if self.farthest > max(opened.model.farthest, 1):
            console.note(f"audit.farthest={self.farthest} is beyond the run's grid of k, {opened.model.farthest}")
        extent = Extent(
            self.units, self.neighbours, self.farthest, self.bounded, self.queries, self.lines, self.seconds, self.again
        )
        with console.progress("certificate audit", "neighbour") as report:
            auditor = audit_certificates(
                opened.model, extent, given.seed, _unlike(trained.finished, record),
                lambda stage, done, of: report(done, of, done, of),
            )  # fmt: skip
        conditions = tuple(
            f"condition {c.letter} ({c.name}): {c.standing}: {c.why.removeprefix(f'{c.standing}: ')}"
            for c in opened.conditions
        )
        evidence = auditor.evidence
        return Audited(
            trained.finished.folder.name, trained.finished.digest, findings(auditor), (*notes(auditor), *conditions),
            tables(auditor), metrics={"neighbours": evidence.trained, "deviation": evidence.share, "pairs": evidence.pairs},
        )  # fmt: skip


def _check_noise(model: Model) -> None:
    """Raise ConfigError where training drew noise that nobody can draw again."""
    noise = model.problem.settings.noise
    if noise is not None and noise.seed is None:
        raise ConfigError(
            "noise.seed=null: the run added noise that was drawn for it alone and not kept, and its boxes are about other "
            "records under the same noise: no neighbour can be trained; audit a run of the same settings with noise.seed"
        )


def _unlike(run: FinishedRun, record: RunRecord) -> str:
    """Why training may give other numbers than the run's, rounding aside; empty: it may not."""
    now = json.loads((record.folder / "env.json").read_bytes())
    then = run.environment
    other = [f"{key} was {then.get(key)}, is {now.get(key)}" for key in CODE if then.get(key) != now.get(key)]
    return f"the run was made by another agt ({'; '.join(other)})" if other else ""
