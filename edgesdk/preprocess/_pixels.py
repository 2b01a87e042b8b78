"""Steps 1–3: any picture becomes upright 8-bit RGB, then the model's colour order.

To the integer, for the Java and Swift sides:

- grey: ``r = g = b = v``; 16-bit samples: ``v >> 8``; 1-bit: 0 or 255.
- alpha a over background b: ``div255(c·a + b·(255-a))`` with ``div255(x) = ((x+128) + ((x+128) >> 8)) >> 8``, which is
  x/255 rounded to nearest. Decode *unpremultiplied* (Android: ``inPremultiplied = false``).
- CMYK, 0 = no ink: ``k' = 255-k; r = k' - div255(c·k')``, clamped at 0; likewise g from m, b from y.
- orientation tag: 2 mirror left-right · 3 turn by 180° · 4 mirror top-bottom · 5 transpose (swap axes) · 6 turn 90°
  clockwise · 7 transverse (transpose, then turn by 180°) · 8 turn 90° anticlockwise.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgesdk.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

_ORIENTATION = 0x0112  # EXIF 2.3, tag 274
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")


def load(data: Any, background: tuple[int, int, int]) -> Image.Image:
    """An upright RGB picture from a path, a ``PIL.Image`` or a uint8 array.

    Raises:
        InputError: ``image_missing``, ``image_unreadable``.
    """
    from PIL import Image

    if isinstance(data, (str, os.PathLike)):
        return _from_file(Path(data), background)
    if isinstance(data, Image.Image):
        return upright_rgb(data, background, "The picture")
    if not hasattr(data, "dtype"):
        raise _unreadable("The picture", f"A {type(data).__name__} is no path, PIL.Image or uint8 array.")
    return upright_rgb(_from_array(data), background, "The picture")


def upright_rgb(image: Image.Image, background: tuple[int, int, int], name: str) -> Image.Image:
    """Steps 1 and 2 on an opened picture."""
    from PIL import Image

    try:
        image.load()  # TIFF is turned upright while it loads, and drops its tag then
        tag = _orientation(image)
        rgb = _flatten(image, background)
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as exc:
        raise _unreadable(name, f"Its data is damaged or of a rare kind ({exc}).") from exc
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(tag)
    return rgb if turn is None else rgb.transpose(turn)


def recolor(image: Image.Image, color: str) -> np.ndarray:
    """Step 3: uint8 [H, W, C] in the model's colour order."""
    import numpy as np

    pixels = np.asarray(image.convert("L") if color == "gray" else image)
    if color == "gray":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if color == "bgr" else pixels


def recolored(value: tuple[int, int, int], color: str) -> tuple[int, ...]:
    """Step 3 for a single colour."""
    from PIL import Image

    return tuple(int(v) for v in recolor(Image.new("RGB", (1, 1), value), color)[0, 0])


def _from_file(path: Path, background: tuple[int, int, int]) -> Image.Image:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return upright_rgb(image, background, f"'{path}'")
    except FileNotFoundError as exc:
        raise InputError(
            "image_missing", f"The picture '{path}' doesn't exist.", why="The path is wrong, or relative to another folder.",
            fix="Check the path.",
        ) from exc  # fmt: skip
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:
        raise _unreadable(f"'{path}'", f"It isn't a picture that Pillow can read ({exc}).") from exc


def _unreadable(name: str, why: str) -> InputError:
    return InputError(
        "image_unreadable", f"{name} can't be read as a picture.", why=why,
        fix="Give a PNG, JPEG or WebP file, a PIL.Image, or a uint8 array [H, W, 3] in RGB order.",
    )  # fmt: skip


def _from_array(array: np.ndarray) -> Image.Image:
    import numpy as np
    from PIL import Image

    pixels = np.asarray(array)
    flat = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    channels = {2: 1}.get(flat.ndim, flat.shape[2] if flat.ndim == 3 else 0)
    if flat.dtype != np.uint8 or channels not in (1, 2, 3, 4) or 0 in flat.shape:
        raise _unreadable(
            f"An array {pixels.dtype}{list(pixels.shape)}",
            "Arrays are uint8 [H, W, 3] (RGB), [H, W, 4] (RGB and alpha), [H, W, 2] (grey and alpha) or [H, W] (grey).",
        )
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    return Image.frombytes(mode, (flat.shape[1], flat.shape[0]), np.ascontiguousarray(flat).tobytes())


def _orientation(image: Image.Image) -> int:
    """The EXIF tag; a damaged EXIF block counts as none, as in camera roll apps."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except (OSError, ValueError, TypeError, KeyError, SyntaxError, struct.error):
        return 1


def _flatten(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I"):
        image = _high_byte(image)
    elif image.mode == "F":
        raise ValueError("samples are floating-point numbers of unknown range")
    if image.mode in _ALPHA or "transparency" in image.info:
        clear = image.convert("RGBA")
        flat = Image.new("RGB", image.size, background)
        flat.paste(clear, mask=clear.getchannel("A"))
        return flat
    return image.convert("RGB")


def _high_byte(image: Image.Image) -> Image.Image:
    """16-bit grey, which Pillow opens as ``I;16`` or ``I``, by its high byte."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("samples have more than 16 bits")
    grey = np.ascontiguousarray((values >> 8).astype(np.uint8))
    return Image.frombytes("L", image.size, grey.tobytes())
