"""A separate process that owns a store and runs commands from its input; and one that writes all the time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.unit.cli.programs import environment

PROGRAM = """
import dataclasses, json, sys, threading
from unibus.sync import MessageBus

def write(bus, over):
    while not over.wait(0.002):
        bus.send_many("busy", range(5))
        for message in bus.receive_batch("busy", 4, timeout=0):
            message.complete()

def obey(bus, verb, entity="", text="1"):
    if verb == "send":
        bus.send(entity, text, message_id=f"{entity}-{text}")
    elif verb == "fill":
        bus.send_many(entity, range(int(text)))
    elif verb == "lock":
        bus.receive_batch(entity, int(text), timeout=5)
    elif verb == "complete":
        for message in bus.receive_batch(entity, int(text), timeout=5):
            message.complete()
    elif verb == "bury":
        bus.receive_batch(entity, 1, timeout=5)[0].dead_letter(text)
    elif verb == "topic":
        bus.create_topic(entity)
        bus.create_subscription(entity, text)
    elif verb == "delete":
        bus.delete_entity(entity)
    return [dataclasses.asdict(each) for each in bus.entities()]

over = threading.Event()
with MessageBus(sys.argv[1]) as bus:
    writer = threading.Thread(target=write, args=(bus, over))
    print("owned", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["write"]:
            bus.send_many("busy", range(5))
            writer.start()
            print("null", flush=True)
        else:
            print(json.dumps(obey(bus, *words)), flush=True)
    over.set()
    if writer.ident is not None:
        writer.join()
"""


class Owner:
    """Every call is stored when it returns. It returns the entities as the owner reports them."""

    def __init__(self, store: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert self._line() == "owned\n"

    def __call__(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def owner_of(store: Path) -> Iterator[Owner]:
    owner = Owner(store)
    try:
        yield owner
    finally:
        assert owner.process.stdin is not None
        assert owner.process.stdout is not None
        if owner.process.poll() is None:
            owner.process.stdin.close()
            assert owner.process.wait(60) == 0
        owner.process.stdin.close()
        owner.process.stdout.close()
