"""Applies a declaration file to an open store: the plan as records, and its application.

Nothing is deleted, and nothing is changed if there is a conflict. All functions block on the store: do not call them
on an event loop.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from unibus.bus.api.bus_operations import BusOperations
from unibus.bus.entities.file import DeclarePlan, declare_entities, planned, read_entity_file
from unibus.bus.entities.shapes import wanted_entities
from unibus.core.lifecycle.commands import Drop
from unibus.stores.seam.store import Store

TEXT_CHARS_MAX = 16 * 1024 * 1024


class DeclareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`text` is a declaration file: our own format, or the Config.json of Microsoft's emulator."""

    text: Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
    dry_run: bool = False


class DeclaredEntity(msgspec.Struct, frozen=True):
    """The change of one entity: `settings` are the new values, `before` the previous ones, without secrets."""

    action: Literal["create", "update", "same"]
    name: str
    kind: str
    settings: dict[str, Any]
    before: dict[str, Any]


class DeclaredPlan(msgspec.Struct, frozen=True):
    """`conflicts` are listed by a dry run only: otherwise they raise EntityExists, and nothing is changed."""

    steps: list[DeclaredEntity]
    conflicts: list[str]


def declare(store: Store, request: DeclareRequest) -> DeclaredPlan:
    """ConfigInvalid for a text that is not a declaration file, EntityExists for conflicts: nothing is changed then."""
    # A dry run makes the same plan by the same code, and stops here.
    plan = planned(store.entities().wait(), wanted_entities(request.text))
    if not request.dry_run:
        declare_entities(store, plan)
    return plan_record(plan)


def plan_record(plan: DeclarePlan) -> DeclaredPlan:
    return DeclaredPlan(
        msgspec.convert([step.as_record() for step in plan.steps], list[DeclaredEntity]), plan.conflicts
    )


def delete(store: Store, name: str) -> None:
    """Delete an entity with its subscriptions and all messages, dead-lettered ones too. EntityNotFound if unknown."""
    store.apply([Drop(name)]).wait()


def declare_file(bus: BusOperations, path: str | Path) -> DeclarePlan:
    """Create and change entities by a declaration file. EntityExists for conflicts: nothing is changed then."""
    store = bus._runtime.queues().store
    plan = planned(store.entities().wait(), read_entity_file(path))
    declare_entities(store, plan)
    return plan
