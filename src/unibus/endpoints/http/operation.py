"""One operation of the HTTP endpoint as data: method, shape of its path, right, handler, statuses, documentation.

`application/operations.py` joins the tables of the sub-packages. Both dispatchers, the OpenAPI document, the
authorization matrix of the tests and the metrics are derived from that one table.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from unibus.core.access.rights import Right
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service

Handler: TypeAlias = Callable[[Service, Request], Awaitable[Response]]

COMMON: Final = (400, 401, 403, 404, 405, 413, 429, 500, 503)
"""Statuses that every operation may answer."""


@dataclass(frozen=True)
class Operation:
    """One row of the table.

    `right` None: no key needed. `has_body`: the body is read before the handler runs. `statuses`: those besides COMMON;
    the first is the usual one. `hot`: on the hot path. `in_document` False: not in the OpenAPI document.
    `names_entity`: the query parameter `entity` names the entity, on which the right is needed; without it the right is
    needed on the namespace. `for_own_scope`: the right is needed on the token's own scope, and the handler shows
    nothing outside of it. `media`: only for clients that accept this media type. `only_reads`: a POST that changes
    nothing, and is not audited."""

    name: str
    method: str
    shape: str
    right: Right | None
    handler: Handler
    summary: str
    documented: tuple[str, ...]
    statuses: tuple[int, ...] = (200,)
    has_body: bool = False
    hot: bool = False
    tag: str = "messages"
    parameters: tuple[dict[str, object], ...] = ()
    request_schema: dict[str, object] = field(default_factory=dict)
    response_schema: dict[str, object] = field(default_factory=dict)
    in_document: bool = True
    names_entity: bool = False
    only_reads: bool = False
    for_own_scope: bool = False
    media: str = ""


class OperationTable:
    """Operations by shape and method. Two operations with the same shape and method are a defect."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations = operations
        self._by_shape: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            methods = self._by_shape.setdefault(operation.shape, {})
            assert operation.method not in methods, f"{operation.method} {operation.shape} has two operations"
            methods[operation.method] = operation

    def find(self, shape: str, method: str) -> Operation | None:
        methods = self._by_shape.get(shape)
        return None if methods is None else methods.get(method)

    def methods(self, shape: str) -> list[str]:
        """The methods that every client may use at this shape; empty if no operation has it."""
        return sorted([name for name, each in self._by_shape.get(shape, {}).items() if not each.media])
