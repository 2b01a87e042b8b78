"""A worker process: reads one JSON job a line from stdin, answers with JSON lines on the pipe it was given.

Heavy and fragile work (torch, compilers, native engines) happens here, so that the command line stays responsive, a
native crash is an answer instead of the end, and memory is given back to the system.

    → {"call": "edgesdk._jobs:lower", "args": {…}}
    ← {"progress": ["lowering", 0.4]}
    ← {"result": {…}}   or   {"error": {edgesdk.error/1}}   or   {"bug": "traceback"}
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any

from edgesdk.errors import EdgeError, InputError


def main() -> None:
    """Serve jobs until stdin closes. ``sys.argv[1]`` is the number of the file descriptor to answer on."""
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must never look like an answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    _die_with_parent()
    for line in _jobs():
        _answer(answers, _run(json.loads(line), answers))


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere the closed stdin does it, between two jobs."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _jobs() -> Any:
    """Lines of stdin, read by a thread of its own: a closed pipe ends the process even in the middle of a job."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield lines.get()


def _run(job: dict[str, Any], answers: Any) -> dict[str, Any]:
    def report(text: str, fraction: float | None = None) -> None:
        _answer(answers, {"progress": [text, fraction]})

    try:
        module, _, name = job["call"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return {"result": function(job["args"], report)}
    except EdgeError as error:
        return {"error": error.to_json(), "traceback": traceback.format_exc()}
    except MemoryError:
        return {"error": _out_of_memory().to_json()}
    except OSError as error:
        known = disk_error(error)
        return {"error": known.to_json()} if known else {"bug": traceback.format_exc()}
    except Exception:
        return {"bug": traceback.format_exc()}


def _answer(answers: Any, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


def _out_of_memory() -> EdgeError:
    return InputError(
        "out_of_memory", "There is not enough memory for this model.",
        why="Lowering needs about three times the size of the weights.",
        fix="Close other programs, use --jobs 1, or make the model smaller.",
    )  # fmt: skip


def disk_error(error: OSError) -> EdgeError | None:
    """The error a user can act on behind an OSError (disk full, no permission, read-only), else None."""
    import errno

    where = error.filename or "the output folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            "disk_full", f"The disk is full; {where} could not be written.",
            why="No space is left on the file system of the output, the cache or the temporary folder.",
            fix="Free some space (edgesdk cache clean helps), or choose another place with -o.",
        )  # fmt: skip
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(
            "no_permission", f"{where} may not be read or written.",
            why="The file's or folder's permissions don't allow it, or the file system is read-only.",
            fix="Change its permissions, or choose another place with -o.",
        )  # fmt: skip
    return None


if __name__ == "__main__":
    main()
