"""kill -9 of a program with handlers on a persistent channel: the next one gets their messages at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.kills import ROOT
from unibus import Message
from unibus.sync import MessageBus

URLS = pytest.mark.parametrize("url", ["sqlite:///{}/bus.db", "jsonfile:///{}/bus"])
MESSAGES = 10
WAIT_S = 50.0
"""Less than the 60 s of a lock: a drain that needs the end of the lock fails."""

HANDLING = f"""
import sys, threading
from unibus.sync import MessageBus

def handle(message):
    print("began", message.body, flush=True)
    threading.Event().wait()

bus = MessageBus(sys.argv[1])
bus.create_channel("c", persistent=True)
bus.subscribe("c", handle, group="g", retry_attempts=int(sys.argv[2]))
bus.publish_many("c", range({MESSAGES}))
sys.stdin.read()
"""


def kill_in_a_handler(url: str, retry_attempts: int) -> None:
    """Kill a program whose only handler has begun with the first message, and never returns."""
    command = [sys.executable, "-c", HANDLING, url, str(retry_attempts)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "began 0\n"
        program.kill()


def handled_after(url: str, retry_attempts: int) -> list[tuple[object, int]]:
    """The bodies and delivery counts that the handler of a new program gets until the bus is drained."""
    handled: list[tuple[object, int]] = []

    def handle(message: Message) -> None:
        handled.append((message.body, message.delivery_count))

    with MessageBus(url) as bus:
        bus.create_channel("c", persistent=True)
        bus.subscribe("c", handle, group="g", retry_attempts=retry_attempts)
        bus.drain(WAIT_S)
    return handled


@URLS
def test_messages_of_killed_handlers_are_redelivered_at_once(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = url.format(tmp_path)
    kill_in_a_handler(url, 3)
    handled = handled_after(url, 3)
    assert [body for body, _ in handled] == list(range(MESSAGES))
    assert handled[0] == (0, 2)
    assert [text for text in caplog.messages if "the last process ended while its handlers had" in text]


@URLS
def test_a_message_that_no_handler_began_with_is_not_dead_lettered(url: str, tmp_path: Path) -> None:
    url = url.format(tmp_path)
    kill_in_a_handler(url, 0)
    assert handled_after(url, 0) == [(body, 1) for body in range(1, MESSAGES)]
    with MessageBus(url) as bus:
        assert [dead.body for dead in bus.dead_letters("c/Subscriptions/g")] == [0]
