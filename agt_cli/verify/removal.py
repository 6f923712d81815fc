"""A head that records can be removed from: its budget and what a Newton step may promise, worked out again."""

from collections.abc import Mapping
from typing import Any

from agt.manifest import Broken
from agt.models.removal import NUMBERS
from agt.settings import RemovalConfig, validate
from agt.training.removal import removal_budget
from agt_cli.verify.record import Record


def check_budget(record: Record) -> None:
    """Of a head that records can be removed from: what removals left is within what its noise hides, worked out again."""
    if record.bound.holds(NUMBERS):
        with record.findings.looking("removal budget"):
            config, strength, residual = removal_of(record)
            budget = removal_budget(config, strength)
            words = "no noise" if budget is None else f"{budget:.6g}, what noise of {config.sigma:g} hides"
            if budget is not None and residual > budget:
                raise Broken(f"{NUMBERS} has a residual of {residual!r}, beyond {words}")
            record.findings.ok("removal budget", f"a residual of {residual:.6g}, of {words}: worked out again")


def check_promise(promise: Mapping[str, Any], run: Record) -> None:
    """What a Newton step may promise, by the noise of the run's settings.

    Raises:
        Broken: more is promised.
    """
    config, _, _ = removal_of(run)
    exact, eps, delta = (True, 0.0, 0.0) if config.masking == "none" else (False, config.eps, config.delta)
    right = {"exact": exact, "eps": eps, "delta": delta, "adaptive": config.masking != "loss"}
    if told := {name: promise.get(name) for name, value in right.items() if promise.get(name) != value}:
        raise Broken(f"a Newton step under masking={config.masking} promises {right}, and {told} is told")


def removal_of(run: Record) -> tuple[RemovalConfig, float, float]:
    """(settings, strength of the objective, bound on the residual) of a head that records can be removed from."""
    config: RemovalConfig = validate(RemovalConfig, run.config["certificate"], "certificate")
    numbers = run.bound.json(NUMBERS)
    return config, float(numbers["strength"]), float(numbers["residual"])
