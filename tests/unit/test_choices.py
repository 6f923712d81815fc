"""What settings were chosen on: a declaration is about exactly the settings and the data that it
names.
"""

from typing import Any

import pytest

from agt.facts import Standing, declared
from agt.settings import ChosenFrom
from agt_cli.choices import (
    bind_declaration,
    bind_to_settings,
    choices_fact,
    declares_public_choices,
    hash_parts,
    with_public_rows,
    with_votes_recipe,
)
from agt_cli.command_settings.tune import CONFIGURATION_PARTS
from agt_cli.composing import compose_command
from agt_cli.config_files import options_of_group

MADE_FOR = (
    [],
    ["dataset=blobs_overlapping"],
    *[[f"experiment={name}"] for name in options_of_group("experiment")],
)


def standing(overrides: list[str]) -> Standing:
    return choices_fact(compose_command("train", overrides)).standing


@pytest.mark.parametrize("overrides", MADE_FOR, ids=lambda o: " ".join(o) or "default")
def test_every_declaration_in_a_file_is_about_the_settings_it_comes_with(
    overrides: list[str],
) -> None:
    config = compose_command("train", overrides)
    public = config["training"]["chosen_on"] == "public"
    fact = choices_fact(config)
    assert fact.standing is (Standing.DECLARED if public else Standing.VOID), (
        f"{fact.sentence}: {hash_parts(config)}"
    )


RECIPE = ["dataset=table", "dataset.path=x.csv", "dataset.label=y", "+dataset.numeric={a: [0, 1]}"]


@pytest.mark.parametrize(
    "overrides",
    [
        RECIPE,
        ["dataset=embeddings", "dataset.path=x.npz"],
        [*RECIPE, "kgrid.max=9", "relation.unit_rows=3"],
        [*RECIPE, "certificate=erm"],
        ["dataset=mnist", "certificate/features=scattering"],
    ],
)
def test_the_recipe_as_it_comes_is_checked_and_the_columns_stay_the_owner_s(
    overrides: list[str],
) -> None:
    fact = choices_fact(compose_command("train", overrides))
    assert fact.standing is Standing.DECLARED, fact.sentence
    assert fact.code == "settings_of_recipe"
    assert fact.broken_by


VOTES = [*RECIPE, "certificate=votes", "dataset.declared_size=5000"]


def test_votes_have_members_by_the_recipe_and_any_other_number_is_for_its_owner_to_declare() -> (
    None
):
    made = with_votes_recipe(compose_command("train", VOTES))
    assert made["ensemble"]["members"] == 75, "one for 67 records, an odd number"
    assert choices_fact(made).standing is Standing.DECLARED
    named = with_votes_recipe(compose_command("train", [*VOTES, "ensemble.members=75"]))
    assert choices_fact(named).standing is Standing.DECLARED
    for override in (
        "ensemble.members=53",
        "certificate.strength=0.2",
        "certificate.learner=logistic",
        "training.caution=2",
        "dataset.bins=10",
    ):
        assert (
            choices_fact(with_votes_recipe(compose_command("train", [*VOTES, override]))).standing
            is Standing.VOID
        )
    assert (
        with_votes_recipe(compose_command("train", [*VOTES, "training.caution=2"]))["ensemble"][
            "members"
        ]
        == 149
    )
    without_size = with_votes_recipe(
        compose_command("train", [*VOTES, "dataset.declared_size=null"])
    )
    assert without_size["ensemble"]["members"] == 1
    for overrides in (RECIPE, [*VOTES[:-1], "certificate=erm"]):
        config = compose_command("train", overrides)
        assert with_votes_recipe(config) == config


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("training.weight_decay=0.01", "training"),
        ("training.caution=2", "training"),
        ("training.clip=1", "training"),
        ("relation=substitute", "relation"),
        ("certificate=removal", "certificate"),
        ("certificate.features.whiten=0.5", "certificate"),
        ("ensemble.members=3", "ensemble"),
        ("ensemble.vote=margins", "ensemble"),
        ("ensemble.margin_clip=1", "ensemble"),
        ("model.hidden=[4]", "model"),
        ("dataset.bins=10", "dataset.bins"),
        ("dataset.crosses=64", "dataset.crosses"),
    ],
)
def test_whatever_departs_from_the_recipe_is_for_its_owner_to_declare(
    override: str, part: str
) -> None:
    fact = choices_fact(compose_command("train", [*RECIPE, override]))
    assert fact.standing is Standing.VOID
    assert fact.code == "differs_from_recipe"
    assert list(fact.values["changed"]) == [part]
    line = [*RECIPE, override, "training.chosen_on=public"]
    assert (
        choices_fact(bind_declaration(compose_command("train", line), line)).standing
        is Standing.DECLARED
    )


def test_no_file_can_call_other_settings_the_recipe() -> None:
    config = compose_command("train", ["experiment=imdb_linear", "training.chosen_on=recipe"])
    assert choices_fact(config).standing is Standing.VOID
    assert choices_fact(bind_to_settings(config)).standing is Standing.VOID


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("training.lr=6.9", "training"),
        ("training.seed=3", "training"),
        ("training.batch.normalizer=40000", "training"),
        ("relation=substitute", "relation"),
        ("relation.unit_rows=2", "relation"),
        ("kgrid.max=7", "kgrid"),
        ("certificate.average=3", "certificate"),
        ("ensemble.members=3", "ensemble"),
        ("dataset.scale=2.0", "dataset"),
        ("dataset.path=another.npz", "dataset"),
        ("dataset=digits", "dataset"),
        ("model.hidden=[4]", "model"),
        ("noise.epsilon=1", "noise"),
    ],
)
def test_any_override_voids_a_files_declaration(override: str, part: str) -> None:
    fact = choices_fact(compose_command("train", ["experiment=imdb_linear", override]))
    assert fact.standing is Standing.VOID
    assert fact.code == "declared_for_other_settings"
    assert list(fact.values["changed"]) == [part]
    assert "training.chosen_on=public" in fact.sentence


@pytest.mark.parametrize(
    "override",
    [
        "compute.threads=1",
        "data_dir=elsewhere",
        "output_dir=there",
        "dataset.path=/mnt/imdb_minilm.npz",
    ],
)
def test_speed_and_where_files_lie_void_nothing(override: str) -> None:
    assert standing(["experiment=imdb_linear", override]) is Standing.DECLARED


def test_a_profile_put_on_other_data_declares_nothing() -> None:
    assert (
        standing(["dataset=table", "training=imdb_linear", "dataset.path=p.csv", "dataset.label=y"])
        is Standing.VOID
    )


def test_nobody_and_by_results() -> None:
    assert choices_fact({}).code == "settings_undeclared"
    assert choices_fact({"training": {"chosen_on": "data"}}).code == "settings_chosen_on_results"
    fact = choices_fact({"training": {"chosen_on": "public"}})
    assert fact.standing is Standing.VOID
    assert fact.code == "declared_for_no_settings"


def test_a_command_line_declares_for_its_own_run_and_the_record_keeps_what_for() -> None:
    line = ["experiment=imdb_linear", "training.lr=6.5", "training.chosen_on=public"]
    config = bind_declaration(compose_command("train", line), line)
    assert choices_fact(config).standing is Standing.DECLARED
    for part in CONFIGURATION_PARTS:  # the record edited afterwards
        other = {**config, part: {**(config[part] or {}), "edited": 1}}
        assert choices_fact(other).standing is Standing.VOID
    assert bind_declaration(compose_command("train", line[:2]), line[:2])["training"][
        "chosen_for"
    ] != hash_parts(compose_command("train", line[:2]))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["training.chosen_on=public"], True),
        (["+training.chosen_on='public'"], True),
        (["training.chosen_on=public", "training.chosen_on=data"], False),
        (["training.chosen_on=null"], False),
        (["training.lr=1"], False),
        ([], False),
    ],
)
def test_who_declares(overrides: list[str], says: bool) -> None:
    assert declares_public_choices(overrides) is says


def test_hashes_are_text_in_any_yaml_and_change_with_each_part() -> None:
    config: dict[str, Any] = compose_command("train", [])
    found = hash_parts(config)
    assert list(found) == list(CONFIGURATION_PARTS)
    assert all(value[0] == "h" and len(value) == 12 for value in found.values())
    again = bind_to_settings(config)
    assert hash_parts(again) == found, "what is declared about settings is none of them"
    assert choices_fact(again).standing is Standing.DECLARED


def test_a_claim_says_which_file_and_not_where_it_lies() -> None:
    about = ChosenFrom(rows="/home/anna/clinic/pilot.csv", digest="d")
    chosen = declared("settings_chosen_on_public", setting="training.chosen_on=public")
    fact = with_public_rows(chosen, about)
    assert fact.code == "settings_chosen_on_public_rows"
    assert fact.values == {**chosen.values, "rows": "pilot.csv", "digest": "d"}
    assert "pilot.csv" in fact.sentence
    assert "clinic" not in fact.sentence


def test_a_file_that_is_called_as_public_records_are_is_not_taken_for_them() -> None:
    fact = with_public_rows(
        declared("settings_of_recipe"), ChosenFrom(rows="clinic/test", digest="d")
    )
    assert fact.values["rows"] == "./test"
