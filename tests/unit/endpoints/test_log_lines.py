"""A line for each event, as JSON or as text. What came from outside breaks neither."""

import io
import json
import logging

import pytest

from tests.unit.endpoints.http.namespace import request
from unibus.endpoints.http.application.observation import AUDIT_LOG, REQUEST_LOG, Observation, switch_logs
from unibus.endpoints.log_lines import end_log, log_event, start_log

log = logging.getLogger("unibus.server")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(level: str, form: str, stream: io.StringIO) -> list[str]:
    handler = start_log(level, form, stream)
    try:
        log_event(log, logging.DEBUG, "detail", n=1)
        log_event(log, logging.INFO, "request", path='/a "b"\n\x1b[31m', status=200, ms=1.5, peers=["a", "b"])
        log_event(log, logging.ERROR, "failed")
        logging.getLogger("uvicorn.error").info("chatter")
    finally:
        end_log(handler)
    return stream.getvalue().splitlines()


def test_json(stream: io.StringIO) -> None:
    found = [json.loads(line) for line in lines("info", "auto", stream)]
    assert [each["event"] for each in found] == ["request", "failed"]
    assert found[0] | {"time": ""} == {
        "time": "",
        "level": "info",
        "event": "request",
        "path": '/a "b"\n\x1b[31m',
        "status": 200,
        "ms": 1.5,
        "peers": ["a", "b"],
    }


def test_text(stream: io.StringIO) -> None:
    first, second = lines("info", "text", stream)
    assert first.endswith('Z info request path="/a \\"b\\"\\n\\u001b[31m" status=200 ms=1.5 peers=a,b')
    assert second.endswith("Z error failed")


def test_levels(stream: io.StringIO) -> None:
    before = list(logging.getLogger("unibus").handlers)  # Those of servers that other tests share.
    assert len(lines("error", "json", stream)) == 1
    assert [json.loads(line)["event"] for line in lines("debug", "json", io.StringIO())] == [
        "detail",
        "request",
        "failed",
        "chatter",
    ]
    assert logging.getLogger("unibus").handlers == before
    assert logging.getLogger("unibus").propagate


@pytest.mark.parametrize("form", ["json", "text"])
def test_lines_of_the_request_log_are_written_as_they_are(form: str, stream: io.StringIO) -> None:
    handler = start_log("info", form, stream)
    switch_logs(True, True)
    try:
        Observation().answered(request("/Q1/messages"), "send", 201, 1_000_000, "", "root")
        log_event(log, logging.INFO, '{"time":"2026"}')
    finally:
        end_log(handler)
        for name in (REQUEST_LOG, AUDIT_LOG):
            logging.getLogger(name).setLevel(logging.NOTSET)
    of_request, imitation = stream.getvalue().splitlines()
    assert (json.loads(of_request)["operation"], json.loads(of_request)["status"]) == ("send", 201)
    assert not imitation.startswith('{"time":"2026"}')


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_traceback_of_an_exception_with_long_notes_is_bounded(form: str) -> None:
    stream = io.StringIO()
    handler = start_log("info", form, stream)
    try:
        error = ValueError("x")
        error.add_note("n" * 1_000_000)
        logging.getLogger("unibus").warning("failed", exc_info=error)
    finally:
        end_log(handler)
    assert "ValueError: x" in stream.getvalue()
    assert len(stream.getvalue()) < 100_000
