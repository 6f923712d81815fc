"""The commands that ``agt start`` proposes: publish weights, or measure what is not public."""

import shlex
from pathlib import Path

from agt_cli.releasing.existing_ledger import ExistingLedger
from agt_cli.report.proposed_release import WEIGHTS_MECHANISMS, ledger_command, release_command
from agt_cli.report.scoring import Scoring
from agt_cli.start.settings import StartSettings

MEASURED = 0.2  # of the budget, for what nobody calls public


def publishing_commands(
    settings: StartSettings, folder: Path, mechanism: str, ledger: ExistingLedger | None
) -> list[str]:
    """Return the commands that publish weights, counted by a ledger.

    Args:
        folder: of the training run.
        mechanism: that releases its weights.
        ledger: that counts these people; None: the first command opens one.
    """
    eps = settings.eps or 1.0
    name = settings.dataset
    unit = f"one {settings.counted[0]}"
    first = [f"agt {ledger_command(name, folder, eps, settings.delta, unit)}"]
    if ledger is not None:
        name = ledger.name
        first = [] if ledger.admitted else ledger.admission(folder)
    total = (f"{eps:g}", f"{settings.delta:g}")
    return [*first, f"agt {release_command(folder, mechanism, *total, ledger=name)}"]


def measuring_commands(
    settings: StartSettings, scoring: Scoring, folder: Path, ledger: ExistingLedger | None
) -> list[str]:
    """Return the commands that have what is not public measured with noise, and publish weights for
    the rest of the budget.

    Args:
        folder: of the training run.
        ledger: that counts these people, and so both releases; None: the commands name none.
    """
    eps = settings.eps or 1.0
    delta = settings.delta / 2
    price = f"total.eps={MEASURED * eps:g} total.delta={delta:g}"
    counted_by = ""
    rest = f"{(1 - MEASURED) * eps:g}"
    name = None
    before: list[str] = []
    after: list[str] = []
    if ledger is not None:
        name = ledger.name
        before = [] if ledger.admitted else ledger.admission(folder)
        after = ledger.admission("latest")  # the measured table has other ranges, so other data
        counted_by = f" ledger={shlex.quote(name)}"
    release = release_command("latest", WEIGHTS_MECHANISMS[0], rest, f"{delta:g}", ledger=name)
    return [
        *before,
        f"agt measure dataset={settings.dataset}{counted_by} {price}",
        f"agt train dataset={settings.dataset}_measured{scoring.measured_training}",
        *after,
        f"agt {release}",
    ]
