"""Stub."""

from agt.settings import Positive, schema


@schema
class Trials:
    """How many."""

    mean: Positive = 10.0
    eta: float | None = 1.0
