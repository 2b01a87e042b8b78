"""Ed25519 keys and the ``signature.json`` of a bundle.

A private key is read only by :func:`load_private`, which hands out an object that can sign and nothing else: no repr,
log line or error message holds the key.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.bundle import _errors, _json
from edgesdk.errors import InputError, UsageError
from edgesdk.reading import open_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEMA = "edgesdk.signature/1"
MAX_KEY_FILE = 64 * 1024

# The points of Ed25519 whose order divides 8, in every encoding, without the sign bit: all y with y² in {0, 1} or
# 8·P = O. OpenSSL takes them as keys, and each "signs" arbitrary messages.
_ENDS = ("ec" + "ff" * 30 + "7f", "ed" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "7f")
_SMALL_ORDER = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        *_ENDS,
    )
)


@dataclass(frozen=True)
class PublicKey:
    """The 32 bytes of an Ed25519 public key."""

    raw: bytes

    @property
    def id(self) -> str:
        """SHA-256 of the 32 bytes, in hex."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def weak(self) -> bool:
        """Whether the point has small order: no honest key does."""
        return self.raw[:31] + bytes([self.raw[31] & 0x7F]) in _SMALL_ORDER

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether the signature holds; never for a weak key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if self.weak:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class PrivateKey:
    """A key that signs. It shows its id, never itself, and can't be pickled or copied into a log."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"PrivateKey(id={self.public.id[:16]})"

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not pickled")


def new_key(path: Path) -> tuple[Path, Path]:
    """Make a key pair: ``path`` (PKCS#8 PEM, mode 0600) and ``path.pub`` (SubjectPublicKeyInfo PEM).

    Raises:
        UsageError: one of the two exists (nothing is ever overwritten), or ``path`` has no name.
        InputError: the folder can't be written.
    """
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not path.name:
        raise UsageError(
            "key_is_a_folder", f"'{path}' is a folder, not the name of a key.", why="The key and KEY.pub are two files.",
            fix="Give the key a name: edgesdk keys new -o release.key",
        )  # fmt: skip
    public = path.with_name(path.name + ".pub")
    for taken in (path, public):
        if os.path.lexists(taken):
            raise _exists(taken)
    key = Ed25519PrivateKey.generate()
    _create(path, key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()), 0o600)
    try:
        _create(public, key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo), 0o644)
    except BaseException:
        path.unlink()  # made by us a moment ago; a private key without its public half is of no use
        raise
    return path, public


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), mode)
    except FileExistsError as exc:
        raise _exists(path) from exc
    except OSError as exc:
        raise _errors.unwritable(path, exc) from exc
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        path.unlink()
        raise _errors.unwritable(path, exc) from exc


def _exists(path: Path) -> UsageError:
    return UsageError(
        "key_exists", f"{path} exists and is not written over.", why="A lost signing key can't be made again.",
        fix="Choose another file: edgesdk keys new -o OTHER.key",
    )  # fmt: skip


def load_private(path: Path) -> PrivateKey:
    """Read the KEY that ``new_key`` wrote.

    Raises:
        InputError: missing, unreadable, encrypted, no Ed25519 private key (a public one included).
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    if b"-----BEGIN PUBLIC KEY-----" in data:
        private = path.with_name(path.name.removesuffix(".pub"))
        raise InputError(
            "bad_key", f"{path} is the public half of a key; signing needs the private half.",
            why="Anybody may have the public half, so it can't prove who signed.",
            fix=f"Give {private}" if private != path and private.exists() else "Give the file without .pub that 'edgesdk keys new' wrote beside it.",
        )  # fmt: skip
    if b"ENCRYPTED" in data:
        raise InputError(
            "bad_key", f"{path} is a private key under a password.", why="edgesdk asks for no passwords, so that it runs in CI.",
            fix=f"Write it without one: openssl pkey -in {path} -out plain.key && chmod 600 plain.key",
        )  # fmt: skip
    key: object = None
    with contextlib.suppress(*_unreadable()):
        key = load_pem_private_key(data, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private", "It is damaged, of another kind (RSA, SSH …), or no key at all.")
    return PrivateKey(key)


def load_public(path: Path) -> PublicKey:
    """Read the KEY.pub that ``new_key`` wrote.

    Raises:
        InputError: missing, unreadable, no Ed25519 public key (a private one included: it must not be passed around).
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    if b"PRIVATE KEY-----" in data:
        public = path.with_name(path.name + ".pub")
        raise InputError(
            "bad_key", f"{path} is the private half of a key; checking needs the public half.",
            why="The private half signs: whoever has it can pass for you, so keep it to yourself.",
            fix=f"Give {public}" if public.exists() else f"Give its .pub file; if that is lost: openssl pkey -in {path} -pubout -out {public}",
        )  # fmt: skip
    key: object = None
    with contextlib.suppress(*_unreadable()):
        key = load_pem_public_key(data)
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "public", "It is damaged, of another kind (RSA, SSH …), or no key at all.")
    return PublicKey(key.public_bytes_raw())


def _unreadable() -> tuple[type[Exception], ...]:
    """What cryptography raises for a file that is no key. The cause is dropped: its text may quote the key."""
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm


def _read(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(MAX_KEY_FILE)
    except OSError as exc:
        raise InputError(
            "bad_key", f"The key file {path} can't be read: {exc.strerror}.", why="It is missing, a folder, or belongs to another user.",
            fix="Check the path, or make a key: edgesdk keys new -o release.key",
        ) from exc  # fmt: skip


def _no_key(path: Path, kind: str, why: str) -> InputError:
    return InputError(
        "bad_key",
        f"{path} is no Ed25519 {kind} key in PEM form.",
        why=why,
        fix="Make a key: edgesdk keys new -o release.key",
    )


def sign(manifest: bytes, key: PrivateKey) -> bytes:
    """The bytes of ``signature.json``: always of one length, always the same for one key and manifest."""
    return _render(key.public, key.sign(manifest))


def _render(public: PublicKey, signature: bytes) -> bytes:
    return _json.encode(
        {
            "schema": SCHEMA,
            "algorithm": "ed25519",
            "key_id": public.id,
            "public_key": base64.b64encode(public.raw).decode(),
            "signature": base64.b64encode(signature).decode(),
        }
    )


SIGNATURE_SIZE = len(_render(PublicKey(bytes(32)), bytes(64)))


def read(data: bytes, manifest: bytes) -> PublicKey | None:
    """The key whose signature over ``manifest`` this ``signature.json`` holds; None when it doesn't hold.

    The document has one form only: whatever :func:`sign` would not have written is refused, so no byte of it is free.
    """
    try:
        document = _json.decode(data)
        public = PublicKey(base64.b64decode(document["public_key"], validate=True))
        signature = base64.b64decode(document["signature"], validate=True)
    except (ValueError, TypeError, KeyError):
        return None
    if len(public.raw) != 32 or len(signature) != 64 or data != _render(public, signature):
        return None
    return public if public.verifies(signature, manifest) else None
