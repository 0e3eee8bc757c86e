"""A process that runs its disk full, and is killed then. Says on its standard output what was acknowledged."""

import os
import signal
import sys

from unibus.errors import StoreFull
from unibus.sync import MessageBus

BODY = "x" * 2_000
BEFORE = 200


def fill(path: str) -> None:
    """Take all the space that is left, to the last block."""
    with open(path, "ab", buffering=0) as file:
        for size in (65_536, 512):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def send_until_full(bus: MessageBus, first: int) -> int:
    """Gives how many were acknowledged."""
    number = first
    while True:
        try:
            bus.send("orders", [number, BODY])
        except StoreFull:
            return number
        number += 1


if __name__ == "__main__":
    url, filler = sys.argv[1:]
    bus = MessageBus(url)
    for number in range(BEFORE):
        bus.send("orders", [number, BODY])
    fill(filler)
    sys.stdout.write(f"{send_until_full(bus, BEFORE)}\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
