"""iOS: a Swift package with the bundle as its resource and the engines it needs as dependencies."""

from __future__ import annotations

import shutil
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
        }
        package = folder / "ios" / module
        write(package / "Package.swift", render("ios/Package.swift.j2", **values))
        sources = package / "Sources" / module
        write(sources / f"{module}.swift", render("ios/Accessor.swift.j2", **values))
        resources = sources / "Resources"
        resources.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(emission.bundle, resources / asset)
        write(folder / "README.md", render("ios/README.md.j2", **values))


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
        # executorch's own package asks for iOS 17 and macOS 12, ONNX Runtime's for less.
        platforms=(".iOS(.v17)", ".macOS(.v12)") if executorch else (".iOS(.v15)", ".macOS(.v12)"),
        packages=tuple(packages),
        products=tuple(products),
        frameworks=tuple(sorted(frameworks)),
        libraries=tuple(libraries),
        all_load=executorch is not None,
    )


TARGET = Ios()
