"""Peek, send, receive, settle, renew and sessions over the API give what the same verbs give in process."""

import asyncio
import base64
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from tests.same_message import same_message
from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.management.messages.documents import message_of_document, outgoing_of
from unibus.bus.management.messages.peeking import PeekedPage
from unibus.bus.management.messages.receiving import ReceivedMessage
from unibus.core.access.rights import Right
from unibus.core.lifecycle.envelope import message_of
from unibus.core.topics.pattern import Pattern
from unibus.errors import (
    DecodeError,
    EntityNotFound,
    Forbidden,
    LockLost,
    MessageNotFound,
    RateLimited,
    SessionLocked,
    SessionNotFound,
    SessionRequired,
    UsageError,
)

BODIES = [{"n": 1}, "text", b"\xff\x00", None, [1, 2.5], uuid4(), {"at": datetime.now(UTC)}, "ü" * 50]
HEADERS = {"a": b"x", "n": 1, "t": datetime.now(UTC), "u": uuid4(), "flag": True, "none": None}


# Sending


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
async def test_what_is_sent_is_what_a_receiver_in_process_gets(api: Api, body: object) -> None:
    fields = {"headers": HEADERS, "priority": 7, "correlation_id": "c", "ttl": 60, "subject": "s"}
    sent = await api.post("messages/send?entity=q", {"messages": [outgoing_of(body, fields)]})
    assert (sent[0]["entity"], sent[0]["sequence"], sent[0]["duplicate"]) == ("q", 1, False)
    async for message in api.bus.receive("q", timeout=0):
        assert (message.id, message.body, dict(message.headers)) == (sent[0]["id"], body, HEADERS)
        assert (message.priority, message.correlation_id, message.message.subject) == (7, "c", "s")
        await message.complete()


async def test_the_answer_is_that_of_send_in_process(api: Api) -> None:
    await api.broker.update("q", {"duplicate_detection": True})
    local = await api.bus.send("q", 1, dedup_key="k")
    sent = await api.post("messages/send?entity=Q", {"messages": [{"body": 1, "dedup_key": "k"}, {"body": 2}]})
    assert [each["duplicate"] for each in sent] == [True, False]
    assert [each["durability"] for each in sent] == [local.durability] * 2
    assert [each["entity"] for each in sent] == ["q", "q"]


async def test_a_document_keeps_its_id_and_its_time(api: Api) -> None:
    await api.bus.send("q", {"n": 1}, headers=HEADERS, session_id="s")
    page = await api.get("messages?entity=q")
    document = page["messages"][0]["document"]
    await api.broker.create("queue", "other", {})
    sent = await api.post("messages/send?entity=other", {"messages": [{"document": document}]})
    assert sent[0]["id"] == document["id"]
    (copy,) = await api.bus.peek("other")
    (original,) = await api.bus.peek("q")
    assert (copy.timestamp_ns, copy.body, dict(copy.headers)) == (original.timestamp_ns, original.body, HEADERS)
    assert copy.session_id == "s"


async def test_delay_and_instant_schedule(api: Api) -> None:
    at_ns = api.broker.now_ns() + 5_000_000_000
    await api.post("messages/send?entity=q", {"messages": [{"delay_s": 5}, {"scheduled_at_ns": at_ns}]})
    assert await api.counts("q") == (0, 0, 2, 0, 0)
    both = {"messages": [{"delay_s": 5, "scheduled_at_ns": at_ns}]}
    assert same_error(await api.error("POST", "messages/send?entity=q", both), UsageError, 400)


async def test_all_are_sent_or_none(api: Api) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True})
    given = {"messages": [{"body": 1, "session_id": "s"}, {"body": 2}]}
    assert same_error(await api.error("POST", "messages/send?entity=sessions", given), SessionRequired, 400)
    assert await api.counts("sessions") == (0, 0, 0, 0, 0)


async def test_a_missing_queue_is_created_only_where_that_is_asked_for(api: Api) -> None:
    given = {"messages": [{"body": 1}, {"body": 2}]}
    assert same_error(await api.error("POST", "messages/send?entity=new", given), EntityNotFound, 404)
    assert (Right.MANAGE, "") not in api.authorization.asked
    sent = await api.post("messages/send?entity=new&create=true", given)
    assert [each["sequence"] for each in sent] == [1, 2]
    assert (Right.MANAGE, "") in api.authorization.asked
    await api.bus.send("made", 1)
    new, made = await api.broker.entity("new"), await api.broker.entity("made")
    assert (new.kind, new.settings) == (made.kind, made.settings)


async def test_creating_needs_the_right_to_manage_the_namespace(api: Api) -> None:
    api.authorization.refused.add((Right.MANAGE, ""))
    given = {"messages": [{"body": 1}]}
    assert same_error(await api.error("POST", "messages/send?entity=new&create=true", given), Forbidden, 403)
    assert same_error(await api.error("GET", "messages?entity=new"), EntityNotFound, 404)


async def test_the_rate_of_an_entity_limits_sends(api: Api) -> None:
    await api.broker.update("q", {"max_sends_per_second": 1})
    given = {"messages": [{"body": at} for at in range(5)]}
    assert same_error(await api.error("POST", "messages/send?entity=q", given), RateLimited, 429)


@pytest.mark.parametrize("api", ["sqlite"], indirect=True)
async def test_subscribers_of_the_process_hear_what_is_sent_to_a_topic(api: Api) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()

    async def by_pattern(message: object) -> None:
        await heard.put(message)

    await api.broker.create("topic", "orders.eu", {})
    api.bus.subscribe(Pattern.wildcard("orders.*"), by_pattern)
    await api.post("messages/send?entity=orders.eu", {"messages": [{"body": {"n": 1}}]})
    async with asyncio.timeout(30):
        assert await heard.get() == {"n": 1}


async def test_a_level_that_the_store_has_not_is_refused(api: Api) -> None:
    given = {"messages": [{"body": 1}], "durability": "D1"}
    if api.url.startswith("memory"):
        assert same_error(await api.error("POST", "messages/send?entity=q", given), UsageError, 400)
        assert await api.counts("q") == (0, 0, 0, 0, 0)
    else:
        assert (await api.post("messages/send?entity=q", given))[0]["durability"] == "D1"
    for unknown in ("D3", "d1", 2):
        found = await api.error("POST", "messages/send?entity=q", {**given, "durability": unknown})
        assert same_error(found, DecodeError, 400)


# Looking


async def test_peek_shows_what_peek_in_process_shows(api: Api) -> None:
    for body in BODIES:
        await api.bus.send("q", body, headers=HEADERS)
    answer = await api.client("GET", "/unibus/v1/messages?entity=q&top=5")
    page = msgspec.json.decode(answer.body, type=PeekedPage)
    local = await api.bus.peek("q", 5)
    found = [message_of_document(each.document) for each in page.messages]
    assert all(same_message(*pair) for pair in zip(found, local, strict=True))
    assert page.next == 6
    rest = await api.get(f"messages?entity=q&top=5&from={page.next}")
    assert [each["sequence"] for each in rest["messages"]] == [6, 7, 8]
    assert rest["next"] is None


async def test_states_are_words_and_no_token_is_shown(api: Api) -> None:
    for at in range(3):
        await api.bus.send("q", at)
    await api.bus.send("q", 3, delay=60)
    (locked,) = await api.broker.receive("q")
    (deferred,) = await api.broker.receive("q")
    await api.broker.settle("defer", deferred.token)
    answer = await api.client("GET", "/unibus/v1/messages?entity=q")
    found = answer.json()["messages"]  # type: ignore[index]
    assert [each["state"] for each in found] == ["locked", "deferred", "active", "scheduled"]
    assert [each["locked_until_ns"] for each in found] == [int(locked.until_ns), None, None, None]
    assert [each["delivery_count"] for each in found] == [1, 1, 0, 0]
    assert base64.b64encode(locked.token) not in answer.body


async def test_a_preview_has_the_beginning_of_each_body(api: Api) -> None:
    for body in ("abcdef", {"a": "bcdefgh"}, b"bytes!", b"\xff\xfe\xfd", "äöüß€", "äöüß".encode()):
        await api.bus.send("q", body, type="t", subject="s", headers={"h": 1})
    found = (await api.get("messages?entity=q&preview=4"))["messages"]
    assert [each["preview"]["text"] for each in found] == ["abcd", '{"a"', "byte", "//79", "äöüß", "äöüß"]
    assert [each["preview"]["is_cut"] for each in found] == [True, True, True, False, True, False]
    assert (found[0]["preview"]["headers"], found[0]["preview"]["type"]) == ({"h": 1}, "t")
    assert "document" not in found[0]


async def test_the_messages_of_one_session(api: Api) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True})
    for at in range(4):
        await api.bus.send("sessions", at, session_id=f"s{at % 2}")
    found = (await api.get("messages?entity=sessions&session=s1"))["messages"]
    assert [each["document"]["body"] for each in found] == [1, 3]


async def test_a_page_ends_with_the_message_that_fills_the_answer(api: Api) -> None:
    api.broker.answer_bytes_max = 2_000
    for _ in range(4):
        await api.bus.send("q", "x" * 1_500)
    page = await api.get("messages?entity=q")
    assert ([each["sequence"] for each in page["messages"]], page["next"]) == ([1, 2], 3)


# Receiving and settling


async def test_received_messages_are_those_of_the_bus(api: Api) -> None:
    for body in BODIES:
        await api.bus.send("q", body, headers=HEADERS)
    answer = await api.client("POST", "/unibus/v1/messages/receive?entity=q", '{"count": 100}')
    found = msgspec.json.decode(answer.body, type=list[ReceivedMessage])
    assert [message_of_document(each.document).body for each in found] == BODIES
    assert await api.counts("q") == (0, len(BODIES), 0, 0, 0)
    tokens = [each.token for each in found]
    settled = await api.post("messages/settle?entity=q", {"verb": "complete", "tokens": tokens})
    assert settled == [{"token": token, "error": None} for token in tokens]
    assert await api.counts("q") == (0, 0, 0, 0, 0)


async def test_received_and_deleted(api: Api) -> None:
    await api.bus.send("q", 1)
    (found,) = await api.post("messages/receive?entity=q", {"lock": False})
    assert (found["token"], found["locked_until_ns"], found["document"]["body"]) == (None, None, 1)
    assert await api.counts("q") == (0, 0, 0, 0, 0)


async def test_completing_many_is_all_or_none(api: Api) -> None:
    tokens = await received(api, 3)
    await api.post("messages/settle?entity=q", {"verb": "complete", "tokens": tokens[:1]})
    given = {"verb": "complete", "tokens": tokens}
    assert same_error(await api.error("POST", "messages/settle?entity=q", given), LockLost, 410)
    assert await api.counts("q") == (0, 2, 0, 0, 0)


async def test_each_by_itself_reports_each_error(api: Api) -> None:
    tokens = await received(api, 3)
    await api.post("messages/settle?entity=q", {"verb": "complete", "tokens": tokens[1:2]})
    found = await api.post("messages/settle?entity=q", {"verb": "release", "tokens": tokens, "each": True})
    assert [each["error"] and each["error"]["code"] for each in found] == [None, "lock_lost", None]
    assert await api.counts("q") == (2, 0, 0, 0, 0)
    assert [each.delivery_count for each in await api.broker.peek("q", 0, 10)] == [0, 0]


@pytest.mark.parametrize(
    ("verb", "counts"),
    [
        ("abandon", (1, 0, 0, 0, 0)),
        ("release", (1, 0, 0, 0, 0)),
        ("defer", (0, 0, 0, 1, 0)),
        ("dead_letter", (0, 0, 0, 0, 1)),
    ],
)
async def test_every_verb(api: Api, verb: str, counts: tuple[int, ...]) -> None:
    tokens = await received(api, 1)
    given = {"verb": verb, "tokens": tokens, "reason": "why", "description": "more"}
    await api.post("messages/settle?entity=q", given)
    assert await api.counts("q") == counts
    if verb == "dead_letter":
        (dead,) = await api.broker.peek("q/$DeadLetterQueue", 0, 1)
        headers = message_of(dead).headers
        assert (headers["DeadLetterReason"], headers["DeadLetterErrorDescription"]) == ("why", "more")


async def test_a_lock_of_another_entity_is_not_settled(api: Api) -> None:
    tokens = await received(api, 1)
    await api.broker.create("queue", "other", {})
    for body in ({"verb": "complete", "tokens": tokens}, {"verb": "complete", "tokens": tokens, "each": True}):
        answer = await api.client("POST", "/unibus/v1/messages/settle?entity=other", msgspec.json.encode(body))
        found = answer.json()
        if isinstance(found, list):
            assert found[0]["error"]["code"] == MessageNotFound("x").code
        else:
            assert (answer.status, answer.code()) == (404, MessageNotFound("x").code)
    given = {"tokens": tokens}
    assert same_error(await api.error("POST", "messages/renew?entity=other", given), MessageNotFound, 404)
    assert await api.counts("q") == (0, 1, 0, 0, 0)


async def test_locks_are_renewed_together(api: Api) -> None:
    tokens = await received(api, 2)
    await api.clock.advance_async(20)
    found = await api.post("messages/renew?entity=q", {"tokens": tokens})
    assert [each["token"] for each in found] == tokens
    assert {each["locked_until_ns"] for each in found} == {api.broker.now_ns() + 60_000_000_000}
    await api.post("messages/settle?entity=q", {"verb": "complete", "tokens": tokens[:1]})
    assert same_error(await api.error("POST", "messages/renew?entity=q", {"tokens": tokens}), LockLost, 410)


async def test_a_client_that_leaves_while_it_waits_gets_nothing(api: Api) -> None:
    connection, running = api.begin("POST", "messages/receive?entity=q", {"wait_s": 60})
    await connection.waits.wait()
    connection.leave()
    await running
    await api.bus.send("q", 1)
    assert await api.counts("q") == (1, 0, 0, 0, 0)
    assert api.observer.answers[-1] == ("receive_messages", 499, "disconnected")


async def test_a_client_that_leaves_with_the_answer_on_its_way_releases(api: Api) -> None:
    """It has left before the answer is there: what was claimed for it is released, and not counted."""
    await api.bus.send("q", 1)
    connection = api.client.connect(b"{}")
    connection.leave()
    await api.client.run(connection, "POST", "/unibus/v1/messages/receive?entity=q")
    assert connection.started is None
    (message,) = await api.post("messages/receive?entity=q", {"wait_s": 5})
    assert message["delivery_count"] == 1


async def test_a_message_that_cannot_be_answered_is_released(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(claimed: object) -> list[ReceivedMessage]:
        raise DecodeError("damaged")

    monkeypatch.setattr("unibus.endpoints.http.management.messages.receive.received_records", fail)
    await api.bus.send("q", 1)
    assert same_error(await api.error("POST", "messages/receive?entity=q", {}), DecodeError, 400)
    assert await api.counts("q") == (1, 0, 0, 0, 0)


async def test_waiting_ends_when_the_server_stops(api: Api) -> None:
    connection, running = api.begin("POST", "messages/receive?entity=q", {"wait_s": 60})
    await connection.waits.wait()
    api.held.interrupted.set()
    await running
    assert connection.answer().json() == []


# Sessions


async def test_a_session_is_accepted_renewed_received_from_and_released(api: Api) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True, "lock_duration": 30})
    await api.bus.send("sessions", 1, session_id="s1")
    lock = await api.post("sessions/accept?entity=sessions", {})
    assert (lock["entity"], lock["session_id"], lock["lock_duration_s"]) == ("sessions", "s1", 30.0)
    named = {"session_id": "s1"}
    assert same_error(await api.error("POST", "sessions/accept?entity=sessions", named), SessionLocked, 409)
    assert same_error(await api.error("POST", "sessions/accept?entity=sessions", {}), SessionNotFound, 404)
    held = {"id": "s1", "token": lock["token"]}
    (message,) = await api.post("messages/receive?entity=sessions", {"session": held})
    assert message["document"]["session_id"] == "s1"
    await api.clock.advance_async(10)
    proof = {"session_id": "s1", "token": lock["token"]}
    renewed = await api.post("sessions/renew?entity=sessions", proof)
    assert renewed["locked_until_ns"] == lock["locked_until_ns"] + 10_000_000_000
    assert await api.post("sessions/release?entity=sessions", proof) == {}
    assert await api.counts("sessions") == (1, 0, 0, 0, 0)
    found = await api.error("POST", "sessions/renew?entity=sessions", proof)
    assert found == (410, "session_lock_lost")


async def test_a_client_that_leaves_while_it_waits_for_a_session_locks_none(api: Api) -> None:
    await api.broker.create("queue", "sessions", {"requires_session": True})
    connection, running = api.begin("POST", "sessions/accept?entity=sessions", {"wait_s": 60})
    await connection.waits.wait()
    connection.leave()
    await running
    await api.bus.send("sessions", 1, session_id="s1")
    assert (await api.post("sessions/accept?entity=sessions", {}))["session_id"] == "s1"


# Hostile input

DEEP = b'{"messages":[{"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
BAD_BODIES = [
    ("messages/send", b""),
    ("messages/send", b"[]"),
    ("messages/send", b'{"messages":[]}'),
    ("messages/send", b'{"messages":[{"body":1,"colour":"red"}]}'),
    ("messages/send", b'{"messages":[{"body":1}],"more":1}'),
    ("messages/send", b'{"messages":[{"priority":256}]}'),
    ("messages/send", b'{"messages":[{"priority":true}]}'),
    ("messages/send", b'{"messages":[{"delay_s":NaN}]}'),
    ("messages/send", b'{"messages":[{"delay_s":-1}]}'),
    ("messages/send", b'{"messages":[{"ttl_s":1e400}]}'),
    ("messages/send", b'{"messages":[{"body":"%%%","kind":"bytes"}]}'),
    ("messages/send", b'{"messages":[{"body":1,"kind":"pickle"}]}'),
    ("messages/send", b'{"messages":[{"body":{"$uuid":7},"kind":"tagged"}]}'),
    ("messages/send", b'{"messages":[{"headers":{"a":[1]}}]}'),
    ("messages/send", b'{"messages":[{"headers":[]}]}'),
    ("messages/send", b'{"messages":[{"document":{"unibus":99}}]}'),
    ("messages/send", b'{"messages":[{"document":{"unibus":1,"id":"a","channel":"b"},"body":1}]}'),
    ("messages/send", b'{"messages":[{"body":"\xff"}]}'),
    ("messages/send", b'{"messages":[{"body":"\\ud800"}]}'),
    ("messages/send", b'{"messages":[{"scheduled_at_ns":9223372036854775808}]}'),
    ("messages/send", DEEP),
    ("messages/receive", b'{"count":0}'),
    ("messages/receive", b'{"count":1001}'),
    ("messages/receive", b'{"count":1e9}'),
    ("messages/receive", b'{"count":"1"}'),
    ("messages/receive", b'{"wait_s":61}'),
    ("messages/receive", b'{"wait_s":-1}'),
    ("messages/receive", b'{"lock":1}'),
    ("messages/receive", b'{"session":{"id":"s"}}'),
    ("messages/receive", b'{"session":{"id":"s","token":"***"}}'),
    ("messages/receive", b'{"consumer":"\\ud800"}'),
    ("messages/settle", b'{"verb":"explode","tokens":["YQ=="]}'),
    ("messages/settle", b'{"verb":"complete","tokens":[]}'),
    ("messages/settle", b'{"verb":"complete","tokens":["not base64!"]}'),
    ("messages/settle", b'{"verb":"complete","tokens":[null]}'),
    ("messages/renew", b'{"tokens":"YQ=="}'),
    ("messages/renew", b'{"tokens":["\\u0000"]}'),
    ("sessions/accept", b'{"session_id":""}'),
    ("sessions/renew", b'{"session_id":"s"}'),
    ("sessions/release", b'{"session_id":"s","token":"*"}'),
]


@pytest.mark.parametrize(("path", "body"), BAD_BODIES, ids=lambda part: str(part)[:60])
async def test_what_cannot_be_read_is_refused_and_changes_nothing(api: Api, path: str, body: bytes) -> None:
    found = await api.error("POST", f"{path}?entity=q", body)
    assert found[0] == 400
    assert found[1] in {DecodeError("x").code, UsageError("x").code, "header_invalid"}
    assert await api.counts("q") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "query",
    [
        *("from=-1", "from=9223372036854775808", "from=1e3", "from=x", "top=0", "top=1001", "top=٣"),
        *("preview=0", "preview=4097", "session=", "from=%ff"),
    ],
)
async def test_a_query_that_cannot_be_read_is_refused(api: Api, query: str) -> None:
    assert (await api.error("GET", f"messages?entity=q&{query}"))[0] == 400


async def test_an_entity_that_is_missing_or_of_another_kind(api: Api) -> None:
    await api.broker.create("topic", "t", {})
    assert same_error(await api.error("GET", "messages"), UsageError, 400)
    assert same_error(await api.error("GET", "messages?entity=none"), EntityNotFound, 404)
    assert (await api.error("POST", "messages/receive?entity=t", {}))[0] == 400
    assert same_error(await api.error("POST", "messages/receive?entity=none", {}), EntityNotFound, 404)
    assert same_error(await api.error("POST", "sessions/accept?entity=none", {}), EntityNotFound, 404)
    assert (await api.error("POST", "sessions/accept?entity=q", {}))[0] == 400
    given = {"messages": [{"body": 1}]}
    await api.broker.settle("dead_letter", base64.b64decode((await received(api, 1))[0]))
    assert same_error(await api.error("POST", "messages/send?entity=q/$DeadLetterQueue", given), UsageError, 400)


async def received(api: Api, count: int) -> list[str]:
    for at in range(count):
        await api.bus.send("q", at)
    return [each["token"] for each in await api.post("messages/receive?entity=q", {"count": count})]
