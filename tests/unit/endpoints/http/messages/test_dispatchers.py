"""Both dispatchers answer alike: every hot request and the refusals on the way, through the front and FastAPI."""

import re

import pytest

from tests.unit.endpoints.asgi_client import Answer, AsgiClient
from tests.unit.endpoints.http.messages.conftest import TABLE, Held, Namespace
from unibus.endpoints.http.application.app import application
from unibus.endpoints.http.service import Service

CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


def comparable(answer: Answer) -> object:
    """Everything but lock tokens and drawn ids."""
    headers = {name: CHANGING.sub("*", value) for name, value in answer.headers.items()}
    return answer.status, headers, CHANGING.sub("*", answer.body.decode()), answer.names


async def story(client: AsgiClient, queue: str) -> tuple[list[Answer], set[str]]:
    """Every hot operation, with its success and its refusals."""
    answers: list[Answer] = []

    async def ask(method: str, target: str, body: str = "", headers: dict[str, str] | None = None) -> Answer:
        given = {"x-correlation-id": "same"} | (headers or {})
        answers.append(await client(method, target.replace("{q}", queue), body, given))
        return answers[-1]

    async def lock() -> str:
        answer = await ask("POST", "/{q}/messages/head")
        return answer.headers["location"].removeprefix("http://bus.test:5300")

    for number in range(4):
        properties = f'{{"MessageId": "m-{number}", "Label": "l"}}'
        await ask("POST", "/{q}/messages", f"b{number}", {"BrokerProperties": properties, "Kind": '"k"'})
    await ask("POST", "/{q}/messages", "x", {"BrokerProperties": "broken"})
    await ask("POST", "/none/messages", "x", {"accept": "*/*"})
    await ask("POST", "/servicebus/queues/{q}/messages?envelope=json", '{"body": "b4", "messageId": "m-4"}')
    first = await lock()
    await ask("POST", first)
    await ask("DELETE", first)
    await ask("DELETE", first)
    second = await lock()
    await ask("PUT", second)
    await ask("POST", f"{second}/renewlock")
    await ask("DELETE", "/{q}/messages/head")
    await ask("DELETE", "/{q}/messages/head?numofmessages=9")
    await ask("DELETE", "/{q}/messages/head")
    await ask("POST", "/{q}/messages/head?timeout=0.001")
    hot = {f"{each.method} {each.shape}" for each in TABLE.operations if each.hot}
    return answers, hot


async def test_every_hot_request_through_both(http: Namespace) -> None:
    for name in ("left", "right"):
        await http.broker.create("queue", name, {})
    ours, hot = await story(http.client, "left")
    theirs, _ = await story(http.other, "right")
    assert len(ours) == len(theirs) > 15
    for mine, other in zip(ours, theirs, strict=True):
        assert str(comparable(mine)).replace("left", "right") == str(comparable(other))
    used = {operation for operation, _, _ in http.observer.answers}
    assert used >= {each.name for each in TABLE.operations if each.hot}
    assert len(hot) == 6
    half = len(http.observer.answers) // 2
    assert http.observer.answers[:half] == http.observer.answers[half:]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PATCH", "/q/messages", 405),
        ("GET", "/q/messages/head", 405),
        ("HEAD", "/q/messages", 405),
        ("OPTIONS", "/q/messages", 405),
        ("POST", "/q/messages/a", 404),
        ("POST", "/q/messages/a/b/c", 404),
        ("POST", "/", 404),
        ("GET", "/favicon.ico", 404),
        ("POST", "/q%zz/messages", 400),
        ("POST", "/q//messages", 400),
        ("POST", "/q/messages/", 201),
        ("DELETE", "/q/$scheduled", 404),
        ("DELETE", "/q/$scheduled/1/2", 404),
        ("POST", "/q/$sessions/a/b/state/more", 404),
    ],
)
async def test_where_no_operation_is(strict: Namespace, method: str, target: str, status: int) -> None:
    answer = await strict(method, target, headers={"x-correlation-id": "same"})
    assert answer.status == status
    if status == 405:
        assert "POST" in answer.headers["allow"]


async def test_the_document_describes_every_operation(strict: Namespace) -> None:
    document = application(Service(Held(strict.broker), strict.authorization, strict.observer, 1), TABLE).openapi()
    documented = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    expected = {(each.method, path) for each in TABLE.operations for path in each.documented}
    assert documented == expected
    ids = [entry["operationId"] for methods in document["paths"].values() for entry in methods.values()]
    assert len(ids) == len(set(ids))
