"""Results by content: what was computed once from the same bytes, settings and libraries isn't computed again.

An entry is a folder ``objects/ab/KEY`` written beside its place and renamed, so readers never see half of one; each
file's sha256 is checked when it is read. A lock per key keeps two processes from doing the same work, and a killed
process leaves at most a temporary folder that the next run removes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from edgesdk.errors import InputError, UsageError

DEFAULT_MAX_BYTES = 10 * 2**30
_LIBRARIES = (
    "torch", "torchvision", "torchao", "executorch", "onnx", "onnxscript", "onnxruntime", "coremltools", "timm",
    "transformers", "numpy", "pillow",
)  # fmt: skip
_INDEX = "entry.json"
_TRASH = ".trash"


def root() -> Path:
    """Where the cache lies: ``EDGESDK_CACHE_DIR``, else the user's cache folder (XDG_CACHE_HOME is honoured)."""
    import platformdirs

    chosen = os.environ.get("EDGESDK_CACHE_DIR")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("edgesdk", appauthor=False))


def _limit() -> int:
    """``EDGESDK_CACHE_MAX_BYTES``, or the default.

    Raises:
        UsageError: it is set to something else than a whole number.
    """
    text = os.environ.get("EDGESDK_CACHE_MAX_BYTES", "").strip()
    if not text:
        return DEFAULT_MAX_BYTES
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise UsageError(
            "bad_value", f"EDGESDK_CACHE_MAX_BYTES is {text[:80]!r}, which is no number of bytes.",
            why="The environment variable limits the cache.", fix="Set it to a whole number such as 2000000000, or unset it.",
        )  # fmt: skip
    return int(text)


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that shape a lowered file, read without importing them."""
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@functools.cache
def own_fingerprint() -> str:
    """Hash of edgesdk's own code: a changed lowering pass must not answer from old results."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted(
        p for p in here.rglob("*") if p.suffix in (".py", ".toml", ".j2", ".json") and "cli" not in p.parts
    ):
        digest.update(str(path.relative_to(here)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(*parts: Any) -> str:
    """Content address of a result: the sha256 over its inputs, the library versions and our own code."""
    document = [parts, library_versions(), own_fingerprint()]
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Stats:
    path: Path
    entries: int
    bytes: int
    max_bytes: int


@dataclass(frozen=True)
class Entry:
    """A cached result: its JSON document and its files."""

    document: Mapping[str, Any]
    files: Mapping[str, Path]


class Cache:
    """The cache below ``path``; ``enabled=False`` never reads and never writes (``--no-cache``)."""

    def __init__(self, path: Path | None = None, *, max_bytes: int | None = None, enabled: bool = True) -> None:
        self.path = path or root()
        self.max_bytes = max_bytes or _limit()
        self.enabled = enabled
        self.hits = self.misses = 0

    def get(self, name: str, into: Path, *, count: int = 1) -> Entry | None:
        """The entry of that key, whole and undamaged, or None.

        Args:
            into: a folder of the caller's; the entry's files are placed there under their names, since another process
                may clean the cache at any time.
            count: how many results it stands for.
        """
        folder = self._folder(name)
        entry = self._read(folder, into) if self.enabled else None
        if entry is None:
            self.misses += count
            return None
        self.hits += count
        with contextlib.suppress(OSError):
            os.utime(folder)  # for least-recently-used removal
        return entry

    def holds(self, name: str) -> bool:
        """Whether there is an entry of that key; it is not read, so it may yet turn out damaged."""
        return self.enabled and (self._folder(name) / _INDEX).is_file()

    def _read(self, folder: Path, into: Path) -> Entry | None:
        try:
            index = json.loads((folder / _INDEX).read_bytes())
            sealed = index.pop("sha256")
            if _seal(index) == sealed:
                files = {name: _place(folder / name, into / name) for name in index["files"]}
                if all(sha256_file(files[name]) == digest for name, digest in index["files"].items()):
                    return Entry(index["document"], files)
        except FileNotFoundError:
            if not folder.exists():
                return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # the index is damaged; removed below like an entry with a damaged file
        except OSError:
            return None
        shutil.rmtree(folder, ignore_errors=True)  # compute it anew
        return None

    def put(self, name: str, document: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """Keep a result. A full disk or a read-only cache costs speed, never the run."""
        if not self.enabled:
            return
        try:
            self._put(name, document, files)
            self.clean(self.max_bytes)
        except OSError:
            return

    def _put(self, name: str, document: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        folder = self._folder(name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self.work_folder() as work:
            for target, source in files.items():
                _copy(source, work / target)
            hashes = {target: sha256_file(work / target) for target in files}
            index = {"document": document, "files": hashes}
            (work / _INDEX).write_text(json.dumps({**index, "sha256": _seal(index)}))
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    work.rename(folder)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the key: a second process that wants the same result waits, then finds it."""
        if not self.enabled:
            yield
            return
        with locked(self.path, name[:16]):
            yield

    @contextlib.contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A temporary folder that is gone afterwards; those of killed processes are removed now."""
        base = self._work_base()
        if base is None:  # no cache to work in: a folder of this run's own in the temporary folder
            with tempfile.TemporaryDirectory(prefix="edgesdk-work-", ignore_cleanup_errors=True) as own:
                yield Path(own)
            return
        _remove_abandoned(base)
        folder = base / secrets.token_hex(8)
        # The lock comes first: a folder without one would be an abandoned one to others.
        lock = FileLock(f"{folder}.lock")
        try:
            lock.acquire()
            folder.mkdir(mode=0o700)
            yield folder
        except Exception as exc:
            if folder.exists():
                raise
            raise InputError(
                "work_folder_gone", f"The work folder {folder} was removed during the run.",
                why="The cache, in which it lies, was deleted by hand or by a cleaning program.",
                fix="Run it again; 'edgesdk cache clean' may be run at any time.",
            ) from exc  # fmt: skip
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            Path(f"{folder}.lock").unlink(missing_ok=True)

    def _work_base(self) -> Path | None:
        base = self.path / "work"
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(base, os.W_OK):
                return base
        except OSError:
            return None
        return None

    def stats(self) -> Stats:
        sizes = [_size(folder) for folder in self._entries()]
        return Stats(self.path, len(sizes), sum(sizes), self.max_bytes)

    def clean(self, max_bytes: int = 0) -> int:
        """Remove least recently used entries until at most ``max_bytes`` are left; returns the bytes freed."""
        for left in (self.path / "objects").glob(f"??/*{_TRASH}"):  # of a process that was killed meanwhile
            shutil.rmtree(left, ignore_errors=True)
        known = [(folder, _used(folder), _size(folder)) for folder in self._entries()]
        total, freed = sum(size for _, _, size in known), 0
        for folder, _, size in sorted(known, key=lambda item: item[1]):
            if total - freed <= max_bytes:
                break
            trash = folder.with_name(f"{folder.name}-{secrets.token_hex(4)}{_TRASH}")
            with contextlib.suppress(OSError):
                folder.rename(trash)  # at once gone for readers
                shutil.rmtree(trash, ignore_errors=True)
                freed += size
        return freed

    def _entries(self) -> list[Path]:
        found = (self.path / "objects").glob("??/*")
        return [p for p in found if p.is_dir() and not p.name.endswith(_TRASH)]

    def _folder(self, name: str) -> Path:
        return self.path / "objects" / name[:2] / name


@contextlib.contextmanager
def locked(path: Path, name: str) -> Iterator[None]:
    """Hold the lock ``name`` of the cache below ``path``. Where no lock can be had (a read-only or unusual file system)
    the block runs without: the renames keep every result whole, two runs then only do the same work twice.
    """
    lock = FileLock(path / "locks" / f"{name}.lock")
    try:
        (path / "locks").mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _seal(index: Mapping[str, Any]) -> str:
    """sha256 over an entry's index, so that a damaged figure in it doesn't go for the right one."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()


def _place(cached: Path, target: Path) -> Path:
    """A cached file under a name of the caller's: by a link where the file system can, else copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # never write through an older link into the cache
    try:
        os.link(cached, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(cached, target)
    return target


def _used(folder: Path) -> float:
    with contextlib.suppress(OSError):
        return folder.stat().st_mtime
    return 0.0


def _copy(source: Path, target: Path) -> None:
    """Copy, by reference where the file system can share blocks."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _size(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(p.stat().st_size for p in folder.iterdir())
    return 0


def _remove_abandoned(base: Path) -> None:
    """Work folders whose process is gone: their lock can be had."""
    for lock_path in base.glob("*.lock"):
        lock = FileLock(lock_path)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            continue
        shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
        lock.release()
        lock_path.unlink(missing_ok=True)
