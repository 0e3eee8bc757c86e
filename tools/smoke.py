"""A short program on an installed, compiled unibus: `make pythons` runs it on each Python of the machine.

It uses each compiled part once: publish and subscribe, an async bus, send and receive on SQLite, filters and rules, a
query. Anything unexpected raises. The last line names the versions that worked together.
"""

import asyncio
import importlib.metadata
import platform
import tempfile
from pathlib import Path

import apsw
import msgspec

import unibus
from unibus.core import COMPILED
from unibus.core.filters.filters import SqlFilter
from unibus.sync import MessageBus as SyncMessageBus


def check(found: object, expected: object) -> None:
    if found != expected:
        raise SystemExit(f"error: found {found!r} where {expected!r} was expected")


def publish_and_subscribe() -> None:
    got: list[object] = []
    with SyncMessageBus() as bus:
        bus.subscribe("orders.*", lambda message: got.append(message.body), match="wildcard")
        bus.subscribe("prices", lambda body, message: body * 2)
        bus.publish("orders.new", {"id": 1}, priority=unibus.Priority.HIGH)
        check(bus.request("prices", 21), 42)
        bus.drain()
    check(got, [{"id": 1}])


async def publish_on_a_loop() -> None:
    got: list[object] = []

    async def handle(message: unibus.Message) -> None:
        got.append(message.body)

    async with unibus.MessageBus() as bus:
        bus.subscribe("orders", handle)
        await bus.publish("orders", "from a loop")
    check(got, ["from a loop"])


def send_and_receive(url: str) -> None:
    with SyncMessageBus(url) as bus:
        bus.send_many("routed_messages", [{"id": 1}, {"id": 2}], headers={"color": "red"})
    with SyncMessageBus(url) as bus:  # The second bus reads what the first one wrote.
        first = next(iter(bus.receive("routed_messages", timeout=0)))
        check((first.body, first.delivery_count), ({"id": 1}, 1))
        first.complete()
        check([message.body for message in bus.peek("routed_messages", 10)], [{"id": 2}])


def filter_by_rules(url: str) -> None:
    with SyncMessageBus(url) as bus:
        bus.entities.create_topic("news")
        bus.entities.create_subscription("news", "red", rules=[unibus.Rule("color", SqlFilter("color = 'red'"))])
        for color in ("red", "blue"):
            bus.send("news", color, headers={"color": color})
        check([message.body for message in bus.peek("news/Subscriptions/red", 10)], ["red"])


def query(url: str) -> None:
    with SyncMessageBus(url) as bus:
        rows = bus.query_messages(
            "SELECT channel, status FROM messages WHERE channel = ? ORDER BY id", ["routed_messages"]
        )
        check(
            sorted(row.as_tuple() for row in rows), [("routed_messages", "delivered"), ("routed_messages", "pending")]
        )


def main() -> None:
    check(COMPILED, True)
    publish_and_subscribe()
    asyncio.run(publish_on_a_loop())
    with tempfile.TemporaryDirectory(prefix="unibus-smoke-") as folder:
        url = f"sqlite:///{Path(folder, 'bus.db').as_posix()}"
        send_and_receive(url)
        filter_by_rules(url)
        query(url)
    print(
        f"unibus {importlib.metadata.version('unibus')} (compiled), Python {platform.python_version()}, "
        f"apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()}, msgspec {msgspec.__version__}"
    )


if __name__ == "__main__":
    main()
