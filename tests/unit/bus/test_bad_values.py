"""Whatever a user hands to a bus with a store is refused by name before anything is decided, or kept as it was given.

One table: every verb with every value of it that reaches the store, times what can be wrong with a value. A refusal
changes nothing, not even history, and the bus goes on. What is taken is the same after the store was closed and opened.
The stores of files take a snapshot every few changes, so that a value goes all the ways to the disk that there are.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.bus.probes import GUARD_S
from tests.unit.bus.rigs import Bus, NoTimers, Rig
from unibus.bus.queues.received import SyncReceived
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, SqlFilter
from unibus.core.flow.deadletter import DESCRIPTION_CHARS_MAX
from unibus.core.lifecycle.state.rules import Rule
from unibus.errors import BusError, UsageError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Journal
from unibus.stores.sqlite.journal import SqliteJournal

NUMBERS = itertools.count()
HUGE = "x" * 40_000
DEAD = "q/$DeadLetterQueue"


class Text(str):
    """A subclass of str, such as templates and data frames have."""


# What can be wrong with a text. Half a pair and what is no text can be kept by no store, so they have to be refused.
NO_TEXTS: Mapping[str, object] = {
    "half a pair": "a\ud800b",
    "half a pair first": "\udcff",
    "2**64": 2**64,
    "bytes": b"bytes",
    "list": ["a"],
    "True": True,
}
ODD_TEXTS: Mapping[str, object] = {"NUL": "a\0b", "huge": HUGE, "kind of its own": Text("own"), "wide": "é☃😀"}
# The same for the value of a header.
NO_HEADERS: Mapping[str, object] = {
    "half a pair": "a\ud800b",
    "2**64": 2**64,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "object": object(),
    "list": ["a"],
    "no zone": datetime(2026, 1, 1),
}
ODD_HEADERS: Mapping[str, object] = {
    **ODD_TEXTS,
    "2**63 - 1": 2**63 - 1,
    "-2**63": -(2**63),
    "nan": float("inf"),
    "bytes": b"\0\xff",
    "zone": datetime(1, 1, 1, tzinfo=UTC),
    "long": timedelta.max,
    "None": None,
}
NO_NUMBERS: Mapping[str, object] = {
    "2**64": 2**64,
    "-2**63 - 1": -(2**63) - 1,
    "text": "1",
    "-1": -1,
    "nan": float("nan"),
}


class Cell(NamedTuple):
    """`act` hands a value in; `refused` are values that nothing may take, `odd` those that are kept or refused."""

    name: str
    prepare: Callable[[Rig], Any]
    act: Callable[[Rig, Any, Any], object]
    refused: Mapping[str, object]
    odd: Mapping[str, object]


def nothing(rig: Rig) -> None:
    """There is nothing to prepare."""


def locked(rig: Rig) -> Any:
    rig.send("q", 1)
    return rig.one("q")


def dead(rig: Rig) -> Any:
    message = locked(rig)
    rig.do(lambda: message.dead_letter("r"))
    manager = rig.dead_letter_queue()
    return manager, rig.do(manager.list_messages)[-1]


def in_session(rig: Rig) -> Any:
    return rig.accept_session("s", fresh_name(), timeout=0)


def text(name: str, act: Callable[[Rig, Any, Any], object], prepare: Callable[[Rig], Any] = nothing) -> Cell:
    return Cell(name, prepare, act, NO_TEXTS, ODD_TEXTS)


def settled(name: str, act: Callable[[Any, Any], object]) -> Cell:
    """An operation on a message that is in flight."""
    return text(name, lambda rig, message, value: rig.do(lambda: act(message, value)), locked)


def property_of(name: str, act: Callable[[Any, Any], object]) -> list[Cell]:
    def put(rig: Rig, message: Any, value: object) -> None:
        rig.do(lambda: act(message, {"p": value}))

    def named(rig: Rig, message: Any, value: Any) -> None:
        rig.do(lambda: act(message, {value: 1}))

    names = {why: value for why, value in NO_TEXTS.items() if why != "list"}
    return [Cell(name, locked, put, NO_HEADERS, ODD_HEADERS), Cell(f"{name} name", locked, named, names, ODD_TEXTS)]


def sent(field: str) -> Cell:
    return text(f"send {field}", lambda rig, _, value: rig.send("q", 1, **{field: value}))


TEXT_FIELDS = [
    "type",
    "subject",
    "label",
    "content_type",
    "correlation_id",
    "reply_to",
    "reply_to_session_id",
    "to",
    "source",
    "target",
    "session_id",
    "partition_key",
    "routing_key",
    "dedup_key",
    "traceparent",
    "tracestate",
    "tx_id",
    "backend_id",
    "trace_id",
    "message_id",
]

NO_TIMES: Mapping[str, object] = {
    "no zone": datetime(2026, 1, 1),
    "too late": datetime(2300, 1, 1, tzinfo=UTC),
    "last of all": datetime.max.replace(tzinfo=UTC),
    "too early": datetime(1, 1, 1, tzinfo=UTC),
    "text": "soon",
}
NO_DELAYS: Mapping[str, object] = {
    "2**64": 2**64,
    "0": 0,
    "-1": -1,
    "nan": float("nan"),
    "inf": float("inf"),
    "text": "1",
    "True": True,
    "beyond 2262": 8.9e9,
    "longest": timedelta.max,
}
NO_WAITS = {why: value for why, value in NO_DELAYS.items() if why != "True"}  # Compiled, that is a 1.0.
LAST_TIME = datetime(2262, 1, 1, tzinfo=UTC)

SENDS = [
    *[sent(field) for field in TEXT_FIELDS],
    text("send body", lambda rig, _, value: rig.send("q", [value]))._replace(refused={"half a pair": "\ud800"}),
    Cell("send header", nothing, lambda rig, _, value: rig.send("q", 1, headers={"h": value}), NO_HEADERS, ODD_HEADERS),
    text("send header name", lambda rig, _, value: rig.send("q", 1, headers={value: 1}))._replace(
        refused={why: value for why, value in NO_TEXTS.items() if why != "list"}
    ),
    text("send trace", lambda rig, _, value: rig.send("q", 1, trace={"k": value})),
    text("send trace key", lambda rig, _, value: rig.send("q", 1, trace={value: "v"})),
    text("send to", lambda rig, _, value: rig.send(value, 1)),
    text("send a Message", lambda rig, _, value: rig.send(Message.new("q", 1).with_fields({"subject": value}))),
    text("send_many field", lambda rig, _, value: rig.send_many("q", [1, 2], correlation_id=value)),
    text("send_many body", lambda rig, _, value: rig.send_many("q", [1, [value]]))._replace(refused={"half": "\ud800"}),
    text("send in a session", lambda rig, _, value: rig.send("s", 1, session_id=value)),
    text("send on_duplicate", lambda rig, _, value: rig.send("q", 1, on_duplicate=value)),
    text("send durability", lambda rig, _, value: rig.send("q", 1, durability=value)),
    text(
        "publish subject", lambda rig, _, value: rig.publish("c", 1, fields={"subject": value}), lambda rig: listen(rig)
    ),
    Cell("send priority", nothing, lambda rig, _, value: rig.send("q", 1, priority=value), NO_NUMBERS, {}),
    Cell("send ttl", nothing, lambda rig, _, value: rig.send("q", 1, ttl=value), NO_DELAYS, {"odd": 8e9})._replace(
        refused={why: value for why, value in NO_DELAYS.items() if why != "beyond 2262"}
    ),
    Cell("send delay", nothing, lambda rig, _, value: rig.send("q", 1, delay=value), NO_DELAYS, {"day": 86_400}),
    Cell("schedule", nothing, lambda rig, _, value: rig.schedule("q", 1, value), NO_TIMES, {"last": LAST_TIME}),
    Cell("schedule in", nothing, lambda rig, _, value: rig.schedule("q", 1, value), NO_DELAYS, {"day": timedelta(1)}),
]


def listen(rig: Rig) -> None:
    rig.create_channel("c", persistent=True)


SETTLEMENTS = [
    settled("dead_letter reason", lambda message, value: message.dead_letter(value)),
    settled("dead_letter description", lambda message, value: message.dead_letter("r", value)),
    *property_of("dead_letter property", lambda message, given: message.dead_letter("r", "d", given)),
    *property_of("abandon property", lambda message, given: message.abandon(properties=given)),
    *property_of("defer property", lambda message, given: message.defer(given)),
    Cell(
        "abandon delay", locked, lambda rig, message, value: rig.do(lambda: message.abandon(value)), NO_WAITS, {"1": 1}
    ),
]

RECEIVING = [
    text("receive from", lambda rig, _, value: rig.take(value)),
    text(
        "receive consumer",
        lambda rig, _, value: rig.receive_batch("q", 1, 0, consumer=value),
        lambda rig: rig.send("q", 1),
    ),
    text("receive mode", lambda rig, _, value: rig.receive_batch("q", 1, 0, value), lambda rig: rig.send("q", 1)),
    Cell("receive count", nothing, lambda rig, _, value: rig.take("q", value), NO_NUMBERS, {}),
    Cell("deferred", nothing, lambda rig, _, value: rig.receive_deferred("q", [value]), NO_NUMBERS, {}),
    text("deferred from", lambda rig, _, value: rig.receive_deferred(value, [1])),
    Cell("cancel", nothing, lambda rig, _, value: rig.cancel_scheduled("q", value), NO_NUMBERS, {}),
    text("cancel in", lambda rig, _, value: rig.cancel_scheduled(value, 1)),
    text("peek", lambda rig, _, value: rig.peek(value)),
    Cell("peek count", nothing, lambda rig, _, value: rig.peek("q", value), {"text": "1", "-1": -1}, {"2**64": 2**64}),
    text("accept", lambda rig, _, value: rig.accept_session("s", value, timeout=0)),
    text("accept in", lambda rig, _, value: rig.accept_session(value, "a", timeout=0)),
    text(
        "accept consumer",
        lambda rig, _, value: rig.do(rig.accept_session("s", "a", timeout=0, consumer=value).close),
    ),
    Cell(
        "session state",
        in_session,
        lambda rig, session, value: rig.do(lambda: session.set_state(value)),
        {
            **{why: value for why, value in NO_TEXTS.items() if why != "bytes"},
            "text": "state",
            "too long": bytes(300_000),
        },
        {"bytes": b"\0\xff", "text": b"text\0", "none": None},
    ),
]


def fresh_name() -> str:
    """What exists with other settings would be refused for that."""
    return f"new{next(NUMBERS)}"


def set_of(setting: str) -> list[Cell]:
    return [
        text(f"create_queue {setting}", lambda rig, _, value: rig.create_queue(fresh_name(), **{setting: value})),
        text(f"update_entity {setting}", lambda rig, _, value: rig.update_entity("q", **{setting: value})),
        text(
            f"entities.update {setting}",
            lambda rig, _, value: rig.do(lambda: rig.bus.entities.update("q", **{setting: value})),
        ),
    ]


def rule(act: Callable[[Any, Any], object]) -> Callable[[Rig, Any, Any], object]:
    return lambda rig, _, value: rig.do(lambda: act(rig.bus.entities, value))


ENTITIES = [
    text("create_queue", lambda rig, _, value: rig.create_queue(value)),
    text("create_topic", lambda rig, _, value: rig.create_topic(value)),
    text("create_subscription of", lambda rig, _, value: rig.create_subscription(value, "n")),
    text("create_subscription", lambda rig, _, value: rig.create_subscription("t", value)),
    text("update_entity", lambda rig, _, value: rig.update_entity(value, max_count=5)),
    text("delete_entity", lambda rig, _, value: rig.delete_entity(value)),
    *set_of("user_metadata"),
    *set_of("forward_to"),
    *set_of("forward_dead_letters_to"),
    *set_of("status"),
    *set_of("authorization_rules"),
    *set_of("max_delivery_count"),
    *set_of("lock_duration"),
    text("rules as text", lambda rig, _, value: rig.create_subscription("t", fresh_name(), rules=value)),
    text(
        "rules with",
        lambda rig, _, value: rig.create_subscription(
            "t", fresh_name(), rules=[Rule("r", SqlFilter(f"a = '{value}'"))]
        ),
    )._replace(refused={"half a pair": "\ud800"}),
    text("setting", lambda rig, _, value: rig.create_queue(fresh_name(), **{value: 1})),
    text("entities.create_queue", rule(lambda entities, value: entities.create_queue(value))),
    text("entities.create_topic", rule(lambda entities, value: entities.create_topic(value))),
    text("entities.create_subscription", rule(lambda entities, value: entities.create_subscription("t", value))),
    text("entities.create_subscription of", rule(lambda entities, value: entities.create_subscription(value, "n"))),
    text("entities.delete", rule(lambda entities, value: entities.delete(value))),
    text("entities.get", rule(lambda entities, value: entities.get(value))),
    text("create_rule name", rule(lambda entities, value: entities.create_rule("t", "sub", value, "1 = 1"))),
    text("create_rule of", rule(lambda entities, value: entities.create_rule(value, "sub", "r", "1 = 1"))),
    text("create_rule in", rule(lambda entities, value: entities.create_rule("t", value, "r", "1 = 1"))),
    text("create_rule filter", rule(lambda entities, value: entities.create_rule("t", "sub", fresh_name(), value))),
    text(
        "create_rule text",
        rule(lambda entities, value: entities.create_rule("t", "sub", fresh_name(), f"a = '{value}'")),
    )._replace(refused={"half a pair": "\ud800"}),
    text(
        "create_rule action",
        rule(lambda entities, value: entities.create_rule("t", "sub", fresh_name(), "1 = 1", f"SET a = '{value}'")),
    )._replace(refused={"half a pair": "\ud800"}),
    Cell(
        "create_rule parameter",
        nothing,
        rule(lambda entities, value: entities.create_rule("t", "sub", fresh_name(), SqlFilter("a = @p", {"p": value}))),
        {why: value for why, value in NO_HEADERS.items() if why != "no zone"},
        ODD_HEADERS,
    ),
    Cell(
        "create_rule action parameter",
        nothing,
        rule(
            lambda entities, value: entities.create_rule(
                "t", "sub", fresh_name(), "1 = 1", SqlRuleAction("SET a = @p", {"p": value})
            )
        ),
        {why: value for why, value in NO_HEADERS.items() if why != "no zone"},
        ODD_HEADERS,
    ),
    text(
        "create_rule correlation",
        rule(lambda entities, value: entities.create_rule("t", "sub", fresh_name(), CorrelationFilter(value))),
    ),
    text(
        "create_rule correlated name",
        rule(
            lambda entities, value: entities.create_rule(
                "t", "sub", fresh_name(), CorrelationFilter(properties={value: 1})
            )
        ),
    )._replace(refused={why: value for why, value in NO_TEXTS.items() if why != "list"}),
    text(
        "update_rule", rule(lambda entities, value: entities.update_rule("t", "sub", "$Default", f"a = '{value}'"))
    )._replace(refused={"half a pair": "\ud800"}),
    text("delete_rule", rule(lambda entities, value: entities.delete_rule("t", "sub", value))),
]

LETTERS = [
    text(
        "redirect to", lambda rig, found, value: went(rig.do(lambda: found[0].redirect_message(found[1], value))), dead
    ),
    text("retry", lambda rig, found, value: went(rig.do(lambda: found[0].retry_message(value))), dead),
    text("retry in", lambda rig, found, value: went(rig.do(lambda: found[0].retry_message(found[1].id, value))), dead),
    text("discard", lambda rig, found, value: went(rig.do(lambda: found[0].discard_message(value))), dead),
    text(
        "edit to",
        lambda rig, found, value: went(rig.do(lambda: found[0].edit_and_resend(found[1], 2, target=value))),
        dead,
    ),
    text(
        "edit body", lambda rig, found, value: went(rig.do(lambda: found[0].edit_and_resend(found[1], [value]))), dead
    )._replace(refused={"half a pair": "\ud800"}),
    Cell(
        "edit header",
        dead,
        lambda rig, found, value: went(rig.do(lambda: found[0].edit_and_resend(found[1], headers={"h": value}))),
        NO_HEADERS,
        ODD_HEADERS,
    ),
    text("redirect all", lambda rig, found, value: rig.do(lambda: found[0].redirect_all(target=value)), dead),
]

HISTORY = [
    text("cursor", lambda rig, _, value: rig.move_cursor(value, 1)),
    Cell("cursor at", nothing, lambda rig, _, value: rig.move_cursor("r", value), NO_NUMBERS, {"5": 5}),
    text("delete_message", lambda rig, _, value: rig.delete_message(value))._replace(odd=ODD_TEXTS),
    text("prune", lambda rig, _, value: rig.prune_before(1, value))._replace(odd={}),
    Cell(
        "prune before",
        nothing,
        lambda rig, _, value: rig.prune_before(value, "q"),
        {**NO_NUMBERS, "no zone": datetime(2026, 1, 1), "first": datetime.min.replace(tzinfo=UTC)},
        {"1700": datetime(1700, 1, 1, tzinfo=UTC), "2262": LAST_TIME},
    ),
    Cell(
        "start",
        listen,
        lambda rig, _, value: subscribed(rig, "g", value),
        {**NO_NUMBERS, "no zone": datetime(2026, 1, 1), "last": datetime.max.replace(tzinfo=UTC)},
        {"5": 5, "2026": datetime(2026, 1, 1, tzinfo=UTC), "2262": LAST_TIME},
    ),
    text("group", lambda rig, _, value: subscribed(rig, value), listen)._replace(odd={"huge": HUGE, "NUL": "a\0b"}),
    text(
        "dead_letter_channel", lambda rig, _, value: rig.create_channel("d", persistent=True, dead_letter_channel=value)
    ),
]


def subscribed(rig: Rig, group: Any, start: Any = None) -> None:
    rig.bus.unsubscribe(rig.subscribe("c", ignore, group=group, start=start))


def ignore(message: Message) -> None:
    """A handler."""


def went(result: Any) -> None:
    """One letter that could not go says so instead of raising."""
    if not result.success:
        raise BusError(result.message)


CELLS = [*SENDS, *SETTLEMENTS, *RECEIVING, *ENTITIES, *LETTERS, *HISTORY]


class StoreRig(Rig):
    """A Rig over a store of one of three kinds, with a snapshot every few changes."""

    def __init__(self, face: type, kind: str, path: Path) -> None:
        self._kind = kind
        super().__init__(face, None if kind == "memory" else path)

    def _made(self) -> Bus:
        return self.do(lambda: self._face(self._store()))

    def _store(self) -> EmbeddedStore:
        """Without a sync for each answer: a file that is closed and opened again shows the same."""
        journal = self._journal()
        level = min(journal.durability, Durability.D1)
        return EmbeddedStore(journal, SYSTEM_CLOCK, NoTimers(), durability=level, snapshot_every=20)

    def _journal(self) -> Journal:
        if self._kind == "memory":
            return MemoryJournal()
        return JsonFileJournal(str(self.path)) if self._kind == "jsonfile" else SqliteJournal(str(self.path))

    def furnish(self) -> None:
        self.create_queue("q")
        self.create_queue("s", requires_session=True)
        self.create_topic("t")
        self.create_subscription("t", "sub")

    def standing(self) -> object:
        """What changes with every change to the store, as decided: when it is written is the committer's affair."""
        store = self.bus._runtime.queues().store
        assert isinstance(store, EmbeddedStore)
        entities, cursor = self.in_turn(lambda _: self.bus.entities(), lambda _: self.bus.cursor("r"))
        return entities, store._state.seq, cursor

    def picture(self) -> object:
        """Everything that can be seen of the store, except the times of the last access."""
        infos = self.entities()
        waiting = {info.name: self._seen(info.name) for info in infos if info.kind != "topic"}
        return infos, waiting, self.events_after(0, 100_000), self.cursor("r")

    def _seen(self, name: str) -> list[tuple[object, ...]]:
        return [
            (
                each.id,
                each.body,
                each.sequence,
                each.delivery_count,
                each.priority,
                each.expires_ns,
                properties_of(each),
            )
            for each in self.peek(name, 100_000)
        ]

    def goes_on(self) -> None:
        """The bus takes, gives and ends a message. This one is gone again after that."""
        _, (message,), _ = self.in_turn(
            lambda _: self.bus.send("well", "well"),
            lambda _: self.bus.receive_batch("well", 1, GUARD_S),
            lambda received: received[0].complete(),
        )
        assert message.body == "well"


def properties_of(message: Message) -> object:
    return None if message.properties is None else message.properties.as_tuple()


@pytest.fixture(params=["memory", "sqlite", "jsonfile"])
def store_rig(request: pytest.FixtureRequest, face: type, folder: Path) -> Iterator[StoreRig]:
    made = StoreRig(face, request.param, folder / "bus")
    made.furnish()
    yield made
    made.end()


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_a_value_is_refused_or_kept(store_rig: StoreRig, cell: Cell) -> None:
    problems = [f"{why}: {wrong}" for why, wrong in tried(store_rig, cell) if wrong]
    assert problems == []
    if store_rig.durable:
        kept = store_rig.picture()
        store_rig.reopen()
        assert store_rig.picture() == kept


def tried(rig: StoreRig, cell: Cell) -> Iterator[tuple[str, str]]:
    """Each value, with what is wrong about what became of it."""
    for why, value in {**cell.odd, **cell.refused}.items():
        prepared = cell.prepare(rig)
        before = rig.standing()
        try:
            cell.act(rig, prepared, value)
        except (BusError, TypeError) as error:
            unchanged = rig.standing() == before
            yield why, "" if unchanged else f"it is refused, and something has changed: {error}"
        except Exception as error:
            yield why, f"{error!r:.200}"
        else:
            yield why, "it is taken" if why in cell.refused else ""
        rig.goes_on()


def test_an_error_whose_text_cannot_be_written_gives_the_message_back(store_rig: StoreRig) -> None:
    # Names of files hold half pairs where they are no UTF-8, and errors quote them.
    store_rig.send("q", 1)
    with pytest.raises(ValueError, match="no such file"):
        left_by(store_rig, ValueError("no such file: \udcff"))
    message = store_rig.one("q")
    assert message.delivery_count == 2
    assert message.headers["LastError"] == "ValueError: no such file: ?"
    store_rig.goes_on()


def left_by(rig: StoreRig, error: Exception) -> None:
    """A message's block that raises."""
    message = rig.one("q")
    if isinstance(message, SyncReceived):
        with message:
            raise error

    async def leave() -> None:
        async with message:
            raise error

    rig.do(leave)


def test_a_handler_whose_error_cannot_be_written_leaves_a_dead_letter(store_rig: StoreRig) -> None:
    def handler(message: Message) -> None:
        raise ValueError("no such file: \udcff")

    store_rig.create_channel("c", persistent=True)
    store_rig.subscribe("c", handler, retry_attempts=0, group="g")
    store_rig.publish("c", 1)
    letter = store_rig.one("c/Subscriptions/g/$DeadLetterQueue", GUARD_S)
    assert letter.headers["DeadLetterErrorDescription"] == "no such file: ?"
    store_rig.goes_on()


def test_a_transaction_with_one_bad_word_changes_nothing(store_rig: StoreRig) -> None:
    message = locked(store_rig)
    before = store_rig.standing()
    with pytest.raises(UsageError, match="surrogate") as caught:
        both(store_rig, message)
    assert caught.value.hint
    assert store_rig.standing() == before
    store_rig.do(message.complete)  # It is still in our hands.
    store_rig.goes_on()


def both(rig: StoreRig, message: Any) -> None:
    """A send and a dead letter that cannot be written, in one transaction."""
    if isinstance(message, SyncReceived):
        with rig.bus.transaction():
            rig.bus.send("q", 2)
            message.dead_letter("\ud800")
        return

    async def together() -> None:
        async with rig.bus.transaction():
            await rig.bus.send("q", 2)
            await message.dead_letter("\ud800")

    rig.do(together)


def test_what_is_told_about_a_death_is_bounded(store_rig: StoreRig) -> None:
    message = locked(store_rig)
    store_rig.do(lambda: message.dead_letter(HUGE, HUGE))
    (event,) = [each for each in store_rig.events_after(0)[0] if each.kind == "dead_lettered"]
    assert event.reason == store_rig.one(DEAD).headers["DeadLetterReason"] == HUGE[: DESCRIPTION_CHARS_MAX - 1] + "…"
