"""Fewer copies of the weights in memory while ExecuTorch lowers; the bytes of the file stay the same.

* XNNPACK's preprocessing works on a deep copy of each partition, all of them made first. Its passes put new tensors in the
  place of old ones and write into none, so the copy of the program shares its tensors with the original.
* Weights that it fused with batch norms are serialized one after the other, each once, and not read again.
* The file's parts stay in the lowered program after they are written, and a cache of fake tensors keeps that program.

As with ``_et_fast``, the swaps are for the sources that were read and tested only.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from edgesdk.runtimes._et_patch import Swap

if TYPE_CHECKING:
    from torch.export import ExportedProgram

SOURCES = ("executorch:exir/backend/backend_details.py", "executorch:backends/xnnpack/operators/node_visitor.py")
"""Besides those of ``_et_fast``, which has the passes."""


def swaps() -> list[Swap]:
    """See the module's text."""
    from executorch.backends.xnnpack.operators import node_visitor
    from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
    from executorch.exir.backend.backend_details import BackendDetails

    name = "copy_exported_program_for_preprocess"
    return [
        Swap(BackendDetails, name, _sharing(vars(BackendDetails)[name].__func__, XnnpackBackend)),
        Swap(XnnpackBackend, "preprocess", _emptied(XnnpackBackend.preprocess)),
        Swap(node_visitor, "get_param_tensor", _read_once(node_visitor.get_param_tensor)),
    ]


def _sharing(plain: Any, backend: Any) -> Any:
    def copied(cls: Any, program: ExportedProgram, specs: Any) -> ExportedProgram:
        if cls is not backend:
            return plain(cls, program, specs)  # type: ignore[no-any-return]
        tensors = (*program.state_dict.values(), *program.constants.values())
        return copy.deepcopy(program, {id(tensor): tensor for tensor in tensors})

    return classmethod(copied)


def _emptied(plain: Any) -> Any:
    def preprocess(program: ExportedProgram, specs: Any) -> Any:
        done = plain(program, specs)
        program.state_dict.clear()  # the dictionary that all passes worked on, not the original's
        program.constants.clear()
        return done

    return staticmethod(preprocess)


_FUSED = "_fused_bn"
"""How ``fuse_batch_norm.py`` ends the names of its weights."""


def _read_once(plain: Any) -> Any:
    def get_param_tensor(program: ExportedProgram, node: Any) -> Any:
        found = plain(program, node)
        if node.name.endswith(_FUSED):
            program.state_dict.pop(node.name, None)
        return found

    return get_param_tensor


def forget_parts(edge: ExportedProgram) -> None:
    """Let go of the weights in the delegates of a program that is written, and of what they gave to the file."""
    for module in edge.graph_module.modules():
        if hasattr(module, "_named_data_store_output"):
            module._named_data_store_output = None
            module.original_module.state_dict.clear()
            module.original_module.constants.clear()
