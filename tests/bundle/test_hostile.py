"""Every evil bundle is refused with its code, by open() and by load(), and nothing is written anywhere."""

from __future__ import annotations

import json
import random
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

import edgesdk
from edgesdk.bundle import EdgeBundle, Manifest, write
from edgesdk.errors import EdgeError, InputError, IntegrityError
from tests.bundle import hostile

EVIL = hostile.evil_bundles()


@pytest.mark.parametrize("evil", EVIL, ids=[e.name for e in EVIL])
def test_an_evil_bundle_is_refused(evil: hostile.Evil, tmp_path: Path) -> None:
    path = tmp_path / "evil.edge"
    path.write_bytes(evil.data)
    with pytest.raises((InputError, IntegrityError)) as caught:
        EdgeBundle.open(path)
    assert caught.value.code == evil.codes[0], caught.value
    assert caught.value.exit == (6 if caught.value.code in ("hash_mismatch", "signature_invalid") else 3)
    assert all((caught.value.message, caught.value.why, caught.value.fix))
    with pytest.raises(EdgeError):
        edgesdk.load(path)
    assert list(tmp_path.iterdir()) == [path]


def test_layout_check_refuses_all_but_changed_payloads(tmp_path: Path) -> None:
    """``check="layout"`` reads no payload, so only what lies in a payload may pass it, and no session is made of it."""
    passed = []
    for evil in EVIL:
        path = tmp_path / "evil.edge"
        path.write_bytes(evil.data)
        try:
            with EdgeBundle.open(path, check="layout") as bundle:
                passed.append(evil.name)
                with pytest.raises(EdgeError) as caught:
                    bundle.session()
                assert caught.value.code == evil.codes[0]
        except EdgeError:
            continue
    assert passed == [e.name for e in EVIL if e.name.startswith(("payload_", "onnx_"))]


def test_pitfall_s_03_members_that_climb_out_reject_the_archive(tmp_path: Path) -> None:
    names = {e.name for e in EVIL}
    assert {"name_parent", "name_absolute", "name_drive", "symlink", "twice", "json_deep", "variant_outside"} <= names
    path = tmp_path / "inner" / "evil.edge"
    path.parent.mkdir()
    for evil in EVIL:
        path.write_bytes(evil.data)
        with pytest.raises(EdgeError):
            EdgeBundle.open(path)
    assert {p.name for p in tmp_path.rglob("*")} == {"inner", "evil.edge"}


@pytest.mark.parametrize("signed", [False, True])
def test_the_specification_alone_gives_the_writers_bytes(signed: bool, tmp_path: Path) -> None:
    """The ZIP writer of the hostile set knows only the specification; it and bundle.write agree on every byte."""
    path, key = tmp_path / "a.edge", tmp_path / "k"
    if signed:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = Ed25519PrivateKey.from_private_bytes(hostile.SEED)
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write(path, Manifest.from_json(hostile.plain_manifest()), hostile.FILES, sign=key if signed else None)
    with EdgeBundle.open(path) as bundle:
        manifest = bytes(bundle.file("manifest.json"))
    signature = hostile.sign(manifest) if signed else None
    assert path.read_bytes() == hostile.zip_of(hostile.items_of(manifest, hostile.FILES, signature))


@pytest.mark.parametrize("signed", [False, True])
def test_any_single_changed_byte_is_found(signed: bool, tmp_path: Path) -> None:
    """Every byte outside the model's inside, and a sample within it: one bit flipped is never ok."""
    whole = hostile.good(signed=signed)
    start = whole.index(hostile.MODEL)
    inside = range(start + 8, start + len(hostile.MODEL) - 8)
    padding = range(whole.rindex(b"model.pte", 0, start) + 32, start - 8)
    skip = set(inside) | set(padding)
    chance = random.Random(7)
    places = [i for i in range(len(whole)) if i not in skip] + chance.sample(inside, 100) + chance.sample(padding, 200)
    path, taken = tmp_path / "flipped.edge", []
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            EdgeBundle.open(path).close()
        except (InputError, IntegrityError):
            continue
        taken.append(place)
    assert not taken, f"of {len(places)} flips {len(taken)} were taken, first at {taken[:5]}"


@hypothesis.given(st.data())
@hypothesis.settings(
    max_examples=300, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_a_reader_survives_any_edit(tmp_path: Path, data: st.DataObject) -> None:
    """Cut, insert, overwrite anywhere: an EdgeError or the very same bytes; never another exception."""
    whole = hostile.good(signed=data.draw(st.booleans()))
    at = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 64))
    new = data.draw(st.binary(max_size=64))
    edited = whole[:at] + new + whole[at + length :]
    path = tmp_path / "edited.edge"
    path.write_bytes(edited)
    try:
        EdgeBundle.open(path).close()
    except (InputError, IntegrityError) as error:
        assert error.message and error.why and error.fix
        assert edited != whole
    else:
        assert edited == whole


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = sorted(hostile.with_table(hostile.plain_manifest(), hostile.FILES))


@hypothesis.given(field=st.sampled_from(_FIELDS), value=_VALUES)
@hypothesis.settings(
    max_examples=300, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_a_reader_survives_any_value_in_any_field(tmp_path: Path, field: str, value: object) -> None:
    manifest = {**hostile.with_table(hostile.plain_manifest(), hostile.FILES), field: value}
    path = tmp_path / "value.edge"
    path.write_bytes(hostile.zip_of(hostile.items_of(json.dumps(manifest).encode(), hostile.FILES)))
    try:
        EdgeBundle.open(path).close()
    except (InputError, IntegrityError) as error:
        assert len(str(error)) < 1000


def test_the_dump_for_java_and_swift_is_complete(tmp_path: Path) -> None:
    hostile.dump(tmp_path)
    listed = json.loads((tmp_path / "expected.json").read_text())
    assert {one["file"] for one in listed} == {p.name for p in tmp_path.glob("*.edge")}
    assert len(listed) > 100
    for one in (entry for entry in listed if not entry["codes"]):
        EdgeBundle.open(tmp_path / one["file"]).close()
