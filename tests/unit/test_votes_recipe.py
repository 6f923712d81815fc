"""The recipe of votes: its numbers for each kind of data, and what may call itself the recipe."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import agt
from agt.errors import ConfigError, UnsoundError
from agt.facts import Standing
from agt.models.votes import VotesKind
from agt.models.votes_recipe import (
    CURRENT_VERSION,
    VOTES_ON_OTHER_DATA,
    VOTES_ON_TABLES,
    votes_recipe,
)
from agt_cli.choices import bind_declaration, choices_fact, with_votes_recipe
from agt_cli.composing import compose_command

TABLE = (
    "dataset=table",
    "dataset.path=x.csv",
    "dataset.label=y",
    "+dataset.numeric={a: [0, 1]}",
    "dataset.declared_size=5000",
    "certificate=votes",
)
VECTORS = (
    "dataset=embeddings",
    "dataset.path=x.npz",
    "dataset.declared_size=5000",
    "certificate=votes",
)
IMAGES = ("dataset=mnist", "dataset.declared_size=5000", "certificate=votes")


def new_run(*overrides: str) -> dict[str, Any]:
    """Return the settings that ``agt train`` records for a command line."""
    return bind_declaration(with_votes_recipe(compose_command("train", [*overrides])), overrides)


# What earlier versions of agt recorded for 5,000 records, written down again here: an oracle of
# VOTES_ON_TABLES and of the rule of the number of members.
NUMBERS_ON_TABLES = {"1": (51, 0.1), "2": (91, 0.03), "3": (75, 0.03)}
NUMBERS_ON_OTHER_DATA = (51, 0.1)
EARLIER_RUNS = [
    pytest.param(version, line, members_and_strength, id=f"{version}-{name}")
    for version, on_tables in NUMBERS_ON_TABLES.items()
    for name, line, members_and_strength in (
        ("table", TABLE, on_tables),
        ("vectors", VECTORS, NUMBERS_ON_OTHER_DATA),
        ("images", IMAGES, NUMBERS_ON_OTHER_DATA),
    )
]


def recorded_run(
    version: str, line: tuple[str, ...], members_and_strength: tuple[int, float]
) -> dict[str, Any]:
    """Return the settings that ``agt train`` recorded with a version of the recipe.

    Args:
        version: of the recipe. Versions of agt with the first one did not record it.
        line: the command line of ``agt train``.
        members_and_strength: as that version recorded them.
    """
    config = compose_command("train", [*line])
    members, strength = members_and_strength
    training = config["training"]
    if version != "1":
        training = {**training, "chosen_for": {"recipe": version}}
    return {
        **config,
        "certificate": {**config["certificate"], "strength": strength},
        "ensemble": {**config["ensemble"], "members": members},
        "training": training,
    }


def numbers(config: dict[str, Any]) -> tuple[int, float]:
    return config["ensemble"]["members"], config["certificate"]["strength"]


def standing(config: dict[str, Any]) -> Standing:
    return choices_fact(config).standing


def test_a_table_has_a_member_for_67_records_and_a_strength_of_0_03() -> None:
    assert numbers(new_run(*TABLE)) == (75, 0.03)


@pytest.mark.parametrize("line", [VECTORS, IMAGES], ids=["vectors", "images"])
def test_vectors_and_images_have_a_member_for_100_records_and_a_strength_of_0_1(
    line: tuple[str, ...],
) -> None:
    assert numbers(new_run(*line)) == (51, 0.1)


@pytest.mark.parametrize(
    "override",
    [
        "certificate.learner=logistic",
        "certificate.learner={_target_: sklearn.tree.DecisionTreeClassifier}",
        "dataset.target=numeric",
    ],
)
def test_on_a_table_what_was_not_measured_keeps_the_numbers_of_other_data(override: str) -> None:
    assert numbers(new_run(*TABLE, override)) == (51, 0.1)


@pytest.mark.parametrize(
    ("line", "unit_rows", "members"),
    [(TABLE, 13, 75), (TABLE, 50, 21), (TABLE, 5000, 3), (VECTORS, 20, 51), (VECTORS, 50, 21)],
)
def test_a_member_has_five_people_on_average_where_one_has_many_records(
    line: tuple[str, ...], unit_rows: int, members: int
) -> None:
    config = new_run(*line, "dataset.unit=person", f"dataset.unit_rows={unit_rows}")
    assert config["ensemble"]["members"] == members


def test_changed_labels_have_one_member_and_a_strength_of_0_1() -> None:
    assert numbers(new_run(*TABLE, "relation=flip")) == (1, 0.1)


def test_caution_multiplies_the_members_and_leaves_the_strength() -> None:
    assert numbers(new_run(*TABLE, "training.caution=2")) == (149, 0.03)
    assert numbers(new_run(*VECTORS, "training.caution=2")) == (101, 0.1)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("ensemble.members=7", (7, 0.03)),
        ("certificate.strength=0.2", (75, 0.2)),
    ],
)
def test_a_number_that_is_typed_stays(override: str, expected: tuple[int, float]) -> None:
    assert numbers(new_run(*TABLE, override)) == expected


@pytest.mark.parametrize("size", [1, 60, 10**7])
def test_members_are_odd_and_from_3_to_9_999(size: int) -> None:
    for recipe in (*VOTES_ON_TABLES.values(), VOTES_ON_OTHER_DATA):
        members = recipe.members(size)
        assert members % 2 == 1
        assert 3 <= members <= 9_999


def test_an_unknown_version_of_the_recipe_has_no_numbers() -> None:
    facts = {"coded_columns": True, "ridge": True, "numeric": False, "counts_label_flips": False}
    with pytest.raises(KeyError):
        votes_recipe(**facts, version="5")


# The declaration that a run's settings are the recipe's (condition e).


@pytest.mark.parametrize("line", [TABLE, VECTORS, IMAGES], ids=["table", "vectors", "images"])
def test_the_settings_of_a_new_run_are_the_recipe_s(line: tuple[str, ...]) -> None:
    fact = choices_fact(new_run(*line))
    assert (fact.standing, fact.code) == (Standing.DECLARED, "settings_of_recipe")


@pytest.mark.parametrize(("version", "line", "members_and_strength"), EARLIER_RUNS)
def test_the_claim_of_an_earlier_version_s_run_holds(
    version: str, line: tuple[str, ...], members_and_strength: tuple[int, float]
) -> None:
    fact = choices_fact(recorded_run(version, line, members_and_strength))
    assert (fact.standing, fact.code) == (Standing.DECLARED, "settings_of_recipe")


@pytest.mark.parametrize(
    ("version", "members_and_strength", "changed"),
    [
        ("1", (51, 0.03), ("certificate",)),
        ("1", (91, 0.1), ("ensemble",)),
        ("1", (75, 0.1), ("ensemble",)),
        ("2", (91, 0.1), ("certificate",)),
        ("2", (51, 0.03), ("ensemble",)),
        ("2", (75, 0.03), ("ensemble",)),
        ("3", (91, 0.03), ("ensemble",)),
    ],
)
def test_a_run_on_a_table_with_a_number_of_another_version_is_not_the_recipe(
    version: str, members_and_strength: tuple[int, float], changed: tuple[str, ...]
) -> None:
    fact = choices_fact(recorded_run(version, TABLE, members_and_strength))
    assert fact.standing is Standing.VOID
    assert fact.values["changed"] == changed


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        (["certificate.strength=0.1"], ["certificate"]),
        (["ensemble.members=51"], ["ensemble"]),
        (["ensemble.members=91"], ["ensemble"]),
        (["certificate.strength=0.1", "ensemble.members=51"], ["certificate", "ensemble"]),
    ],
)
def test_numbers_of_an_earlier_recipe_are_a_choice_in_a_new_run(
    overrides: list[str], changed: list[str]
) -> None:
    fact = choices_fact(new_run(*TABLE, *overrides))
    assert fact.code == "differs_from_recipe"
    assert sorted(fact.values["changed"]) == changed
    declared = choices_fact(new_run(*TABLE, *overrides, "training.chosen_on=public"))
    assert declared.standing is Standing.DECLARED


def test_numbers_of_tables_are_a_choice_on_vectors() -> None:
    overrides = ["certificate.strength=0.03", "ensemble.members=75"]
    assert standing(new_run(*VECTORS, *overrides)) is Standing.VOID


# Without version 3, whose numbers are today's where each person has one record.
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_line_cannot_name_the_version_that_it_is_compared_with(version: str) -> None:
    members, strength = NUMBERS_ON_TABLES[version]
    overrides = [
        f"certificate.strength={strength}",
        f"ensemble.members={members}",
        f"training.chosen_for={{recipe: '{version}'}}",
    ]
    config = new_run(*TABLE, *overrides)
    assert config["training"]["chosen_for"] == {"recipe": CURRENT_VERSION}
    assert standing(config) is Standing.VOID


@pytest.mark.parametrize("name", ["agt_cli.runs.usual_learners.Table", "my_data.MyTable"])
def test_another_name_of_a_tables_class_does_not_choose_the_numbers_of_other_data(
    name: str,
) -> None:
    fact = choices_fact(new_run(*TABLE, f"dataset._target_={name}"))
    assert fact.code == "differs_from_recipe"
    assert fact.values["changed"] == ("dataset._target_",)


def test_a_class_of_vectors_of_one_s_own_is_a_choice_of_its_owner() -> None:
    mine = "dataset._target_=my_data.MyVectors"
    assert standing(new_run(*VECTORS, mine)) is Standing.VOID
    assert standing(new_run(*VECTORS, mine, "training.chosen_on=public")) is Standing.DECLARED


def test_people_did_not_count_in_earlier_versions() -> None:
    config = recorded_run("3", (*TABLE, "dataset.unit=person", "dataset.unit_rows=100"), (75, 0.03))
    assert standing(config) is Standing.DECLARED


@pytest.mark.parametrize("version", ["5", "", "2.0"])
def test_a_version_of_the_recipe_that_is_not_known_is_no_recipe(version: str) -> None:
    config = new_run(*TABLE)
    training = {**config["training"], "chosen_for": {"recipe": version}}
    assert standing({**config, "training": training}) is Standing.VOID


def test_the_version_of_the_recipe_is_no_declaration_of_public_settings() -> None:
    config = new_run(*TABLE)
    training = {**config["training"], "chosen_on": "public"}
    assert standing({**config, "training": training}) is Standing.VOID


# From Python.


def frame(rows: int = 600) -> tuple[pd.DataFrame, np.ndarray]:
    draws = np.random.default_rng(0)
    values = pd.DataFrame({"a": draws.random(rows), "b": draws.random(rows)})
    return values, (values["a"] > values["b"]).to_numpy(np.int64)


def fitted_numbers(model: agt.Fitted) -> tuple[int, Any]:
    settings = model.model.problem.settings
    return settings.ensemble.members, settings.certificate.strength  # type: ignore[attr-defined]


COLUMNS = agt.Columns(numeric={"a": [0, 1], "b": [0, 1]})
DECLARED = agt.Declared(size=600)


def test_python_has_the_numbers_of_tables_where_agt_codes_the_columns() -> None:
    x, y = frame()
    model = agt.fit(x, y, columns=COLUMNS, declared=DECLARED, certificate="votes")
    assert fitted_numbers(model) == (9, 0.03)
    model = agt.fit(x, y, columns=COLUMNS, declared=DECLARED, certificate=VotesKind())
    assert fitted_numbers(model) == (9, 0.03)


def test_python_has_the_numbers_of_vectors_elsewhere() -> None:
    x, y = frame()
    for features in (x, x.to_numpy()):
        model = agt.fit(features, y, declared=DECLARED, certificate="votes")
        assert fitted_numbers(model) == (7, 0.1)


def test_python_keeps_numbers_that_are_given() -> None:
    x, y = frame()
    given = {"name": "votes", "strength": 0.1}
    model = agt.fit(x, y, columns=COLUMNS, declared=DECLARED, certificate=given, members=7)
    assert fitted_numbers(model) == (7, 0.1)


def test_a_saved_model_has_the_numbers_that_it_was_trained_with(tmp_path: Any) -> None:
    x, y = frame()
    model = agt.fit(x, y, columns=COLUMNS, declared=DECLARED, certificate="votes")
    digest = model.save(tmp_path / "model")
    assert fitted_numbers(agt.load(tmp_path / "model", digest)) == (9, 0.03)


def test_members_are_not_trained_with_a_strength_that_was_left_open() -> None:
    with pytest.raises(UnsoundError, match="still 'recipe'"):
        _ = VotesKind().member_strength


@pytest.mark.parametrize("value", ["other", True, 0])
def test_a_strength_is_a_number_or_recipe(value: Any) -> None:
    with pytest.raises(ConfigError, match="strength"):
        VotesKind(strength=value)
