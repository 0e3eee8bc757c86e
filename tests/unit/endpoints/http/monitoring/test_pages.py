"""The server's documents, the CA certificate and the reset call."""

import json
from pathlib import Path

import pytest

from tests.unit.endpoints.http.monitoring.conftest import Rig
from tests.unit.endpoints.http.namespace import ALL, ELSEWHERE, ask, rule, token
from unibus.endpoints.http.operations import TABLE

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


@pytest.mark.parametrize("path", ["/docs", "/servicebus/docs", "/redoc"])
async def test_pages_that_read_the_description(rig: Rig, path: str) -> None:
    answer = await rig.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert b"openapi.json" in answer.body


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect"])
async def test_from_elsewhere_pages_need_a_key(rig: Rig, path: str) -> None:
    assert (await rig.get(path, peer=ELSEWHERE)).status in (401, 404)
    assert (await rig.get(path, peer=ELSEWHERE)).status != 200


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
