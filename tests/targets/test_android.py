"""The Android project: what Gradle, Maven and an app engineer read."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from edgesdk.errors import UnsupportedError
from edgesdk.targets import find
from tests.targets.conftest import Emit, lite_file, variant
from tests.targets.test_names import HOSTILE

POM = "{http://maven.apache.org/POM/4.0.0}"


def aar_of(folder: Path) -> Path:
    (found,) = (folder / "android").rglob("*.aar")
    return found


def test_the_aar_holds_the_bundle_stored_and_unchanged(emit: Emit) -> None:
    folder = emit("android")
    with zipfile.ZipFile(aar_of(folder)) as aar:
        assert aar.testzip() is None
        info = aar.getinfo("assets/net.edge")
        assert info.compress_type == zipfile.ZIP_STORED
        assert aar.read(info) == (folder / "net.edge").read_bytes()
        assert {"AndroidManifest.xml", "R.txt", "classes.jar", "proguard.txt"} <= set(aar.namelist())
        manifest = ET.fromstring(aar.read("AndroidManifest.xml"))
        assert manifest.get("package") == "dev.edgesdk.models.net"
        with zipfile.ZipFile(io.BytesIO(aar.read("classes.jar"))) as jar:
            assert jar.namelist() == ["META-INF/MANIFEST.MF"]
    assert (folder / "android/src/main/assets/net.edge").read_bytes() == (folder / "net.edge").read_bytes()


def test_the_same_emission_gives_the_same_bytes(emit: Emit) -> None:
    first, second = emit("android"), emit("android")
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(second) for path in second.rglob("*") if path.is_file())
    assert [f for f in files if (first / f).read_bytes() != (second / f).read_bytes()] == []


def test_the_maven_repository_is_laid_out_and_hashed_as_maven_reads_it(emit: Emit) -> None:
    folder = emit("android", version="2.1.0")
    home = folder / "android/maven/dev/edgesdk/models/net"
    assert {p.name for p in (home / "2.1.0").iterdir() if p.suffix in (".aar", ".pom")} == {
        "net-2.1.0.aar",
        "net-2.1.0.pom",
    }
    for path in [*(home / "2.1.0").glob("*.aar"), *(home / "2.1.0").glob("*.pom"), home / "maven-metadata.xml"]:
        for name in ("md5", "sha1", "sha256", "sha512"):
            assert path.with_name(f"{path.name}.{name}").read_text() == hashlib.new(name, path.read_bytes()).hexdigest()
    versioning = ET.parse(home / "maven-metadata.xml").getroot().find("versioning")
    assert versioning is not None
    assert [versioning.findtext(k) for k in ("latest", "release", "versions/version")] == ["2.1.0"] * 3


def test_the_pom_names_the_engines_that_the_bundle_needs_and_no_other(emit: Emit) -> None:
    folder = emit("android", variant(), variant("onnx", None))
    pom = ET.parse(aar_of(folder).with_suffix(".pom")).getroot()
    assert pom.findtext(f"{POM}packaging") == "aar"
    assert pom.findtext(f"{POM}licenses/{POM}license/{POM}name") == "MIT"
    found = [
        ":".join(d.findtext(f"{POM}{k}") or "" for k in ("groupId", "artifactId", "version"))
        for d in pom.iter(f"{POM}dependency")
    ]
    assert found == ["org.pytorch:executorch-android:1.5.1", "com.microsoft.onnxruntime:onnxruntime-android:1.27.0"]
    gradle = (folder / "android/build.gradle.kts").read_text()
    assert re.findall(r'api\("(.+?)"\)', gradle) == found
    # dev.edgesdk is not published: a dependency on it would not resolve, so only the README names it.
    assert "dev.edgesdk:" not in gradle
    assert "not published yet" in (folder / "README.md").read_text()


def test_pitfall_p_03_every_model_suffix_stays_uncompressed(emit: Emit) -> None:
    folder = emit("android")
    line = 'noCompress += listOf("edge", "pte", "onnx", "ptl", "ort")'
    assert line in (folder / "android/build.gradle.kts").read_text()
    assert (
        line in (folder / "README.md").read_text()
    )  # a library's own setting does not reach the app that packs the APK


def test_pitfall_p_04_a_ptl_is_said_to_be_refused_on_16_kib_pages(emit: Emit) -> None:
    assert "16 KiB" in (emit("android", variant("torchscript", None)) / "README.md").read_text()
    assert "16 KiB" not in (emit("android") / "README.md").read_text()


def test_pitfall_p_05_copies_of_fbjni_are_settled_in_favour_of_the_newer(emit: Emit) -> None:
    folder = emit("android", variant(), variant("torchscript", None))
    gradle = (folder / "android/build.gradle.kts").read_text()
    for abi in ("arm64-v8a", "x86_64"):
        for library in ("libc++_shared.so", "libfbjni.so"):
            assert f'"lib/{abi}/{library}"' in gradle
    # With pickFirsts the first dependency's copy wins: fbjni 0.7.0 before the 0.2.2 inside pytorch_android_lite.
    first, second = gradle.index("com.facebook.fbjni:fbjni:0.7.0"), gradle.index("pytorch_android_lite")
    assert first < second
    assert 'exclude(group = "com.facebook.fbjni", module = "fbjni-java-only")' in gradle
    exclusion = ET.parse(aar_of(folder).with_suffix(".pom")).getroot().find(f".//{POM}exclusion/{POM}artifactId")
    assert exclusion is not None
    assert exclusion.text == "fbjni-java-only"
    assert "pickFirsts" not in (emit("android") / "android/build.gradle.kts").read_text()


def test_pitfall_p_06_the_builds_filters_are_the_bundles_abis(emit: Emit) -> None:
    folder = emit("android")
    assert 'abiFilters += listOf("arm64-v8a", "x86_64")' in (folder / "android/build.gradle.kts").read_text()
    only = variant(details={"min_runtime": "1.5.1", "abis": ["arm64-v8a"]})
    assert 'abiFilters += listOf("arm64-v8a")' in (emit("android", only) / "android/build.gradle.kts").read_text()


def test_pitfall_t_02_the_library_matches_the_files_bytecode(emit: Emit) -> None:
    lite = variant("torchscript", None)
    folder = emit("android", lite, entries={lite["file"]: lite_file(8)})
    assert "pytorch_android_lite:2.1.0" in (folder / "android/build.gradle.kts").read_text()
    assert "bytecode version 8" in (folder / "README.md").read_text()
    old = emit("android", lite, entries={lite["file"]: lite_file(3)})
    assert "pytorch_android_lite:1.9.0" in (old / "android/build.gradle.kts").read_text()
    with pytest.raises(UnsupportedError, match="bytecode version 12") as caught:
        emit("android", lite, entries={lite["file"]: lite_file(12)})
    assert caught.value.exit == 4


@pytest.mark.slow
def test_pitfall_t_02_torchs_own_file_is_read(tmp_path: Path) -> None:
    import torch

    from edgesdk.targets import _lite

    module = torch.jit.script(torch.nn.Linear(2, 2))
    module._save_for_lite_interpreter(str(tmp_path / "a.ptl"))
    with (tmp_path / "a.ptl").open("rb") as stream:
        assert _lite.bytecode_version(stream) == 8
    assert _lite.libraries_for(8)[0] == "2.1.0"


def test_pitfall_a_04_consumer_rules_keep_what_native_code_calls(emit: Emit) -> None:
    folder = emit("android", variant(), variant("onnx", None))
    rules = (folder / "android/consumer-rules.pro").read_text()
    for package in ("org.pytorch.executorch", "com.facebook.jni", "ai.onnxruntime", "dev.edgesdk"):
        assert f"-keep class {package}.** {{ *; }}" in rules
    with zipfile.ZipFile(aar_of(folder)) as aar:
        assert aar.read("proguard.txt").decode() == rules
    assert "ai.onnxruntime" not in (emit("android") / "android/consumer-rules.pro").read_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_give_a_project_that_reads_back(emit: Emit, name: str) -> None:
    folder = emit("android", name=name, license=name, version=name, file="bundle 1.edge")
    project = folder / "android"
    for path in [*project.rglob("*.xml"), *project.rglob("*.pom")]:
        ET.fromstring(path.read_bytes())
    pom = ET.parse(aar_of(folder).with_suffix(".pom")).getroot()
    assert "${" not in ET.tostring(pom, encoding="unicode")
    if name.isprintable() and "${" not in name and name.strip():
        assert pom.findtext(f"{POM}name") == name
    gradle = (project / "build.gradle.kts").read_text()
    assert gradle.count("{") == gradle.count("}")
    assert re.search(r'namespace = "dev\.edgesdk\.models\.[A-Za-z_][A-Za-z0-9_]*"\n', gradle)
    code = [line for line in gradle.splitlines() if not line.startswith("//")]
    assert code[0] == "plugins {"  # nothing of the name got out of its comment
    with zipfile.ZipFile(aar_of(folder)) as aar:
        (asset,) = (entry for entry in aar.namelist() if entry.startswith("assets/"))
        assert re.fullmatch(r"assets/[A-Za-z0-9][A-Za-z0-9._-]*\.edge", asset)
        assert aar.read(asset) == (folder / "bundle 1.edge").read_bytes()


def test_the_readme_is_ten_lines_to_paste_and_plain_about_what_was_not_run(emit: Emit) -> None:
    folder = emit("android", variant(), variant("executorch", "vulkan", verified="not_run", outputs=[]))
    readme = (folder / "README.md").read_text()
    pasted = re.findall(r"```(?:kotlin|java)\n(.*?)```", readme.split("<details>")[0], re.DOTALL)
    lines = [line for block in pasted for line in block.splitlines() if line.strip() and not line.startswith("//")]
    assert len(lines) <= 10
    assert 'implementation("dev.edgesdk.models:net:1.0.0")' in readme
    assert "not executed: no Android SDK" in readme
    assert "`executorch-vulkan-none` was not run" in readme
    assert "118 dB" in readme
    assert "is **not signed**" in readme
    signed = emit("android", entries={"signature.json": b"{}"})
    assert "not signed" not in (signed / "README.md").read_text()


def test_labels_and_preprocessing_decide_which_call_is_shown(emit: Emit) -> None:
    classify = {"preprocess": {"kind": "image"}, "postprocess": {"kind": "classify"}}
    assert "session.classify(bitmap, 5)" in (emit("android", manifest=classify) / "README.md").read_text()
    assert "session.run(inputs)" in (emit("android") / "README.md").read_text()


def test_engine_versions_are_never_local_builds(emit: Emit) -> None:
    folder = emit("android", variant(details={"min_runtime": "1.5.1+cpu"}))
    assert '"org.pytorch:executorch-android:1.5.1"' in (folder / "android/build.gradle.kts").read_text()


def test_onnx_files_get_a_current_library_or_the_newer_one_they_ask_for(emit: Emit) -> None:
    for least, wanted in (("1.14", "1.27.0"), ("1.30.1", "1.30.1"), ("", "1.27.0")):
        folder = emit("android", variant("onnx", None, details={"min_runtime": least}))
        assert f"onnxruntime-android:{wanted}" in (folder / "android/build.gradle.kts").read_text()


def test_defaults_of_the_target() -> None:
    target = find("android")
    assert (target.abis, target.variants) == (("arm64-v8a", "x86_64"), (("executorch", "xnnpack"),))


@pytest.mark.slow
def test_maven_resolves_the_aar_from_the_repository(emit: Emit, tmp_path: Path) -> None:
    """The real Maven, with its checksum check set to fail, takes AAR and POM of a name that had to be changed."""
    maven = shutil.which("mvn")
    assert maven, "this test needs Maven"
    folder = emit("android", name="my net", version="1.0 beta", file="my net.edge")
    (line,) = re.findall(r'implementation\("(.+?)"\)', (folder / "README.md").read_text())
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"
    ran = subprocess.run(
        [maven, "-B", "-C", plugin, f"-Dmaven.repo.local={tmp_path / 'm2'}", f"-Dartifact={line}:aar", "-Dtransitive=false",
         f"-DremoteRepositories=net::default::{(folder / 'android/maven').as_uri()}"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert "is invalid" not in ran.stdout
    (got,) = (tmp_path / "m2/dev/edgesdk").rglob("*.aar")
    assert got.read_bytes() == aar_of(folder).read_bytes()


def test_the_repositorys_address_is_below_the_place_that_the_readme_says_to_copy_to(emit: Emit) -> None:
    readme = (emit("android", name="my net", file="my net.edge") / "README.md").read_text()
    (place,) = re.findall(r"root of your Gradle project as `(.+?)`", readme)
    assert f'uri("{place}/android/maven")' in readme
    assert "minSdk = 24" in readme  # the AAR's own floor: Gradle refuses an app that says less


STUBS = {
    "android/content/Context.java": """package android.content;
public class Context {
    public java.io.File getCacheDir() { return null; }
    public Assets getAssets() { return null; }
    public interface Assets { java.io.InputStream open(String name); }
}""",
    "org/pytorch/executorch/Module.java": """package org.pytorch.executorch;
public class Module {
    public static Module load(String path) { return null; }
    public EValue[] forward(EValue... inputs) { return null; }
}""",
    "org/pytorch/executorch/EValue.java": """package org.pytorch.executorch;
public class EValue { public static EValue from(Tensor tensor) { return null; } }""",
    "org/pytorch/executorch/Tensor.java": """package org.pytorch.executorch;
public class Tensor { public static Tensor fromBlob(float[] data, long[] shape) { return null; } }""",
}


@pytest.mark.slow
def test_the_lines_for_today_are_java_with_every_import(emit: Emit, tmp_path: Path) -> None:
    """javac, with the signatures that the snippet uses in place of Android and ExecuTorch."""
    one = variant()
    readme = (emit("android", one, entries={one["file"]: b"pte"}) / "README.md").read_text()
    (snippet,) = re.findall(r"```java\n(.*?)```", readme.split("<summary>Without")[1], re.DOTALL)
    imports = [line for line in snippet.splitlines() if line.startswith("import ")]
    body = snippet.split("\n\n", 1)[1]
    head = (
        "public class App { Object run(android.content.Context context, float[] data, long[] shape) throws Exception {"
    )
    (tmp_path / "App.java").write_text("\n".join([*imports, head, body, "return outputs; } }"]))
    for name, text in STUBS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = ["App.java", *STUBS]
    ran = subprocess.run(["javac", "-d", "out", *files], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_readme_says_what_data_showed_not_what_a_few_samples_did(emit: Emit) -> None:
    outputs = [{"name": "output", "max_abs_error": 0.4, "snr_db": 24.0}]
    score = {"name": "top1", "original": 90.56, "value": 90.45, "drop": 0.11, "samples": 2000}
    found = {
        "samples": 2000,
        "data": "evaluation",
        "where": "x86_64 host",
        "score": score,
        "top1": 0.991,
        "outputs": outputs,
    }
    judged = variant("onnx", None, quantization="static-int8", outputs=outputs)
    judged["details"] = {**judged["details"], "guard": {"evaluation": found}}
    text = (emit("android", judged) / "README.md").read_text(encoding="utf-8")
    assert "90.56 → 90.45 on 2,000 samples of evaluation data" in text
    assert "99.1 % same first answers" in text
    assert "visible differences" not in text
    judged["details"]["guard"] = {"evaluation": {**found, "data": "made up", "score": None}}
    assert "visible differences" in (emit("android", judged) / "README.md").read_text(encoding="utf-8")


def test_the_readme_makes_the_inputs_and_reads_the_outputs_of_this_model(emit: Emit) -> None:
    signature = {
        "inputs": [
            {"name": "ids", "dtype": "int64", "shape": [1, "4..128"]},
            {"name": 'a "b"', "dtype": "float16", "shape": [2]},
        ],
        "outputs": [{"name": "hidden", "dtype": "float32", "shape": [1, "4..128", 384]}],
    }
    readme = (emit("android", signature=signature) / "README.md").read_text()
    assert 'inputs.put("ids", Tensor.of(new long[4], 1, 4));  // int64, 1 × 4…128' in readme
    assert 'inputs.put("a \\"b\\"", Tensor.allocate(DType.FLOAT16, 2));' in readme
    assert 'outputs.get("hidden").toFloats();  // float32, 1 × 4…128 × 384' in readme
