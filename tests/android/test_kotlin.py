"""What Kotlin's compiler makes of the library: its nullability annotations hold, and the usual lines need no ``!!``."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

COMPILER = "org.jetbrains.kotlin:kotlin-compiler-embeddable:2.1.21"  # from 2.1 on JSpecify's annotations are errors
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>any</groupId><artifactId>any</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
  </dependencies>
</project>
"""
USUAL = """
import android.content.Context
import android.graphics.Bitmap
import dev.edgesdk.*
import java.io.File

fun names(context: Context, bitmap: Bitmap): List<String> =
  EdgeBundle.open(context, "mobilenet.edge").use { bundle ->
    bundle.session(Session.Config.DEFAULT.withThreads(2)).use { session ->
      session.classify(bitmap, 5).map { it.name() }
    }
  }

fun scores(session: Session): FloatArray? {
  val outputs = session.run(mapOf("x" to Tensor.of(floatArrayOf(1f, 2f), 1, 2)))
  return outputs["scores"]?.floats()
}

fun kind(bundle: EdgeBundle): Any? = bundle.manifest().preprocess()?.get("kind")
fun signer(bundle: EdgeBundle): String? = bundle.signer()
fun length(variant: Variant): Int = variant.id().length + (variant.backend()?.length ?: 0)
fun missing(): List<String> = Runtimes.all().mapNotNull { it.missing() }
fun celsius(context: Context): Double? = DeviceInfo.read(context).batteryCelsius()
fun said(error: EdgeException): String = error.code() + error.message() + error.why() + error.fix()
"""
# One line each, and what is wrong with it.
WRONG = {
    'fun a(b: EdgeBundle): Any? = b.manifest().preprocess().get("kind")': "on a nullable receiver",
    "fun b(b: EdgeBundle): String = b.signer()": "expected 'String', actual",
    "fun c(v: Variant): Int = v.backend().length": "on a nullable receiver",
    "fun d(f: java.io.File?): EdgeBundle = EdgeBundle.open(f)": "actual type is 'File?'",
    "fun e(c: android.content.Context): Double = DeviceInfo.read(c).batteryCelsius()": "expected 'Double', actual",
    "fun f(c: android.content.Context, n: String?): EdgeBundle = EdgeBundle.open(c, n)": "actual type is 'String?'",
    "fun g(s: Session, b: android.graphics.Bitmap?): List<Label> = s.classify(b, 1)": "'Bitmap?'",
}


@pytest.fixture(scope="module")
def kotlin(tool: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A call that compiles a text against the library and Android, and gives what the compiler says."""
    tool.need_tools()
    folder = tmp_path_factory.mktemp("kotlin")
    (folder / "pom.xml").write_text(POM.format(*COMPILER.split(":")))
    tool.run("mvn", "-q", "-B", "-ntp", "-f", folder / "pom.xml",
             "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
             f"-Dmdep.outputFile={folder / 'path.txt'}")  # fmt: skip
    compiler = (folder / "path.txt").read_text()
    (standard,) = [jar for jar in compiler.split(":") if "/kotlin-stdlib/" in jar]
    library = tool.compile_apps([tool.App("sample")])["sample"]
    jspecify = tool.maven("org.jspecify:jspecify:1.0.0")
    path = ":".join(map(str, [*library, jspecify, tool.framework(), standard]))

    def compiled(text: str) -> tuple[int, str]:
        source = folder / "a.kt"
        source.write_text(text)
        done = subprocess.run(
            ["java", "-cp", compiler, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect",
             "-cp", path, "-d", folder / "out", source],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return compiled


@pytest.mark.slow
def test_the_usual_lines_compile(kotlin: Any) -> None:
    code, said = kotlin(USUAL)
    assert code == 0, said
    assert "warning: " not in said.replace("warning: unable to find kotlin", ""), said


@pytest.mark.slow
def test_what_may_be_null_must_be_asked(kotlin: Any) -> None:
    code, said = kotlin("import dev.edgesdk.*\n" + "\n".join(WRONG))
    assert code != 0
    for number, (line, problem) in enumerate(WRONG.items(), 2):
        (error,) = [one for one in said.splitlines() if f"a.kt:{number}:" in one]
        assert problem in error, line
