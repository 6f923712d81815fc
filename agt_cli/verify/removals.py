"""Compute again what a run may promise after removals, from its noise and its gradient."""

from collections.abc import Mapping
from typing import Any

from agt.facts import Standing
from agt.models.kind import RemovalBounds
from agt.models.kinds import certificate_config
from agt.store.reading import Broken
from agt_cli.command_settings.unlearn import CERTIFICATE_OF_METHOD
from agt_cli.verify.folders import Record

PROMISED = ("exact", "adaptive", "eps", "delta", "within")
"""The fields of a promise that are compared with those that follow from the run's settings."""


def check_budget(record: Record) -> str | None:
    """Check that the noise of a run is large enough for the gradient that its removals left.

    Returns:
        A sentence on what was checked; None: the certificate of the run does not allow removals.

    Raises:
        Broken: the noise is too small.
    """
    certificate = record.config.get("certificate") or {}
    if certificate.get("name") not in CERTIFICATE_OF_METHOD.values():
        return None
    bounds = certificate_config(certificate).removal_bounds(record)
    if bounds.hidden is not None and not bounds.spent <= bounds.hidden:
        raise Broken(
            "the gradient that is left after optimisation and removals (the residual) may be "
            f"as large as {bounds.spent!r}, but the run's noise of {bounds.noise:g} hides only "
            f"up to {bounds.hidden:.6g}. So the guarantee of the removals does not hold: train "
            "again on the remaining records"
        )
    residual = (
        "the gradient that is left after optimisation and removals (the residual) was "
        f"recomputed: it is at most {bounds.spent:.6g}"
    )
    if bounds.hidden is None:
        return f"{residual}; the run has no noise that could hide this gradient"
    return f"{residual}; the run's noise of {bounds.noise:g} hides up to {bounds.hidden:.6g}"


def check_promise(promise: Mapping[str, Any], run: Record, method: str, residual: float) -> None:
    """Raise Broken if a removal promises more than the noise of the run's settings allows.

    A promise of less is accepted.

    Args:
        promise: the promise that was recorded, as JSON.
        run: the run from which records were removed.
        method: the method of unlearning.
        residual: an upper bound on the norm of the gradient that remained after the removal.

    Raises:
        Broken: the promise claims more, or the noise is too small for the gradient.
    """
    bounds = removal_bounds(run, method)
    limit = bounds.total if bounds.hidden is None else bounds.hidden
    if not residual <= limit:
        raise Broken(
            f"method={method} left a gradient (residual) of up to {residual!r}, but its "
            f"guarantee allows at most {limit!r}. So the guarantee does not hold: train again "
            "on the remaining records"
        )
    derived = certificate_config(run.config.get("certificate")).removal_promise(run, residual)
    allowed = {name: getattr(derived, name) for name in PROMISED}
    excessive = {
        name: promise.get(name)
        for name in PROMISED
        if not _claims_at_most(promise.get(name), allowed[name])
    }
    if excessive:
        raise Broken(
            f"the recorded promise claims too much: it says {excessive}, but under the run's "
            f"settings method={method} guarantees only {allowed}"
        )
    says_unproved = any(fact["standing"] == Standing.VOID for fact in promise["assumptions"])
    if not derived.proved and not says_unproved:
        raise Broken(
            f"method={method}: the recorded promise claims too much, because it does not say "
            "that an assumption of the guarantee is not met under the run's settings"
        )


def _claims_at_most(recorded: Any, allowed: bool | float | None) -> bool:
    """Return whether a part of a recorded promise claims no more than is allowed.

    A number may be smaller by a relative difference of 1e-9, because another machine may compute
    other last digits. A value that is True, False or None must be the allowed one.
    """
    if allowed is None or isinstance(allowed, bool):
        return recorded is allowed
    is_number = isinstance(recorded, float | int) and not isinstance(recorded, bool)
    return is_number and recorded >= allowed * (1 - 1e-9)


def removal_bounds(run: Record, method: str) -> RemovalBounds:
    """Return the bounds on removals from a run, computed from its files.

    Args:
        run: the run.
        method: a method of unlearning that belongs to one kind of certificate.

    Raises:
        Broken: the certificate of the run is of another kind.
    """
    kind = certificate_config(run.config.get("certificate"))
    if kind.own_erasure != method:
        raise Broken(
            f"method={method} cannot have updated this run, because the run was trained with "
            f"certificate={kind.name}, which does not support this method"
        )
    return kind.removal_bounds(run)
