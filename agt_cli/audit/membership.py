"""agt audit membership: who was trained on, judged from what the model says of a record."""

from typing import Annotated, ClassVar

from pydantic import Field

from agt.audit.membership import Reference, Rehearsal
from agt.audit.shadows import SHADOWS, Pool, ShadowConfig, Shadows, train_shadows
from agt.errors import ConfigError
from agt.problem import Problem
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.membership_figures import rocs_drawn
from agt_cli.audit.membership_findings import certified_labels, noise_claim, scored
from agt_cli.audit.membership_tables import EXPOSED, attacks_table, exposed_table, notes, split_table
from agt_cli.audit.membership_target import attacked, passes_through
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun


@schema
class Membership:
    """Attacks a run's model: with scores, which are reported; and with labels at certified queries, which must not tell.

    Attributes:
        shadows: how many shadow models, an even number; 0: none, and the attacks that need them are left out.
        workers: as ``ShadowConfig``.
        pairs: how many units are left out, one at a time.
        exposed: how many records the table of the most exposed has.
    """

    name: ClassVar[str] = "membership"
    shadows: Annotated[int, Field(ge=0, le=4096)] = 64
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    pairs: Annotated[int, Field(ge=0)] = 20
    exposed: Annotated[int, Field(ge=1)] = 50

    def check(self, given: Given) -> None:
        """A run is needed, and no queries."""
        if given.run is None:
            raise ConfigError("run: give the folder of the training run to audit")
        if given.config.get("inputs") is not None:
            raise ConfigError("inputs: membership is asked of the run's own training and test records: leave inputs out")
        if self.shadows % 2:
            raise ConfigError(f"audit.shadows={self.shadows}: they come in pairs, one on each half: give an even number")
        passes_through(given)

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Train shadow models, attack, compare."""
        opened = TrainedRun.of(given.config).open(record, console)
        pool, confidence = Pool.of(opened.dataset), given.confidence
        shadows = self._train(given, opened.kept.problem, pool, console) if self.shadows else None
        reference, rehearsal, why = _rehearsed(shadows, pool)
        target = attacked(given, opened, pool, reference, console)
        findings = [*scored(target, rehearsal, why, shadows, confidence), certified_labels(target, self.pairs, given.seed)]
        findings += noise_claim(target, reference, confidence)
        tables = {"membership": attacks_table(target, rehearsal, confidence)}
        tables["by_stable_distance"] = split_table(target, confidence)
        tables[EXPOSED] = exposed_table(target, reference, rehearsal).head(self.exposed)
        drawn = rocs_drawn(record, opened.dataset.name, target.rocs, rehearsal)
        metrics = {f"auc_{name}": roc.area for name, roc in target.rocs.items()}
        counts = {"shadows": len(shadows), "shadows_reused": shadows.reused} if shadows else {}
        run = opened.trained.finished
        said = tuple(notes(target, shadows, rehearsal))
        return Audited(run.folder.name, run.digest, tuple(findings), said, tables, drawn, {**metrics, **counts})

    def _train(self, given: Given, problem: Problem, pool: Pool, console: Console) -> Shadows:
        config, folder = ShadowConfig(self.shadows, given.seed, self.workers), given.output_dir / SHADOWS
        with console.progress(f"training {self.shadows} shadow models", "model") as report:
            return train_shadows(problem, pool, config, folder, lambda done: report(done, self.shadows, done, self.shadows))


def _rehearsed(shadows: Shadows | None, pool: Pool) -> tuple[Reference | None, Rehearsal | None, str]:
    """(the shadow models, each of them as the target, or why neither can be used)."""
    if shadows is None:
        return None, None, "no shadow models: audit.shadows=0"
    reference = Reference.of(shadows, pool.records.labels)
    try:
        return reference, Rehearsal.of(reference), ""
    except ConfigError as error:
        return None, None, str(error)
