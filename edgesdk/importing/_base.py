"""The seam that every import kind fills: recognise the bytes, then make a :class:`~edgesdk.artifacts.Model`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from edgesdk.artifacts import Model, Source, TensorSpec


@dataclass(frozen=True)
class ImportOptions:
    """What the user said about the model.

    Attributes:
        inputs: from ``--input``; empty means: find out.
        arch: ``--arch``: ``torchvision:NAME``, ``timm:NAME``, ``transformers:FOLDER``, ``package.module:factory`` or
            ``file.py:factory``.
        trust_pickle: the user allows the file to run code when it is read.
    """

    inputs: tuple[TensorSpec, ...] = ()
    arch: str | None = None
    trust_pickle: bool = False
    image: tuple[int, int] | None = None
    """Height and width of the picture (``--image``): completes the shape of an image input when nothing else does."""
    needs_program: bool = True
    """False when only ONNX Runtime is asked for: an ONNX file then needs no conversion to PyTorch."""


@dataclass(frozen=True)
class Located:
    """A MODEL argument, resolved without importing torch.

    Attributes:
        kind: name of the importer.
        text: MODEL as the user wrote it.
        path: file or folder; None for a name (``torchvision:resnet18``).
        member: what follows the colon (factory of a ``file.py``, name of an architecture).
        files: every file that the import reads, when that is known in advance and complete: the result may then be
            cached by their content. None when user code runs (a factory can read anything).
    """

    kind: str
    text: str
    source: Source
    path: Path | None = None
    member: str | None = None
    files: tuple[Path, ...] | None = None


class Importer(ABC):
    """One kind of source. A subclass lives in one file that ends with ``IMPORTER = ItsClass()``."""

    name: ClassVar[str]

    @abstractmethod
    def load(self, located: Located, options: ImportOptions) -> Model:
        """Read the source and export it.

        Raises:
            InputError: it is missing, damaged, of another kind, or not trusted.
            UnsupportedError: torch can't capture it as a graph.
        """
