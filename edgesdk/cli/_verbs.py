"""The verbs and the page that ``edgesdk --help`` shows: plain data, so that help costs no import.

A verb is one module of this package; it is imported when the verb is used.
"""

from __future__ import annotations

from collections.abc import Mapping

VERBS: Mapping[str, str] = {
    "package": "The whole job: a model in, a verified folder for the app out.",
    "inspect": "Say what a file is, and what each runtime will and won't take of it.",
    "train": "Train a model as a recipe says.",
    "compress": "Prune or distil a model.",
    "quantize": "Make one int8, int4 or fp16 file, judged on your data.",
    "lower": "One model, one runtime, one file.",
    "bundle": "Wrap files that you already have in a verified .edge.",
    "verify": "Check hashes and signature of a bundle, and run it again.",
    "bench": "Measure a bundle on a device.",
    "compare": "Compare two measurements and gate on the ratio.",
    "report": "Write one page about packages: .html, .md, .csv or .json.",
    "devices": "List the devices that could run a bundle.",
    "doctor": "Say what is missing here, and the command that installs it.",
    "cache": "Show or clean the cache of lowered files.",
    "keys": "Make a key that signs bundles (edgesdk keys new -o KEY).",
    "init": "Write a commented recipe for a model.",
}

LATER = frozenset({"train", "compress", "bench", "compare"})
"""Verbs that are documented and answer with exit 8."""

_HEAD = """\
edgesdk takes a PyTorch model to a phone: lowered, checked against the original, signed, in an app project.

Usage: edgesdk VERB [OPTIONS]
       edgesdk VERB --help

  edgesdk package model.pt2 --target android

Verbs:
"""

_TAIL = """
Every verb takes:
  --json      print one JSON object on stdout and nothing else there
  --quiet     no progress; only the answer, and warnings
  --verbose   more progress; show a traceback when edgesdk itself fails
  --help      what the verb does and its options

Options:
  --version               print the version
  --install-completion    install completion of verbs, options and choices in this shell; or name one: bash, zsh, fish
  --show-completion       print it

Exit codes: 0 done, 1 a bug of ours, 2 command line, 3 model or data, 4 not supported by the runtime,
5 a gate did not hold, 6 hash or signature, 7 device, 8 a tool or library is missing.
"""


def root_help() -> str:
    """The page of ``edgesdk --help``."""
    width = max(map(len, VERBS)) + 2
    here = [f"  {name:<{width}}{text}\n" for name, text in VERBS.items() if name not in LATER]
    later = [f"  {name:<{width}}{VERBS[name]}\n" for name in VERBS if name in LATER]
    return "".join([_HEAD, *here, "\nNot in this version:\n", *later, _TAIL])
