"""The owner's signature under an account: Ed25519 (RFC 8032), by the ``cryptography`` package.

    signer = Signer.open(Path("owner.pem"))
    signature = signer.sign(account.content)        64 bytes, over exactly these
    check(account.content, signature, public)       raises Broken unless this key's holder signed exactly these bytes

    openssl genpkey -algorithm ed25519 -out owner.pem; chmod 600 owner.pem      makes a key (PKCS#8)
    openssl pkey -in owner.pem -pubout -out owner.pub                           and its public half
    openssl pkeyutl -verify -pubin -inkey owner.pub -rawin -in account.json -sigfile account.sig      checks without agt

What a signature shows: whoever holds the private key signed these bytes, some time. Whose key that is, only a public key
that came another way can tell; when, only somebody else who noted it.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.errors import ConfigError, DataMissing
from agt.manifest import Broken

SIGNATURE, PUBLIC = "account.sig", "account.pub"
EXTRA = "agt-certified[sign]"
BYTES = 64  # of a signature
LARGEST = 2**16  # bytes of a file that may be a key
MAKE = "openssl genpkey -algorithm ed25519 -out owner.pem makes one"


@dataclass(frozen=True)
class Signer:
    """A private key, in memory.

    Attributes:
        public: its public half, as PEM.
    """

    public: bytes
    _key: Any

    @classmethod
    def open(cls, path: Path, key: str = "key") -> "Signer":
        """Read a PEM file that only its owner may read.

        Args:
            key: the setting that names it, for messages.

        Raises:
            ConfigError: no such file, one that others may read, or no Ed25519 private key without a passphrase.
            DataMissing: ``cryptography`` is not installed.
        """
        content = _private(path, key)
        serialization, ed25519, unsupported = _library(f"{key}={path}")
        if b"PUBLIC KEY-----" in content and b"PRIVATE KEY-----" not in content:
            raise ConfigError(f"{key}={path}: this is a public key: give the private one; {MAKE}")
        if b"BEGIN OPENSSH PRIVATE KEY" in content:
            raise ConfigError(f"{key}={path}: this is a key of OpenSSH's own form, and one in PKCS#8 is needed: {MAKE}")
        try:
            loaded = serialization.load_pem_private_key(content, password=None)
        except TypeError:  # what the library raises where a passphrase is needed
            raise ConfigError(
                f"{key}={path}: is protected by a passphrase, and agt asks for none: openssl pkey -in {path.name} -out "
                "FILE writes it without, to a place that only you can read"
            ) from None
        except (ValueError, unsupported) as error:
            raise ConfigError(f"{key}={path}: holds no private key in PEM ({_short(error)}): {MAKE}") from None
        if not isinstance(loaded, ed25519.Ed25519PrivateKey):
            raise ConfigError(f"{key}={path}: holds a key of another kind ({_kind(loaded)}), and Ed25519 is needed: {MAKE}")
        return cls(_pem(loaded.public_key(), serialization), loaded)

    def sign(self, content: bytes) -> bytes:
        """64 bytes; the same key and content give the same ones."""
        signature: bytes = self._key.sign(content)
        return signature


def check(content: bytes, signature: bytes, public: bytes) -> None:
    """Raise Broken unless the holder of a public key signed exactly these bytes.

    Args:
        public: PEM.

    Raises:
        ConfigError: no Ed25519 public key.
        DataMissing: ``cryptography`` is not installed.
    """
    key = _read_public(public, "the public key")
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, content)
    except InvalidSignature:
        raise Broken(f"{SIGNATURE} is no signature of these bytes by this key") from None


def read_public(path: Path, key: str = "public") -> bytes:
    """A public key's file, in the form in which an account has it beside it.

    Raises:
        ConfigError: no such file, or no Ed25519 public key in PEM.
        DataMissing: ``cryptography`` is not installed.
    """
    try:
        content = _bytes(path)
    except OSError as error:
        raise ConfigError(f"{key}={path}: cannot be read ({error.strerror or error})") from None
    return same(content, f"{key}={path}")


def same(public: bytes, name: str = PUBLIC) -> bytes:
    """A public key as PEM in one form: two that are the same key are the same bytes. Raises as ``read_public``."""
    return _pem(_read_public(public, name), _library(name)[0])


def _read_public(content: bytes, name: str) -> Any:
    serialization, ed25519, unsupported = _library(name)
    if b"PRIVATE KEY-----" in content:
        raise ConfigError(
            f"{name}: this is a PRIVATE key, which nobody else may see: openssl pkey -in FILE -pubout writes the public one"
        )
    try:
        loaded = serialization.load_pem_public_key(content)
    except (ValueError, unsupported) as error:
        raise ConfigError(f"{name}: holds no public key in PEM ({_short(error)})") from None
    if not isinstance(loaded, ed25519.Ed25519PublicKey):
        raise ConfigError(f"{name}: holds a key of another kind ({_kind(loaded)}), and Ed25519 is needed")
    return loaded


def _private(path: Path, key: str) -> bytes:
    try:
        content, mode = _bytes(path), path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{key}={path}: cannot be read ({error.strerror or error})") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{key}={path}: others may read or change it (mode {stat.S_IMODE(mode):o}): chmod 600 {path}; if others could "
            "read it until now, make a new key"
        )
    return content


def _bytes(path: Path) -> bytes:
    """Of a plain file, no more than a key has. Raises OSError where it is something else."""
    if not path.is_file():
        raise OSError(0, "no such file" if not path.exists() else "no plain file")
    with path.open("rb") as file:
        return file.read(LARGEST)


def _library(name: str) -> tuple[Any, Any, type[Exception]]:
    """What is used of the package.

    Raises:
        DataMissing: it is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise DataMissing(f"{name}: signatures need the package cryptography: pip install '{EXTRA}'") from None
    return serialization, ed25519, UnsupportedAlgorithm


def _pem(public: Any, serialization: Any) -> bytes:
    content: bytes = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return content


def _kind(key: Any) -> str:
    """``RSA`` of an RSAPrivateKey."""
    return type(key).__name__.lstrip("_").removesuffix("PrivateKey").removesuffix("PublicKey")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:80] or type(error).__name__
