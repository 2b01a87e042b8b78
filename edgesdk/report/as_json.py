"""JSON: the documents themselves, indented; one is an object, several are a list."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgesdk.report._base import Document, Format


class Json(Format):
    name = "json"

    def text(self, documents: Sequence[Document]) -> str:
        found = documents[0] if len(documents) == 1 else list(documents)
        return json.dumps(strict(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """The value with null for NaN and infinity, which JSON has no words for and other languages' readers refuse."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


FORMAT = Json()
