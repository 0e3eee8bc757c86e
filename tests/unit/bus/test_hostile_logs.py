"""Log handlers and exceptions that raise: no message is lost, and its consumer continues."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S
from unibus import InMemoryQueueBackend, Message, MessageBus
from unibus.bus.error_texts import CHAINED_MAX, TEXT_CHARS_MAX, described, related, trace_text, traceback_of
from unibus.bus.execution.failure_log import FailedDelivery, FailureLog, one_line
from unibus.safe_log import SafeLogger
from unibus.sync import MessageBus as SyncBus

LOGGER = logging.getLogger("unibus")


class Raising(logging.Handler):
    """A handler of the program that fails for every record."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        raise self.error


@pytest.fixture
def raising() -> Iterator[Raising]:
    handler = Raising(RuntimeError("the log handler is broken"))
    LOGGER.addHandler(handler)
    try:
        yield handler
    finally:
        LOGGER.removeHandler(handler)


class HostileType(type):
    __name__ = property(lambda cls: 1 / 0)  # type: ignore[assignment]

    def __hash__(cls) -> int:
        raise RuntimeError("no hash")


class HostileName(Exception, metaclass=HostileType):
    pass


class HostileText(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


class HostileLinks(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise RuntimeError("no cause")

    __context__ = __traceback__ = __cause__  # type: ignore[assignment]


class HostileClass(Exception):
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no class")


class HostileString(str):
    def __getitem__(self, key: object) -> str:
        raise RuntimeError("no part")

    def __format__(self, form: str) -> str:
        raise RuntimeError("no format")

    __len__ = split = __getitem__  # type: ignore[assignment]


class HostileTextType(Exception):
    def __str__(self) -> str:
        return HostileString("text")


class EndlessNotes(Exception):
    class _Endless(Sequence[str]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, at: object) -> str:  # type: ignore[override]
            return "one more"

    __notes__ = _Endless()  # type: ignore[assignment]


def noted(*notes: object) -> Exception:
    error = ValueError("noted")
    error.__notes__ = list(notes)  # type: ignore[arg-type]
    return error


def from_odd_globals() -> Exception:
    """An exception with a frame whose module has no name that is text."""

    class Odd(dict[str, object]):
        get = None  # type: ignore[assignment]

    names = Odd(__name__=HostileText())
    exec("def fail():\n    raise ValueError('odd')", names)
    with pytest.raises(ValueError, match="odd") as raised:
        names["fail"]()  # type: ignore[operator]
    return raised.value


def without_lines() -> Exception:
    def fail() -> None:
        raise ValueError("without lines")

    with pytest.raises(ValueError, match="without") as raised:
        FunctionType(fail.__code__.replace(co_linetable=b""), {})()
    return raised.value


def chained() -> Exception:
    error = first = ValueError("0")
    for number in range(3_000):
        error.__context__ = ValueError(str(number))
        error = error.__context__
    return first


HOSTILE = {
    "name": HostileName,
    "text": HostileText,
    "links": HostileLinks,
    "class": HostileClass,
    "chain": chained,
    "group": lambda: ExceptionGroup("g", [HostileText(), HostileName()]),
    "long": lambda: ValueError("x" * 1_000_000),
    "text type": HostileTextType,
    "endless notes": EndlessNotes,
    "notes that are none": lambda: noted(7, HostileText()),
    "odd globals": from_odd_globals,
    "no lines": without_lines,
}
PLACES = ["memory", "sqlite", "jsonfile"]


def bus_of(place: str, folder: Path) -> SyncBus:
    return SyncBus() if place == "memory" else SyncBus(f"{place}:///{folder}/store.db")


def check_retried_and_dead_lettered(bus: SyncBus, error: object, is_async: bool) -> None:
    handled: list[object] = []

    def fail(body: int) -> None:
        handled.append(body)
        if body == 0:
            raise error() if callable(error) else error  # type: ignore[misc]

    async def fail_async(body: int) -> None:
        fail(body)

    bus.subscribe("c", fail_async if is_async else fail, group="g", retry_attempts=1, retry_delay=0)
    for body in range(4):
        bus.publish("c", body)
    assert bus.drain(GUARD_S)
    assert sorted(handled) == [0, 0, 1, 2, 3]  # type: ignore[type-var]
    assert [each.body for each in bus.dead_letters("c")] == [0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_log_handler_that_raises_loses_no_message(
    place: str, is_async: bool, folder: Path, raising: Raising, capsys: pytest.CaptureFixture[str]
) -> None:
    with bus_of(place, folder) as bus:
        check_retried_and_dead_lettered(bus, ValueError, is_async)
    assert raising.count
    lost = [line for line in capsys.readouterr().err.splitlines() if "a log handler failed" in line]
    assert len(lost) == raising.count
    assert "(RuntimeError: the log handler is broken)" in lost[0]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_log_handler_that_exits_ends_no_thread_of_the_bus(is_async: bool, raising: Raising) -> None:
    raising.error = SystemExit(1)
    with SyncBus(worker_count=1) as bus:
        check_retried_and_dead_lettered(bus, SystemExit, is_async)


async def test_a_log_handler_that_raises_stops_no_backend_worker(raising: Raising) -> None:
    backend = InMemoryQueueBackend()
    async with MessageBus(backend) as bus:

        async def fail(body: int) -> None:
            raise ValueError(body)

        bus.subscribe("c", fail, group="g", retry_attempts=1, retry_delay=0)
        await bus.publish("c", 7)
        dead = await asyncio.wait_for(backend.get("c/$DeadLetterQueue"), GUARD_S)
    assert dead.message.body == 7


async def test_a_publish_that_evicts_succeeds_although_the_log_fails(raising: Raising) -> None:
    async with MessageBus() as bus:
        bus.create_channel("e", max_queue_size=2, drop_policy="drop_old", dead_letter_channel="dead")
        for body in range(4):
            await bus.publish("e", body)
        assert bus.queue_size("e") == 2
        assert bus.queue_size("dead") == 2
        assert raising.count


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_exception_with_hostile_methods_is_a_failure_like_others(
    kind: str, place: str, is_async: bool, folder: Path
) -> None:
    with bus_of(place, folder) as bus:
        check_retried_and_dead_lettered(bus, HOSTILE[kind], is_async)


class Own(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [GeneratorExit, KeyboardInterrupt, SystemExit, Own])
def test_what_is_no_exception_is_a_failure_like_others(
    kind: type[BaseException], place: str, is_async: bool, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bus_of(place, folder) as bus:
        check_retried_and_dead_lettered(bus, kind, is_async)
    is_plain = kind is GeneratorExit and (is_async or place != "memory")
    is_plain = is_plain or (kind is SystemExit and place != "memory")
    reported = [each for each in caplog.records if "the thread continues" in each.getMessage()]
    assert len(reported) == (0 if is_plain else 2)


async def test_generator_exit_of_a_backend_handler_is_a_failure() -> None:
    backend = InMemoryQueueBackend()
    async with MessageBus(backend) as bus:

        async def leave(body: int) -> None:
            raise GeneratorExit

        bus.subscribe("c", leave, group="g", retry_attempts=1, retry_delay=0)
        await bus.publish("c", 7)
        dead = await asyncio.wait_for(backend.get("c/$DeadLetterQueue"), GUARD_S)
    assert dead.message.body == 7


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_whose_loop_is_closed_has_not_failed(place: str, folder: Path) -> None:
    handled: list[Message] = []
    bus = MessageBus() if place == "memory" else MessageBus(f"{place}:///{folder}/store.db")

    async def begin() -> None:
        started = asyncio.Event()

        async def wait(message: Message) -> None:
            started.set()
            await asyncio.Event().wait()

        bus.subscribe("c", wait, group="g", retry_attempts=0)
        await bus.publish("c", 1)
        await asyncio.wait_for(started.wait(), GUARD_S)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()

    async def end() -> None:
        async with bus:
            bus.subscribe("c", handled.append, group="g")
            assert await bus.drain(GUARD_S)
            assert [each.body for each in handled] == [1]
            assert list(bus.dead_letters("c")) == []

    asyncio.run(end())


def test_the_work_for_a_long_chain_and_a_long_text_is_bounded() -> None:
    error = HOSTILE["chain"]()
    assert isinstance(error, Exception)
    assert len(related(error)) == CHAINED_MAX
    assert len(trace_text(error, None)) < 1_000
    assert len(described(ValueError("x" * 1_000_000))) < TEXT_CHARS_MAX + 100
    assert len(trace_text(ValueError("x" * 1_000_000), None)) < TEXT_CHARS_MAX + 100
    for long in (noted("x" * 1_000_000), noted(*"x" * 1_000_000), noted("\n" * 1_000_000), EndlessNotes("e")):
        assert len(trace_text(long, None)) < 1_000
    assert "a note" in trace_text(noted("a note"), None)
    assert len(trace_text(SyntaxError("bad", ("file", 1, 1, "x" * 1_000_000)), None)) < 1_000
    looped = ValueError("loop")
    looped.__cause__ = KeyError("k")
    looped.__cause__.__cause__ = looped
    assert len(related(looped)) == 2


def test_an_exception_object_that_is_raised_again_is_of_one_kind(caplog: pytest.LogCaptureFixture) -> None:
    single = ValueError("single")

    def fail(body: int) -> None:
        raise single

    with SyncBus(worker_count=1) as bus:
        bus.subscribe("c", fail, group="g", retry_attempts=0)
        for body in range(50):
            bus.publish("c", body)
        assert bus.drain(GUARD_S)
    assert len([each for each in caplog.records if each.exc_info]) == 1


def test_the_traceback_of_an_object_that_was_raised_often_is_short() -> None:
    single = ValueError("single")
    for _ in range(3_000):
        try:
            raise single
        except ValueError:
            continue
    assert len(trace_text(single, traceback_of(single)).splitlines()) < 200


def test_texts_of_users_cannot_control_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    text = "\x1b[2J\x07\x08\x9b1m\u202eevil"
    line = one_line(ValueError(text))
    assert line == r"ValueError: \x1b[2J\x07\x08\x9b1m\u202eevil"
    FailureLog(lambda: 0).retried(FailedDelivery(text, text, text, text, 1, 2, ValueError(text)), 0)
    FailureLog(lambda: 0).dead_lettered(
        FailedDelivery(text, text, text, text, 2, 2, ValueError(text)), "reason", "place", f"command {text}"
    )
    for record in caplog.records:
        shown = logging.Formatter().format(record)
        assert "evil" in shown
        assert all(each.isprintable() or each == "\n" for each in shown)


def test_a_record_names_the_line_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    SafeLogger("unibus").warning("%s of %d", "one", 2)
    (record,) = caplog.records
    assert (record.module, record.funcName) == ("test_hostile_logs", "test_a_record_names_the_line_that_logs")
    assert record.getMessage() == "one of 2"


def test_a_line_that_is_lost_is_reported_only_if_logging_reports(
    raising: Raising, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    SafeLogger("unibus").error("lost")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(sys, "stderr", None)
    SafeLogger("unibus").error("lost")


def test_ctrl_c_in_a_log_handler_reaches_the_main_thread_only(raising: Raising) -> None:
    raising.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        SafeLogger("unibus").error("interrupted")
    raised: list[object] = []
    thread = threading.Thread(target=lambda: raised.append(SafeLogger("unibus").error("kept")))
    thread.start()
    thread.join(GUARD_S)
    assert raised == [None]


class Publishing(logging.Handler):
    """A log handler that publishes each line to a channel of the bus that logs it."""

    def __init__(self, publish: Callable[[str], object]) -> None:
        super().__init__()
        self._publish = publish
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        assert self.count < 1_000, "the log feeds itself"
        self._publish(record.getMessage())


@pytest.mark.parametrize("where", ["pool", "inline", "bus.db"])
def test_a_log_handler_that_publishes_to_a_failing_channel_does_not_feed_itself(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(message: Message) -> None:
        raise ValueError("the collector is down")

    def publish(line: str) -> None:
        bus.publish("logs", line)

    handler = Publishing(publish)
    logger = logging.getLogger("unibus")
    with SyncBus(tmp_path / where if where == "bus.db" else None) as bus:
        options: dict[str, Any] = {} if where == "bus.db" else {"dispatch": where}
        bus.subscribe("logs", fail, retry_attempts=1, retry_delay=0, group="g", **options)
        logger.addHandler(handler)
        try:
            bus.publish("logs", "the first line")
            assert bus.drain(GUARD_S)
        finally:
            logger.removeHandler(handler)
    # Lines about the first message: a retry, and that it is dead-lettered. Those about their messages are not logged.
    assert handler.count == 2
    assert capsys.readouterr().err.count("(not logged: a log handler published this message)") == 4
