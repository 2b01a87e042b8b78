"""For each runtime: does it take the file, why (not), and what to do about it. Cheap: nothing is lowered."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgesdk.artifacts import Dim, TensorSpec
from edgesdk.errors import EdgeError, UnsupportedError
from edgesdk.inspection._kernels import XNNPACK_WORK, tensor_operators, without_kernel
from edgesdk.inspection._onnx import NO_BOUND, OnnxFacts
from edgesdk.inspection._program import ProgramFacts
from edgesdk.inspection._result import UNKNOWN, Answer, Status

NAMES = ("executorch", "torchscript", "onnx")
Answers = dict[str, Answer]

_SUCCESSOR = "PyTorch Mobile, which runs it, is no longer developed; ExecuTorch is its successor."
_COMPLEX = "Split complex numbers into real and imaginary parts in the model."


SCRIPT_ITSELF = Answer("yes", f"The module is taken as it is, without a graph of torch.export. {_SUCCESSOR}")
"""For TorchScript whose sizes are known, in its own runtime."""


def with_missing(answers: Mapping[str, Answer]) -> Answers:
    """The same, but a runtime whose libraries are absent says how to get them."""
    from edgesdk.runtimes import runtimes

    found = dict(answers)
    for name, runtime in runtimes().items():
        sentence = runtime.missing() if name in found and found[name].status != "no" else None
        if sentence:
            found[name] = Answer("partly", sentence, f"Install it: pip install 'edgesdk[{name}]'")
    return found


def of_program(facts: ProgramFacts) -> Answers:
    """For a graph that torch exported."""
    return {"executorch": _executorch(facts), "torchscript": _torchscript(facts), "onnx": _onnx(facts)}


def _executorch(facts: ProgramFacts) -> Answer:
    missing = without_kernel(facts.operators)
    if missing:
        return Answer("no", f"ExecuTorch has no kernel for {_some(missing)}.", _replacement(missing))
    if any(d.startswith("complex") for d in facts.dtypes):
        return Answer("no", "The network computes with complex numbers, which ExecuTorch's kernels don't.", _COMPLEX)
    slow = facts.dtypes & {"float64", "bfloat16"}
    if slow:
        why = f"Tensors of {_some(sorted(slow))} stay on slow portable kernels; XNNPACK takes float32 and float16."
        return Answer("partly", why, "Convert the model with model.float() before exporting it.")
    work = sum(facts.macs.values())
    outside = {name: n for name, n in facts.macs.items() if name.partition(".")[2] not in XNNPACK_WORK}
    if work and sum(outside.values()) > 0.1 * work:
        share = 100 * sum(outside.values()) / work
        why = f"{share:.0f} % of the work is in {_some(sorted(outside))}, which XNNPACK doesn't speed up."
        return Answer("partly", why, "It runs, on slower portable kernels; measure it on the phone with edgesdk bench.")
    if not work:
        return Answer("yes")
    return Answer(
        "yes", f"{100 - 100 * sum(outside.values()) / work:.0f} % of the work is of kinds that XNNPACK speeds up."
    )


def _replacement(missing: list[str]) -> str:
    from edgesdk.runtimes._et_kernels import REPLACEMENTS

    known = [name.partition(".")[2].removesuffix("_") for name in missing]
    advice = [f"Instead of {name}: {REPLACEMENTS[name]}." for name in known if name in REPLACEMENTS]
    return " ".join([*advice, "Or choose --runtime onnx or --runtime torchscript, which take more operators."])


def _torchscript(facts: ProgramFacts) -> Answer:
    from edgesdk.runtimes import _ts_ops

    try:
        _ts_ops.check({name: 0 for name in facts.targets if not name.startswith("quantized_decomposed::")})
    except UnsupportedError as error:
        newer = all(_ts_ops.is_newer(name) for name in error.details.get("operators", ()))
        return Answer("partly" if newer else "no", error.message, error.fix)
    if any(name.startswith("quantized_decomposed.") for name in facts.operators):
        why = "The graph is quantized in ExecuTorch's form, which TorchScript doesn't know."
        return Answer("no", why, "Package the float model with --runtime torchscript --quantize static-int8.")
    if "while_loop" in facts.operators:
        return Answer("partly", "Loops of torch.while_loop are not translated.", "Unroll the loop, or use ExecuTorch.")
    return Answer("yes", _SUCCESSOR)


def _onnx(facts: ProgramFacts) -> Answer:
    own = sorted({n for n in facts.operators if n.partition(".")[0] not in ("aten", "prims", "torchvision")} - _CONTROL)
    own = [name for name in own if "." in name and not name.startswith("quantized_decomposed.")]
    if own:
        why = f"{_some(own)} is no operator of PyTorch's own, and ONNX has none of that name."
        return Answer("no", why, "Rewrite that layer with plain torch operators.")
    if any(d.startswith("complex") for d in facts.dtypes):
        return Answer("partly", "ONNX has no complex numbers beyond the Fourier transforms.", _COMPLEX)
    return Answer("yes")


_CONTROL = frozenset({"cond", "while_loop"})


def refused(error: EdgeError) -> Answers:
    """When torch's graph can't be had at all."""
    return {name: Answer("no", error.message, error.fix) for name in NAMES}


def of_script(operators: Mapping[str, int], inputs: Sequence[TensorSpec]) -> Answers:
    """For a TorchScript archive whose input sizes aren't known yet."""
    option = " ".join(f"--input '{_option(spec)}'" for spec in inputs)
    flow = sorted({"prim.If", "prim.Loop"} & set(operators))
    why = "It is converted to an exported program first, and TorchScript doesn't say the sizes of its inputs."
    converted = Answer("partly", why, f"Say the sizes, with your numbers for SIZES: {option}")
    itself = (
        f"It is taken as it is, and checked at the sizes of its inputs, which TorchScript doesn't say. {_SUCCESSOR}"
    )
    if flow:
        branches = " and ".join({"prim.If": "branches", "prim.Loop": "loops"}[name] for name in flow)
        converted = replace(
            converted, why=f"Its {branches} may depend on the data, which the conversion can't always follow."
        )
    missing = without_kernel(tensor_operators(operators))
    executorch = (
        Answer("no", f"ExecuTorch has no kernel for {_some(missing)}.", _replacement(missing)) if missing else converted
    )
    return {"executorch": executorch, "torchscript": replace(converted, why=itself), "onnx": converted}


def _option(spec: TensorSpec) -> str:
    """``x=float32[SIZES]``; a plain number of TorchScript is a tensor without dimensions: ``rate=int64[]``."""
    return f"{spec.name}=float32[SIZES]" if spec.dtype == UNKNOWN else f"{spec.name}={spec.dtype}[]"


def of_weights(form: str, candidates: tuple[str, ...]) -> Answers:
    """For weights without a network; ``candidates`` are architectures whose names of layers they have."""
    kind = "a Lightning checkpoint" if form == "lightning" else "a table of weights"
    fix = "Say where the network's code is: --arch file.py:FACTORY (or torchvision:NAME, timm:NAME)."
    if candidates:
        others = f" (or {_some([c.partition(':')[2] for c in candidates[1:]])})" if len(candidates) > 1 else ""
        fix = f"Their names are those of {candidates[0]}{others}: add --arch {candidates[0]}"
    return _all(Answer("partly", f"The file is {kind}; the network that they belong to isn't in it.", fix))


def of_pickle(dangerous: tuple[str, ...]) -> Answers:
    """For a pickled module."""
    if dangerous:
        why = f"Its pickle calls {_some(list(dangerous))}, which no network needs and an attack does."
        return _all(Answer("no", why, "Don't load this file anywhere. Get the weights from a source you trust."))
    return _all(Answer(
        "no", "It is a pickled module, and reading it would run code that the file names.",
        "Safer: save torch.export.save(torch.export.export(model, inputs), 'model.pt2') where its code is. "
        "If you trust the file: --trust-pickle.",
    ))  # fmt: skip


def of_folder(own_code: bool) -> Answers:
    """For a Hugging Face folder."""
    if own_code:
        why = "The model is defined by Python code in the folder, which edgesdk doesn't run."
        return _all(Answer("no", why, "Write a factory that builds it, and give file.py:FACTORY."))
    why = "The network is built from its configuration when it is packaged; only that shows every operator."
    return _all(Answer("partly", why, "Try it: edgesdk package FOLDER --runtime executorch"))


def of_onnx(facts: OnnxFacts) -> Answers:
    """For an ONNX file: ONNX Runtime takes it as it is, the others after a conversion to PyTorch."""
    own = sorted(d for d in facts.domains if d != "com.microsoft" and not d.startswith("ai.onnx"))
    if own:
        why = f"It uses operators of {_some(own)}, which are in a library of their own."
        return _all(Answer("no", why, "Export the model again without them."))
    option = " ".join(f"--input '{spec}'" for spec in map(_sized, facts.inputs))
    taken = (
        Answer("yes", "It leaves sizes of its inputs open.", f"Say them: {option}") if _open(facts) else Answer("yes")
    )
    converted = _converted(facts, option)
    return {"executorch": converted, "torchscript": converted, "onnx": taken}


def _converted(facts: OnnxFacts, option: str) -> Answer:
    from edgesdk.importing._onnx_ops import OPERATORS

    importlib.import_module("edgesdk.importing._onnx_module")  # fills the table
    unknown = sorted(set(facts.operators) - {*OPERATORS, "Constant", "If"})
    if unknown:
        why = f"It is converted to PyTorch first, and the converter doesn't know {_some(unknown)}."
        return Answer("no", why, "Use --runtime onnx, or package the PyTorch model that it was exported from.")
    if "If" in facts.operators:
        why = (
            "It is converted to PyTorch first; an If is taken over only when its condition doesn't depend on the data."
        )
        return Answer(
            "partly", why, "Try it; if it is refused, use --runtime onnx or export the model without branches."
        )
    if _open(facts):
        return Answer(
            "partly", "It is converted to PyTorch first, and leaves sizes of its inputs open.", f"Say them: {option}"
        )
    return Answer("yes", "It is converted to PyTorch first; the converter knows all its operators.")


def _open(facts: OnnxFacts) -> bool:
    return any(isinstance(d, Dim) and d.max == NO_BOUND for spec in facts.inputs for d in (spec.shape or ())[1:])


def _sized(spec: TensorSpec) -> str:
    """A likely size for every open one: 1 sample, pictures of 224, sequences of 128."""
    usual = {4: (1, 3, 224, 224), 3: (1, 128, 80)}.get(len(spec.shape or ()), (1, 128))
    dims = [str(usual[min(i, len(usual) - 1)] if isinstance(d, Dim) else d) for i, d in enumerate(spec.shape or ())]
    return f"{spec.name}={spec.dtype}[{','.join(dims)}]"


_OWNERS = {"executorch": "executorch", "torchscript_lite": "torchscript", "ort": "onnx"}
_KINDS = {
    "executorch": "an ExecuTorch program",
    "torchscript_lite": "bytecode for PyTorch Mobile",
    "ort": "a file for ONNX Runtime",
}


def of_product(form: str, status: Status = "yes", why: str | None = None, fix: str | None = None) -> Answers:
    """For a finished file: its own runtime takes it, and it can't be lowered again."""
    owner = _OWNERS[form]
    again = "Package the model that it was made from; to ship this file as it is: edgesdk bundle FILE --against MODEL."
    other = Answer("no", f"It is {_KINDS[form]}; the graph that another runtime needs is gone.", again)
    own = Answer(status, why or (_SUCCESSOR if owner == "torchscript" else None), fix)
    return {name: own if name == owner else other for name in NAMES}


def of_bundle(runtimes: Mapping[str, int]) -> Answers:
    """For a bundle with that many variants by runtime."""
    found: Answers = {}
    for name in dict.fromkeys((*NAMES, *runtimes)):
        if name in runtimes:
            found[name] = Answer("yes", f"{runtimes[name]} variant(s) in the bundle.")
        else:
            found[name] = Answer(
                "no", "The bundle holds no variant for it.", f"Package the model again with --runtime {name}."
            )
    return found


def _all(answer: Answer) -> Answers:
    return dict.fromkeys(NAMES, answer)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
