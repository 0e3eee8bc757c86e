"""The server itself over HTTP: status, log and stop."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.endpoints.http.management.live_client import Live
from tests.unit.endpoints.http.namespace import ALL, rule
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.bus.management.settings import entities as records
from unibus.bus.management.settings.server import ServerStatus
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.log_memory import BYTES_MAX, ERRORS_MAX, LINES_MAX, RecentLog
from unibus.testing import VirtualClock

PATH = "/unibus/v1/server"
LOCAL = rule("local", ALL, 7)
log = logging.getLogger("unibus.test")


@pytest.fixture(params=["front", "fastapi"])
async def live(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr(records, "EVERY_S", 0.01)
    async with MessageBus("memory://", clock=VirtualClock()) as bus:
        broker = Broker(bus)
        await broker.create("queue", "orders")
        found = Live(bus, broker, VirtualClock(), request.param)
        found.server.control.begin()
        found.server.control.store_url = "sqlite:///a.db"
        found.server.control.connections = lambda: (3, 1)
        yield found
        found.server.control.end()


async def test_the_status(live: Live) -> None:
    answer = await live.ask(PATH)
    found: Any = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert (found["name"], found["store"], found["durability"]) == ("unibus", "sqlite:///a.db", "D0")
    assert (found["health"], found["reasons"], found["connections"]) == ("healthy", [], 3)
    assert found["uptime_s"] >= 0
    assert "proof" not in found
    assert "in_per_s" in found


async def test_the_status_each_second_with_rates(live: Live) -> None:
    async with live.stream(f"{PATH}/live") as stream:
        found = ServerStatus(**(await stream.next()).data)
        assert (found.entities, found.in_per_s, found.requests_per_s) == (1, None, None)
        await live.send("orders", 1, 2, 3)
        while not found.in_per_s:
            found = ServerStatus(**(await stream.next()).data)
        assert found.active == 3
        assert found.requests_per_s is not None


# The log


async def test_the_last_warnings_and_errors(live: Live) -> None:
    log_event(log, logging.WARNING, "connection refused", peer="10.0.0.1", reason="TLS")
    try:
        raise ValueError("inside")
    except ValueError:
        log.exception("it failed")
    found: Any = (await live.ask(f"{PATH}/errors")).json()
    assert [each["level"] for each in found["errors"]] == ["warning", "error"]
    assert found["errors"][0]["text"] == "connection refused peer=10.0.0.1 reason=TLS"
    assert found["errors"][1]["text"] == "it failed"  # The traceback is in the log.
    lines: Any = (await live.ask(f"{PATH}/logs?count=1")).json()
    assert "ValueError: inside" in lines["lines"][0]["text"]
    assert (await live.ask(f"{PATH}/logs?count=0")).json() == {"lines": []}


async def test_the_log_as_it_comes(live: Live) -> None:
    log.warning("before")
    async with live.stream(f"{PATH}/logs?follow=1&count=1") as stream:
        assert (await stream.next()).data["text"] == "before"
        log.warning("now")
        assert (await stream.next()).data["text"] == "now"
    assert live.server.control.recent_log._calls == []


def test_the_memory_of_the_log_is_bounded() -> None:
    recent = RecentLog()
    for number in range(LINES_MAX + 10):
        recent.handle(logging.LogRecord("unibus", logging.ERROR, "", 1, f"line {number}", None, None))
    assert [each.text for each in recent.after(LINES_MAX + 8)] == [f"line {LINES_MAX + 8}", f"line {LINES_MAX + 9}"]
    assert (len(recent.after(0)), len(recent.errors)) == (LINES_MAX, ERRORS_MAX)
    assert recent.after(LINES_MAX + 10) == []
    for _ in range(300):
        recent.handle(logging.LogRecord("unibus", logging.INFO, "", 1, "x" * 20_000, None, None))
    assert sum(len(each.text) for each in recent.after(0)) <= BYTES_MAX


# Stopping


async def test_stopping_is_asked_of_the_server(live: Live) -> None:
    answer = await live.ask(f"{PATH}/stop", method="POST")
    assert (answer.status, answer.code()) == (403, "forbidden")  # A program of its own runs it.
    stopped: list[int] = []
    live.server.control.stop = lambda: stopped.append(1)
    answer = await live.ask(f"{PATH}/stop", method="POST")
    assert (answer.status, answer.json()) == (202, {"connections": 3, "requests_in_flight": 1})
    assert stopped == [1]
