"""Architectures by name from torchvision and timm, with the sizes, preprocessing and labels that the libraries know."""

from __future__ import annotations

import contextlib
import inspect
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from edgesdk.artifacts import HistoryStep, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError, UsageError, missing_library, nearest
from edgesdk.importing._user_code import SEED

if TYPE_CHECKING:
    from torch import nn

    from edgesdk.importing._export import ModelHint

_DEFAULT_SIDE: Final = 224
_OFFLINE_SIGNS: Final = ("urlopen", "connection", "resolve", "offline", "timed out", "network", "unreachable", "max retries",
                         "localentrynotfound", "couldn't connect", "proxy", "ssl", "cannot find the requested files", "cannot find an appropriate")  # fmt: skip


@dataclass(frozen=True)
class Built:
    """An architecture that was made, and what its library says about it.

    Attributes:
        label: the spec, for messages.
        holder: the module that weights are loaded into, when ``module`` is a wrapper around it.
        rebuild: makes the same architecture with another number of classes; None where that is not known.
        trained: its weights are trained ones.
    """

    module: nn.Module
    hint: ModelHint
    label: str
    rebuild: Callable[[int], Built] | None = None
    holder: nn.Module | None = None
    trained: bool = False


def build_named(library: str, name: str, *, pretrained_allowed: bool = False) -> Built:
    """``torchvision`` or ``timm`` and a name, with ``@WEIGHTS`` where the caller allows weights to be downloaded.

    Without weights the parameters are random, from a fixed seed.

    Raises:
        UsageError: there is no architecture or no set of weights of that name.
        InputError: the weights can't be downloaded.
        MissingToolError: the library isn't installed.
    """
    base, _, weights = name.partition("@")
    if weights and not pretrained_allowed:
        raise UsageError(
            "weights_in_arch", f"--arch {library}:{name} names weights, but the weights come from MODEL.",
            why="The architecture says only the shape of the network.", fix=f"Write --arch {library}:{base}",
        )  # fmt: skip
    return _torchvision(base, weights) if library == "torchvision" else _timm(base, weights, pretrained_allowed)


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """A fixed seed while an architecture is made, and the library's talk on stderr."""
    import torch

    with torch.random.fork_rng(devices=[]), contextlib.redirect_stdout(sys.stderr):
        torch.manual_seed(SEED)
        yield


# --- torchvision ------------------------------------------------------------------------------------------------------


def _torchvision(name: str, weights: str, classes: int | None = None) -> Built:
    try:
        from torchvision import models
    except ImportError as exc:
        raise missing_library("torchvision", "vision", f"the architecture torchvision:{name}") from exc
    known = models.list_models()
    if name not in known:
        raise UsageError(
            "unknown_architecture", f"torchvision has no model '{name}'.", why=_near(name, known),
            fix="Choose one of them, e.g. torchvision:mobilenet_v2",
        )  # fmt: skip
    enum = models.get_model_weights(name)
    chosen = _torchvision_weights(name, weights, enum)
    options: dict[str, Any] = {"weights": chosen}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    if classes is not None:
        options["num_classes"] = classes
    with seeded(), downloads(f"torchvision:{name}@{weights}"):
        module = models.get_model(name, **options)
    hint = _torchvision_hint(module, chosen or getattr(enum, "DEFAULT", None), classes)
    plain = module
    module, hint = _wrap_detector(name, module, hint)
    rebuild = None if classes is not None else lambda count: _torchvision(name, "", count)
    return _finish(Built(module, hint, f"torchvision:{name}", rebuild, plain, trained=chosen is not None), weights)


def _torchvision_weights(name: str, wanted: str, enum: Any) -> Any:
    if not wanted:
        return None
    if wanted in enum.__members__ or wanted == "DEFAULT" and len(enum.__members__):
        return enum[wanted] if wanted in enum.__members__ else enum.DEFAULT
    raise UsageError(
        "unknown_weights", f"torchvision:{name} has no weights '{wanted}'.",
        why=nearest(wanted, [*enum.__members__, "DEFAULT"]), fix=f"Write torchvision:{name}@DEFAULT",
    )  # fmt: skip


def _torchvision_hint(module: nn.Module, weights: Any, classes: int | None) -> ModelHint:
    """Size, preprocessing and labels of the library's own weights; they hold for other weights of the same network."""
    from edgesdk.importing._export import ModelHint
    from edgesdk.preprocess import PreprocessSpec

    if weights is None:
        return ModelHint()
    transforms = weights.transforms()
    side = _side(transforms)
    labels = tuple(weights.meta.get("categories") or ()) or None
    task = {
        "ImageClassification": "image-classification", "SemanticSegmentation": "image-segmentation",
        "ObjectDetection": "object-detection",
    }.get(type(transforms).__name__)  # fmt: skip
    preprocess = None
    if task:
        try:
            preprocess = PreprocessSpec.from_torchvision(transforms)
        except UnsupportedError:
            preprocess = None
    inputs = (TensorSpec(first_input(module), "float32", (1, 3, *side)),) if task else ()
    known = labels if classes is None or (labels and classes == len(labels)) else None
    return ModelHint(inputs=inputs, preprocess=preprocess, labels=known, task=task)


def _side(transforms: Any) -> tuple[int, int]:
    for attribute in ("crop_size", "resize_size"):
        size = getattr(transforms, attribute, None)
        if size:
            sides = [size] if isinstance(size, int) else list(size)
            return (int(sides[0]), int(sides[-1]))
    return (_DEFAULT_SIDE, _DEFAULT_SIDE)


def _wrap_detector(name: str, module: nn.Module, hint: ModelHint) -> tuple[nn.Module, ModelHint]:
    from torchvision.models import detection

    if type(module).__module__.startswith(detection.__name__):
        from edgesdk.importing._detectors import wrap

        return wrap(name, module, hint)
    return module, hint


# --- timm -------------------------------------------------------------------------------------------------------------


def _timm(name: str, tag: str, pretrained_allowed: bool, classes: int | None = None) -> Built:
    try:
        import timm
    except ImportError as exc:
        raise missing_library("timm", "vision", f"the architecture timm:{name}") from exc
    base = name.partition(".")[0]
    if not timm.is_model(base):
        raise UsageError(
            "unknown_architecture", f"timm has no model '{base}'.", why=_near(base, timm.list_models()),
            fix="Choose one of them, e.g. timm:mobilenetv4_conv_small",
        )  # fmt: skip
    pretrained = pretrained_allowed and (bool(tag) or "." in name)
    full = f"{base}.{tag}" if tag and tag != "DEFAULT" else name
    options: dict[str, Any] = {} if classes is None else {"num_classes": classes}
    with seeded(), downloads(f"timm:{full}"), no_retries_offline():
        try:
            module = timm.create_model(full, pretrained=pretrained, **options)
        except RuntimeError as exc:
            if "pretrained" not in str(exc).lower() and "tag" not in str(exc).lower():
                raise
            raise UsageError(
                "unknown_weights", f"timm has no weights for '{full}'.", why=f"{_first_line(exc)}.",
                fix=f"Write timm:{base}@DEFAULT, or timm:{base} for random weights.",
            ) from exc  # fmt: skip
    rebuild = None if classes is not None else lambda count: _timm(name, "", False, count)
    return _finish(Built(module, _timm_hint(module), f"timm:{full}", rebuild, trained=pretrained), tag)


def _timm_hint(module: Any) -> ModelHint:
    import timm.data

    from edgesdk.importing._export import ModelHint
    from edgesdk.preprocess import PreprocessSpec

    config = timm.data.resolve_data_config({"input_size": _timm_size(module)}, model=module)
    size = tuple(int(side) for side in config["input_size"])
    try:
        preprocess = PreprocessSpec.from_timm(config)
    except UnsupportedError:
        preprocess = None
    license_ = (getattr(module, "pretrained_cfg", None) or {}).get("license")
    labels = _timm_labels(module)
    inputs = (TensorSpec(first_input(module), "float32", (1, *size)),)
    return ModelHint(
        inputs=inputs, preprocess=preprocess, labels=labels, task="image-classification" if labels else None,
        license=str(license_) if license_ else None,
    )  # fmt: skip


def _timm_size(module: Any) -> tuple[int, int, int]:
    """(channels, height, width) that this module takes: the configuration's, unless it was made with ``in_chans`` or ``img_size``.

    timm leaves the configuration of the published weights as it is then.
    """
    import timm.data
    from torch import nn

    channels, height, width = timm.data.resolve_data_config({}, model=module)["input_size"]
    first = next((layer for layer in module.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels in (1, 3) and first.groups == 1:
        channels = first.in_channels
    own = getattr(getattr(module, "patch_embed", None), "img_size", None)
    if own is not None:
        height, width = own
    return int(channels), int(height), int(width)


def hint_of(module: nn.Module) -> ModelHint:
    """What a module of the user's own factory says about itself: timm's carry their size and preprocessing.

    The licence isn't taken over: it is that of published weights, and these may be the user's.
    """
    from edgesdk.importing._export import ModelHint

    if type(module).__module__.startswith("timm.") and getattr(module, "pretrained_cfg", None):
        return replace(_timm_hint(module), license=None)
    return ModelHint()


def _timm_labels(module: Any) -> tuple[str, ...] | None:
    """ImageNet's names where the head has as many classes as timm's label set for these weights."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(module)
    if not subset or getattr(module, "num_classes", 0) <= 0:
        return None
    info = ImageNetInfo(subset)
    if info.num_classes() != module.num_classes:
        return None
    return tuple(str(info.index_to_description(i)) for i in range(info.num_classes()))


# --- shared -----------------------------------------------------------------------------------------------------------


def first_input(module: nn.Module) -> str:
    """Name of ``forward()``'s first parameter."""
    return next(iter(inspect.signature(module.forward).parameters), "input")


def _near(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(repr(c) for c in close)}?" if close else f"It has {len(known)} others."


def _finish(built: Built, weights: str) -> Built:

    step = HistoryStep("import", "architecture", fields={"name": built.label, "weights": weights or None})
    hint: ModelHint = replace(built.hint, history=(*built.hint.history, step))
    return replace(built, hint=hint)


def random_weights(built: Built) -> Built:
    """The same with the warning that its weights are random."""
    warn = Warn(
        "random_weights",
        f"{built.label} has random weights (seed {SEED}): good for sizes and speed, not for answers. "
        f"{built.label}@DEFAULT downloads trained ones.",
    )
    return replace(built, hint=replace(built.hint, warnings=(*built.hint.warnings, warn)))


@contextlib.contextmanager
def no_retries_offline() -> Iterator[None]:
    """Without a network huggingface_hub tries for a minute; then only its cache is looked at."""
    try:
        from huggingface_hub import constants
    except ImportError:
        yield
        return
    host = urllib.parse.urlsplit(constants.ENDPOINT).hostname or ""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not (urllib.request.getproxies() or _resolves(host))
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def downloads(what: str) -> Iterator[None]:
    """A failed download becomes an InputError that says what couldn't be reached.

    Raises:
        InputError: no network, or the server doesn't know the name.
    """
    try:
        yield
    except (OSError, ValueError) as exc:  # URLError, requests' and huggingface_hub's errors are OSErrors
        text = f"{type(exc).__name__} {exc}".lower()
        if any(sign in text for sign in _OFFLINE_SIGNS):
            raise InputError(
                "download_failed", f"The weights of {what} can't be downloaded: {_first_line(exc)}.",
                why="They are not in the local cache, and the server can't be reached from here.",
                fix="Go online once (the library keeps a copy), or give a local file or folder.",
            ) from exc  # fmt: skip
        if isinstance(exc, OSError):
            raise InputError(
                "download_failed", f"The weights of {what} can't be had: {_first_line(exc)}.",
                why="The server doesn't know the name or asks for a log-in, or the files there are incomplete.",
                fix="Check the name; for private models log in first: hf auth login",
            ) from exc  # fmt: skip
        raise


def _first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:200].rstrip(".")


def entries(module: nn.Module) -> Mapping[str, Any]:
    """``state_dict()`` without entries that aren't tensors (``_extra_state``)."""
    import torch

    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}
