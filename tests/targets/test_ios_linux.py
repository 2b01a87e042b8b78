"""The Swift package and the Linux folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from edgesdk.targets import find, targets
from tests.targets.conftest import Emit, variant
from tests.targets.test_names import HOSTILE


def package_of(folder: Path) -> Path:
    (found,) = (folder / "ios").rglob("Package.swift")
    return found


def test_the_swift_package_carries_the_bundle_as_its_resource(emit: Emit) -> None:
    folder = emit("ios")
    package = package_of(folder)
    text = package.read_text()
    assert text.startswith("// swift-tools-version:5.9\n")
    (resource,) = re.findall(r'\.copy\("(.+?)"\)', text)
    (target,) = re.findall(r'\.target\(\s*name: "(.+?)"', text)
    assert (package.parent / "Sources" / target / resource).read_bytes() == (folder / "net.edge").read_bytes()
    accessor = (package.parent / "Sources" / target / f"{target}.swift").read_text()
    assert 'resource = "net"' in accessor
    assert "public enum NetModel {" in accessor


def test_pitfall_x_01_the_linker_is_told_to_keep_what_registers_itself(emit: Emit) -> None:
    folder = emit("ios")
    assert '.unsafeFlags(["-Xlinker", "-all_load"])' in package_of(folder).read_text()
    assert "-all_load" in (folder / "README.md").read_text()
    assert "-all_load" not in package_of(emit("ios", variant("onnx", None))).read_text()


def test_pitfall_x_02_the_frameworks_that_the_flag_needs_are_linked(emit: Emit) -> None:
    plain = package_of(emit("ios")).read_text()
    assert re.findall(r'linkedFramework\("(.+?)"\)', plain) == ["Accelerate"]
    assert re.findall(r'linkedLibrary\("(.+?)"\)', plain) == ["c++"]
    coreml = package_of(emit("ios", variant("executorch", "coreml"))).read_text()
    assert re.findall(r'linkedFramework\("(.+?)"\)', coreml) == ["Accelerate", "CoreML"]
    assert re.findall(r'linkedLibrary\("(.+?)"\)', coreml) == ["c++", "sqlite3"]
    metal = package_of(emit("ios", variant("executorch", "mps"))).read_text()
    assert {"Metal", "MetalPerformanceShaders", "MetalPerformanceShadersGraph"} <= set(
        re.findall(r'linkedFramework\("(.+?)"\)', metal)
    )


def test_pitfall_x_03_the_readme_says_which_simulators_can_link(emit: Emit) -> None:
    assert "simulator on Apple-silicon Macs (arm64)" in (emit("ios") / "README.md").read_text()
    assert "no simulator slice" in (emit("ios", variant("torchscript", None)) / "README.md").read_text()


def test_the_package_names_the_engines_products_and_their_release(emit: Emit) -> None:
    text = package_of(emit("ios", variant("executorch", "coreml"), variant("onnx", None))).read_text()
    assert 'branch: "swiftpm-1.5.1"' in text
    products = re.findall(r'\.product\(name: "(.+?)"', text)
    assert products == ["executorch", "backend_coreml", "kernels_optimized", "kernels_quantized", "onnxruntime"]
    assert ".iOS(.v17)" in text  # executorch's own floor


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_give_balanced_swift(emit: Emit, name: str) -> None:
    folder = emit("ios", name=name, version=name, file="bundle.edge")
    for path in (folder / "ios").rglob("*.swift"):
        text = path.read_text()
        code = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        assert '"' not in code.replace('""', "")
        assert "\\" not in code
        for opening, closing in ("()", "[]", "{}"):
            assert code.count(opening) == code.count(closing)
    (readme,) = folder.glob("README.md")
    assert "not published yet" in readme.read_text()


def test_the_linux_script_is_python_that_names_the_bundle_beside_it(emit: Emit) -> None:
    folder = emit("linux", name="it's", file="it's.edge")
    tree = ast.parse((folder / "run.py").read_text())
    assert "it's.edge" in {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert "classify" not in (folder / "run.py").read_text()
    classify = {"preprocess": {"kind": "image"}, "postprocess": {"kind": "classify"}}
    shown = emit("linux", manifest=classify)
    ast.parse((shown / "run.py").read_text())
    assert "session.classify(" in (shown / "run.py").read_text()
    assert "pip install '.[executorch]'" in (shown / "README.md").read_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_give_valid_python(emit: Emit, name: str) -> None:
    folder = emit("linux", name=name, file="bundle.edge")
    ast.parse((folder / "run.py").read_text())
    (block,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    ast.parse(block)


def test_pitfall_e_18_targets_write_side_by_side_and_only_into_their_folder(emit: Emit) -> None:
    made = {name: {p.name for p in emit(name).iterdir()} for name in targets()}
    assert made == {
        "android": {"net.edge", "README.md", "android"},
        "ios": {"net.edge", "README.md", "ios"},
        "linux": {"net.edge", "README.md", "run.py"},
    }


def test_defaults_of_the_targets() -> None:
    assert (find("ios").abis, find("ios").variants) == (("arm64",), (("executorch", "xnnpack"),))
    assert (find("linux").abis, find("linux").variants) == (("x86_64", "aarch64"), (("executorch", "xnnpack"),))


@pytest.mark.parametrize("target", ["android", "ios", "linux"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup_in_a_readme(emit: Emit, target: str, name: str) -> None:
    readme = (emit(target, name=name, version=name, file="bundle.edge") / "README.md").read_text()
    assert len(re.findall(r"^# ", readme, re.MULTILINE)) == 1
    assert len(re.findall(r"^```", readme, re.MULTILINE)) % 2 == 0
    assert "<b>" not in readme


PTE = b"an ExecuTorch program"


def test_executorchs_own_api_finds_the_program_beside_the_bundle(emit: Emit) -> None:
    """Until EdgeSDK exists for Swift this is the way to run the model, so file, manifest, accessor and README agree."""
    one = variant()
    folder = emit("ios", one, entries={one["file"]: PTE})
    package, readme = package_of(folder), (folder / "README.md").read_text()
    resources = re.findall(r'\.copy\("(.+?)"\)', package.read_text())
    assert resources == ["Resources/net.edge", "Resources/net.pte"]
    sources = package.parent / "Sources/net"
    assert (sources / "Resources/net.pte").read_bytes() == PTE
    assert 'withExtension: "pte"' in (sources / "net.swift").read_text()
    snippet = re.findall(r"```swift\n(.*?)```", readme, re.DOTALL)[1]
    assert "import ExecuTorch\nimport net\n" in snippet
    assert "Module(filePath: NetModel.program!.path)" in snippet
    assert "Tensor<Float>([Float](repeating: 0, count: 1 * 3 * 224 * 224), shape: [1, 3, 224, 224])" in snippet
    assert "not compiled here" in readme


def test_without_an_executorch_program_nothing_is_said_about_one(emit: Emit) -> None:
    folder = emit("ios", variant("onnx", None))
    assert "import ExecuTorch" not in (folder / "README.md").read_text()
    assert ".pte" not in package_of(folder).read_text()
    legacy = (emit("ios", variant("torchscript", None)) / "README.md").read_text()
    assert "its engines are complete" not in legacy and "add it to the app's `Podfile`" in legacy
