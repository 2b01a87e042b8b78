"""A worker that ended without an answer: a death from outside is tried again, a crash is the fault of what ran there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from edgesdk.errors import EdgeError, InputError, UnsupportedError
from edgesdk.workers import WorkerCrashed

T = TypeVar("T")


def twice(what: str, action: Callable[[], T], over: Callable[[], bool] = lambda: False) -> T:
    """Run jobs, once more if a worker dies meanwhile: one death may be chance, and chance must not shape a file.

    Args:
        what: what the jobs make, for the message.
        over: whether all workers were ended on purpose, so that nothing is to be tried again.

    Raises:
        InputError: the system, or somebody, killed the worker each time.
        WorkerCrashed: it crashed by itself each time, so it always will.
    """
    crashes: list[WorkerCrashed] = []
    while True:
        try:
            return action()
        except WorkerCrashed as crash:
            if over():
                raise
            crashes.append(crash)
            if sum(one.killed == crash.killed for one in crashes) < 2:
                continue
            if crash.killed:
                raise _killed(what, crash) from crash
            raise


def _killed(what: str, crash: WorkerCrashed) -> EdgeError:
    return InputError(
        "worker_killed", f"{what}: the system ended the worker process twice ({crash.signal}).",
        why="Most likely memory ran out; a limit on processes or a person may have done it, too.",
        fix="Close other programs, use --jobs 1, choose smaller dynamic ranges, or use a machine with more memory.",
        details={"log": crash.log},
    )  # fmt: skip


def in_lowered_file(what: str, runtime: str, crash: WorkerCrashed) -> EdgeError:
    """The runtime's compiler or engine crashed."""
    return UnsupportedError(
        "runtime_crashed", f"{what}: {crash}.", why=f"The native code of {runtime} ended with {crash.signal or 'an error'}.",
        fix="Try another --runtime or --backend portable, and report the model.", details={"log": crash.log},
    )  # fmt: skip


def in_import(model: str, crash: WorkerCrashed) -> EdgeError:
    """The model's code, or torch under it."""
    return UnsupportedError(
        "import_crashed", f"Importing {model} failed: {crash}.", why="The model's code or a native library crashed.",
        fix="Check that the model runs in plain PyTorch on this machine.", details={"log": crash.log},
    )  # fmt: skip


def in_users_code(what: str, code: Sequence[str], crash: WorkerCrashed) -> EdgeError:
    """The process that ran the user's dataset or metric.

    Args:
        code: what was run there, as ``--eval data.py:test``.
    """
    return InputError(
        "user_code_crashed", f"{what} failed: {crash}; {' and '.join(code)} ran in it.",
        why="That code ended the process, or a library that it uses crashed.",
        fix="Run it by itself in Python, correct it (no sys.exit, no os._exit), and try again.", details={"log": crash.log},
    )  # fmt: skip


def in_reading(crash: WorkerCrashed) -> EdgeError:
    """The process that read the samples and ran the original on them."""
    return InputError(
        "samples_crashed", f"Reading the samples failed: {crash}.",
        why="A library that reads them crashed, or the model did when it was run on them.",
        fix="Run the model on them in plain PyTorch, and leave out the file that it crashes on.", details={"log": crash.log},
    )  # fmt: skip
