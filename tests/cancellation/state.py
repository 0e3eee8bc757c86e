"""What a bus holds, in a form that can be compared: after a call, after a cancelled call, after opening it again."""

from typing import Any

from unibus.bus.api.message_bus import MessageBus
from unibus.core.codec.codec import decode
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.store_view import OpenStoreView, all_messages

Held = tuple[str, object, str, int]
"""Entity, body, state and delivery count of one message."""


def store_of(bus: MessageBus) -> Any:
    store = bus._runtime.queues().store
    assert isinstance(store, EmbeddedStore)
    return store


def held(bus: MessageBus) -> list[Held]:
    """Every message of the store."""
    entries = list(all_messages(OpenStoreView(store_of(bus))))
    bodies = store_of(bus).read_bodies([entry.key for entry in entries]).wait()
    return sorted(
        (
            (
                entry.entity,
                decode(bodies[entry.key]).body,
                STATE_NAMES[entry.state],
                int(entry.delivery_count),
            )
            for entry in entries
        ),
        key=str,
    )


def state_of(bus: MessageBus) -> tuple[list[Held], list[str], list[str]]:
    """Its messages, its entities with their settings, its sessions, and what waits in channels of memory."""
    store = store_of(bus)
    entities = [f"{info.name} {sorted(info.settings.items(), key=str)}" for info in store.entities().wait()]
    sessions = [
        f"{entity.name} {session.id} {session.token is not None} {session.state!r}"
        for entity in store._state.entities.values()
        for session in entity.sessions.values()
    ]
    waiting = [
        f"{name}: {[message.body for message in queue_of(channel)]}"
        for name, channel in sorted(bus._runtime.exchange.channels.items())
        if queue_of(channel)
    ]
    return held(bus), entities, sessions + waiting


def queue_of(channel: Any) -> list[Any]:
    """What a channel of memory keeps; looked at without taking it."""
    kept = channel.kept.drain()
    channel.keep(kept)
    return list(kept)


def bodies(messages: list[Held]) -> list[str]:
    return sorted(str(body) for _, body, _, _ in messages)
