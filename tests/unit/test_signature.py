"""An owner's signature under an account: what is signed, what is refused, and what is said of other keys."""

import builtins
import os
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from agt.errors import ConfigError, DataMissing
from agt.store import Broken
from agt.unlearning.account import BYTES, Signer, check, read_public, same

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason="needs cryptography")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402

RSA = rsa.generate_private_key(65537, 1024)
CONTENT = b'{"schema": "agt.erasure/1"}\n'


def pem(key: Any, password: bytes | None = None, form: str = "PKCS8") -> bytes:
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    content = key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), hidden)
    assert isinstance(content, bytes)
    return content


def public(key: Any) -> bytes:
    content = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert isinstance(content, bytes)
    return content


def put(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.fixture
def owner(tmp_path: Path) -> Path:
    return put(tmp_path / "owner.pem", pem(ed25519.Ed25519PrivateKey.generate()))


def test_every_flipped_bit_is_refused(owner: Path) -> None:
    signer = Signer.open(owner)
    signature = signer.sign(CONTENT)
    assert (len(signature), signer.sign(CONTENT)) == (BYTES, signature)
    check(CONTENT, signature, signer.public)
    for content, place in [(CONTENT, place) for place in range(len(CONTENT))] + [(signature, p) for p in range(BYTES)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(Broken, match="no signature of these bytes"):
            check(*((bytes(flipped), signature) if content is CONTENT else (CONTENT, bytes(flipped))), signer.public)
    for wrong in (b"", signature[:-1], signature + b"\0", bytes(BYTES)):
        with pytest.raises(Broken):
            check(CONTENT, wrong, signer.public)
    with pytest.raises(Broken):
        check(CONTENT, signature, public(ed25519.Ed25519PrivateKey.generate()))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pem(RSA), r"another kind \(RSA\)"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "Ed25519 is needed"),
        (pem(ed25519.Ed25519PrivateKey.generate(), b"secret"), "protected by a passphrase"),
        (pem(ed25519.Ed25519PrivateKey.generate(), form="OpenSSH"), "PKCS#8"),
        (public(ed25519.Ed25519PrivateKey.generate()), "holds no private key"),
        (b"", "holds no private key"),
        (b"-----BEGIN PRIVATE KEY-----\nnothing\n-----END PRIVATE KEY-----\n", "holds no private key"),
        (os.urandom(4000), "holds no private key"),
    ],
)
def test_other_keys_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        Signer.open(put(tmp_path / "key.pem", content))
    assert str(raised.value).startswith(f"key={tmp_path / 'key.pem'}: ")


def test_a_key_that_others_may_read_is_refused(owner: Path, tmp_path: Path) -> None:
    for mode in (0o640, 0o604, 0o622):
        owner.chmod(mode)
        with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
            Signer.open(owner)
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="cannot be read"):
            Signer.open(path)


def test_a_public_key_is_one_in_every_form(owner: Path, tmp_path: Path) -> None:
    signer = Signer.open(owner)
    spaced = put(tmp_path / "owner.pub", signer.public.replace(b"\n", b"\r\n") + b"\n", 0o644)
    assert read_public(spaced) == same(signer.public) == signer.public
    with pytest.raises(ConfigError, match="this is a PRIVATE key"):
        read_public(owner)
    with pytest.raises(ConfigError, match=r"another kind \(RSA\)"):
        same(public(RSA))
    with pytest.raises(ConfigError, match=r"public=.*cannot be read"):
        read_public(tmp_path / "nowhere")


def test_without_the_package_the_extra_is_named(owner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataMissing, match=r"pip install 'cryptography>=43'"):
        Signer.open(owner)
    with pytest.raises(DataMissing, match=r"pip install 'cryptography>=43'"):
        check(CONTENT, bytes(BYTES), b"")


@pytest.mark.skipif(which("openssl") is None, reason="no openssl here")
def test_openssl_makes_the_key_and_checks_the_signature(tmp_path: Path) -> None:
    def openssl(*words: str) -> int:
        return subprocess.run(["openssl", *words], cwd=tmp_path, capture_output=True).returncode

    if openssl("genpkey", "-algorithm", "ed25519", "-out", "owner.pem"):
        pytest.skip("this openssl makes no Ed25519 keys")
    (tmp_path / "owner.pem").chmod(0o600)
    assert openssl("pkey", "-in", "owner.pem", "-pubout", "-out", "owner.pub") == 0
    signer = Signer.open(tmp_path / "owner.pem")
    assert read_public(tmp_path / "owner.pub") == signer.public
    put(tmp_path / "account.json", CONTENT)
    put(tmp_path / "account.sig", signer.sign(CONTENT))
    checking = (
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        "owner.pub",
        "-rawin",
        "-in",
        "account.json",
        "-sigfile",
        "account.sig",
    )
    assert openssl(*checking) == 0
    put(tmp_path / "account.json", CONTENT.upper())
    assert openssl(*checking) != 0
