"""Quantities in words for people, equal wherever they are told."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes in decimal units, as stores and phones count, with three digits: ``13.6 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5 or unit == "GB":
            break
        value /= 1000
    return f"{int(value)} B" if unit == "B" else f"{three(value)} {unit}"


def three(value: float) -> str:
    """A number with three digits, without zeros behind its point."""
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
