"""The trace of one message as records: for a client that draws its tree or prints its events.

A step of the tree is a text for an event; it refers to the event by its `seq`, so that each event is sent once.
"""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from unibus.bus.history.trace import MessageTrace, TracedCopy, TraceStep, trace_of
from unibus.core.lifecycle.events import Event
from unibus.errors import DecodeError, MessageNotFound, MessageTooLarge
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import OpenStoreView, find_message

EVENTS_MAX: Final = 20_000
"""An id with more events does not identify one message; a query over `events` shows them page by page."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StepRecord(msgspec.Struct, frozen=True):
    seq: int
    text: str


class CopyRecord(msgspec.Struct, frozen=True):
    """The message in one entity, as TracedCopy. `declined` lists subscriptions that got no copy, with the reason."""

    channel: str
    sequence: int
    outcome: str
    reason: str
    steps: list[StepRecord]
    children: "list[CopyRecord]"
    declined: list[tuple[str, str]]


class TraceRecord(msgspec.Struct, frozen=True):
    """As MessageTrace: the events in their order, and the tree of its copies."""

    message_id: str
    status: str
    events: list[Event]
    roots: list[CopyRecord]


def trace(store: Store, message_id: str) -> TraceRecord:
    """MessageNotFound if history has no event of the message. It reads from disk: do not call it on an event loop."""
    events = store.history.events_of(message_id)
    if len(events) > EVENTS_MAX:
        what = f"history has {len(events)} events of {message_id!r:.80}, more than {EVENTS_MAX}"
        raise MessageTooLarge(what, "query `events` by message_id, page by page")
    view = OpenStoreView(store)
    entities = view.entities()
    found = trace_of(message_id, events, partial(find_message, view), lambda: entities)
    if not found:
        raise not_traced(message_id)
    return TraceRecord(found.message_id, found.status, found.events, [_record(root) for root in found.roots])


def not_traced(message_id: str) -> MessageNotFound:
    return MessageNotFound(
        f"history has no event of a message {message_id!r}",
        "check the id: `unibus tail '*'` shows ids; history is kept for 7 days unless the store is set otherwise",
    )


def _record(copy: TracedCopy) -> CopyRecord:
    return CopyRecord(
        copy.channel,
        int(copy.sequence),
        copy.outcome,
        copy.reason,
        [StepRecord(step.event.seq, step.text) for step in copy.steps],
        [_record(child) for child in copy.children],
        list(copy.declined),
    )


def trace_of_record(record: TraceRecord) -> MessageTrace:
    """For clients: the trace as `trace_message` returns it."""
    events = {event.seq: event for event in record.events}
    try:
        roots = [_copy(root, events) for root in record.roots]
    except KeyError as error:
        raise DecodeError(
            f"the trace has no event {error}", "use the same version of unibus on server and client"
        ) from error
    return MessageTrace(record.message_id, record.events, roots)


def _copy(record: CopyRecord, events: dict[int, Event]) -> TracedCopy:
    steps = [_step(step, events[step.seq]) for step in record.steps]
    children = [_copy(child, events) for child in record.children]
    return TracedCopy(
        record.channel, record.sequence, steps, children, record.outcome, record.reason, list(record.declined)
    )


def _step(step: StepRecord, event: Event) -> TraceStep:
    return TraceStep(_EPOCH + timedelta(microseconds=event.ts), event.kind, step.text, event)
