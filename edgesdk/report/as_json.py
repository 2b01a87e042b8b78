"""JSON: the documents themselves, with sorted keys left as they came."""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgesdk.report._base import Document, Format


class Json(Format):
    name = "json"

    def text(self, documents: Sequence[Document]) -> str:
        found = documents[0] if len(documents) == 1 else list(documents)
        return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


FORMAT = Json()
