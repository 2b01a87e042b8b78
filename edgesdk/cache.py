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
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

DEFAULT_MAX_BYTES = 10 * 2**30
_LIBRARIES = (
    "torch", "torchvision", "torchao", "executorch", "onnx", "onnxscript", "onnxruntime", "coremltools", "timm",
    "transformers", "numpy", "pillow",
)  # fmt: skip
_INDEX = "entry.json"


def root() -> Path:
    """Where the cache lies: ``EDGESDK_CACHE_DIR``, else the user's cache folder (XDG_CACHE_HOME is honoured)."""
    import platformdirs

    chosen = os.environ.get("EDGESDK_CACHE_DIR")
    return Path(chosen) if chosen else Path(platformdirs.user_cache_dir("edgesdk", appauthor=False))


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
        self.max_bytes = max_bytes or int(os.environ.get("EDGESDK_CACHE_MAX_BYTES", DEFAULT_MAX_BYTES))
        self.enabled = enabled
        self.hits = self.misses = 0

    def get(self, name: str, *, count: int = 1) -> Entry | None:
        """The entry of that key, whole and undamaged, or None. ``count``: how many results it stands for."""
        folder = self._folder(name)
        entry = self._read(folder) if self.enabled else None
        if entry is None:
            self.misses += count
            return None
        self.hits += count
        with contextlib.suppress(OSError):
            os.utime(folder)  # for least-recently-used removal
        return entry

    def _read(self, folder: Path) -> Entry | None:
        try:
            index = json.loads((folder / _INDEX).read_text())
            files = {name: folder / name for name in index["files"]}
            if all(sha256_file(files[name]) == digest for name, digest in index["files"].items()):
                return Entry(index["document"], files)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        shutil.rmtree(folder, ignore_errors=True)  # damaged on disk: compute it anew
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
            (work / _INDEX).write_text(json.dumps({"document": document, "files": hashes}))
            if not folder.exists():
                with contextlib.suppress(FileExistsError):
                    work.rename(folder)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the key: a second process that wants the same result waits, then finds it."""
        if not self.enabled:
            yield
            return
        try:
            (self.path / "locks").mkdir(parents=True, exist_ok=True)
        except OSError:
            yield
            return
        with FileLock(self.path / "locks" / f"{name[:16]}.lock"):
            yield

    @contextlib.contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A temporary folder that is gone afterwards; those of killed processes are removed now."""
        base = self._work_base()
        _remove_abandoned(base)
        folder = Path(tempfile.mkdtemp(dir=base))
        lock = FileLock(f"{folder}.lock")
        lock.acquire()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            Path(f"{folder}.lock").unlink(missing_ok=True)

    def _work_base(self) -> Path:
        base = self.path / "work"
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(base, os.W_OK):
                return base
        except OSError:
            pass
        fallback = Path(tempfile.gettempdir()) / f"edgesdk-work-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        fallback.mkdir(exist_ok=True, mode=0o700)
        return fallback

    def stats(self) -> Stats:
        sizes = [_size(folder) for folder in self._entries()]
        return Stats(self.path, len(sizes), sum(sizes), self.max_bytes)

    def clean(self, max_bytes: int = 0) -> int:
        """Remove least recently used entries until at most ``max_bytes`` are left; returns the bytes freed."""
        known = [(folder, folder.stat().st_mtime, _size(folder)) for folder in self._entries()]
        total, freed = sum(size for _, _, size in known), 0
        for folder, _, size in sorted(known, key=lambda item: item[1]):
            if total - freed <= max_bytes:
                break
            trash = folder.with_name(f"{folder.name}.trash")
            with contextlib.suppress(OSError):
                folder.rename(trash)  # at once gone for readers
                shutil.rmtree(trash, ignore_errors=True)
                freed += size
        return freed

    def _entries(self) -> list[Path]:
        objects = self.path / "objects"
        return [p for p in objects.glob("??/*") if p.is_dir()] if objects.is_dir() else []

    def _folder(self, name: str) -> Path:
        return self.path / "objects" / name[:2] / name


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
