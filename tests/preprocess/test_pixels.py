"""Real files of every kind become upright RGB; strange sizes work; damaged ones are refused in words."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgesdk.errors import InputError
from edgesdk.preprocess import Crop, ImageSpec, PreprocessSpec, Resize


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    from sklearn.datasets import load_sample_image

    return Image.fromarray(load_sample_image("flower.jpg")).resize((96, 64))


def saved(tmp_path: Path, image: Image.Image, name: str, **options: object) -> Path:
    path = tmp_path / name
    image.save(path, **options)  # type: ignore[arg-type]
    return path


PLAIN = ImageSpec()
GRAY = ImageSpec(color="gray", mean=(0.0,), std=(1.0,))


def test_pitfall_n_04_exif_orientation_of_a_jpeg(tmp_path: Path, photo: Image.Image) -> None:
    """All eight ways a phone writes the same upright picture give the same pixels, within what JPEG loses."""
    undo = [None, Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM,
            Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_90, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_270]  # fmt: skip
    for tag, turn in enumerate(undo, start=1):
        exif = Image.Exif()
        exif[0x0112] = tag
        stored = photo if turn is None else photo.transpose(turn)
        png = saved(tmp_path, stored, f"{tag}.png", exif=exif)
        assert np.array_equal(PLAIN.pixels(png), np.asarray(photo)), tag
        jpeg = saved(tmp_path, stored, f"{tag}.jpg", exif=exif, quality=95, subsampling=0)
        assert PLAIN.pixels(jpeg).shape == (64, 96, 3)
        assert np.abs(PLAIN.pixels(jpeg).astype(int) - np.asarray(photo)).mean() < 2, tag


def test_pitfall_n_04_red_only(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.new("RGB", (50, 40), (255, 0, 0)), "red.png")
    rgb = PreprocessSpec.from_options(8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.125)).apply(path)
    for channel, value in enumerate((1.8, -0.8, -2.4)):
        assert rgb[0, channel] == pytest.approx(np.full((8, 8), value), abs=1e-6)
    assert np.array_equal(ImageSpec(color="bgr").pixels(path)[0, 0], [0, 0, 255])
    assert GRAY.pixels(path)[0, 0, 0] == 76  # 255 · 0.299


def test_pitfall_n_04_alpha_grey_cmyk_palette_and_16_bits(tmp_path: Path, photo: Image.Image) -> None:
    want = np.asarray(photo).astype(int)
    grey = photo.convert("L")
    grey3 = np.asarray(grey)[:, :, None].repeat(3, axis=2)
    assert np.array_equal(PLAIN.pixels(saved(tmp_path, grey, "grey.png")), grey3)
    assert np.array_equal(GRAY.pixels(saved(tmp_path, grey, "grey.png")), grey3[..., :1])

    cmyk = PLAIN.pixels(saved(tmp_path, photo.convert("CMYK"), "cmyk.tif"))
    assert np.abs(cmyk - want).max() <= 1
    lossy = PLAIN.pixels(saved(tmp_path, photo.convert("CMYK"), "cmyk.jpg", quality=95))
    assert np.abs(lossy - want).mean() < 4

    wide = Image.fromarray((np.asarray(grey).astype(np.uint16) << 8) | 255)
    assert np.array_equal(PLAIN.pixels(saved(tmp_path, wide, "wide.png")), grey3)
    assert np.array_equal(PLAIN.pixels(saved(tmp_path, wide, "wide.tif")), grey3)

    palette = photo.quantize(64)
    want_palette = np.asarray(palette.convert("RGB"))
    assert np.array_equal(PLAIN.pixels(saved(tmp_path, palette, "palette.gif")), want_palette)
    assert np.array_equal(PLAIN.pixels(saved(tmp_path, photo.convert("1"), "bits.png"))[..., 0], np.asarray(photo.convert("1")) * 255)  # fmt: skip


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_pitfall_n_04_transparent_pixels_show_the_background(tmp_path: Path, photo: Image.Image, mode: str) -> None:
    clear = photo.convert(mode)
    alpha = Image.new("L", photo.size, 255)
    alpha.paste(0, (0, 0, 48, 64))
    clear.putalpha(alpha)
    path = saved(tmp_path, clear, "clear.png")
    for background in ((255, 255, 255), (0, 0, 0), (12, 34, 56)):
        pixels = ImageSpec(background=background).pixels(path)
        assert (pixels[:, :48] == background).all()
        assert np.array_equal(pixels[:, 48:], np.asarray(clear.convert("RGB"))[:, 48:])


def test_a_palette_or_colour_key_can_be_transparent(tmp_path: Path) -> None:
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    path = saved(tmp_path, palette, "p.png", transparency=1)
    assert (ImageSpec(background=(1, 2, 3)).pixels(path) == (1, 2, 3)).all()
    keyed = saved(tmp_path, Image.new("RGB", (4, 4), (9, 9, 9)), "k.png", transparency=(9, 9, 9))
    assert (PLAIN.pixels(keyed) == 255).all()


def test_pitfall_n_08_a_3x3_rgb_picture_keeps_its_layout() -> None:
    """Height, width and channels are all 3: only the declared layout tells them apart."""
    picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    first, last = ImageSpec().apply(picture), ImageSpec(layout="nhwc").apply(picture)
    assert first.shape == last.shape == (1, 3, 3, 3)
    assert np.array_equal(np.rint(last[0] * 255), picture)
    assert np.array_equal(np.rint(first[0] * 255), picture.transpose(2, 0, 1))
    assert not np.array_equal(first, last)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3), (223, 225), (224, 224)])
@pytest.mark.parametrize("mode", ["shorter", "stretch", "letterbox"])
def test_any_size_becomes_the_models_size(size: tuple[int, int], mode: str) -> None:
    picture = np.full((*size, 3), 77, np.uint8)
    tensor = PreprocessSpec.from_options(224, resize=mode).apply(picture)
    assert tensor.shape == (1, 3, 224, 224) and tensor.flags.c_contiguous
    assert tensor[0, 0, 111, 111] == np.float32(77 / 255)


def test_a_strip_is_resized_as_pillow_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that computes only what the crop keeps gives the same pixels as the whole, on every filter."""
    from edgesdk.preprocess import _apply

    rng = np.random.default_rng(0)
    for height, width in ((3, 41), (41, 3), (20, 17)):
        picture = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        for name in ("bilinear", "bicubic", "nearest", "lanczos", "box"):
            for spec in (
                ImageSpec(resize=Resize("shorter", (30, 30), name), crop=Crop((28, 25))),  # type: ignore[arg-type]
                ImageSpec(resize=Resize("stretch", (9, 30), name), crop=Crop((7, 40)), color="bgr"),  # type: ignore[arg-type]
            ):
                monkeypatch.setattr(_apply, "_WHOLE", 2**24)
                whole = spec.pixels(picture)
                monkeypatch.setattr(_apply, "_WHOLE", 0)
                assert np.array_equal(spec.pixels(picture), whole), (name, height, width)


def test_resizing_equals_plain_pillow_bit_for_bit(photo: Image.Image) -> None:
    """Holds for Pillow 13, whose rule for the order of the passes is the definition."""
    for name in ("BILINEAR", "BICUBIC", "NEAREST", "LANCZOS", "BOX"):
        for size in ((33, 20), (20, 90), (96, 9), (300, 64), (97, 65), (1, 1)):
            plain = np.asarray(photo.resize(size, Image.Resampling[name]))
            spec = ImageSpec(resize=Resize("stretch", (size[1], size[0]), name.lower()))  # type: ignore[arg-type]
            assert np.array_equal(spec.pixels(photo), plain), (name, size)


def test_arrays_and_pictures_and_files_agree(tmp_path: Path, photo: Image.Image) -> None:
    spec = PreprocessSpec.from_options((40, 50), resize="letterbox", interpolation="bicubic")
    path = saved(tmp_path, photo, "p.png")
    want = spec.apply(path)
    for data in (str(path), photo, np.asarray(photo), np.asarray(photo.convert("RGBA"))):
        assert np.array_equal(spec.apply(data), want)
    grey = np.asarray(photo.convert("L"))
    assert np.array_equal(spec.apply(grey), spec.apply(grey[:, :, None]))
    assert np.array_equal(spec.apply(np.asarray(photo)[:, ::-1]), spec.apply(np.asarray(photo)[:, ::-1].copy()))


def test_dtypes() -> None:
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    raw = ImageSpec(dtype="uint8", scale=1.0, layout="nhwc").apply(picture)
    assert raw.dtype == np.uint8 and np.array_equal(raw[0], picture)
    half = ImageSpec(dtype="float16").apply(picture)
    assert half.dtype == np.float16 and half[0, 2, 0, 0] == np.float16(2 / 255)


def test_unreadable_pictures_are_refused_in_words(tmp_path: Path, photo: Image.Image) -> None:
    held = io.BytesIO()
    photo.save(held, "PNG")
    files = {
        "empty.png": b"", "text.jpg": b"<html>not found</html>", "cut.png": held.getvalue()[:2000],
        "zeros.jpg": b"\xff\xd8" + bytes(300),
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=name) as caught:
            PLAIN.apply(tmp_path / name)
        assert caught.value.code == "image_unreadable" and caught.value.why and caught.value.fix
    with pytest.raises(InputError, match="gone.png") as caught:
        PLAIN.apply(tmp_path / "gone.png")
    assert caught.value.code == "image_missing"
    bad: list[object] = [np.zeros((4, 4, 3), np.float32), np.zeros((3, 40, 50), np.uint8), np.zeros((4, 0, 3), np.uint8),
                         np.zeros((1, 4, 4, 3), np.uint8), 7, Image.new("F", (3, 3)), tmp_path]  # fmt: skip
    for data in bad:
        with pytest.raises(InputError) as caught:
            PLAIN.apply(data)
        assert caught.value.code == "image_unreadable"


def test_a_result_of_gigabytes_is_refused() -> None:
    spec = ImageSpec(resize=Resize("shorter", (16000, 16000)))
    with pytest.raises(InputError, match="would become"):
        spec.apply(np.zeros((2, 9, 3), np.uint8))
