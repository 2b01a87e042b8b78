"""``--calibration`` and ``--eval`` as the user typed them, resolved without torch: what it is, and its checksum."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgesdk.errors import InputError
from edgesdk.reading import open_file

MAX_FILES = 2_000_000
_TAKES = (
    "edgesdk reads an .npz (arrays by input name, samples first, optional 'label'), an .npy, a folder of images, .wav, "
    ".npy or .npz files, a .csv, a .parquet, or file.py:dataset."
)
_HEAD = 4096
_IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jpe", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif"}
)
# (offset, bytes, kind)
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x93NUMPY", "npy"),
    (0, b"PAR1", "parquet"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"PK\x05\x06", "zip"),
    (0, b"\x89PNG\r\n\x1a\n", "image"),
    (0, b"\xff\xd8\xff", "image"),
    (0, b"GIF8", "image"),
    (0, b"BM", "image"),
    (0, b"II*\0", "image"),
    (0, b"MM\0*", "image"),
    (4, b"ftypavif", "image"),
    (8, b"WEBP", "image"),
    (8, b"WAVE", "sound"),
    (0, b"\x80\x02", "pickle"),
    (0, b"\x80\x03", "pickle"),
    (0, b"\x80\x04", "pickle"),
    (0, b"\x80\x05", "pickle"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"7z\xbc\xaf", "a 7-Zip archive"),
    (0, b"Rar!", "a RAR archive"),
    (0, b"ARROW1", "an Arrow file"),
    (0, b"SQLite format 3", "an SQLite data base"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x7fELF", "a program"),
    (257, b"ustar", "a tar archive"),
)
_PNM = re.compile(rb"P[1-6]\s")


@dataclass(frozen=True)
class DataSource:
    """Resolved data.

    Attributes:
        kind: ``npz npy csv parquet python`` for files, ``images arrays sounds`` for folders (or one such file).
        path: the file or folder.
        member: of ``file.py:dataset``, the name behind the colon.
        files: of a folder, the files to read, sorted.
        left_out: of a folder, files of other kinds that are not read.
    """

    kind: str
    path: Path
    member: str = ""
    files: tuple[Path, ...] = ()
    left_out: tuple[Path, ...] = ()


def locate_data(text: str) -> DataSource:
    """Resolve TEXT and refuse what can be refused before any work: by its bytes, not by its name.

    Raises:
        InputError: it doesn't exist, can't be read, is an empty folder, or is nothing that holds samples.
    """
    if not text.strip():
        raise InputError("missing_file", "The path of the data is empty.", why="Nothing was named.", fix=_TAKES)
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # "~name" of nobody
        path = Path(text)
    try:
        if not path.exists() and not path.is_symlink():
            head, colon, member = text.rpartition(":")
            if colon and head.endswith(".py"):
                return _python(Path(head).expanduser(), member)
            raise _missing(path)
        if not path.exists():
            raise _missing(path)
        return _folder(path) if path.is_dir() else _file(path)
    except PermissionError as exc:
        raise unreadable(Path(os.fsdecode(exc.filename or path)), exc) from exc
    except (OSError, ValueError) as exc:
        raise unreadable(path, exc) from exc


def fingerprint(text: str) -> str | None:
    """A checksum of everything that reading TEXT would read; None for ``file.py:dataset``, which can read anything.

    Of a file: over its bytes, and of a table also over the files that its cells name. Of a folder: over the sorted names
    and contents of the files in it.

    Raises:
        InputError: as :func:`locate_data`.
    """
    source = locate_data(text)
    if source.kind == "python":
        return None
    try:
        if source.files:
            whole = hashlib.sha256(source.kind.encode())
            base = source.path if source.path.is_dir() else source.path.parent
            for file in source.files:
                whole.update(
                    f"\n{file.relative_to(base).as_posix()}\0{_digest(file)}".encode("utf-8", "surrogateescape")
                )
            return whole.hexdigest()
        if source.kind in ("csv", "parquet"):
            return _table_fingerprint(source)
        return _digest(source.path)
    except OSError as exc:
        raise unreadable(source.path, exc) from exc


def _table_fingerprint(source: DataSource) -> str | None:
    """A table may name pictures: their bytes count too. None when its names can't be read here."""
    whole = hashlib.sha256(_digest(source.path).encode())
    from edgesdk.data import _csv, _parquet

    named = _csv.named_files(source.path) if source.kind == "csv" else _parquet.named_files(source.path)
    if named is None:
        return None
    for file in named:
        whole.update(f"\n{file}\0{_digest(file)}".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _digest(path: Path) -> str:
    whole = hashlib.sha256()
    with open_file(path) as file:
        while data := file.read(1 << 20):
            whole.update(data)
    return whole.hexdigest()


# --- files ------------------------------------------------------------------------------------------------------------


def sniff(path: Path) -> str:
    """The kind of a file from its first bytes: ``npy npz parquet image sound text pickle zip empty unknown``, or what it
    is in words.

    Raises:
        OSError: it can't be read, or is a pipe or device.
    """
    with open_file(path) as file:
        head = file.read(_HEAD)
    if not head:
        return "empty"
    for offset, magic, kind in _MAGIC:
        if head[offset : offset + len(magic)] == magic and (
            magic != b"BM" or len(head) > 26 and head[6:10] == b"\0" * 4
        ):
            return _zip_kind(path) if kind == "zip" else kind
    if _PNM.match(head):
        return "image"
    return "text" if _is_text(head) else "unknown"


def _zip_kind(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as exc:
        raise InputError(
            "damaged_file", f"{path} is damaged: it begins like a ZIP archive, but can't be read ({exc}).",
            why="The download or copy was probably cut short.", fix="Get or write the file again.",
        ) from exc  # fmt: skip
    if all(name.endswith(".npy") for name in names):
        return "npz"
    return "pickle" if any(name.endswith("data.pkl") for name in names) else "zip"


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as exc:
        if exc.start < len(head) - 4:
            return False
        text = head[: exc.start].decode("utf-8")
    return not any(ch < " " and ch not in "\t\n\r\f" for ch in text)


def _file(path: Path) -> DataSource:
    kind = sniff(path)
    if kind in ("npz", "npy", "parquet"):
        return DataSource(kind, path)
    if kind in ("image", "sound"):
        return DataSource(f"{kind}s", path, files=(path,))
    if kind == "text":
        return _text(path)
    if kind == "pickle":
        raise InputError(
            "pickle_refused", f"{path} is a pickle (torch.save, pickle or joblib), which edgesdk doesn't open as data.",
            why="Opening a pickle runs whatever code stands in it.",
            fix="Save the arrays with numpy: np.savez('samples.npz', **{'INPUT NAME': array, 'label': numbers}).",
        )  # fmt: skip
    if kind == "unknown" and path.suffix.lower() in (".csv", ".tsv", ".txt"):
        raise InputError(
            "bad_table", f"{path} is no UTF-8 text.", why="It was saved in another encoding (Excel does that), or is damaged.",
            fix="Save it as 'CSV UTF-8', or: iconv -f latin1 -t utf-8 OLD.csv > NEW.csv",
        )  # fmt: skip
    raise _no_data(path, {"unknown": "no kind of data that is known", "zip": "a ZIP archive"}.get(kind, kind))


def _text(path: Path) -> DataSource:
    if path.suffix == ".py":
        from edgesdk.importing._locate import factories_in

        offered = factories_in(path)
        raise InputError(
            "no_dataset", f"{path} is Python source; which dataset in it is meant isn't said.",
            why=f"It defines {', '.join(offered[:8])}." if offered else "It defines no function or class.",
            fix=f"Write {path}:{offered[0] if offered else 'DATASET'}",
        )  # fmt: skip
    with open_file(path) as file:
        text = file.read(_HEAD).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    low = text[:2000].lower()
    if text.startswith("version https://git-lfs"):
        raise InputError(
            "not_data", f"{path} is a Git-LFS pointer, not the data itself.",
            why="The repository was cloned without Git LFS.", fix="Run 'git lfs pull' there, then try again.",
        )  # fmt: skip
    if low.startswith(("<!doctype", "<html", "<?xml")):
        raise _no_data(path, "a web page or XML text")
    if text.startswith(("{", "[{")):
        raise _no_data(path, "a JSON text")
    return DataSource("csv", path)


def _no_data(path: Path, what: str) -> InputError:
    what = "empty" if what == "empty" else what
    return InputError(
        "not_data", f"{path} is {what}; it holds no samples that can be read.",
        why="The kind of a file is found from its bytes; its name doesn't matter.", fix=_TAKES,
    )  # fmt: skip


def _python(path: Path, member: str) -> DataSource:
    if not path.is_file():
        raise _missing(path)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", member):
        return _text(path)  # raises: which dataset isn't said
    with open_file(path):
        pass
    from edgesdk.importing._defined import may_define

    if not may_define(path, member, f"{path}:{member}"):
        raise none_such(path, member)
    return DataSource("python", path, member)


def none_such(path: Path, member: str) -> InputError:
    """``no_dataset``: the file has no such name; the fix names one that it has."""
    from edgesdk.importing._locate import factories_in

    offered = factories_in(path)
    return InputError(
        "no_dataset", f"{path} has no '{member}'.",
        why=f"It defines {', '.join(offered[:8])}." if offered else "It defines no function or class.",
        fix=f"Write {path}:{offered[0] if offered else 'DATASET'}",
    )  # fmt: skip


def _missing(path: Path) -> InputError:
    if path.is_symlink():
        return InputError(
            "missing_file", f"{path} is a link to {path.readlink()}, which doesn't exist.",
            why="What it points to was moved or deleted, or it points to itself.", fix="Restore it or correct the link.",
        )  # fmt: skip
    parent = path.parent
    near = difflib.get_close_matches(path.name, [p.name for p in parent.iterdir()], 2) if parent.is_dir() else []
    hint = f"Did you mean {' or '.join(repr(str(parent / n)) for n in near)}? " if near else ""
    why = "No file or folder has that name." if parent.is_dir() else f"The folder {parent} doesn't exist."
    return InputError("missing_file", f"{path} doesn't exist.", why=why, fix=f"{hint}Check the path. {_TAKES}")


def unreadable(path: Path, exc: OSError | ValueError) -> InputError:
    """``unreadable_file``, with the remedy for missing rights."""
    if isinstance(exc, PermissionError):
        return InputError(
            "unreadable_file", f"{path} can't be read: permission denied.",
            why="The file or a folder above it belongs to another user, or its mode forbids reading.",
            fix=f"Allow it: chmod u+r {path}",
        )  # fmt: skip
    said = getattr(exc, "strerror", None) or exc
    return InputError(
        "unreadable_file", f"{path} can't be read: {said}.", why="The operating system refused.",
        fix="Check the path and the disk; an ordinary file or folder is needed.",
    )  # fmt: skip


# --- folders ----------------------------------------------------------------------------------------------------------


def _folder(path: Path) -> DataSource:
    found: dict[str, list[Path]] = {"image": [], "sound": [], "npy": [], "npz": []}
    left_out: list[Path] = []
    for file in _walk(path):
        kind = sniff(file) if file.is_file() else "unknown"
        if kind == "pickle" and file.suffix in (".npy", ".npz"):
            return _file(file)  # raises: a pickle is refused
        if kind in found:
            found[kind].append(file)
        elif file.suffix.lower() in _IMAGE_SUFFIXES:
            raise InputError(
                "image_unreadable", f"{file} can't be read as a picture.",
                why="It is empty." if kind == "empty" else "Its bytes are those of no kind of picture that is known.",
                fix="Remove the file, or put a good copy in its place.", details={"path": str(file)},
            )  # fmt: skip
        else:
            left_out.append(file)
    arrays = sorted(found.pop("npy") + found.pop("npz"))
    groups = {"images": found["image"], "sounds": found["sound"], "arrays": arrays}
    present = {kind: files for kind, files in groups.items() if files}
    if not present:
        raise _empty_folder(path, left_out)
    if len(present) > 1:
        first, second = list(present.items())[:2]
        raise InputError(
            "mixed_folder", f"{path} holds {first[0]} ({first[1][0].name} …) and {second[0]} ({second[1][0].name} …).",
            why="Which of them are the samples can't be told.", fix="Put one kind into a folder of its own.",
        )  # fmt: skip
    kind, files = next(iter(present.items()))
    return DataSource(kind, path, files=tuple(files), left_out=tuple(left_out))


def _empty_folder(path: Path, left_out: list[Path]) -> InputError:
    names = ", ".join(file.name for file in left_out[:3])
    return InputError(
        "empty_folder", f"{path} holds no samples.",
        why=f"None of its files is a picture, sound or array ({names} …)." if names else "There is no file in it.",
        fix=_TAKES,
    )  # fmt: skip


def _walk(folder: Path) -> Iterator[Path]:
    """Files below a folder in sorted order, hidden ones left out. Links to folders are followed, each folder once."""
    seen: set[tuple[int, int]] = set()
    count = 0
    for base, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        info = Path(base).stat()
        if (info.st_dev, info.st_ino) in seen:
            folders.clear()
            continue
        seen.add((info.st_dev, info.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(files):
            if name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini"):
                continue
            count += 1
            if count > MAX_FILES:
                raise InputError(
                    "too_many_files", f"{folder} holds more than {MAX_FILES} files.",
                    why="Some hundred samples are enough.", fix="Name a folder with a selection of them.",
                )  # fmt: skip
            yield Path(base) / name


def _refuse(exc: OSError) -> None:
    raise exc
