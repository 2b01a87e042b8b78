"""Small inline SVG pictures. They hold numbers only, take their colours from the page's variables, and need no script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from edgesdk.report import _words

_GAUGE_TOP = 120.0
"""dB at the right end of the fidelity scale; more is the rounding noise of float32 itself."""
_ZONES = ((0.0, 20.0, "bad"), (20.0, 30.0, "warn"), (30.0, 50.0, "fair"), (50.0, _GAUGE_TOP, "good"))


def _svg(width: float, height: float, body: str, label: str, css: str) -> Markup:
    stretch = ' preserveAspectRatio="none"' if css in ("bar", "stack") else ""  # their height is the style sheet's
    return Markup(
        f'<svg class="{css}"{stretch} viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(label)}</title>{body}</svg>'
    )


def donut(share: float, label: str) -> Markup:
    """A ring filled to ``share`` (0…1), the percentage in its middle."""
    radius, width = 40.0, 13.0
    around = 2 * math.pi * radius
    share = min(max(share, 0.0), 1.0)
    text = _words.percent(share).removesuffix(" %").replace("> ", "")
    size = 25 if len(text) < 4 else 20
    return _svg(
        100,
        100,
        f'<circle class="track" cx="50" cy="50" r="{radius:g}" fill="none" stroke-width="{width:g}"/>'
        f'<circle class="fill" cx="50" cy="50" r="{radius:g}" fill="none" stroke-width="{width:g}" '
        f'stroke-dasharray="{share * around:.2f} {around:.2f}" transform="rotate(-90 50 50)"/>'
        f'<text x="50" y="51" text-anchor="middle" dominant-baseline="middle" font-size="{size}">{text}<tspan class="unit">%</tspan></text>',
        label,
        "donut",
    )


def gauge(snr_db: float | None, label: str) -> Markup:
    """Where an output lies between "different" and "rounding only"; None is exact and stands at the right end."""
    width, top, height = 300.0, 14.0, 10.0
    value = _GAUGE_TOP if snr_db is None else min(max(snr_db, 0.0), _GAUGE_TOP)
    at = value / _GAUGE_TOP * width
    zones = "".join(
        f'<rect class="{tone}" x="{low / _GAUGE_TOP * width:.1f}" y="{top:g}" '
        f'width="{(high - low) / _GAUGE_TOP * width - 1.5:.1f}" height="{height:g}" rx="2"/>'
        for low, high, tone in _ZONES
    )
    marker = min(max(at, 6), width - 6)
    ticks = "".join(
        f'<text class="tick" x="{db / _GAUGE_TOP * width:.1f}" y="36" text-anchor="middle">{db}</text>'
        for db in (20, 50, 90)
    )
    return _svg(
        width,
        40,
        f'{zones}<path class="marker" d="M{marker:.1f} {top - 1:g} l-6 -11 h12 z"/>'
        f'<rect class="marker" x="{marker - 1.25:.2f}" y="{top - 2:g}" width="2.5" height="{height + 4:g}"/>'
        f'<text class="tick" x="0" y="36">0 dB</text>{ticks}'
        f'<text class="tick" x="{width:g}" y="36" text-anchor="end">{_GAUGE_TOP:.0f}</text>',
        label,
        "gauge",
    )


def bar(share: float, label: str, tone: str = "fill") -> Markup:
    """A bar filled to ``share`` of its track (0…1; more is cut)."""
    width = min(max(share, 0.004), 1.0) * 300
    return _svg(
        300,
        12,
        f'<rect class="track" width="300" height="12" rx="3"/><rect class="{tone}" width="{width:.1f}" height="12" rx="3"/>',
        label,
        "bar",
    )


def zone(snr_db: float) -> str:
    """The class (colour) of a signal-to-noise ratio, as on the gauge."""
    return next((tone for low, high, tone in _ZONES if low <= snr_db < high), "bad" if snr_db < 0 else "good")


def stack(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Parts of a whole side by side, in order; each gets the class ``c0``, ``c1``…"""
    total = sum(value for _, value in parts) or 1.0
    x, body = 0.0, ""
    for index, (_, value) in enumerate(parts):
        width = value / total * 600
        body += f'<rect class="c{index % 6}" x="{x:.1f}" y="0" width="{max(width - 1, 0.5):.1f}" height="16" rx="2"/>'
        x += width
    return _svg(600, 16, body, label, "stack")


def histogram(samples: Sequence[float], marks: Sequence[tuple[str, float]], label: str) -> Markup:
    """How often each value occurred, with named marks (``p50``). A long tail gets a logarithmic axis."""
    low, high = min(samples), max(samples)
    log = low > 0 and high / low > 4
    to = math.log if log else float
    first, last = to(low), to(high)
    span = (last - first) or 1.0
    bins = max(6, min(48, int(math.sqrt(len(samples))) * 2))
    counts = [0] * bins
    for value in samples:
        counts[min(int((to(value) - first) / span * bins), bins - 1)] += 1
    tallest, step = max(counts), 600 / bins
    body = "".join(
        f'<rect class="fill" x="{i * step:.1f}" y="{130 - n / tallest * 110:.1f}" width="{max(step - 1, 0.8):.1f}" '
        f'height="{n / tallest * 110:.1f}"/>'
        for i, n in enumerate(counts)
        if n
    )
    shown = -100.0
    for name, value in marks:
        x = min(max((to(value) - first) / span * 600, 1), 599)
        anchor = "end" if x > 540 else "start"
        row = 26 if x - shown < 60 else 12
        shown = x
        body += f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="130"/>'
        body += f'<text class="tick" x="{x + (-4 if anchor == "end" else 4):.1f}" y="{row}" text-anchor="{anchor}">{escape(name)}</text>'
    return _svg(600, 132, body + '<line class="axis" x1="0" x2="600" y1="130.5" y2="130.5"/>', label, "plot")


def timeline(series: Sequence[Sequence[float]], label: str) -> Markup:
    """Every sample in the order it was taken, one colour for each process: drift and throttling show as a slope."""
    values = [v for part in series for v in part]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = 600 / max(len(values) - 1, 1)
    thin = max(1, len(values) // 1500)
    body, index = "", 0
    for number, part in enumerate(series):
        points = [
            f"{(index + i) * step:.1f},{124 - (v - low) / span * 112:.1f}" for i, v in enumerate(part) if i % thin == 0
        ]
        body += f'<polyline class="line c{number % 6}" fill="none" points="{" ".join(points)}"/>'
        index += len(part)
    return _svg(600, 132, body + '<line class="axis" x1="0" x2="600" y1="130.5" y2="130.5"/>', label, "plot")
