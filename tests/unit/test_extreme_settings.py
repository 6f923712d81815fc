"""Each numeric setting at the ends of what a number can be: a clear error, or a result."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import agt
from agt.certificates.settings import (
    BoxConfig,
    ErmConfig,
    RemovalCertificateConfig,
    StabilityConfig,
    VotesConfig,
)
from agt.errors import AgtError
from agt.mechanisms.mechanism import Mechanism
from agt.settings import BatchConfig, TrainingConfig

EXTREMES = {
    "denormal": 5e-324,
    "largest": 1e308,
    "most negative": -1e308,
    "whole": 10**400,
    "negative whole": -(10**400),
    "not a number": float("nan"),
}
X = np.array([[1, 1], [0.5, 1], [1, -0.5], [0.75, 0.25]])
X = np.concatenate([X, -X])
Y = np.array([1, 1, 1, 1, 0, 0, 0, 0])
KINDS: dict[str, tuple[type, dict[str, Any]]] = {
    "stability": (StabilityConfig, {}),
    "erm": (ErmConfig, {"weight_decay": 0.5}),
    "removal": (RemovalCertificateConfig, {"weight_decay": 0.5}),
    "box": (BoxConfig, {"epochs": 1, "lr": 0.3, "clip": 0.3, "ks": 2, "batch": {"count": 1}}),
    "votes": (VotesConfig, {"members": 3}),
}
DECLARED = agt.Declared(size=8, features=True, settings=True, classes=(0, 1))
MECHANISMS: dict[type, dict[str, float]] = {
    agt.RandomizedResponse: {"eps": 1.0},
    agt.NoisyArgmax: {"eps": 1.0},
    agt.GaussianArgmax: {"mu": 1.0},
    agt.GaussianMargin: {"mu": 1.0},
    agt.ReleaseWeights: {"mu": 1.0},
    agt.NoisyStatistics: {"mu": 1.0},
    agt.ObjectivePerturbation: {"eps": 1.0, "delta": 1e-5},
}


def numeric_settings(schema: type) -> Iterator[str]:
    """The names of the settings of a schema that are numbers."""
    hints = typing.get_type_hints(schema)
    for entry in dataclasses.fields(schema):
        if re.search(r"\b(int|float)\b", str(hints[entry.name])):
            yield entry.name


def fit(settings: dict[str, Any]) -> agt.Fitted:
    """Train on eight records, and certify them."""
    model = agt.fit(X, Y, compute={"threads": 1}, **{"declared": DECLARED, **settings})
    model.certify(X)
    return model


def arguments(kind: str, value: float) -> Iterator[dict[str, Any]]:
    """The arguments of ``agt.fit`` in which one numeric setting has a value."""
    schema, settings = KINDS[kind]
    base = {"certificate": kind, **settings}
    for name in numeric_settings(TrainingConfig):
        yield {**base, name: value}
    for name in numeric_settings(BatchConfig):
        yield {**base, "batch": {name: value}}
    for name in numeric_settings(schema):
        yield {**base, "certificate": {"name": kind, name: value}}
    for name in ("members", "unit_rows", "radius", "margin_clip"):
        yield {**base, name: value}
    yield {**base, "declared": agt.Declared(size=8, settings=True), "caution": value}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_extreme_setting_of_a_training_is_an_error_or_trains(kind: str, extreme: str) -> None:
    tried = 0
    for settings in arguments(kind, EXTREMES[extreme]):
        tried += 1
        with suppress(AgtError):  # any other error fails
            fit(settings)
    assert tried > 15


@pytest.mark.filterwarnings("ignore")
def test_an_extreme_setting_of_a_mechanism_is_an_error_or_releases() -> None:
    head = fit({"certificate": "stability", "epochs": 9, "lr": 2.0, "clip": 0.1, "ks": 3})
    votes = fit({"certificate": "votes", "members": 3})
    minimiser = fit({"certificate": "erm", "weight_decay": 0.5})
    released = set[type]()
    for mechanism, settings in MECHANISMS.items():
        for name in numeric_settings(mechanism):
            for value in (*EXTREMES.values(), 1.0):
                with suppress(AgtError):  # any other error fails
                    made = mechanism(**{**settings, name: value})
                    assert str(made.guarantee)
                    if isinstance(made, Mechanism):
                        counts_votes = mechanism in (agt.NoisyArgmax, agt.GaussianArgmax)
                        (votes if counts_votes else head).release(X, made, seed=1)
                    else:
                        trains_again = mechanism is agt.ObjectivePerturbation
                        (minimiser if trains_again else head).release_weights(made)
                    released.add(mechanism)
    assert released == MECHANISMS.keys()
