"""New names of settings stand for the names that records have."""

from pathlib import Path
from typing import Any

import pytest

from agt.errors import ConfigError, naming_settings
from agt.settings import TrainingConfig, validate
from agt_cli.configuration import compose_with_hydra
from agt_cli.help_pages import command_help
from agt_cli.renamed import (
    RENAMED_SETTINGS,
    CommandNames,
    check_clip_name,
    check_given_once,
    with_new_name,
    with_new_names,
    with_old_keys,
    with_old_names,
    with_old_names_in_file,
)


@pytest.mark.parametrize("entry", [each for each in RENAMED_SETTINGS if not each.values])
def test_a_new_name_becomes_the_name_in_records(entry) -> None:  # type: ignore[no-untyped-def]
    command = entry.commands[0] if entry.commands else "plan"
    assert with_old_names(command, [f"+{entry.new}=0.1"]) == [f"+{entry.old}=0.1"]
    assert with_old_names(command, [f"{entry.old}=0.1"]) == [f"{entry.old}=0.1"]


def test_a_new_value_becomes_the_value_in_records() -> None:
    assert with_old_names("predict", ["unproved=allow"]) == ["accounting=paper"]
    assert with_old_names("train", ["relation=replace_one,add_remove"]) == [
        "relation=substitute,add_remove"
    ]


def test_a_new_name_with_an_unknown_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unproved.*'never'"):
        with_old_names("predict", ["unproved=never"])


def test_words_that_are_no_settings_stay_as_they_are() -> None:
    assert with_old_names("unlearn", ["-m", "fresh"]) == ["-m", "fresh"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("training.epochs=3", "training.epochs=5"),
        ("training.epochs=3", "++training.epochs=3"),
        ("training.decay=1", "training.lr_decay=2"),
        ("eps=1", "epsilon=2"),
        ("dataset=blobs", "dataset=digits"),
        ("training={lr: 3}", "training.lr=2"),
        ("+training={batch: {count: 5}}", "training.batch={count: 2}"),
    ],
)
def test_two_values_of_one_setting_are_refused_by_the_names_that_were_typed(
    first: str, second: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_given_once("train", [first, "-q", second])
    assert first in str(error.value)
    assert second in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "training.seed=0,1"],
        ["~noise", "+noise={epsilon: 1}"],
        ["certificate=stability", "certificate/features=landmarks"],
        ["--cfg=job", "--cfg=job"],
        ["training={lr: 3}", "training.epochs=2"],
        ["training={lr: 3", "training.lr=2"],
    ],
)
def test_a_sweep_and_a_setting_that_is_removed_first_are_each_given_once(words: list[str]) -> None:
    check_given_once("train", words)


def test_a_name_of_another_command_stays_as_it_is() -> None:
    assert with_old_names("plan", ["simulate=1"]) == ["simulate=1"]


@pytest.mark.parametrize(
    ("command", "setting", "shown"),
    [
        ("predict", "accounting=rigorous", "unproved=refuse"),
        ("train", "training.decay", "training.lr_decay"),
        ("train", "training.clip=0.06", "training.clip=0.06"),  # two new names
        ("predict", "mechanism.eps=1", "mechanism.eps=1"),  # another spelling only
        ("plan", "seed=null", "seed=null"),  # new only for another command
    ],
)
def test_help_shows_the_new_name(command: str, setting: str, shown: str) -> None:
    assert with_new_name(command, setting) == shown


def test_help_of_a_command_shows_new_names() -> None:
    lines = command_help("predict").splitlines()
    keys = {line.split("=")[0].strip() for line in lines}
    assert {"reserve", "simulate", "unproved"} <= keys
    assert not {"lot", "accounting"} & keys


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("training", "training.caution"),
        ("certificate", "certificate.tolerance"),
        ("relation", "relation.unit_rows"),
        ("kgrid", "kgrid.max"),
    ],
)
def test_help_lists_the_keys_of_a_group(part: str, key: str) -> None:
    assert key in command_help("train", [part])


def test_lists_of_keys_show_the_new_names() -> None:
    keys = ["training.decay", "training.lr", "training.clip"]
    assert with_new_names("train", keys) == [
        "training.lr_decay",
        "training.lr",
        "training.clip_elementwise",
        "training.clip_derivative",
    ]


def test_an_unknown_key_is_answered_with_the_new_names_of_the_others() -> None:
    with pytest.raises(ConfigError) as error, naming_settings(CommandNames("train")):
        validate(TrainingConfig, {"lr_decey": 1}, "training")
    known = str(error.value).partition("(known: ")[2].rstrip(")").split(", ")
    assert "did you mean 'lr_decay'" in str(error.value)
    assert {"lr_decay", "weight_decay_mode", "clip_elementwise", "clip_derivative"} <= {*known}
    assert not {"decay", "decay_mode", "clip"} & {*known}


@pytest.mark.parametrize(
    ("typed", "certificate", "right"),
    [
        ("training.clip_derivative=1", "box", "training.clip_elementwise=1"),
        ("training.clip_elementwise=1", "stability", "training.clip_derivative=1"),
        ("training.clip_elementwise=1", "erm", "training.clip_derivative=1"),
    ],
)
def test_a_clip_level_has_the_name_that_suits_the_certificate(
    typed: str, certificate: str, right: str
) -> None:
    with pytest.raises(ConfigError) as error:
        check_clip_name([typed], certificate, {"_target_": "agt."})
    assert right in str(error.value)
    check_clip_name([right, "training.clip=1", "training.lr=1"], certificate, {"_target_": "agt."})


@pytest.mark.parametrize(
    ("package", "settings", "expected"),
    [
        ("training", {"lr_decay": 0.1}, {"decay": 0.1}),
        ("training", {"batch": {"hash_salt": "a"}}, {"batch": {"key": "a"}}),
        ("dataset", {"split_salt": "a"}, {"split_key": "a"}),
        ("", {"dataset": {"keep_salt": "a"}, "noise": {"eps": 1}}, None),
        ("dataset", {"lr_decay": 0.1, "hash_salt": "a"}, {"lr_decay": 0.1, "hash_salt": "a"}),
        ("training", {"batch": None}, {"batch": None}),
    ],
)
def test_a_new_name_in_a_file_becomes_the_name_in_records(
    package: str, settings: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    if expected is None:
        expected = {"dataset": {"keep_key": "a"}, "noise": {"epsilon": 1}}
    assert with_old_names_in_file(Path("f.yaml"), package, settings) == expected


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lr_decay": 0.1, "decay": 0.1}, "f.yaml: lr_decay and decay"),
        ({"clip_derivative": 0.1}, "f.yaml: clip_derivative.*the name clip"),
    ],
)
def test_a_name_in_a_file_is_refused_where_a_value_could_be_lost_or_mistaken(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        with_old_names_in_file(Path("f.yaml"), "training", settings)


def test_answers_in_a_file_have_either_name() -> None:
    assert with_old_keys("start", {"epsilon": 1, "label": "y"}, "f") == {"eps": 1, "label": "y"}
    with pytest.raises(ConfigError, match="f: epsilon and eps"):
        with_old_keys("start", {"epsilon": 1, "eps": 2}, "f")


@pytest.mark.parametrize(("typed", "decay"), [((), 0.125), (("training.decay=0.5",), 0.5)])
def test_a_file_of_the_user_has_new_names_and_the_command_line_goes_first(
    typed: tuple[str, ...], decay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf/training").mkdir(parents=True)
    (tmp_path / "conf/training/mine.yaml").write_text(
        "defaults: [generic, _self_]\nlr_decay: 0.125\nbatch: {hash_salt: mine}\n"
    )
    monkeypatch.chdir(tmp_path)
    training = compose_with_hydra("train", ["training=mine", *typed]).training
    assert (training.decay, training.batch.key) == (decay, "mine")
    assert "lr_decay" not in training
