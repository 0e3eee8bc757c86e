"""The process that `unibus demo` kills: it sends messages and writes the number of each acknowledged one to its stdout.

    python -P -m unibus.cli.demo.sender STORE QUEUE FIRST

A number is written only after the answer of the store, so each number that the reader gets is a message that has to be
in the store after the kill. The process ends by itself when its reader has ended: the pipe is then closed.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Final

from unibus.bus.api.message_bus import MessageBus

TASKS: Final = 16
"""Senders that wait for answers at the same time, so a kill finds messages in each state."""
PAUSE_S: Final = 0.005
"""Between two messages of one task: bounds the store of a demo to a few megabytes."""
STDOUT: Final = 1
PREFIX: Final = "parcel-"


async def send_without_end(url: str, queue: str, first: int) -> None:
    numbers = itertools.count(first)
    async with MessageBus(url) as bus, asyncio.TaskGroup() as tasks:
        for _ in range(TASKS):
            tasks.create_task(_send(bus, queue, numbers))


async def _send(bus: MessageBus, queue: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        await bus.send(queue, {"number": number}, message_id=message_id(number))
        # One write of a few bytes: the pipe has the whole line or nothing of it.
        os.write(STDOUT, b"%d\n" % number)
        await asyncio.sleep(PAUSE_S)


def message_id(number: int) -> str:
    return f"{PREFIX}{number}"


def number_of(message_id: str) -> int:
    return int(message_id.removeprefix(PREFIX))


def main(arguments: list[str]) -> None:
    url, queue, first = arguments
    try:
        asyncio.run(send_without_end(url, queue, int(first)))
    except* BrokenPipeError:
        os._exit(0)  # The demo has ended. Nothing remains to be flushed into its pipe.


if __name__ == "__main__":
    main(sys.argv[1:])
