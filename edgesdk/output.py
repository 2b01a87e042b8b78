"""The output folder: checked first, written beside its place, put there by one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgesdk._disk import disk_error
from edgesdk.errors import InputError, UsageError
from edgesdk.reading import parse_json, read_bytes

_MAX_REPORT = 256 * 2**20
_TEMPORARY = ".edgesdk-{name}-{pid}"


def relative(path: Path) -> str:
    """A path as JSON shows it: relative to the working directory when below it, else absolute."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def check_output(folder: Path, *, force: bool, needed: Sequence[Path] = ()) -> None:
    """Refuse a folder that isn't ours, before any work.

    Args:
        needed: files and folders of the user that this run reads: they are never deleted, whatever ``force`` says.

    Raises:
        UsageError: it exists, and neither edgesdk wrote it nor ``force`` is given; what ``force`` may not delete lies in
            it; or a parent is no folder.
        InputError: the file system refuses the path: too long, a loop of links, not readable.
    """
    try:
        _check_output(folder, force, needed)
    except OSError as error:
        raise disk_error(error) or _unwritable(folder, error) from error


def _check_output(folder: Path, force: bool, needed: Sequence[Path]) -> None:
    for parent in folder.parents:
        if (parent.exists() or parent.is_symlink()) and not parent.is_dir():
            what = "file" if parent.exists() else "link that leads nowhere"
            raise UsageError(
                "output_not_a_folder", f"{folder} can't be made: {parent} is a {what}.",
                why=f"The path after -o leads through a {what}.", fix="Choose another folder with -o.",
            )  # fmt: skip
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))
    if not (folder.exists() or folder.is_symlink()):
        return
    _check_loss(folder, needed)
    if force or _is_ours(folder):
        return
    if not folder.is_dir():
        raise UsageError(
            "output_exists", f"{folder} is a file; edgesdk did not write it.", why="The output is a folder of that name.",
            fix="Choose another place with -o; --force deletes the file.",
        )  # fmt: skip
    raise UsageError(
        "output_exists", f"{folder} is a folder with other things in it ({_content(folder)}); edgesdk did not write it.",
        why="The output folder is replaced as a whole, so only an earlier package may stand there.",
        fix=f"Write into a folder of its own, e.g. -o {folder / 'NAME'}; --force deletes everything that is in {folder}.",
    )  # fmt: skip


def _check_loss(folder: Path, needed: Sequence[Path]) -> None:
    """Refuse to replace what nobody means to delete: other packages, a repository, the folders one stands and lives in.

    Raises:
        UsageError: the folder holds such a thing.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    real = folder.resolve()
    held = [path for path in needed if path.resolve().is_relative_to(real)]
    what = f"{held[0]}, which this run reads" if held else ""
    if not what and not _is_ours(folder):
        places = {"the folder that you are in": Path.cwd(), "your home folder": Path.home()}
        what = next((word for word, place in places.items() if place.resolve().is_relative_to(real)), "")
        packages = [child.name for child in folder.iterdir() if child.is_dir() and _is_package(child)]
        what = what or ("a Git repository" if (folder / ".git").exists() else "")
        what = what or (f"other packages ({', '.join(sorted(packages)[:3])})" if packages else "")
    if what:
        raise UsageError(
            "output_holds_more", f"{folder} is or holds {what}.",
            why="The output folder is replaced as a whole, and with it all that would be gone; --force does not do that.",
            fix=f"Write into a folder of its own, e.g. -o {folder / 'NAME'}",
        )  # fmt: skip


def check_not_read(output: Path, needed: Sequence[Path]) -> None:
    """Refuse to write one file over what the same run reads, whatever ``--force`` says.

    Raises:
        UsageError: ``output`` is one of ``needed``, perhaps by another name.
    """
    if any(output.exists() and path.exists() and output.samefile(path) for path in needed):
        raise UsageError(
            "output_is_input", f"{output} is what this run reads.",
            why="Written over, it would be gone, and nothing could make it again.", fix="Choose another name with -o.",
        )  # fmt: skip


def _content(folder: Path) -> str:
    names = sorted(child.name for child in folder.iterdir())
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _is_ours(folder: Path) -> bool:
    """Whether the folder is empty or holds an earlier package."""
    if not folder.is_dir():
        return False
    return not any(folder.iterdir()) or _is_package(folder)


def _is_package(folder: Path) -> bool:
    try:
        report = parse_json(read_bytes(folder / "report.json", _MAX_REPORT))
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and report.get("schema") == "edgesdk.package/1"


def emit(document: Mapping[str, Any], bundle: Path, folder: Path, *, force: bool) -> None:
    """Write bundle, reports and the platform's project, then put the folder in its place at once.

    Raises:
        InputError: the disk is full or may not be written; nothing is left behind.
    """
    try:
        with _parents(folder), _exclusive(folder), _temporary(folder) as work:
            _write(document, bundle, work)
            check_output(folder, force=force)
            _replace(work, folder)
    except OSError as error:
        raise disk_error(error) or _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(
        "output_unwritable", f"{folder} can't be written: {error.strerror or error}.",
        why="The file system refuses it; the name may be too long or hold characters it can't store.",
        fix="Choose another place with -o or another --name.",
    )  # fmt: skip


def _write(document: Mapping[str, Any], bundle: Path, work: Path) -> None:
    from edgesdk import report, targets
    from edgesdk.bundle import EdgeBundle

    placed = work / f"{document['name']}.edge"
    shutil.copyfile(bundle, placed)
    shown = {**document, "output": ".", "bundle": placed.name}
    for name in ("report.json", "report.html"):
        report.write(shown, work / name)
    emission = targets.Emission(
        name=document["name"], version=document["version"], license=document["license"], bundle=placed, document=shown,
        manifest=EdgeBundle.open(placed, check="layout").manifest.to_json(),
    )  # fmt: skip
    targets.find(document["target"]).emit(emission, work)


@contextlib.contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the parent folders; take back those that were made when the work fails."""
    made = [p for p in folder.parents if not p.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A folder beside the target, gone if the block fails; those of killed processes are removed now."""
    for left in folder.parent.glob(_TEMPORARY.format(name="*", pid="*")):
        if not _runs(left.name.rsplit("-", 1)[-1].removesuffix(".old")):
            shutil.rmtree(left, ignore_errors=True)
    work = folder.parent / _TEMPORARY.format(name=folder.name[:80], pid=os.getpid())
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Two runs that write the same folder take turns; the lock lies in the cache, not beside the output."""
    import hashlib

    from edgesdk import cache

    with cache.locked(cache.root(), f"output-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}"):
        yield


def _replace(work: Path, folder: Path) -> None:
    """Put the finished folder in place of an older one; the older one is only removed afterwards."""
    old = work.with_name(work.name + ".old")
    if folder.exists() or folder.is_symlink():
        folder.rename(old)
    try:
        work.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.unlink(missing_ok=True)
