"""The JSON Schema of the verdict, derived from the type that is encoded."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model.verdict import Verdict

SCHEMA_FILE = "verdict.schema.json"
"""Beside this module; a test keeps it equal to what ``verdict_schema`` returns."""


def verdict_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of ``hangscope-verdict/1``. Every field that exists is always written, so all are
    required; unknown fields are allowed, since later versions may add some."""
    schema: dict[str, Any] = msgspec.json.schema(Verdict)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "hangscope-verdict/1"
    for definition in schema["$defs"].values():
        if definition.get("type") == "object":
            definition["required"] = list(definition["properties"])
    root = schema["$defs"]["Verdict"]
    root["properties"]["format"] = {"const": "hangscope-verdict/1"}
    root["properties"]["saved"] = {
        "type": "string",
        "description": "where `capture` wrote the bundle; absent from `analyze`",
    }
    return schema
