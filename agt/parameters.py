"""Errors about arguments that a public function or class does not have."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from agt.errors import ConfigError, nearest

BUDGET = ("eps", "epsilon", "delta")
_NAMES_ELSEWHERE = {
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
    "model": "network",
    "net": "network",
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
_F = TypeVar("_F", bound=Callable[..., Any])


class ArgumentError(ConfigError, TypeError):
    """An argument that a function or class does not take, or one that is missing."""


def check_parameters(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError if a keyword argument does not exist; it proposes a similar name.

    Args:
        call: the function or class, as its users write it.
        given: the names of keyword arguments.
        known: the names that exist.
    """
    names = set(known)
    for name in given:
        if name not in names:
            raise ArgumentError(f"{call} has no parameter '{name}'{nearest_name(name, names)}")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a proposal, and the names that exist.

    The proposal is the name in agt for a name of another library, or the most similar name
    (``agt.errors.nearest``). Settings that only agt writes are not proposed.

    Args:
        name: the unknown name.
        known: the names that exist.
    """
    known = set(known) - WRITTEN_BY_AGT
    is_budget = name in BUDGET and known.isdisjoint(("eps", "epsilon"))
    if is_budget and "mechanism" in known:
        return (
            ", because the mechanism has the budget: give it there, as in "
            "agt.RandomizedResponse(eps=1) for labels, or agt.ObjectivePerturbation(eps=1, "
            "delta=1e-5) for weights"
        )
    if is_budget and "certificate" in known:
        return (
            ", because training alone spends no privacy budget: give the budget to a release, as "
            "in model.release(queries, agt.RandomizedResponse(eps=1)) or "
            "agt.PrivateClassifier(epsilon=1)"
        )
    is_network = name == "network" or _NAMES_ELSEWHERE.get(name) == "network"
    if is_network and "epsilon" in known and "network" not in known:
        return (
            ", because private weights are those of a linear model: train a network with "
            "agt.fit(x, y, network=...), and release its labels with model.release(queries, "
            "agt.RandomizedResponse(eps=1))"
        )
    # A name of another library may be misspelt, too.
    closest = get_close_matches(name, [*known, *_NAMES_ELSEWHERE], n=1, cutoff=0.8)
    name_in_agt = _NAMES_ELSEWHERE.get(closest[0]) if closest else None
    if name_in_agt in known:
        return f"; did you mean '{name_in_agt}'? (known: {', '.join(sorted(known))})"
    return nearest(name, known)


def explaining_parameters(cls: type[_T]) -> type[_T]:
    """Make a class raise ArgumentError when it is built with arguments that it does not have."""
    build: Any = cls.__init__
    cls.__init__ = explaining_arguments(f"agt.{cls.__name__}")(build)  # type: ignore[method-assign]
    return cls


def explaining_arguments(call: str) -> Callable[[_F], _F]:
    """Return a decorator that makes a method raise ArgumentError for unknown or missing arguments.

    Args:
        call: the method, or its class, as its users write it.
    """

    def decorate(method: Any) -> Any:
        """Return the method with a check of its arguments before each call."""
        method_signature = signature(method)
        known = [name for name in method_signature.parameters if name not in ("self", "cls")]

        @wraps(method)
        def checked_method(*values: Any, **parameters: Any) -> Any:
            check_parameters(call, parameters, known)
            try:
                method_signature.bind(*values, **parameters)
            except TypeError as error:
                names = ", ".join(known)
                raise ArgumentError(
                    f"{call}: {error}. Give arguments by name, NAME=VALUE (known: {names})"
                ) from None
            return method(*values, **parameters)

        return checked_method

    return decorate
