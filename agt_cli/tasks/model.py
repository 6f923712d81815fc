"""A trained model as the commands see it, whichever kind of certificate it was trained for."""

from typing import Protocol

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.dataset import Records
from agt.settings import BoxConfig
from agt.training.batches import BatchPlan
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.tasks.boxes import BoxModel
from agt_cli.tasks.ensemble import EnsembleModel
from agt_cli.tasks.linear import LinearModel
from agt_cli.tasks.prepare import Prepared, Settings


class Model(Protocol):
    """What train makes and certify reads back.

    Features are the prepared dataset's own: scaled, and through the frozen encoder if there is one.
    """

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3."""
        ...

    @property
    def plan(self) -> BatchPlan:
        """The batch plan it was trained by."""
        ...

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Flat facts about it."""
        ...

    def save(self, record: RunRecord) -> None:
        """Write what ``load`` needs."""
        ...

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels of the nominal model."""
        ...

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[lines, n] signed margins; a decision line of a map is where one is 0."""
        ...

    def certify(self, features: np.ndarray, console: Console, label: str, shown: bool = False) -> Certificates:
        """Certificates of queries.

        Args:
            label: what its progress says.
            shown: at the few values of k that a map tells apart, instead of the whole grid.
        """
        ...


def fit(prepared: Prepared, settings: Settings, console: Console) -> Model:
    """Train the kind of model that ``certificate`` names."""
    kind = _kind(settings)
    if settings.ensemble.members > 1:
        return EnsembleModel.fit(kind, prepared, settings, console)
    return kind.fit(prepared, settings, console)


def load(prepared: Prepared, settings: Settings, finished: FinishedRun) -> Model:
    """Read back what a finished run trained."""
    kind = _kind(settings)
    if settings.ensemble.members > 1:
        return EnsembleModel.load(kind, prepared, settings, finished)
    return kind.load(prepared, settings, finished)


def accuracy(model: Model, records: Records) -> float:
    """The fraction of records that the nominal model labels right."""
    return float((model.predict(records.features) == records.labels).mean())


def _kind(settings: Settings) -> type[BoxModel] | type[LinearModel]:
    return BoxModel if isinstance(settings.certificate, BoxConfig) else LinearModel
