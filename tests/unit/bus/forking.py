"""`python -m tests.unit.bus.forking URL`: a process with open buses forks a child, which tries everything on them.

In a process of its own: one that runs tests has threads of others, and newer versions of Python warn about that. The
child writes what came of each operation, ends as any program does, and the parent shows that nothing has happened.
"""

import asyncio
import gc
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import unibus
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import BusError
from unibus.stores.opening import open_store
from unibus.sync import MessageBus

NOW = datetime.now(UTC)
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "accept_session": ("sessions", None, 0),
    "cancel_scheduled": ("q", 1),
    "complete_many": ([],),
    "create_channel": ("fresh",),
    "create_queue": ("fresh",),
    "create_subscription": ("topic", "fresh"),
    "create_topic": ("fresh",),
    "cursor": ("reader",),
    "dead_letters": ("news",),
    "delete_entity": ("q",),
    "delete_message": ("m1",),
    "execute_query": ("SELECT 1",),
    "missed_events": ("reader",),
    "move_cursor": ("reader", 1),
    "peek": ("q",),
    "pop": ("news",),
    "prune_before": (NOW,),
    "purge": ("q",),
    "publish": ("news", 1),
    "publish_from_sync": ("news", 1),
    "publish_json": ("news", 1),
    "publish_many": ("news", [1]),
    "query_messages": ("SELECT 1",),
    "queue_size": ("news",),
    "receive": ("q", 0),
    "receive_batch": ("q", 1, 0),
    "receive_deferred": ("q", [1]),
    "relay_outbox": (__file__,),
    "replay": ("news",),
    "request": ("news", 1),
    "schedule": ("q", 1, NOW),
    "send": ("q", 2),
    "send_many": ("q", [2]),
    "subscribe": ("news", print),
    "trace_message": ("m1",),
    "unsubscribe": (1,),
    "update_entity": ("q",),
    "with_idempotency": (1.0,),
    "with_persistence": ("memory://",),
}
QUIET = {"close", "degraded"}


def operations(bus: object) -> dict[str, Callable[[], object]]:
    """Every public one of them; `entities` is a property."""

    def operation(name: str) -> Callable[[], object]:
        def run() -> object:
            found = getattr(bus, name)
            return found(*ARGUMENTS.get(name, ())) if callable(found) else found

        return run

    names = [name for name in dir(bus) if not name.startswith("_") and name not in QUIET]
    return {f"{type(bus).__name__}.{name}": operation(name) for name in names}


def outcome(operation: Callable[[], object]) -> str:
    try:
        found = operation()
        if inspect.isawaitable(found):
            asyncio.run(awaited(found))
        return "returned"
    except BusError as error:
        return f"{type(error).__name__}: {error.what}"
    except BaseException as error:
        return repr(error)


async def awaited(found: object) -> None:
    await found  # type: ignore[misc]


class Parent:
    def __init__(self, url: str) -> None:
        self.heard: list[object] = []
        self.rang = threading.Event()
        self.bus = MessageBus(url)
        self.loop_bus = unibus.MessageBus()
        self.bus.create_queue("sessions", requires_session=True)
        self.subscription = self.bus.subscribe("news", self.hear)
        self.bus.send("q", 1)
        self.bus.send("q", 2)
        self.bus.send("sessions", 1, session_id="s")
        self.received = self.bus.receive_batch("q", 1, 0)[0]
        self.session = self.bus.accept_session("sessions", "s", 0)
        self.dead = self.bus.dead_letter_queue()
        self.memory = open_store("memory://", SYSTEM_CLOCK, ThreadTimers(SYSTEM_CLOCK, print))
        # Results that are not read yet: one is in progress, one is already decided.
        self.late = self.bus._runtime.queues().send("q", 3, {})

    def hear(self, body: object) -> None:
        self.heard.append(body)
        self.rang.set()

    def held(self) -> dict[str, Callable[[], object]]:
        """What a program may have in its hands when it forks."""
        return {
            "received.complete": self.received.complete,
            "received.abandon": self.received.abandon,
            "received.renew_lock": self.received.renew_lock,
            "received.__enter__": self.received.__enter__,
            "session.receive_batch": lambda: self.session.receive_batch(1, 0),
            "session.state": self.session.state,
            "session.close": self.session.close,
            "subscription.cancel": self.subscription.cancel,
            "dead.list_messages": self.dead.list_messages,
            "late.wait": self.late.wait,
            "bus.__enter__": self.bus.__enter__,
            "store.entities": self.memory.entities,
            "store.health": self.memory.health,
            "store.cursor": lambda: self.memory.history.cursor("reader"),
        }

    def child(self) -> dict[str, str]:
        told = {
            name: outcome(operation)
            for group in (operations(self.bus), operations(self.loop_bus), self.held())
            for name, operation in group.items()
        }
        told["close"] = outcome(self.bus.close)
        told["close again"] = outcome(self.bus.close)
        told["close on a loop"] = outcome(self.loop_bus.close)
        told["close a store"] = outcome(self.memory.close)
        told["after its close"] = outcome(self.memory.entities)
        return told

    def goes_on(self) -> list[object]:
        """What the parent still has and does."""
        self.late.wait()
        self.received.complete()
        self.session.close()
        self.bus.publish("news", "after")
        assert self.rang.wait(30)
        self.bus.send("q", 4)
        return [[message.body for message in self.bus.peek("q", 10)], self.heard]


def use(url: str) -> None:
    bus = MessageBus(url)
    bus.send("mine", 1)
    if url == "memory://":
        bus.delete_entity("mine")  # A bus in memory reports what is lost with it.


def main(url: str, own_url: str) -> None:
    parent = Parent(url)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = parent.child()
        told["another bus"] = outcome(lambda: use(own_url))
        told["the same bus"] = outcome(lambda: MessageBus(url))
        os.write(writing, json.dumps(told).encode())
        del parent
        gc.collect()
        return  # And so to the end of the program, with all that is done there.
    os.close(writing)
    with open(reading, "rb") as answers:
        told = json.loads(answers.read())
    _, status = os.waitpid(pid, 0)
    found = parent.goes_on()
    for name in ("q", "sessions") if url == "memory://" else ():
        parent.bus.delete_entity(name)  # A bus in memory reports what is lost when it closes.
    parent.bus.close()
    sys.stdout.write(json.dumps({"pid": os.getpid(), "told": told, "status": status, "parent": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
