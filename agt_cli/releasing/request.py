"""What agt predict was asked of a finished training run."""

from dataclasses import dataclass

import numpy as np

from agt.ledger.payer import LedgerPayer, NoPayer
from agt.mechanisms.mechanism_config import AnyMechanism, MechanismConfig
from agt.release import AnyRelease, LabelRelease, ReleaseTerms
from agt_cli.releasing.spent import subject_of, unfinished
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun


@dataclass(frozen=True)
class PredictRequest:
    """What is to be released, of which nothing is judged, and where it is written.

    Attributes:
        config: the mechanism with its budget.
        terms: how it is judged, paid for and drawn.
        payer: that of the terms.
        opened: the run, and the queries.
        record: where it is written.
        console: for progress.
        force: release although it would hardly be worth its budget.
    """

    config: MechanismConfig
    terms: ReleaseTerms
    payer: NoPayer | LedgerPayer
    opened: OpenedRun
    record: RunRecord
    console: Console
    force: bool = False

    @property
    def trained(self) -> Run:
        """What answers."""
        return self.opened.trained.finished

    def mechanism(self, queries: int) -> AnyMechanism:
        """Return the mechanism for so many queries.

        Raises:
            ConfigError: as ``MechanismConfig.mechanism``.
        """
        return self.config.mechanism(self.opened.dataset.target.class_count, queries)

    def rows_drawn(self, release: AnyRelease) -> np.ndarray | range:
        """Return the queries that something is to be drawn for; once it is reserved, for which
        it is.
        """
        if isinstance(release, LabelRelease):
            return release.rows_to_label
        return range(len(self.opened.queries))

    @property
    def earlier_attempts(self) -> list[str]:
        """What is said of earlier releases from this run that did not end as done, a line each."""
        if self.terms.randomness.simulated:
            return []
        before = self.trained.environment.get("succeeds", ())
        return unfinished(self.record, subject_of(self.trained), before)
