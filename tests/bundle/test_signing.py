"""Keys stay secret, are never written over, and every way of handing in the wrong file has its sentence."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgesdk.bundle import EdgeBundle, Manifest, signing, write
from edgesdk.errors import EdgeError, InputError, IntegrityError, UsageError
from tests.bundle import hostile


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return signing.new_key(tmp_path / "release.key")


def bundle_at(path: Path, sign: Path | None) -> Path:
    write(path, Manifest.from_json(hostile.plain_manifest()), hostile.FILES, sign=sign)
    return path


def test_a_new_key_is_private_and_standard(keys: tuple[Path, Path]) -> None:
    private, public = keys
    assert private.stat().st_mode & 0o777 == 0o600
    assert public.name == "release.key.pub"
    assert private.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert public.read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----")
    loaded = s.load_pem_private_key(private.read_bytes(), None)
    assert isinstance(loaded, Ed25519PrivateKey)
    assert loaded.public_key().public_bytes_raw() == signing.load_public(public).raw


def test_mode_is_0600_whatever_the_umask(tmp_path: Path) -> None:
    code = "import os,sys; os.umask(0); from pathlib import Path; from edgesdk.bundle.signing import new_key; new_key(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "k")], check=True)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("taken", ["release.key", "release.key.pub"])
@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_no_existing_file_is_written_over(taken: str, kind: str, tmp_path: Path) -> None:
    place = tmp_path / taken
    if kind == "file":
        place.write_text("old")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "elsewhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=r"release\.key.*exists") as caught:
        signing.new_key(tmp_path / "release.key")
    assert caught.value.code == "key_exists"
    assert sorted(tmp_path.iterdir()) == before
    assert kind != "file" or place.read_text() == "old"


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written"):
        signing.new_key(tmp_path / "no" / "release.key")


def _pem(key: object, encryption: s.KeySerializationEncryption) -> bytes:
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, encryption)  # type: ignore[attr-defined,no-any-return]


def test_files_that_are_no_private_key(keys: tuple[Path, Path], tmp_path: Path) -> None:
    ed = Ed25519PrivateKey.generate()
    encrypted = _pem(ed, s.BestAvailableEncryption(b"secret"))
    ssh = ed.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    cases = {
        b"hello\n": "no Ed25519 private key",
        b"": "no Ed25519 private key",
        keys[0].read_bytes()[:80]: "no Ed25519 private key",
        keys[1].read_bytes(): "the file without .pub",
        _pem(generate_private_key(SECP256R1()), s.NoEncryption()): "no Ed25519 private key",
        encrypted: "password",
        ssh: "SSH",
    }
    for index, (data, words) in enumerate(cases.items()):
        path = tmp_path / f"{index}.key"
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            signing.load_private(path)
        assert caught.value.code == "bad_key"
        assert words in str(caught.value) and path.name in caught.value.message
    for path in (tmp_path / "gone.key", tmp_path):
        with pytest.raises(InputError, match="can't be read"):
            signing.load_private(path)


def test_files_that_are_no_public_key(keys: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "no.pub").write_text("hello")
    for path, words in (
        (tmp_path / "no.pub", "no Ed25519 public key"),
        (keys[0], "keep it to yourself"),
        (tmp_path / "gone.pub", "can't be read"),
    ):
        with pytest.raises(InputError) as caught:
            signing.load_public(path)
        assert words in str(caught.value) and path.name in caught.value.message


def test_the_key_shows_itself_nowhere(keys: tuple[Path, Path]) -> None:
    key = signing.load_private(keys[0])
    loaded = s.load_pem_private_key(keys[0].read_bytes(), None)
    assert isinstance(loaded, Ed25519PrivateKey)
    seed = loaded.private_bytes_raw()
    for text in (repr(key), str(key), repr(vars(signing)), f"{key!r}"):
        assert seed.hex() not in text and repr(seed)[2:-1] not in text
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(key)  # type: ignore[operator]


def test_a_damaged_key_is_not_quoted(keys: tuple[Path, Path], tmp_path: Path) -> None:
    lines = keys[0].read_text().splitlines()
    damaged = tmp_path / "damaged.key"
    damaged.write_text("\n".join([lines[0], "!" + lines[1], lines[2]]))
    with pytest.raises(InputError) as caught:
        signing.load_private(damaged)
    error: BaseException | None = caught.value
    while error is not None:  # nor by an exception behind it
        assert lines[1][20:40] not in str(error)
        error = error.__cause__ or error.__context__


def test_a_signed_bundle_is_valid_and_reproducible(keys: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = bundle_at(tmp_path / "1.edge", keys[0]), bundle_at(tmp_path / "2.edge", keys[0])
    assert one.read_bytes() == two.read_bytes()
    for key in (None, keys[1]):
        with EdgeBundle.open(one, key=key) as bundle:
            assert bundle.signature == "valid"
            assert bundle.signer == signing.load_public(keys[1]).id


def test_openssl_agrees_with_the_signature(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """Another implementation: what we call a signature over the manifest's bytes is one."""
    import base64
    import json

    with EdgeBundle.open(bundle_at(tmp_path / "1.edge", keys[0])) as bundle:
        (tmp_path / "manifest").write_bytes(bundle.file("manifest.json"))
        document = json.loads(bytes(bundle.file("signature.json")))
    (tmp_path / "signature").write_bytes(base64.b64decode(document["signature"]))
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-pubin",
        "-inkey",
        keys[1],
        "-rawin",
        "-in",
        "manifest",
        "-sigfile",
        "signature",
    ]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0


def test_a_pinned_key_fails_closed(keys: tuple[Path, Path], tmp_path: Path) -> None:
    _, other = signing.new_key(tmp_path / "other.key")
    signed, plain = bundle_at(tmp_path / "signed.edge", keys[0]), bundle_at(tmp_path / "plain.edge", None)
    for path, words in ((signed, "another key"), (plain, "not signed")):
        with pytest.raises(IntegrityError, match=words) as caught:
            EdgeBundle.open(path, key=other)
        assert (caught.value.code, caught.value.details["signature"]) == ("signature_untrusted", "untrusted")
    with EdgeBundle.open(plain) as bundle:
        assert (bundle.signature, bundle.signer) == ("absent", None)


def test_a_signature_can_not_be_taken_off_under_a_pinned_key(keys: tuple[Path, Path], tmp_path: Path) -> None:
    with EdgeBundle.open(bundle_at(tmp_path / "s.edge", keys[0])) as bundle:
        manifest = bytes(bundle.file("manifest.json"))
    stripped = tmp_path / "stripped.edge"
    stripped.write_bytes(hostile.zip_of(hostile.items_of(manifest, hostile.FILES)))
    EdgeBundle.open(stripped).close()  # whole in itself …
    with pytest.raises(IntegrityError):  # … but not to somebody who expects a signature
        EdgeBundle.open(stripped, key=keys[1])


@pytest.mark.parametrize("sign_bit", [0, 0x80])
def test_keys_of_small_order_sign_nothing(sign_bit: int) -> None:
    """With y = 1 the neutral element "signs" every message: OpenSSL takes it, we don't."""
    neutral = bytes([1]) + bytes(30) + bytes([sign_bit])
    assert signing.PublicKey(neutral).weak
    assert not signing.PublicKey(neutral).verifies(bytes([1]) + bytes(63), b"anything")
    assert not any(
        signing.PublicKey(Ed25519PrivateKey.generate().public_key().public_bytes_raw()).weak for _ in range(20)
    )


def test_a_bad_key_writes_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "no.key").write_text("hello")
    for name in ("no.key", "gone.key"):
        with pytest.raises(EdgeError, match=name):
            bundle_at(tmp_path / "a.edge", tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["no.key"]


def test_the_wrong_half_of_a_key_is_called_that_and_the_right_file_is_named(keys: tuple[Path, Path]) -> None:
    private, public = keys
    with pytest.raises(InputError, match="private half") as caught:
        signing.load_public(private)
    assert caught.value.fix == f"Give {public}"
    with pytest.raises(InputError, match="public half") as caught:
        signing.load_private(public)
    assert caught.value.fix == f"Give {private}"
    public.rename(public.with_name("lost"))
    with pytest.raises(InputError, match="private half") as caught:
        signing.load_public(private)
    assert f"openssl pkey -in {private} -pubout" in caught.value.fix
