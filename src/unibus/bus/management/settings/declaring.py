"""Entities as a file declares them, in a store that is open: the plan as records, and the plan carried out.

Nothing is deleted, and nothing is done where anything conflicts. All of it waits for the store: not for an event loop.
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
    """`text` is a file of entities: our own form, or the Config.json of Microsoft's emulator."""

    text: Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
    dry_run: bool = False


class DeclaredEntity(msgspec.Struct, frozen=True):
    """What is done to one entity. `settings` are those that it gets, `before` their values until then; without keys."""

    action: Literal["create", "update", "same"]
    name: str
    kind: str
    settings: dict[str, Any]
    before: dict[str, Any]


class DeclaredPlan(msgspec.Struct, frozen=True):
    """`conflicts` are only in the plan of a dry run: else they are the error EntityExists, and nothing is done."""

    steps: list[DeclaredEntity]
    conflicts: list[str]


def declare(store: Store, request: DeclareRequest) -> DeclaredPlan:
    """ConfigInvalid for a text that is no such file, EntityExists for conflicts: nothing is done then."""
    plan = planned(store.entities().wait(), wanted_entities(request.text))
    if not request.dry_run:
        declare_entities(store, plan)
    return plan_record(plan)


def plan_record(plan: DeclarePlan) -> DeclaredPlan:
    return DeclaredPlan(
        msgspec.convert([step.as_record() for step in plan.steps], list[DeclaredEntity]), plan.conflicts
    )


def delete(store: Store, name: str) -> None:
    """With its subscriptions, its dead-lettered messages and all others. EntityNotFound if there is none."""
    store.apply([Drop(name)]).wait()


def declare_file(bus: BusOperations, path: str | Path) -> DeclarePlan:
    """Create and change the entities of a bus as a file says. EntityExists, before anything is done, for conflicts."""
    store = bus._runtime.queues().store
    plan = planned(store.entities().wait(), read_entity_file(path))
    declare_entities(store, plan)
    return plan
