"""What ``package`` says to people: a table of the variants, where the files are, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgesdk import units
from edgesdk.cli._output import NOTES, percent, table
from edgesdk.evaluation import figure

if TYPE_CHECKING:
    from rich.console import Console

Document = Mapping[str, Any]

_NEXT = {
    "android": "add the folder {output}/android to your Gradle build; {output}/README.md has the lines to paste.",
    "ios": "add the Swift package below {output}/ios to your Xcode project; {output}/README.md has the lines to paste.",
    "linux": "{output}/README.md has the Python lines that load it.",
}


def one_or(name: str, documents: Sequence[Document]) -> Document:
    """What --json prints: the document of one target; for several targets one object that holds theirs."""
    return documents[0] if len(documents) == 1 else {"schema": f"edgesdk.{name}/1", name: list(documents)}


def show_packages(console: Console, documents: Sequence[Document]) -> None:
    for document in documents:
        _show(console, document)


def _show(console: Console, document: Document) -> None:
    name, target = document["name"], document["target"]
    _line(console, f"\n{name} {document['version']} for {target}", style="bold")
    console.print()
    heads = ("variant", "size", "fidelity", "delegated", "verified")
    console.print(table(heads, [_row(v) for v in document["variants"]], right=(1, 3)))
    console.print()
    _line(console, f"  bundle   {document['bundle']}  ({units.size(document['bundle_bytes'])}{_parts(document)})")
    _line(console, f"  report   {document['output']}/report.html")
    _line(console, f"  next     {_NEXT.get(target, _NEXT['linux']).format(output=document['output'])}")
    _warnings(console, document)
    _line(console, f"  took     {_times(document)}", style="dim")


def _parts(document: Document) -> str:
    """``: models 405 kB, golden vectors 1.2 kB, rest 48 kB``; what made it large when the model didn't."""
    parts: Mapping[str, int] = document.get("bundle_parts") or {}
    names = (("models", "models"), ("golden", "golden vectors"), ("rest", "manifest and padding"))
    told = [f"{name} {units.size(parts[key])}" for key, name in names if key in parts]
    return f": {', '.join(told)}" if told else ""


def _warnings(console: Console, document: Document) -> None:
    for warning in document["warnings"]:
        note = warning["code"] in NOTES
        message = warning["message"]
        if warning["code"] == "auto_choice":  # a line for each candidate
            message = "auto tried" + "".join(f"\n           {tried}" for tried in message.split("; "))
        _line(console, f"  {'note   ' if note else 'warning'}  {message}", style="" if note else "yellow")


def show_file(console: Console, document: Document) -> None:
    """What ``lower`` and ``quantize`` say: one line about the file, then its warnings."""
    variant = document["variant"]
    _line(console, f"{document['output']}  {variant['id']}, {units.size(variant['bytes'])}, {fidelity(variant)}")
    _warnings(console, document)


def _line(console: Console, text: str, style: str = "") -> None:
    """Text as it is: a model's name may hold brackets, which Rich would read as markup."""
    console.print(text, style=style or None, markup=False)


def _row(variant: Document) -> tuple[str, ...]:
    verified = {True: "yes", False: "NO", "not_run": "not run here"}[variant["verified"]]
    fraction = variant["delegated_fraction"]
    rung = "" if variant["rung"] == "full" or fraction is None else f" ({variant['rung']})"
    outside = sum(((variant.get("details") or {}).get("leftovers") or {}).values())
    beside = f", {outside} operator{'' if outside == 1 else 's'} outside" if outside and fraction else ""
    delegated = "–" if fraction is None else f"{percent(fraction)}{beside}{rung}"
    return variant["id"], units.size(variant["bytes"]), fidelity(variant), delegated, verified


def fidelity(variant: Document) -> str:
    """The worst output: its error, how far below the signal that is, and how often the first class agrees."""
    judged = ((variant.get("details") or {}).get("guard") or {}).get("evaluation") or {}
    outputs = judged.get("outputs") or variant["outputs"]  # what the shares beside them were measured on
    if not outputs:
        return "–"
    worst = max(outputs, key=lambda o: o["max_abs_error"])
    parts = ["exact" if worst["max_abs_error"] == 0 else f"max error {worst['max_abs_error']:.1e}"]
    if worst["snr_db"] is not None:
        parts.append(f"{worst['snr_db']:.0f} dB")
    if variant["top1_agreement"] is not None:
        parts.append(f"top-1 agreement {100 * variant['top1_agreement']:.1f} %")
    metric = variant.get("metric")
    if metric is not None:
        parts.append(f"{metric['name']} {figure(metric['original'])} → {figure(metric['value'])}")
    return ", ".join(parts)


def _times(document: Document) -> str:
    times, cache = document["timings_s"], document["cache"]
    steps = [f"{step} {times[step]:.1f}" for step in ("import", "lower", "verify", "bundle") if times[step]]
    rest = times["total"] - sum(times[step] for step in ("import", "lower", "verify", "bundle"))
    if steps and rest > 0.1 * times["total"]:  # with several files at once the steps overlap, and nothing is left
        judged = any(v["details"].get("guard") for v in document["variants"])
        steps.append(f"{'samples, judging and the rest' if judged else 'the rest'} {rest:.1f}")
    parts = [", ".join(steps)] if steps else []
    if cache["hits"]:
        parts.append(f"{cache['hits']} from the cache")
    return f"{times['total']:.1f} s" + (f" ({'; '.join(parts)})" if parts else "")


def show_plans(console: Console, plans: Sequence[Document]) -> None:
    for plan in plans:
        _line(console, f"{plan['name']} {plan['version']} for {plan['target']} → {plan['output']}", style="bold")
        _line(console, f"  from     {plan['model']} ({plan['format']})")
        for variant in plan["variants"]:
            others = f", else {', '.join(variant['or_else'])}" if variant.get("or_else") else ""
            chosen = variant.get("candidates")
            made = f"the best of {', '.join(chosen)}" if chosen else variant["file"]
            _line(console, f"  make     {made}{others}")
        _line(console, f"  cached   {'yes' if plan.get('cached') else 'no'}")
        _line(console, f"  signed   {'yes' if plan.get('signed') else 'no'}")
    _line(console, "Nothing was written (--dry-run).")
