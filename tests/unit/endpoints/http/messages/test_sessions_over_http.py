"""Sessions over HTTP: accept, receive inside, state, renew, release."""

import asyncio
import json
from urllib.parse import quote

import pytest

from tests.unit.endpoints.asgi_client import Answer
from tests.unit.endpoints.http.messages.conftest import Namespace

ORIGIN = "http://bus.test:5300"


@pytest.fixture
async def sessions(http: Namespace) -> Namespace:
    await http.broker.create("queue", "s", {"requires_session": True})
    return http


async def put(http: Namespace, session: str, body: str = "x") -> None:
    answer = await http("POST", "/s/messages", body, {"BrokerProperties": json.dumps({"SessionId": session})})
    assert answer.status == 201


def path(answer: Answer) -> str:
    assert answer.status == 201, answer
    return answer.headers["location"].removeprefix(ORIGIN)


def document(answer: Answer) -> dict[str, object]:
    found = answer.json()
    assert isinstance(found, dict)
    return found


async def test_a_session_from_accept_to_release(sessions: Namespace) -> None:
    await put(sessions, "a/ä", "one")
    await put(sessions, "a/ä", "two")
    accepted = await sessions("POST", "/s/$sessions")
    assert document(accepted)["SessionId"] == "a/ä"
    held = path(accepted)
    assert held == f"/s/$sessions/{quote('a/ä', safe='')}/{document(accepted)['LockToken']}"
    one = await sessions("POST", f"{held}/messages/head")
    assert (one.status, one.body, one.properties()["SessionId"]) == (201, b"one", "a/ä")
    settle = path(one)
    assert settle.startswith("/s/messages/1/")
    assert (await sessions("DELETE", settle)).status == 200
    two = await sessions("DELETE", f"{held}/messages/head")
    assert (two.status, two.body) == (200, b"two")
    assert (await sessions("POST", f"{held}/messages/head")).status == 204
    renewed = await sessions("POST", held)
    assert str(document(renewed)["LockedUntilUtc"]) >= str(document(accepted)["LockedUntilUtc"])
    assert (await sessions("DELETE", held)).status == 200
    lost = await sessions("POST", held)
    assert (lost.status, lost.code()) == (410, "SessionLockLost")


async def test_a_session_has_one_holder(sessions: Namespace) -> None:
    await put(sessions, "a")
    held = path(await sessions("POST", "/s/$sessions/a"))
    locked = await sessions("POST", "/s/$sessions/a")
    assert (locked.status, locked.code()) == (409, "SessionCannotBeLocked")
    assert (await sessions("POST", "/s/$sessions")).status == 204
    assert (await sessions("POST", "/s/$sessions?timeout=0.01")).status == 204
    await sessions("DELETE", held)
    assert (await sessions("POST", "/s/$sessions")).status == 201


async def test_the_state_of_a_session(sessions: Namespace) -> None:
    held = path(await sessions("POST", "/s/$sessions/new"))
    assert (await sessions("GET", f"{held}/state")).status == 204
    assert (await sessions("PUT", f"{held}/state", b"\x00\xff")).status == 200
    answer = await sessions("GET", f"{held}/state")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (
        200,
        b"\x00\xff",
        "application/octet-stream",
    )
    assert (await sessions("GET", "/s/$sessions")).json() == ["new"]
    assert (await sessions("PUT", f"{held}/state", b"")).status == 200
    assert (await sessions("GET", f"{held}/state")).body == b""
    too_large = await sessions("PUT", f"{held}/state", b"x" * (256 * 1024 + 1))
    assert too_large.status in (400, 413)
    assert (await sessions("DELETE", f"{held}/state")).status == 200
    assert (await sessions("GET", f"{held}/state")).status == 204


async def test_lists_of_sessions(sessions: Namespace) -> None:
    for name in ("a", "b", "c"):
        await put(sessions, name)
    assert (await sessions("GET", "/s/$sessions")).json() == ["a", "b", "c"]
    assert (await sessions("GET", "/s/$sessions?skip=1&top=1")).json() == ["b"]
    held = path(await sessions("POST", "/s/$sessions/b"))
    await sessions("PUT", f"{held}/state", b"x")
    assert (await sessions("GET", "/s/$sessions?updated_after=1990-01-01T00:00:00Z")).json() == ["b"]
    assert (await sessions("GET", "/s/$sessions?updated_after=2200-01-01T00:00:00Z")).json() == []


async def test_several_and_deferred_messages_of_a_session(sessions: Namespace) -> None:
    for body in ("one", "two"):
        await put(sessions, "a", body)
    held = path(await sessions("POST", "/s/$sessions/a"))
    found = (await sessions("POST", f"{held}/messages/receive", '{"max_count": 5}')).json()
    assert isinstance(found, list)
    assert [each["Body"] for each in found] == ["one", "two"]
    assert (await sessions("POST", f"/s/messages/1/{found[0]['LockToken']}/defer")).status == 200
    outside = await sessions("POST", "/s/messages/deferred?sequences=1")
    assert outside.status in (400, 404)
    back = (await sessions("POST", f"{held}/messages/deferred?sequences=1&mode=ReceiveAndDelete")).json()
    assert isinstance(back, list)
    assert [each["Body"] for each in back] == ["one"]


@pytest.mark.parametrize(
    ("method", "target", "status", "code"),
    [
        ("POST", "/s/messages/head", 400, "session_required"),
        ("POST", "/q/$sessions", 400, "session_not_allowed"),
        ("POST", "/q/$sessions/a", 400, "session_not_allowed"),
        ("POST", "/none/$sessions", 404, "MessagingEntityNotFound"),
        ("POST", "/s/$sessions/a/x", 400, "usage"),
        ("GET", "/s/$sessions/a/x/state", 400, "usage"),
        ("POST", "/s/$sessions/a/00000000-0000-0000-0000-000000000000/messages/head", 410, "SessionLockLost"),
        ("GET", "/s/$sessions/a/00000000-0000-0000-0000-000000000000/state", 410, "SessionLockLost"),
        ("PUT", "/s/$sessions/a/00000000-0000-0000-0000-000000000000/state", 410, "SessionLockLost"),
        ("DELETE", "/s/$sessions/a/00000000-0000-0000-0000-000000000000", 410, "SessionLockLost"),
        ("POST", f"/s/$sessions/{'x' * 129}", 400, "usage"),
        ("POST", "/s/$sessions?timeout=x", 400, "usage"),
        ("GET", "/s/$sessions?top=0", 400, "usage"),
        ("GET", "/s/$sessions?skip=-1", 400, "usage"),
        ("GET", "/s/$sessions?updated_after=soon", 400, "usage"),
    ],
)
async def test_refusals(sessions: Namespace, method: str, target: str, status: int, code: str) -> None:
    answer = await sessions(method, target)
    assert (answer.status, answer.code()) == (status, code)


async def test_peeking_at_one_session(sessions: Namespace) -> None:
    for name in ("a", "b", "a"):
        await put(sessions, name, name)
    seen = (await sessions("GET", "/s/messages?session=a&count=9")).json()
    assert isinstance(seen, list)
    assert [each["SequenceNumber"] for each in seen] == [1, 3]


async def test_waiting_for_a_session(sessions: Namespace) -> None:
    connection = sessions.client.connect()
    waiting = asyncio.ensure_future(sessions.client.run(connection, "POST", "/s/$sessions?timeout=60"))
    await connection.waits.wait()
    await put(sessions, "late")
    await waiting
    assert document(connection.answer())["SessionId"] == "late"


async def test_a_server_that_stops_ends_the_waiting(sessions: Namespace) -> None:
    connection = sessions.client.connect()
    waiting = asyncio.ensure_future(sessions.client.run(connection, "POST", "/s/$sessions?timeout=60"))
    await connection.waits.wait()
    sessions.interrupted.set()
    await waiting
    assert connection.answer().status == 204


async def test_a_client_that_leaves_holds_no_session(sessions: Namespace) -> None:
    connection = sessions.client.connect()
    waiting = asyncio.ensure_future(sessions.client.run(connection, "POST", "/s/$sessions?timeout=60"))
    await connection.waits.wait()
    connection.leave()
    await waiting
    assert connection.started is None
    await put(sessions, "free")
    assert (await sessions("POST", "/s/$sessions/free")).status == 201
