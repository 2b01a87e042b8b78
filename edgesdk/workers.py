"""Worker processes, seen from the process that coordinates them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

from edgesdk.errors import from_json

Report = Callable[[str, float | None], None]
Json = dict[str, Any]

_LOOK_MS = 1000
"""Milliseconds after which a silent worker is looked at: has it ended? A closed pipe says so at once."""


_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT")


class WorkerCrashed(Exception):
    """The worker ended without an answer: a native crash, or the system took its memory back.

    Attributes:
        killed: somebody else ended it, the system mostly: that says nothing of what ran there.
    """

    def __init__(self, returncode: int, log: str) -> None:
        self.signal = signal.Signals(-returncode).name if returncode < 0 else None
        self.killed = self.signal in _FROM_OUTSIDE
        self.log = log
        super().__init__(f"a worker process ended with {self.signal or f'exit code {returncode}'}")


class WorkerBug(Exception):
    """Something unexpected in a worker; the text is its traceback."""


class Stopped(Exception):
    """The pool ended before the job began."""


class Worker:
    """One process that runs one job at a time. Its stderr goes to ``log``."""

    def __init__(self, log: Path) -> None:
        self.log = log
        read, write = os.pipe()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-X", "faulthandler", "-m", "edgesdk._worker", str(write)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, pass_fds=[write], env=_environment(log.parent),
            )  # fmt: skip
        os.close(write)
        self._answers = read

    def call(self, function: str, args: Mapping[str, Any], report: Report) -> Json:
        """Run ``module:function(args, report)`` there and wait for its result.

        Raises:
            EdgeError: the function raised it.
            WorkerCrashed: the process ended instead of answering.
            WorkerBug: the function raised something unexpected.
        """
        line = json.dumps({"call": function, "args": dict(args)}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # it has crashed; the missing answer below tells
            stdin = self._process.stdin
            if stdin:
                stdin.write(line.encode())
                stdin.flush()
        for text in self._lines():
            answer: Json = json.loads(text)
            if "progress" in answer:
                report(*answer["progress"])
            elif "result" in answer:
                result: Json = answer["result"]
                return result
            elif "error" in answer:
                raise from_json(answer["error"])
            else:
                raise WorkerBug(answer["bug"])
        raise WorkerCrashed(self._process.wait(), self._tail())

    def _lines(self) -> Iterator[str]:
        """Lines of answers until the pipe is closed or the process has ended and all it wrote is read.

        The end of the process counts too: a child that native code forked may hold the pipe open for ever.
        """
        pending = b""
        waiting = select.poll()
        waiting.register(self._answers, select.POLLIN)
        while True:
            ended = not self.alive
            ready = bool(waiting.poll(0 if ended else _LOOK_MS))
            data = os.read(self._answers, 65536) if ready else b""
            if not data and (ready or ended):
                return
            *lines, pending = (pending + data).split(b"\n")
            yield from (line.decode() for line in lines)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process; whoever waits for its answer gets WorkerCrashed."""
        self._process.kill()

    def close(self) -> None:
        """End the process and free the pipes."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        os.close(self._answers)

    def _tail(self, size: int = 65536) -> str:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - size))
            return last_words(file.read().decode(errors="replace"))


_FAULT = re.compile(r"^(Fatal Python error: |Current thread 0x|Thread 0x)", re.MULTILINE)
_SHOWN = 2000
"""Characters of either part of a crash's log."""


def last_words(log: str) -> str:
    """A dead worker's stderr, with a heading over each part: what libraries printed, and Python's own list of frames.

    Neither is a message of edgesdk, and the frames are those of whatever ran, often our own.
    """
    fault = _FAULT.search(log)
    printed, frames = (log[: fault.start()], log[fault.start() :]) if fault else (log, "")
    parts = [
        ("Printed by libraries before the crash", printed.strip()[-_SHOWN:]),
        ("Python's fault handler: where the process was when it crashed", frames.strip()[:_SHOWN]),
    ]
    return "\n\n".join(f"--- {heading} ---\n{text}" for heading, text in parts if text)


def _environment(folder: Path) -> dict[str, str]:
    """Workers share the cores, so each native thread pool starts small; hashes are fixed for deterministic files.

    Temporary files go to the pool's folder: whatever a library leaves behind, even when it is killed, goes with it.
    """
    ours = {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **ours, "TMPDIR": str(folder.absolute())}


class Pool:
    """A few workers, started at once, each replaced when it crashes.

    A job may ask to run on a given worker (which still holds the model) or on any other than that one: what one
    process lowered, another one checks.
    """

    def __init__(self, size: int, folder: Path) -> None:
        self._folder = folder
        self._free = threading.Condition()
        self._stopped = False
        self._workers: list[Worker] = []
        self._idle: set[int] = set()
        self._threads = ThreadPoolExecutor(max_workers=32)
        for _ in range(size):
            self._add()

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def stopped(self) -> bool:
        """Whether the workers were ended on purpose."""
        return self._stopped

    def _add(self) -> None:
        index = len(self._workers)
        self._workers.append(Worker(self._folder / f"worker-{index}.log"))
        self._idle.add(index)

    def warm(self, function: str, args: Mapping[str, Any], index: int) -> None:
        """Start a job whose result nobody waits for, on an idle worker: imports, mostly."""
        self.submit(function, args, lambda *_: None, on=index)

    def submit(
        self,
        function: str,
        args: Mapping[str, Any],
        report: Report,
        *,
        on: int | None = None,
        not_on: int | None = None,
        prefer: int | None = None,
        fresh: bool = False,
    ) -> Future[tuple[int, Json]]:
        """Run a job as soon as a fitting worker is idle; the future holds (worker's number, result).

        Args:
            fresh: in a new process, with nothing in memory that earlier jobs left there.
        """

        def run() -> tuple[int, Json]:
            index = self._take(on, not_on, prefer)
            try:
                if fresh:
                    self._renew(index)
                return index, self._workers[index].call(function, args, report)
            finally:
                self._give_back(index)

        return self._threads.submit(run)

    def _take(self, on: int | None, not_on: int | None, prefer: int | None) -> int:
        def fitting() -> list[int]:
            chosen = [i for i in self._idle if i != not_on and on in (None, i)]
            return sorted(chosen, key=lambda i: (i == prefer, i))

        with self._free:
            self._free.wait_for(lambda: self._stopped or fitting())
            if self._stopped:
                raise Stopped
            index = fitting()[-1]  # the last one first: number 0 holds the model, for the job that prefers it
            self._idle.remove(index)
            return index

    def _give_back(self, index: int) -> None:
        if not self._workers[index].alive:
            self._renew(index)
        with self._free:
            self._idle.add(index)
            self._free.notify_all()

    def _renew(self, index: int) -> None:
        with self._free:
            if not self._stopped:
                self._workers[index].close()
                self._workers[index] = Worker(self._folder / f"worker-{index}.log")

    def stop(self) -> None:
        """End all workers now; jobs under way fail with WorkerCrashed, and none is started any more."""
        with self._free:
            self._stopped = True
            self._free.notify_all()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.end()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.close()
