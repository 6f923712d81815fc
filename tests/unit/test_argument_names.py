"""Errors that Python's users read name the arguments that they gave, and no key of the command
line; the command line's errors name its keys.
"""

import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agt
from agt.errors import naming_settings
from agt.fit_settings import FIT_ARGUMENTS, DataSettings, FitSettings
from agt.messages import ArgumentNames, Message, Setting, joined
from agt.settings import TrainingConfig

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3)) / 2
Y = (X[:, 0] > 0).astype(int)
Y3 = np.arange(60) % 3
FRAME = pd.DataFrame({"a": X[:, 0], "text": ["u", "v"] * 30})
SAID: dict[str, Any] = {"classes": [0, 1], "size": 60, "features": True, "settings": True}
DECLARED = agt.Declared(**SAID)
NETWORK: dict[str, Any] = {"network": (3,), "epochs": 1, "lr": 0.1, "clip": 1.0, "ks": 1}
PAIRS = np.arange(60) // 2
KEYS = re.compile(
    r"\b(training|dataset|certificate|relation|kgrid|ensemble|compute|model|total|noise)\.[a-z]"
    r"|\bmechanism\.(eps|delta|mu)\b|\bmodel=|\bkgrid\b|\brun="
    r"|\bagt (train|predict|certify|plan|ledger|verify|audit|data|runs)\b"
)
"""What belongs to the command line alone."""

# what fit is given -> the argument that the error names
FIT: list[tuple[dict[str, Any], str]] = [
    ({"declared": "x"}, "declared"),
    ({"columns": 3}, "columns"),
    ({"network": "a"}, "network"),
    ({"network": (-1,), "epochs": 1, "lr": 0.1, "clip": 1.0}, "network"),
    ({"network": (3,)}, "network"),
    (NETWORK | {"activation": "x"}, "activation"),
    ({"certificate": "x"}, "certificate"),
    ({"certificate": {"tolerance": 1.0}}, "certificate"),
    ({"certificate": {"name": "erm", "x": 1}}, 'certificate["x"]'),
    ({"certificate": {"name": "erm", "tolerance": -1}}, 'certificate["tolerance"]'),
    ({"certificate": {"name": "erm", "tolerance": 1e-30}}, 'certificate["tolerance"]'),
    ({"certificate": {"name": "stability", "average": 10**6}}, 'certificate["average"]'),
    (NETWORK | {"certificate": "erm"}, "network"),
    ({"certificate": "erm", "batches": 4}, "batches"),
    ({"certificate": "erm", "batch": {"count": 4}}, "batches"),
    ({"certificate": "erm", "weight_decay": 0.0}, "weight_decay"),
    ({"certificate": "removal"}, "declared.size"),
    ({"certificate": "removal", "declared": DECLARED, "members": 3}, "members"),
    ({"features": "x"}, 'features["map"]'),
    ({"features": {"map": "relu", "count": 1}}, 'features["count"]'),
    ({"features": {"map": "landmarks", "public": "train"}}, "public"),
    ({"features": "scattering"}, 'features["map"]'),
    ({"features": "fourier"}, 'features["map"]'),
    ({"relation": "swap"}, "relation"),
    (NETWORK | {"relation": "perturb"}, "radius"),
    (NETWORK | {"relation": "perturb", "radius": 0.1, "batches": 4}, "batches"),
    (
        NETWORK | {"relation": "perturb", "radius": 0.1, "members": 3, "declared": DECLARED},
        "members",
    ),
    ({"radius": "a", "relation": "perturb"}, "radius"),
    ({"relation": "flip", "unit_rows": 2}, "unit_rows"),
    ({"unit_rows": 0}, "unit_rows"),
    ({"unit_rows": True}, "unit_rows"),
    ({"units": PAIRS}, "unit_rows"),
    ({"unit_rows": 2, "members": 3, "declared": DECLARED}, "units"),
    ({"ks": -1}, "ks"),
    ({"ks": "a"}, "ks"),
    ({"ks": [1, 1]}, "ks"),
    ({"ks": 10**7}, "ks"),
    ({"ks": [2**30], "unit_rows": 5}, "ks"),
    ({"members": 0}, "members"),
    ({"members": 5}, "members"),
    ({"learner": 3}, "learner"),
    ({"learner": lambda x, y: None, "members": 3, "declared": DECLARED}, "learner"),
    ({"learner": "ridge", "certificate": "stability"}, "learner"),
    ({"vote": "x"}, "vote"),
    ({"vote": "margins", "members": 3, "declared": DECLARED}, "margin_clip"),
    ({"certificate": "votes", "vote": "margins", "margin_clip": 1.0, "members": 3}, "vote"),
    ({"compute": {"device": "tpu"}}, 'compute["device"]'),
    ({"compute": {"x": 1}}, 'compute["x"]'),
    (NETWORK | {"compute": {"kernel": "gpu"}}, 'compute["kernel"]'),
    (NETWORK | {"compute": {"fragment": 10**6}}, 'compute["fragment"]'),
    ({"lr": 0.0}, "lr"),
    ({"lr": 1e5}, "lr"),
    ({"epochs": 1.5}, "epochs"),
    ({"clip": 0.0}, "clip"),
    ({"loss": "x"}, "loss"),
    ({"loss": "squared_error"}, "loss"),
    ({"y": Y3, "loss": "cross_entropy", "clip": 0.1}, "clip"),
    (NETWORK | {"y": Y3, "loss": "binary_cross_entropy"}, "loss"),
    ({"momentum": 0.9}, "momentum"),
    ({"decay_mode": "coupled", "momentum": 0.5}, "decay_mode"),
    ({"dtype": "x"}, "dtype"),
    ({"seed": -1}, "seed"),
    ({"caution": 0.0}, "caution"),
    ({"learning_rate": 1}, "learning_rate"),
    ({"batch": {"count": 4, "n_max": 3}}, 'batch["n_max"]'),
    ({"batch": {"x": 1}}, 'batch["x"]'),
    ({"batches": 2, "batch": {"count": 4}}, "batches"),
    ({"declared": agt.Declared(size=5)}, "declared.size"),
    ({"x": FRAME, "columns": agt.Columns(numeric={"text": [0, 1]})}, "columns.numeric.text"),
]


def fitted(**given: Any) -> agt.Fitted:
    return agt.fit(X, Y, declared=DECLARED, **given)


def released(mechanism: Any, **given: Any) -> object:
    return agt.fit(X, Y, **{"declared": DECLARED, **given}).release(X[:2], mechanism, seed=1)


def said_but(name: str) -> agt.Declared:
    return agt.Declared(**{key: value for key, value in SAID.items() if key != name})


RESPONSE = agt.RandomizedResponse(eps=1.0)
OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "size": (lambda folder: agt.Declared(size=-1), "declared.size"),
    "settings": (lambda folder: agt.Declared(settings=1), "declared.settings"),  # type: ignore[arg-type]
    "release, no size": (
        lambda folder: released(RESPONSE, declared=said_but("size")),
        "declared.size",
    ),
    "release, settings": (
        lambda folder: released(RESPONSE, declared=said_but("settings")),
        "declared.settings",
    ),
    "release, grid": (lambda folder: released(RESPONSE, **NETWORK | {"ks": [0, 2]}), "ks"),
    "release, product": (
        lambda folder: released(RESPONSE, **NETWORK, product="rump"),
        "product",
    ),
    "release, single head": (lambda folder: released(agt.NoisyArgmax(eps=1.0)), "members"),
    "release, seed": (lambda folder: fitted().release(X, RESPONSE, seed="a"), "seed"),  # type: ignore[arg-type]
    "release, no ledger": (
        lambda folder: fitted().release(X, RESPONSE, ledger=folder / "no.ledger"),
        "ledger",
    ),
    "weights, ensemble": (
        lambda folder: fitted(members=5).release_weights(agt.ReleaseWeights(mu=1.0)),
        "network",
    ),
    "weights, labels": (lambda folder: fitted().release_weights(RESPONSE), "mechanism"),  # type: ignore[arg-type]
    "weights, delta": (
        lambda folder: fitted().release_weights(agt.ReleaseWeights(mu=1.0), delta="a"),  # type: ignore[arg-type]
        "delta",
    ),
    "load": (
        lambda folder: (fitted().save(folder), agt.load(folder, compute={"device": "x"})),
        'compute["device"]',
    ),
    "private, epsilon": (
        lambda folder: agt.PrivateClassifier(declared=DECLARED, epsilon=0.0).fit(X, Y),
        "epsilon",
    ),
    "private, delta": (
        lambda folder: agt.PrivateClassifier(declared=DECLARED, delta=1.5).fit(X, Y),
        "delta",
    ),
    "private, size": (
        lambda folder: agt.PrivateClassifier(declared=said_but("size")).fit(X, Y),
        "declared.size",
    ),
    "private, relation": (
        lambda folder: agt.PrivateClassifier(declared=DECLARED, relation="swap").fit(X, Y),
        "relation",
    ),
    "private, bias": (
        lambda folder: agt.PrivateClassifier(
            declared=DECLARED, features={"map": "none", "bias": 0.0}
        ).fit(X, Y),
        'features["bias"]',
    ),
    "certified, batches": (
        lambda folder: agt.CertifiedClassifier(batches=0).fit(X, Y),
        "batches",
    ),
    "certified, training": (
        lambda folder: agt.CertifiedClassifier(training={"momentum": 2}).fit(X, Y),
        "momentum",
    ),
    "ledger, eps": (
        lambda folder: agt.Ledger.create(folder / "a.ledger", unit="one", eps=-1.0),
        "eps",
    ),
    "ledger, text": (
        lambda folder: agt.Ledger.create(folder / "a.ledger", unit="one", eps="1"),  # type: ignore[arg-type]
        "eps",
    ),
    "ledger, delta": (
        lambda folder: agt.Ledger.create(folder / "a.ledger", unit="one", eps=1, delta=1),
        "delta",
    ),
    "ledger, leaks": (
        lambda folder: agt.Ledger.create(folder / "a.ledger", unit="one", eps=1, leaks=2),
        "leaks",
    ),
    "ledger, unit": (
        lambda folder: agt.Ledger.create(folder / "a.ledger", unit=3, eps=1),  # type: ignore[arg-type]
        "unit",
    ),
    "ledger, path": (lambda folder: agt.Ledger.open(3), "path"),  # type: ignore[arg-type]
}


def check_names(error: BaseException, argument: str) -> None:
    text = str(error)
    assert KEYS.search(text) is None, text
    assert re.search(rf"(?<![\w.]){re.escape(argument)}", text), text


@pytest.mark.parametrize(
    ("given", "argument"), FIT, ids=[f"{number} {name}" for number, (_, name) in enumerate(FIT)]
)
def test_what_fit_refuses_is_named_as_it_was_given(given: dict[str, Any], argument: str) -> None:
    records = {"x": X, "y": Y} | given
    with pytest.raises(agt.AgtError) as refused:
        agt.fit(**records)
    check_names(refused.value, argument)


@pytest.mark.parametrize("case", OTHERS)
def test_what_else_is_refused_is_named_as_it_was_given(case: str, tmp_path: Path) -> None:
    call, argument = OTHERS[case]
    with pytest.raises(agt.AgtError) as refused:
        call(tmp_path)
    check_names(refused.value, argument)


def test_every_setting_that_a_message_names_has_a_name_in_python() -> None:
    """Those of files, audits and plans have none; Python's user cannot come to them."""
    of_commands = {
        *("relation", "dataset.label_free", "dataset.test", "certificate.masking"),
        *("dataset.csv.encoding", "dataset.csv.separator"),
        *("eps", "mechanism.classes", "mechanism.delta", "mechanism.weight_decay"),
    }
    folder = Path(agt.__file__).parent
    named = {
        key
        for path in folder.rglob("*.py")
        for key in re.findall(r"\{config:(?! )([^{}]+)\}", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 40
    unknown = {key for key in named if FIT_ARGUMENTS.name(key) == key}
    same_in_python = {"ledger"}  # of agt.release
    assert unknown - of_commands - same_in_python == set()


def test_the_command_line_reads_its_own_keys() -> None:
    error = agt.ConfigError(Message("{config:training.lr}={lr}: too large", lr=2))
    assert str(error) == "training.lr=2: too large"


def test_an_error_keeps_its_class_and_its_cause_when_it_leaves_for_python() -> None:
    with pytest.raises(agt.CheckError) as raised, naming_settings(FIT_ARGUMENTS):
        raise agt.CheckError(Message("{config:training.lr}"), {"a": 1}) from ValueError("b")
    assert str(raised.value) == "lr"
    assert raised.value.result == {"a": 1}
    assert isinstance(raised.value.__cause__, ValueError)


def test_the_longest_group_of_keys_names_a_setting() -> None:
    names = ArgumentNames({"a.": "{}", "a.b.": 'b["{}"]', "a.c": "d"})
    found = [names.name(key) for key in ("a.x", "a.b.x", "a.c", "b.x", "a")]
    assert found == ["x", 'b["x"]', "d", "b.x", "a"]


def test_messages_within_messages_are_said_in_the_same_names() -> None:
    inner = Message("{setting} and {config:training.clip}", setting=Setting("training.lr"))
    both = joined([inner, "{text}"], "; ")
    assert both.text(FIT_ARGUMENTS) == "lr and clip; {text}"
    assert str(both) == "training.lr and training.clip; {text}"


def test_an_error_of_a_worker_process_still_knows_its_settings() -> None:
    sent = pickle.loads(pickle.dumps(agt.ConfigError(Message("{config:training.lr}"))))
    with pytest.raises(agt.ConfigError) as raised, naming_settings(FIT_ARGUMENTS):
        raise sent
    assert str(raised.value) == "lr"


# -- one place for each setting
# -----------------------------------------------------------------------------------------------


def test_fit_takes_every_setting_by_its_name_and_default() -> None:
    arguments = inspect.signature(agt.fit).parameters
    settings = {entry.name: entry.default for entry in fields(FitSettings)}
    given = {name: argument.default for name, argument in arguments.items() if name in settings}
    del settings["training"], given["training"]
    assert given == settings
    of_records = {"x", "y", "ids", "units", "public"}
    of_labels = {"target", "range"}
    assert arguments.keys() - settings.keys() == {*of_records, *of_labels, "training"}


def test_the_estimators_take_what_their_settings_hold() -> None:
    certified = inspect.signature(agt.CertifiedClassifier).parameters
    private = inspect.signature(agt.PrivateClassifier).parameters
    assert certified.keys() == {entry.name for entry in fields(FitSettings)}
    data = {entry.name for entry in fields(DataSettings)}
    assert private.keys() == data | {"epsilon", "delta", "ledger"}


def test_settings_of_training_are_fields_of_its_own_or_of_its_rest() -> None:
    settings = FitSettings(lr=0.5, batches=3, training={"momentum": 0.5, "batch": {"n_max": 9}})
    assert settings.given_training == {
        "lr": 0.5,
        "momentum": 0.5,
        "batch": {"count": 3, "n_max": 9},
    }
    own = {
        entry.metadata["key"].removeprefix("training.").partition(".")[0]
        for entry in fields(FitSettings)
        if entry.metadata.get("key", "").startswith("training.")
    }
    assert own <= {entry.name for entry in fields(TrainingConfig)}  # type: ignore[arg-type]


def test_the_choice_of_unproved_guarantees_is_called_accounting_in_python() -> None:
    text = Message("use {config:unproved=refuse} or {config:unproved=allow}").text(FIT_ARGUMENTS)
    assert text == 'use accounting="rigorous" or accounting="paper"'
