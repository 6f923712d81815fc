"""The steps that ``agt start`` proposes: publish, measure what is not public, or certify."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agt.mechanisms.planning import Plan
from agt.models.model import Model
from agt_cli.ledger_files import ledger_path
from agt_cli.report.proposed_release import MECHANISM_OF_LABELS, WEIGHTS_MECHANISMS, release_command
from agt_cli.report.scoring import Scoring
from agt_cli.report.start_md import CERTIFICATES_WAY
from agt_cli.runs.inspection import Inspection
from agt_cli.start.ledger_proposal import LedgerProposal
from agt_cli.start.plan import describe_ways, weights_release
from agt_cli.start.settings import StartSettings

MEASURED = 0.2  # of the budget, for what nobody calls public


@dataclass(frozen=True, kw_only=True)
class NextSteps:
    """The options of how to continue, and the commands of each.

    Attributes:
        ways: the ways, in words.
        proposed: the index of the way that ``onward`` takes. It depends on public values alone.
        onward: the next commands.
        measuring: commands that measure what is not public; empty: nothing is to be measured.
        by_hand: commands that do the same as ``agt start``, step by step, and further ones.
    """

    ways: Sequence[str]
    proposed: int
    onward: Sequence[str]
    measuring: Sequence[str]
    by_hand: Sequence[str]

    @classmethod
    def propose(
        cls,
        settings: StartSettings,
        inspection: Inspection,
        scoring: Scoring,
        *,
        training: Sequence[str],
        model: Model,
        folder: Path,
        planned: Plan,
        ledger: LedgerProposal,
    ) -> "NextSteps":
        """Return the steps for a trained model.

        What is proposed depends on public values alone. What is expected of it depends on private
        records, so it is said beside the proposal and decides nothing (docs/releasing.md, "What may
        decide a choice").

        Args:
            settings: the answers.
            inspection: what the table holds.
            scoring: how answers are scored.
            training: the words of ``agt train`` that train the same model.
            model: the trained model.
            folder: the folder of the training run.
            planned: what could be released of the model.
            ledger: what the ledger of these people accepts.
        """
        may_release = settings.purpose != "certificates" and ledger.accepts_a_release
        measuring: list[str] = []
        may_release_weights = may_release and ledger.mechanism != MECHANISM_OF_LABELS
        if settings.private_groups(inspection) and may_release_weights:
            measuring = measuring_commands(settings, scoring, folder, ledger)
        measures_first = bool(measuring) and settings.purpose == "answers"
        unmet = _unmet_conditions(model)
        release = weights_release(planned)
        certifying = f"agt certify run={folder}"
        by_hand = [settings.line(inspection.path), shlex.join(["agt", "train", *training])]
        if measures_first:
            proposed = 0
            onward = measuring[:1]
        elif release is not None and not unmet and may_release:
            proposed = 0
            onward = publishing_commands(settings, folder, release.mechanism, ledger)
        elif ledger.mechanism == MECHANISM_OF_LABELS and not unmet and may_release:
            proposed = 1
            onward = publishing_commands(settings, folder, MECHANISM_OF_LABELS, ledger)
        else:
            proposed = CERTIFICATES_WAY
            onward = [certifying]
        if certifying not in onward:
            by_hand.append(certifying)
        by_hand.append(f"agt plan run={folder}")
        return cls(
            ways=describe_ways(
                planned,
                scoring,
                ledger,
                ledger.eps or settings.planned_eps,
                unmet=unmet,
                unit_name=settings.unit_names.plural,
                measures_first=measures_first,
            ),
            proposed=proposed,
            onward=onward,
            measuring=measuring,
            by_hand=by_hand,
        )


def _unmet_conditions(model: Model) -> list[str]:
    """Return the conditions of a guarantee that a model does not meet, in words."""
    return [
        f"condition {condition.letter} ({condition.name})"
        for condition in model.conditions
        if not condition.held
    ]


def publishing_commands(
    settings: StartSettings, folder: Path, mechanism: str, ledger: LedgerProposal
) -> list[str]:
    """Return the commands that publish weights, counted by a ledger.

    Args:
        settings: the answers.
        folder: the folder of the training run.
        mechanism: the name of the mechanism that releases the model's weights.
        ledger: what the ledger of these people accepts; without one, the first command opens it.
    """
    ledger, counting = _counting_commands(settings, folder, ledger)
    total = (f"{ledger.eps:g}", ledger.delta(settings.delta))
    return [*counting, f"agt {release_command(folder, mechanism, *total, ledger=ledger.name)}"]


def _counting_commands(
    settings: StartSettings, folder: Path, ledger: LedgerProposal
) -> tuple[LedgerProposal, list[str]]:
    """Return the ledger that counts releases about a run's table, and how to make it count them.

    Args:
        settings: the answers.
        folder: the folder of the training run.
        ledger: what the ledger of these people accepts; it may have no name.

    Returns:
        The ledger, under a free name if there is none yet; and the command that opens it, or that
        admits the table. No command is needed if it has admitted the table.
    """
    if not ledger.name:
        name = free_ledger_name(settings.dataset)
        opened = replace(ledger, name=name, unit=f"one {settings.unit_names.singular}")
        return opened, [opened.opening(folder, settings.delta)]
    if ledger.admitted:
        return ledger, []
    return ledger, [ledger.admission(folder)]


def free_ledger_name(dataset: str) -> str:
    """Return a name for a new ledger, under which no file exists yet.

    Args:
        dataset: the name of the dataset, which is taken if it is free.
    """
    names = (f"{dataset}{number}" for number in ("", *range(2, 10**6)))
    return next(name for name in names if not ledger_path(name).exists())


def measuring_commands(
    settings: StartSettings, scoring: Scoring, folder: Path, ledger: LedgerProposal
) -> list[str]:
    """Return the commands that measure what is not public, with noise, and publish weights for the
    rest of the budget.

    Args:
        settings: the answers.
        scoring: how answers are scored.
        folder: the folder of the training run.
        ledger: what the ledger of these people accepts for both releases; without one, the commands
            name none.
    """
    before: list[str] = []
    after: list[str] = []
    counted_by = ""
    # Without a ledger of their own, every command would ask whose people these are.
    if ledger.name or ledger.declares_others:
        ledger, before = _counting_commands(settings, folder, ledger)
        after = [ledger.admission("latest")]  # the measured table has other ranges, so other data
        counted_by = f" ledger={shlex.quote(ledger.name)}"
    delta = f"{settings.delta / 2:g}"
    price = f"total.eps={MEASURED * ledger.eps:g} total.delta={delta}"
    rest = f"{(1 - MEASURED) * ledger.eps:g}"
    release = release_command("latest", WEIGHTS_MECHANISMS[0], rest, delta, ledger.name or None)
    return [
        *before,
        f"agt measure dataset={settings.dataset}{counted_by} {price}",
        f"agt train dataset={settings.dataset}_measured{scoring.measured_training}",
        *after,
        f"agt {release}",
    ]
