"""What a network still needs on the command line, named all at once."""

from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from agt.errors import ConfigError
from agt.targets import is_in_present_folder

NETWORK_CERTIFICATE = "box"
"""The certificate that a network usually has (``agt.models.kinds.usual_certificate``)."""
NEEDED = ("epochs", "lr", "clip")
"""What ``missing_training_settings`` of that certificate names where nothing is given. Both are
stated again because its module loads torch; a test compares them.
"""


SEQUENTIAL = (
    "A network of your own must be an nn.Sequential of layers that have a rule (docs/extending.md)"
)
SHOWN_AS = {"clip": "clip_elementwise"}
"""The name that users have for a setting which has several, where a network is meant."""


def missing_words(config: Mapping[str, Any]) -> list[str]:
    """Return the settings that a network still needs, as they are typed.

    It is empty where the model is no network, and where nothing is missing.

    Settings that the recipe computes are for linear heads only. A clip level is named wherever the
    others are, because the recipe's is a constant of the linear head.

    Args:
        config: a training configuration as plain containers; values may be missing (???).
    """
    training = config.get("training")
    if not _is_network(config.get("model")) or not isinstance(training, Mapping):
        return []
    from agt.settings import RECIPE  # pydantic, which mistakes of other kinds do without

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
    """Raise ConfigError where a network lacks settings; the message names all of them.

    Args:
        config: as of ``missing_words``.
        also: what else is wrong with the network; empty: nothing.
    """
    words = missing_words(config)
    if not words:
        return
    model = config["model"]
    named = f"model.hidden={list(model['hidden'])}" if model.get("hidden") else "model"
    if model.get("_target_") and not _is_ours(model["_target_"]):
        named = f"model._target_={model['_target_']}"
    settings = " ".join(words)
    more = f". Also, {also}" if also else ""
    if not _is_ours(str(model.get("_target_", "agt."))):
        more += f". {SEQUENTIAL}"
    raise ConfigError(
        f"{named}: agt has no default training settings for a network: use a linear model "
        f"(model=linear), or add {settings}, with numbers that are chosen on public data{more}"
    )


def missing_path(model: object) -> str:
    """Return that Python does not find a network of one's own, which is in the present folder;
    empty: it does, or the network is somewhere else.

    Args:
        model: the value of the key ``model``, composed.
    """
    target = str(model.get("_target_", "agt.")) if isinstance(model, Mapping) else "agt."
    root = target.partition(".")[0]
    if _is_ours(target) or not is_in_present_folder(root):
        return ""
    with suppress(ValueError):
        if find_spec(root) is not None:
            return ""
    return f"put PYTHONPATH=. in front of the command, because {root} is in the present folder"


def _is_network(model: object) -> bool:
    if not isinstance(model, Mapping):
        return False
    layers = model.get("hidden") or model.get("channels")
    return bool(layers) or not _is_ours(str(model.get("_target_", "agt.")))


def _is_ours(target: str) -> bool:
    return target.startswith(("agt.", "agt_cli."))
