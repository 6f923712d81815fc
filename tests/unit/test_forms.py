"""Forms of files for other programs: their JSON schemas are those of the code."""

import json
from importlib import resources
from typing import Any

import pytest
from pydantic import TypeAdapter

from agt.mechanisms import claims
from agt_cli.report import findings
from agt_cli.unlearn import account


def bare(node: Any) -> Any:
    """A schema without descriptions, which are docstrings, and titles."""
    if isinstance(node, dict):
        return {
            key: bare(value)
            for key, value in node.items()
            if key not in ("description", "title") or isinstance(value, dict)
        }
    return [bare(value) for value in node] if isinstance(node, list) else node


@pytest.mark.parametrize(
    ("module", "file", "form"),
    [
        (claims, "claim.schema.json", claims.Claim),
        (findings, "audit.schema.json", findings.Audit),
        (account, "erasure.schema.json", account.ErasureReport),
    ],
)
def test_the_schema_file_is_the_form(module: Any, file: str, form: type) -> None:
    node = json.loads(resources.files(module.__package__).joinpath(file).read_text(encoding="utf-8"))
    assert node.pop("$id") == module.VERSION
    assert node.pop("$schema").startswith("https://json-schema.org/")
    assert bare(node) == bare(TypeAdapter(form).json_schema(mode="serialization"))
