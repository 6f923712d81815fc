"""What every kind of certificate owes (agt/models/kind.py), over its registry: a new kind
inherits it.
"""

import inspect
import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest

import agt
from agt.models.kind import CertificateKind
from agt.models.kinds import KINDS, certificate_config
from agt.problem import Settings
from agt.settings import FeaturesConfig, TrainingConfig, plain_of, validate
from agt.store.folder import Folder, NewFolder
from agt.store.json_text import as_json
from agt.training.settings import EnsembleConfig
from agt_cli import config_files
from agt_cli.choices import _REASONS
from agt_cli.composing import compose_command
from agt_cli.report.training_md import _TRAINING_SENTENCES
from contract.test_models import EXAMPLES, TRAINED, fitted

NAMES = sorted({kind.name for kind in KINDS})
names = pytest.mark.parametrize("name", NAMES)


def settings_of(name: str) -> Settings:
    """The settings of a small run of each kind."""
    return fitted(name).model.problem.settings


def dotted(node: object, prefix: str = "") -> set[str]:
    """The names of all settings of a composed configuration, and of their groups."""
    if not isinstance(node, dict):
        return set()
    inner = [{f"{prefix}{key}", *dotted(value, f"{prefix}{key}.")} for key, value in node.items()]
    return set().union(*inner)


def test_every_kind_is_listed_once_and_has_an_example_and_a_configuration() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert set(NAMES) == set(TRAINED) == set(config_files.options_of_group("certificate"))


@names
def test_its_configuration_is_read_as_the_kind_with_its_defaults(name: str) -> None:
    kind = certificate_config(compose_command("train", [f"certificate={name}"])["certificate"])
    assert kind.name == name
    assert kind == type(kind)()


@names
def test_its_settings_are_read_back_from_json_as_they_were(name: str) -> None:
    kind = settings_of(name).certificate
    again = certificate_config(json.loads(as_json(asdict(kind))))
    assert (type(again), again) == (type(kind), kind)
    assert set(plain_of(kind)) <= {field.name for field in fields(kind)}


@names
def test_an_unknown_setting_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(agt.ConfigError, match=r"certificate\.sigmaa"):
        certificate_config({"name": name, "sigmaa": 1})


@names
def test_no_two_kinds_read_the_same_settings(name: str) -> None:
    node = asdict(settings_of(name).certificate)
    assert sum(kind.is_described_by(node) for kind in KINDS) == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_that_it_answers_is_left_without_a_contract(kind: type[CertificateKind]) -> None:
    for base in (base for base in kind.__mro__ if issubclass(base, CertificateKind)):
        for name, member in vars(base).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{base.__name__}.{name}"


@names
def test_seeds_are_settings_of_its_own(name: str) -> None:
    features = FeaturesConfig(map="relu", count=4)
    for kind in (settings_of(name).certificate, *_with_features(name, features)):
        node = plain_of(kind)
        for seed in kind.seeds:
            value: object = node
            for key in seed.split("."):
                assert isinstance(value, dict)
                value = value[key]
            assert isinstance(value, int)


def _with_features(name: str, features: FeaturesConfig) -> list[CertificateKind]:
    """The kind on public features, where it takes any."""
    try:
        return [settings_of(name).certificate.with_features(features)]
    except agt.ConfigError:
        return []


@names
def test_public_features_are_taken_once_or_refused(name: str) -> None:
    features = FeaturesConfig(map="relu", count=4)
    for kind in _with_features(name, features):
        assert kind.features == features
        with pytest.raises(agt.ConfigError, match="features"):
            kind.with_features(features)


@names
def test_what_it_does_not_read_are_settings_that_there_are_and_the_reason_has_words(
    name: str,
) -> None:
    known = dotted(compose_command("train", [f"certificate={name}"]))
    for setting, reason in settings_of(name).certificate.unread_settings.items():
        assert setting in known
        assert _REASONS[reason].format(name=name)


@names
def test_what_it_bounds_has_words_in_a_report(name: str) -> None:
    assert settings_of(name).certificate.bounded in _TRAINING_SENTENCES


@names
def test_settings_left_to_the_recipe_become_numbers_or_are_refused(name: str) -> None:
    kind = settings_of(name).certificate
    node = {
        "loss": "binary_cross_entropy",
        "clip": 0.5,
        "epochs": "recipe",
        "lr": "recipe",
        "weight_decay": "recipe",
    }
    training = validate(TrainingConfig, node, "training")
    try:
        resolved = kind.resolve(training, 2, 5000.0, 1)
    except agt.ConfigError:
        return
    assert resolved.by_recipe == ()
    assert kind.resolve(resolved, 2, 5000.0, 1) == resolved


@names
def test_defaults_of_training_are_settings_of_training(name: str) -> None:
    assert validate(
        TrainingConfig, dict(settings_of(name).certificate.training_defaults), "training"
    )


@names
def test_any_model_can_be_trained_again_and_its_own_erasure_is_the_first_method(name: str) -> None:
    settings = settings_of(name)
    kind = settings.certificate
    methods = kind.erasure_methods(settings.ensemble)
    assert "retrain" in methods
    assert "certificate" in methods
    if kind.own_erasure:
        assert methods[0] == kind.own_erasure
        assert fitted(name).model.removable_weights is not None


@names
def test_members_of_an_ensemble_are_models_where_it_says_so(name: str) -> None:
    kind = settings_of(name).certificate
    assert not kind.has_member_models(EnsembleConfig())
    example = f"{name} ensemble"
    if example in EXAMPLES:
        members = fitted(example).model.member_models
        assert len(members) == 3
        assert kind.has_member_models(fitted(example).model.problem.settings.ensemble)


@names
def test_its_model_keeps_its_answers_as_the_model_of_a_problem_without_records(name: str) -> None:
    model = fitted(name).model
    bare = model.with_problem(
        model.problem.with_dataset(
            model.problem.dataset.without_records, len(model.problem.dataset.train)
        )
    )
    queries = EXAMPLES[name].queries
    assert (bare.predict(queries) == model.predict(queries)).all()


@names
def test_its_features_are_those_of_its_own_public_rows(name: str) -> None:
    model = fitted(name).model
    assert model.has_features_of(model.problem.dataset)


@names
def test_a_linear_head_before_training_has_the_constants_of_the_trained_one(name: str) -> None:
    model = fitted(name).model
    head = model.problem.settings.certificate.untrained_head(model.problem)
    if head is not None:
        assert model.linear_head is not None
        assert head.constants == model.linear_head.constants
        assert not head.trained.weight.any()


@names
def test_a_relation_of_labels_is_covered_by_a_proof_or_refused_by_its_name(name: str) -> None:
    settings = settings_of(name)
    flips = replace(settings.relation, name="flip")
    try:
        made = replace(settings, relation=flips)
    except agt.ConfigError:
        with pytest.raises(agt.ConfigError, match="relation=flip"):
            replace(settings, relation=flips)
    else:
        assert made.certificate == settings.certificate


@names
def test_its_own_erasure_leaves_weights_as_near_to_those_of_training_again_as_it_says(
    name: str, tmp_path: Path
) -> None:
    model = fitted(name).model
    kind = model.problem.settings.certificate
    dataset = model.problem.dataset
    if not kind.own_erasure:
        return
    erased = dataset.train.take(np.arange(3))
    remaining = dataset.train.take(np.arange(3, 42))
    problem = model.problem.with_dataset(
        dataset.with_training_records(remaining, dataset.declared_size)
    )
    now, removal = kind.remove_records(model.with_problem(problem), erased, 3)
    removed = now.removable_weights
    trained = kind.fit(problem).removable_weights
    assert removed is not None
    assert trained is not None
    assert np.linalg.norm(removed.weight - trained.weight) <= removed.distance + trained.distance
    assert np.linalg.norm(removed.weight - model.removable_weights.weight) > 0, (
        "three records count"
    )
    assert (removal.promise.method, removal.records) == (kind.own_erasure, 3)

    folder = NewFolder(tmp_path / "model", "test")
    now.save(folder)
    folder.finish()
    reader = Folder.open(tmp_path / "model", "test")
    bounds = kind.removal_bounds(reader)
    assert bounds.spent == removal.budget.spent <= bounds.total == removal.budget.total
    promised = kind.removal_promise(reader, bounds.spent)
    assert (promised.exact, promised.eps, promised.within) == (
        removal.promise.exact,
        removal.promise.eps,
        removal.promise.within,
    )
