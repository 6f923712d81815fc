"""Settings of a command line that have no effect on its run: whoever gives one expects that it has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MINIMISER = ("epochs", "lr", "lr_min", "decay")
_BOXES = ("training.product", "compute.kernel", "compute.fragment", "compute.memory_mb")
_OF_MAPS = {
    "bandwidth": ("fourier", "landmarks"),
    "root": ("landmarks",),
    "order": ("crosses",),
    "weight": ("crosses",),
}


def unread(config: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """A line for each of the line's own settings that training does not read, though a configuration has it.

    Args:
        config: a resolved training configuration, as plain containers.
        overrides: the command line's own.
    """
    given = [word.partition("=")[0].lstrip("+") for word in overrides]
    reasons = dict(_reasons(config))
    return [f"note: {key} {reasons[key]}" for key in given if key in reasons]


def _reasons(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Setting -> why it has no effect here."""
    certificate, model = config.get("certificate") or {}, config.get("model") or {}
    name, features = certificate.get("name", "box"), certificate.get("features") or {}
    if name in ("erm", "removal"):
        yield from (
            (f"training.{key}", f"has no effect: certificate={name} goes to the minimum, wherever") for key in _MINIMISER
        )
    if name == "removal":
        yield "training.loss", "has no effect: certificate=removal has a loss of its own (certificate.loss)"
        yield "training.clip", "has no effect: certificate=removal clamps nothing"
    if name != "box":
        yield from ((key, f"has no effect on certificate={name}, which carries no boxes") for key in _BOXES)
    if name not in ("box", "tube"):
        yield "training.seed", f"has no effect on certificate={name}, a closed form"
        for key in ("kgrid", "kgrid.max", "kgrid.values"):
            yield key, f"only says which k tables show: certificate={name} holds for every k"
    if not model.get("hidden"):
        yield "model.activation", "has no effect: there is no hidden layer (model.hidden)"
    kind = features.get("map")
    if kind == "none":
        yield "certificate.features.seed", "has no effect: no random features are made (certificate.features.map)"
    for key, kinds in _OF_MAPS.items():
        if kind not in kinds:
            yield f"certificate.features.{key}", f"has no effect: it is for certificate.features.map={' or '.join(kinds)}"
    if not features.get("whiten") and not (kind == "landmarks" and features.get("root")):
        yield "certificate.features.ridge", "has no effect: nothing is whitened (certificate.features.whiten)"
    if (config.get("ensemble") or {}).get("members", 1) == 1:
        for key in ("key", "vote", "margin_clip"):
            yield f"ensemble.{key}", "has no effect: there is one member (ensemble.members)"
