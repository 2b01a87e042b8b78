"""One emulated process: started, spoken to against a deadline, ended; its death told in words."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgesdk.emulated import _place as place
from edgesdk.errors import DeviceError

_SAID_BYTES = 4000
# Lines that say nothing: chatter of the libraries about the machine, and qemu's about a signal, which is told in words.
# Lines that say nothing wrong: ExecuTorch's of the levels debug and info, and guesses about the processor.
_CHATTER = re.compile(r"^[DI] \d\d:\d\d|^(Warning|Error) in cpuinfo|onnxruntime cpuid_info warning")
_PREFIX = re.compile(r"^[WEF] [\d:.]+ executorch:\S+ ")  # level, time and place in the source
_SIGNAL = re.compile(r"uncaught target signal \d+ \(([^)]+)\)")


class Process:
    """A runner under qemu. Not thread-safe."""

    def __init__(self, runtime: str, words: Sequence[str], subject: str, cpu: str = place.CPU) -> None:
        """
        Args:
            words: arguments of the runner.
            subject: what the messages call it: the file's name.

        Raises:
            UsageError: there is no such processor.
            MissingToolError: something of the emulated phone isn't there.
            DeviceError: it can't be started.
        """
        model = place.processor(cpu).model
        place.needed(runtime)
        self._subject, self._runtime = subject, runtime
        self._log: Any = tempfile.TemporaryFile()  # a pipe that nobody empties would stop the runner  # noqa: SIM115
        self._scratch = tempfile.TemporaryDirectory(prefix="edgesdk-emulated-", ignore_cleanup_errors=True)
        home = place.folder(runtime)
        command = [str(place.qemu()), "-L", str(home / "root" / cpu), "-cpu", model, str(home / "runner"), *words]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=self._scratch.name,
                env=_environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            self._release()
            raise DeviceError(
                "emulator_failed", f"The emulator can't be started: {exc.strerror or exc}.",
                why="The program qemu-aarch64 is there, but the system refuses to run it.", fix=place.SETUP,
            ) from exc  # fmt: skip
        self._late = False

    @contextlib.contextmanager
    def until(self, deadline: float, limit: float) -> Iterator[None]:
        """Within the block the runner must answer before ``deadline`` (of time.monotonic), or it is ended.

        Raises:
            DeviceError: it took longer, or it died.
        """
        timer = threading.Timer(max(deadline - time.monotonic(), 0.0), self._too_late)
        timer.daemon = True
        timer.start()
        try:
            yield
        except (BrokenPipeError, EOFError) as exc:
            raise self._death(limit) from exc
        finally:
            timer.cancel()

    def send(self, pieces: Sequence[bytes | memoryview]) -> None:
        pipe: Any = self._process.stdin
        for piece in pieces:
            pipe.write(piece)
        pipe.flush()

    def read(self, count: int) -> bytes:
        pipe: Any = self._process.stdout
        data: bytes = pipe.read(count)
        if len(data) != count:
            raise EOFError
        return data

    def said(self) -> str:
        """The last lines that the libraries wrote, without chatter."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _SAID_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        kept = (_PREFIX.sub("", line).strip() for line in lines if not _CHATTER.search(line))
        return "; ".join(dict.fromkeys(filter(None, kept)))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End it, however far it is."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # bytes that it no longer takes
                if pipe is not None:
                    pipe.close()
        self._process.wait()
        self._release()

    def _too_late(self) -> None:
        self._late = True
        self._process.kill()

    def _release(self) -> None:
        self._log.close()
        self._scratch.cleanup()

    def _death(self, limit: float) -> DeviceError:
        code = self._process.wait()
        if self._late:
            return DeviceError(
                "emulation_timeout", f"{self._subject} gave no answer on emulated arm64 within {limit:g} s.",
                why="Emulation is tens of times slower than a phone; a large model or many samples need longer.",
                fix="Allow more time, or check on fewer samples.", details={"timeout_s": limit},
            )  # fmt: skip
        said = self.said()
        signal = _SIGNAL.search(said)
        how = signal[1] if signal else f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
        return DeviceError(
            "emulation_crashed", f"{self._subject} crashed on emulated arm64 ({how}).",
            why=f"qemu and the engine said: {said[-600:] or 'nothing'}",
            fix="Run it on the host with 'edgesdk verify': when it crashes there too, the file is damaged; otherwise the arm64"
            " engine, or its emulation, can't run it, and a phone must decide.",
            details={"runtime": self._runtime, "exit_code": code},
        )  # fmt: skip


def _environment() -> dict[str, str]:
    """Nothing of the user's that would reach into the emulator or the guest (QEMU_*, LD_PRELOAD, OMP_*, ORT_*)."""
    keep = ("PATH", "HOME", "TMPDIR", "LANG")
    return {name: os.environ[name] for name in keep if name in os.environ}


def file_word(path: Path) -> str:
    """The path as an argument: absolute, so that it is never taken for an option."""
    return str(path.absolute())
