"""Load a file into an emulated process and call it: the same contract as the engines on this machine."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk._feed import Feed
from edgesdk.emulated import _place as place
from edgesdk.emulated._host import host_cpu
from edgesdk.emulated._process import Process, file_word
from edgesdk.errors import DeviceError, EdgeError, InputError, UnsupportedError
from edgesdk.runtimes._base import Runner

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.artifacts import Signature
    from edgesdk.emulated._wire import Greeting

    Array = np.ndarray

TIMEOUT_S = 600.0
_START_S = 60.0
_LACKS = re.compile(
    r"Missing operator: \[\d+\] (\S+)|Could not find an implementation for (\S+)|Backend (\S+) is not registered"
)


class EmulatedRunner(Runner):
    """A file loaded on emulated arm64. Not thread-safe; callers check names, dtypes and shapes first.

    Each call may take ``timeout_s`` seconds, or all until ``deadline`` (of time.monotonic) when it is set. After a crash or a timeout the next call starts a new process.
    """

    def __init__(
        self, runtime: str, path: Path, signature: Signature, *, timeout_s: float = TIMEOUT_S, cpu: str = place.CPU
    ) -> None:
        """
        Raises:
            MissingToolError: the emulated phone isn't set up.
            InputError: the file is missing, damaged, of another kind or not the one that the signature describes.
            UnsupportedError: the engine's arm64 build lacks an operator that it needs.
            DeviceError: emulation crashed or took too long.
        """
        if not path.is_file():
            raise InputError(
                "file_missing",
                f"There is no file {path.name}.",
                why="It was moved or never made.",
                fix="Check the path.",
            )
        self._runtime, self._path, self._signature, self._cpu = runtime, path, signature, cpu
        self.timeout_s = timeout_s
        self.deadline: float | None = None
        self._used = self._closed = False
        self._process: Process | None = None
        self.greeting: Greeting = self._start()
        self._order = _order(signature, self.greeting, path)
        self._outputs = _output_order(signature, self.greeting, path)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        from edgesdk.emulated import _wire

        dtypes = self._checked(inputs)
        # One that ended since the last call isn't replaced, but told: it took its state along.
        if not self._closed and self._process is None:
            self._start()
        self._used = True
        pieces = _wire.request([inputs[at] for at in self._order], dtypes)
        found = self._ask(pieces, _wire.answer)
        return [found[at] for at in self._outputs]

    def reset(self) -> None:
        """Forget the state that earlier calls left in mutable buffers."""
        if self._used and self._process is not None and self._process.alive:
            self._ask([b"Z"], lambda read: None)
        self._used = False

    def close(self) -> None:
        """End the process."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> EmulatedRunner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> Greeting:
        from edgesdk.emulated import _wire

        self._end()
        words = [file_word(self._path)]
        if self._runtime == "onnx":
            from edgesdk.runtimes._onnx_run import is_ort

            words.append("ORT" if is_ort(self._path) else "ONNX")
        self._process = Process(self._runtime, words, self._path.name, self._cpu)
        greeting: Greeting = self._ask(None, _wire.greeting)
        return greeting

    def _ask(self, pieces: Sequence[bytes | memoryview] | None, parse: Any) -> Any:
        """Send, and read the answer. The process is ended when it no longer can be talked to."""
        from edgesdk.emulated import _wire

        process = self._process
        if process is None or self._closed:
            raise DeviceError(
                "emulation_closed", f"{self._path.name} was closed.", why="close() was called.", fix="Load it again."
            )
        try:
            deadline = time.monotonic() + self.timeout_s if self.deadline is None else self.deadline
            with process.until(deadline, self.timeout_s):
                if pieces is not None:
                    process.send(pieces)
                if process.read(1) == b"O":
                    return parse(process.read)
                refusal = _wire.text(process.read)
        except BaseException:
            self._end()
            raise
        if pieces is None:
            said = "; ".join(filter(None, (_in_words(refusal), process.said())))
            self._end()
            raise _not_loaded(self._path, said)
        raise _not_run(self._path, _in_words(refusal))

    def _checked(self, inputs: Sequence[Array]) -> list[str]:
        """dtypes on the wire. The engines compute with whatever is in memory when an input is too few or too short."""
        from edgesdk.emulated import _wire

        if len(inputs) != len(self._signature.inputs):
            raise InputError(
                "wrong_inputs", f"{self._path.name} takes {len(self._signature.inputs)} inputs, {len(inputs)} were given.",
                why="Every input of the signature is needed.",
                fix=f"Give {', '.join(spec.name for spec in self._signature.inputs)} in this order.",
            )  # fmt: skip
        dtypes = []
        for at, (_, wanted) in zip(self._order, self.greeting.inputs, strict=True):
            given = str(inputs[at].dtype)
            held = "float32" if wanted == "bfloat16" else wanted
            if wanted is None or given != held or not _wire.knows(wanted):
                raise InputError(
                    "dtype_mismatch", f"The input '{self._signature.inputs[at].name}' is {given}, but the file takes {held}.",
                    why="dtypes are fixed when the model is lowered.", fix="Convert the array, or lower the model anew.",
                )  # fmt: skip
            dtypes.append(wanted)
        return dtypes


def load(runtime: str, path: Path, signature: Signature, *, timeout_s: float = TIMEOUT_S) -> EmulatedRunner:
    """Load a file on emulated arm64; see :class:`EmulatedRunner` for what it raises."""
    return EmulatedRunner(runtime, path, signature, timeout_s=timeout_s)


def run(
    runtime: str,
    path: Path,
    signature: Signature,
    feeds: Iterable[Mapping[str, Array]],
    *,
    timeout_s: float = TIMEOUT_S,
) -> list[dict[str, Array]]:
    """What an arm64 processor answers: the outputs by name for each feed, in one emulated process with one thread.

    State is forgotten between feeds; use :func:`load` for sequences.

    Args:
        runtime: ``executorch`` or ``onnx``.
        path: the ``.pte``, ``.onnx`` or ``.ort``.
        feeds: inputs by name, as :class:`edgesdk.Session` takes them; they are taken one by one.
        timeout_s: for everything together, in seconds.

    Raises:
        MissingToolError: the emulated phone isn't set up.
        InputError: the file or a feed isn't what the signature says.
        UnsupportedError: the engine's arm64 build lacks an operator that the file needs.
        DeviceError: emulation crashed or took too long.
    """
    bind = Feed(signature, path.name).bind
    names = [spec.name for spec in signature.outputs]
    deadline = time.monotonic() + timeout_s
    found = []
    with EmulatedRunner(runtime, path, signature, timeout_s=timeout_s) as runner:
        runner.deadline = deadline
        for feed in feeds:
            runner.reset()
            found.append(dict(zip(names, runner.run(bind(feed)), strict=True)))
    return found


def describe(cpu: str = place.CPU) -> dict[str, Any]:
    """The emulated phone, for reports: emulator, processor and its features, engines and their versions, and the host.

    Raises:
        MissingToolError: nothing is set up.
    """
    from edgesdk.emulated import _wire

    ready = [runtime for runtime in place.RUNTIMES if place.missing(runtime) is None]
    if not ready:
        place.needed(place.RUNTIMES[0])
    process = Process(ready[0], [], "The runner", cpu)
    try:
        with process.until(time.monotonic() + _START_S, _START_S):
            process.read(1)
            features = _wire.greeting(process.read).features
    finally:
        process.close()
    return {
        "emulator": _qemu_version(),
        "cpu": cpu,
        "features": list(features),
        "libraries": {runtime: place.version(runtime) for runtime in ready},
        "threads": 1,
        "timing_valid": False,
        "host": host_cpu().to_json(),
    }


def _qemu_version() -> str:
    program = str(place.qemu())
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_START_S, check=False)
    found = re.search(r"version (\S+)", done.stdout)
    return f"qemu-aarch64 {found[1] if found else 'of unknown version'}"


def _order(signature: Signature, greeting: Greeting, path: Path) -> list[int]:
    """For each input of the file, its place in the signature. An ONNX input that the graph doesn't use is left out."""
    own, wanted = [name for name, _ in greeting.inputs], [spec.name for spec in signature.inputs]
    if any(own) and set(own) <= set(wanted):
        return [wanted.index(name) for name in own]
    if len(own) == len(wanted) or (not any(own) and len(own) == 0):
        return list(range(len(own)))
    raise _other_file(path, f"takes {len(own)} inputs, not {len(wanted)}")


def _output_order(signature: Signature, greeting: Greeting, path: Path) -> list[int]:
    own, wanted = list(greeting.outputs), [spec.name for spec in signature.outputs]
    if len(own) != len(wanted):
        raise _other_file(path, f"gives {len(own)} outputs, not {len(wanted)}")
    if sorted(own) == sorted(wanted) and len(set(own)) == len(own):
        return [own.index(name) for name in wanted]
    return list(range(len(own)))


def _other_file(path: Path, how: str) -> InputError:
    return InputError(
        "signature_mismatch", f"{path.name} {how}.", why="The file isn't the one that the signature describes.",
        fix="Lower the model again.",
    )  # fmt: skip


def _not_loaded(path: Path, said: str) -> EdgeError:
    lacks = sorted({next(filter(None, found)) for found in _LACKS.findall(said)})
    if lacks:
        return UnsupportedError(
            "unsupported_op", f"The arm64 engine lacks what {path.name} needs: {', '.join(lacks)}.",
            why="The engine's arm64 build has other kernels than the one on this machine.",
            fix="Lower for another back end, or leave these operators out.", details={"operators": lacks},
        )  # fmt: skip
    return InputError(
        "bad_model_file", f"{path.name} can't be loaded on emulated arm64.",
        why=f"It is damaged, cut short, or of another kind: {said[:500]}.", fix="Lower the model again.",
    )  # fmt: skip


def _in_words(said: str) -> str:
    """ExecuTorch answers with a number."""
    from edgesdk.runtimes._et_native import CODE, ERROR_WORDS

    found = CODE.search(said)
    words = ERROR_WORDS.get(int(found[1], 16)) if found else None
    return f"{words} ({said})" if words else " ".join(said.split()).rstrip(".")


def _not_run(path: Path, said: str) -> InputError:
    return InputError(
        "run_failed", f"{path.name} did not run on this input on emulated arm64.", why=f"The engine reports {said[:400]}.",
        fix="Give shapes and dtypes as the signature says (edgesdk inspect).",
    )  # fmt: skip
