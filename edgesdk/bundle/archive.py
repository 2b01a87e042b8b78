"""Open ``.edge`` files. The format is specified in the docstring of :mod:`edgesdk.bundle`."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgesdk.bundle import _errors, _files, _layout, _onnx, _rules, _zip, signing
from edgesdk.bundle.manifest import MANIFEST, MAX_MANIFEST, SIGNATURE, Manifest, parse
from edgesdk.errors import IntegrityError, UsageError, nearest

if TYPE_CHECKING:
    from edgesdk.session import Session

Check = Literal["layout", "all"]
SignatureState = Literal["valid", "absent", "invalid", "untrusted"]


class EdgeBundle:
    """An open bundle. Entries are views into the mapped file: nothing is copied until it is asked for.

    The file may be deleted or replaced meanwhile, as edgesdk replaces files, but must not be shortened in place.

    with EdgeBundle.open(Path("digits.edge")) as bundle:
        print(bundle.manifest.name, bundle.signature)
    """

    def __init__(self, path: Path, data: mmap.mmap, manifest: Manifest, layout: _zip.Layout) -> None:
        self.path = path
        self.manifest = manifest
        self.signature: SignatureState = "absent"
        self._data = data
        self._placed = {p.entry.name: p for p in layout.placed}
        self._key: signing.PublicKey | None = None
        self._whole = False

    @staticmethod
    def open(path: Path | str, *, key: Path | str | None = None, check: Check = "all") -> EdgeBundle:
        """Open and check a bundle.

        Args:
            key: public key (``KEY.pub``) to pin: an unsigned bundle or one signed by another key is refused.
            check: ``all`` hashes every entry; ``layout`` reads only manifest, headers and signature, for a first look.

        Raises:
            InputError: missing, damaged, of another kind, or breaking a rule or limit of the format.
            IntegrityError: an entry's hash or the signature is wrong, or the signature is not by the pinned key.
        """
        path = Path(path)
        pinned = signing.load_public(Path(key)) if key else None
        data = _map(path)
        try:
            return EdgeBundle._checked(path, data, pinned, check)
        except BaseException:
            with contextlib.suppress(BufferError):
                data.close()
            raise

    @staticmethod
    def _checked(path: Path, data: mmap.mmap, pinned: signing.PublicKey | None, check: Check) -> EdgeBundle:
        raw = _first_entry(data, path)
        manifest = parse(raw, path.name)
        for problem in _rules.violations(manifest):
            raise _errors.invalid(path.name, problem)
        bundle = EdgeBundle(path, data, manifest, _checked_layout(data, path, manifest, raw))
        bundle._check_signature(raw, pinned)
        if check == "all":
            bundle.check()
        return bundle

    @property
    def checked(self) -> bool:
        """Whether every entry has been checked; see :meth:`check`."""
        return self._whole

    @property
    def names(self) -> tuple[str, ...]:
        """Every entry, in file order."""
        return tuple(self._placed)

    @property
    def signer(self) -> str | None:
        """Id of the key that signed: SHA-256 of its 32 bytes."""
        return self._key.id if self._key else None

    @property
    def sha256(self) -> str:
        """Of the whole file."""
        with memoryview(self._data) as view:
            return hashlib.sha256(view).hexdigest()

    def file(self, name: str) -> memoryview:
        """The bytes of one entry, not copied; release it before closing the bundle.

        Raises:
            UsageError: there is no such entry.
        """
        if name not in self._placed:
            raise UsageError(
                "unknown_entry",
                f"{self.path} has no entry '{name}'.",
                why=nearest(name, self._placed),
                fix="Ask for one of them.",
            )
        placed = self._placed[name]
        return memoryview(self._data).toreadonly()[placed.data : placed.data + placed.entry.size]

    def extract(self, name: str, to: Path) -> None:
        """Copy one entry to a file, whole or not at all, making its folder; its hash is checked unless :meth:`check` has done so.

        Raises:
            IntegrityError: the hash is wrong.
            InputError: ``to`` can't be written.
        """
        with self.file(name) as view:
            if not self._whole:
                self._check_hash(name, view)
            try:
                to.parent.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise _errors.unwritable(to, exc) from exc
            with _files.appearing(to) as file:
                file.write(view)
        self._forget_pages()

    def check(self) -> None:
        """Hash every entry, and see that no model would make its engine open files outside the bundle.

        Raises:
            IntegrityError: an entry is not what the manifest says; the message names it.
            InputError: an ONNX file keeps weights outside, or is damaged.
        """
        for part in self.manifest.files:
            with self.file(part.name) as view:
                self._check_hash(part.name, view)
            self._forget_pages()
        for variant in self.manifest.variants:
            _onnx.check_external_data(self, variant)
        self._forget_pages()
        self._whole = True

    def session(self, variant: str | None = None, *, threads: int | None = None) -> Session:
        """Load a variant; see :func:`edgesdk.load`. The session keeps nothing of this bundle open."""
        from edgesdk.session import open_session

        return open_session(self, variant, threads=threads)

    def close(self) -> None:
        """Unmap the file, unless views of it are still held: it is then unmapped with the last of them."""
        with contextlib.suppress(BufferError):
            self._data.close()

    def __enter__(self) -> EdgeBundle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"EdgeBundle({self.path.name!r}, {len(self.manifest.variants)} variants, signature {self.signature})"

    def _forget_pages(self) -> None:
        """Pages that were read count as this process's memory, as long as views of other entries keep the file mapped."""
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self._data.madvise(mmap.MADV_DONTNEED)

    def _check_hash(self, name: str, view: memoryview) -> None:
        part = next((f for f in self.manifest.files if f.name == name), None)
        if part is None:
            return
        if hashlib.sha256(view).hexdigest() != part.sha256 or zlib.crc32(view) != int(part.crc32, 16):
            raise _errors.mismatch(self.path, name)

    def _check_signature(self, manifest: bytes, pinned: signing.PublicKey | None) -> None:
        if SIGNATURE in self._placed:
            with self.file(SIGNATURE) as view:
                self._key = signing.read(bytes(view), manifest)
            if self._key is None:
                raise _refuse_signature(self.path, "invalid", "its signature does not fit its manifest")
            self.signature = "valid"
        if pinned and self._key is None:
            raise _refuse_signature(self.path, "untrusted", "it is not signed, but a key is pinned")
        if pinned and self._key != pinned:
            raise _refuse_signature(self.path, "untrusted", "it is signed by another key than the pinned one")


def _refuse_signature(path: Path, state: SignatureState, problem: str) -> IntegrityError:
    return IntegrityError(
        f"signature_{state}", f"{path} is not trusted: {problem}.",
        why="It was packaged without --sign, or comes from somebody else."
        if "not signed" in problem
        else "It was changed after signing, or comes from somebody else.",
        fix="Get it from its maker, or pass the maker's own KEY.pub with --key.", details={"signature": state},
    )  # fmt: skip


def _map(path: Path) -> mmap.mmap:
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise _errors.missing(path, "is a folder")
        if not stat.S_ISREG(info.st_mode):
            raise _errors.missing(path, "is no ordinary file")
        if info.st_size == 0:
            raise _errors.corrupt(path, "it is empty")
        if info.st_size > _zip.MAX_BUNDLE:
            raise _errors.corrupt(path, f"it has {info.st_size} bytes; the limit is {_zip.MAX_BUNDLE}")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as exc:
        raise _errors.missing(path, "does not exist") from exc
    except (OSError, ValueError) as exc:
        raise _errors.missing(path, f"can't be read ({getattr(exc, 'strerror', None) or exc})") from exc


def _first_entry(data: mmap.mmap, path: Path) -> bytes:
    """The manifest's bytes, found through the first local header alone."""
    if data[:4] != _zip.LOCAL_MAGIC:
        raise _errors.corrupt(path, "it does not begin like a ZIP")
    if len(data) < _zip.LOCAL.size:
        raise _errors.corrupt(path, "it is cut short")
    _, _, flags, method, *_, size, name_length, extra = _zip.LOCAL.unpack_from(data)
    start = _zip.LOCAL.size + name_length
    if data[_zip.LOCAL.size : start] != MANIFEST.encode():
        raise _errors.corrupt(
            path, f"its first entry is not {MANIFEST}", why="It is a ZIP of another kind, or was packed again."
        )
    if flags or method:
        raise _errors.layout(path, f"{MANIFEST} is compressed, encrypted, or streamed")
    if size > MAX_MANIFEST:
        raise _errors.invalid(path.name, f"it has {size} bytes; the limit is {MAX_MANIFEST}")
    raw = data[start + extra : start + extra + size]
    if len(raw) != size:
        raise _errors.corrupt(path, "it is cut short within the manifest")
    return raw


def _checked_layout(data: mmap.mmap, path: Path, manifest: Manifest, raw: bytes) -> _zip.Layout:
    """Lay the bundle out from its manifest and compare every byte that is not payload."""
    plain = _zip.place(_layout.entries(manifest, len(raw), zlib.crc32(raw), None))
    signed = _signed_layout(data, manifest, raw)
    if len(data) not in (plain.size, signed.size):
        if len(data) < plain.size and data[-_zip.END.size :][:4] != _zip.END_MAGIC:
            raise _errors.corrupt(path, f"it is cut short: {len(data)} of {plain.size} bytes are there")
        raise _errors.layout(path, f"it has {len(data)} bytes, not {plain.size}, or {signed.size} if signed")
    layout = signed if len(data) == signed.size else plain
    for offset, fixed, what in layout.fixed():
        if data[offset : offset + len(fixed)] != fixed:
            raise _errors.layout(path, f"{what} differs")
    return layout


def _signed_layout(data: mmap.mmap, manifest: Manifest, raw: bytes) -> _zip.Layout:
    """As if signed. The signature's own CRC is the one thing that follows from no manifest, so it is taken here."""
    entries = _layout.entries(manifest, len(raw), zlib.crc32(raw), (signing.SIGNATURE_SIZE, 0))
    placed = next(p for p in _zip.place(entries).placed if p.entry.name == SIGNATURE)
    crc = zlib.crc32(data[placed.data : placed.data + placed.entry.size])
    return _zip.place(_layout.entries(manifest, len(raw), zlib.crc32(raw), (signing.SIGNATURE_SIZE, crc)))
