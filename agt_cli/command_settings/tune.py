"""Settings of agt tune, but for those of the training."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.settings import schema

TuningObjective = Literal["accuracy", "certified", "expected"]


@schema
class TuneConfig:
    """Which candidates agt tune compares, on which public rows, and by what.

    Attributes:
        public: the rows that are declared public, with their labels (``ChosenFrom.rows``); None:
            training records that are marked public.
        grid: key -> values, every combination of which is a candidate; None: the neighbours of the
            present settings.
        folds: into how many parts the public rows are divided for cross-validation.
        objective: accuracy; the fraction of answers that are correct and certified at ``k``; or the
            expected accuracy of weights that are released at total.eps and total.delta.
        k: the stable distance of the objective ``certified``.
        name: the name of the experiment file that is written; None: that of the dataset, with
            ``_tuned``.
    """

    public: Annotated[str, Field(min_length=1)] | None = None
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] | None = None
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    objective: TuningObjective = "certified"
    k: Annotated[int, Field(ge=1)] = 20
    name: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None

    @property
    def rule(self) -> str:
        """A clause that says how the candidate is chosen, for reports."""
        certified = f"fraction of answers that are correct and certified at k = {self.k}"
        measures = {
            "accuracy": "accuracy",
            "certified": certified,
            "expected": "expected accuracy of the weights when they are released with noise",
        }
        decides_between_equals = "accuracy" if self.objective == "certified" else certified
        return (
            f"among the candidates whose {measures[self.objective]} is within one standard error "
            f"of the best one, the candidate with the highest {decides_between_equals}"
        )


TUNE_KEYS = ("tune", "total")
"""Settings of agt tune that are not those of a training."""
