"""``.pt2``: read when torch here can, refused with both versions when not, and never allowed to run code."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from edgesdk.artifacts import HistoryStep, Model, Signature, Source, TensorSpec
from edgesdk.errors import InputError, UnsupportedError
from edgesdk.importing import ImportOptions, _pt2_guard, import_model, locate


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.head(self.conv(image).mean((2, 3)))}


def program() -> ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(
        Net().eval(), (torch.zeros(2, 1, 8, 8),), dynamic_shapes={"image": {0: Dim("n", min=1, max=8)}}
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(program(), path)
    return path


def load(path: Path) -> Model:
    return import_model(locate(str(path), ImportOptions()))


Edit = Callable[[dict[str, Any]], Any]


def rewritten(
    source: Path, target: Path, edits: dict[str, Callable[[bytes], bytes]], more: dict[str, bytes] | None = None
) -> Path:
    """The archive with some members changed, and more of them, everything else as it was."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        root = old.namelist()[0].split("/")[0]
        for info in old.infolist():
            name = info.filename.removeprefix(f"{root}/")
            data = old.read(info)
            new.writestr(info.filename, edits[name](data) if name in edits else data)
        for name, data in (more or {}).items():
            new.writestr(f"{root}/{name}", data)
    return target


def with_document(source: Path, target: Path, edit: Edit) -> Path:
    def change(data: bytes) -> bytes:
        document = json.loads(data)
        edit(document)
        return json.dumps(document).encode()

    return rewritten(source, target, {"models/model.json": change})


def test_a_program_keeps_names_ranges_and_results(saved: Path) -> None:
    model = load(saved)
    assert model.source.name == "net" and model.source.format == "exported_program"
    assert [spec.name for spec in model.signature.inputs] == ["image"]
    assert str(model.signature.inputs[0]) == "image=float32[1..8,1,8,8]"
    assert model.program is not None
    image = torch.randn(5, 1, 8, 8)
    expected = program().module()(image)["scores"]
    torch.testing.assert_close(torch.utils._pytree.tree_leaves(model.program.module()(image))[0], expected)


def test_the_suffix_does_not_matter(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(saved.read_bytes())
    assert load(tmp_path / "net.bin").program is not None


def test_a_program_of_torch_2_7_and_before_is_read(tmp_path: Path) -> None:
    """Their layout: members at the outermost level, weights in a file of torch.save."""
    from torch._export.serde.serialize import serialize

    parts = serialize(program())
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("version", "8.20")
        archive.writestr("serialized_exported_program.json", parts.exported_program)
        archive.writestr("serialized_state_dict.pt", parts.state_dict)
        archive.writestr("serialized_constants.pt", parts.constants)
        archive.writestr("serialized_example_inputs.pt", parts.example_inputs)
    model = load(tmp_path / "old.pt2")
    assert str(model.signature.inputs[0]) == "image=float32[1..8,1,8,8]"


# --- versions ---------------------------------------------------------------------------------------------------------


def test_pitfall_i_08_a_program_of_a_newer_torch_names_both_versions(saved: Path, tmp_path: Path) -> None:
    path = with_document(
        saved, tmp_path / "new.pt2",
        lambda d: d.update(schema_version={"major": 99, "minor": 1}, torch_version="9.1.0+cpu"),
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        load(path)
    here = torch.__version__.partition("+")[0]
    assert caught.value.code == "pt2_version"
    assert "torch 9.1.0" in caught.value.message and "99.1" in caught.value.message and here in caught.value.message
    assert f"Export again with torch {here}" in caught.value.fix


def test_pitfall_i_08_a_program_of_an_older_torch_names_both_versions(saved: Path, tmp_path: Path) -> None:
    path = with_document(
        saved, tmp_path / "old.pt2", lambda d: d.update(schema_version={"major": 5, "minor": 3}, torch_version="2.4.1")
    )
    with pytest.raises(InputError, match=r"torch 2\.4\.1 with schema 5\.3") as caught:
        load(path)
    assert caught.value.exit == 3


def test_pitfall_i_08_another_archive_version_is_told(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "v.pt2", {"archive_version": lambda _: b"7"})
    with pytest.raises(InputError, match="archive version 7"):
        load(path)


def test_a_graph_that_does_not_say_its_version_is_damaged(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="doesn't say the version"):
        load(with_document(saved, tmp_path / "x.pt2", lambda d: d.pop("schema_version")))


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_a_weight_is_found(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    with zipfile.ZipFile(saved) as archive:
        info = next(i for i in archive.infolist() if i.filename.endswith("weights/weight_0"))
    start = (
        info.header_offset + 30 + sum(int.from_bytes(data[info.header_offset + o :][:2], "little") for o in (26, 28))
    )
    data[start + 2] ^= 1
    (tmp_path / "flip.pt2").write_bytes(data)
    with pytest.raises(InputError, match="checksum"):
        load(tmp_path / "flip.pt2")


@pytest.mark.parametrize(
    "member",
    ["models/model.json", "data/weights/model_weights_config.json", "data/weights/weight_0", "archive_version"],
)
def test_a_missing_or_empty_member_is_a_clear_error(saved: Path, tmp_path: Path, member: str) -> None:
    with pytest.raises(InputError):
        load(rewritten(saved, tmp_path / "x.pt2", {member: lambda _: b""}))


def test_garbled_graphs_never_crash(saved: Path, tmp_path: Path) -> None:
    """Half of the graph's JSON replaced by other JSON of the same kind."""

    def garble(seed: int) -> Edit:
        def edit(document: dict[str, Any]) -> None:
            graph = document["graph_module"]["graph"]
            choices: list[Callable[[], Any]] = [
                lambda: graph["nodes"].pop(),
                lambda: graph["inputs"].pop(),
                lambda: graph["tensor_values"].clear(),
                lambda: graph["nodes"][0].update(target="torch.ops.aten.no_such_operator.default"),
                lambda: graph["nodes"][0].update(inputs=[]),
                lambda: document["graph_module"].pop("signature"),
                lambda: document.update(graph_module=None),
                lambda: document["graph_module"]["module_call_graph"].clear(),
                lambda: graph.update(outputs=[{"as_tensor": {"name": "nowhere"}}]),
            ]
            choices[seed]()

        return edit

    for seed in range(9):
        path = with_document(saved, tmp_path / f"{seed}.pt2", garble(seed))
        with pytest.raises((InputError, UnsupportedError)):
            load(path)


# --- safety -----------------------------------------------------------------------------------------------------------


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


def evil_archive(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save((Evil(marker),), buffer)
    return buffer.getvalue()


def test_pitfall_s_01_example_inputs_are_not_unpickled(saved: Path, tmp_path: Path) -> None:
    """torch.export.load falls back to weights_only=False for them."""
    marker = tmp_path / "ran"
    path = rewritten(saved, tmp_path / "e.pt2", {"data/sample_inputs/model.pt": lambda _: evil_archive(marker)})
    with pytest.raises(InputError, match="unpickled"):
        load(path)
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_pitfall_s_01_pickled_weights_and_constants_run_nothing(saved: Path, tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "ran"
    word = kind.removesuffix("s")
    name = "tensor_0" if kind == "constants" else "weight_0"

    def edit(data: bytes) -> bytes:
        config = json.loads(data)
        config["config"]["conv.weight"] = {"path_name": name, "is_param": True, "use_pickle": True, "tensor_meta": None}
        return json.dumps(config).encode()

    edits = {f"data/{kind}/model_{kind}_config.json": edit}
    member = f"data/{kind}/{name}"
    if word == "weight":
        path = rewritten(saved, tmp_path / "e.pt2", {**edits, member: lambda _: evil_archive(marker)})
    else:
        path = rewritten(saved, tmp_path / "e.pt2", edits, {member: evil_archive(marker)})
    with pytest.raises(InputError):
        load(path)
    assert not marker.exists()


@pytest.mark.parametrize("prefix", ["custom_obj_0", "opaque_obj_0"])
def test_pitfall_s_01_custom_objects_are_refused(saved: Path, tmp_path: Path, prefix: str) -> None:
    marker = tmp_path / "ran"

    def edit(data: bytes) -> bytes:
        return json.dumps(
            {"config": {"x": {"path_name": prefix, "is_param": False, "use_pickle": True, "tensor_meta": None}}}
        ).encode()

    path = rewritten(
        saved, tmp_path / "e.pt2", {"data/constants/model_constants_config.json": edit},
        {f"data/constants/{prefix}": pickle.dumps(Evil(marker))},
    )  # fmt: skip
    with pytest.raises(InputError, match="unpickled"):
        load(path)
    assert not marker.exists()


def _size_expression(text: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        values = document["graph_module"]["graph"]["tensor_values"]
        values["image"]["sizes"][0] = {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}

    return edit


def _node(key: str, value: Any) -> Edit:
    return lambda document: document["graph_module"]["graph"]["nodes"][0].update({key: value})


def _rename_everywhere(old: str, new: str) -> Edit:
    def edit(document: dict[str, Any]) -> None:
        text = json.dumps(document).replace(json.dumps(old), json.dumps(new))
        document.clear()
        document.update(json.loads(text))

    return edit


@pytest.mark.parametrize(
    "attack",
    [
        lambda run: _size_expression(run),
        lambda run: _size_expression(f"Symbol('s0').__class__({run!r})"),
        lambda run: _size_expression("2**(9**9**9)"),
        lambda run: lambda d: d.update(guards_code=[run]),
        lambda run: lambda d: d.update(guards_code=[f"L['image'].size()[0] == 'a\"+{run}+\"'"]),
        lambda run: lambda d: d.update(guards_code=["().__class__.__base__.__subclasses__()"]),
        lambda run: _node("target", "torch.hub.load"),
        lambda run: _node("target", "torch.ops.load_library"),
        lambda run: _node("target", "torch.ops.aten.from_file.default"),
        lambda run: _node("target", "_operator.methodcaller"),
        lambda run: _rename_everywhere("conv2d", f"conv2d; {run}"),
        lambda run: _rename_everywhere("conv.weight", f'conv", {run}) #'),
        lambda run: (
            lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(forward_arg_names=[f"image={run}"])
        ),
        lambda run: (
            lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
                in_spec='[1, {"type": "collections.defaultdict", "context": {"default_factory_module": "antigravity", '
                '"default_factory_name": "x", "dict_context": []}, "children_spec": []}]'
            )
        ),
        lambda run: (
            lambda d: d["graph_module"]["module_call_graph"][0]["signature"].update(
                in_spec='[1, {"type": "builtins.dict", "context": "[{\\"__enum__\\": 1, \\"fqn\\": \\"antigravity:x\\"}]", "children_spec": []}]'
            )
        ),
    ],
)
def test_pitfall_s_01_text_that_torch_would_evaluate_is_refused(
    saved: Path, tmp_path: Path, attack: Callable[[str], Edit]
) -> None:
    """sympy evaluates sizes, exec compiles guards and the graph's names: none may carry code."""
    marker = tmp_path / "ran"
    path = with_document(saved, tmp_path / "e.pt2", attack(f"__import__('os').mkdir({str(marker)!r})"))
    with pytest.raises(InputError, match="is refused") as caught:
        load(path)
    assert caught.value.code == "unsafe_program"
    assert not marker.exists()


def test_compiled_code_is_refused(saved: Path, tmp_path: Path) -> None:
    path = rewritten(saved, tmp_path / "a.pt2", {}, {"data/aotinductor/model/x.so": b"\x7fELF"})
    with pytest.raises(InputError, match="AOTInductor"):
        load(path)


def test_a_custom_operator_is_named(saved: Path, tmp_path: Path) -> None:
    path = with_document(saved, tmp_path / "c.pt2", _node("target", "torch.ops.mylib.fancy.default"))
    with pytest.raises(UnsupportedError, match="mylib::fancy"):
        load(path)


class Wide(nn.Module):
    """Control flow, symbolic arithmetic, nested containers, tied weights and constants: what the guard must let pass."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale = torch.tensor(2.0)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, words: torch.Tensor, extra: dict[str, list[torch.Tensor]], flag: torch.Tensor) -> Any:
        found = self.embed(words).reshape(words.shape[0] * words.shape[1], 4)
        halves = found[: found.shape[0] // 2]
        chosen = torch.cond(flag.sum() > 0, lambda x: x + 1, lambda x: x - 1, (found,))
        return self.head(chosen) * self.scale, {"half": halves, "more": (extra["a"][0] + 1, extra["a"][1])}


def test_everything_that_torch_writes_passes_the_guard(tmp_path: Path) -> None:
    n, t = Dim("n", min=2, max=9), Dim("t", min=2, max=64)
    args = (torch.zeros(2, 6, dtype=torch.long), {"a": [torch.zeros(3), torch.zeros(2)]}, torch.ones(2))
    shapes = {"words": {0: n, 1: 2 * Dim("h", min=1, max=32)}, "extra": {"a": [None, None]}, "flag": None}
    exported = torch.export.export(Wide().eval(), args, dynamic_shapes=shapes)
    torch.export.save(exported, tmp_path / "wide.pt2")
    with zipfile.ZipFile(tmp_path / "wide.pt2") as archive:
        document = json.loads(archive.read("wide/models/model.json"))
    assert list(_pt2_guard.objections(document)) == []
    assert t.__name__ == "t"


@pytest.mark.parametrize(
    "expression",
    [
        "Symbol('s31', positive=True, integer=True)", "Mul(Integer(2), Symbol('s0', integer=True))",
        "Add(Symbol('s0'), Integer(-1))", "Pow(Symbol('s0'), Integer(2))", "s0 // 2 + 1", "FloorDiv(Symbol('s0'), Integer(2))",
        "Max(Integer(1), Symbol('s0'))", "u0", "oo", "-int_oo", "Eq(Symbol('s0'), Integer(3))", "2*s0*s1 + 3",
    ],
)  # fmt: skip
def test_sizes_as_torch_writes_them_are_safe(expression: str) -> None:
    assert _pt2_guard.is_safe_expression(expression)


@pytest.mark.parametrize(
    "guard",
    ["L['x'].size()[0] == 3", "L['x']['k'][0].size()[1] <= 8", "L['flag'] == True", "2 <= L['x'].size()[0]",
     "Eq(Mod(L['x'].size()[1], 2), 0)", "L['x'].size()[0] % 2 == 0", "math.isnan(L['v'])"],
)  # fmt: skip
def test_guards_as_torch_writes_them_are_safe(guard: str) -> None:
    assert _pt2_guard.is_safe_guard(guard)


# --- our own extra file -----------------------------------------------------------------------------------------------


def test_what_edgesdk_stored_beside_the_graph_comes_back(tmp_path: Path) -> None:
    from edgesdk import modelfile

    exported = program()
    signature = Signature(
        (TensorSpec("photo", "float32", (1, 1, 8, 8)),), (TensorSpec("probabilities", "float32", (1, 3)),)
    )
    made = Model(
        Source("net", "pickled_module", pickle=True), signature, program=exported, labels=("a", "b", "c"),
        history=(HistoryStep("compress", "channels"),),
    )  # fmt: skip
    torch.export.save(exported, tmp_path / "m.pt2", extra_files={modelfile.EXTRA: modelfile.dumps(made)})
    model = load(tmp_path / "m.pt2")
    assert model.signature == signature and model.labels == ("a", "b", "c")
    assert [step.step for step in model.history] == ["compress"]
    assert model.source.pickle and model.source.name == "m" and model.source.format == "exported_program"


def test_an_extra_file_that_describes_another_network_is_refused(tmp_path: Path) -> None:
    from edgesdk import modelfile

    exported = program()
    other = Signature((TensorSpec("ids", "int64", (1, 4)),), (TensorSpec("y", "float32", (1, 3)),))
    text = modelfile.dumps(Model(Source("net", "onnx"), other))
    torch.export.save(exported, tmp_path / "m.pt2", extra_files={modelfile.EXTRA: text})
    with pytest.raises(InputError, match="other inputs or outputs"):
        load(tmp_path / "m.pt2")
