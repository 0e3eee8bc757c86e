"""The OpenAPI document, read for people: operations in groups, each once with all of its paths.

In the document an operation is there for each of its paths. Its id is `name__method_path`, so the name puts them
together again. What is not read here is ignored: the document may have more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec


class Schema(msgspec.Struct):
    type: str = ""
    format: str = ""
    enum: list[str] = []
    minimum: int | float | None = None
    maximum: int | float | None = None


class Parameter(msgspec.Struct):
    name: str
    place: str = msgspec.field(name="in")
    required: bool = False
    description: str = ""
    schema: Schema = msgspec.field(default_factory=Schema)


class _BodySchema(msgspec.Struct):
    required: list[str] = []


class Media(msgspec.Struct):
    schema: _BodySchema = msgspec.field(default_factory=_BodySchema)


class Content(msgspec.Struct):
    """Of a request or an answer: what is described, by media type."""

    description: str = ""
    content: dict[str, Media] = {}


class _Method(msgspec.Struct, rename="camel"):
    operation_id: str
    summary: str = ""
    tags: list[str] = []
    parameters: list[Parameter] = []
    request_body: Content | None = None
    responses: dict[str, Content] = {}
    security: list[object] = []


class _Document(msgspec.Struct):
    paths: dict[str, dict[str, _Method]] = {}


@dataclass
class Described:
    """One operation. `paths` has the shortest one first, as it is shown and used for the example."""

    name: str
    tag: str
    method: str
    summary: str
    needs_token: bool
    body: Content | None
    answers: dict[str, Content]
    paths: list[str] = field(default_factory=list)
    parameters: dict[tuple[str, str], Parameter] = field(default_factory=dict)


def operations_of(document: Mapping[str, object]) -> dict[str, list[Described]]:
    """The operations by their tag, in the order of the document."""
    found: dict[str, Described] = {}
    for path, methods in msgspec.convert(document, _Document).paths.items():
        for method, given in methods.items():
            name = given.operation_id.partition("__")[0]
            described = found.get(name)
            if described is None:
                tag = given.tags[0] if given.tags else ""
                described = Described(
                    name, tag, method.upper(), given.summary, bool(given.security), given.request_body, given.responses
                )
                found[name] = described
            _add_path(described, path, given)
    groups: dict[str, list[Described]] = {}
    for described in found.values():
        groups.setdefault(described.tag, []).append(described)
    return groups


def _add_path(described: Described, path: str, given: _Method) -> None:
    """The parameters are those of the shortest path, and those that are in no path."""
    described.paths = sorted([*described.paths, path], key=len)
    if described.paths[0] == path:
        described.parameters = {(each.place, each.name): each for each in given.parameters}
