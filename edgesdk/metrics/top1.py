"""Top-1 accuracy."""

from __future__ import annotations

from typing import ClassVar

from edgesdk.metrics._topk import TopK


class Top1(TopK):
    name: ClassVar[str] = "top1"
    title: ClassVar[str] = "top-1 accuracy"
    k: ClassVar[int] = 1


METRIC = Top1()
