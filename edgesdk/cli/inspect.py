"""``edgesdk inspect FILE``: what it is, and what each runtime will and won't take of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgesdk.cli import _options as opt
from edgesdk.cli._app import Common, verb

if TYPE_CHECKING:
    from rich.console import Console

    from edgesdk.cli._output import Output

_FORMATS = {
    "exported_program": "exported program (torch.export)",
    "torchscript": "TorchScript",
    "torchscript_lite": "TorchScript for the Lite interpreter",
    "state_dict": "weights without code (state dict)",
    "pickled_module": "whole module in a pickle: reading it would run code",
    "lightning": "Lightning checkpoint",
    "transformers": "Hugging Face folder",
    "onnx": "ONNX",
    "ort": "ONNX Runtime's own format",
    "executorch": "ExecuTorch program",
    "edge": "edgesdk bundle",
}
_MOST = 12  # operators shown without --verbose


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Say what FILE is: format, inputs and outputs, parameters, multiply-accumulates, operators, and for each runtime
    whether it takes the model and what to do if not. Nothing in the file is executed.
    """

    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A model, .pte, .ptl, .onnx, .ort, .pt2, .edge, a folder, or file.py:factory."
        ),
    ]
    inputs: opt.Inputs = None
    arch: opt.Arch = None
    trust_pickle: opt.TrustPickle = False


def run(options: Options, out: Output) -> int:
    source = opt.import_options(options.inputs, options.arch, options.trust_pickle)
    from edgesdk import inspection

    with _no_leavings(), out.working() as progress:
        progress.stage("inspecting")
        found = inspection.inspect(options.file, source)
    document = found.to_json()
    out.answer(
        document, lambda console: show(console, options.file, document, options.verbose), str(document["format"])
    )
    return 0


@contextlib.contextmanager
def _no_leavings() -> Iterator[None]:
    """Give torch's compiler a cache folder that goes with this command: it makes one in TMPDIR when it is imported."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    if name in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="edgesdk-inspect-") as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name, None)


def show(console: Console, name: str, document: Mapping[str, Any], verbose: bool) -> None:
    from edgesdk.cli._output import count, table

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False)

    line(f"{name}: {_FORMATS.get(document['format'], document['format'])}", "bold")
    if document["summary"] and document["format"] != "edge":
        line(f"  {document['summary'][0]}")
    for kind in ("inputs", "outputs"):
        for number, spec in enumerate(document[kind]):
            line(f"  {kind if number == 0 else '':<12}{_spec(spec)}")
        if not document[kind]:
            line(f"  {kind:<12}the file doesn't say")
    line(f"  parameters  {count(document['parameters'])}")
    work = "unknown" if document["macs"] is None else f"{count(document['macs'])} multiply-accumulates per inference"
    line(f"  work        {work}")
    for number, layer in enumerate(document["details"].get("layers", ())):  # of weights alone: whose are they?
        line(f"  {'' if number else 'weights':<12}{layer}")
    operators = sorted(document["operators"].items(), key=lambda item: (-item[1], item[0]))
    if operators:
        shown = operators if verbose else operators[:_MOST]
        console.print()
        console.print(table(("operator", "times"), [(name, str(n)) for name, n in shown], right=(1,)))
        if len(shown) < len(operators):
            line(f"  and {len(operators) - len(shown)} more (--verbose shows all)")
    _judged(line, document)
    if document["runtimes"]:
        console.print()
        rows = [(name, r["status"], r.get("why") or "", r.get("fix") or "") for name, r in document["runtimes"].items()]
        console.print(table(("runtime", "takes it", "why", "what to do"), rows))


def _judged(line: Callable[[str], None], document: Mapping[str, Any]) -> None:
    """The files of a bundle, with what data showed of them."""
    for sentence in document["summary"] if document["format"] == "edge" else ():
        if sentence.startswith("It holds "):
            line(f"  {sentence.removeprefix('It holds ')}")


def _spec(spec: Mapping[str, Any]) -> str:
    shape = "shape unknown" if spec["shape"] is None else f"[{', '.join(map(str, spec['shape']))}]"
    return f"{spec['name']}  {spec['dtype']} {shape}"


COMMAND = verb(Options, run, "inspect")
