"""iOS: a Swift package with the bundle as its resource and the engines it needs as dependencies."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgesdk.targets import _names
from edgesdk.targets._base import Emission, Target
from edgesdk.targets._facts import Facts, facts
from edgesdk.targets._render import render, write

# Read from the Package.swift of executorch's swiftpm branches: what each product is linked with. With -all_load
# every object of the static libraries is taken, so all of it must resolve.
_FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "coreml": ("Accelerate", "CoreML"),
    "mps": ("Metal", "MetalPerformanceShaders", "MetalPerformanceShadersGraph"),
}
_BACKENDS: Mapping[str, str] = {"xnnpack": "backend_xnnpack", "coreml": "backend_coreml", "mps": "backend_mps"}


@dataclass(frozen=True)
class _Link:
    """What the target is linked with. ``platforms`` are SwiftPM's words for the least systems."""

    platforms: tuple[str, ...]
    packages: tuple[str, ...]
    products: tuple[tuple[str, str], ...]
    frameworks: tuple[str, ...]
    libraries: tuple[str, ...]
    all_load: bool


class Ios(Target):
    name = "ios"
    abis = ("arm64",)
    variants = (("executorch", "xnnpack"),)

    def emit(self, emission: Emission, folder: Path) -> None:
        found = facts(emission, self.abis)
        module = _names.swift_identifier(found.name)
        asset = _names.asset_name(emission.bundle.name)
        values = {
            "facts": found,
            "module": module,
            "type": _names.swift_type(found.name),
            "asset": asset,
            "stem": asset.rpartition(".")[0],
            "link": _link(found),
            "program": _program(found, emission.bundle, asset),
            "tensors": _tensors(found),
            "answer": _answer(emission),
        }
        package = folder / "ios" / module
        write(package / "Package.swift", render("ios/Package.swift.j2", **values))
        sources = package / "Sources" / module
        write(sources / f"{module}.swift", render("ios/Accessor.swift.j2", **values))
        resources = sources / "Resources"
        resources.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(emission.bundle, resources / asset)
        if values["program"]:
            _extract(emission.bundle, str(found.executorch_file), resources / str(values["program"]))
        write(folder / "README.md", render("ios/README.md.j2", **values))


def _program(found: Facts, bundle: Path, asset: str) -> str | None:
    """Name of the resource that ExecuTorch's own API can open: the program of the first ExecuTorch variant."""
    if not found.executorch_file:
        return None
    with zipfile.ZipFile(bundle) as archive:
        return f"{asset.rpartition('.')[0]}.pte" if found.executorch_file in archive.namelist() else None


def _extract(bundle: Path, name: str, path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive, archive.open(name) as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


# The types that conform to `Scalar` in executorch's ExecuTorch+Tensor.swift. There is none for half precision.
_SCALARS: Mapping[str, str] = {
    "float32": "Float", "float64": "Double", "int64": "Int64", "int32": "Int32", "int16": "Int16", "int8": "Int8",
    "uint8": "UInt8", "uint16": "UInt16", "bool": "Bool",
}  # fmt: skip


@dataclass(frozen=True)
class _Tensor:
    """One input in Swift: the element type, a zero of it, and a size that the model takes."""

    type: str
    zero: str
    shape: tuple[int, ...]

    @property
    def count(self) -> str:
        return " * ".join(map(str, self.shape))


def _tensors(found: Facts) -> tuple[_Tensor, ...]:
    """The inputs at their least sizes; empty when one can't be written in Swift (half precision, no dimension)."""
    made = []
    for spec in found.inputs:
        shape = tuple(int(str(d).partition("..")[0]) for d in spec.get("shape") or ())
        kind = _SCALARS.get(str(spec.get("dtype")))
        if kind is None or not shape:
            return ()
        made.append(_Tensor(kind, "false" if kind == "Bool" else "0", shape))
    return tuple(made)


def _answer(emission: Emission) -> str:
    """The element type of the first output in Swift."""
    outputs = (emission.document.get("signature") or {}).get("outputs") or [{}]
    return _SCALARS.get(str(outputs[0].get("dtype")), "Float")


def _link(found: Facts) -> _Link:
    executorch, onnx = found.runtimes.get("executorch"), "onnx" in found.runtimes
    packages: list[str] = []
    products: list[tuple[str, str]] = []
    frameworks: set[str] = set()
    if executorch:
        packages.append(f'.package(url: "https://github.com/pytorch/executorch.git", branch: "swiftpm-{executorch}")')
        named = ["executorch", *(_BACKENDS[b] for b in sorted(found.backends) if b in _BACKENDS)]
        products += [(name, "executorch") for name in (*named, "kernels_optimized", "kernels_quantized")]
        frameworks |= {"Accelerate", *(f for b in found.backends for f in _FRAMEWORKS.get(b, ()))}
    if onnx:
        source = "https://github.com/microsoft/onnxruntime-swift-package-manager.git"
        packages.append(f'.package(url: "{source}", from: "1.20.0")')
        products.append(("onnxruntime", "onnxruntime-swift-package-manager"))
    libraries = (["c++"] if products else []) + (["sqlite3"] if "coreml" in found.backends else [])
    return _Link(
        # executorch's package asks for iOS 17 and, in its newer releases, macOS 14 (docs/source/using-executorch-ios.md);
        # SwiftPM refuses a package that declares less than its dependency. ONNX Runtime's asks for less.
        platforms=(".iOS(.v17)", ".macOS(.v14)") if executorch else (".iOS(.v15)", ".macOS(.v12)"),
        packages=tuple(packages),
        products=tuple(products),
        frameworks=tuple(sorted(frameworks)),
        libraries=tuple(libraries),
        all_load=executorch is not None,
    )


TARGET = Ios()
