"""Top-5 accuracy."""

from __future__ import annotations

from typing import ClassVar

from edgesdk.metrics._topk import TopK


class Top5(TopK):
    name: ClassVar[str] = "top5"
    title: ClassVar[str] = "top-5 accuracy"
    k: ClassVar[int] = 5


METRIC = Top5()
