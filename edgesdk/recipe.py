"""What a run is asked to do: ``defaults.toml`` < a recipe < options, merged into one frozen :class:`PackageConfig`.

A recipe is TOML with ``schema = "edgesdk.recipe/1"`` and the tables of :data:`KEYS`. A table whose one main key says it
all may be written short: ``quantize = "fp16"`` is ``[quantize] schemes = ["fp16"]``. Unknown names are errors: a typo
must not ship another model than the one that was meant.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, StrictBool, ValidationError
from pydantic_core import PydanticCustomError

from edgesdk.artifacts import TensorSpec, parse_input
from edgesdk.errors import EdgeError, InputError, MissingToolError, UsageError, nearest
from edgesdk.naming import line_problem, name_problem
from edgesdk.quantize import schemes
from edgesdk.reading import read_bytes

SCHEMA = "edgesdk.recipe/1"
DEFAULTS = Path(__file__).with_name("defaults.toml")
_MAX_RECIPE = 16 * 2**20
MOST_PIXELS = 16384
_LONGEST_SHOWN = 120  # characters of a wrong value that a message repeats

SCHEMES = ("none", *schemes(), "auto")
BACKENDS = ("xnnpack", "coreml", "vulkan", "mps", "portable")
RESIZES = ("shorter", "stretch", "letterbox")
INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


def _listed(value: Any) -> Any:
    """One word stands for a list of one."""
    return (value,) if isinstance(value, (str, TensorSpec)) else value


def _as_text(value: Any) -> Any:
    """Python callers may give paths where a text such as ``file.py:dataset`` is also taken."""
    return str(value) if isinstance(value, Path) else value


def _choose(value: Any, known: Iterable[str]) -> Any:
    if isinstance(value, str) and value not in known:
        raise PydanticCustomError("unknown_choice", "unknown choice", {"word": value, "nearest": nearest(value, known)})
    return value


def _one_of(known: tuple[str, ...]) -> BeforeValidator:
    return BeforeValidator(lambda value: _choose(value, known))


def _known_target(value: Any) -> Any:
    from edgesdk.targets import targets

    return _choose(value, targets())


def runtime_names() -> tuple[str, ...]:
    """Runtimes that ``--runtime`` offers; the test double ``null`` is understood but not offered."""
    from edgesdk.runtimes import runtimes

    return (*(name for name in runtimes() if name != "null"), "auto")


def _known_runtime(value: Any) -> Any:
    return value if value == "null" else _choose(value, runtime_names())


def _input(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_input(value)
    except UsageError as error:
        raise PydanticCustomError("input_spec", "bad input", {"error": error}) from error


Runtime = Annotated[str, BeforeValidator(_known_runtime)]
Backend = Annotated[str, _one_of(BACKENDS)]
Scheme = Annotated[str, _one_of(SCHEMES)]
Input = Annotated[InstanceOf[TensorSpec], BeforeValidator(_input)]


def _numbers(value: Any) -> Any:
    """``0.485,0.456,0.406`` as the command line has it, or one number for all channels."""
    if isinstance(value, str):
        try:
            return tuple(float(word) for word in value.split(","))
        except ValueError:
            raise PydanticCustomError("numbers", "must be numbers such as 0.485,0.456,0.406") from None
    return (value,) if isinstance(value, (int, float)) else value


def _pixels(value: Any) -> Any:
    """``224`` for a square, ``480x640`` for height and width; TOML has ``[480, 640]`` for the latter."""
    words: Any = value
    if isinstance(value, str):
        words = [int(word) if word.isascii() and word.isdigit() else None for word in value.lower().split("x")]
    sides = words if isinstance(words, (list, tuple)) else [words]
    if not 1 <= len(sides) <= 2 or not all(type(side) is int and 1 <= side <= MOST_PIXELS for side in sides):
        raise PydanticCustomError(
            "pixels", f"must be a whole number from 1 to {MOST_PIXELS}, or height and width as in 480x640"
        )
    return sides[0] if len(set(sides)) == 1 else tuple(sides)


def _checked(problem: Callable[[str], str | None]) -> BeforeValidator:
    """A text of which ``problem`` knows nothing to say."""

    def check(value: Any) -> Any:
        said = problem(value) if isinstance(value, str) else None
        if said:
            raise PydanticCustomError("unfit_text", "{said}", {"said": said})
        return value

    return BeforeValidator(check)


Name = Annotated[str, _checked(name_problem)]
Version = Annotated[str, Field(min_length=1), _checked(lambda text: line_problem(text, 100))]
License = Annotated[str, _checked(lambda text: line_problem(text, 1024))]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PreprocessOptions(_Frozen):
    """How an image becomes the model's input, as far as the user says. None: taken from the model's own configuration.

    Attributes:
        image: side of the square that the model takes, or height and width, in pixels.
        resize: ``shorter`` (crop the centre), ``stretch`` or ``letterbox``.
        mean, std: per channel on the 0…1 scale; one value serves all channels.
    """

    image: Annotated[int | tuple[int, int], BeforeValidator(_pixels)] | None = None
    resize: Annotated[Literal["shorter", "stretch", "letterbox"], _one_of(RESIZES)] | None = None
    mean: Annotated[tuple[Finite, ...], BeforeValidator(_numbers)] | None = None
    std: (
        Annotated[
            tuple[Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)], ...], BeforeValidator(_numbers)
        ]
        | None
    ) = None
    interpolation: Annotated[Literal["bilinear", "bicubic", "nearest"], _one_of(INTERPOLATIONS)] | None = None


class PackageConfig(_Frozen):
    """Everything that one run of the pipeline is asked to do, for one target.

    Attributes:
        model: MODEL as the user wrote it: a file, a folder, ``file.py:factory`` or a name.
        runtimes: empty means what the target prefers; ``auto`` is allowed.
        backends: empty means each runtime's first.
        quantize: exactly these variants are shipped.
        calibration, eval: an ``.npz``, a folder of images, ``.csv``, ``.parquet`` or ``file.py:dataset``.
        metric: what ``eval`` is judged by: ``top1``, ``top5``, ``mean_iou``, ``mae``… or ``file.py:function``; None: chosen
            from the labels.
        max_drop: points of the task metric that may be lost.
        require_faster: a quantized file that is slower than float is refused.
        allow_slower: ``auto`` may pick a slower file when it is smaller.
        prune: share of the channels to remove, 0…1.
        name: NAME of the package; None takes the model's.
        output: the output folder itself; None: ``root/NAME-TARGET``.
        jobs: worker processes; None: as many as fit.
        external_data_bytes: an ONNX file above this many bytes keeps its weights in a second file.
        seed: of the inputs that verification makes up.
    """

    model: str
    target: Annotated[str, BeforeValidator(_known_target)]
    runtimes: Annotated[tuple[Runtime, ...], BeforeValidator(_listed)] = ()
    backends: Annotated[tuple[Backend, ...], BeforeValidator(_listed)] = ()
    quantize: Annotated[tuple[Scheme, ...], BeforeValidator(_listed), Field(min_length=1)] = ("none",)
    inputs: Annotated[tuple[Input, ...], BeforeValidator(_listed)] = ()
    arch: str | None = None
    trust_pickle: StrictBool = False
    preprocess: PreprocessOptions | None = None
    labels: Path | None = None
    calibration: Annotated[str | None, BeforeValidator(_as_text)] = None
    eval: Annotated[str | None, BeforeValidator(_as_text)] = None
    metric: Annotated[str | None, BeforeValidator(_as_text)] = None
    max_drop: Annotated[float, Field(strict=True, ge=0, le=100)] | None = None
    prune: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    name: Name | None = None
    version: Version = "1.0.0"
    license: License | None = None
    sign: Path | None = None
    output: Path | None = None
    root: Path = Path("dist")
    force: StrictBool = False
    no_cache: StrictBool = False
    jobs: Annotated[int, Field(strict=True, ge=1)] | None = None
    opset: Annotated[int, Field(strict=True, ge=7, le=26)] | None = None
    ort_format: StrictBool = False
    bytecode: Annotated[int, Field(strict=True, ge=4, le=8)] | None = None
    external_data_bytes: Annotated[int, Field(strict=True, ge=1024)] = 2**31 - 2**20
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    require_faster: StrictBool = False
    allow_slower: StrictBool = False

    def folder(self, name: str) -> Path:
        """The output folder of the package called ``name``."""
        return self.output or self.root / f"{name}-{self.target}"


# Where a field stands in a recipe: table -> key -> field of PackageConfig (or of PreprocessOptions).
KEYS: Mapping[str, Mapping[str, str]] = {
    "model": {"source": "model"} | {k: k for k in ("arch", "trust_pickle", "name", "version", "license")},
    "input": {},
    "preprocess": {k: k for k in ("image", "resize", "mean", "std", "interpolation", "labels")},
    "train": {},
    "compress": {"prune": "prune"},
    "quantize": {"schemes": "quantize", "calibration": "calibration"},
    "lower": {k: k for k in (
        "runtimes", "backends", "opset", "ort_format", "bytecode", "external_data_bytes", "jobs"
    )},
    "gate": {k: k for k in ("eval", "metric", "max_drop", "require_faster", "allow_slower", "seed")},
    "target": {"names": "targets", "output": "output", "root": "root"},
    "sign": {"key": "sign"},
}  # fmt: skip
_SHORT = {"model": "source", "compress": "prune", "quantize": "schemes", "target": "names", "sign": "key"}
_FREE = {"input", "train"}
_PREPROCESS = frozenset(PreprocessOptions.model_fields)
_PATHS = frozenset({"labels", "calibration", "eval", "metric", "sign", "output", "root", "model", "arch"})
_OPTIONS = {
    "model": "MODEL", "targets": "--target", "runtimes": "--runtime", "backends": "--backend", "inputs": "--input",
    "output": "-o", "root": "-o",
}  # fmt: skip


def option(name: str) -> str:
    """How the command line spells a field: ``max_drop`` → ``--max-drop``."""
    return _OPTIONS.get(name, "--" + name.replace("_", "-"))


@dataclass(frozen=True)
class _Layer:
    """Values by field, and where each was said (``--opset``, ``r.toml: [lower] opset``)."""

    values: Mapping[str, Any]
    where: Mapping[str, str]
    error: type[EdgeError] = InputError
    later: frozenset[str] = field(default_factory=frozenset)

    def over(self, other: _Layer) -> _Layer:
        return _Layer({**other.values, **self.values}, {**other.where, **self.where}, later=self.later | other.later)


def read_recipe(path: Path) -> _Layer:
    """Read a recipe file into values by field.

    Relative paths in a recipe start at the recipe's folder.

    Raises:
        InputError: the file can't be read, is no TOML, or holds a name or a type that a recipe hasn't.
    """
    document = _load(path)
    schema = document.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(
            "recipe_schema", f"{path}: schema is {schema!r}, not '{SCHEMA}'.",
            why="The recipe was written for another version of edgesdk, or is a file of another kind.",
            fix=f"Write schema = \"{SCHEMA}\", or install the version of edgesdk that the recipe was made for.",
        )  # fmt: skip
    values: dict[str, Any] = {}
    where: dict[str, str] = {}
    for table, content in document.items():
        for key, name, value in _entries(path, table, content):
            values[name] = value if path == DEFAULTS else _from_folder(path.parent, name, value)
            where[name] = f"{path}: [{table}]{' ' + key if key else ''}"
    later = frozenset({"train"} if document.get("train") else ())
    return _Layer(values, where, later=later)


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_bytes(path, _MAX_RECIPE).decode("utf-8"))
    except OSError as exc:
        raise InputError(
            "recipe_unreadable", f"The recipe {path} can't be read: {exc.strerror or exc}.",
            why="The path is wrong, or the file may not be read.",
            fix="Check the path after --recipe; 'edgesdk init MODEL' writes a new recipe.",
        ) from exc  # fmt: skip
    except (ValueError, RecursionError) as exc:
        raise InputError(
            "recipe_broken", f"The recipe {path} is not valid TOML: {exc}.",
            why="A quote, bracket or equals sign is missing or misplaced there, or the file is of another kind.",
            fix="Correct that line; text stands in double quotes: schemes = [\"fp16\"].",
        ) from exc  # fmt: skip


def _entries(path: Path, table: str, content: Any) -> Iterable[tuple[str, str, Any]]:
    """(key, field, value) of one table, its short form included."""
    if table not in KEYS:
        _unknown(path, f"'{table}'", table, KEYS, "the tables of a recipe")
    if table == "input":
        yield "", "inputs", _inputs(path, content)
        return
    if not isinstance(content, dict):
        if table not in _SHORT:
            raise _wrong(f"{path}: [{table}]", content, "must be a table")
        content = {_SHORT[table]: content}
    for key, value in content.items():
        if table == "train":
            continue
        if key not in KEYS[table]:
            _unknown(path, f"'{key}' in [{table}]", key, KEYS[table], f"the keys of [{table}]")
        yield key, KEYS[table][key], value


def _inputs(path: Path, content: Any) -> tuple[str, ...]:
    """``[input] image = "float32[1,3,224,224]"``, or ``input = ["image=float32[1,3,224,224]"]``."""
    if isinstance(content, dict) and all(isinstance(v, str) for v in content.values()):
        return tuple(f"{name}={spec}" for name, spec in content.items())
    words = [content] if isinstance(content, str) else content
    if isinstance(words, list) and all(isinstance(v, str) for v in words):
        return tuple(words)
    raise _wrong(f"{path}: [input]", content, 'must hold lines such as image = "float32[1,3,224,224]"')


def _unknown(path: Path, what: str, word: str, known: Iterable[str], those: str) -> NoReturn:
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    # A key in the wrong table is as likely as a typo: say where it belongs.
    homes = [table for table, keys in KEYS.items() if word in keys]
    hint = f"Did you mean '{close[0]}'? " if close else f"'{word}' belongs in [{homes[0]}]. " if homes else ""
    raise InputError(
        "recipe_unknown_key", f"The recipe {path} has the unknown name {what}.",
        why=f"{hint}Known are {those}: {', '.join(names)}.",
        fix="Correct or remove it; an unknown name is never ignored.",
    )  # fmt: skip


def _wrong(where: str, value: Any, must: str) -> InputError:
    return InputError(
        "recipe_bad_value", f"{where} is {value!r}, but {must}.",
        why="The recipe holds a value of another kind there.", fix="Correct the value in the recipe.",
    )  # fmt: skip


def _from_folder(folder: Path, name: str, value: Any) -> Any:
    """A path of a recipe as seen from the working directory. A name such as ``timm:resnet18`` is no path."""
    if name not in _PATHS or not isinstance(value, str) or folder == Path():
        return value
    plain = folder / value
    is_path = name not in ("model", "arch", "metric") or plain.exists() or (folder / value.partition(":")[0]).is_file()
    return str(plain) if is_path else value


def resolve(given: Mapping[str, Any], recipe: Path | None = None) -> tuple[PackageConfig, ...]:
    """Merge ``given`` over ``recipe`` over ``defaults.toml``: one config for each target.

    Args:
        given: values by field of :class:`PackageConfig` and :class:`PreprocessOptions`, and ``targets``; None and
            empty lists count as not given.

    Raises:
        UsageError: a given value is missing or wrong.
        InputError: the recipe is missing, broken, or holds an unknown name or a wrong value.
        MissingToolError: something is asked for that this version can't do yet.
    """
    said = {k: v for k, v in given.items() if v is not None and v != () and v != []}
    top = _Layer(said, {k: option(k) for k in said})
    base = read_recipe(DEFAULTS)
    merged = top.over((read_recipe(recipe) if recipe else _Layer({}, {})).over(base))
    values = dict(merged.values)
    targets = _listed(values.pop("targets", ()))
    for name, missing in (("model", "model"), ("targets", "target")):
        if not (targets if name == "targets" else values.get(name)):
            raise _missing(missing)
    feeding = {k: values.pop(k) for k in _PREPROCESS & values.keys()}
    if feeding:
        values["preprocess"] = feeding
    if len(targets) > 1 and values.get("output") is not None:
        values["root"] = values.pop("output")
    try:
        configs = tuple(PackageConfig(**{**values, "target": one}) for one in dict.fromkeys(targets))
    except ValidationError as exc:
        raise _worded(exc, merged, said) from exc
    _check_together(configs[0], merged)
    return configs


def _missing(name: str) -> UsageError:
    if name == "target":
        return UsageError(
            "missing_target", "No target is named.", why="A package is made for one platform, and none is assumed.",
            fix="Add --target android, --target ios or --target linux.",
        )  # fmt: skip
    return UsageError(
        "missing_model", "No model is named.", why="Neither the command line nor a recipe says which model to package.",
        fix="Write edgesdk package MODEL --target android.",
    )  # fmt: skip


_MUST = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list",
    "too_short": "must name at least one",
    "string_too_short": "must not be empty",
    "string_unicode": "must be text that UTF-8 can write",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "bool_parsing": "must be true or false",
}
_CODES = {
    "target": "unknown_target",
    "runtimes": "unknown_runtime",
    "backends": "unknown_backend",
    "quantize": "unknown_scheme",
}


def _worded(exc: ValidationError, layer: _Layer, said: Mapping[str, Any]) -> EdgeError:
    """The first complaint of pydantic, in our words, with the exit code of whoever said it."""
    first = exc.errors(include_url=False)[0]
    path = [part for part in first["loc"] if isinstance(part, str)]
    name = path[1] if path[0] == "preprocess" and len(path) > 1 else path[0]
    spoken = "targets" if name == "target" else name
    where = layer.where.get(spoken, option(spoken))
    kind: type[EdgeError] = UsageError if spoken in said else InputError
    ctx = first.get("ctx", {})
    if first["type"] == "unknown_choice":
        return kind(
            _CODES.get(name, "unknown_choice"), f"{where}: there is no '{ctx['word']}'.", why=ctx["nearest"],
            fix="Choose one of them.",
        )  # fmt: skip
    if first["type"] == "input_spec":
        error: UsageError = ctx["error"]
        message = error.message if kind is UsageError else f"{where}: {error.message}"
        return kind(error.code, message, why=error.why, fix=error.fix)
    must = _MUST.get(first["type"], first["msg"].replace("Input should", "must"))
    return kind(
        "bad_value", f"{where} is {_plain(first['input'])}, but {must}.", why="The value is of another kind or out of range.",
        fix=f"Correct the value{'' if kind is UsageError else ' in the recipe'}; "
        "'edgesdk package --help' says what each option takes.",
    )  # fmt: skip


def _plain(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, (str, Path)) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _check_together(config: PackageConfig, layer: _Layer) -> None:
    """What one value needs of another; then what this version can't do yet, so that nothing is silently ignored."""
    calibrated = [s for s in config.quantize if s in schemes() and schemes()[s].calibrated]
    if calibrated and config.calibration is None:
        raise UsageError(
            "missing_calibration", f"{calibrated[0]} needs sample inputs, and no --calibration is given.",
            why="The ranges of the activations are measured on real inputs; invented ones give a useless model.",
            fix="Add --calibration PATH: an .npz (arrays by input name, samples first) or a folder of images, 100 to 500 samples.",
        )  # fmt: skip
    for name in ("max_drop", "metric"):
        if getattr(config, name) is not None and config.eval is None:
            raise UsageError(
                "missing_eval", f"{option(name)} needs labelled data to measure on, and no --eval is given.",
                why="Without labels there is no accuracy to compare.",
                fix="Add --eval PATH: an .npz with the inputs by name and 'label', or a folder of class folders.",
            )  # fmt: skip
    asked = {"--prune": config.prune is not None, "[train]": "train" in layer.later}
    for what, said in asked.items():
        if said:
            raise not_in_this_version(what, "Leave it out; --quantize makes files smaller too.")


def not_in_this_version(what: str, instead: str) -> MissingToolError:
    """Something of the documented command line that a later version brings."""
    from edgesdk._version import __version__

    return MissingToolError(
        "not_in_this_version", f"{what} is not in this version of edgesdk ({__version__}).",
        why="It is part of the documented commands and arrives with a later version.", fix=instead,
    )  # fmt: skip
