"""Check weights that a release drew: they are on their lattice, with the mechanism's noise."""

from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays

from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.numeric import step_of
from agt.store.reading import Broken
from agt_cli.report.markdown import Findings
from agt_cli.verify.comparison import check_match
from agt_cli.verify.folders import Record, model_of
from agt_cli.verify.release import requested_mechanism

WEIGHTS_FILE = "released_weights.json"
RELEASED_ARRAYS = "released_weights.safetensors"


def check_weights(record: Record, trained: Record | None) -> str | None:
    """Check that released weights are on their lattice, and that their noise is the mechanism's.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it was not found, so only the
            lattice is checked.

    Returns:
        A sentence with the recomputed noise; None: no weights were released, or the model that
        they come from could not be read.

    Raises:
        Broken: a weight is not on the lattice, or the recorded noise is not the recomputed one.
    """
    if not record.holds(WEIGHTS_FILE):
        return None
    noise = record.json(WEIGHTS_FILE)
    check_lattice(read_released_weight(record), noise, record.findings)
    model = model_of(trained)
    head = None if model is None else model.release_head
    if head is None:
        return None
    classes = head.problem.dataset.target.class_count
    mechanism = cast(WeightsMechanism, requested_mechanism(record).mechanism(classes, 1))
    recomputed = mechanism.noise(head)
    simulated = record.config.get("seed") is not None
    derived = {**mechanism.guarantee.parameters, **recomputed, "simulated": simulated}
    check_match(WEIGHTS_FILE, noise, "this run's mechanism", derived)
    parameters = ", ".join(
        f"{name} = {value:.6g}" for name, value in recomputed.items() if name != "step"
    )
    return f"the noise in {WEIGHTS_FILE} equals the recomputed noise: {parameters}"


def read_released_weight(record: Record) -> np.ndarray:
    """Return the weights that a release drew, [1 or classes, outputs].

    Raises:
        Broken: the file of weights cannot be read.
    """
    try:
        return load_arrays(record.read(RELEASED_ARRAYS))["weight"]
    except SafetensorError as error:
        raise Broken(f"{RELEASED_ARRAYS} cannot be read ({error})") from None


def check_lattice(weight: np.ndarray, noise: Any, findings: Findings) -> None:
    """Check that released weights are multiples of the step that follows from sigma alone.

    A weight that is not such a multiple was changed after the draw.

    Args:
        weight: the released weights.
        noise: their noise as recorded, with the entries sigma and step.
        findings: takes the result.

    Raises:
        Broken: a weight is not a multiple of the step, or the step does not belong to sigma.
    """
    sigma = float(noise["sigma"])
    step = float(noise["step"])
    if not (sigma > 0 and step == step_of(sigma)):
        raise Broken(
            f"the step of the released weights (the smallest unit of the noise) is {step!r}, "
            f"which does not belong to noise with sigma = {sigma!r}"
        )
    if not np.isfinite(weight).all() or np.fmod(weight, step).any():
        raise Broken(
            "a released weight is not a multiple of the step (the smallest unit of the noise), "
            "so the mechanism cannot have drawn this weight"
        )
    findings.ok(
        "weights",
        f"all {weight.size} released weights are multiples of the step (the smallest unit of the "
        f"noise) that belongs to sigma = {sigma:.6g}",
    )
