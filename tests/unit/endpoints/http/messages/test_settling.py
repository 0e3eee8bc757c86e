"""Settling over HTTP: the token proves the lock, and the id has to fit it."""

from uuid import UUID, uuid4

import pytest

from tests.unit.endpoints.http.messages.conftest import Namespace

ORIGIN = "http://bus.test:5300"


async def locked(http: Namespace, message_id: str = "m-1", entity: str = "q") -> tuple[str, str]:
    """A locked message: the path where it is settled, and the text of its token."""
    await http.broker.send(entity, http.broker.message(entity, b"x", {"message_id": message_id}))
    answer = await http("POST", f"/{entity}/messages/head")
    return answer.headers["location"].removeprefix(ORIGIN), str(answer.properties()["LockToken"])


SETTLEMENTS = [
    ("DELETE", "", (0, 0, 0, 0, 0)),
    ("POST", "/complete", (0, 0, 0, 0, 0)),
    ("PUT", "", (1, 0, 0, 0, 0)),
    ("PUT", "/abandon", (1, 0, 0, 0, 0)),
    ("POST", "/abandon", (1, 0, 0, 0, 0)),
    ("PUT", "/defer", (0, 0, 0, 1, 0)),
    ("POST", "/Defer", (0, 0, 0, 1, 0)),
    ("PUT", "/deadletter", (0, 0, 0, 0, 1)),
    ("POST", "/deadletter", (0, 0, 0, 0, 1)),
    ("POST", "", (0, 1, 0, 0, 0)),
    ("POST", "/renewlock", (0, 1, 0, 0, 0)),
]


@pytest.mark.parametrize(("method", "word", "counts"), SETTLEMENTS)
async def test_every_way_to_settle(
    http: Namespace, method: str, word: str, counts: tuple[int, int, int, int, int]
) -> None:
    location, _ = await locked(http)
    answer = await http(method, f"{location}{word}")
    assert (answer.status, await http.settled_counts("q")) == (200, counts)


@pytest.mark.parametrize(("method", "word", "counts"), SETTLEMENTS)
async def test_an_id_that_is_another_message_leaves_the_lock(
    http: Namespace, method: str, word: str, counts: object
) -> None:
    _, token = await locked(http)
    answer = await http(method, f"/q/messages/other/{token}{word}")
    assert (answer.status, answer.code()) == (404, "MessageNotFound")
    assert await http.settled_counts("q") == (0, 1, 0, 0, 0)
    assert (await http("DELETE", f"/q/messages/m-1/{token}")).status == 200


@pytest.mark.parametrize(("method", "word", "counts"), SETTLEMENTS)
async def test_a_lost_lock_is_gone(http: Namespace, method: str, word: str, counts: object) -> None:
    location, _ = await locked(http)
    await http("DELETE", location)
    for target in (location, f"/q/messages/m-1/{uuid4()}"):
        answer = await http(method, f"{target}{word}")
        assert (answer.status, answer.code()) == (410, "MessageLockLost")


@pytest.mark.parametrize(("method", "word", "counts"), SETTLEMENTS)
async def test_a_token_that_is_none(http: Namespace, method: str, word: str, counts: object) -> None:
    await locked(http)
    for token in ("x", "1", "%00", "g" * 32, "0" * 33, "7da9cfd5-40d5"):
        answer = await http(method, f"/q/messages/m-1/{token}{word}")
        assert (answer.status, answer.code()) == (400, "usage"), token
    assert await http.settled_counts("q") == (0, 1, 0, 0, 0)


async def test_the_lock_belongs_to_its_entity(http: Namespace) -> None:
    await http.broker.create("queue", "other", {})
    _, token = await locked(http)
    assert (await http("DELETE", f"/other/messages/m-1/{token}")).status == 404
    assert (await http("DELETE", f"/none/messages/m-1/{token}")).code() == "MessagingEntityNotFound"
    assert await http.settled_counts("q") == (0, 1, 0, 0, 0)
    assert (await http("DELETE", f"/servicebus/queues/Q/messages/m-1/{token}")).status == 200


@pytest.mark.parametrize("form", ["plain", "upper", "hex", "braces"])
async def test_forms_of_a_token(http: Namespace, form: str) -> None:
    _, token = await locked(http)
    text = {"plain": token, "upper": token.upper(), "hex": UUID(token).hex, "braces": f"%7B{token}%7D"}[form]
    assert (await http("DELETE", f"/q/messages/1/{text}")).status == 200


@pytest.mark.parametrize("message_id", ["a/b", "?#%", "ä €", "..", "$sessions", "messages", "head", "7"])
async def test_odd_message_ids(http: Namespace, message_id: str) -> None:
    from urllib.parse import quote

    _, token = await locked(http, message_id)
    assert (await http("DELETE", f"/q/messages/{quote(message_id, safe='')}/{token}")).status == 200


async def test_renewing_says_until_when(http: Namespace) -> None:
    location, _ = await locked(http)
    short = await http("POST", location)
    assert str(short.properties()["LockedUntilUtc"]).endswith(" GMT")
    long = await http("POST", f"{location}/renewlock")
    document = long.json()
    assert isinstance(document, dict)
    assert str(document["LockedUntilUtc"]).endswith("Z")


async def test_reason_description_and_properties(http: Namespace) -> None:
    location, _ = await locked(http)
    body = '{"reason": "late", "description": "by a day", "properties": {"Days": 1}}'
    assert (await http("PUT", f"{location}/deadletter", body)).status == 200
    answer = await http("POST", "/q/$DeadLetterQueue/messages/head")
    assert (answer.headers["deadletterreason"], answer.headers["deadlettererrordescription"]) == (
        '"late"',
        '"by a day"',
    )
    assert answer.headers["days"] == "1"


async def test_abandoning_counts_and_keeps_properties(http: Namespace) -> None:
    location, _ = await locked(http)
    assert (await http("POST", f"{location}/abandon", '{"properties": {"Try": "again"}}')).status == 200
    answer = await http("POST", "/q/messages/head")
    assert (answer.properties()["DeliveryCount"], answer.headers["try"]) == (2, '"again"')


@pytest.mark.parametrize("word", ["abandon", "defer", "deadletter"])
@pytest.mark.parametrize(
    "body", ["x", "[]", '{"reason": 1}', '{"properties": []}', '{"properties": {"a": [1]}}', "\xff", "{" * 100_000]
)
async def test_a_wrong_body_settles_nothing(strict: Namespace, word: str, body: str) -> None:
    location, _ = await locked(strict)
    answer = await strict("POST", f"{location}/{word}", body.encode("latin-1"))
    assert (answer.status, await strict.settled_counts("q")) == (400, (0, 1, 0, 0, 0))


async def test_complete_by_the_token_alone(http: Namespace) -> None:
    _, token = await locked(http)
    for body, status in (("", 400), ("{}", 400), ('{"lock_token": 1}', 400), (f'{{"lock_token": "{uuid4()}"}}', 410)):
        assert (await http("POST", "/q/messages/complete", body)).status == status
    assert (await http("POST", "/servicebus/ns/q/messages/complete", f'{{"lock_token": "{token}"}}')).status == 200
    assert await http.settled_counts("q") == (0, 0, 0, 0, 0)
