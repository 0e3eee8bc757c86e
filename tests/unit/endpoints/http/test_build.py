"""The application as a server builds it."""

import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.endpoints.http.namespace import ELSEWHERE, LOOPBACK, Holding, ask, token
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rules import AuthorizationRule, well_known_rule
from unibus.endpoints.http.application.app import NO_OPERATION, Asgi, application, build
from unibus.endpoints.http.application.observation import AUDIT_LOG, REQUEST_LOG
from unibus.endpoints.http.application.operations import TABLE


@dataclass(frozen=True)
class Settings:
    """As the server's own settings have them."""

    namespace: str = ""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    allow_networks: tuple[str, ...] = ()
    body_bytes_max: int = 1_000
    allow_reset: bool = True
    request_log: bool = True
    audit: bool = True
    metrics: bool = True
    metrics_entities_max: int = 10
    metrics_histograms_max: int = 10


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    yield
    for name in (REQUEST_LOG, AUDIT_LOG):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with MessageBus("memory://") as bus:
        yield Broker(bus)


def built(broker: Broker, ca_path: Path | None = None, **settings: Any) -> Asgi:
    return cast(Any, build(cast(Any, Holding(broker)), Settings(**settings), ca_path))


async def test_a_fresh_server_works_with_the_emulators_key_on_this_machine_only(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    app = built(broker)
    headers = {"Authorization": token("", well_known_rule(), broker.now_ns() // 10**9 + 60)}
    assert (await ask(app, "POST", "/unibus/v1/reset", headers, peer=LOOPBACK)).status == 200
    refused = await ask(app, "POST", "/unibus/v1/reset", headers, peer=ELSEWHERE)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "SharedAccessSignature")
    audit = [json.loads(record.getMessage()) for record in caplog.records if record.name == AUDIT_LOG]
    assert [(line["event"], line["operation"], line["status"]) for line in audit] == [
        ("changed", "reset", 200),
        ("refused", "reset", 401),
    ]


async def test_settings_of_the_server_reach_their_parts(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n")
    switches = {"allow_reset": False, "metrics": False, "request_log": False}
    app = built(broker, path, allow_networks=("203.0.113.0/24",), namespace="shop", **switches)
    headers = {"Authorization": token("", well_known_rule(), broker.now_ns() // 10**9 + 60)}
    assert (await ask(app, "GET", "/unibus/v1/ca.pem")).status == 200
    assert (await ask(app, "POST", "/unibus/v1/reset", headers)).status == 403
    assert (await ask(app, "GET", "/metrics", headers)).status == 404
    assert b"<Name>shop</Name>" in (await ask(app, "GET", "/$namespaceinfo", headers)).body
    assert not logging.getLogger(REQUEST_LOG).isEnabledFor(logging.INFO)
    assert logging.getLogger(AUDIT_LOG).isEnabledFor(logging.INFO)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/q/%zz", 400, "decode_error"),
        ("PATCH", "/health", 405, "no_operation"),
        ("GET", "/unibus/nothing", 404, "no_operation"),
        ("GET", "/health/", 200, ""),
    ],
)
async def test_requests_for_no_operation_are_answered_alike_and_counted(
    broker: Broker, method: str, path: str, status: int, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    front = build(cast(Any, Holding(broker)), Settings())
    fastapi = application(front._service, TABLE)
    answers = [await ask(cast(Any, app), method, path) for app in (front, fastapi)]
    assert [answer.status for answer in answers] == [status, status]
    assert answers[0].body == answers[1].body
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == REQUEST_LOG]
    assert [(line["status"], line["error"]) for line in lines] == 2 * [(status, error)]
    assert [line["operation"] == NO_OPERATION for line in lines] == 2 * [status != 200]
