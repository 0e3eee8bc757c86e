"""What the log says about handlers that fail: each traceback once, and never none."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S, HandClock
from tests.unit.bus.test_at_exit import wait_for_line
from unibus import InMemoryQueueBackend, Message, MessageBus
from unibus.bus.execution.failure_log import (
    KINDS_MAX,
    REPEAT_NS,
    FailedDelivery,
    FailureLog,
    command_for_store,
    one_line,
    shown,
)
from unibus.endpoints.log_lines import end_log, start_log
from unibus.errors import RequestFailed
from unibus.sync import MessageBus as SyncBus

Publish = Callable[[MessageBus, object], Awaitable[None]]


def fail(message: Message) -> None:
    raise ValueError(f"card {message.body} declined")


async def fail_async(message: Message) -> None:
    await asyncio.sleep(0)
    fail(message)


async def publish(bus: MessageBus, body: object) -> None:
    await bus.publish("orders", body)
    await bus.drain(GUARD_S)


async def request(bus: MessageBus, body: object) -> None:
    with pytest.raises(RequestFailed):
        await bus.request("orders", body, timeout=GUARD_S)
    await bus.drain(GUARD_S)


async def publish_to_backend(bus: MessageBus, body: object) -> None:
    await bus.publish("orders", body)
    backend = bus._workers.backend  # type: ignore[union-attr]
    await asyncio.wait_for(backend.get("orders/$DeadLetterQueue"), GUARD_S)


WAYS: dict[str, tuple[Callable[..., object], object, dict[str, Any], Publish]] = {
    "async": (fail_async, None, {}, publish),
    "sync": (fail, None, {}, publish),
    "inline": (fail, None, {"dispatch": "inline"}, publish),
    "request": (fail_async, None, {}, request),
    "persistent async": (fail_async, "sqlite", {}, publish),
    "persistent sync": (fail, "jsonfile", {}, publish),
    "persistent request": (fail, "sqlite", {}, request),
    "backend async": (fail_async, InMemoryQueueBackend, {}, publish_to_backend),
    "backend sync": (fail, InMemoryQueueBackend, {}, publish_to_backend),
}


def bus_of(place: object, folder: Path) -> MessageBus:
    if isinstance(place, str):
        return MessageBus(f"{place}:///{folder}/store.db")
    return MessageBus() if place is None else MessageBus(InMemoryQueueBackend())


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "unibus" and each.levelno == level]


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    formatter = logging.Formatter()
    return [formatter.formatException(each.exc_info) for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("attempts", [0, 2])
@pytest.mark.parametrize("way", WAYS)
async def test_one_traceback_a_line_for_each_retry_and_an_error(
    way: str, attempts: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, place, options, publish_one = WAYS[way]
    async with bus_of(place, folder) as bus:
        bus.subscribe("orders", handler, group="billing", retry_attempts=attempts, retry_delay=0, **options)
        await publish_one(bus, 7)
        first, *others = lines(caplog, logging.WARNING)
        (dead,) = lines(caplog, logging.ERROR)
    assert f"handler {handler.__module__}.{handler.__name__} of group 'billing'" in first
    assert "on channel 'orders'" in first
    assert f"delivery 1 of {attempts + 1}, {'retry at once' if attempts else 'no retry'}: ValueError: card 7" in first
    assert [line.split("delivery ")[1].split(":")[0] for line in others] == ["2 of 3, retry at once"][:attempts]
    assert f"after {'3 deliveries' if attempts else '1 delivery'} to group 'billing' (MaxDeliveryCountExceeded)" in dead
    assert "message " + first.split("message ")[1].split(",")[0] + " of channel 'orders'" in dead
    (trace,) = tracebacks(caplog)
    assert trace.endswith("ValueError: card 7 declined")
    assert "unibus/bus/" not in trace


async def test_each_group_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus() as bus:
        bus.subscribe("orders", fail, group="a", retry_attempts=1, retry_delay=0)
        bus.subscribe("orders", fail_async, group="b", retry_attempts=1, retry_delay=0)
        await publish(bus, 7)
    assert len(tracebacks(caplog)) == 2
    assert len(lines(caplog, logging.ERROR)) == 2


async def test_equal_failures_show_one_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus() as bus:
        bus.subscribe("orders", fail, group="g", retry_attempts=1, retry_delay=0)
        for number in range(100):
            await bus.publish("orders", number)
        await bus.drain(GUARD_S)
    assert len(tracebacks(caplog)) == 1
    assert len([line for line in lines(caplog, logging.WARNING) if "traceback above" in line]) == 99
    assert len(lines(caplog, logging.ERROR)) == 100  # Each of them names its message.


async def test_a_new_kind_of_error_is_never_hidden(caplog: pytest.LogCaptureFixture) -> None:
    def changing(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("one")
        if message.delivery_count == 2:
            raise ValueError("another line")
        try:
            fail(message)
        except ValueError as error:
            raise KeyError("a cause") from error

    async with MessageBus() as bus:
        bus.subscribe("orders", changing, group="g", retry_attempts=3, retry_delay=0)
        await publish(bus, 7)
    one, another, chained = tracebacks(caplog)
    assert (one.count("Traceback"), another.count("Traceback"), chained.count("Traceback")) == (1, 1, 2)
    assert "direct cause" in chained


def test_kinds_differ_by_what_caused_them_and_by_what_is_in_a_group(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(lambda: 0)

    def raised(cause: BaseException) -> BaseException:
        try:
            raise RuntimeError("always here") from cause
        except RuntimeError as error:
            return error

    for cause in (KeyError(), ValueError(), ExceptionGroup("g", [OSError()]), ExceptionGroup("g", [TypeError()])):
        log.retried(FailedDelivery("h", "g", "c", "1", 1, 2, raised(cause)), 0)
        log.retried(FailedDelivery("h", "g", "c", "2", 1, 2, raised(cause)), 0)
    assert len(tracebacks(caplog)) == 4


def test_a_class_that_is_defined_at_each_failure_is_of_one_kind(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(lambda: 0)
    for number in range(5):

        class Local(Exception):
            pass

        log.retried(FailedDelivery("h", "g", "c", str(number), 1, 2, Local()), 0)
    assert len(tracebacks(caplog)) == 1


def test_a_minute_later_the_traceback_is_shown_again_but_not_for_a_retry(caplog: pytest.LogCaptureFixture) -> None:
    time = HandClock()
    log = FailureLog(lambda: time.monotonic)
    error = ValueError("x")
    log.retried(FailedDelivery("h", "g", "c", "1", 1, 9, error), 0)
    time.advance(REPEAT_NS / 1e9)
    log.retried(FailedDelivery("h", "g", "c", "1", 2, 9, error), 0)
    assert len(tracebacks(caplog)) == 1
    log.retried(FailedDelivery("h", "g", "c", "2", 1, 9, error), 0)
    assert len(tracebacks(caplog)) == 2


def test_the_log_remembers_a_limited_number_of_kinds(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog(lambda: 0)
    for number in range(KINDS_MAX + 10):
        log.retried(FailedDelivery(f"h{number}", "g", "c", "1", 1, 9, ValueError()), 0)
    assert len(tracebacks(caplog)) == KINDS_MAX + 10
    assert len(log._logged_ns) == KINDS_MAX


@pytest.mark.parametrize("place", [None, "sqlite", InMemoryQueueBackend])
async def test_a_body_that_does_not_fit_is_one_line_with_the_field(
    place: object, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def typed(order: dict[str, int]) -> None:
        raise AssertionError("not called")

    publish_one = publish_to_backend if place is InMemoryQueueBackend else publish
    async with bus_of(place, folder) as bus:
        bus.subscribe("orders", typed, group="g")
        await publish_one(bus, {"id": "x"})
    assert lines(caplog, logging.WARNING) == []
    (dead,) = lines(caplog, logging.ERROR)
    assert "(PayloadMismatch)" in dead
    assert "got `str` - at `$[...]`" in dead
    assert "\n" not in dead
    assert tracebacks(caplog) == []


def test_a_handler_that_cannot_be_called_shows_where(caplog: pytest.LogCaptureFixture) -> None:
    # A builtin has no frame of its own, so all frames are of the bus: they are better than none.
    with SyncBus() as bus:
        bus.subscribe("c", abs, group="g", retry_attempts=0)
        bus.publish("c", 1)
    (trace,) = tracebacks(caplog)
    assert "bad operand type for abs()" in trace


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_what_ends_no_thread_is_shown_once(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    def leave(message: Message) -> None:
        raise kind

    with SyncBus() as bus:
        bus.subscribe("c", leave, group="g", retry_attempts=1, retry_delay=0)
        bus.publish("c", 1)
    assert len(tracebacks(caplog)) == 1
    assert any("the thread continues" in line for line in lines(caplog, logging.ERROR))


def test_failures_in_many_threads_at_once_show_one_traceback(caplog: pytest.LogCaptureFixture) -> None:
    barrier = threading.Barrier(4)

    def together(message: Message) -> None:
        barrier.wait(GUARD_S)
        raise ValueError("x")

    with SyncBus(worker_count=4) as bus:
        bus.subscribe("c", together, group="g", concurrency=4, retry_attempts=0)
        for number in range(4):
            bus.publish("c", number)
    assert len(tracebacks(caplog)) == 1
    assert len(lines(caplog, logging.ERROR)) == 4


def test_the_next_process_shows_the_traceback_of_a_redelivery(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    time = HandClock()
    for number, what in ((1, "retry in 3600 s"), (2, "no retry")):
        bus = SyncBus(f"sqlite:///{folder}/store.db", clock=time.clock())
        bus.subscribe("orders", fail, group="g", retry_attempts=1, retry_delay=3_600, retry_jitter=0.0)
        if number == 1:
            bus.publish("orders", 7)
        wait_for_line(caplog, "is dead-lettered" if number == 2 else what)
        bus.close(0)
        (line,) = lines(caplog, logging.WARNING)
        assert f"delivery {number} of 2, {what}" in line
        assert len(tracebacks(caplog)) == 1
        caplog.clear()
        time.advance(3_600)


async def test_the_error_names_where_the_message_is_and_what_shows_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with MessageBus() as bus:
        bus.subscribe("orders", fail, group="g", retry_attempts=0)
        await publish(bus, 1)
        bus.create_channel("named", dead_letter_channel="failed")
        bus.subscribe("named", fail, group="g", retry_attempts=0)
        await bus.publish("named", 2)
        await bus.drain(GUARD_S)
        own, named = lines(caplog, logging.ERROR)
        assert "in 'orders/$DeadLetterQueue'" in own
        assert own.endswith("; show it: bus.dead_letters('orders')")
        assert [each.body for each in eval(own.split("show it: ")[1])] == [1]
        assert "in 'failed'" in named
        assert named.endswith("; show it: bus.subscribe('failed', …)")
    caplog.clear()
    async with MessageBus(f"sqlite:///{folder}/store.db") as bus:
        bus.create_channel("named", dead_letter_channel="failed")
        bus.subscribe("named", fail, group="g", retry_attempts=0)
        sent = await bus.publish("named", 2)
        await bus.drain(GUARD_S)
        (line,) = lines(caplog, logging.ERROR)
        assert "in 'named/Subscriptions/g/$DeadLetterQueue'" in line  # No group of 'failed' listens yet.
        assert line.endswith(command_for_store(f"sqlite:///{folder}/store.db", sent.id))


async def test_the_error_of_a_store_in_memory_names_a_call(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus().with_persistence("memory://") as bus:
        bus.create_channel("kept", persistent=True)
        bus.create_channel("named", persistent=True, dead_letter_channel="failed")
        for channel in ("kept", "named"):
            bus.subscribe(channel, fail, group="g", retry_attempts=0)
            await bus.publish(channel, 1)
            await bus.drain(GUARD_S)
        kept, named = lines(caplog, logging.ERROR)
        assert kept.endswith("show it: bus.dead_letters('kept')")
        assert [each.body for each in eval(kept.split("show it: ")[1])] == [1]
        assert named.endswith("show it: bus.peek('failed')")
        assert [each.body for each in await eval(named.split("show it: ")[1])] == [1]


@pytest.mark.processes
@pytest.mark.parametrize("message_id", ["plain", 'it\'s "quoted" $HOME `id`'])
def test_the_command_shows_the_message_while_the_program_runs(folder: Path, message_id: str) -> None:
    url = f"sqlite:///{folder}/store.db"
    with SyncBus(url) as bus:
        bus.subscribe("orders", fail, group="g", retry_attempts=0)
        bus.send("orders", 7, message_id=message_id)
        bus.drain(GUARD_S)
        command = command_for_store(url, message_id).replace("unibus", f"{sys.executable} -m unibus", 1)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["id"] == message_id


@pytest.mark.processes
def test_without_any_setup_of_logging_the_traceback_is_on_the_error_stream(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        "from unibus.sync import MessageBus\n"
        "def bill(message):\n"
        "    raise ValueError('no card')\n"
        "with MessageBus() as bus:\n"
        "    bus.subscribe('orders', bill, retry_attempts=1, retry_delay=0)\n"
        "    bus.publish('orders', 1)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    text = done.stderr
    assert text.count("Traceback") == 1
    assert f'File "{script}", line 3, in bill' in text
    assert "handler __main__.bill of group '__main__.bill' failed on channel 'orders'" in text
    assert "show it: bus.dead_letters('orders')" in text


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_of_a_server_shows_it_too(form: str) -> None:
    stream = io.StringIO()
    handler = start_log("info", form, stream)
    try:
        with SyncBus() as bus:
            bus.subscribe("orders", fail, group="g", retry_attempts=0)
            bus.publish("orders", 7)
    finally:
        end_log(handler)
    text = stream.getvalue()
    assert text.count("Traceback") == 1
    assert "ValueError: card 7 declined" in text


def test_texts_of_users_stay_in_their_line() -> None:
    assert one_line(ValueError("a\nERROR forged")) == "ValueError: a ERROR forged"
    assert len(one_line(ValueError("x" * 10_000))) == 500
    assert shown("a\nb") == r"'a\nb'"


async def test_a_handler_that_takes_the_message_for_its_body_is_helped(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus() as bus:
        bus.subscribe("c", lambda order: order["id"], retry_attempts=0)
        await bus.publish("c", {"id": 1})
        await bus.drain(10)
    (line,) = lines(caplog, logging.ERROR)
    assert "the handler got a Message: use message.body" in line
