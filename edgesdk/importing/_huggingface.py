"""Hugging Face models: plain positional tensors in, plain named tensors out, sizes from the configuration."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgesdk.artifacts import Dim, HistoryStep, Model, Size, TensorSpec, Warn
from edgesdk.errors import InputError, UnsupportedError, missing_library
from edgesdk.importing._base import ImportOptions, Located
from edgesdk.importing._library import Built, downloads, no_retries_offline, seeded
from edgesdk.importing._locate import transformers_files
from edgesdk.importing._safety import force_weights_only, quiet_torch

if TYPE_CHECKING:
    from torch import nn


MAX_TOKENS: Final = 512
"""Longest sequence offered by default; the configuration's own limit lowers it."""

ATTENTION: Final = "eager"
"""Plain matmul and softmax, which every back end knows."""

# What an architecture's name says about its task: ending → (Auto class, task).
_TASKS: Final = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
    "ForCausalLM": ("AutoModelForCausalLM", "text-generation"),
    "LMHeadModel": ("AutoModelForCausalLM", "text-generation"),
    "ForImageClassification": ("AutoModelForImageClassification", "image-classification"),
    "ForImageClassificationWithTeacher": ("AutoModelForImageClassification", "image-classification"),
    "ForSemanticSegmentation": ("AutoModelForSemanticSegmentation", "image-segmentation"),
    "ForObjectDetection": ("AutoModelForObjectDetection", "object-detection"),
    "ForDepthEstimation": ("AutoModelForDepthEstimation", "depth-estimation"),
    "ForAudioClassification": ("AutoModelForAudioClassification", "audio-classification"),
    "ForCTC": ("AutoModelForCTC", "automatic-speech-recognition"),
    "EncoderModel": ("AutoModelForTextEncoding", "feature-extraction"),
}
_LABELLED: Final = (
    "image-classification", "text-classification", "audio-classification", "token-classification",
    "image-segmentation", "object-detection",
)  # fmt: skip
# Outputs by name, in this order, as far as the model gives them; caches, hidden states and attentions are left out.
_OUTPUTS: Final = (
    "logits", "start_logits", "end_logits", "pred_boxes", "predicted_depth", "last_hidden_state", "pooler_output",
)  # fmt: skip
_SAMPLES: Final = 16000  # one second at the rate of every speech model in transformers


def import_folder(folder: Path, located: Located, options: ImportOptions) -> Model:
    """A folder with config.json and weights, exported.

    Raises:
        InputError: its configuration or weights are damaged, or it needs code of its own.
        UnsupportedError: a kind of model that has no single graph.
        MissingToolError: transformers isn't installed.
    """
    from edgesdk.importing._export import export_module

    config = _config(folder)
    module = _pretrained(str(folder), config, folder, local=True)
    built = _describe(module, folder, f"transformers:{folder.name}")
    return export_module(built.module, located, options, hint=built.hint)


def import_repository(name: str, located: Located, options: ImportOptions) -> Model:
    """``hf:ORG/MODEL``: downloaded by huggingface_hub into its cache, then read as a folder.

    Raises:
        InputError: it can't be downloaded.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as exc:
        raise missing_library("huggingface_hub", "transformers", f"downloading hf:{name}") from exc
    with downloads(f"hf:{name}"), no_retries_offline():
        patterns = ["*.json", "*.safetensors", "*.txt", "*.model"]
        folder = Path(snapshot_download(name, allow_patterns=patterns))
        if not list(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*patterns, "pytorch_model*.bin"]))
    transformers_files(folder)
    return import_folder(folder, located, options)


def build_architecture(folder: Path) -> Built:
    """``--arch transformers:FOLDER``: the network of a configuration, with random weights.

    Raises:
        InputError: the folder has no readable config.json.
        MissingToolError: transformers isn't installed.
    """
    config = _config(folder)
    transformers = _library(f"the architecture transformers:{folder}")
    _, auto, _ = _kind(config)
    with seeded(), _translated(folder):
        settings = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
        make = getattr(transformers, auto)
        make = make.from_config if auto.startswith("Auto") else make._from_config
        module = make(settings, attn_implementation=ATTENTION)
    return replace(_describe(module, folder, f"transformers:{folder}"), holder=module)


# --- reading ----------------------------------------------------------------------------------------------------------


def _library(needed_for: str) -> Any:
    try:
        with quiet_torch():
            import transformers
    except ImportError as exc:
        raise missing_library("transformers", "transformers", needed_for) from exc
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(
            "missing_file", f"{folder} has no config.json.", why="It is no Hugging Face folder.",
            fix="Name the folder that 'save_pretrained' or 'hf download' wrote.",
        )  # fmt: skip
    document = _json(path)
    if "auto_map" in document and "model_type" not in document:
        raise _own_code(folder)
    return document


def _json(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        raise InputError(
            "damaged_file", f"{path} is no JSON: {exc}.", why="The file was cut short or edited by hand.",
            fix="Download it again.",
        ) from exc  # fmt: skip
    if not isinstance(document, dict):
        raise InputError(
            "damaged_file", f"{path} is no JSON object.", why="A configuration is one.", fix="Download it again."
        )
    return document


def _own_code(folder: Path) -> InputError:
    return InputError(
        "needs_remote_code", f"{folder} needs Python code that comes with the model (auto_map).",
        why="edgesdk runs no code out of a model's folder.",
        fix="Read the code, then load the model in a factory of your own and give file.py:FACTORY.",
    )  # fmt: skip


def _kind(config: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """(class named in the configuration, class to load it with, task)

    A class with a head of another kind is loaded as itself: ``AutoModel`` would leave its head out.
    """
    architecture = str((config.get("architectures") or [""])[0])
    for ending, (auto, task) in _TASKS.items():
        if architecture.endswith(ending):
            return architecture, auto, task
    if architecture and not architecture.endswith("Model") and _is_model(architecture):
        return architecture, architecture, None
    return architecture, "AutoModel", "feature-extraction"


def _is_model(name: str) -> bool:
    import transformers

    found = getattr(transformers, name, None)
    return isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)


def _pretrained(name: str, config: Mapping[str, Any], folder: Path, *, local: bool) -> nn.Module:
    transformers = _library(f"the Hugging Face folder {folder}")
    architecture, auto, _ = _kind(config)
    with seeded(), _translated(folder), force_weights_only(), quiet_torch():
        module, info = getattr(transformers, auto).from_pretrained(
            name, local_files_only=local, trust_remote_code=False, attn_implementation=ATTENTION,
            output_loading_info=True, dtype="float32",
        )  # fmt: skip
    unused = sorted(map(str, info.get("unexpected_keys") or ()))
    if unused and architecture not in ("", type(module).__name__):
        raise _another_class(folder, architecture, type(module).__name__, unused)
    missing = sorted(str(key) for key in info.get("missing_keys") or ())
    mismatched = [str(key) for key in info.get("mismatched_keys") or ()]
    needed = [key for key in missing if ".pooler." not in f".{key}"]
    if needed or mismatched:
        raise InputError(
            "weights_mismatch", f"{folder} lacks weights of {architecture or type(module).__name__}: "
            f"{', '.join([*needed, *mismatched][:4])}.",
            why="A parameter without its weight would keep a random value, and the model would be silently wrong.",
            fix="Download the folder again; if it holds only a base model, set 'architectures' to the base class.",
            details={"missing": needed, "mismatched": mismatched},
        )  # fmt: skip
    if missing:
        _drop_pooler(module)
    return module  # type: ignore[no-any-return]


def _another_class(folder: Path, architecture: str, loaded: str, unused: Sequence[str]) -> InputError:
    return InputError(
        "unknown_architecture", f"{folder} holds a {architecture}, of which transformers knows only the {loaded} inside: "
        f"{', '.join(unused[:3])} would be left out.",
        why="The class is the author's own, or of another transformers release; without its head it is another model.",
        fix=f"Load it in a factory of your own and give file.py:FACTORY; for the bare {loaded} set 'architectures' to it.",
        details={"unused": list(unused)},
    )  # fmt: skip


def _drop_pooler(module: Any) -> None:
    """A pooler without weights (sentence encoders are saved so) gives noise: leave it out."""
    for inner in filter(None, (module, getattr(module, module.base_model_prefix, None))):
        if getattr(inner, "pooler", None) is not None:
            inner.pooler = None


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """What transformers raises for folders that it can't read."""
    import pickle

    try:
        yield
    except (OSError, KeyError, AttributeError, TypeError, RuntimeError, pickle.UnpicklingError, ImportError) as exc:
        raise _unreadable(folder, exc) from exc
    except ValueError as exc:
        if "trust_remote_code" in str(exc) or "custom code" in str(exc):
            raise _own_code(folder) from exc
        raise _unreadable(folder, exc) from exc


def _unreadable(folder: Path, exc: Exception) -> InputError:
    reason = (str(exc).strip() or type(exc).__name__).splitlines()[0][:250].rstrip(".")
    return InputError(
        "unreadable_folder", f"{folder} can't be loaded by transformers: {reason}.",
        why="Its configuration and weights don't fit together, or this transformers release doesn't know the model type.",
        fix="Download the folder again, or try another transformers release; 'edgesdk doctor' checks the set of versions.",
    )  # fmt: skip


# --- inputs and outputs -----------------------------------------------------------------------------------------------


def _describe(module: Any, folder: Path, label: str) -> Built:
    from edgesdk.importing._export import ModelHint

    config = module.config
    _, _, task = _kind({"architectures": [type(module).__name__]})
    specs = input_specs(module)
    wrapped = _wrap(module, tuple(spec.name for spec in specs))
    labels = _labels(config) if task in _LABELLED else None
    step = HistoryStep("import", "transformers", fields={"class": type(module).__name__})
    preprocess, warnings = _preprocess(folder, specs)
    license_ = _licence(folder)
    hint = ModelHint(
        inputs=specs,
        preprocess=preprocess,
        labels=labels,
        task=task,
        license=license_,
        warnings=warnings,
        history=(step,),
    )
    return Built(wrapped, hint, label, trained=True)


def input_specs(module: Any) -> tuple[TensorSpec, ...]:
    """Inputs of a transformers model, with a dynamic length where its main input is a sequence of tokens.

    Raises:
        UnsupportedError: its main input is of a kind without a single graph (encoder and decoder with different ones).
    """
    config = module.config
    main = str(getattr(module, "main_input_name", "input_ids"))
    # DETR and its like have a decoder too, but one that is called once, with queries of its own.
    if getattr(config, "is_encoder_decoder", False) and any(
        n.startswith("decoder_input_") for n in _parameters(module)
    ):
        raise UnsupportedError(
            "encoder_decoder", f"{type(module).__name__} has an encoder and a decoder, which is not one graph.",
            why="The decoder is called again for every token.",
            fix="Wrap one side in a factory of your own (e.g. model.get_encoder()) and give file.py:FACTORY.",
        )  # fmt: skip
    if main == "pixel_values":
        return (_picture(config),)
    if main == "input_values":
        frames = getattr(config, "max_length", None), getattr(config, "num_mel_bins", None)  # a spectrogram (AST)
        sizes = tuple(int(n) for n in frames if n) if all(frames) else (_SAMPLES,)
        return (TensorSpec(main, "float32", (1, *sizes)),)
    if main == "input_ids":
        seen = getattr(config, "vision_config", None) if "pixel_values" in _parameters(module) else None
        config = getattr(config, "text_config", None) or config
        size: Size = Dim(1, _max_tokens(config), "tokens")
        names = [main, "attention_mask"]
        if getattr(config, "type_vocab_size", 0) and "token_type_ids" in _parameters(module):
            names.append("token_type_ids")
        tokens = tuple(TensorSpec(name, "int64", (1, size)) for name in names if name in _parameters(module))
        return (*tokens, *((_picture(seen),) if seen is not None else ()))  # CLIP and its like compare the two
    raise UnsupportedError(
        "unknown_main_input", f"{type(module).__name__} takes '{main}', whose size isn't in its configuration.",
        why="Only pixel_values, input_values and input_ids are understood without help.",
        fix="Wrap the model in a factory of your own, give file.py:FACTORY, and say sizes with --input.",
    )  # fmt: skip


def _picture(config: Any) -> TensorSpec:
    return TensorSpec("pixel_values", "float32", (1, _channels(config), *_image_size(config)))


def _parameters(module: Any) -> Mapping[str, Any]:
    return inspect.signature(module.forward).parameters


def _channels(config: Any) -> int:
    return int(getattr(config, "num_channels", None) or 3)


def _image_size(config: Any) -> tuple[int, int]:
    size = getattr(config, "image_size", None) or 224
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    return (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[-1]))


def _max_tokens(config: Any) -> int:
    """The configuration's limit, at most ``MAX_TOKENS``; RoBERTa's positions start behind the padding index."""
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or MAX_TOKENS
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer"):
        limit -= int(getattr(config, "pad_token_id", 1) or 0) + 1
    return max(2, min(MAX_TOKENS, int(limit)))


def _labels(config: Any) -> tuple[str, ...] | None:
    table = getattr(config, "id2label", None)
    if not table:
        return None
    return tuple(str(table[key]) for key in sorted(table, key=int))


def _preprocess(folder: Path, specs: tuple[TensorSpec, ...]) -> tuple[Any, tuple[Warn, ...]]:
    from edgesdk.preprocess import PreprocessSpec

    path = folder / "preprocessor_config.json"
    if not path.is_file() or specs[0].name != "pixel_values":
        return None, ()
    try:
        return PreprocessSpec.from_transformers(dict(_json(path))), ()
    except UnsupportedError as exc:
        return None, (Warn("preprocess_unknown", f"{path.name}: {exc.message} The app must prepare its input itself."),)


def _licence(folder: Path) -> str | None:
    """``license:`` of the model card's head."""
    card = folder / "README.md"
    if not card.is_file():
        return None
    text = card.read_text(encoding="utf-8", errors="replace")
    head = text.split("---", 2)[1] if text.startswith("---") and text.count("---") >= 2 else ""
    for line in head.splitlines():
        if line.startswith("license:"):
            return line.partition(":")[2].strip().strip("'\"") or None
    return None


def _wrap(module: Any, names: tuple[str, ...]) -> nn.Module:
    """A module with exactly these parameters, that returns plain tensors by name."""
    import torch

    options = _no_cache(module)
    usual = (
        type(module).__name__.endswith((*_TASKS, "Model")) and "pixel_values" not in names[1:]
    )  # CLIP's outputs are its own

    class PlainModel(torch.nn.Module):
        """``forward`` by position; the library's dataclass becomes a dictionary of tensors."""

        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *inputs: Any) -> dict[str, torch.Tensor]:
            given = dict(zip(names, inputs, strict=True))
            found = self.model(**given, return_dict=True, **options)
            tensors = {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
            return {name: tensors[name] for name in (_OUTPUTS if usual else tensors) if name in tensors}

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    vars(PlainModel)["forward"].__signature__ = inspect.Signature(parameters)
    return PlainModel().eval()


def _no_cache(module: Any) -> dict[str, Any]:
    """No key-value cache: it would be one more output of every layer."""
    return {"use_cache": False} if "use_cache" in _parameters(module) else {}
