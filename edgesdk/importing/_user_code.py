"""The user's own Python: run the file that FILE.py:FACTORY names, and say where it went wrong when it does."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.errors import InputError

if TYPE_CHECKING:
    from torch import nn

SEED = 0
"""Seed of torch's generator while an architecture is built, so that random weights are the same every time."""
_folders: set[str] = set()


def build(file: Path | None, package: str, factory: str) -> nn.Module:
    """Import ``file`` (or the importable ``package``), find ``factory`` and call it without arguments.

    A class is called like a function; a module-level ``nn.Module`` is taken as it is. Files beside ``file`` can be
    imported by it. What the code prints goes to stderr.

    Raises:
        InputError: no such factory, it needs arguments, its code raises, or it returns something else.
    """
    shown = f"{file or package}:{factory}"
    with environment(file):
        module = guarded(lambda: _load(file) if file else importlib.import_module(package), shown, file)
        found = _find(module, factory, file, shown)
        return _call(found, shown, file)


def _call(found: Any, shown: str, file: Path | None) -> nn.Module:
    import torch
    from torch import nn

    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise InputError(
            "bad_factory", f"{shown} is a {type(found).__name__}, not a function or class.",
            why="It is called without arguments to make the model.", fix="Name a function or class, or an nn.Module.",
        )  # fmt: skip
    _check_arguments(found, shown)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        made = guarded(found, shown, file)
    if isinstance(made, nn.Module):
        return made
    hint = " It makes a class; call it." if isinstance(made, type) else ""
    raise InputError(
        "bad_factory", f"{shown} returned a {type(made).__name__}, not an nn.Module.",
        why=f"The model is what the factory returns.{hint}", fix="Return the nn.Module itself, not a tuple or its weights.",
    )  # fmt: skip


def _check_arguments(found: Callable[..., Any], shown: str) -> None:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # a builtin that doesn't tell
        return
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if needed:
        name = shown.rpartition(":")[2]
        raise InputError(
            "factory_needs_arguments", f"{shown} needs arguments: {', '.join(needed)}.",
            why="A factory is called without arguments.",
            fix=f"Add a function that fills them in and name that: "
            f"def model(): return {name}({', '.join(f'{n}=…' for n in needed)})",
        )  # fmt: skip


def _find(module: types.ModuleType, factory: str, file: Path | None, shown: str) -> Any:
    value: Any = module
    for part in factory.split("."):
        if not hasattr(value, part):
            raise _no_such_factory(module, factory, shown)
        value = getattr(value, part)
    return value


def _no_such_factory(module: types.ModuleType, factory: str, shown: str) -> InputError:
    offered = _factories(module)
    close = difflib.get_close_matches(factory, offered, n=1, cutoff=0.5)
    where = shown.rpartition(":")[0]
    return InputError(
        "no_such_factory", f"{where} has no '{factory}'.",
        why=f"It offers {', '.join(offered[:8])}." if offered else "It defines no function, class or nn.Module.",
        fix=f"Write {where}:{(close or offered or ['FACTORY'])[0]}",
        details={"factory": factory, "offered": offered},
    )  # fmt: skip


def _factories(module: types.ModuleType) -> list[str]:
    """What in a module could make a network: its own functions and classes, and nn.Module instances."""
    from torch import nn

    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, nn.Module)
            or (isinstance(value, (types.FunctionType, type)) and value.__module__ == module.__name__)
        )
    ]
    return sorted(own, key=str.lower)


# --- running a file ---------------------------------------------------------------------------------------------------


def _load(file: Path) -> types.ModuleType:
    """Run the file as a fresh module. It is compiled here, so that no ``__pycache__`` appears beside it."""
    path = file.resolve()
    name = _module_name(path)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    module.__spec__ = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    return module


def load_file(file: Path, shown: str) -> types.ModuleType:
    """Run a file of the user's inside :func:`environment`, for its classes.

    Raises:
        InputError: its code raises.
    """
    module: types.ModuleType = guarded(lambda: _load(file), shown, file)
    return module


def _module_name(path: Path) -> str:
    """The file's stem, as its siblings and pickles know it, unless that is another module's name."""
    stem = path.stem
    known = sys.modules.get(stem)
    if stem.isidentifier() and (known is None or getattr(known, "__file__", None) == str(path)):
        spec = None if known else importlib.util.find_spec(stem)
        if known or spec is None or spec.origin == str(path):
            return stem
    return f"_edgesdk_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def environment(file: Path | None) -> Iterator[None]:
    """The folder of the file first on ``sys.path``, a plain ``sys.argv``, prints on stderr, no bytecode written."""
    folder = str(file.resolve().parent) if file else str(Path.cwd())
    _forget_siblings(folder)
    argv, bytecode = sys.argv, sys.dont_write_bytecode
    sys.argv, sys.dont_write_bytecode = [str(file or "")], True
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.dont_write_bytecode = argv, bytecode
        sys.path.remove(folder)
        if folder not in sys.path:  # forward() may still import something, but must not hide installed packages
            sys.path.append(folder)
        _folders.add(folder)


def _forget_siblings(folder: str) -> None:
    """Two models may each have a ``utils.py``: the earlier one's must not serve the later one."""
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if not origin or "." in name:
            continue
        home = str(Path(origin).parent)
        if home != folder and home in _folders and (Path(folder) / f"{name}.py").is_file():
            del sys.modules[name]


def guarded(action: Callable[[], Any], shown: str, file: Path | None) -> Any:
    """Run the user's code; what it raises becomes an InputError with the line of *their* file."""
    try:
        return action()
    except SyntaxError as exc:
        raise _failed(shown, exc, f"{exc.filename}, line {exc.lineno}") from exc
    except SystemExit as exc:
        raise InputError(
            "user_code_failed", f"{shown}: the code ended the program (exit {exc.code}) at {_place(exc, file)}.",
            why="It runs as a script when it is imported, or reads the command line.",
            fix="Put what is only for running it under: if __name__ == '__main__':",
        ) from exc  # fmt: skip
    except ModuleNotFoundError as exc:
        if file is None and shown.startswith(f"{exc.name}") and exc.name:
            raise InputError(
                "no_such_package", f"There is no Python package '{exc.name}' ({shown}).",
                why="It is neither installed nor a folder here.",
                fix="Install it, or name the file itself: path/to/file.py:FACTORY",
            ) from exc  # fmt: skip
        raise InputError(
            "user_code_failed", f"{shown} needs the module '{exc.name}', which can't be found ({_place(exc, file)}).",
            why="It is not installed in this environment and lies not beside the file.",
            fix=f"Install it (pip install {str(exc.name).partition('.')[0]}), or put its file beside.",
        ) from exc  # fmt: skip
    except BaseException as exc:  # their own classes may derive from BaseException
        if is_ctrl_c(exc):
            raise
        raise _failed(shown, exc, _place(exc, file)) from exc


def is_ctrl_c(exc: BaseException) -> bool:
    """Whether a person interrupted. Workers ignore SIGINT: what is raised there is the code's own."""
    return isinstance(exc, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def _failed(shown: str, exc: BaseException, place: str) -> InputError:
    try:
        said = str(exc)
    except Exception:  # the model's own exception class, whose text is the model's own code too
        said = ""
    text = (said.strip() or "no message").splitlines()[0][:300]
    return InputError(
        "user_code_failed", f"{shown} raised {type(exc).__name__}: {text} ({place}).",
        why="The fault is in the model's own code, or a file that it needs is missing.",
        fix="Run that code by itself in Python, correct it, and try again.",
        details={"place": place, "exception": type(exc).__name__},
    )  # fmt: skip


def _place(exc: BaseException, file: Path | None) -> str:
    """File and line of the innermost frame in the user's code: below the file's folder, in no library and not in ours."""
    frames = [
        f for f in traceback.extract_tb(exc.__traceback__)
        if "site-packages" not in f.filename and not f.filename.startswith(("<", f"{Path(__file__).parent.parent}/"))
        and not f.filename.startswith(str(Path(inspect.__file__).parent))
    ]  # fmt: skip
    folder = str(file.resolve().parent) if file else ""
    own = [f for f in frames if folder and f.filename.startswith(folder)] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else str(file or "the package")
