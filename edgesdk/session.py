"""Run a bundle: ``edgesdk.load("x.edge").run({"input": array})``."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesdk import _variants
from edgesdk._feed import Feed, dtype_of
from edgesdk.artifacts import Signature
from edgesdk.bundle import EdgeBundle, Manifest, _errors
from edgesdk.bundle.manifest import GoldenTensor, Variant
from edgesdk.errors import EdgeError, InputError, UsageError

if TYPE_CHECKING:
    from edgesdk.preprocess import Label
    from edgesdk.runtimes import EdgeRuntime, Runner


def load(
    path: Path | str, variant: str | None = None, *, key: Path | str | None = None, threads: int | None = None
) -> Session:
    """Open a bundle, check all of it, and load one of its variants.

    Args:
        variant: id of the variant; None takes the first, in the bundle's order of preference, that runs here.
        key: public key (``KEY.pub``) that the bundle must be signed with.
        threads: number of threads for the engine; None leaves it to the engine.

    Raises:
        InputError: the bundle is missing or damaged.
        IntegrityError: a hash or the signature is wrong, or the signature is not by ``key``.
        UsageError: there is no such variant.
        MissingToolError: an engine is needed that is not installed; the message says how to install it.
        UnsupportedError: the variant does not run on this machine.
    """
    with EdgeBundle.open(Path(path), key=key) as bundle:
        return open_session(bundle, variant, threads=threads)


def open_session(bundle: EdgeBundle, variant: str | None = None, *, threads: int | None = None) -> Session:
    """Load a variant of an open bundle; raises as :func:`load`. The bundle may be closed afterwards."""
    chosen, runtime = _variants.choose(bundle.manifest, variant)
    if not bundle.checked:
        bundle.check()
    try:
        folder = Path(tempfile.mkdtemp(prefix="edgesdk-"))  # mode 0700: nobody else can swap the file under the engine
    except OSError as exc:
        raise _errors.unwritable(Path(tempfile.gettempdir()), exc) from exc
    try:
        for name in (chosen.file, *chosen.extra_files):
            bundle.extract(name, folder / name)
        runner = _load(runtime, folder / chosen.file, bundle.manifest.spec, threads)
        golden = {t.file: bundle.file(t.file) for g in bundle.manifest.golden for t in (*g.inputs, *g.outputs)}
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Session(bundle.manifest, chosen, runner, golden=golden, folder=folder)


def _load(runtime: EdgeRuntime, path: Path, signature: Signature, threads: int | None) -> Runner:
    if threads is not None and threads < 1:
        raise UsageError(
            "bad_threads",
            f"threads={threads} is not possible.",
            why="An engine needs at least one.",
            fix="Give 1 or more.",
        )
    try:
        return runtime.load(path, signature, threads=threads)
    except EdgeError:
        raise
    except Exception as exc:
        raise InputError(
            "load_failed", f"{runtime.name} can't load {path.name}: {_first_line(exc)}.",
            why="The file was made for another version or build of the engine.", fix="Build the bundle again: edgesdk package MODEL",
        ) from exc  # fmt: skip


@dataclass(frozen=True)
class OutputTest:
    """One output over all golden calls. ``snr_db`` is None when the error is exactly zero."""

    name: str
    max_abs_error: float
    tolerance: float
    snr_db: float | None

    @property
    def ok(self) -> bool:
        return self.max_abs_error <= self.tolerance


@dataclass(frozen=True)
class SelfTest:
    """What :meth:`Session.self_test` found. ``calls`` is 0, and ``ok`` false, when the bundle has no golden vectors."""

    variant: str
    calls: int
    outputs: tuple[OutputTest, ...]

    @property
    def ok(self) -> bool:
        return self.calls > 0 and all(o.ok for o in self.outputs)


class Session:
    """A loaded variant. Calls from several threads are run one after the other.

    with edgesdk.load("digits.edge") as session:
        scores = session.run({"input": array})["output"]
    """

    def __init__(
        self,
        manifest: Manifest,
        variant: Variant,
        runner: Runner,
        *,
        golden: Mapping[str, memoryview] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Callers use :func:`load`. ``folder`` holds the file that the engine reads and is removed with the session."""
        self.manifest = manifest
        self.variant = variant
        self.spec: Signature = manifest.spec
        self._runner: Runner | None = runner
        self._golden = dict(golden or {})
        self._feed = Feed(self.spec, manifest.name)
        self._outputs = tuple(spec.name for spec in self.spec.outputs)
        self._lock = threading.Lock()
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True) if folder else None

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once.

        Args:
            inputs: an array for every input, by name, of exactly the signature's dtype and a shape it allows. Arrays that
                are not C-contiguous are copied; others reach the engine as they are.

        Returns:
            Every output by name, in the signature's order. The arrays belong to the caller.

        Raises:
            InputError: a name, dtype or shape does not fit, or the engine refuses the values.
            UsageError: the session is closed.
        """
        with self._lock:
            return self._run(inputs)

    def _run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        runner = self._open()
        feed = self._feed.bind(inputs)
        try:
            values = runner.run(feed)
        except EdgeError:
            raise
        except Exception as exc:
            raise self._engine_error(exc) from exc
        if len(values) != len(self._outputs):
            raise InputError(
                "wrong_outputs", f"'{self.variant.id}' gave {len(values)} outputs, not {len(self._outputs)}.",
                why="The file in the bundle is not the one that the manifest describes.", fix=_errors.AGAIN,
            )  # fmt: skip
        return dict(zip(self._outputs, values, strict=True))

    def classify(self, image: Any, top: int = 5) -> list[Label]:
        """The ``top`` likeliest classes of a picture (path, PIL image, or uint8 array [H, W, 3]), best first.

        Raises:
            InputError: the bundle doesn't say how a picture becomes the input, or how classes are read from the output.
        """
        from edgesdk.preprocess import Postprocess, PreprocessSpec

        if top < 1:
            raise UsageError("bad_top", f"top={top} is not possible.", why="It counts classes.", fix="Give 1 or more.")
        self._open()
        manifest = self.manifest
        if manifest.preprocess is None:
            raise self._lacks("preprocessing", "package MODEL --image 224 --mean … --std …")
        if manifest.postprocess is None or manifest.postprocess.get("kind") != "classify":
            raise self._lacks("classification", "package MODEL --labels FILE")
        if len(self.spec.inputs) != 1:
            raise self._lacks("single input", "inspect FILE")
        spec = PreprocessSpec.from_json(manifest.preprocess).bind(self.spec.inputs)
        post = replace(Postprocess.from_json(manifest.postprocess), top_k=top)
        outputs = self.run({str(spec.input): spec.apply(image)})
        found: list[Label] = post.apply(outputs, labels=manifest.labels)
        return found

    def self_test(self) -> SelfTest:
        """Run the bundle's golden vectors and compare with the answers of the original model.

        Each sequence starts from the initial state, and so does the session afterwards.
        """
        worst = {name: _Worst() for name in self._outputs}
        with self._lock:
            runner, last = self._open(), None
            for call in sorted(self.manifest.golden, key=lambda g: (g.sequence, g.step)):
                if call.sequence != last:
                    runner.reset()
                    last = call.sequence
                outputs = self._run({t.name: self._tensor(t) for t in call.inputs})
                for tensor in call.outputs:
                    worst[tensor.name].add(self._tensor(tensor), outputs[tensor.name])
            runner.reset()
        tolerances = self.variant.tolerances
        tests = tuple(OutputTest(name, w.error, tolerances.get(name, 0.0), w.snr_db) for name, w in worst.items())
        return SelfTest(self.variant.id, len(self.manifest.golden), tests if self.manifest.golden else ())

    def reset(self) -> None:
        """Forget the state that earlier calls left behind."""
        with self._lock:
            self._open().reset()

    def close(self) -> None:
        """Free the engine's memory and the temporary file. Closing twice is harmless."""
        with self._lock:
            runner, self._runner = self._runner, None
            self._golden.clear()
            if runner is not None:
                runner.close()
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._runner is None else "open"
        return f"Session({self.manifest.name!r}, variant={self.variant.id!r}, {state})"

    def _open(self) -> Runner:
        if self._runner is None:
            raise UsageError(
                "session_closed", f"The session of {self.manifest.name} is closed.", why="close() was called, or a with-block ended.",
                fix="Load the bundle again, or keep the session open for as long as it is used.",
            )  # fmt: skip
        return self._runner

    def _tensor(self, tensor: GoldenTensor) -> np.ndarray:
        raw = self._golden[tensor.file]
        if tensor.dtype == "bfloat16":  # the upper half of a float32
            return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
        stored = dtype_of(tensor.dtype)
        return np.frombuffer(raw, stored.newbyteorder("<")).astype(stored).reshape(tensor.shape)

    def _engine_error(self, exc: Exception) -> InputError:
        return InputError(
            "run_failed", f"'{self.variant.id}' of {self.manifest.name} did not run: {_first_line(exc)}.",
            why=f"The engine ({self.variant.runtime}) refused these values.", fix="Check the values, or try another variant.",
        )  # fmt: skip

    def _lacks(self, what: str, command: str) -> InputError:
        return InputError(
            "not_a_classifier", f"{self.manifest.name} has no {what}, so it can't classify a picture.",
            why="The manifest holds only what was known when the model was packaged.",
            fix=f"Use session.run(), or build the bundle again: edgesdk {command}",
        )  # fmt: skip


class _Worst:
    """Errors of one output, gathered over calls in double precision."""

    def __init__(self) -> None:
        self.error = 0.0
        self._signal = self._noise = 0.0

    def add(self, wanted: np.ndarray, got: np.ndarray) -> None:
        if wanted.shape != got.shape:
            self.error = float("inf")
            return
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        one, other = wanted.astype(wide), np.asarray(got).astype(wide)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        if not np.isfinite(one[~same]).all() or not np.isfinite(other[~same]).all():
            self.error = float("inf")
            return
        gap = np.abs(np.where(same, 0, one - other))
        self.error = max(self.error, float(gap.max(initial=0.0)))
        self._noise += float(np.square(gap).sum())
        self._signal += float(np.square(np.abs(np.where(np.isfinite(one), one, 0))).sum())

    @property
    def snr_db(self) -> float | None:
        if self._noise == 0.0:
            return None
        return float(10 * np.log10(self._signal / self._noise)) if self._signal else float("-inf")


def _first_line(exc: Exception) -> str:
    lines = str(exc).strip().splitlines()
    return (lines[0] if lines else type(exc).__name__).rstrip(".")
