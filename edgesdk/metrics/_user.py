"""The user's own metric, ``file.py:metric``. Its code runs here, so only in a worker."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError
from edgesdk.metrics._base import Metric, Outputs

T = TypeVar("T")


_ERRORS = frozenset({
    "error", "errors", "err", "loss", "mae", "mse", "rmse", "mape", "nll", "perplexity", "ppl", "wer", "cer", "eer", "distance",
    "divergence", "miss", "misses", "fid",
})  # fmt: skip
"""Words of names whose values are the better the lower they are."""


def sounds_like_an_error(name: str) -> bool:
    """Whether the name says that lower is better: ``error_rate``, ``WordErrorRate``, ``val_loss``."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name.rpartition(".")[2])
    return any(word.lower() in _ERRORS for word in words)


_OF_ALL = frozenset({
    "f1", "fbeta", "auc", "auroc", "roc", "ap", "map", "precision", "recall", "r2", "kappa", "mcc", "corr", "correlation", "pearson",
    "spearman", "macro", "micro",
})  # fmt: skip
"""Words of names whose values come from a whole data set: an average over samples is another number."""


def _of_all(shown: str, member: str) -> InputError:
    return InputError(
        "metric_of_all", f"--metric {shown} is a function, and is called for one sample at a time; '{member}' is a figure of all.",
        why="Averages of F1, AUC or R² over single samples are other numbers, and the gate would hold the file to them.",
        fix=f"Make it a class with update(outputs, label) and compute() -> float. If an average is meant: {member}.per_sample = True",
    )  # fmt: skip


def _which_way(shown: str, member: str) -> InputError:
    return InputError(
        "metric_direction", f"--metric {shown}: is a higher value better, or a lower one?",
        why="It sounds like an error, and --max-drop would take a growing error for a gain.",
        fix=f"Say it in the file, below the definition: {member}.higher_is_better = False   (or True).",
    )  # fmt: skip


class UserMetric(Metric):
    """A function ``metric(outputs, label) -> float`` whose results are averaged over the calls, or a class whose objects
    have ``update(outputs, label)`` and ``compute() -> float``. ``outputs`` is a dict of arrays by output name.

    ``higher_is_better = False`` on the function or class turns its sense; ``points = True`` says that its values are
    shares in 0…100, whose drop is their difference. Otherwise a drop is percent of the original's value.
    """

    name = "user"
    title = "user's metric"

    def __init__(self, path: Path, member: str) -> None:
        super().__init__()
        self._file, self._member = path, member
        self._shown = f"{path}:{member}"
        with self._running():
            self._found = self._guarded(self._find, "")
        made: Any = self._found
        # Instance values stand over the class constants: they are the user's.
        self.name = member  # type: ignore[misc]
        self.title = member.replace("_", " ")  # type: ignore[misc]
        if not hasattr(made, "higher_is_better") and sounds_like_an_error(member):
            raise _which_way(self._shown, member)
        self.higher_is_better = bool(getattr(made, "higher_is_better", True))  # type: ignore[misc]
        self.unit = "points" if getattr(made, "points", False) else "own"  # type: ignore[misc]
        self.reset()
        words = re.findall(r"[a-z]+\d*", member.rpartition(".")[2].lower())
        if self._object is None and not getattr(made, "per_sample", False) and _OF_ALL.intersection(words):
            raise _of_all(self._shown, member)

    def reset(self) -> None:
        super().reset()
        self._sum = 0.0
        with self._running():
            self._object = self._guarded(self._make, "")

    def _make(self) -> Any:
        """A fresh object of the user's class; None for a plain function."""
        found = self._found
        made = found() if isinstance(found, type) else found
        if hasattr(made, "update") and hasattr(made, "compute"):
            return made if isinstance(found, type) else copy.deepcopy(made)
        if not callable(made):
            raise TypeError(f"a {type(made).__name__} is no function, and no class with update() and compute()")
        if isinstance(found, type):
            return made  # an object that is called
        return None

    def _find(self) -> Any:
        from edgesdk.importing._user_code import load_file

        found: Any = load_file(self._file, self._shown)
        for part in self._member.split("."):
            if not hasattr(found, part):
                raise none_such(self._file, self._member)
            found = getattr(found, part)
        return found

    def takes(self, output: TensorSpec) -> bool:
        return True

    def bind(self, outputs: Any) -> Self:
        return self.fresh()

    def update(self, outputs: Outputs, label: np.ndarray, where: str = "") -> None:
        with contextlib.redirect_stdout(sys.stderr):
            made = self._object
            if made is not None and hasattr(made, "update") and hasattr(made, "compute"):
                self._guarded(lambda: made.update(dict(outputs), label), where)
            else:
                call = made if made is not None else self._found
                self._sum += self._number(self._guarded(lambda: call(dict(outputs), label), where), where)
        self.count += 1

    def value(self) -> float:
        if not self.count:
            return float("nan")
        made = self._object
        if made is not None and hasattr(made, "compute"):
            with contextlib.redirect_stdout(sys.stderr):
                return self._number(self._guarded(made.compute, ""), "")
        return self._sum / self.count

    def _number(self, value: Any, where: str) -> float:
        try:
            number = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError) as exc:
            raise self._failed(where, f"gave a {type(value).__name__} instead of a number") from exc
        if not np.isfinite(number):
            raise self._failed(where, f"gave {'NaN' if np.isnan(number) else 'infinity'}")
        return number

    def _failed(self, where: str, what: str) -> InputError:
        at = f" at {where}" if where else ""
        return InputError(
            "metric_failed", f"--metric {self._shown} {what}{at}.", why="A metric answers with one number.",
            fix="Return a float: metric(outputs, label) -> float, or compute() -> float.", details={"where": where},
        )  # fmt: skip

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """For loading and making; later calls find the folder still importable, at the end of ``sys.path``."""
        from edgesdk.importing._user_code import environment

        with environment(self._file):
            yield

    def _guarded(self, action: Callable[[], T], where: str) -> T:
        """Run the user's code; what it raises is told with their line."""
        from edgesdk.importing._user_code import _place, is_ctrl_c

        try:
            return action()
        except InputError:
            raise
        except BaseException as exc:  # whatever it is, KeyboardInterrupt and GeneratorExit included
            if is_ctrl_c(exc):
                raise
            text = (str(exc).strip() or "no message").splitlines()[0][:300]
            at = f" on {where}" if where else ""
            raise InputError(
                "metric_failed",
                f"--metric {self._shown} raised {type(exc).__name__}{at}: {text} ({_place(exc, self._file)}).",
                why="The fault is in the metric's own code, or it expects other outputs or labels.",
                fix="It is called as metric(outputs, label), outputs a dict of arrays by output name, label an array too; both "
                "begin with the batch (label[0] is the number of a class). Try it in Python.",
                details={"where": where, "exception": type(exc).__name__},
            ) from exc  # fmt: skip


def none_such(path: Path, member: str) -> InputError:
    from edgesdk.importing._locate import factories_in

    offered = factories_in(path)
    return InputError(
        "no_metric", f"{path} has no '{member}'.",
        why=f"It defines {', '.join(offered[:8])}." if offered else "It defines no function or class.",
        fix=f"Write --metric {path}:{offered[0] if offered else 'METRIC'}",
    )  # fmt: skip
