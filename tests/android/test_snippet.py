"""The lines of the README that ``edgesdk package --target android`` writes: do they compile against the library?"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgesdk.targets._java import tensors

FRAME = """{imports}
import dev.edgesdk.*;
import java.util.*;
import android.content.Context;
import android.graphics.Bitmap;

class {name} {{
  static void use(Context context, Bitmap bitmap, float[] data, long[] shape) throws Exception {{
{body}
  }}
}}
"""

EVERY_DTYPE = [
    {"name": f'in "{dtype}"', "dtype": dtype, "shape": shape}
    for dtype in (
        "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool"
    )
    for shape in ([], [1, 3], ["2..8", 5])
]  # fmt: skip


def java_blocks(readme: Path) -> list[str]:
    return re.findall(r"```java\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.slow
def test_the_readme_compiles_and_dexes(tool: Any, emitted: Path, tmp_path: Path) -> None:
    blocks = java_blocks(emitted / "README.md")
    assert any("classify(bitmap, 5)" in block for block in blocks)
    assert any("org.pytorch.executorch.Module" in block for block in blocks)
    opened = 'Session session = EdgeBundle.open(context, "any.edge").session();'
    blocks.append("\n".join([opened, *tensors(EVERY_DTYPE, EVERY_DTYPE)]))
    tool.need_tools()
    parts = tool.fetch(["arm64-v8a"])
    library = tool.compile_apps([tool.App("sample")])["sample"]
    path = [tool.framework(), *library, *parts.jars]
    sources = []
    for number, block in enumerate(blocks):
        imports = "\n".join(line for line in block.splitlines() if line.startswith("import "))
        body = "\n".join(line for line in block.splitlines() if not line.startswith("import "))
        source = tmp_path / f"Snippet{number}.java"
        source.write_text(FRAME.format(imports=imports, name=source.stem, body=body), encoding="utf-8")
        sources.append(source)
    classes = tmp_path / "classes"
    done = subprocess.run(
        ["javac", "--release", "8", "-Xlint:-options", "-d", classes, "-cp", ":".join(map(str, path)), *sources],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    dexed = tmp_path / "dex.zip"
    # API 26 is what the README asks for where it uses java.nio.file; D8 would only warn below.
    tool.run("java", "-cp", parts.r8, "com.android.tools.r8.D8", "--min-api", "26", "--lib", tool.framework(),
             "--output", dexed, *sorted(classes.glob("*.class")))  # fmt: skip
    assert dexed.stat().st_size > 500
