"""The server's documents, the CA certificate and the reset call."""

import base64
import hashlib
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.unit.endpoints.http.monitoring.conftest import Rig
from tests.unit.endpoints.http.namespace import ALL, ELSEWHERE, LOOPBACK, ask, rule, token
from unibus.endpoints.http.application.app import application
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.monitoring.description import operations_of
from unibus.endpoints.http.monitoring.docs_page import curl_line, docs_page
from unibus.endpoints.http.service import Service

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\nBBBB\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
ROOT = rule("root", ALL, 1)


async def test_the_description_names_every_operation_that_it_should(rig: Rig) -> None:
    for path in ("/openapi.json", "/servicebus/openapi.json"):
        answer = await rig.get(path)
        assert answer.status == 200
        document = json.loads(answer.body)
        for operation in TABLE.operations:
            for documented in operation.documented:
                described = document["paths"].get(documented, {}).get(operation.method.lower())
                assert (described is not None) == operation.in_document, documented


async def test_the_description_says_which_operations_need_a_token(rig: Rig) -> None:
    document = json.loads((await rig.get("/openapi.json")).body)
    assert set(document["components"]["securitySchemes"]) == {"SharedAccessSignature"}
    for operation in TABLE.operations:
        for documented in operation.documented if operation.in_document else ():
            described = document["paths"][documented][operation.method.lower()]
            assert ("security" in described) == (operation.right is not None), documented
            assert described["summary"] == operation.summary
            assert "description" not in described


class Page(HTMLParser):
    """The elements of a page, and its text. Fails for an element that is not closed."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(body.decode())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", ["/docs", "/servicebus/docs"])
async def test_the_page_shows_every_operation(rig: Rig, path: str) -> None:
    answer = await rig.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.body)
    shown = {each["id"] for tag, each in page.elements if tag == "details"}
    assert shown == {operation.name for operation in TABLE.operations if operation.in_document}
    for operation in TABLE.operations:
        for documented in operation.documented if operation.in_document else ():
            assert documented in page.text
            assert operation.summary in page.text


async def test_the_page_needs_nothing_from_elsewhere(rig: Rig) -> None:
    answer = await rig.get("/docs")
    page = Page(answer.body)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "img", "iframe", "form", "base", "object"})
    addresses = {each[name] for _, each in page.elements for name in ("href", "src", "style") if name in each}
    assert {each for each in addresses if not each.startswith("#group-")} == {"openapi.json"}
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    style = answer.body.decode().partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'; base-uri 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_what_a_client_sends_is_escaped(rig: Rig) -> None:
    hostile = "x'\"><script>alert(1)</script>"
    answer = await ask(rig.app, "GET", "/docs", {"host": hostile}, peer=LOOPBACK)
    page = Page(answer.body)
    assert "script" not in {tag for tag, _ in page.elements}
    assert f"curl -i {shlex.quote(f'http://{hostile}/health')}" in page.text


def test_examples() -> None:
    service = Service(None, None, None, 1)  # type: ignore[arg-type]
    groups = operations_of(application(service, TABLE).openapi())
    written = {each.name: curl_line(each, "http://a:1") for group in groups.values() for each in group}
    lines = {
        name: " ".join(shlex.split(line.replace("\\\n", ""))) for name, line in written.items()
    }  # As a shell reads them.
    token = "-H Authorization: $TOKEN"
    assert lines["health"] == "curl -i http://a:1/health"
    assert lines["list_queues"] == f"curl -i http://a:1/$Resources/queues {token}"
    assert "'http://a:1/$Resources/queues'" in written["list_queues"]
    queue = "http://a:1/servicebus/queues/orders"
    assert lines["put_entity"] == f"curl -i -X PUT {queue} {token} -H Content-Type: application/json -d {{}}"
    assert lines["send"] == f"curl -i -X POST http://a:1/orders/messages {token} -H Content-Type: text/plain -d hello"
    assert lines["complete"] == f"curl -i -X DELETE http://a:1/orders/messages/ID/LOCK-TOKEN {token}"
    assert lines["complete_by_token"].endswith('-d {"lock_token": "LOCK-TOKEN"}')
    assert lines["receive_deferred"] == f"curl -i -X POST http://a:1/orders/messages/deferred?sequences=1 {token}"


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (None, None, "integer"),
        (0, None, "integer, from 0"),
        (0, 2**63 - 1, "integer, from 0"),
        (1, 10_000_000, "integer, 1 to 10000000"),
        (0, 300.0, "integer, 0 to 300"),
        (0.5, 2.25, "integer, 0.5 to 2.25"),
        (None, 123_456_789, "integer, at most 123456789"),
    ],
)
def test_bounds_of_a_parameter(least: float | None, most: float | None, text: str) -> None:
    schema = {"type": "integer"} | ({} if least is None else {"minimum": least})
    schema |= {} if most is None else {"maximum": most}
    parameter = {"name": "count", "in": "query", "schema": schema}
    document = {"paths": {"/x": {"get": {"operationId": "x", "parameters": [parameter], "responses": {}}}}}
    assert f"<td>{text}</td>" in docs_page(document, "http://a:1").decode()


def test_the_ids_of_the_page_are_unique() -> None:
    service = Service(None, None, None, 1)  # type: ignore[arg-type]
    page = Page(docs_page(application(service, TABLE).openapi(), "http://a:1"))
    ids = [each["id"] for _, each in page.elements if "id" in each]
    assert ids
    assert len(ids) == len(set(ids))


def test_a_page_without_operations() -> None:
    assert b"<h1>unibus</h1>" in docs_page({}, "http://a:1")


async def test_every_id_of_the_documentation_is_unique_and_every_link_to_a_group_works(rig: Rig) -> None:
    page = (await rig.get("/docs")).body.decode()
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert not [each for each in ids if " " in each]
    assert set(re.findall(r' href="#([^"]*)"', page)) == {each for each in ids if each.startswith("group-")}


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/docs/oauth2-redirect"])
async def test_from_elsewhere_pages_need_a_key(rig: Rig, path: str) -> None:
    assert (await rig.get(path, peer=ELSEWHERE)).status in (401, 404)


# The certificate


async def test_the_certificate_is_open_and_nothing_else_of_its_file(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(b"# text\n" + KEY + CERTIFICATE + KEY + CERTIFICATE)
    rig.use(ca_path=path)
    answer = await rig.get("/unibus/v1/ca.pem", peer=ELSEWHERE)
    assert (answer.status, answer.body) == (200, 2 * CERTIFICATE)
    assert answer.headers["content-type"] == "application/x-pem-file"


async def test_without_a_certificate_there_is_none(rig: Rig, tmp_path: Path) -> None:
    for path in (None, tmp_path / "missing.pem", tmp_path):
        rig.use(ca_path=path)
        assert (await rig.get("/unibus/v1/ca.pem")).status == 404
    (tmp_path / "key.pem").write_bytes(KEY)
    rig.use(ca_path=tmp_path / "key.pem")
    answer = await rig.get("/unibus/v1/ca.pem")
    assert (answer.status, b"c2VjcmV0" in answer.body) == (404, False)


# The reset call


async def reset(rig: Rig, headers: dict[str, str]) -> tuple[int, bytes]:
    answer = await ask(rig.app, "POST", "/unibus/v1/reset", headers)
    return answer.status, answer.body


async def test_reset_deletes_every_entity_and_keeps_the_rules(rig: Rig) -> None:
    rig.use(allow_reset=True)
    broker = rig.broker
    await broker.set_namespace_rules([ROOT])
    for number in range(230):
        await broker.create("queue", f"q{number}")
    await broker.create("topic", "t")
    await broker.create("subscription", "t/Subscriptions/s")
    await rig.send("q1")
    headers = {"Authorization": token("", ROOT, broker.now_ns() // 10**9 + 60)}
    assert await reset(rig, headers) == (200, b'{"deleted":231}')
    for kind in ("queue", "topic", "subscription", "dead-letter queue"):
        assert await broker.entities(kind) == []
    assert broker.namespace_rules() == (ROOT,)
    assert await reset(rig, headers) == (200, b'{"deleted":0}')


async def test_reset_is_refused_where_it_is_not_allowed(rig: Rig) -> None:
    await rig.broker.set_namespace_rules([ROOT])
    await rig.broker.create("queue", "q")
    headers = {"Authorization": token("", ROOT, rig.broker.now_ns() // 10**9 + 60)}
    assert (await reset(rig, headers))[0] == 403
    rig.use(allow_reset=True)
    assert (await reset(rig, {}))[0] == 401
    assert len(await rig.broker.entities("queue")) == 1


async def test_a_client_that_is_no_browser_gets_the_addresses(rig: Rig) -> None:
    answer = await rig.get("/")
    assert (answer.status, answer.body.decode().splitlines()[0]) == (200, "This is a unibus server.")
    for path in ("/docs", "/health", "/{queue}/messages", "/unibus/v1/"):
        assert path in answer.body.decode()
