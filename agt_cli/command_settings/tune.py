"""Settings of agt tune, but for those of the training."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.settings import schema

TuningObjective = Literal["accuracy", "certified", "expected"]


@schema
class TuneConfig:
    """What is compared, by what.

    Attributes:
        public: the rows declared public, with their labels (``ChosenFrom.rows``); None: training
            records marked public.
        grid: key -> values, every combination of which is a candidate; None: ``neighbours``.
        folds: of the public rows.
        objective: what is compared: accuracy; the fraction right and certified at ``k``; the
            expected accuracy of released weights at total.eps and total.delta.
        k: a distance.
        name: of the experiment file; None: the dataset's with _tuned.
    """

    public: Annotated[str, Field(min_length=1)] | None = None
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] | None = None
    folds: Annotated[int, Field(ge=2, le=100)] = 5
    objective: TuningObjective = "certified"
    k: Annotated[int, Field(ge=1)] = 20
    name: Annotated[str, Field(pattern=r"^[\w-]+$")] | None = None

    @property
    def rule(self) -> str:
        """A clause that says how the candidate is chosen."""
        other = (
            "accuracy"
            if self.objective == "certified"
            else f"fraction of answers that are correct and certified at k = {self.k}"
        )
        what = {
            "accuracy": "accuracy",
            "certified": f"fraction of answers that are correct and certified at k = {self.k}",
            "expected": "expected accuracy of the weights when they are released with noise",
        }[self.objective]
        return (
            f"among the candidates whose {what} is within one standard error of the best one, "
            f"the candidate with the highest {other}"
        )


TUNE_KEYS = ("tune", "total")
"""Settings of agt tune that are not those of a training."""
