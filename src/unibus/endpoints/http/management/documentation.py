"""The OpenAPI description of the management API: parameters and schemas that several operations share."""

from typing import Final

Schema = dict[str, object]

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
FLAG: Final[Schema] = {"type": "string", "enum": ["0", "1"]}


def query(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def number(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def answered(required: str, **properties: Schema) -> Schema:
    """An answer that is a JSON object."""
    schema = {"type": "object", "required": required.split(), "properties": dict(properties)}
    return {"application/json": {"schema": schema}}


LIVE_ANSWER: Final[Schema] = {"text/event-stream": {"schema": TEXT}}
