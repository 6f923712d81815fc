"""What every kind of audit owes (agt_audit/job.py), for each entry of conf/groups/audit.yaml.

A new kind inherits this suite.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

import agt_audit
from agt.errors import ConfigError
from agt.settings import build
from agt.targets import trusting
from agt_audit.job import AuditInputs, AuditKind
from agt_cli import config_files

KINDS = config_files.options_of_group("audit")
WITHOUT_RUN = {"mechanism", "selftest", "weights"}  # which say what else they need
ASKING = ("command", "job", "page")  # what gives a kind its inputs and shows what it found


def settings(name: str) -> dict[str, Any]:
    node: dict[str, Any] = yaml.safe_load(KINDS[name])
    return node


def kind(name: str) -> AuditKind:
    node = settings(name)
    with trusting([node["_target_"]]):
        made = build(node, "audit")
    assert isinstance(made, AuditKind)
    return made


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_registered_by_its_name_with_every_setting_at_its_default(name: str) -> None:
    made = kind(name)
    assert made.name == name
    assert set(asdict(made)) == set(settings(name)) - {"_target_"}
    assert made == type(made)()


@pytest.mark.parametrize("name", KINDS)
def test_help_says_what_a_kind_and_each_of_its_settings_is(name: str) -> None:
    assert config_files.first_sentence(KINDS[name])
    lines = KINDS[name].splitlines()
    for setting in set(settings(name)) - {"_target_"}:
        at = next(index for index, line in enumerate(lines) if line.startswith(f"{setting}:"))
        assert " # " in lines[at] or lines[at - 1].startswith("# "), setting


@pytest.mark.parametrize("name", sorted(KINDS.keys() - WITHOUT_RUN))
def test_a_kind_that_needs_a_run_says_so_before_anything_is_read(name: str) -> None:
    given = AuditInputs({"output_dir": "outputs"}, None, None, 0.95, 0, Path("outputs"))
    with pytest.raises(ConfigError, match=r"^run: "):
        kind(name).check(given)


@pytest.mark.parametrize("name", KINDS)
def test_the_question_of_a_kind_is_a_clause(name: str) -> None:
    question = kind(name).question
    assert question[0].islower()
    assert not question.endswith(".")


@pytest.mark.parametrize("name", ASKING)
def test_what_gives_and_shows_knows_no_kind(name: str) -> None:
    text = Path(str(agt_audit.__file__)).with_name(f"{name}.py").read_text(encoding="utf-8")
    files = {settings(kind)["_target_"].rpartition(".")[0] for kind in KINDS}
    assert not [file for file in files if f"from {file} import" in text]
    # which is a group, too
    assert not [kind for kind in KINDS.keys() - {"mechanism"} if f'"{kind}"' in text]
