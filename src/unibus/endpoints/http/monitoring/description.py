"""Parses the OpenAPI document for the page `/docs`: operations in groups, each once with all of its paths.

The document lists an operation once for each of its paths. Its id is `name__method_path`, so the name joins them. Parts
of the document that the page does not show are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


class ParameterSchema(msgspec.Struct):
    type: str = ""
    format: str = ""
    enum: list[str] = []
    minimum: int | float | None = None
    maximum: int | float | None = None


class OperationParameter(msgspec.Struct):
    name: str
    place: str = msgspec.field(name="in")
    required: bool = False
    description: str = ""
    schema: ParameterSchema = msgspec.field(default_factory=ParameterSchema)


class _BodySchema(msgspec.Struct):
    required: list[str] = []


class MediaType(msgspec.Struct):
    schema: _BodySchema = msgspec.field(default_factory=_BodySchema)


class BodyContent(msgspec.Struct):
    """The body of a request or an answer, by media type."""

    description: str = ""
    content: dict[str, MediaType] = {}


class _Method(msgspec.Struct, rename="camel"):
    operation_id: str
    summary: str = ""
    tags: list[str] = []
    parameters: list[OperationParameter] = []
    request_body: BodyContent | None = None
    responses: dict[str, BodyContent] = {}
    security: list[object] = []


class _Document(msgspec.Struct):
    paths: dict[str, dict[str, _Method]] = {}


@dataclass
class DescribedOperation:
    """One operation. The first of `paths` is the shortest, which is shown and used for the example."""

    name: str
    tag: str
    method: str
    summary: str
    needs_token: bool
    body: BodyContent | None
    answers: dict[str, BodyContent]
    paths: list[str] = field(default_factory=list)
    parameters: dict[tuple[str, str], OperationParameter] = field(default_factory=dict)


def operations_of(document: Mapping[str, object]) -> dict[str, list[DescribedOperation]]:
    """The operations by their tag, in the order of the document."""
    found: dict[str, DescribedOperation] = {}
    for path, methods in msgspec.convert(document, _Document).paths.items():
        for method, given in methods.items():
            name = given.operation_id.partition("__")[0]
            described = found.get(name)
            if described is None:
                tag = given.tags[0] if given.tags else ""
                described = DescribedOperation(
                    name, tag, method.upper(), given.summary, bool(given.security), given.request_body, given.responses
                )
                found[name] = described
            _add_path(described, path, given)
    groups: dict[str, list[DescribedOperation]] = {}
    for described in found.values():
        groups.setdefault(described.tag, []).append(described)
    return groups


def _add_path(described: DescribedOperation, path: str, given: _Method) -> None:
    """Add a path. The parameters are those of the shortest path, and those that are not in the path."""
    described.paths = sorted([*described.paths, path], key=len)
    if described.paths[0] == path:
        described.parameters = {(each.place, each.name): each for each in given.parameters}
