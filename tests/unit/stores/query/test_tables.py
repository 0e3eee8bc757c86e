"""What the tables show, in memory and from disk, and that they read no more than a query asks for."""

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.stores.query.conftest import Asked
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.payload import Payload, SerializationFormat
from unibus.core.lifecycle.events import Event
from unibus.errors import QueryInvalid
from unibus.stores.query import query
from unibus.stores.query.table_source import LOOKUPS_MAX, PAGE_BODIES, PAGE_EVENTS
from unibus.stores.query.tables import DEAD_LETTERS, EVENTS, MESSAGES, OUTGOING, TABLES
from unibus.stores.seam.message_record import MessageKey, MessageRecord
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_view import OpenStoreView


def dead_letter(bus: SyncMessageBus, queue: str, reason: str, description: str = "") -> None:
    bus.receive_batch(queue, 1, timeout=0)[0].dead_letter(reason, description)


# messages


def test_every_column_of_a_message(bus: SyncMessageBus, ask: Asked) -> None:
    sent = bus.send(
        "orders",
        {"id": 1, "who": "Zoë"},
        type="order",
        source="shop",
        target="bill",
        priority=7,
        correlation_id="c1",
        routing_key="a.b",
        ttl=60,
        session_id="s1",
        trace_id="t1",
        subject="new",
        tx_id="tx1",
    )
    (row,) = bus.query_messages("SELECT * FROM messages").dicts()
    assert tuple(row) == tuple(MESSAGES)
    times = {name: datetime.fromisoformat(str(row.pop(name))) for name in ("timestamp", "enqueued_at", "expires_at")}
    assert row == {
        "id": sent.id,
        "type": "order",
        "source": "shop",
        "target": "bill",
        "payload": '{"id":1,"who":"Zoë"}',
        "priority": 7,
        "correlation_id": "c1",
        "routing_key": "a.b",
        "ttl": 60.0,
        "transaction_id": "tx1",
        "local_sequence": 1,
        "status": "pending",
        "channel": "orders",
        "state": "active",
        "delivery_count": 0,
        "size": row["size"],
        "session_id": "s1",
        "trace_id": "t1",
        "consumer": None,
        "subject": "new",
        "locked_until": None,
    }
    assert isinstance(row["size"], int)
    assert row["size"] > 20
    assert times["timestamp"] <= times["enqueued_at"]
    assert times["expires_at"] - times["enqueued_at"] == timedelta(seconds=60)
    assert abs(datetime.now(UTC).replace(tzinfo=None) - times["enqueued_at"]) < timedelta(minutes=10)


def test_a_locked_message_shows_until_when(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send_many("q", [1, 2])
    (held,) = bus.receive_batch("q", timeout=0)
    assert held.locked_until is not None
    until = held.locked_until.replace(tzinfo=None)
    [(shown,), (none,)] = ask("SELECT locked_until FROM messages ORDER BY local_sequence")
    assert abs(datetime.fromisoformat(str(shown)) - until) < timedelta(milliseconds=1)
    assert none is None
    held.complete()
    assert ask("SELECT locked_until FROM messages WHERE status = 'delivered'") == [(None,)]


def test_a_bare_message_has_nulls(bus: SyncMessageBus, ask: Asked) -> None:
    bus.create_queue("q", default_ttl=None)
    bus.send("q", None)
    names = "type, source, target, correlation_id, routing_key, ttl, transaction_id, session_id, trace_id, expires_at"
    assert ask(f"SELECT {names}, consumer, subject FROM messages") == [(None,) * 12]
    assert ask("SELECT payload FROM messages") == [("null",)]


def test_states_and_statuses(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send_many("q", ["done", "dead", "deferred", "locked", "active"])
    bus.send("q", "scheduled", delay=3_600)
    bus.receive_batch("q", 1, timeout=0)[0].complete()
    dead_letter(bus, "q", "Broken")
    bus.receive_batch("q", 1, timeout=0)[0].defer()
    bus.receive_batch("q", 1, timeout=0, consumer="me")
    assert sorted(ask("SELECT payload, status, state, delivery_count, consumer FROM messages"), key=str) == [
        ('"active"', "pending", "active", 0, None),
        ('"dead"', "failed", "active", 0, None),
        ('"deferred"', "pending", "deferred", 1, None),
        ('"locked"', "pending", "locked", 1, "me"),
        ('"scheduled"', "pending", "scheduled", 0, None),
        (None, "delivered", "completed", 1, None),
    ]


def test_a_delivered_message_is_what_history_knows(bus: SyncMessageBus, ask: Asked) -> None:
    sent = bus.send("q", {"a": 1}, session_id="s", correlation_id="c", trace_id="t")
    (waiting,) = ask("SELECT id, enqueued_at, size, session_id, correlation_id, trace_id FROM messages")
    bus.receive_batch("q", 1, timeout=0, consumer="me")[0].complete()
    (delivered,) = ask("SELECT id, enqueued_at, size, session_id, correlation_id, trace_id FROM messages")
    assert delivered == waiting
    assert ask(
        "SELECT timestamp = enqueued_at, channel, local_sequence, consumer, payload, ttl, priority FROM messages"
    ) == [(1, "q", 1, "me", None, None, None)]
    assert ask("SELECT status FROM messages WHERE id = ?", (sent.id,)) == [("delivered",)]


BODIES: dict[str, tuple[object, str]] = {
    "object": ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
    "text": ('say "hi"', '"say \\"hi\\""'),
    "number": (7, "7"),
    "bytes": (b"\x00\xff", '"base64:AP8="'),
    "bytes of JSON": (b' {"a": 1}', '"base64:IHsiYSI6IDF9"'),
    "bytes that are an object": (b'{"a": 1}', '{"a": 1}'),
    "bytes that are an array": (b"[1, 2]", "[1, 2]"),
    "bytes that begin like one": (b'{"a": ', '"base64:eyJhIjog"'),
    "bytes that are no text": (b'{"\xff": 1}', '"base64:eyL/IjogMX0="'),
    "datetime": (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
    "large number": (2**80, "1208925819614629174706176"),
    "keys that are no text": ({(1, 2): 3}, '{"$map":[[{"$tuple":[1,2]},3]]}'),
    "packed": (Payload.serialized(SerializationFormat.MESSAGE_PACK, b"\x01"), '"msgpack:base64:AQ=="'),
    "serialized JSON": (Payload.serialized(SerializationFormat.JSON, b'{"b":2}'), '{"b":2}'),
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_payload_is_always_json(kind: str, bus: SyncMessageBus, ask: Asked) -> None:
    body, shown = BODIES[kind]
    bus.send("q", body)
    assert ask("SELECT payload, json_valid(payload) FROM messages") == [(shown, 1)]
    json.loads(shown)


def test_json_of_payloads(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send_many("q", [{"id": number, "tags": ["a", "b"]} for number in range(3)])
    bus.send("q", "no object")
    assert ask("SELECT payload ->> '$.id' FROM messages WHERE payload ->> '$.id' >= 1 ORDER BY 1") == [(1,), (2,)]
    assert ask("SELECT DISTINCT j.value FROM messages, json_each(payload, '$.tags') j") == [("a",), ("b",)]


def test_times_are_text_that_sqlite_can_count_with(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send("q", 1)
    assert ask(
        "SELECT enqueued_at > datetime('now', '-1 hour'), enqueued_at < datetime('now', '+1 hour'), "
        "timestamp > date('now', '-1 day'), abs(julianday('now') - julianday(enqueued_at)) < 0.1, "
        "length(enqueued_at), datetime(enqueued_at) = substr(enqueued_at, 1, 19) FROM messages"
    ) == [(1, 1, 1, 1, 26, 1)]
    since = datetime.now(UTC) - timedelta(hours=1)
    assert ask("SELECT count(*) FROM messages WHERE enqueued_at > ?", (since,)) == [(1,)]
    assert ask("SELECT count(*) FROM messages WHERE enqueued_at > :t", {"t": since + timedelta(hours=2)}) == [(0,)]


def test_bodies_come_from_disk_in_pages(bus: SyncMessageBus, ask: Asked) -> None:
    count = 2 * PAGE_BODIES + 3
    bus.send_many("q", [{"id": number} for number in range(count)])
    assert ask("SELECT payload ->> 'id' FROM messages ORDER BY local_sequence") == [
        (number,) for number in range(count)
    ]


# Comparisons and orders that the tables take over give what SQLite would have given


def mixed(bus: SyncMessageBus) -> None:
    for queue in ("b", "a", "c"):
        bus.send_many(queue, range(4))
        bus.receive_batch(queue, 1, timeout=0)[0].complete()
        dead_letter(bus, queue, "Broken")


CONDITIONS = (
    "status = 'pending'",
    "status = 'failed'",
    "status = 'delivered'",
    "status = 'nothing'",
    "status = NULL",
    "status = 7",
    "status <> 'delivered'",
    "status <> 'pending'",
    "status <> NULL",
    "status IN ('pending', 'delivered')",
    "status IN ('failed')",
    "status IN ('failed', NULL)",
    "status NOT IN ('failed')",
    "status IN (SELECT 'failed')",
    "status = 'pending' AND status = 'failed'",
    "status = 'PENDING' COLLATE NOCASE",
    "status > 'e'",
    "status IS 'pending'",
    "status IS NOT NULL",
    "state = 'active'",
    "state = 'completed'",
    "state IN ('completed', 'active')",
    "state IN ('locked', 'deferred')",
    "channel = 'a'",
    "channel = 'A'",
    "channel = 'nowhere'",
    "channel = NULL",
    "channel IN ('a', 'c')",
    "channel = 'a' AND channel = 'b'",
    "channel = 'a' OR channel = 'b'",
    "channel = 'a' AND status = 'delivered'",
    "channel = 'a/$DeadLetterQueue'",
    "channel LIKE 'a%' AND status <> 'delivered'",
    "id = (SELECT min(id) FROM messages)",
    "id IN (SELECT id FROM messages WHERE status = 'delivered')",
    "id IN (SELECT id FROM messages WHERE channel = 'b') AND status <> 'failed'",
    "id = 'nothing'",
    "id = 7",
    "local_sequence > 2 AND status = 'pending'",
)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_on_messages(condition: str, bus: SyncMessageBus, ask: Asked) -> None:
    mixed(bus)
    shown = "SELECT id, channel, status, local_sequence FROM"
    copy = "(SELECT id, channel, status, state, local_sequence FROM messages LIMIT -1 OFFSET 0)"
    # The limit keeps the comparison out of the subquery, so the table does not get it.
    assert sorted(ask(f"{shown} messages WHERE {condition}")) == sorted(ask(f"{shown} {copy} WHERE {condition}"))


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
@pytest.mark.parametrize("columns", ["channel", "status", "status, channel", "channel, status", "state", "id"])
@pytest.mark.parametrize(
    "where",
    [
        "",
        "WHERE status = 'pending'",
        "WHERE status IN ('failed', 'delivered')",
        "WHERE id IN (SELECT message_id FROM events)",
    ],
)
def test_an_order_of_messages(columns: str, where: str, direction: str, bus: SyncMessageBus, ask: Asked) -> None:
    mixed(bus)
    order = ", ".join(f"{name} {direction}" for name in columns.split(", "))
    rows = ask(f"SELECT {columns} FROM messages {where} ORDER BY {order}")
    assert len(rows) == len(ask(f"SELECT 1 FROM messages {where}"))
    assert rows == sorted(rows, reverse=direction == "DESC")
    counted = ask(f"SELECT {columns}, count(*) FROM messages {where} GROUP BY {columns}")
    assert counted == [(*key, rows.count(key)) for key in sorted(set(rows))]


def test_grouping_needs_no_sorting(bus: SyncMessageBus) -> None:
    for columns in ("channel", "status", "status, channel"):
        plan = bus.query_messages(f"EXPLAIN QUERY PLAN SELECT {columns}, count(*) FROM messages GROUP BY {columns}")
        assert not [row for row in plan if "B-TREE" in str(row["detail"])]
    plan = bus.query_messages("EXPLAIN QUERY PLAN SELECT state, count(*) FROM messages GROUP BY state")
    assert [row for row in plan if "B-TREE" in str(row["detail"])]


def test_joining_by_id(bus: SyncMessageBus, ask: Asked) -> None:
    mixed(bus)
    pairs = ask("SELECT a.id, b.id FROM messages a JOIN messages b ON a.id = b.id")
    assert len(pairs) == 12
    assert all(one == other for one, other in pairs)
    assert ask("SELECT count(*) FROM messages m JOIN dead_letters d ON m.id = d.original_message_id") == [(3,)]
    assert ask("SELECT count(DISTINCT m.id) FROM messages m JOIN events e ON e.message_id = m.id") == [(12,)]


def test_joining_many_by_id_builds_an_index(bus: SyncMessageBus) -> None:
    bus.send_many("q", range(2 * LOOKUPS_MAX))
    for message in bus.receive_batch("q", LOOKUPS_MAX, timeout=0):
        message.complete()
    watched = Watched(bus._runtime.queues().store)
    joined = "SELECT count(*) FROM messages a JOIN messages b ON a.id = b.id"
    assert query(watched, joined).run().scalar() == 2 * LOOKUPS_MAX
    assert watched.calls.count("events of one") == LOOKUPS_MAX - 1
    assert watched.calls.count("list q") == 1
    watched.calls.clear()
    joined = "SELECT count(*) FROM messages m JOIN events e ON e.message_id = m.id WHERE e.kind = 'completed'"
    assert query(watched, joined).run().scalar() == LOOKUPS_MAX


class Watched(OpenStoreView):
    """A view that remembers what was read of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        after, of = self.events_after, self.events_of

        def events_after(seq: int, limit: int = 1_000, kinds: Collection[str] = ()) -> tuple[list[Event], int]:
            self.calls.append(f"events after {seq} {sorted(kinds)}")
            return after(seq, limit, kinds)

        def events_of(message_id: str) -> list[Event]:
            self.calls.append("events of one")
            return of(message_id)

        self.events_after, self.events_of = events_after, events_of

    def list_messages(self, entity: str, from_sequence: int = 0, count: int = 500) -> list[MessageRecord]:
        self.calls.append(f"list {entity}")
        return super().list_messages(entity, from_sequence, count)

    def read_bodies(self, keys: Sequence[MessageKey]) -> dict[MessageKey, bytes]:
        self.calls.append("data")
        return super().read_bodies(keys)


PENDING = ["list a", "list b", "list c"]
FAILED = [f"{each}/$DeadLetterQueue" for each in PENDING]
BOTH = sorted([*PENDING, *FAILED])
READS = {
    "SELECT count(*) FROM messages WHERE status = 'pending'": [*PENDING],
    "SELECT count(*) FROM messages WHERE status <> 'delivered'": [*BOTH],
    "SELECT count(*) FROM messages WHERE status IN ('pending', 'failed')": [*BOTH],
    "SELECT channel, count(*) FROM messages WHERE status = 'pending' GROUP BY 1": [*PENDING],
    "SELECT count(*) FROM messages WHERE state = 'active'": [*BOTH],
    "SELECT count(*) FROM messages WHERE status = 'delivered'": ["events after 0 ['completed']"],
    "SELECT count(*) FROM messages WHERE status = 'nothing'": [],
    "SELECT count(*) FROM messages WHERE channel = 'a' AND status = 'pending'": ["list a"],
    "SELECT id FROM messages WHERE id = 'x'": [*BOTH, "events of one"],
    "SELECT id FROM messages WHERE id = 'x' AND status = 'failed'": [*BOTH],
    "SELECT count(*) FROM messages": [*BOTH, "events after 0 ['completed']"],
    "SELECT kind FROM events WHERE message_id = 'x'": ["events of one"],
    "SELECT kind FROM events WHERE seq > 5": ["events after 5 []"],
    "SELECT kind FROM events WHERE seq >= 5 AND kind = 'sent'": ["events after 4 ['sent']"],
    "SELECT kind FROM events WHERE kind IN ('sent', 'completed')": ["events after 0 ['completed', 'sent']"],
    "SELECT kind FROM events WHERE seq = 7": ["events after 6 []"],
    "SELECT kind FROM events WHERE seq > 7 AND seq < 3": [],
    "SELECT count(*) FROM outgoing": [],
    "SELECT 1": [],
}


@pytest.mark.parametrize("sql", READS)
def test_no_more_is_read_than_is_needed(sql: str, bus: SyncMessageBus) -> None:
    mixed(bus)
    watched = Watched(bus._runtime.queues().store)
    query(watched, sql).run()
    assert watched.calls == READS[sql]


def test_bodies_are_read_for_columns_of_the_body_only(bus: SyncMessageBus) -> None:
    mixed(bus)
    watched = Watched(bus._runtime.queues().store)
    cheap = "id, priority, correlation_id, local_sequence, status, channel, state, delivery_count, size, session_id, "
    query(watched, f"SELECT {cheap} trace_id, enqueued_at, expires_at, consumer FROM messages").run()
    assert "data" not in watched.calls
    query(watched, "SELECT payload FROM messages").run()
    assert "data" in watched.calls


# dead_letters


def test_every_column_of_a_dead_letter(bus: SyncMessageBus) -> None:
    sent = bus.send("orders", {"id": 1})
    dead_letter(bus, "orders", "Broken", "no good")
    (row,) = bus.query_messages("SELECT * FROM dead_letters").dicts()
    assert tuple(row) == tuple(DEAD_LETTERS)
    assert json.loads(str(row.pop("message_data")))["body"] == {"id": 1}
    assert datetime.fromisoformat(str(row.pop("failure_timestamp"))) <= datetime.now(UTC).replace(tzinfo=None)
    assert row == {
        "id": sent.id,
        "original_message_id": sent.id,
        "failure_reason": "Broken",
        "retry_count": 0,
        "last_error": "no good",
        "channel": "orders/$DeadLetterQueue",
        "source": "orders",
        "error_type": None,
        "attempts": 1,
        "sequence": 1,
        "description": "no good",
    }


def test_the_error_of_a_handler_is_told(bus: SyncMessageBus, ask: Asked) -> None:
    bus.create_queue("q", max_delivery_count=1)
    bus.send("q", 1)
    with pytest.raises(ZeroDivisionError), bus.receive_batch("q", 1, timeout=0)[0]:
        raise ZeroDivisionError("by zero")
    ((reason, last_error),) = ask("SELECT failure_reason, last_error FROM dead_letters")
    assert reason == "MaxDeliveryCountExceeded"
    assert "by zero" in str(last_error)


def test_dead_letters_that_were_forwarded(bus: SyncMessageBus, ask: Asked) -> None:
    bus.create_queue("Trash")
    bus.create_queue("q", forward_dead_letters_to="trash")
    bus.send("q", 1)
    bus.send("Trash", "alive")
    dead_letter(bus, "q", "Broken")
    assert ask("SELECT channel, source FROM dead_letters") == [("Trash", "q")]
    assert ask("SELECT channel, status, count(*) FROM messages GROUP BY 1, 2") == [("Trash", "pending", 2)]


def test_conditions_on_dead_letters(bus: SyncMessageBus, ask: Asked) -> None:
    mixed(bus)
    ((first,),) = ask("SELECT id FROM dead_letters WHERE channel = 'a/$DeadLetterQueue'")
    assert ask("SELECT source FROM dead_letters WHERE id = ?", (first,)) == [("a",)]
    assert ask("SELECT count(*) FROM dead_letters WHERE id IN (?, 'x')", (first,)) == [(1,)]
    assert ask("SELECT count(*) FROM dead_letters WHERE id = NULL") == [(0,)]
    assert ask("SELECT source, count(*) FROM dead_letters GROUP BY source") == [("a", 1), ("b", 1), ("c", 1)]


# events


def test_every_column_of_an_event(bus: SyncMessageBus) -> None:
    bus.send("q", 1, priority=3)
    bus.receive_batch("q", 1, timeout=0, consumer="me")[0].complete()
    events, _ = bus.events_after(0)
    rows = bus.query_messages("SELECT * FROM events").dicts()
    assert tuple(rows[0]) == tuple(EVENTS)
    assert len(rows) == len(events)
    for row, event in zip(rows, events, strict=True):
        ts, attrs = str(row.pop("ts")), row.pop("attrs")
        assert datetime.fromisoformat(ts).replace(tzinfo=UTC).timestamp() == pytest.approx(event.ts / 1e6)
        assert row.pop("ts_us") == event.ts
        assert (None if attrs is None else json.loads(str(attrs))) == event.attrs
        assert row == {name: getattr(event, name) for name in row}


EVENT_CONDITIONS = (
    "seq = 3",
    "seq = 3.0",
    "seq = 3.5",
    "seq = '3'",
    "seq > 3",
    "seq >= 3",
    "seq < 3",
    "seq <= 3",
    "seq > 2.5 AND seq < 5.5",
    "seq BETWEEN 2 AND 4",
    "seq > -1",
    "seq > -9223372036854775808",
    "seq < 9223372036854775807",
    "seq > 1e300",
    "seq < 1e300",
    "seq = NULL",
    "seq > 'x'",
    "seq IN (1, 3, 99)",
    "kind = 'sent'",
    "kind IN ('sent', 'completed')",
    "kind = 'sent' AND kind = 'completed'",
    "kind IN ()",
    "kind = 7",
    "kind <> 'sent'",
    "message_id = (SELECT min(message_id) FROM events)",
    "message_id = 7",
    "message_id IS NULL",
    "message_id = (SELECT min(message_id) FROM events) AND kind = 'completed' AND seq > 1",
)


@pytest.mark.parametrize("condition", EVENT_CONDITIONS)
def test_a_condition_on_events(condition: str, bus: SyncMessageBus, ask: Asked) -> None:
    mixed(bus)
    copy = "(SELECT seq, kind, message_id FROM events LIMIT -1 OFFSET 0)"
    assert ask(f"SELECT seq FROM events WHERE {condition}") == ask(f"SELECT seq FROM {copy} WHERE {condition}")


def test_events_come_in_pages_and_in_order(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send_many("q", range(2 * PAGE_EVENTS + 5))
    last = bus.events_after(0, 100_000)[0][-1].seq
    assert ask("SELECT count(*), min(seq), max(seq) FROM events") == [(last, 1, last)]
    assert ask("SELECT seq FROM events ORDER BY seq DESC LIMIT 2") == [(last,), (last - 1,)]
    plan = bus.query_messages("EXPLAIN QUERY PLAN SELECT seq FROM events ORDER BY seq")
    assert not [row for row in plan if "B-TREE" in str(row["detail"])]


def test_how_long_messages_waited(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send("q", 1)
    bus.receive_batch("q", 1, timeout=0)[0].complete()
    assert ask("SELECT count(*) FROM events WHERE kind = 'completed' AND first_delivered_us >= enqueued_us") == [(1,)]


# outgoing, and what all have in common


def test_nothing_is_outgoing_yet(bus: SyncMessageBus) -> None:
    result = bus.query_messages("SELECT * FROM outgoing")
    assert (result.columns, len(result)) == (tuple(OUTGOING), 0)


@pytest.mark.parametrize("table", ["messages", "dead_letters", "events", "outgoing"])
def test_an_empty_bus_has_empty_tables(table: str, bus: SyncMessageBus, ask: Asked) -> None:
    assert ask(f"SELECT * FROM {table}") == []
    assert ask(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT chanel FROM messages", "channel"),
        ("SELECT m.prioritty FROM messages m", "priority"),
        ("SELECT * FROM message", "messages"),
        ("SELECT * FROM deadletters", "dead_letters"),
        ("SELECT lenght(id) FROM messages", "length"),
    ],
)
def test_a_near_miss_is_told(sql: str, hint: str, bus: SyncMessageBus) -> None:
    with pytest.raises(QueryInvalid) as caught:
        bus.query_messages(sql)
    assert caught.value.hint == f"did you mean {hint}?"


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT body FROM messages", "did you mean payload?"),
        ('SELECT "chanel" FROM messages', "did you mean channel?"),
        ('SELECT id FROM messages WHERE status = "dead"', "write text in 'single quotes'"),
        ("SELECT 1 FROM xyzzy", "the tables are messages, dead_letters, events, outgoing"),
        ("SELECT foo", "SELECT from messages, dead_letters, events, outgoing; write text in 'single quotes'"),
        (
            "SELECT foo FROM OUTGOING",
            "the columns of outgoing are id, message_id, target_domain, attempts, next_retry, max_retries, status; "
            "write text in 'single quotes'",
        ),
    ],
)
def test_an_unknown_name_lists_the_known_ones(sql: str, hint: str, bus: SyncMessageBus) -> None:
    with pytest.raises(QueryInvalid) as caught:
        bus.query_messages(sql)
    assert caught.value.hint == hint


def test_an_unknown_column_lists_those_of_each_table_of_the_query(bus: SyncMessageBus) -> None:
    with pytest.raises(QueryInvalid) as caught:
        bus.query_messages("SELECT m.foo FROM messages m JOIN dead_letters d ON d.id = m.id")
    for table in ("messages", "dead_letters"):
        assert f"the columns of {table} are {', '.join(TABLES[table])}" in caught.value.hint
    assert "the columns of events" not in caught.value.hint
