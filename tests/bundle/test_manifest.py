"""The manifest: one JSON form, its schema, tolerant of later fields, strict about everything else."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import pytest
from hypothesis import strategies as st
from pydantic import ValidationError

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.bundle import EdgeBundle, Manifest, _json, _names, write
from edgesdk.bundle.manifest import TensorPart, parse
from edgesdk.errors import InputError
from tests.bundle import hostile

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "edgesdk/schemas/edgesdk.bundle.1.schema.json"


def document() -> dict[str, Any]:
    return hostile.with_table(hostile.plain_manifest(), hostile.FILES)


def test_the_schema_file_is_the_models() -> None:
    made = runpy.run_path(str(ROOT / "tools/gen_schemas"))["bundle_schema"]()
    assert SCHEMA.read_text(encoding="utf-8") == made, "run tools/gen_schemas"


def test_manifests_fit_the_schema(tmp_path: Path) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    write(tmp_path / "a.edge", Manifest.from_json(hostile.plain_manifest()), hostile.FILES)
    with EdgeBundle.open(tmp_path / "a.edge") as bundle:
        jsonschema.validate(json.loads(bytes(bundle.file("manifest.json"))), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document(), "variants": []}, schema)


def test_json_round_trip_keeps_bytes_and_field_order() -> None:
    manifest = Manifest.from_json(document())
    data = manifest.to_bytes()
    assert parse(data, "x") == manifest
    assert parse(data, "x").to_bytes() == data
    assert list(json.loads(data)) == [
        "schema", "name", "version", "task", "signature", "preprocess", "postprocess", "labels", "license", "variants",
        "golden", "history", "tools", "source", "files", "created_by",
    ]  # fmt: skip


def test_a_tensor_is_the_json_of_tensor_spec() -> None:
    for spec in (
        TensorSpec("x", "float32", (Dim(1, 8, "n"), 3, 224, 224)),
        TensorSpec("ids", "int64", (1, Dim(1, 512))),
        TensorSpec("scalar", "bool", ()),
        TensorSpec("unknown", "float16", None),
    ):
        part = TensorPart.model_validate(spec.to_json())
        assert part.spec == spec
        assert part.model_dump() == {**spec.to_json(), "shape": part.shape}


def test_later_fields_are_ignored_everywhere() -> None:
    later = document()
    later["colour"] = {"deep": [1, 2, {"er": None}]}
    for part in (
        later["signature"],
        later["signature"]["inputs"][0],
        later["variants"][0],
        later["golden"][0],
        later["files"][0],
    ):
        part["later"] = True
    assert parse(hostile.encode(later), "x") == parse(hostile.encode(document()), "x")


@pytest.mark.parametrize(
    ("made_by", "fix"),
    [
        ("edgesdk 2.1.0", "'edgesdk>=2.1.0'"),
        ("edgesdk 2.1.0; rm -rf /", "pip install -U edgesdk,"),
        (None, "pip install -U edgesdk,"),
    ],
)
def test_another_major_version_says_what_to_upgrade_to(made_by: str | None, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(hostile.encode({"schema": "edgesdk.bundle/2", "created_by": made_by, "everything": "else"}), "new.edge")
    assert caught.value.code == "bundle_too_new"
    assert "edgesdk.bundle/2" in caught.value.message and fix in caught.value.fix


def test_a_manifest_is_frozen() -> None:
    manifest = Manifest.from_json(document())
    with pytest.raises(ValidationError):
        manifest.name = "other"  # type: ignore[misc]


def test_the_error_names_the_field() -> None:
    broken = document()
    broken["variants"][0]["runtime"] = 7
    with pytest.raises(InputError, match=r"variants\.0\.runtime"):
        parse(hostile.encode(broken), "x")


def test_pitfall_p_06_and_e_18_abis_labels_and_versions_are_in_the_manifest() -> None:
    rich = document()
    rich["variants"][0] |= {"abis": ["arm64-v8a", "x86_64"], "runtime_version": {"min": "1.4", "max": None}}
    rich |= {"labels": ["Katze", "Größe", "猫"], "tools": {"torch": "2.15.0"}}
    read = parse(Manifest.from_json(rich).to_bytes(), "x")
    assert read.variants[0].abis == ("arm64-v8a", "x86_64")
    assert read.variants[0].runtime_version.min == "1.4"
    assert read.labels == ("Katze", "Größe", "猫")
    assert read.tools == {"torch": "2.15.0"}


_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_DOCUMENTS = st.recursive(
    _SCALARS | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


@hypothesis.given(_DOCUMENTS)
@hypothesis.settings(deadline=None)
def test_json_reads_what_it_writes(document: Any) -> None:
    assert _json.decode(_json.encode(document)) == document


@hypothesis.given(st.binary(max_size=200))
@hypothesis.settings(deadline=None)
def test_json_takes_bytes_or_says_value_error(data: bytes) -> None:
    try:
        _json.decode(data)
    except ValueError as error:
        assert str(error)


@hypothesis.given(st.text(max_size=40))
@hypothesis.settings(deadline=None)
def test_a_safe_name_stays_inside_its_folder(name: str) -> None:
    if _names.unsafe(name) is None:
        assert name.isascii() and not name.startswith("/")
        assert (Path("/base") / name).resolve().is_relative_to("/base")
        assert Path(name).as_posix() == name
