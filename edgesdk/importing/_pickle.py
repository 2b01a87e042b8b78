"""What a pickle would build, read off its opcodes: nothing is imported, called or allocated on its behalf.

:func:`scan` runs the pickle's stack machine on inert nodes. It tells a table of weights from a whole module, names the
classes that a pickle needs, and says when a pickle reaches for functions that run code.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, cast

# A big checkpoint with its optimizer has about 10^6 opcodes; beyond this a file is more likely made to stall readers.
MAX_OPCODES: Final = 20_000_000
MAX_ALLOCATION: Final = 1 << 31

# What makes tensors and plain containers: the classes that a table of weights consists of.
_TENSOR_MAKERS = frozenset({
    "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_qtensor", "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy", "torch._utils._rebuild_device_tensor_from_cpu_tensor",
    "torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_meta_tensor_no_storage",
    "torch.nn.parameter.Parameter", "torch.Tensor",
})  # fmt: skip
_DICTS = frozenset({"dict", "collections.OrderedDict", "collections.defaultdict", "builtins.dict", "__builtin__.dict"})
# Modules whose functions can run programs, read files or build code. A model needs none of them.
_DANGEROUS_MODULES = frozenset({
    "os", "posix", "nt", "sys", "subprocess", "socket", "shutil", "runpy", "pty", "ctypes", "importlib", "webbrowser",
    "pip", "code", "codeop", "commands", "multiprocessing", "asyncio", "http", "urllib", "urllib2", "requests",
    "signal", "pdb", "bdb", "timeit", "cProfile", "profile", "zipimport", "marshal", "imp", "pickle", "_pickle",
    "cloudpickle", "dill", "tempfile", "pathlib", "io", "_io", "ssl", "smtplib", "ftplib", "popen2", "platform",
})  # fmt: skip
_DANGEROUS_NAMES = frozenset({
    "eval", "exec", "execfile", "compile", "open", "__import__", "breakpoint", "input", "apply", "globals", "locals",
    "delattr", "vars", "memoryview",
})  # fmt: skip
_DANGEROUS = frozenset({
    "types.FunctionType", "types.CodeType", "types.LambdaType", "torch.load", "torch.hub.load", "torch.jit.load",
    "torch.serialization.load", "numpy.load", "torch.utils.cpp_extension.load", "torch.ops.load_library",
    "torch.utils.data.datapipes.utils.decoder.basichandlers", "operator.methodcaller", "_operator.methodcaller",
})  # fmt: skip
# Data classes that live in dangerous modules but only hold values.
_HARMLESS = frozenset({"pathlib.PosixPath", "pathlib.WindowsPath", "pathlib.PurePosixPath", "pathlib.PureWindowsPath",
                       "pathlib.Path"})  # fmt: skip


class PickleDamaged(ValueError):
    """The bytes are no complete pickle."""


@dataclass(eq=False, slots=True)
class Node:
    """A value that a pickle would build by calling ``callee``.

    ``items`` holds what is put into it: pairs for a mapping, single values for a list.
    """

    callee: str
    args: Any = ()
    state: Any = None
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    appended: list[Any] = field(default_factory=list)

    @property
    def is_dict(self) -> bool:
        return self.callee in _DICTS

    @property
    def is_tensor(self) -> bool:
        return self.callee in _TENSOR_MAKERS

    @property
    def is_module(self) -> bool:
        """Whether it has the attributes that every ``nn.Module`` has."""
        names = _names_of(self.state)
        return "_modules" in names and ("_parameters" in names or "_buffers" in names)

    def mapping(self) -> dict[str, Any]:
        """Its items with text keys."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function that the pickle names: ``module.name``."""

    path: str


@dataclass(frozen=True)
class Scan:
    """What a pickle holds.

    Attributes:
        top: the value that unpickling would return.
        globals: every class and function named, in order of appearance.
        dict_like: those that the pickle fills with keys; ``list_like``: those that it appends to.
        dangerous: those that could run code or reach files.
        oversized: the pickle asks for more than 2 GB in one call.
    """

    top: Any
    globals: tuple[str, ...]
    dict_like: frozenset[str]
    list_like: frozenset[str]
    dangerous: tuple[str, ...]
    oversized: bool


def scan(stream: IO[bytes] | bytes) -> Scan:
    """Read one pickle up to its STOP, leaving the stream right behind it.

    Raises:
        PickleDamaged: it is cut short, garbled, or has more than ``MAX_OPCODES`` opcodes.
    """
    machine = _Machine()
    try:
        for count, (opcode, arg, _) in enumerate(pickletools.genops(stream)):
            if count > MAX_OPCODES:
                raise PickleDamaged("it has too many instructions")
            machine.step(opcode.name, arg)
        top = machine.pop()
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as exc:
        raise PickleDamaged(str(exc)) from exc
    except MemoryError as exc:  # the reader asks for as many bytes as the instruction claims
        raise PickleDamaged("an instruction claims more bytes than there can be") from exc
    named = tuple(machine.named)
    return Scan(
        top=top,
        globals=named,
        dict_like=frozenset(machine.dict_like),
        list_like=frozenset(machine.list_like),
        dangerous=tuple(path for path in named if is_dangerous(path)),
        oversized=machine.oversized,
    )


def is_dangerous(path: str) -> bool:
    """Whether ``module.name`` can run code, start programs or touch files when a pickle calls it."""
    module, _, name = path.rpartition(".")
    if path in _HARMLESS:
        return False
    if module in ("builtins", "__builtin__"):
        return name in _DANGEROUS_NAMES
    return module.split(".")[0] in _DANGEROUS_MODULES or path in _DANGEROUS


def walk_dicts(top: Any, depth: int = 3) -> Iterator[tuple[str, Node]]:
    """The mappings inside ``top`` with their paths (``""``, ``"model"``, ``"model.state_dict"``), outermost first."""
    level: list[tuple[str, Any]] = [("", top)]
    seen: set[int] = set()
    for _ in range(depth + 1):
        below: list[tuple[str, Any]] = []
        for path, value in level:
            if not isinstance(value, Node) or not value.is_dict or id(value) in seen:
                continue
            seen.add(id(value))
            yield path, value
            below += [(f"{path}.{key}" if path else key, inner) for key, inner in value.mapping().items()]
        level = below


def tensor_keys(node: Node) -> tuple[str, ...]:
    """Names of the tensors that lie directly in a mapping."""
    return tuple(key for key, value in node.mapping().items() if isinstance(value, Node) and value.is_tensor)


def tensor_shape(node: Node) -> tuple[int, ...] | None:
    """Sizes of a tensor node, where its maker's arguments say so."""
    args = node.args if isinstance(node.args, tuple) else ()
    if node.callee.startswith("torch._utils._rebuild_parameter") and args and isinstance(args[0], Node):
        return tensor_shape(args[0])
    found = args[2] if len(args) > 2 else None
    if isinstance(found, Node) and found.callee == "torch.Size" and isinstance(found.args, tuple) and found.args:
        found = found.args[0]
    if isinstance(found, tuple) and all(isinstance(size, int) for size in found):
        return cast("tuple[int, ...]", found)
    return None


def find_module(top: Any) -> str | None:
    """Class of the first ``nn.Module`` in the value, be it the value itself or inside its mappings."""
    if isinstance(top, Node) and top.is_module:
        return top.callee
    for _, node in walk_dicts(top):
        for _, value in node.pairs:
            if isinstance(value, Node) and value.is_module:
                return value.callee
    return None


def _names_of(state: Any) -> frozenset[str]:
    if isinstance(state, tuple) and state:  # (state, slots)
        state = state[0]
    if isinstance(state, Node) and state.is_dict:
        return frozenset(key for key, _ in state.pairs if isinstance(key, str))
    return frozenset()


_MARK = object()


class _Machine:
    """The pickle's stack machine, on nodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.named: dict[str, None] = {}
        self.dict_like: set[str] = set()
        self.list_like: set[str] = set()
        self.oversized = False

    def step(self, name: str, arg: Any) -> None:
        action = _ACTIONS.get(name)
        if action is not None:
            action(self, arg)
        elif name not in _SILENT:
            self.stack.append(arg)  # every remaining opcode pushes the atom that it carries

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("unexpected mark")
        return value

    def pop_mark(self) -> list[Any]:
        items: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            items.append(value)
        items.reverse()
        return items

    def discard_mark(self) -> None:
        self.pop_mark()

    def push_global(self, path: str) -> None:
        self.named[path] = None
        self.stack.append(Global(path))

    def call(self, callee: Any, args: Any) -> None:
        path = _path_of(callee)
        if isinstance(args, tuple) and any(isinstance(a, int) and a > MAX_ALLOCATION for a in args[:1]):
            self.oversized = True
        node = Node(path, args)
        if node.is_dict and isinstance(args, tuple):
            node.pairs += _pairs_of(args)
        self.stack.append(node)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, Node):
            raise ValueError("keys set on something that is no mapping")
        if not target.is_dict:
            self.dict_like.add(target.callee)
        target.pairs += list(zip(items[::2], items[1::2], strict=True))

    def append(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, Node):
            raise ValueError("values appended to something that is no list")
        if target.callee not in ("list", "set"):
            self.list_like.add(target.callee)
        target.appended += items

    def build(self, state: Any) -> None:
        target = self.stack[-1]
        if isinstance(target, Node):
            target.state = state

    def memoize(self, index: int | None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]


def _path_of(callee: Any) -> str:
    """Name of what is called; torch before 1.6 hid a module's class in a persistent id ``("module", class, …)``."""
    if isinstance(callee, Node) and callee.callee == "persistent" and isinstance(callee.args, tuple):
        callee = next((part for part in callee.args if isinstance(part, Global)), callee)
    return callee.path if isinstance(callee, Global) else f"a call of {type(callee).__name__}"


def _pairs_of(args: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Items given to a mapping's constructor: ``OrderedDict([[key, value], …])`` (Python 2 wrote it so)."""
    pairs: list[tuple[Any, Any]] = []
    for arg in args:
        for entry in arg.appended if isinstance(arg, Node) else ():
            values = entry.appended if isinstance(entry, Node) else entry
            if isinstance(values, (list, tuple)) and len(values) == 2:
                pairs.append((values[0], values[1]))
    return pairs


def _global(machine: _Machine, arg: Any) -> None:
    machine.push_global(".".join(str(arg).split(" ", 1)))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    machine.push_global(f"{module}.{name}")


def _extension(machine: _Machine, arg: Any) -> None:
    machine.push_global(f"copyreg.extension_{arg}")


def _reduce(machine: _Machine, _: Any) -> None:
    args, callee = machine.pop(), machine.pop()
    machine.call(callee, args)


def _new_object_with_keywords(machine: _Machine, _: Any) -> None:
    keywords, args, callee = machine.pop(), machine.pop(), machine.pop()
    machine.call(callee, (*args, keywords) if isinstance(args, tuple) else (args, keywords))


def _obj(machine: _Machine, _: Any) -> None:
    items = machine.pop_mark()
    machine.call(items[0], tuple(items[1:]))


def _inst(machine: _Machine, arg: Any) -> None:
    items = machine.pop_mark()
    _global(machine, arg)
    machine.call(machine.pop(), tuple(items))


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _marked_dict(machine: _Machine, _: Any) -> None:
    items = machine.pop_mark()
    machine.stack.append(Node("dict"))
    machine.set_items(items)


def _marked_list(machine: _Machine, _: Any) -> None:
    items = machine.pop_mark()
    machine.stack.append(Node("list", appended=items))


def _tuple(size: int) -> Callable[[_Machine, Any], None]:
    def action(machine: _Machine, _: Any) -> None:
        items = [machine.pop() for _ in range(size)]
        machine.stack.append(tuple(reversed(items)))

    return action


def _empty(callee: str) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(Node(callee))


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(value)


_SILENT = frozenset({"PROTO", "FRAME", "STOP", "READONLY_BUFFER"})
_ACTIONS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "MARK": _constant(_MARK),
    "POP": lambda m, _: m.stack.pop(),
    "POP_MARK": lambda m, _: m.discard_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_DICT": _empty("dict"),
    "EMPTY_LIST": _empty("list"),
    "EMPTY_SET": _empty("set"),
    "EMPTY_TUPLE": _constant(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "DICT": _marked_dict,
    "LIST": _marked_list,
    "FROZENSET": _marked_list,
    "APPEND": lambda m, _: m.append([m.pop()]),
    "APPENDS": lambda m, _: m.append(m.pop_mark()),
    "ADDITEMS": lambda m, _: m.append(m.pop_mark()),
    "SETITEM": _set_item,
    "SETITEMS": lambda m, _: m.set_items(m.pop_mark()),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "EXT1": _extension,
    "EXT2": _extension,
    "EXT4": _extension,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _new_object_with_keywords,
    "OBJ": _obj,
    "INST": _inst,
    "BUILD": lambda m, _: m.build(m.pop()),
    "PERSID": lambda m, arg: m.stack.append(Node("persistent", (arg,))),
    "BINPERSID": lambda m, _: m.stack.append(Node("persistent", m.pop())),
    "NEXT_BUFFER": lambda m, _: m.stack.append(Node("buffer")),
    "GET": lambda m, arg: m.stack.append(m.memo[int(arg)]),
    "BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "LONG_BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "PUT": lambda m, arg: m.memoize(int(arg)),
    "BINPUT": lambda m, arg: m.memoize(arg),
    "LONG_BINPUT": lambda m, arg: m.memoize(arg),
    "MEMOIZE": lambda m, _: m.memoize(None),
}
