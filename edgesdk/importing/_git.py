"""The commit that a file's work tree stands at, read from Git's own files: no process is started."""

from __future__ import annotations

import re
from pathlib import Path

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def commit_of(path: Path) -> str | None:
    """Commit of HEAD in the Git work tree around ``path``; None when there is none or it has no commit yet."""
    try:
        start = path.resolve()
        for folder in (start, *start.parents):
            marker = folder / ".git"
            if marker.exists():
                return _head(_git_folder(marker))
    except OSError:  # an unreadable repository is no reason to fail an import
        return None
    return None


def _git_folder(marker: Path) -> Path:
    """``.git`` itself, or the folder that a ``.git`` file (submodule, work tree) points to."""
    if marker.is_dir():
        return marker
    pointer = marker.read_text(encoding="utf-8", errors="replace").removeprefix("gitdir:").strip()
    return (marker.parent / pointer).resolve()


def _head(git: Path) -> str | None:
    head = _read(git / "HEAD")
    if not head.startswith("ref:"):
        return head if _SHA.fullmatch(head) else None
    ref = head.removeprefix("ref:").strip()
    common = git / "commondir"
    shared = (git / _read(common)).resolve() if common.is_file() else git
    for folder in (git, shared):
        found = _read(folder / ref)
        if _SHA.fullmatch(found):
            return found
    for line in _read(shared / "packed-refs").splitlines():
        sha, _, name = line.partition(" ")
        if name == ref and _SHA.fullmatch(sha):
            return sha
    return None


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
