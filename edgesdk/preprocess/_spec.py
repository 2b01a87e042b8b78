"""The seam of all kinds of preprocessing: JSON in and out, does it fit the model, apply it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from edgesdk.artifacts import TensorSpec
from edgesdk.errors import InputError, UnsupportedError, UsageError, nearest

if TYPE_CHECKING:
    import numpy as np

    from edgesdk.preprocess._image import ImageSpec

# Kinds that the architecture names and this version can't do: refused by name, never passed over in silence.
_LATER = ("text",)


@dataclass(frozen=True)
class PreprocessSpec(ABC):
    """How raw data becomes one input tensor. The kinds are ``ImageSpec`` and ``AudioSpec``.

    Attributes:
        input: name of the model's input that the tensor feeds; None until :meth:`bind` found it.
    """

    kind: ClassVar[str]

    input: str | None = None

    @abstractmethod
    def apply(self, data: Any) -> np.ndarray:
        """The tensor for ``data``, batch dimension included.

        Raises:
            InputError: the data can't be read or is of a kind that the spec doesn't cover.
        """

    @abstractmethod
    def fits(self, tensor: TensorSpec) -> str | None:
        """None when the result of :meth:`apply` can be fed to ``tensor``, else a sentence that says why not."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The manifest's form; :meth:`from_json` gives an equal spec back."""

    def adapted(self, tensor: TensorSpec) -> Self:
        """The same treatment for an input of another size, where the kind knows one; else the spec itself."""
        return self

    def bind(self, inputs: Sequence[TensorSpec], *, adapt: bool = False) -> Self:
        """The same spec with ``input`` set: to the one input it fits, or, when several fit, to the first of them.

        Args:
            adapt: a spec taken over from a library follows the model's own size (``--input``, or segmentation and
                detection presets, which name none); a size that the user asked for must fit as it is.

        Raises:
            InputError: the named input doesn't exist, or the tensor fits none.
        """
        named = [t for t in inputs if t.name == self.input] if self.input else list(inputs)
        if not named:
            raise InputError(
                "preprocess_input_unknown",
                f"The preprocessing feeds an input '{self.input}', which the model doesn't have.",
                why=nearest(self.input or "", [t.name for t in inputs]),
                fix="Name one of the model's inputs, or leave the name out.",
            )
        reasons = [self.fits(tensor) for tensor in named]
        for tensor, reason in zip(named, reasons, strict=True):
            if reason is None:
                return replace(self, input=tensor.name)
        for tensor in named if adapt else ():
            other = self.adapted(tensor)
            if other.fits(tensor) is None:
                return replace(other, input=tensor.name)
        raise InputError(
            "preprocess_mismatch",
            f"The {self.kind} preprocessing doesn't fit the model's input {named[0]}.",
            why=reasons[0] or "",
            fix="Make --image, --mean and --std agree with that input, or give the model another --input shape.",
        )

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> PreprocessSpec:
        """Read the manifest's form.

        Raises:
            UnsupportedError: a kind, step or version that this version of edgesdk doesn't know.
            InputError: a field is missing, unknown or has an impossible value.
        """
        from edgesdk.preprocess._audio import AudioSpec
        from edgesdk.preprocess._image import ImageSpec

        readers = {"image": ImageSpec.read, "audio": AudioSpec.read}
        kind = document.get("kind") if isinstance(document, Mapping) else None
        if kind in _LATER:
            raise UnsupportedError(
                "preprocess_unsupported", f"Preprocessing of kind '{kind}' isn't built yet.",
                why="This version of edgesdk prepares pictures and sounds; nothing is guessed for other kinds.",
                fix="Feed the tensors yourself: leave 'preprocess' out of the manifest and use session.run().",
            )  # fmt: skip
        if kind not in readers:
            raise InputError(
                "preprocess_invalid", f"The preprocessing has the unknown kind {kind!r}.",
                why=nearest(str(kind), readers), fix="Write one of the known kinds, or update edgesdk.",
            )  # fmt: skip
        try:
            return readers[kind](document)
        except (KeyError, TypeError, ValueError, AttributeError, UsageError) as exc:
            reason = f"The field {exc} is missing." if isinstance(exc, KeyError) else str(exc)
            raise InputError(
                "preprocess_invalid", f"The {kind} preprocessing of the manifest can't be read.",
                why=reason, fix="Write the bundle again with edgesdk package.",
            ) from exc  # fmt: skip

    @staticmethod
    def from_options(
        image: int | tuple[int, int],
        resize: str = "shorter",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        interpolation: str = "bilinear",
        channels: int = 3,
    ) -> ImageSpec:
        """What ``--image --resize --mean --std --interpolation`` say; see :func:`_options.from_options`."""
        from edgesdk.preprocess._options import from_options

        return from_options(image, resize, mean, std, interpolation, channels)

    @staticmethod
    def from_torchvision(transforms: Any) -> ImageSpec:
        """From ``weights.transforms()`` or a ``Compose`` of torchvision's own transforms."""
        from edgesdk.preprocess._takeover import from_torchvision

        return from_torchvision(transforms)

    @staticmethod
    def from_timm(config: Any) -> ImageSpec:
        """From ``model.pretrained_cfg`` or ``timm.data.resolve_data_config(…)``."""
        from edgesdk.preprocess._takeover import from_timm

        return from_timm(config)

    @staticmethod
    def from_transformers(config: Mapping[str, Any]) -> ImageSpec:
        """From the dictionary of a folder's ``preprocessor_config.json``."""
        from edgesdk.preprocess._takeover import from_transformers

        return from_transformers(config)
