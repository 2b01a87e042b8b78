"""The sentences of the bundle's errors, in one place. Codes are equal in Python, Java and Swift.

| code                  | exit | means                                                                     |
|-----------------------|------|---------------------------------------------------------------------------|
| ``bundle_missing``    | 3    | no such file, a folder, not readable                                      |
| ``bundle_corrupt``    | 3    | not a bundle at all: empty, cut, another kind of file, manifest unreadable |
| ``bundle_layout``     | 3    | a byte outside the payloads differs from what the manifest prescribes     |
| ``manifest_invalid``  | 3    | the manifest breaks a rule or a limit                                     |
| ``bundle_too_new``    | 3    | another major version of the schema                                       |
| ``hash_mismatch``     | 6    | an entry's bytes are not those that the manifest names                    |
| ``signature_invalid`` | 6    | the signature does not fit the manifest                                   |
| ``signature_untrusted`` | 6  | unsigned, or signed by another key than the pinned one                    |
"""

from __future__ import annotations

import errno
from pathlib import Path

from edgesdk.errors import InputError, IntegrityError

AGAIN = "Get the file again from where it was made, or build it again with: edgesdk package MODEL"


def missing(path: Path, problem: str) -> InputError:
    return InputError(
        "bundle_missing", f"{path} {problem}.", why="A bundle is one file that ends in .edge.", fix="Check the path."
    )


def corrupt(
    path: Path, problem: str, why: str = "The download or copy stopped half-way, or the file is of another kind."
) -> InputError:
    return InputError("bundle_corrupt", f"{path} is no readable bundle: {problem}.", why=why, fix=AGAIN)


def layout(path: Path, problem: str) -> InputError:
    return InputError(
        "bundle_layout", f"{path} is not laid out as its manifest prescribes: {problem}.",
        why="Bytes were damaged or changed, or the file was packed by another program than edgesdk.", fix=AGAIN,
    )  # fmt: skip


def invalid(where: str, problem: str) -> InputError:
    return InputError(
        "manifest_invalid", f"The manifest of {where} can't be used: {problem}.",
        why="It breaks a rule or a limit of edgesdk.bundle/1.", fix="Build the bundle again with: edgesdk package MODEL",
    )  # fmt: skip


def mismatch(path: Path, name: str) -> IntegrityError:
    return IntegrityError(
        "hash_mismatch", f"{path}: the bytes of '{name}' are not those that the manifest names.",
        why="The file was damaged on the way, or somebody changed it.", fix=AGAIN, details={"entry": name},
    )  # fmt: skip


def unwritable(path: Path, cause: OSError) -> InputError:
    """A file can't be written: disk full, no permission, no such folder."""
    full = cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return InputError(
        "disk_full" if full else "not_writable", f"{path} can't be written: {cause.strerror or cause}.",
        why="The disk or the quota is full." if full else "The folder is missing or may not be written to.",
        fix="Free some space, or choose another folder with -o." if full else "Choose another folder with -o.",
    )  # fmt: skip
