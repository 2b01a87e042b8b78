"""ZIP archives from strangers: the central directory is read, limits are checked, nothing is unpacked."""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgesdk.errors import InputError

MAX_MEMBERS: Final = 200_000
MAX_DIRECTORY: Final = 64 << 20
# torch stores tensors as they are; only TorchScript's code is compressed, and code is small.
MAX_INFLATED: Final = 256 << 20
MAX_JSON: Final = 512 << 20
MAX_PICKLE: Final = 512 << 20
_UNREADABLE: Final = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip
_END = b"PK\x05\x06"
_END_SIZE: Final = 22


@dataclass(frozen=True)
class Members:
    """A ZIP's table of contents.

    Attributes:
        names: member names below the root folder that torch's archives have (``archive/data.pkl`` → ``data.pkl``).
        root: that folder with its slash, ``""`` when the members don't share one.
    """

    path: Path
    names: frozenset[str]
    root: str

    def read(self, name: str, limit: int) -> bytes:
        """A member's bytes.

        Raises:
            InputError: it is larger than ``limit``, damaged, or packed in a way that Python can't read.
        """
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.root + name) as member:
                data = member.read(limit + 1)
        except _UNREADABLE as exc:
            raise damaged(self.path, f"its member '{name}' can't be read ({exc})") from exc
        if len(data) > limit:
            raise suspicious(self.path, f"its member '{name}' is larger than {limit >> 20} MB")
        return data


def damaged(path: Path, what: str) -> InputError:
    return InputError(
        "damaged_file", f"{path} is damaged: {what}.",
        why="The download or copy was probably cut short, or the file was changed afterwards.",
        fix="Get the file again and compare its size and checksum with the source.",
    )  # fmt: skip


def suspicious(path: Path, what: str) -> InputError:
    return InputError(
        "unsafe_archive", f"{path} is refused: {what}.",
        why="No PyTorch version writes such an archive; it is built to exhaust memory or to fool readers.",
        fix="Don't use this file. Get the model from a source you trust, best as .safetensors or .pt2.",
    )  # fmt: skip


def open_members(path: Path) -> Members:
    """Read and check the central directory of a ZIP.

    Raises:
        InputError: the archive is cut short, lies about its sizes, holds names twice, or unpacks to far more than it is.
    """
    size = path.stat().st_size
    _check_end(path, size)
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as exc:
        raise damaged(path, f"it begins like a ZIP archive, but its table of contents can't be read ({exc})") from exc
    _check_infos(path, size, infos)
    names = [info.filename for info in infos if not info.is_dir()]
    roots = {name.split("/", 1)[0] + "/" if "/" in name else "" for name in names}
    root = roots.pop() if len(roots) == 1 else ""
    return Members(path, frozenset(name[len(root) :] for name in names), root)


def check_checksums(path: Path) -> None:
    """Compare every member with its CRC-32: torch's own readers don't, and a flipped bit in a weight would go unseen.

    Archives in which no member's checksum is right were written with ``torch.serialization.set_crc32_options(False)``.

    Raises:
        InputError: a member's bytes are not those that were written.
    """
    wrong: list[str] = []
    right = 0
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.file_size:
                    continue
                try:
                    with archive.open(info) as member:
                        while member.read(1 << 22):
                            pass
                    right += 1
                except (zipfile.BadZipFile, zlib.error, EOFError):
                    wrong.append(info.filename)
    except (NotImplementedError, RuntimeError, ValueError) as exc:
        raise damaged(path, f"a member of it can't be unpacked ({exc})") from exc
    if wrong and right:
        raise damaged(path, f"the checksum of its member '{wrong[0]}' is wrong")


def _check_end(path: Path, size: int) -> None:
    """The record at the end, before zipfile allocates what it claims."""
    with path.open("rb") as file:
        file.seek(max(0, size - _END_SIZE - 65535))
        tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        raise damaged(path, "it begins like a ZIP archive, but its end, where the table of contents stands, is missing")
    count, directory, _, comment = struct.unpack_from("<HIIH", tail, at + 10)
    if at + _END_SIZE + comment != len(tail):  # the end of an archive inside this one, which itself was cut short
        raise damaged(path, "it begins like a ZIP archive, but its end, where the table of contents stands, is missing")
    if directory != 0xFFFFFFFF and directory > size:
        raise damaged(path, f"its table of contents claims {directory} bytes, the whole file has {size}")
    if directory != 0xFFFFFFFF and directory > MAX_DIRECTORY or (count != 0xFFFF and count > MAX_MEMBERS):
        raise suspicious(path, f"its table of contents has {directory} bytes")


def _check_infos(path: Path, size: int, infos: list[zipfile.ZipInfo]) -> None:
    if len(infos) > MAX_MEMBERS:
        raise suspicious(path, f"it has {len(infos)} members")
    if infos and min(info.header_offset for info in infos) != 0:
        raise damaged(path, "its table of contents describes only the archive inside its last member")
    seen: set[str] = set()
    inflated = 0
    for info in infos:
        if info.filename in seen:
            raise suspicious(path, f"it holds the name '{info.filename}' twice")
        seen.add(info.filename)
        if info.flag_bits & 1:
            raise suspicious(path, f"its member '{info.filename}' is encrypted")
        if info.compress_size > size or info.header_offset >= size:
            raise damaged(path, f"its member '{info.filename}' claims {info.compress_size} bytes, the file has {size}")
        if info.compress_type == zipfile.ZIP_STORED:
            if info.file_size != info.compress_size:
                raise suspicious(
                    path, f"its member '{info.filename}' claims {info.file_size} bytes for {info.compress_size}"
                )
        else:
            inflated += info.file_size
    if inflated > max(MAX_INFLATED, 4 * size):
        raise suspicious(path, f"it unpacks to {inflated >> 20} MB, {inflated // max(size, 1)} times its size")
