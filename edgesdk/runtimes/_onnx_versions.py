"""Which ONNX Runtime reads which opset and file version."""

from __future__ import annotations

from collections.abc import Mapping

from edgesdk.errors import UnsupportedError, UsageError

DEFAULT_OPSET = 18
"""torch's exporter is written in opset 18, so nothing is converted; ONNX Runtime 1.14 (2023) and every later one read
it. 17 would be reached by a lossy conversion and gain one older release."""

LOWEST_OPSET = 11
HIGHEST_OPSET = 22
"""What the ONNX Runtime that the emitted projects pin (1.22) reads."""

# Opset -> first ONNX Runtime that loads it. 19…23 were tried: one file per opset and file version, loaded by the wheels
# 1.15.1 (says it reads 19, but has no kernel for Reshape 19), 1.16.3, 1.17.3, 1.18.1, 1.19.2, 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.1. Below: onnxruntime.ai, compatibility.
_BY_OPSET: Mapping[int, str] = {
    15: "1.10", 16: "1.11", 17: "1.12", 18: "1.14", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23",
    24: "1.24", 25: "1.24", 26: "1.25",
}  # fmt: skip
# File (IR) version -> first ONNX Runtime; from the same trial.
_BY_IR: Mapping[int, str] = {8: "1.10", 9: "1.15", 10: "1.18", 11: "1.23", 12: "1.24", 13: "1.24"}
# Opset -> file version of its time (onnx.helper.VERSION_TABLE).
_IR_OF_OPSET: Mapping[int, int] = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 12, 26: 13}


def check_opset(opset: int | None) -> int:
    """The opset to write.

    Raises:
        UsageError: it is none that can be written for the pinned runtime.
    """
    wanted = DEFAULT_OPSET if opset is None else opset
    if not LOWEST_OPSET <= wanted <= HIGHEST_OPSET:
        raise UsageError(
            "bad_opset", f"ONNX opset {wanted} can't be written.",
            why=f"{LOWEST_OPSET} to {HIGHEST_OPSET} can: older ones lack operators, newer ones are refused by the "
                f"ONNX Runtime on the phone.",
            fix=f"Leave the opset out ({DEFAULT_OPSET} is the default), or choose one of these.",
        )  # fmt: skip
    return wanted


def lowest_ir(opset: int) -> int:
    """The oldest file version that can carry the opset, never below 8 (older ones list weights as inputs)."""
    return _IR_OF_OPSET.get(opset, 8 if opset < DEFAULT_OPSET else max(_IR_OF_OPSET.values()))


def least_runtime(opset: int, ir_version: int) -> str:
    """The first ONNX Runtime that loads such a file, e.g. ``"1.14"``."""
    by_opset = _BY_OPSET.get(opset, "1.10" if opset < 15 else _BY_OPSET[max(_BY_OPSET)])
    by_ir = _BY_IR.get(ir_version, "1.10" if ir_version < 8 else _BY_IR[max(_BY_IR)])
    return max(by_opset, by_ir, key=_key)


def newest(*versions: str) -> str:
    """The highest of some versions; an empty one asks for nothing."""
    return max((v for v in versions if v), key=_key)


def check_file(name: str, opset: int, ir_version: int) -> None:
    """Refuse a user's file that the phone's ONNX Runtime wouldn't load.

    Raises:
        UnsupportedError: its opset or file version is too new.
    """
    ceiling = lowest_ir(HIGHEST_OPSET)
    if opset <= HIGHEST_OPSET and ir_version <= ceiling:
        return
    what = f"opset {opset}" if opset > HIGHEST_OPSET else f"file version {ir_version}"
    raise UnsupportedError(
        "onnx_too_new", f"{name} has {what}, which needs ONNX Runtime {least_runtime(opset, ir_version)}.",
        why=f"The one on the phone reads up to opset {HIGHEST_OPSET} and file version {ceiling}.",
        fix=f"Export it again with opset {HIGHEST_OPSET} or below ({DEFAULT_OPSET} is safe).",
    )  # fmt: skip


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
