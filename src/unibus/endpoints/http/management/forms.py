"""Requests and answers of this package as records: decoded into them, and documented by their schemas.

A record (`bus/management`) defines three things at once: what a server accepts, what the OpenAPI document says, and
what a client encodes. Unknown fields are rejected, and every error names its field.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from unibus.endpoints.http.address import decoded
from unibus.endpoints.http.messages.query_values import whole_number
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.routing import MANAGEMENT_PREFIX
from unibus.errors import UsageError

T = TypeVar("T")
Schema = dict[str, object]

INLINE_BYTES: Final = 256 * 1024
"""A larger body is decoded in a thread, so that it does not block the loop."""

TEXT: Final[Schema] = {"type": "string"}
SEQUENCE: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}


# Reading


async def body_as(request: Request, decode: Callable[[bytes], T]) -> T:
    """The body as a record; DecodeError names the invalid field."""
    if len(request.body) <= INLINE_BYTES:
        return request.json_as(decode)
    return await asyncio.to_thread(request.json_as, decode)


def number_of(request: Request, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number of the query; UsageError if it is not one, or out of range."""
    text = request.query.get(name)
    if text is None:
        return default
    number = whole_number(name, text)
    if not least <= number <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}, got {number}")
    return number


def flag_of(request: Request, name: str) -> bool:
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, got {text!r:.40}")
    return text == "true"


def required(request: Request, name: str) -> str:
    text = request.query.get(name, "")
    if not text:
        raise UsageError(f"the query parameter {name} is missing", f"add ?{name}=…")
    return text


def values_of(request: Request, name: str) -> list[str]:
    """All values of a query parameter that may be repeated."""
    raw = request.scope.get("query_string", b"")
    assert isinstance(raw, bytes)
    pairs = [pair.partition(b"=") for pair in raw.split(b"&")]
    return [decoded(value, plus=True) for key, _, value in pairs if decoded(key, plus=True).casefold() == name]


def entity_of(request: Request) -> str:
    """The entity of the operation. The runner has checked the right on it (`names_entity`)."""
    if not request.entity:
        raise UsageError(
            "the query parameter entity is missing", "add ?entity= with the name of a queue, topic or subscription"
        )
    return request.entity


# Describing


def schema_of(record: object) -> Schema:
    """The schema of a msgspec type without references: a schema inside OpenAPI has no definitions of its own."""
    (schema,), parts = msgspec.json.schema_components([record])
    found = _inlined(schema, parts)
    assert isinstance(found, dict)
    return found


def _inlined(schema: object, parts: Mapping[str, object]) -> object:
    if isinstance(schema, list):
        return [_inlined(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return inspect.cleandoc(schema) if isinstance(schema, str) and "\n" in schema else schema
    if "$ref" in schema:
        return _inlined(parts[str(schema["$ref"]).rpartition("/")[2]], parts)
    return {name: _inlined(value, parts) for name, value in schema.items()}


def body_of(record: object, is_required: bool = True) -> Schema:
    return {"required": is_required, "content": answer_of(record)}


def answer_of(record: object) -> Schema:
    return {"application/json": {"schema": schema_of(record)}}


def parameter(name: str, description: str, schema: Schema, is_required: bool = False) -> Schema:
    return {"name": name, "in": "query", "required": is_required, "description": description, "schema": schema}


def whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


ENTITY: Final = parameter("entity", "The name of the entity.", {"type": "string", "minLength": 1}, True)


def at(tail: str) -> str:
    """The full path of an operation, which is also its shape."""
    return f"{MANAGEMENT_PREFIX}{tail}"
