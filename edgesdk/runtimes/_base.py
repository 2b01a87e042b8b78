"""The seam that every runtime fills: lower a model to a file, load the file, run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from edgesdk.artifacts import LayerError, Lowered, Model, Rung, Signature

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray


@dataclass(frozen=True)
class LowerConfig:
    """What is asked of ``EdgeRuntime.lower``.

    Attributes:
        backend: a member of the runtime's ``backends``; None takes the first.
        quantization: ``none`` or the name of a scheme of ``edgesdk.quantize``.
        options: fields of the scheme that differ from its defaults.
        calibration: folder of a ``edgesdk.data.Store`` with calibration samples; None when there are none.
        keep_float: layers (``Layer.name``) that the scheme must leave in float.
        seed: of everything that is drawn at random (QAT's batches).
        rung: where on the ladder to begin. The pipeline asks again one rung lower when verification failed.
        opset: ONNX opset; None takes the runtime's default.
        ort_format: write ONNX Runtime's ``.ort`` instead of ``.onnx``.
        bytecode: TorchScript Lite bytecode version 4…8; None takes torch's own.
        external_data_bytes: an ONNX file above this many bytes keeps its weights in a second file.
    """

    backend: str | None = None
    quantization: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    calibration: Path | None = None
    keep_float: tuple[str, ...] = ()
    seed: int = 0
    rung: Rung = "full"
    opset: int | None = None
    ort_format: bool = False
    bytecode: int | None = None
    external_data_bytes: int = 2**31 - 2**20


class Runner(ABC):
    """A loaded file. Not thread-safe; callers (``edgesdk.Session``) check names, dtypes and shapes first."""

    @abstractmethod
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once. Inputs are C-contiguous, in the order of the signature; so are the outputs, owned by the caller."""

    def reset(self) -> None:  # noqa: B027 - most engines keep no state
        """Forget the state that earlier calls left in mutable buffers."""

    def close(self) -> None:  # noqa: B027 - most engines free themselves
        """Free native memory. The runner must not be used afterwards."""


class EdgeRuntime(ABC):
    """One engine. A subclass lives in one file that ends with ``RUNTIME = ItsClass()`` and is found by scanning."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    backends: ClassVar[tuple[str, ...]] = ()
    """Back ends by preference; empty when the runtime has none."""
    runs_here: ClassVar[frozenset[str]] = frozenset()
    """Back ends whose files this machine's engine can execute (Core ML can't on Linux)."""
    stand_ins: ClassVar[frozenset[str]] = frozenset()
    """Back ends whose files don't run here, but whose quantized ones :meth:`load` can judge by something that computes alike,
    as long as they lie where :meth:`lower` wrote them."""
    quantizations: ClassVar[tuple[str, ...]] = ("none", "fp16")
    never_half: ClassVar[frozenset[str]] = frozenset()
    """Operators, as ``aten::name``, whose float16 kernels of this engine can't be trusted; they are computed in float32."""

    @abstractmethod
    def missing(self) -> str | None:
        """None when the engine's libraries are installed, else a sentence that says what is missing."""

    @abstractmethod
    def version(self) -> str:
        """Version of the engine's library, read without importing it."""

    def warm_up(self, *, lowering: bool) -> None:  # noqa: B027 - nothing to load for the test double
        """Import what :meth:`lower` (or, without ``lowering``, :meth:`load`) needs, while there is nothing else to do."""

    @abstractmethod
    def lower(self, model: Model, config: LowerConfig, out: Path) -> Lowered:
        """Write ``out`` (suffix included) from the model.

        Raises:
            UnsupportedError: an operator, dtype or shape that this runtime can't take.
        """

    def layer_errors(
        self, model: Model, config: LowerConfig, samples: int, *, alone: bool = True
    ) -> tuple[LayerError, ...]:
        """How much noise the scheme of ``config`` puts into each layer that it quantizes, the noisiest first.

        Args:
            samples: calibration samples to measure on.
            alone: also quantize one layer at a time and measure its effect on the outputs; the order then follows that.
                It costs a part of a run for each layer and sample.
        """
        return ()

    @abstractmethod
    def load(self, path: Path, signature: Signature, *, threads: int | None = None) -> Runner:
        """Load a file made by ``lower`` (or by the user).

        ``threads`` is the number of CPU threads; None leaves it to the engine. ExecuTorch and PyTorch have one pool of
        threads per process: PyTorch's takes the last number given, ExecuTorch's the first while any of its files is open.

        Raises:
            InputError: the file is damaged or of another kind.
            UnsupportedError: the file needs a back end or operator that this engine lacks.
        """
