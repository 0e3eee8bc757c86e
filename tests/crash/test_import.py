"""An import that is killed, again and again: every message exists once, and in its place."""

import random
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from unibus.bus.history.export import Exporting
from unibus.stores.schemes import open_reader
from unibus.stores.seam.store_view import all_messages
from unibus.sync import MessageBus

MESSAGES = 600
PROGRAM = """
import sys
from unibus.bus.history.export_lines import checked_contents
from unibus.bus.history.import_ import Importing, StoreTarget
from unibus.cli.local.read_only import owning

def tell(done, total):
    print(done, flush=True)

with open(sys.argv[1], "rb") as file, owning(f"sqlite:///{sys.argv[2]}") as store:
    contents = checked_contents(file)
    file.seek(0)
    importing = Importing(StoreTarget(store), contents, tell, batch=3)
    print("before", importing.before, flush=True)
    importing.run(file)
    print("complete", flush=True)
"""


def make_export(folder: Path) -> tuple[Path, dict[str, Counter[str]]]:
    """Queues, copies, dead-lettered messages and sessions. Returns by id what has to be where."""
    with MessageBus(folder / "old.db") as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "s")
        bus.create_queue("sessions", requires_session=True, lock_duration=0.2)
        for number in range(MESSAGES // 3):
            bus.send("q", number, durability="D1")
            bus.send("t", number, durability="D1")
            bus.send("sessions", number, session_id=f"s{number % 5}", durability="D1")
        for message in bus.receive_batch("q", 40, timeout=0):
            message.dead_letter("Broken")
        for number in range(5):
            with bus.accept_session("sessions", f"s{number}", timeout=0) as session:
                session.set_state(str(number).encode())
    with closing(open_reader(f"sqlite:///{folder / 'old.db'}")) as reader, (folder / "all.jsonl").open("wb") as file:
        Exporting(reader, file.write, lambda done, total: None).run()
        return folder / "all.jsonl", placed(folder / "old.db")


def placed(store: Path) -> dict[str, Counter[str]]:
    with closing(open_reader(f"sqlite:///{store}")) as reader:
        found: dict[str, Counter[str]] = {}
        for entry in all_messages(reader):
            found.setdefault(entry.entity, Counter())[entry.who.message_id] += 1
        return found


def test_killed_at_random_moments(tmp_path: Path) -> None:
    export, wanted = make_export(tmp_path)
    assert sum(map(len, wanted.values())) == MESSAGES
    store = tmp_path / "new.db"
    chance = random.Random(3)
    kills, begins = 0, [0]
    while not run(export, store, chance.randint(0, 60) if kills < 4 else None, begins):
        kills += 1
    assert kills >= 3
    assert begins == sorted(begins)
    assert placed(store) == wanted
    with MessageBus(store) as bus:
        states = [bus.accept_session("sessions", f"s{number}", timeout=0).state() for number in range(5)]
        assert states == [b"0", b"1", b"2", b"3", b"4"]
    assert run(export, store, None, begins)  # Once more is nothing more.
    assert begins[-1] == MESSAGES + 5 + 1
    assert placed(store) == wanted


def run(export: Path, store: Path, steps: int | None, begins: list[int]) -> bool:
    """Import, and kill it after it has reported this many steps, wherever it is by then. True if it was complete."""
    program = [sys.executable, "-W", "error", "-c", PROGRAM, str(export), str(store)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as importing:
        assert importing.stdout is not None
        word, before = importing.stdout.readline().split()
        assert word == b"before"
        begins.append(int(before))
        for number, line in enumerate(importing.stdout):
            if line == b"complete\n":
                assert importing.wait(60) == 0
                return True
            if number == steps:
                importing.kill()
                break
    return False
