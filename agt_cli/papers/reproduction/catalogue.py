"""Every kind there is, by name: importing their modules enters them."""

from agt_cli.papers.reproduction import (  # noqa: F401
    budgets,
    certified,
    erasures,
    frontier,
    maps,
    private_features,
    removal_settings,
    removal_steps,
    search,
    students,
    trainings,
)
from agt_cli.papers.reproduction.kinds import KINDS as KINDS
