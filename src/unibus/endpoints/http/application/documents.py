"""The OpenAPI description of an operation, derived from its row in the table."""

import re
from collections.abc import Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final, TypedDict

from fastapi import Depends, params
from fastapi.security import APIKeyHeader
from starlette.responses import Response

from unibus.endpoints.http.operation import COMMON, Operation

_PARAMETER: Final = re.compile(r"{(\w+)}")
_PATH_SCHEMA: Final[dict[str, object]] = {"type": "string", "minLength": 1}
_PATH_SCHEMAS: Final[dict[str, dict[str, object]]] = {
    "token": {"type": "string", "format": "uuid"},
    "sequence": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
}
"""Schemas of the path parameters that are not any text."""

_ERROR: Final[dict[str, object]] = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["code", "message"],
                    "properties": {name: {"type": "string"} for name in ("code", "message", "details")},
                }
            },
        }
    },
    "application/xml": {"schema": {"type": "string"}},
}


_TOKEN: Final[params.Depends] = Depends(
    APIKeyHeader(
        name="Authorization",
        scheme_name="SharedAccessSignature",
        description="SharedAccessSignature sr=…&sig=…&se=…&skn=…",
        auto_error=False,
    )
)
"""Only documents that a token is needed. FastAPI does not check it: `runner` does."""


class Description(TypedDict):
    """Keyword arguments of FastAPI's `add_api_route`."""

    name: str
    operation_id: str
    summary: str
    tags: list[str | Enum]
    responses: dict[int | str, dict[str, object]]
    openapi_extra: dict[str, object]
    status_code: int
    response_class: type[Response]
    dependencies: Sequence[params.Depends]


def described(operation: Operation, path: str) -> Description:
    parameters: list[object] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS.get(name, _PATH_SCHEMA)}
        for name in _PARAMETER.findall(path)
    ]
    parameters += operation.parameters
    extra: dict[str, object] = {"parameters": parameters}
    if operation.request_schema:
        extra["requestBody"] = operation.request_schema
    family = path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace("$", "")
    return Description(
        name=operation.name,
        operation_id=f"{operation.name}__{operation.method.lower()}_{family}",
        summary=operation.summary,
        tags=[operation.tag],
        responses=_responses(operation),
        openapi_extra=extra,
        status_code=operation.statuses[0],
        response_class=Response,  # With FastAPI's default the document would declare every answer as JSON.
        dependencies=[] if operation.right is None else [_TOKEN],
    )


def _responses(operation: Operation) -> dict[int | str, dict[str, object]]:
    found: dict[int | str, dict[str, object]] = {}
    for status in operation.statuses:
        found[status] = {"description": HTTPStatus(status).phrase}
    for status in COMMON:
        found.setdefault(status, {"description": HTTPStatus(status).phrase, "content": _ERROR})
    if operation.response_schema:
        found[operation.statuses[0]]["content"] = operation.response_schema
    return found
