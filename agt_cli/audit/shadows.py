"""agt audit shadows: train a part of the shadow models that other kinds compare with, so that several jobs share them.

It attacks nothing. Each model depends on the run, the settings, the seed and its own number, so that it does not matter who
trains it; whoever audits afterwards finds those that are there, and trains the others (agt/audit/shadows.py).
"""

from typing import Annotated, ClassVar

from pydantic import Field

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.shadows import SHADOWS, Pool, ShadowConfig, train_shadows
from agt.errors import ConfigError
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun


@schema
class ShadowModels:
    """Trains the models of one part: of ``parts``, those whose number leaves ``part`` when divided by that.

    Attributes:
        shadows, workers: as ``Membership``; the number of all models, not of one part.
        part, parts: which part this is, from 0, and how many there are.
    """

    name: ClassVar[str] = "shadows"
    shadows: Annotated[int, Field(ge=2, le=4096)] = 64
    part: Annotated[int, Field(ge=0)] = 0
    parts: Annotated[int, Field(ge=1)] = 1
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None

    def check(self, given: Given) -> None:
        """A run, an even number of models, and a part that has some of them."""
        if given.run is None:
            raise ConfigError("run: give the folder of the training run to audit")
        if self.shadows % 2:
            raise ConfigError(f"audit.shadows={self.shadows}: they come in pairs, one on each half: give an even number")
        if not self.part < self.parts <= self.shadows:
            raise ConfigError(
                f"audit.part={self.part}: of audit.parts={self.parts} parts of {self.shadows} models they are 0 to "
                f"{min(self.parts, self.shadows) - 1}, and each has a model at least"
            )

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Train them."""
        opened, which = TrainedRun.of(given.config).open(record, console), range(self.part, self.shadows, self.parts)
        config, count = ShadowConfig(self.shadows, given.seed, self.workers), len(which)
        with console.progress(f"training {count} of {self.shadows} shadow models", "model") as report:
            shadows = train_shadows(
                opened.kept.problem,
                Pool.of(opened.dataset),
                config,
                given.output_dir / SHADOWS,
                lambda done: report(done, count, done, count),
                which,
            )
        failed = f"; {len(shadows.failed)} failed, the first: {shadows.failed[0][1]}" if shadows.failed else ""
        finding = Finding(
            subject=f"shadow models, part {self.part} of {self.parts}",
            claim="nothing",
            attack="none: membership and memorisation compare with these models",
            effort=f"{count} of {self.shadows} models",
            outcome=Outcome.REPORTED,
            meaning=f"{len(shadows)} of this part's {count} models are there, {shadows.reused} were before{failed}",
            measure="models",
            found=float(len(shadows)),
            strength=Strength.CERTAIN,
        )
        run = opened.trained.finished
        counts = {"shadows": len(shadows), "shadows_reused": shadows.reused}
        return Audited(run.folder.name, run.digest, (finding,), metrics=counts)
