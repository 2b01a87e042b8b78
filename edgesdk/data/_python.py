"""Samples from the user's own code, ``file.py:dataset``: a Dataset, an IterableDataset, any iterable, or what makes one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgesdk.artifacts import TensorSpec
from edgesdk.data._facts import ModelFacts
from edgesdk.data._files import cell_file, prepared
from edgesdk.data._locate import none_such
from edgesdk.data._npz import LABEL
from edgesdk.data._readers import Reader, Row
from edgesdk.errors import InputError

T = TypeVar("T")
_END = object()


class PythonReader(Reader):
    """The user's code runs here, so only in a worker."""

    def __init__(self, path: Path, member: str, facts: ModelFacts, seed: int) -> None:
        self._file, self._facts, self._seed = path, facts, seed
        self._shown = f"{path}:{member}"
        with self._running():
            self._data = self._guarded(lambda: self._open(member))
            self._indexed = _is_indexed(self._data)
            self.count = self._guarded(lambda: len(self._data)) if self._indexed else None
            self.classes = self._guarded(lambda: _targets(self._data, self.count))

    def _open(self, member: str) -> Any:
        from edgesdk.importing._user_code import load_file

        found: Any = load_file(self._file, self._shown)
        for part in member.split("."):
            if not hasattr(found, part):
                raise none_such(self._file, member)
            found = getattr(found, part)
        if isinstance(found, type) or (callable(found) and not _is_data(found)):
            found = found()
        dataset = getattr(found, "dataset", None)  # a DataLoader's batches are of no use, its dataset is
        if dataset is not None and hasattr(found, "batch_size") and hasattr(found, "collate_fn"):
            found = dataset
        if not _is_data(found):
            raise InputError(
                "bad_dataset", f"{self._shown} is a {type(found).__name__}, which can't be iterated.",
                why="A dataset yields samples: a dict by input name, (input, label), or the input alone.",
                fix="Return a list, a generator, or a torch Dataset.",
            )  # fmt: skip
        return found

    def rows(self, chosen: Sequence[int] | None) -> Generator[Row, None, None]:
        with self._running():
            if self._indexed:
                for number in chosen if chosen is not None else range(self.count or 0):
                    where = f"{self._shown}[{number}]"
                    yield self._row(self._guarded(lambda i=number: self._data[i], where), where)  # type: ignore[misc]
                return
            items = self._guarded(lambda: iter(self._data))
            number = 0
            while True:
                where = f"{self._shown}, sample {number}"
                item = self._guarded(lambda: next(items, _END), where)
                if item is _END:
                    return
                yield self._row(item, where)
                number += 1

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """The folder importable, prints on stderr, and the same random numbers every time."""
        from edgesdk.importing._user_code import environment

        with environment(self._file), _seeded(self._seed):
            yield

    def _guarded(self, action: Callable[[], T], where: str | None = None) -> T:
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
            raise InputError(
                "user_code_failed",
                f"{where or self._shown} raised {type(exc).__name__}: {text} ({_place(exc, self._file)}).",
                why="The fault is in the dataset's own code, or a file that it reads is missing.",
                fix="Run that code by itself in Python, correct it, and try again.",
                details={"exception": type(exc).__name__},
            ) from exc  # fmt: skip

    # --- what a sample may be -----------------------------------------------------------------------------------------

    def _row(self, item: Any, where: str) -> Row:
        values, label = self._apart(item, where)
        specs = {spec.name: spec for spec in self._facts.signature.inputs}
        unknown = [name for name in values if name not in specs]
        if unknown:
            raise InputError(
                "unknown_input", f"{where} gives '{unknown[0]}', which is no input of the model.",
                why=f"The inputs are {', '.join(map(str, specs.values()))}.",
                fix=f"Yield a dict with {', '.join(map(repr, specs))} and maybe 'label'.",
            )  # fmt: skip
        inputs = {name: self._array(value, specs[name], where) for name, value in values.items()}
        return Row(inputs, None if label is None else _plain(label), where)

    def _apart(self, item: Any, where: str) -> tuple[dict[str, Any], Any]:
        """Inputs by name, and the label."""
        names = [spec.name for spec in self._facts.signature.inputs]
        if isinstance(item, Mapping):
            rest = dict(item)
            label = rest.pop(LABEL, None) if LABEL not in names else None
            return {str(name): value for name, value in rest.items()}, label
        if not isinstance(item, (tuple, list)):
            return self._positional([item], names, where), None
        if len(item) == 2 and isinstance(item[0], Mapping):
            return {str(name): value for name, value in item[0].items()}, item[1]
        if len(item) == 2 and isinstance(item[0], (tuple, list)) and len(item[0]) == len(names):
            return self._positional(list(item[0]), names, where), item[1]
        if len(item) == len(names) + 1:
            return self._positional(list(item[:-1]), names, where), item[-1]
        return self._positional(list(item), names, where), None

    def _positional(self, values: list[Any], names: list[str], where: str) -> dict[str, Any]:
        if len(values) != len(names):
            raise InputError(
                "missing_input", f"{where} gives {len(values)} values, the model takes {len(names)} inputs.",
                why=f"They are {', '.join(map(str, self._facts.signature.inputs))}, maybe followed by the label.",
                fix="Yield a dict by input name (and 'label'), or exactly these values in this order.",
            )  # fmt: skip
        return dict(zip(names, values, strict=True))

    def _array(self, value: Any, spec: TensorSpec, where: str) -> np.ndarray:
        if isinstance(value, (str, Path)):
            return cell_file(self._file.parent / value, spec, self._facts, where)
        if type(value).__module__.startswith("PIL."):
            if self._facts.preprocess is not None and self._facts.preprocess.kind == "image":
                return prepared(value, self._facts)
            raise InputError(
                "no_preprocess", f"{where} gives a picture, but how it becomes the input '{spec.name}' isn't known.",
                why="The model file says nothing about it.", fix="Give --image, --mean and --std, or yield prepared tensors.",
            )  # fmt: skip
        array = _plain(value)
        if array.dtype.kind not in "biufc":
            raise InputError(
                "wrong_dtype", f"{where}: input '{spec.name}' is a {type(value).__name__}, which makes no array of numbers.",
                why=f"The model takes {spec}.", fix="Yield a tensor, an array or a number.",
            )  # fmt: skip
        return array


def _plain(value: Any) -> np.ndarray:
    """A tensor, array or number as an array; bfloat16, which NumPy lacks, as float32."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.asarray(str(value))


def _is_data(found: Any) -> bool:
    return hasattr(found, "__iter__") or hasattr(found, "__getitem__")


def _is_indexed(data: Any) -> bool:
    """Samples by number, with a length. An IterableDataset has ``__getitem__`` too, but only to complain."""
    if isinstance(data, (Mapping, set)):
        return False
    names = {cls.__name__ for cls in type(data).__mro__}
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and "IterableDataset" not in names


def _targets(data: Any, count: int | None) -> np.ndarray | None:
    """Class numbers that torchvision's datasets and many others keep beside the samples."""
    for name in ("targets", "labels"):
        found = getattr(data, name, None)
        if (
            found is None
            or count is None
            or isinstance(found, str)
            or not hasattr(found, "__len__")
            or len(found) != count
        ):
            continue
        array = _plain(found)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return array.astype(np.int64)
    return None


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random augmentation gives the same samples every time; the generators are put back afterwards."""
    import torch

    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
