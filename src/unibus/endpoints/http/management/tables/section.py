"""Rows of the management API's tables: what all operations of one section have in common is written once.

Every path is fixed, below `/unibus/v1/`, so it is both the shape and the documented path. An operation needs the right
Manage unless its row says otherwise, and reads a body if its row has a request schema.
"""

from typing import TypedDict, Unpack

from unibus.core.access.rights import Right
from unibus.endpoints.http.management.forms import Schema, at
from unibus.endpoints.http.operation import Handler, Operation


class RowOptions(TypedDict, total=False):
    """The fields of an `Operation` that only some rows have."""

    right: Right
    statuses: tuple[int, ...]
    parameters: tuple[Schema, ...]
    request_schema: Schema
    names_entity: bool
    for_own_scope: bool
    only_reads: bool


class Section:
    """Makes the rows of one section, which is a heading of the OpenAPI document."""

    def __init__(self, name: str) -> None:
        self._tag = f"management: {name}"

    def get(
        self, name: str, path: str, handler: Handler, summary: str, answer: Schema, **options: Unpack[RowOptions]
    ) -> Operation:
        return self._row(name, f"GET {path}", handler, summary, answer, options)

    def post(
        self, name: str, path: str, handler: Handler, summary: str, answer: Schema, **options: Unpack[RowOptions]
    ) -> Operation:
        return self._row(name, f"POST {path}", handler, summary, answer, options)

    def _row(
        self, name: str, address: str, handler: Handler, summary: str, answer: Schema, options: RowOptions
    ) -> Operation:
        method, _, path = address.partition(" ")
        given: RowOptions = {"right": Right.MANAGE, **options}
        return Operation(
            name=name,
            method=method,
            shape=at(path),
            handler=handler,
            summary=summary,
            documented=(at(path),),
            has_body="request_schema" in options,
            tag=self._tag,
            response_schema=answer,
            **given,
        )
