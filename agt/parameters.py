"""What is said about a keyword argument that a public function or class does not have."""

from collections.abc import Iterable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

from agt.errors import ConfigError, nearest

BUDGET = ("eps", "epsilon", "delta")
_USUAL_NAMES = {
    "eps": "epsilon",
    "epsilon": "eps",
    "learning_rate": "lr",
    "learning_rate_init": "lr",
    "lr_rate": "lr",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "max_iter": "epochs",
    "n_members": "members",
    "n_models": "members",
    "n_estimators": "members",
    "hidden": "network",
    "hidden_layers": "network",
    "hidden_layer_sizes": "network",
    "layers": "network",
    "alpha": "weight_decay",
    "l2": "weight_decay",
    "random_state": "seed",
    "groups": "units",
    "k": "ks",
    "k_max": "ks",
    "classes": "declared",
    "size": "declared",
    "declared_size": "declared",
}
"""The name that other libraries have for a parameter -> the name that it has in agt."""
WRITTEN_BY_AGT = frozenset(
    ("by_recipe", "chosen_for", "chosen_from", "label_free", "measurement", "settled")
)
"""Settings that agt writes into its own files, and that no message proposes."""
_T = TypeVar("_T")


class UnknownParameter(ConfigError, TypeError):
    """A keyword argument that the function or class does not have."""


def check_parameters(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UnknownParameter, which says what may have been meant, for a name that is not known.

    Args:
        call: the function or class, as its users write it.
        given: the names of keyword arguments.
        known: the names that exist.
    """
    names = set(known)
    for name in given:
        if name in names:
            continue
        raise UnknownParameter(f"{call} has no parameter '{name}'{nearest_name(name, names)}")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name, as ``agt.errors.nearest`` does: what may
    have been meant, and the names that exist.

    The names of other libraries are known, and names that agt alone writes are not proposed.
    """
    known = set(known) - WRITTEN_BY_AGT
    trains_alone = "certificate" in known and known.isdisjoint(BUDGET)
    if name in BUDGET and trains_alone:
        return (
            ", because training alone spends no privacy budget: give the budget to a release, as "
            "in model.release(queries, agt.RandomizedResponse(eps=1)) or "
            "agt.PrivateClassifier(epsilon=1)"
        )
    usual = _USUAL_NAMES.get(name)
    if usual in known:
        return f"; did you mean '{usual}'? (known: {', '.join(sorted(known))})"
    return nearest(name, known)


def explaining_parameters(cls: type[_T]) -> type[_T]:
    """Let a dataclass raise UnknownParameter for a keyword argument that it does not have."""
    build: Any = cls.__init__
    known = [entry.name for entry in fields(cls) if entry.init]  # type: ignore[arg-type]

    @wraps(build)
    def __init__(self: Any, *values: Any, **parameters: Any) -> None:
        check_parameters(f"agt.{cls.__name__}", parameters, known)
        build(self, *values, **parameters)

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls
