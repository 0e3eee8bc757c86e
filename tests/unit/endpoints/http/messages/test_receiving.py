"""Receiving over HTTP: peek-lock, receive and delete, lists, deferred messages, peeking, waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

import msgspec
import pytest

from tests.unit.endpoints.http.messages.conftest import Namespace
from unibus.core.access.rights import Right
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.endpoints.http.messages import receive
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.runner import while_connected

T = TypeVar("T")


async def put(http: Namespace, body: object = b"x", entity: str = "q", **fields: object) -> int:
    result = await http.broker.send(entity, http.broker.message(entity, body, fields))
    return result.sequence


def items(answer: object) -> list[dict[str, object]]:
    assert isinstance(answer, list)
    return answer


async def test_peek_lock_answers_the_message_and_where_to_settle_it(http: Namespace) -> None:
    await put(http, b"hello", message_id="m-1", subject="greeting", ttl=60, content_type="text/plain")
    answer = await http("POST", "/q/messages/head")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (201, b"hello", "text/plain")
    [entry] = http.broker._store._state.find("q").entries.values()
    token = str(UUID(bytes_le=entry.token))
    now_ns = http.broker.now_ns()
    assert answer.headers["location"] == f"http://bus.test:5300/q/messages/1/{token}"
    properties = answer.properties()
    until = datetime.strptime(str(properties.pop("LockedUntilUtc")), "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    assert until == datetime.fromtimestamp(now_ns // 10**9 + 60, UTC)
    enqueued = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert properties == {
        "MessageId": "m-1",
        "Label": "greeting",
        "TimeToLive": 60,
        "SequenceNumber": 1,
        "DeliveryCount": 1,
        "EnqueuedSequenceNumber": 1,
        "State": "Active",
        "LockToken": token,
        "EnqueuedTimeUtc": enqueued,
    }
    assert await http.settled_counts("q") == (0, 1, 0, 0, 0)
    assert http.authorization.asked == [(Right.LISTEN, "q")]
    assert (await http("POST", "/q/messages/head")).status == 204


async def test_delete_removes_what_it_receives(http: Namespace) -> None:
    await put(http, b"once")
    answer = await http("DELETE", "/q/messages/head")
    assert (answer.status, answer.body) == (200, b"once")
    assert "location" not in answer.headers
    assert "LockToken" not in answer.properties()
    assert await http.settled_counts("q") == (0, 0, 0, 0, 0)
    empty = await http("DELETE", "/q/messages/head")
    assert (empty.status, empty.body) == (204, b"")
    assert "content-length" not in empty.headers


@pytest.mark.parametrize(
    ("mode", "status", "locked"),
    [("PeekLock", 201, 1), ("peek_lock", 201, 1), ("ReceiveAndDelete", 200, 0), ("receive-and-delete", 200, 0)],
)
async def test_modes(http: Namespace, mode: str, status: int, locked: int) -> None:
    await put(http)
    answer = await http("POST", f"/q/messages/head?mode={mode}")
    assert (answer.status, await http.settled_counts("q")) == (status, (0, locked, 0, 0, 0))


async def test_several_messages_are_a_list(http: Namespace) -> None:
    for number in range(3):
        await put(http, f"body {number}".encode(), headers={"n": number})
    answer = await http("POST", "/q/messages/head?numofmessages=2")
    assert (answer.status, [each["Body"] for each in items(answer.json())]) == (200, ["body 0", "body 1"])
    first = items(answer.json())[0]
    assert (first["UserProperties"], first["DeliveryCount"], first["SequenceNumber"]) == ({"n": 0}, 1, 1)
    settled = await http("DELETE", f"/q/messages/{first['MessageId']}/{first['LockToken']}")
    assert settled.status == 200
    rest = await http("POST", "/q/messages/receive", '{"max_count": 10, "receive_mode": "ReceiveAndDelete"}')
    assert [each["Body"] for each in items(rest.json())] == ["body 2"]
    assert "LockToken" not in items(rest.json())[0]
    empty = await http("POST", "/q/messages/receive")
    assert (empty.status, empty.json()) == (200, [])
    assert (await http("POST", "/q/messages/head?numofmessages=5")).json() == []


async def test_a_body_that_is_no_text_is_base64_in_a_list(http: Namespace) -> None:
    await put(http, b"\xff\x00")
    [seen] = items((await http("GET", "/q/messages")).json())
    assert (seen["Body"], seen["IsBodyBase64"]) == ("/wA=", True)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/q/messages/head?timeout=x", ""),
        ("POST", "/q/messages/head?timeout=-1", ""),
        ("POST", "/q/messages/head?timeout=301", ""),
        ("POST", "/q/messages/head?timeout=1e3", ""),
        ("POST", "/q/messages/head?timeout=inf", ""),
        ("POST", "/q/messages/head?mode=Take", ""),
        ("POST", "/q/messages/head?mode=", ""),
        ("DELETE", "/q/messages/head?mode=PeekLock", ""),
        ("POST", "/q/messages/head?numofmessages=0", ""),
        ("POST", "/q/messages/head?numofmessages=1001", ""),
        ("POST", "/q/messages/head?numofmessages=99999999999999999999999", ""),
        ("POST", "/q/messages/head?numofmessages=%zz", ""),
        ("POST", "/q/messages/head?mode=%ff", ""),
        ("POST", "/q/messages/receive", '{"max_count": 0}'),
        ("POST", "/q/messages/receive", '{"max_count": 1001}'),
        ("POST", "/q/messages/receive", '{"max_count": "3"}'),
        ("POST", "/q/messages/receive", '{"max_count": true}'),
        ("POST", "/q/messages/receive", '{"receive_mode": "Take"}'),
        ("POST", "/q/messages/receive", '{"receive_mode": null}'),
        ("POST", "/q/messages/receive", "[]"),
        ("POST", "/q/messages/receive", "{"),
        ("POST", "/q/messages/receive", "[" * 100_000),
        ("POST", "/q/messages/deferred", ""),
        ("POST", "/q/messages/deferred?sequences=", ""),
        ("POST", "/q/messages/deferred?sequences=a", ""),
        ("POST", "/q/messages/deferred?sequences=1,,2", ""),
        ("POST", "/q/messages/deferred?sequences=-1", ""),
        ("POST", f"/q/messages/deferred?sequences={'1,' * 1001}1", ""),
        ("POST", "/q/messages/head?timeout=", ""),
        ("POST", "/q/messages/head?numofmessages=", ""),
        ("POST", "/q/messages/receive", '{"max_count": 1.5}'),
        ("POST", "/q/messages/receive", '{"max_count": 1e300}'),
        ("GET", "/q/messages?session=", ""),
        ("GET", "/q/messages?count=0", ""),
        ("GET", "/q/messages?count=1001", ""),
        ("GET", "/q/messages?from=-1", ""),
        ("GET", "/q/messages?from=9223372036854775808", ""),
        ("GET", "/q/messages?from=x", ""),
    ],
)
async def test_bad_input_changes_nothing(strict: Namespace, method: str, target: str, body: str) -> None:
    await put(strict)
    answer = await strict(method, target, body)
    assert answer.status == 400, answer
    assert answer.code() in ("usage", "decode_error")
    assert await strict.settled_counts("q") == (1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "target", ["/none/messages/head", "/none/messages/head?timeout=1", "/q/subscriptions/s/messages/head"]
)
async def test_receiving_from_what_does_not_exist(http: Namespace, target: str) -> None:
    answer = await http("POST", target)
    assert (answer.status, answer.code()) == (404, "MessagingEntityNotFound")


# Messages of Python programs


@pytest.mark.parametrize(
    ("body", "content_type", "expected", "shown"),
    [
        (b"\x00raw", None, b"\x00raw", "application/octet-stream"),
        (b"raw", "text/plain", b"raw", "text/plain"),
        (bytearray(b"raw"), None, b"raw", "application/octet-stream"),
        ({"a": [1, None, "ä"]}, None, '{"a":[1,null,"ä"]}'.encode(), "application/json"),
        ({"a": 1}, "application/vnd.a+json", b'{"a":1}', "application/vnd.a+json"),
        ({"a": 1}, "text/plain", b'{"a":1}', "application/json"),
        ("text", None, b'"text"', "application/json"),
        (None, None, b"null", "application/json"),
        (datetime(2030, 1, 2, tzinfo=UTC), None, b'"2030-01-02T00:00:00Z"', "application/json"),
        ({(1, 2): 3}, None, b'{"$map":[[{"$tuple":[1,2]},3]]}', "application/json"),
        (2**80, None, b"1208925819614629174706176", "application/json"),
        (Serialized(SerializationFormat.MESSAGE_PACK, b"\x81"), None, b"\x81", "application/msgpack"),
        (Serialized(SerializationFormat.JSON, b"[ 1]"), None, b"[ 1]", "application/json"),
    ],
)
async def test_every_body_of_a_python_program_can_be_received(
    http: Namespace, body: object, content_type: str | None, expected: bytes, shown: str
) -> None:
    await http.bus.send("q", body, content_type=content_type)
    answer = await http("POST", "/q/messages/head")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (201, expected, shown)


async def test_every_type_of_header_comes_back_over_http(http: Namespace) -> None:
    headers = {
        "Text": 'ä "quoted" \\ \r\n end\x7f',
        "Least": -(2**63),
        "Whole": -7,
        "Float": 1e-07,
        "Yes": True,
        "Due": datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
        "Exact": datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "Price": Decimal("1.10"),
        "Id": UUID(int=5),
        "Wait": timedelta(seconds=1.5),
        "Raw": b"\xff",
        "None": None,
        "Nan": float("inf"),
        "two words": "x",
        "ünï": 1,
        "Content-Length": "99999",
        "Set-Cookie": "stolen=1",
        "X\r\nInjected: 1": "x",
        "": "x",
    }
    del headers[""]
    await http.bus.send("q", {"n": 1}, headers=headers)
    answer = await http("POST", "/q/messages/head?mode=ReceiveAndDelete")
    assert answer.headers["text"] == '"\\u00e4 \\"quoted\\" \\\\ \\r\\n end\\u007f"'
    shown = {
        name: answer.headers[name.lower()] for name in ("Whole", "Float", "Yes", "Due", "Exact", "Price", "Id", "Wait")
    }
    assert shown == {
        "Whole": "-7",
        "Float": "1e-07",
        "Yes": "true",
        "Due": "Wed, 02 Jan 2030 03:04:05 GMT",
        "Exact": "2030-01-02T03:04:05.000006Z",
        "Price": "1.10",
        "Id": '"00000000-0000-0000-0000-000000000005"',
        "Wait": "1.5",
    }
    assert answer.headers["content-length"] == "7"
    assert "set-cookie" not in answer.headers
    # What was received over HTTP and is sent again over HTTP is the same for a Python program.
    again = {
        name: value for name, value in answer.headers.items() if name not in ("brokerproperties", "content-length")
    }
    await http("POST", "/q/messages", answer.body, again)
    [back] = await http.bus.receive_batch("q", timeout=0, mode="receive_and_delete")
    lower = {"Text", "Least", "Whole", "Float", "Yes", "Due", "Exact"}
    assert dict(back.headers) == {name.lower() if name in lower else name: value for name, value in headers.items()}
    assert (back.body, back.message.content_type) == (b'{"n":1}', "application/json")


async def test_hostile_fields_cannot_break_an_answer(http: Namespace) -> None:
    evil = "x\r\nSet-Cookie: a=1"
    await http.bus.send("q", b"b", content_type=evil, subject=evil, traceparent=evil, tracestate=evil, reply_to="€")
    answer = await http("POST", "/q/messages/head")
    assert (answer.status, answer.headers["content-type"]) == (201, "application/octet-stream")
    assert (answer.properties()["Label"], answer.properties()["ReplyTo"]) == (evil, "€")
    assert not {"set-cookie", "traceparent", "tracestate"} & set(answer.headers)


async def test_a_python_program_reads_what_came_over_http(http: Namespace) -> None:
    class Order(msgspec.Struct):
        n: int

    await http("POST", "/q/messages", '{"n": 5}', {"content-type": "application/json", "Kind": '"new"'})
    [received] = await http.bus.receive_batch("q", timeout=0)
    assert msgspec.json.decode(received.body, type=Order).n == 5  # type: ignore[arg-type]
    assert dict(received.headers) == {"kind": "new"}
    await received.complete()


async def test_dead_lettered_messages_are_read_at_their_sub_queue(http: Namespace) -> None:
    await put(http, b"bad", message_id="m")
    location = (await http("POST", "/q/messages/head")).headers["location"].removeprefix("http://bus.test:5300")
    assert (await http("POST", f"{location}/deadletter?reason=broken&description=no%20way")).status == 200
    for path in ("/q/$DeadLetterQueue", "/servicebus/queues/q/$deadletterqueue", "/q/%24DeadLetterQueue"):
        [seen] = items((await http("GET", f"{path}/messages")).json())
        assert (seen["MessageId"], seen["DeadLetterSource"]) == ("m", "q")
    answer = await http("POST", "/q/$DeadLetterQueue/messages/head")
    assert (answer.status, answer.headers["deadletterreason"]) == (201, '"broken"')
    assert answer.headers["deadlettererrordescription"] == '"no way"'
    assert "/q/$DeadLetterQueue/messages/" in answer.headers["location"]
    assert (await http("DELETE", answer.headers["location"].removeprefix("http://bus.test:5300"))).status == 200
    assert await http.settled_counts("q") == (0, 0, 0, 0, 0)


async def test_peeking_shows_every_state_and_no_token(http: Namespace) -> None:
    for number in range(4):
        await put(http, b"%d" % number)
    await http("POST", "/q/messages/head")
    seen = items((await http("GET", "/q/messages?count=10")).json())
    assert [each["Body"] for each in seen] == ["0", "1", "2", "3"]
    assert not any("LockToken" in each for each in seen)
    later = items((await http("GET", "/q/messages?from=3&count=1")).json())
    assert [each["SequenceNumber"] for each in later] == [3]
    assert (await http("GET", "/q/messages?from=5")).json() == []
    assert await http.settled_counts("q") == (3, 1, 0, 0, 0)


async def test_deferred_messages_are_received_by_sequence(http: Namespace) -> None:
    for _ in range(2):
        await put(http)
    for _ in range(2):
        location = (await http("POST", "/q/messages/head")).headers["location"].removeprefix("http://bus.test:5300")
        assert (await http("POST", f"{location}/defer")).status == 200
    assert await http.settled_counts("q") == (0, 0, 0, 2, 0)
    missing = await http("POST", "/q/messages/deferred?sequences=1,7")
    assert (missing.status, missing.code()) == (404, "MessageNotFound")
    assert await http.settled_counts("q") == (0, 0, 0, 2, 0)
    found = items((await http("POST", "/q/messages/deferred?sequences=2,1")).json())
    assert [(each["SequenceNumber"], each["State"]) for each in found] == [(2, "Deferred"), (1, "Deferred")]
    gone = await http("POST", "/q/messages/deferred?sequences=2&mode=ReceiveAndDelete")
    assert gone.status == 404
    assert (await http("DELETE", f"/q/messages/1/{found[1]['LockToken']}")).status == 200
    assert await http.settled_counts("q") == (0, 1, 0, 0, 0)


# Waiting


async def test_a_waiting_request_gets_the_message_when_it_comes(http: Namespace) -> None:
    connection = http.client.connect()
    waiting = asyncio.ensure_future(http.client.run(connection, "POST", "/q/messages/head?timeout=60"))
    await connection.waits.wait()
    await http("POST", "/q/messages", "now")
    await waiting
    assert (connection.answer().status, connection.answer().body) == (201, b"now")


async def test_nothing_within_the_time(http: Namespace) -> None:
    assert (await http("POST", "/q/messages/head?timeout=0.01")).status == 204
    assert (await http("POST", "/q/messages/receive?timeout=0.01", "{}")).json() == []


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_client_that_leaves_takes_no_message(http: Namespace, method: str) -> None:
    connection = http.client.connect()
    waiting = asyncio.ensure_future(http.client.run(connection, method, "/q/messages/head?timeout=60"))
    await connection.waits.wait()
    connection.leave()
    await waiting
    assert connection.started is None
    assert http.observer.answers[-1][1:] == (499, "disconnected")
    await put(http)
    assert await http.settled_counts("q") == (1, 0, 0, 0, 0)
    assert (await http("POST", "/q/messages/head")).properties()["DeliveryCount"] == 1


@pytest.mark.parametrize(("method", "verb"), [("POST", "head"), ("DELETE", "head"), ("POST", "receive")])
async def test_a_server_that_stops_ends_the_waiting(http: Namespace, method: str, verb: str) -> None:
    connection = http.client.connect()
    waiting = asyncio.ensure_future(http.client.run(connection, method, f"/q/messages/{verb}?timeout=60"))
    await connection.waits.wait()
    http.interrupted.set()
    await waiting
    assert connection.answer().status == (204 if verb == "head" else 200)
    await put(http)
    assert await http.settled_counts("q") == (1, 0, 0, 0, 0)
    # What is there is still given, and nothing waits any more.
    assert (await http(method, f"/q/messages/{verb}?timeout=60")).status in (200, 201)
    assert (await http("POST", "/q/messages/head?timeout=60")).status == 204


async def test_a_client_that_leaves_in_the_moment_of_its_message(
    http: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(http)
    connection = http.client.connect()

    async def leaving(
        request: Request, work: Coroutine[object, object, T], undo: Callable[[T], Awaitable[None]] | None = None
    ) -> T:
        async def work_and_leave() -> T:
            found = await work
            connection.leave()
            return found

        return await while_connected(request, work_and_leave(), undo)

    monkeypatch.setattr(receive, "while_connected", leaving)
    waiting = asyncio.ensure_future(http.client.run(connection, "POST", "/q/messages/head?timeout=60"))
    await waiting
    assert connection.started is None
    monkeypatch.undo()
    assert await http.settled_counts("q") == (1, 0, 0, 0, 0)
    assert (await http("POST", "/q/messages/head")).properties()["DeliveryCount"] == 1


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"])
@pytest.mark.parametrize(("method", "status"), [("POST", 201), ("DELETE", 200)])
async def test_an_instant_that_utc_cannot_say_is_received(http: Namespace, method: str, status: int, text: str) -> None:
    """A receive that failed after the claim would lose the message, or block its queue."""
    given = f'{{"Due": {{"$datetime": "{text}"}}}}'
    assert (await http("POST", "/q/messages", "x", {"unibus-properties": given})).status == 201
    answer = await http(method, "/q/messages/head")
    assert answer.status == status
    assert msgspec.json.decode(answer.headers["unibus-properties"]) == {"Due": {"$datetime": text}}


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/q/messages?count=10"),
        ("POST", "/q/messages/head?numofmessages=10"),
        ("DELETE", "/q/messages/head?numofmessages=10"),
    ],
)
async def test_an_answer_is_bounded_in_bytes(http: Namespace, method: str, target: str) -> None:
    """The message that reaches the bound is in the answer, whole; those after it stay as they are.

    At a small bound, since sixteen megabytes take a second to write; the tests of the broker have the real one.
    """
    bound = 30_000
    http.broker.answer_bytes_max = bound
    for _ in range(4):
        await put(http, bytes(bound // 3 + 1))
    assert len(items((await http(method, target)).json())) == 3
    assert (await http.settled_counts("q"))[0] == (4 if method == "GET" else 1)
    await put(http, bytes(bound + 1))
    [last, *none] = items((await http("GET", "/q/messages?from=5&count=10")).json())
    assert (last["SequenceNumber"], none) == (5, [])


async def test_deferred_messages_that_no_answer_could_hold_are_refused(http: Namespace) -> None:
    http.broker.answer_bytes_max = 30_000
    for _ in range(2):
        await put(http, b"x" * 15_000)
        location = (await http("POST", "/q/messages/head")).headers["location"].removeprefix("http://bus.test:5300")
        assert (await http("POST", f"{location}/defer")).status == 200
    refused = await http("POST", "/q/messages/deferred?sequences=1,2")
    assert (refused.status, refused.code()) == (413, "MessageSizeExceeded")
    assert await http.settled_counts("q") == (0, 0, 0, 2, 0)
    assert (await http("POST", "/q/messages/deferred?sequences=2")).status == 200


async def test_properties_whose_names_differ_by_case_both_come_back(http: Namespace) -> None:
    """Two headers of one name would be one header to a client, with one of the values."""
    await put(http, headers={"Size": 1, "size": 2, "Colour": "red"})
    answer = await http("DELETE", "/q/messages/head")
    assert "size" not in answer.headers
    assert answer.headers["colour"] == '"red"'
    assert msgspec.json.decode(answer.headers["unibus-properties"]) == {"Size": 1, "size": 2}
