"""Annotations as text (PEP 563), with classes of a module and of a running function."""

from __future__ import annotations

from typing import Any

import attrs
import pydantic
import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import HandlerInvalid


class Order(pydantic.BaseModel):
    id: int


def test_classes_of_a_module(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    def handler(order: Order) -> None:
        seen.append(order)

    sync_bus.subscribe("c", handler, dispatch="inline")
    sync_bus.publish("c", {"id": 1})
    assert seen == [Order(id=1)]


def test_classes_of_a_running_function(sync_bus: SyncMessageBus) -> None:
    seen: list[Any] = []

    class Local(pydantic.BaseModel):
        id: int

    @attrs.define
    class Piece:
        id: int = attrs.field(converter=int)

    def handler(order: Local) -> None:
        seen.append(order)

    class Service:
        def __call__(self, piece: Piece) -> None:
            seen.append(piece)

    sync_bus.subscribe("c", handler, dispatch="inline")
    sync_bus.subscribe("c", Service(), dispatch="inline")
    sync_bus.publish("c", {"id": "1"})
    assert seen == [Local(id=1), Piece(1)]


def test_a_class_of_a_function_that_has_returned_is_refused(sync_bus: SyncMessageBus) -> None:
    def make() -> Any:
        class Gone(pydantic.BaseModel):
            id: int

        def handler(order: Gone) -> None: ...

        return handler

    with pytest.raises(HandlerInvalid, match="Gone"):
        sync_bus.subscribe("c", make())
