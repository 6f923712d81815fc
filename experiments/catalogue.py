"""Every kind of figure and table, by the name that experiments/NAME.yaml gives it."""

from collections.abc import Mapping
from typing import Any

from agt.errors import ConfigError
from agt.settings import validate

from .accuracy import AccuracyByEps, AccuracyByMembers, AccuracyByQueries, SensitivityByGrid
from .certified import CertifiedByK, HalfCertified, TrainingCurve
from .entry import Profiles
from .erasure_requests import AnsweredWhileWaiting, ErasureMethods
from .frontier import Frontier
from .kinds import Kind
from .lectures import (
    AuditedInOneRun,
    AuditedMechanism,
    GradientsAndNoise,
    PrivateMeans,
    TradeOffs,
    WorkedNumbers,
)
from .looseness import Looseness
from .plane import PlaneMaps
from .private_features import PrivateFeatures
from .private_trainings import PrivateTrainings
from .removal_settings import RemovalBudgets, RemovalSettings
from .removal_steps import RemovalBounds, RemovalDifficulty, RemovalTimes
from .smallest_batch import SmallestBatch
from .students import Students

KINDS: dict[str, type[Kind]] = {
    "accuracy_by_eps": AccuracyByEps,
    "accuracy_by_members": AccuracyByMembers,
    "accuracy_by_queries": AccuracyByQueries,
    "answered_while_waiting": AnsweredWhileWaiting,
    "audited_in_one_run": AuditedInOneRun,
    "audited_mechanism": AuditedMechanism,
    "certified_by_k": CertifiedByK,
    "erasure_methods": ErasureMethods,
    "frontier": Frontier,
    "gradients_and_noise": GradientsAndNoise,
    "half_certified": HalfCertified,
    "looseness": Looseness,
    "plane_maps": PlaneMaps,
    "private_features": PrivateFeatures,
    "private_means": PrivateMeans,
    "private_trainings": PrivateTrainings,
    "removal_bounds": RemovalBounds,
    "removal_budgets": RemovalBudgets,
    "removal_difficulty": RemovalDifficulty,
    "removal_settings": RemovalSettings,
    "removal_times": RemovalTimes,
    "sensitivity_by_grid": SensitivityByGrid,
    "smallest_batch": SmallestBatch,
    "students": Students,
    "trade_offs": TradeOffs,
    "training_curve": TrainingCurve,
    "worked_numbers": WorkedNumbers,
}


def make_kind(name: str, profiles: Profiles, settings: Mapping[str, Any], where: str) -> Kind:
    """Return a kind with its settings.

    Args:
        name: a key of ``KINDS``.
        profiles: those asked for.
        settings: as a definition gives them.
        where: their key in the definition, for messages.

    Raises:
        ConfigError: a setting does not exist, or is not of its type; the message names its key.
    """
    if "profiles" in settings:
        raise ConfigError(f"{where}.profiles: profiles are settings of the experiment")
    return validate(KINDS[name], {"profiles": profiles, **settings}, where)
