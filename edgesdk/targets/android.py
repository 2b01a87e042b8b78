"""Android: a Gradle library module and a local Maven repository, both holding the bundle as an asset."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgesdk.targets import _names
from edgesdk.targets._base import Emission, Target
from edgesdk.targets._facts import Facts, facts
from edgesdk.targets._java import tensors
from edgesdk.targets._lite import LIBRARIES
from edgesdk.targets._maven import Coordinates, Dependency, write_repository
from edgesdk.targets._render import render, write

GROUP = "dev.edgesdk.models"
MIN_SDK = 24
"""Android 7.0: the least that ``dev.edgesdk`` supports (ARCHITECTURE §9)."""

# Suffixes that must stay uncompressed in the APK, or the model can't be mapped (P-03).
NO_COMPRESS = ("edge", "pte", "onnx", "ptl", "ort")

_FBJNI_JAVA = ("com.facebook.fbjni", "fbjni-java-only")
_FBJNI = Dependency("com.facebook.fbjni", "fbjni", "0.7.0")
"""What executorch-android is linked with (its documentation's dependency list); AAR with natives and classes."""

# pytorch_android_lite 1.12.2 and fbjni 0.7.0 were opened: both carry these two files, with different bytes (P-05).
_SHARED = ("libc++_shared.so", "libfbjni.so")


@dataclass(frozen=True)
class _Build:
    """What Gradle is told. The order of ``dependencies`` matters: with pickFirsts the first one's library wins."""

    dependencies: tuple[Dependency, ...]
    pick_firsts: tuple[str, ...]


class Android(Target):
    name = "android"
    abis = ("arm64-v8a", "x86_64")
    variants = (("executorch", "xnnpack"),)

    def emit(self, emission: Emission, folder: Path) -> None:
        found = facts(emission, self.abis)
        project = folder / "android"
        asset = _names.asset_name(emission.bundle.name)
        at = Coordinates(GROUP, _names.maven_artifact(found.name), _names.maven_version(found.version))
        values = {
            "facts": found,
            "build": _build(found),
            "asset": asset,
            "folder": f"{at.artifact}-android",
            "namespace": f"{GROUP}.{_names.java_identifier(found.name)}",
            "at": at,
            "min_sdk": MIN_SDK,
            "no_compress": NO_COMPRESS,
            "lite_libraries": LIBRARIES,
            "tensors": () if found.classifies else tensors(found.inputs, found.outputs),
            "executorch_file": found.executorch_file,
        }
        for name in ("settings.gradle.kts", "build.gradle.kts", "gradle.properties", "consumer-rules.pro"):
            write(project / name, render(f"android/{name}.j2", **values))
        write(project / "src/main/AndroidManifest.xml", render("android/module-manifest.xml.j2"))
        assets = project / "src/main/assets"
        assets.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(emission.bundle, assets / asset)
        _write_aar(project / "maven", at, emission.bundle, values)
        write(folder / "README.md", render("android/README.md.j2", **values))


def _write_aar(root: Path, at: Coordinates, bundle: Path, values: Mapping[str, Any]) -> None:
    def filled(template: str) -> bytes:
        return render(f"android/{template}.j2", **values).encode("utf-8")

    entries: dict[str, bytes | Path] = {
        "AndroidManifest.xml": filled("aar-manifest.xml"),
        "META-INF/com/android/build/gradle/aar-metadata.properties": filled("aar-metadata.properties"),
        "R.txt": b"",
        f"assets/{values['asset']}": bundle,
        "classes.jar": _empty_jar(),
        "proguard.txt": filled("consumer-rules.pro"),
    }
    write_repository(root, at, entries, values)


def _empty_jar() -> bytes:
    """A jar that holds nothing but its manifest: the AAR format asks for a classes.jar."""
    with io.BytesIO() as memory:
        with zipfile.ZipFile(memory, "w") as jar:
            jar.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), b"Manifest-Version: 1.0\r\n\r\n")
        return memory.getvalue()


def _build(found: Facts) -> _Build:
    versions = found.runtimes
    both = {"executorch", "torchscript"} <= set(versions)
    wanted: list[Dependency] = []
    if "executorch" in versions:
        wanted.append(Dependency("org.pytorch", "executorch-android", versions["executorch"]))
    if "onnx" in versions:
        wanted.append(Dependency("com.microsoft.onnxruntime", "onnxruntime-android", versions["onnx"]))
    if "torchscript" in versions:
        lite = Dependency(
            "org.pytorch", "pytorch_android_lite", versions["torchscript"], (_FBJNI_JAVA,) if both else ()
        )
        wanted.append(lite)
    picks = tuple(f"lib/{abi}/{file}" for abi in found.abis for file in _SHARED) if both else ()
    return _Build(tuple([_FBJNI, *wanted] if both else wanted), picks)


TARGET = Android()
