"""Every kind of figure and table by its name: their modules are imported, which enters them."""

from . import (  # noqa: F401
    accuracy,
    certified,
    erasure_requests,
    frontier,
    lectures,
    looseness,
    plane,
    private_features,
    private_trainings,
    removal_settings,
    removal_steps,
    smallest_batch,
    students,
)
from .kinds import KINDS

__all__ = ["KINDS"]
