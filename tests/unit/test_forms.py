"""Forms of files for other programs: their JSON schemas are those of the code."""

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
from pydantic import TypeAdapter

from agt.errors import ConfigError
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
    node = json.loads(
        resources.files(module.__package__).joinpath(file).read_text(encoding="utf-8")
    )
    assert node.pop("$id") == module.VERSION
    assert node.pop("$schema").startswith("https://json-schema.org/")
    assert bare(node) == bare(TypeAdapter(form).json_schema(mode="serialization"))


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (claims.read_claim, "claim"),
        (findings.read_audit, "audit"),
        (account.read_account, "account"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff", b"[]", b"null", b"1e400", b"[" * 100_000),
        *(b'{"schema": "agt.claim/1"}', b'{"schema": "agt.claim/2"}', b'{"schema": "agt.claim/3"}'),
        b'{"schema": "agt.audit/1"}',
        *(
            b'{"schema": "agt.erasure/1"}',
            b'{"schema": "agt.erasure/2"}',
            b'{"schema": "agt.erasure/3"}',
            b'{"schema": "agt.erasure/4"}',
        ),
    ],
)
def test_what_is_no_document_is_refused(
    read: Callable[[bytes], object], name: str, content: bytes
) -> None:
    with pytest.raises(ConfigError, match=name):
        read(content)
