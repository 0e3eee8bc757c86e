"""The logs: what a line has, what it never has, and that nothing from outside can write another."""

import base64
import io
import json
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.unit.endpoints.http.namespace import (
    ALL,
    ELSEWHERE,
    Holding,
    Namespace,
    ask,
    request,
    rule,
    token,
)
from unibus.core.access.rights import Right
from unibus.core.access.rules import well_known_rule
from unibus.endpoints.http.application.app import Front, application
from unibus.endpoints.http.application.observation import (
    AUDIT_LOG,
    REQUEST_LOG,
    TEXT_CHARS_MAX,
    Observation,
    administrative,
    end_log,
    log_to,
    switch_logs,
)
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.operation import Operation, OperationTable
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings
from unibus.errors import EntityNotFound

ROOT = rule("root", ALL, 1)
SENDER = rule("sender", ["Send"], 2)


@pytest.fixture(autouse=True)
def switched() -> Iterator[None]:
    switch_logs(True, True)
    yield
    for name in (REQUEST_LOG, AUDIT_LOG):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == name]


def observed(observation: Observation, each: Request, **given: Any) -> None:
    answer = {"operation": "send", "status": 201, "nanoseconds": 1_234_567, "error": "", "rule": "root", **given}
    observation.answered(each, **answer)


def test_a_line_of_the_request_log(caplog: pytest.LogCaptureFixture) -> None:
    each = request("/Q1/messages", headers={"X-Correlation-Id": "abc"})
    each.body = b"12345"
    observed(Observation(clock=lambda: 1_800_000_000.5), each)
    assert lines(caplog, REQUEST_LOG) == [
        {
            "time": "2027-01-15T08:00:00.500Z",
            "operation": "send",
            "entity": "Q1",
            "status": 201,
            "duration_ms": 1.235,
            "peer": ELSEWHERE,
            "rule": "root",
            "correlation_id": "abc",
            "error": "",
            "bytes": 5,
        }
    ]
    assert lines(caplog, AUDIT_LOG) == []


@pytest.mark.parametrize(
    ("given", "event"),
    [
        ({"operation": "put_entity"}, "changed"),
        ({"operation": "put_entity", "status": 409, "error": "entity_exists"}, "failed"),
        ({"operation": "put_entity", "status": 401, "error": "unauthorised", "rule": ""}, "refused"),
        ({"operation": "send", "status": 403, "error": "forbidden"}, "refused"),
    ],
)
def test_changes_and_refusals_are_audited(given: dict[str, Any], event: str, caplog: pytest.LogCaptureFixture) -> None:
    observed(Observation(["put_entity"]), request("/q1"), **given)
    [line] = lines(caplog, AUDIT_LOG)
    assert (line["event"], line["operation"]) == (event, given["operation"])


def test_the_audit_says_what_was_changed_where_the_entity_does_not(caplog: pytest.LogCaptureFixture) -> None:
    each = request("/q1")
    each.detail = "job 1: purge"
    observed(Observation(["create_job"]), each, operation="create_job")
    [line] = lines(caplog, AUDIT_LOG)
    assert (line["operation"], line["entity"], line["detail"]) == ("create_job", "q1", "job 1: purge")


def test_reading_and_messages_are_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    for given in ({}, {"operation": "get_entity"}, {"status": 404, "error": "entity_not_found"}):
        observed(Observation(["put_entity"]), request("/q1"), **given)
    assert lines(caplog, AUDIT_LOG) == []


def test_what_is_administrative_follows_from_right_and_method() -> None:
    async def handler(service: Service, given: Request) -> Response:
        return Response()

    rows = [("a", "PUT", Right.MANAGE), ("b", "GET", Right.MANAGE), ("c", "POST", Right.SEND), ("d", "POST", None)]
    table = [Operation(name, method, "entity", right, handler, "", ()) for name, method, right in rows]
    assert administrative(table) == ["a"]


def test_logs_that_are_switched_off_cost_no_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_logs(False, False)
    monkeypatch.setattr(Observation, "_line", lambda *given: pytest.fail("a line was written"))
    observed(Observation(["send"]), request("/q1/messages"), status=401, error="unauthorised")
    assert caplog.records == []


def test_a_stream_gets_the_lines_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    stream = io.StringIO()
    handler = log_to(stream)
    observed(Observation(["send"]), request("/q1/messages"))
    end_log(handler)
    observed(Observation(["send"]), request("/q2/messages"))
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["entity"], line.get("event")) for line in written] == [("q1", None), ("q1", "changed")]
    assert [line["entity"] for line in lines(caplog, REQUEST_LOG)] == ["q2"]


# Nothing from outside writes a line, or more than its share of one

HOSTILE = ['a"b', "a\nb", "a\r\nINFO forged", "a\x1b[31m", "a\x7f", "a\x9b31m", "a\u2028b", "\u202ereversed", "\\", "ü"]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_names_from_outside_are_escaped(text: str, caplog: pytest.LogCaptureFixture) -> None:
    from urllib.parse import quote

    each = request(f"/{quote(text, safe='')}/messages", headers={"X-Correlation-Id": "id\n{}"})
    each.scope["client"] = (text, 1)
    observed(Observation(["send"]), each)
    for record in caplog.records:
        written = record.getMessage()
        assert written.isascii()
        assert written.isprintable()
    [line] = lines(caplog, REQUEST_LOG)
    assert (line["entity"], line["peer"]) == (text, text)
    assert line["correlation_id"] != "id\n{}"


def test_half_of_a_surrogate_pair_does_not_end_a_request(caplog: pytest.LogCaptureFixture) -> None:
    each = request("/q1/messages")
    each.scope["client"] = ("x\ud800", 1)
    observed(Observation(), each)
    assert lines(caplog, REQUEST_LOG)[0]["peer"] == "x\ud800"


def test_long_names_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    observed(Observation(), request(f"/{'x' * 100_000}/messages"))
    assert len(lines(caplog, REQUEST_LOG)[0]["entity"]) == TEXT_CHARS_MAX


# No secrets, whatever happens

CANARY = "canary-7f3a"


async def test_no_log_holds_a_key_a_token_a_signature_or_a_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def handler(service: Service, given: Request) -> Response:
        if given.entity == "broken":
            raise RuntimeError("the handler failed")
        if given.entity == "unknown":
            raise EntityNotFound("there is no entity", "create it")
        return Response(200)

    rows = [("POST", "entity/messages", Right.SEND), ("PUT", "entity", Right.MANAGE), ("GET", "/metrics", Right.LISTEN)]
    operations = [Operation(row[1], *row, handler, "", (), has_body=True) for row in rows]
    table = OperationTable(tuple(operations))
    serving = cast(Any, Holding(Namespace([ROOT, SENDER])))
    observation = Observation(administrative(operations))
    service = Service(serving, SasAuthorization(serving, HttpSettings()), observation, 100)
    app = cast(Any, Front(service, table, application(service, table)))
    public = well_known_rule()
    credentials = [
        *[token(path, by, key=key) for by in (ROOT, SENDER) for path in ("", "q1") for key in (by.primary_key, CANARY)],
        token("", public),
        f"Bearer {CANARY}",
        "Basic " + base64.b64encode(f"root:{ROOT.primary_key}".encode()).decode(),
        "Basic " + base64.b64encode(f"root:{CANARY}".encode()).decode(),
        f"SharedAccessSignature {CANARY}",
        CANARY,
    ]
    seen = set()
    for text in credentials:
        headers = {
            "Authorization": text,
            "ServiceBusSupplementaryAuthorization": text,
            "BrokerProperties": CANARY,
            "Cookie": CANARY,
        }
        paths = ("/q1/messages", "/broken/messages", "/unknown/messages", "/metrics", "/nowhere/$x/y", "/q1", "/%zz")
        for path in [f"{each}?sig={CANARY}" for each in paths]:
            for method in ("POST", "PUT", "GET"):
                for body in (CANARY.encode(), CANARY.encode() * 100):
                    seen.add((await ask(app, method, path, headers, body)).status)
    assert {200, 400, 401, 403, 404, 405, 413, 500} <= seen
    written = "\n".join([logging.Formatter().format(record) for record in caplog.records])
    assert '"event":"refused"' in written
    assert "raised an unexpected error" in written
    secrets = [CANARY, "SharedAccessSignature", "sig=", "Bearer", "Basic "]
    secrets += [key for by in (ROOT, SENDER) for key in (by.primary_key, by.secondary_key)]
    secrets += [base64.b64encode(each.encode()).decode()[:12] for each in (CANARY, f"root:{ROOT.primary_key}")]
    for secret in secrets:
        assert secret not in written, secret


# Counting


def test_latencies_are_those_of_messages_that_were_sent_received_and_completed() -> None:
    observation = Observation()
    observed(observation, request("/Q1/messages"), nanoseconds=5)
    observed(observation, request("/q1/messages"), nanoseconds=6)
    observed(observation, request("/q1/messages"), status=404, error="entity_not_found")
    observed(observation, request("/q1/messages/head"), operation="receive", status=204)
    observed(observation, request("/q1/messages/head"), operation="receive", status=201)
    observed(observation, request("/q1/messages/1/2"), operation="complete", status=200)
    found = observation.statistics.latencies
    assert {kind: {name: sum(each.counts) for name, each in found[kind].own.items()} for kind in found} == {
        "send": {"q1": 2},
        "receive": {"q1": 1},
        "complete": {"q1": 1},
    }
    assert found["send"].own["q1"].sum_ns == 11
    assert observation.statistics.errors == {("send", "entity_not_found"): 1}
