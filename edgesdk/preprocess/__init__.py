"""From a picture or a sound to the model's input, and from the model's output to an answer.

    spec = PreprocessSpec.from_options(image=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    tensor = spec.apply("cat.jpg")                      # float32 [1, 3, 224, 224]
    answer = Postprocess(kind="classify").apply({"output": logits}, labels=labels)

The specs are data: :meth:`PreprocessSpec.to_json` is what the bundle's manifest holds, and Java and Swift follow it to
the same integers. The modules say how: ``_image`` (order of the steps and the JSON form), ``_pixels`` (decoding, alpha,
grey), ``_geometry`` (sizes), ``_resample`` (the fixed-point convolution).
"""

from __future__ import annotations

from edgesdk.preprocess._audio import AudioSpec
from edgesdk.preprocess._image import Crop, ImageSpec, Resize
from edgesdk.preprocess._spec import PreprocessSpec
from edgesdk.preprocess.postprocess import Box, Label, Postprocess

__all__ = ["AudioSpec", "Box", "Crop", "ImageSpec", "Label", "Postprocess", "PreprocessSpec", "Resize"]
