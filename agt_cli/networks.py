"""Settings of a network that have no default, named all at once if they are missing."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from agt.errors import ConfigError
from agt.targets import is_in_present_folder

# These two repeat what other modules say, because those load PyTorch. A test compares them.
NETWORK_CERTIFICATE = "box"
"""The default certificate of a network (``agt.models.kinds.default_certificate``)."""
NEEDED = ("epochs", "lr", "clip")
"""Training settings without a default (``missing_training_settings`` of that certificate)."""
SEQUENTIAL = (
    "A network of your own must be an nn.Sequential of layers that have a rule (docs/extending.md)"
)
SHOWN_AS = {"clip": "clip_elementwise"}
"""The name for users of a setting that has another one for linear models."""


def missing_words(config: Mapping[str, Any]) -> list[str]:
    """Return the settings that a network still needs, as they are typed.

    Settings whose value is ``recipe`` are missing, because the recipe computes them for linear
    models only. A clip level is then missing as well, because the recipe's is a number that is
    meant for linear models.

    Args:
        config: a training configuration as plain containers; values may be missing (???).

    Returns:
        The words of a command line; none if nothing is missing, or the model is not a network.
    """
    training = config.get("training")
    if not _is_network(config.get("model")) or not isinstance(training, Mapping):
        return []
    # Imported only for networks, because it loads pydantic.
    from agt.settings import RECIPE

    batch = training.get("batch")
    values = [*training.values(), *(batch.values() if isinstance(batch, Mapping) else ())]
    if RECIPE not in [value for value in values if isinstance(value, str)]:
        return []
    words = []
    certificate = config.get("certificate")
    if isinstance(certificate, Mapping) and certificate.get("name") != NETWORK_CERTIFICATE:
        words.append("certificate=box")
    words.append("training=generic")
    for name in NEEDED:
        if training.get(name) == RECIPE or name == "clip":
            words.append(f"training.{SHOWN_AS.get(name, name)}=NUMBER")
    return words


def check_network(config: Mapping[str, Any], also: str = "") -> None:
    """Raise ConfigError if a network lacks settings; the message names all of them.

    Args:
        config: as in ``missing_words``.
        also: what else is wrong with the network, as a clause; empty: nothing.
    """
    words = missing_words(config)
    if not words:
        return
    model = config["model"]
    target = _target_of(model)
    named = f"model.hidden={list(model['hidden'])}" if model.get("hidden") else "model"
    more = f". Also, {also}" if also else ""
    if not _is_ours(target):
        named = f"model._target_={target}"
        more += f". {SEQUENTIAL}"
    settings = " ".join(words)
    raise ConfigError(
        f"{named}: agt has no default training settings for a network: use a linear model "
        f"(model=linear), or add {settings}, with numbers that are chosen on public data{more}"
    )


def message_of_error(check: Callable[[], object]) -> str:
    """Return the message of the ConfigError that a function raises; empty: it raises none."""
    try:
        check()
    except ConfigError as error:
        return str(error)
    return ""


def missing_path(model: object) -> str:
    """Return a clause that says why Python does not find the code of a network in this folder.

    It is empty if Python finds the code, or if the code is not in the present folder.

    Args:
        model: the value of the key ``model``, composed.
    """
    target = _target_of(model)
    root = target.partition(".")[0]
    if _is_ours(target) or not is_in_present_folder(root):
        return ""
    with suppress(ValueError):
        if find_spec(root) is not None:
            return ""
    return f"put PYTHONPATH=. in front of the command, because {root} is in the present folder"


def _is_network(model: object) -> bool:
    """Return whether a model has hidden layers, or is a class of the user's own."""
    if not isinstance(model, Mapping):
        return False
    layers = model.get("hidden") or model.get("channels")
    return bool(layers) or not _is_ours(_target_of(model))


def _target_of(model: object) -> str:
    """Return the full name of a model's class; if none is named, a name of agt's own."""
    return str(model.get("_target_", "agt.")) if isinstance(model, Mapping) else "agt."


def _is_ours(target: str) -> bool:
    """Return whether a class is agt's own, by its full name."""
    return target.startswith(("agt.", "agt_cli."))
