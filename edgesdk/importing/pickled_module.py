"""A whole module that ``torch.save`` pickled: refused, unless the user says ``--trust-pickle``."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgesdk.artifacts import Model, Warn
from edgesdk.errors import InputError
from edgesdk.importing import _pickle
from edgesdk.importing._base import Importer, ImportOptions, Located
from edgesdk.importing._sniff import scan_file
from edgesdk.importing._zips import damaged

if TYPE_CHECKING:
    from torch import nn

_WRAPPERS = ("DataParallel", "DistributedDataParallel")


class PickledModuleImporter(Importer):
    """Named by its class from the opcodes; executed only when trusted, with ``--arch FILE.py`` as the classes' home."""

    name = "pickled_module"

    def load(self, located: Located, options: ImportOptions) -> Model:
        from edgesdk.importing._export import export_module
        from edgesdk.importing._weights import refuse_dangerous

        if located.path is None:
            raise ValueError("a pickled module is a file")
        found = scan_file(located.path)
        if not options.trust_pickle:
            refuse_dangerous(located.path, found)
            raise _untrusted(located.path, found)
        module = _module_in(_unpickle(located.path, options), located)
        source = replace(located.source, pickle=True)
        model = export_module(module, replace(located, source=source), options)
        return replace(model, warnings=(*model.warnings, _executed(located.path)))


def _executed(path: Path) -> Warn:
    return Warn(
        "pickle_executed",
        f"{path.name} was unpickled, which runs whatever code it names; package the .pt2 or safetensors form instead.",
    )


def _untrusted(path: Path, found: _pickle.Scan) -> InputError:
    name = _pickle.find_module(found.top) or "an object"
    own = [g for g in found.globals if not g.startswith(("torch.", "collections.", "__builtin__.", "builtins."))]
    return InputError(
        "untrusted_pickle", f"{path} is a pickled module ({name}); reading it would run code from the file.",
        why="A pickle names functions to call, so a file from a stranger can do anything that you can.",
        fix="Safer: where the model's code is, save torch.save(model.state_dict(), 'weights.pth') or safetensors and "
        "package that with --arch file.py:FACTORY; or torch.export.save a .pt2. "
        "If you made this file or trust its author: --trust-pickle.",
        details={"class": name, "classes": own[:50]},
    )  # fmt: skip


# --- trusted ----------------------------------------------------------------------------------------------------------


def _unpickle(path: Path, options: ImportOptions) -> Any:
    import torch

    from edgesdk.importing import _user_code

    code = _code_file(options.arch)
    shown = str(code or path)
    with _user_code.environment(code):
        home = _user_code.load_file(code, shown) if code else None
        reader = SimpleNamespace(
            Unpickler=_unpickler(path, home),
            load=pickle.load,
            __name__="pickle",
            UnpicklingError=pickle.UnpicklingError,
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.load(path, map_location="cpu", weights_only=False, pickle_module=reader)
        except InputError:
            raise
        except (AttributeError, ImportError) as exc:
            raise _no_class(path, str(exc), str(getattr(exc, "name", "") or "")) from exc
        except Exception as exc:  # whatever the classes' own __setstate__ raises
            reason = (str(exc) or type(exc).__name__).splitlines()[0][:200]
            raise damaged(path, f"unpickling it failed ({type(exc).__name__}: {reason})") from exc


def _code_file(arch: str | None) -> Path | None:
    """``--arch FILE.py`` or ``FILE.py:FACTORY``: where the pickled classes are defined."""
    if not arch:
        return None
    name = arch if arch.endswith(".py") else arch.rpartition(":")[0]
    if not name.endswith(".py"):  # a library's architecture, or a package: importable as it is
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        from edgesdk.importing._locate import missing

        raise missing(path)
    return path


def _unpickler(path: Path, home: ModuleType | None) -> type:
    class Unpickler(pickle.Unpickler):
        """Looks for classes of scripts and lost folders in the file that ``--arch`` names."""

        def find_class(self, module: str, name: str) -> Any:
            try:
                return super().find_class(module, name)
            except (AttributeError, ImportError) as exc:
                if home is not None and hasattr(home, name.partition(".")[0]):
                    value: Any = home
                    for part in name.split("."):
                        value = getattr(value, part)
                    return value
                raise _no_class(path, f"{module}.{name}", module) from exc

    return Unpickler


def _no_class(path: Path, name: str, module: str) -> InputError:
    return InputError(
        "class_not_found", f"{path} needs the class {name}, whose code can't be found.",
        why="A pickle holds only the name of a class"
        + (", and this one was defined in the script that was run." if module == "__main__" else ", not its code."),
        fix="Say in which file it is defined: --trust-pickle --arch path/to/code.py (or install the package that has it).",
        details={"class": name},
    )  # fmt: skip


def _module_in(content: Any, located: Located) -> nn.Module:
    """The module itself, or the one inside a checkpoint's dictionary."""
    from torch import nn

    if isinstance(content, nn.Module):
        return _unwrapped(content)
    found = {str(k): v for k, v in content.items() if isinstance(v, nn.Module)} if isinstance(content, Mapping) else {}
    if located.member:
        found = {key: value for key, value in found.items() if key == located.member}
    if len(found) == 1:
        return _unwrapped(next(iter(found.values())))
    if not found:
        raise InputError(
            "no_module", f"{located.text} holds a {type(content).__name__} without an nn.Module in it.",
            why="Only a module can be exported.", fix="Save the module: torch.save(model, 'model.pt')",
        )  # fmt: skip
    raise InputError(
        "several_weights", f"{located.text} holds {len(found)} modules: {', '.join(found)}.",
        why="A moving average (ema) is usually the better one, but only you know which was evaluated.",
        fix=f"Choose one: {' or '.join(f'{located.path}#{key}' for key in found)}",
    )  # fmt: skip


def _unwrapped(module: Any) -> nn.Module:
    while type(module).__name__ in _WRAPPERS and hasattr(module, "module"):
        module = module.module
    return module  # type: ignore[no-any-return]


IMPORTER = PickledModuleImporter()
