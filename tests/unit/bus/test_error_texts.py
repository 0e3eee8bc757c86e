"""The traceback of a failed handler: frames of the user, of the last raise only."""

from pathlib import Path

import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.error_texts import failure_text
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import TRACEBACK_HEADER
from unibus.errors import NameInvalid

REUSED = ValueError("declined")


def inner() -> None:
    raise REUSED


def decline(message: Message) -> None:
    inner()


def frames_of(text: str) -> list[str]:
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("url", [None, "bus.db"])
def test_a_dead_lettered_message_has_the_frames_of_the_handler_only(url: str | None, tmp_path: Path) -> None:
    def fail(message: Message) -> None:
        bus.publish("", 1)  # Raises inside of the bus.

    with SyncMessageBus(None if url is None else tmp_path / url) as bus:
        bus.subscribe("cards", fail, retry_attempts=0, group="g")
        bus.publish("cards", 1)
        bus.drain()
        (dead,) = bus.dead_letters("cards")
    trace = str(dead.headers[TRACEBACK_HEADER])
    assert frames_of(trace) == ["fail"]
    assert "unibus/bus" not in trace
    assert trace.splitlines()[-1].startswith(f"unibus.errors.{NameInvalid.__name__}: ")


def test_an_exception_object_that_is_raised_again_has_the_frames_of_its_last_raise() -> None:
    """Otherwise each failure formats the frames of all earlier ones."""
    with SyncMessageBus() as bus:
        bus.create_channel("cards", max_queue_size=10_000)
        bus.subscribe("cards", decline, retry_attempts=0)
        for number in range(50):
            bus.publish("cards", number)
        bus.drain()
        traces = {str(dead.headers[TRACEBACK_HEADER]) for dead in bus.dead_letters("cards")}
    (trace,) = traces
    assert frames_of(trace) == ["decline", "inner"]


def test_an_error_of_the_bus_itself_keeps_its_frames() -> None:
    with pytest.raises(NameInvalid) as error, SyncMessageBus() as bus:
        bus.publish("", 1)
    assert frames_of(failure_text(error.value))
