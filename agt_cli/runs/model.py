"""The library's models under a console: progress while they train and certify, and the words that go with it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agt.models.box import starts_elsewhere
from agt.models.model import Model
from agt.models.model import fit as fit_model
from agt.problem import Problem, Settings
from agt.settings import BoxConfig, TubeConfig
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import Progress
from agt_cli.report.console import Console
from agt_cli.runs.prepare import Prepared, RunSettings, prepare
from agt_cli.runs.team import SPLITS, SharedModel, team

OnProgress = Callable[[Progress], None]


def prepared_by_all(settings: RunSettings, config: Mapping[str, Any], console: Console) -> Prepared:
    """``prepare``, by every process of the team, if there is one.

    Args:
        config: that the settings were made from.

    Raises:
        AgtError: as ``Team.made``.
    """
    shared = team()
    if shared is None:
        return prepare(settings, console)
    with shared.at("prepare", config):
        return shared.made(lambda: prepare(settings, console))


def fit(prepared: Prepared, settings: Settings, console: Console, checkpoints: Checkpoints = NOWHERE) -> Model:
    """Train, with progress; go on from checkpoints, if there are any; with the team, if there is one."""
    problem = prepared.problem(settings)
    if isinstance(settings.certificate, BoxConfig) and starts_elsewhere(problem):
        console.note("the head differs in shape from the encoder's base model: it starts from random parameters")
    with console.progress(*_doing(settings)) as report:
        return _fit(problem, lambda at: report(at.step, at.steps, at.done, at.total), checkpoints)


def _fit(problem: Problem, on_progress: OnProgress, checkpoints: Checkpoints) -> Model:
    shared = team()
    if shared is None:
        return fit_model(problem, on_progress, checkpoints)
    with shared.at("fit"):
        model = fit_model(problem, on_progress, checkpoints)
    known = {split: getattr(problem.dataset, split).features for split in SPLITS}
    return SharedModel(model, shared, known)


@contextmanager
def certifying(model: Model, console: Console, label: str = "certifying") -> Iterator[OnProgress]:
    """Progress while queries are certified."""
    unit = "member" if model.problem.settings.ensemble.members > 1 else "query"
    with console.progress(label, unit) as report:
        yield lambda at: report(at.step, at.steps, at.done, at.total)


def _doing(settings: Settings) -> tuple[str, str]:
    """(what is trained, what a step of it is), in words."""
    if settings.ensemble.members > 1:
        return f"training {settings.ensemble.members} members", "member"
    ks = settings.kgrid.ks
    if isinstance(settings.certificate, BoxConfig):
        return f"training, k = {ks[0]}..{ks[-1]} ({len(ks)} values)", "step"
    if isinstance(settings.certificate, TubeConfig):
        return f"training a network, k = 0..{ks[-1]}", "step"
    return "training a linear head", "step"
