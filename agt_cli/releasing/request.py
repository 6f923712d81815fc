"""The request that agt predict was given for a finished training run."""

from dataclasses import dataclass

import numpy as np

from agt.ledger.payer import LedgerPayer, NoPayer
from agt.mechanisms.mechanism_config import AnyMechanism, MechanismConfig
from agt.release import AnyRelease, LabelRelease, ReleaseTerms
from agt_cli.releasing.spent import interrupted_releases, subject_of
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun


@dataclass(frozen=True)
class PredictRequest:
    """What is to be released, before it is judged, and where it is written.

    Attributes:
        config: the mechanism and its budget.
        terms: the terms on which the release is judged, paid for and drawn.
        payer: pays for the release; ``terms.payer`` is the same.
        opened: the training run and the queries.
        record: the record of this command.
        console: prints progress and notes.
        force: release even if the queries look like another population's, or if labels would
            hardly be worth their budget.
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
        """The training run whose model answers."""
        return self.opened.trained.finished

    def mechanism(self, queries: int) -> AnyMechanism:
        """Return the mechanism for this number of queries, and for the dataset's classes.

        Raises:
            ConfigError: as ``MechanismConfig.mechanism``.
        """
        return self.config.mechanism(self.opened.dataset.target.class_count, queries)

    def rows_drawn(self, release: AnyRelease) -> np.ndarray | range:
        """Return the rows of the queries that the release draws for.

        Labels that a ledger stores are not drawn again. Once budget is reserved, queries that it
        was too small for are left out as well.
        """
        if isinstance(release, LabelRelease):
            return release.rows_to_label
        return range(len(self.opened.queries))

    @property
    def earlier_attempts(self) -> list[str]:
        """Warnings about earlier releases from this run that did not finish; none if simulated."""
        if self.terms.randomness.simulated:
            return []
        before = self.trained.environment.get("succeeds", ())
        return interrupted_releases(self.record, subject_of(self.trained), before)
