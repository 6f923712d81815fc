"""Files with a checksum of themselves: whatever is changed in them is found out."""

import json
from pathlib import Path

import pytest

from agt.store.manifest import Manifest
from agt.store.sealed import seal, unseal

CONTENT = {
    "b": [1, 2.5, float("inf")],
    "a": {"text": "ä", "path": "p"},
    "none": None,
    "held": False,
}


def test_what_was_sealed_comes_back_in_its_order() -> None:
    content = unseal(seal({**CONTENT, "where": Path("x/y")}))
    assert content == {**CONTENT, "where": "x/y"}
    assert list(content) == [*CONTENT, "where"]


def test_no_byte_can_change() -> None:
    whole = seal(CONTENT)
    for place in range(len(whole)):
        for flipped in (whole[place] ^ 1, whole[place] ^ 32):
            damaged = whole[:place] + bytes([flipped]) + whole[place + 1 :]
            with pytest.raises(ValueError, match=r"."):
                unseal(damaged)
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            unseal(whole[:cut])


def test_an_edited_file_is_no_sealed_one() -> None:
    edited = {**json.loads(seal(CONTENT)), "held": True}
    with pytest.raises(ValueError, match="checksum"):
        unseal(json.dumps(edited, indent=2).encode())
    for other in (b"[]", b"{}", b"1"):
        with pytest.raises(ValueError, match="checksum"):
            unseal(other)


def test_both_forms_are_written_as_the_files_on_users_disks_are() -> None:
    """Folders, kept results and runs of earlier versions are read to the last byte: these are
    such bytes.
    """
    assert seal({"b": [1], "a": None}) == (
        b'{\n  "b": [\n    1\n  ],\n  "a": null,\n'
        b'  "sha256": "f3038a76ca0b5efd621420d6dcedf5128e0d944cf8b3e2c7490545e3dfd53346"\n}\n'
    )
    manifest = Manifest("train", {"b/c": 64 * "0", "a": 64 * "1"})
    assert (
        manifest.digest == "sha256:f621640adf734859d30efe1979eef89a30fa27744d76f54092bf497db59f1d4a"
    )
