"""Say what a model file is: format, signature, size, work, operators, and what each runtime will make of it.

Nothing in a file is executed and nothing is lowered. ``.onnx``, ``.ort``, ``.pte``, ``.ptl``, ``.edge`` and weights are
read from their headers, without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model
from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.importing import ImportOptions, Located, import_model, locate
from edgesdk.inspection import _answers as answers
from edgesdk.inspection._result import Answer, Inspection
from edgesdk.inspection._summary import summarize

if TYPE_CHECKING:
    from edgesdk.inspection._onnx import OnnxFacts

__all__ = ["Answer", "Inspection", "inspect"]


def inspect(source: str | Path, options: ImportOptions | None = None) -> Inspection:
    """What ``source`` is: a file, a folder, or anything else that ``package`` takes.

    With ``--arch`` (weights), ``--trust-pickle`` (pickled modules) or ``--input`` (TorchScript) the model is imported as
    ``package`` would, and the answer is that of the whole network.

    Raises:
        InputError: it is missing, damaged, or no model.
        MissingToolError: onnx (for ``.onnx``) or torch (for ``.pt2`` and TorchScript) isn't installed.
    """
    options = options or ImportOptions()
    located = locate(str(source), options)
    reader = _READERS.get(located.source.format) if located.path is not None else None
    if located.kind in ("named", "python_file") or reader is None:
        found = _imported(located, options)
    else:
        found = reader(located, options)
    found = _with(found, details={**_size(located), **found.details}, runtimes=answers.with_missing(found.runtimes))
    return _with(found, summary=summarize(found))


def _with(found: Inspection, **changes: Any) -> Inspection:
    from dataclasses import replace

    return replace(found, **changes)


def _size(located: Located) -> dict[str, int]:
    path = located.path
    if path is None:
        return {}
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    return {"file_bytes": sum(p.stat().st_size for p in files)}


# --- imported as a whole ----------------------------------------------------------------------------------------------


def _imported(located: Located, options: ImportOptions) -> Inspection:
    return _of_model(import_model(located, options))


def _of_model(model: Model) -> Inspection:
    from edgesdk.inspection._program import read_program
    from edgesdk.inspection._script import read_script

    form, signature = model.source.format, model.signature
    details: dict[str, Any] = {"warnings": [w.to_json() for w in model.warnings]} if model.warnings else {}
    if model.program is not None:
        facts = read_program(model.program)
        details["macs_by_operator"] = dict(facts.macs)
        return Inspection(
            form, signature.inputs, signature.outputs, facts.parameters, sum(facts.macs.values()), facts.operators,
            answers.of_program(facts), details,
        )  # fmt: skip
    reason = model.no_program if isinstance(model.no_program, EdgeError) else None
    if model.script is not None:
        script = read_script(model.script)
        runtimes = answers.refused(reason) if reason else answers.of_script(script.operators, ())
        runtimes["torchscript"] = answers.SCRIPT_ITSELF
        return Inspection(
            form, signature.inputs, signature.outputs, script.parameters, None, script.operators, runtimes, details
        )
    return Inspection(form, signature.inputs, signature.outputs, runtimes=answers.refused(reason) if reason else {})


def _exported_program(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._program import read_graph_file

    try:
        return _imported(located, options)
    except UnsupportedError as error:
        parameters, operators = read_graph_file(_path(located))
        return Inspection(
            "exported_program", parameters=parameters, operators=operators, runtimes=answers.refused(error)
        )


def _torchscript(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._script import load_script, read_script

    if options.inputs:
        return _imported(located, options)
    facts = read_script(load_script(_path(located)))
    return Inspection(
        "torchscript", facts.inputs, facts.outputs, facts.parameters, None, facts.operators,
        answers.of_script(facts.operators, facts.inputs),
    )  # fmt: skip


# --- read from headers ------------------------------------------------------------------------------------------------


def _state_dict(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._weights import candidates, read_weights

    if options.arch:
        return _imported(located, options)
    form = located.source.format
    facts = read_weights(_path(located), located.member)
    details = {"tensors": facts.tensors, "table": facts.table, "layers": list(facts.layers)}
    return Inspection(
        form, parameters=facts.parameters, runtimes=answers.of_weights(form, candidates(facts.shapes)), details=details
    )


def _pickled_module(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._weights import read_pickle

    if options.trust_pickle:
        return _imported(located, options)
    facts = read_pickle(_path(located))
    details = {"class": facts.module, "needs": list(facts.classes), "runs_code": list(facts.dangerous)}
    return Inspection("pickled_module", runtimes=answers.of_pickle(facts.dangerous), details=details)


def _transformers(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._weights import read_folder

    facts = read_folder(_path(located))
    details = {"model_type": facts.model_type, "architectures": list(facts.architectures), "labels": facts.labels}
    return Inspection(
        "transformers", parameters=facts.parameters, runtimes=answers.of_folder(facts.own_code), details=details
    )


def _onnx(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._onnx import read_onnx

    facts = read_onnx(_path(located), options.inputs)
    return _of_onnx("onnx", facts, answers.of_onnx(facts))


def _ort(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._onnx import read_ort

    return _of_onnx("ort", read_ort(_path(located)), answers.of_product("ort"))


def _of_onnx(form: str, facts: OnnxFacts, runtimes: Mapping[str, Answer]) -> Inspection:
    return Inspection(
        form, facts.inputs, facts.outputs, facts.parameters, facts.macs, facts.operators, runtimes, facts.details
    )


def _executorch(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._pte import details, read_pte

    facts = read_pte(_path(located))
    operators = {name.replace("::", ".", 1): n for name, n in facts.kernels.items()} | facts.delegated
    runtimes = answers.of_product("executorch")
    return Inspection("executorch", facts.inputs, facts.outputs, None, facts.macs, operators, runtimes, details(facts))


def _torchscript_lite(located: Located, options: ImportOptions) -> Inspection:
    from edgesdk.inspection._script import lite_details
    from edgesdk.runtimes import _ts_ops

    operators, details, full = lite_details(_path(located))
    try:
        _ts_ops.check(full)
        runtimes = answers.of_product("torchscript_lite")
    except UnsupportedError as error:
        runtimes = answers.of_product("torchscript_lite", "no", error.message, error.fix)
    return Inspection("torchscript_lite", operators=operators, runtimes=runtimes, details=details)


def _edge(located: Located, options: ImportOptions) -> Inspection:
    from collections import Counter

    from edgesdk.bundle import EdgeBundle

    with EdgeBundle.open(_path(located), check="layout") as bundle:
        manifest, state = bundle.manifest, bundle.signature
        runtimes = answers.of_bundle(Counter(variant.runtime for variant in manifest.variants))
        variants = [
            {
                "id": v.id, "runtime": v.runtime, "backend": v.backend, "file": v.file, "bytes": v.size,
                "delegated_fraction": v.delegated_fraction, "planned_bytes": v.planned_bytes,
                "evaluation": v.evaluation.model_dump(mode="json") if v.evaluation else None,
            }
            for v in manifest.variants
        ]  # fmt: skip
        details = {
            "name": manifest.name, "version": manifest.version, "license": manifest.license, "signature": state,
            "labels": len(manifest.labels or ()), "preprocess": (manifest.preprocess or {}).get("kind"),
            "variants": variants,
        }  # fmt: skip
        return Inspection("edge", manifest.inputs, manifest.outputs, runtimes=runtimes, details=details)


def _path(located: Located) -> Path:
    if located.path is None:
        raise InputError(
            "missing_file", f"{located.text} is no file.", why="Only files have a format.", fix="Name a file."
        )
    return located.path


_READERS: Mapping[str, Callable[[Located, ImportOptions], Inspection]] = {
    "exported_program": _exported_program,
    "torchscript": _torchscript,
    "torchscript_lite": _torchscript_lite,
    "state_dict": _state_dict,
    "lightning": _state_dict,
    "pickled_module": _pickled_module,
    "transformers": _transformers,
    "onnx": _onnx,
    "ort": _ort,
    "executorch": _executorch,
    "edge": _edge,
}
