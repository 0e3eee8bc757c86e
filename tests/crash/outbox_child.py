"""The process that is killed: a program with its own rows and a bus, which changes both in one commit.

`python -m tests.crash.outbox_child` waits for orders, one line each, and forks a child for every one of them.
"""

import random
import sqlite3
import threading
import traceback
from typing import Any
from uuid import uuid4

from tests.crash.child import Wire, births
from unibus.bus.outbox import relay_route
from unibus.sync import MessageBus

ROWS = "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, work TEXT)"


class Undone(Exception):
    """Some transactions are rolled back."""


class Program:
    """One thread of it, with a connection of its own."""

    def __init__(self, bus: MessageBus, order: dict[str, Any], lane: int) -> None:
        self._chance = random.Random(f"{order['seed']}.{lane}")
        self._life = f"{order['seed']}.{lane}"
        self._bus = bus
        self._count = 0
        self._connection = sqlite3.connect(order["path"], timeout=30, isolation_level=order["isolation"])
        self._connection.execute(f"PRAGMA journal_mode = {order['journal']}")
        self._connection.execute(f"PRAGMA synchronous = {order['synchronous']}")
        self._connection.execute(ROWS)

    def step(self) -> None:
        """A transaction: some rows, and a message for each."""
        self._count += 1
        work = f"{self._life}.{self._count}"
        kind = self._chance.choice(("plain", "plain", "joined", "nested", "undone"))
        try:
            if kind == "joined":
                self._connection.execute("BEGIN IMMEDIATE")
            with self._bus.transaction(connection=self._connection):
                self._write(work, kind)
            if kind == "joined":
                self._connection.commit()
        except Undone:
            pass

    def _write(self, work: str, kind: str) -> None:
        for part in range(self._chance.choice((1, 1, 2, 5))):
            self._tell(f"{work}.{part}", work)
        if kind == "nested":
            try:
                with self._bus.transaction(connection=self._connection):
                    self._tell(f"{work}.x", work)
                    raise Undone
            except Undone:
                pass
        if kind == "undone":
            raise Undone

    def _tell(self, name: str, work: str) -> None:
        self._connection.execute("INSERT INTO orders (name, work) VALUES (?, ?)", (name, work))
        self._bus.send("orders", name, headers={"work": work})


def live(order: dict[str, Any]) -> None:
    wire = Wire()
    try:
        if order["planted"]:
            # A position that is not found again: what was relayed and not yet deleted is relayed a second time.
            relay_route.position_name = lambda source: f"outbox/{uuid4()}"
        bus = MessageBus(order["url"])
        first = Program(bus, order, 0)
        if order["relays"]:
            bus.relay_outbox(order["path"])
        wire.say("ready")
        threading.Thread(target=second, args=(bus, order, wire)).start()
        while True:
            first.step()
    except BaseException:
        wire.say("error", text=traceback.format_exc())


def second(bus: MessageBus, order: dict[str, Any], wire: Wire) -> None:
    try:
        program = Program(bus, order, 1)
        while True:
            program.step()
    except BaseException:
        wire.say("error", text=traceback.format_exc())


if __name__ == "__main__":
    births(live)
