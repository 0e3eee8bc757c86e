"""Imports and outboxes over the API: each step once, as on a file that this process owns."""

import asyncio
import base64
import io
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.history.export import Exporting
from unibus.bus.history.export_lines import EntityLine, MessageLine, SessionLine, checked_contents, encode_line
from unibus.bus.history.import_ import Importing
from unibus.bus.outbox.outbox import OutboxRow, packed
from unibus.bus.outbox.relay import NAME_POSITION, Relay
from unibus.bus.outbox.relay_route import Relayed, StoreRelay
from unibus.bus.outbox.sqlite import SqliteOutbox, SqliteTable
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.errors import DecodeError, EntityExists, EntityNotFound, PositionMoved, SessionLocked, UsageError
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store_view import OpenStoreView

NAME = "import/" + "0" * 64
T = TypeVar("T")


class Refused(Exception):
    """An answer that is an error."""


ERRORS = {error("x").code: error for error in (PositionMoved, EntityExists, SessionLocked, DecodeError)}


class Remote:
    """A target of imports and relays over HTTP, in a thread beside the loop of the server: as a client has it."""

    def __init__(self, api: Api, loop: asyncio.AbstractEventLoop) -> None:
        self._api = api
        self._loop = loop
        self.stop_after = 10**9

    def _call(self, method: str, target: str, body: object = None) -> Any:
        raw = b"" if body is None else msgspec.json.encode(body)
        calling = self._api.client(method, f"/unibus/v1/{target}", raw)
        answer = asyncio.run_coroutine_threadsafe(calling, self._loop).result(30)
        if answer.status != 200:
            raise ERRORS.get(answer.code(), Refused)(answer.body.decode())
        self.stop_after -= 1
        if not self.stop_after:
            raise KeyboardInterrupt
        return answer.json()

    def position(self, name: str) -> int:
        return int(self._call("GET", f"position?name={name}")["position"])

    def declare(self, lines: list[EntityLine]) -> None:
        self._piece("", "entities", 0, lines)

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        self._piece(name, "messages", before, lines)

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        return not self._piece(name, "state", before, [line])["is_kept"]

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        self._piece(name, "end", before, lines)

    def _piece(self, name: str, phase: str, before: int, lines: Any) -> Any:
        raw = [msgspec.Raw(encode_line(line)) for line in lines]
        return self._call("POST", f"import?name={name or NAME}", {"phase": phase, "before": before, "lines": raw})

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        given: dict[str, object] = {"source": name.removeprefix("outbox/"), "before": before, "to": to}
        if row is not None:
            given |= {"batch": base64.b64encode(row.batch).decode(), "crc": row.crc}
        return resolved(self._call("POST", "relay", given)["results"])


async def beside(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


@pytest.fixture
def exported(tmp_path: Path) -> bytes:
    """A queue with messages in several states, a topic, a disabled queue, sessions."""
    with SyncMessageBus("memory://") as bus:
        bus.create_queue("orders", max_delivery_count=3)
        bus.create_queue("sessions", requires_session=True)
        bus.create_queue("off")
        bus.create_topic("news")
        bus.create_subscription("news", "all")
        for at in range(20):
            bus.send("orders", {"n": at}, headers={"h": b"\xff"})
            bus.send("news", at)
        bus.send("orders", "later", delay=3600)
        bus.send("off", 1)
        bus.send("sessions", 1, session_id="s1")
        with bus.accept_session("sessions", "s1") as session:
            session.set_state(b"state")
        bus.entities.update("off", status="disabled")
        next(iter(bus.receive("orders", timeout=0))).dead_letter("why")
        lines: list[bytes] = []
        Exporting(OpenStoreView(bus._runtime.queues().store), lines.append, lambda done, total: None).run()
    return b"".join(lines)


def importing(target: Remote, file: bytes) -> Importing:
    return Importing(target, checked_contents(io.BytesIO(file)), lambda done, total: None, batch=3)


async def counts(api: Api) -> dict[str, tuple[int, int, int]]:
    return {info.name: (info.active, info.scheduled, info.dead) for info in await api.bus.entities()}


WHOLE = {
    "news": (0, 0, 0),
    "news/Subscriptions/all": (20, 0, 0),
    "off": (1, 0, 0),
    "orders": (19, 1, 1),
    "orders/$DeadLetterQueue": (1, 0, 0),
    "q": (0, 0, 0),
    "sessions": (1, 0, 0),
}


async def test_an_import_through_the_server_brings_all_of_it(api: Api, exported: bytes) -> None:
    remote = Remote(api, asyncio.get_running_loop())
    run = await beside(lambda: importing(remote, exported))
    await beside(lambda: run.run(io.BytesIO(exported)))
    assert (await counts(api), run.kept_states) == (WHOLE, [])
    assert (await api.broker.entity("off")).settings["status"] == "disabled"
    lock = await api.broker.accept_session("sessions", "s1")
    assert await api.broker.session_state(lock) == b"state"
    again = await beside(lambda: importing(remote, exported))
    assert again.is_complete


@pytest.mark.parametrize("stop_after", range(1, 22))
async def test_a_client_that_is_killed_goes_on_and_each_message_is_there_once(
    api: Api, exported: bytes, stop_after: int
) -> None:
    """After any number of answers, the last of which it has not seen."""
    remote = Remote(api, asyncio.get_running_loop())

    def killed() -> None:
        remote.stop_after = stop_after
        try:
            importing(remote, exported).run(io.BytesIO(exported))
        except KeyboardInterrupt:
            pass
        remote.stop_after = 10**9

    await beside(killed)
    await beside(lambda: importing(remote, exported).run(io.BytesIO(exported)))
    assert await counts(api) == WHOLE


async def test_a_client_that_is_behind_another_is_refused(api: Api, exported: bytes) -> None:
    remote = Remote(api, asyncio.get_running_loop())
    slow = await beside(lambda: importing(remote, exported))
    await beside(lambda: importing(remote, exported).run(io.BytesIO(exported)))
    with pytest.raises(PositionMoved):
        await beside(lambda: slow.run(io.BytesIO(exported)))
    assert await counts(api) == WHOLE


async def test_entities_that_differ_are_named_and_nothing_is_created(api: Api, exported: bytes) -> None:
    await api.broker.create("queue", "orders", {"max_delivery_count": 9})
    remote = Remote(api, asyncio.get_running_loop())
    with pytest.raises(EntityExists, match="max_delivery_count"):
        await beside(lambda: importing(remote, exported).run(io.BytesIO(exported)))
    assert sorted(await counts(api)) == ["orders", "q"]


async def test_a_session_that_has_another_state_keeps_it(api: Api, exported: bytes) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True})
    lock = await api.broker.accept_session("sessions", "s1")
    await api.broker.set_session_state(lock, b"own")
    await api.broker.release_session(lock)
    remote = Remote(api, asyncio.get_running_loop())
    run = await beside(lambda: importing(remote, exported))
    await beside(lambda: run.run(io.BytesIO(exported)))
    assert run.kept_states == [("sessions", "s1")]
    assert await api.broker.session_state(await api.broker.accept_session("sessions", "s1")) == b"own"


async def test_a_session_that_is_locked_is_reported_at_once(api: Api) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True})
    await api.broker.accept_session("sessions", "s1")
    piece = {"phase": "state", "lines": [{"session": "sessions", "id": "s1", "state": "AAAA"}]}
    assert same_error(await api.error("POST", f"import?name={NAME}", piece), SessionLocked, 409)
    assert (await api.get(f"position?name={NAME}"))["position"] == 0


ENVELOPE: dict[str, object] = {"unibus": 1, "id": "a", "channel": "q", "timestamp_ns": 1, "body": 1}
LINE: dict[str, object] = {"message": "q", "state": "active", "sequence": 1, "priority": 50, "envelope": ENVELOPE}


async def test_a_piece_that_was_stored_is_not_stored_again(api: Api) -> None:
    piece = {"phase": "messages", "before": 0, "lines": [LINE, LINE]}
    assert (await api.post(f"import?name={NAME}", piece))["position"] == 2
    assert same_error(await api.error("POST", f"import?name={NAME}", piece), PositionMoved, 412)
    assert await api.counts("q") == (2, 0, 0, 0, 0)


async def test_positions_are_listed_and_deleted(api: Api) -> None:
    await api.post(f"import?name={NAME}", {"phase": "messages", "before": 0, "lines": [LINE, LINE]})
    assert await api.get("positions") == await api.get("positions?prefix=import") == {"positions": {NAME: 2}}
    assert await api.get("positions?prefix=outbox") == {"positions": {}}
    moved = await api.error("POST", "position/delete", {"name": NAME, "expected": 1})
    assert same_error(moved, PositionMoved, 412)
    assert (await api.error("POST", "position/delete", {"name": NAME}))[0] == 400
    assert (await api.error("POST", "position/delete", {"name": "$clock", "expected": 0}))[0] == 400
    assert await api.post("position/delete", {"name": NAME, "expected": 2}) == {"position": 0}
    assert await api.get("positions") == {"positions": {}}


@pytest.mark.parametrize(
    "piece",
    [
        *({}, {"phase": "messages"}, {"phase": "all", "lines": []}, {"phase": "messages", "lines": [], "before": -1}),
        *({"phase": "messages", "lines": [LINE], "before": 2**63}, {"phase": "messages", "lines": [LINE], "more": 1}),
        *({"phase": "messages", "lines": []}, {"phase": "messages", "lines": [LINE] * 1_001}),
        *({"phase": "state", "lines": []}, {"phase": "messages", "lines": [1]}, {"phase": "messages", "lines": [{}]}),
        {"phase": "entities", "lines": [LINE]},
        {"phase": "messages", "lines": [{**LINE, "priority": 256}]},
        {"phase": "messages", "lines": [{**LINE, "delivery_count": 2**63}]},
        {"phase": "messages", "lines": [{**LINE, "visible_ns": -1}]},
        {"phase": "messages", "lines": [{**LINE, "state": "gone"}]},
        {"phase": "messages", "lines": [{**LINE, "envelope": {"unibus": 1}}]},
        {"phase": "messages", "lines": [{**LINE, "overlay": {"a": {"$uuid": 1}}}]},
        {"phase": "messages", "lines": [LINE, {**LINE, "colour": "red"}]},
        {"phase": "state", "lines": [{"session": "q", "id": "s", "state": "*"}]},
        {"phase": "entities", "lines": [{"entity": "$namespace", "kind": "namespace", "settings": {}}]},
        {"phase": "entities", "lines": [{"entity": "x/$DeadLetterQueue", "kind": "dead-letter queue", "settings": {}}]},
        {"phase": "entities", "lines": [{"entity": "", "kind": "queue", "settings": {}}]},
        {"phase": "entities", "lines": [{"entity": "a\n", "kind": "queue", "settings": {}}]},
        {"phase": "entities", "lines": [{"entity": "a", "kind": "subscription", "settings": {}}]},
        {"phase": "entities", "lines": [{"entity": "a", "kind": "queue", "settings": {"x": 1}}]},
    ],
    ids=lambda piece: str(piece)[:70],
)
async def test_a_piece_that_cannot_be_read_is_refused_and_changes_nothing(api: Api, piece: object) -> None:
    assert (await api.error("POST", f"import?name={NAME}", piece))[0] == 400
    assert (await api.get(f"position?name={NAME}"))["position"] == 0
    assert await counts(api) == {"q": (0, 0, 0)}


@pytest.mark.parametrize("name", ["", "import/", "outbox/store", "import/%0a", "import/" + "x" * 300])
async def test_only_positions_of_imports_are_moved_by_imports(api: Api, name: str) -> None:
    piece = {"phase": "messages", "lines": [LINE]}
    assert same_error(await api.error("POST", f"import?name={name}", piece), UsageError, 400)


async def test_a_message_for_an_entity_that_is_missing(api: Api) -> None:
    piece = {"phase": "messages", "lines": [{**LINE, "message": "none"}]}
    assert same_error(await api.error("POST", f"import?name={NAME}", piece), EntityNotFound, 404)


# Outboxes


def sends(count: int) -> list[Send]:
    return [send_of(Message.new("q", {"n": at}), "q") for at in range(count)]


def relayed(data: bytes, before: int, to: int, **others: object) -> dict[str, object]:
    text = base64.b64encode(data).decode()
    return {"source": "s", "before": before, "to": to, "batch": text, "crc": zlib.crc32(data), **others}


async def test_a_row_is_stored_once(api: Api) -> None:
    row = relayed(packed(sends(2)), 0, 7)
    answer = await api.post("relay", row)
    assert (answer["position"], [each["sequence"] for each in answer["results"]]) == (7, [1, 2])
    assert same_error(await api.error("POST", "relay", row), PositionMoved, 412)
    assert (await api.get("position?name=outbox/s"))["position"] == 7
    assert [message.body for message in await api.bus.peek("q", 10)] == [{"n": 0}, {"n": 1}]


async def test_a_row_that_is_damaged_or_a_lie_is_refused_and_changes_nothing(api: Api) -> None:
    good = packed(sends(1))
    lie = sends(1)[0]
    lie.data = b"\x97\x10nothing"
    other = sends(1)[0]
    other.who = sends(1)[0].who
    unnamed = send_of(Message.new("q", 1), "a\nb")
    unnamed.creates = 1
    strange = sends(1)[0]
    strange.creates = 4
    bad = [
        relayed(good, 0, 7, crc=1),
        relayed(good, 0, 7, batch="***"),
        relayed(b"nothing", 0, 7),
        relayed(packed([lie]), 0, 7),
        relayed(packed([other]), 0, 7),
        relayed(packed([unnamed]), 0, 7),
        relayed(packed([strange]), 0, 7),
        relayed(good, 0, 7, source=""),
        relayed(good, 0, 7, source="a\n"),
        relayed(good, -1, 7),
        relayed(good, 0, 2**63),
        relayed(good, 0, 7, more=1),
    ]
    for row in bad:
        assert (await api.error("POST", "relay", row))[0] == 400, row
    assert (await api.get("position?name=outbox/s"))["position"] == 0
    assert await api.counts("q") == (0, 0, 0, 0, 0)


def wait_in_outbox(path: Path, store: str, transactions: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        outbox = SqliteOutbox(connection)
        for _ in range(transactions):
            outbox.begin()
            outbox.write(store, packed(sends(2)), lambda source: 0)
            outbox.commit()


async def test_an_outbox_of_another_machine_is_relayed_through_the_server(api: Api, tmp_path: Path) -> None:
    """The client reads the file with the code of a bus in process; each row is stored once, also by two clients."""
    path = tmp_path / "app.db"
    remote = Remote(api, asyncio.get_running_loop())

    def relay() -> Relayed:
        client = Relay(remote)
        try:
            if not path.exists():
                wait_in_outbox(path, client.store_name(), 3)
            return client.relay(str(path), lambda: SqliteTable(str(path))).wait(30)
        finally:
            client.close(30)

    first = await beside(relay)
    assert (first.batches, first.set_aside, first.elsewhere) == (3, 0, 0)
    again = await beside(relay)
    assert again.batches == 0
    assert (await api.counts("q"))[0] == 6
    number = (await api.get(f"position?name={NAME_POSITION}"))["position"]
    assert Relay(StoreRelay(api.broker.store)).store_name() == f"{number:016x}"
