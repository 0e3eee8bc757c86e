"""A process that sends every batch twice under one id, and is killed: `python -m tests.soak.sender_of_batches`.

    intents   number and first_ns of each batch, written before its first attempt
    acks      the number of each batch and the sequences in its answer, written after the answer of its second attempt

After a kill the next process sends every batch without an ack again, with the time of its first attempt.
"""

import os
import sys
from pathlib import Path

from tests.crash.power import StillTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.commands import Advance, Command, Declare, Send, SendResult
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Journal
from unibus.stores.sqlite.journal import SqliteJournal

AT_ONCE = 50
SNAPSHOT_EVERY = 7_000


def opened(kind: str, folder: Path) -> EmbeddedStore:
    journal: Journal = (
        SqliteJournal(str(folder / "bus.db")) if kind == "sqlite" else JsonFileJournal(str(folder / "bus"))
    )
    # D1 survives kill -9, and needs no sync.
    return EmbeddedStore(journal, SYSTEM_CLOCK, StillTimers(), durability=Durability.D1, snapshot_every=SNAPSHOT_EVERY)


def batch(number: int) -> list[Command]:
    """Two messages, and a position that no other batch has: a second time it could not advance."""
    sends: list[Command] = [Send("q", MessageRef(f"{number}{part}", 1), b"x", 50) for part in "ab"]
    return [*sends, Advance(f"p{number}", 0, 1)] if number % 100 == 0 else sends


def pairs(path: Path) -> dict[int, str]:
    """The complete lines of a file: the last one may be torn by a kill."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {int(number): rest for number, _, rest in (line.partition(" ") for line in lines)}


def ended(path: Path) -> int:
    """A file to append whole lines to."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return file


def main(kind: str, folder: Path, total: int) -> None:
    intents, acks = ended(folder / "intents"), ended(folder / "acks")
    firsts = {number: int(text) for number, text in pairs(folder / "intents").items()}
    done = pairs(folder / "acks")
    store = opened(kind, folder)
    store.apply([Declare("q", QUEUE, {"max_size_mb": 4096})]).wait()
    left = [number for number in range(total) if number not in done]
    for start in range(0, len(left), AT_ONCE):
        some = left[start : start + AT_ONCE]
        now_ns = store.now_ns()
        new = [number for number in some if number not in firsts]
        firsts.update(dict.fromkeys(new, now_ns))
        os.write(intents, "".join(f"{number} {now_ns}\n" for number in new).encode())
        lost = [store.apply(batch(number), None, f"b{number}", firsts[number]) for number in some]
        if start % (3 * AT_ONCE) == 0:
            lost[-1].wait()  # Else the second attempts are made before the first ones are written.
        answers = [store.apply(batch(number), None, f"b{number}", firsts[number]).wait() for number in some]
        lines = [f"{number} {_sequences(results)}\n" for number, results in zip(some, answers, strict=True)]
        os.write(acks, "".join(lines).encode())
    store.close()


def _sequences(results: list[object]) -> str:
    return ",".join(str(each.sequence) for each in results if isinstance(each, SendResult))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
