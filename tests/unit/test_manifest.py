"""The manifest as a value: one text for one list, and no other text is read."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from agt.store.manifest import Manifest, read_digest, seal_manifest, unseal_manifest
from agt.store.reading import Broken

HASHES = st.binary(min_size=32, max_size=32).map(bytes.hex)
NAMES = st.from_regex(r"[a-zé][a-z0-9=._-]{0,8}(/[a-z0-9=]{1,8}){0,2}", fullmatch=True)
MANIFESTS = st.builds(
    Manifest, st.sampled_from(["train", "predict"]), st.dictionaries(NAMES, HASHES, max_size=5)
)


@given(MANIFESTS)
def test_the_same_list_gives_the_same_bytes_whatever_its_order(manifest: Manifest) -> None:
    backwards = Manifest(manifest.command, dict(reversed(list(manifest.files.items()))))
    assert backwards.content == manifest.content
    assert Manifest.read(manifest.content) == manifest
    assert Manifest.read(manifest.content).digest == manifest.digest


@given(MANIFESTS, st.data())
def test_no_single_bit_can_change_unnoticed(manifest: Manifest, data: st.DataObject) -> None:
    content = bytearray(manifest.content)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Broken, match=r"manifest\.json"):
        Manifest.read(bytes(content))


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "", ".", "manifest.json", "a/"]
)
def test_a_path_that_leads_out_of_the_folder_is_none(name: str) -> None:
    with pytest.raises(Broken, match=rf"manifest\.json.*{re.escape(repr(name))}"):
        Manifest.read(seal_manifest({"command": "train", "files": {name: 64 * "0"}}))


@pytest.mark.parametrize("digest", ["", 63 * "0", 64 * "G", 64 * "A", 5, None, [64 * "0"]])
def test_a_hash_is_64_digits(digest: object) -> None:
    with pytest.raises(Broken, match=r"manifest\.json.*\ba\b.*sha256"):
        Manifest.read(seal_manifest({"command": "train", "files": {"a": digest}}))


def test_a_newer_format_says_so_and_an_older_one_is_damage() -> None:
    value = json.loads(Manifest("train", {}).content)
    with pytest.raises(Broken, match=r"manifest\.json.*format 2"):
        Manifest.read(json.dumps(value | {"format": 2, "unheard": "of"}).encode())
    for number in (0, True, "2", None, 1.0):
        with pytest.raises(Broken, match="damaged"):
            Manifest.read(
                json.dumps(value | {"format": number}, indent=2, sort_keys=True).encode() + b"\n"
            )


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"1", b"{}", b"\xff", b"[" * 100_000, b'{"a": NaN}']
)
def test_what_is_no_json_object_is_damage(content: bytes) -> None:
    with pytest.raises(Broken, match=r"^x "):
        unseal_manifest(content, "x")


def test_a_digest_as_users_write_it() -> None:
    number = 32 * "a1"
    assert {
        read_digest(text) for text in (number, f"sha256:{number}", f" SHA256:{number.upper()}\n")
    } == {f"sha256:{number}"}
    for text in ("", "sha256:", number[1:], f"md5:{number}", f"{number}0"):
        with pytest.raises(ValueError, match="64 hexadecimal"):
            read_digest(text)
