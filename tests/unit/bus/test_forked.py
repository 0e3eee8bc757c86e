"""A forked child cannot use the buses of its parent, does them no harm, and can make its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unibus.sync import MessageBus

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
]

ROOT = Path(__file__).resolve().parents[3]


def python(*arguments: str) -> str:
    """Newer versions of Python warn of a fork beside other threads; that is what this is about."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "jsonfile"])
def test_a_child_is_refused_at_once_and_changes_nothing(tmp_path: Path, scheme: str) -> None:
    url = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/bus"
    own = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/own"
    found = json.loads(python("-m", "tests.unit.bus.forking", url, own))
    told: dict[str, str] = found["told"]
    if scheme == "memory":
        assert told.pop("late.wait") == "returned"  # It was answered before the fork.
    for name in ("close", "close again", "close on a loop", "close a store", "another bus"):
        assert told.pop(name) == "returned", name
    same = told.pop("the same bus")
    assert same == "returned" if scheme == "memory" else same.startswith("StoreBusy: ")
    refused = f"BusForked: this bus was opened by process {found['pid']}, and this is a child of it"
    assert {name: text for name, text in told.items() if text != refused} == {}
    assert len(told) > 100
    assert found["status"] == 0
    assert found["parent"] == [[2, 3, 4], ["after"]]
    if scheme != "memory":
        with MessageBus(url) as bus:
            assert [message.body for message in bus.peek("q", 10)] == [2, 3, 4]
        with MessageBus(own) as bus:
            assert [message.body for message in bus.peek("mine", 10)] == [1]


BUSY = """
import json, multiprocessing, os, sys, threading
from unibus.errors import BusForked, StoreBusy
from unibus.sync import MessageBus

folder = sys.argv[1]
stop = threading.Event()


def work(bus):
    while not stop.is_set():
        bus.send_many("q", ["x"] * 20)
        bus.publish("c", 1)
        for message in bus.receive_batch("q", 20, 0):
            message.complete()


def hear(message):
    pass


def child(number):
    for bus in buses:
        try:
            bus.send("q", "child")
            os._exit(10)
        except BusForked:
            pass
        bus.close()
    try:
        MessageBus(f"{folder}/bus0.db")
        os._exit(11)
    except StoreBusy:
        pass
    with MessageBus(f"{folder}/child{number}.db") as mine:
        mine.send("q", number)
        mine.subscribe("c", hear)
        if len(mine.peek("q", 5)) != 1:
            os._exit(12)


buses = [MessageBus(f"{folder}/bus0.db"), MessageBus(f"jsonfile:///{folder}/bus1"), MessageBus()]
for bus in buses:
    bus.subscribe("c", hear)
threads = [threading.Thread(target=work, args=(bus,)) for bus in buses for _ in range(2)]
for thread in threads:
    thread.start()
fork = multiprocessing.get_context("fork")
codes = []
for number in range(6):
    process = fork.Process(target=child, args=(number,))
    process.start()
    process.join(60)
    codes.append(process.exitcode)
stop.set()
for thread in threads:
    thread.join()
for bus in buses:
    bus.drain()
    bus.close()
print(json.dumps(codes))
"""


def test_children_of_a_busy_process_get_stuck_on_nothing(tmp_path: Path) -> None:
    """Every lock is held by some thread at some fork: none of them may matter in the child."""
    out = python("-c", BUSY, str(tmp_path))
    assert json.loads(out) == [0] * 6
    MessageBus(tmp_path / "bus0.db").close()
    MessageBus(f"jsonfile:///{tmp_path}/bus1").close()


OUTLIVED = """
import os, sys
from unibus.sync import MessageBus
from unibus.errors import StoreBusy
url = sys.argv[1]
bus = MessageBus(url)
bus.send("q", 1)
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)  # Until the parent has closed its bus, or is gone.
    try:
        MessageBus(url).close()
        print("opened", flush=True)
    except StoreBusy as error:
        print("StoreBusy", error.hint, flush=True)
    os._exit(0)
os.close(reading)
if sys.argv[2] == "closed":
    bus.close()
    os.write(writing, b"x")
    os.wait()
    MessageBus(url).close()
else:
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_child_that_outlives_its_parent_keeps_no_lock(tmp_path: Path, scheme: str, end: str) -> None:
    url = f"{scheme}:///{tmp_path}/bus"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", OUTLIVED, url, end]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    # SQLite in the child remembers locks and shared memory of the parent, so it cannot open that file.
    assert done.stdout.startswith("StoreBusy start this process with" if scheme == "sqlite" else "opened")
    with MessageBus(url) as bus:
        assert [message.body for message in bus.peek("q", 2)] == [1]


IN_A_HANDLER = """
import os, sys, threading
from unibus.sync import MessageBus
bus = MessageBus(sys.argv[1])
all_there = threading.Event()
def handler(message):
    os.write(1, b"%d\\n" % message.body)
    if message.body == 0:
        all_there.wait()
        if os.fork() == 0:
            return  # The child goes back into the machinery of the bus, with nine messages in its memory.
        os.wait()
bus.subscribe("c", handler)
for number in range(10):
    bus.publish("c", number)
all_there.set()
bus.drain()
bus.close()
"""


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
def test_a_child_that_returns_from_a_handler_takes_no_message(tmp_path: Path, scheme: str) -> None:
    url = "memory://" if scheme == "memory" else f"sqlite:///{tmp_path}/bus.db"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IN_A_HANDLER, url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, [str(number) for number in range(10)])


EVERY_LOCK = """
import contextlib, os, sys, threading
from unibus.bus.api import process_bus
from unibus.bus.compat.persistence import SqlitePersistence
from unibus.core.atomic import LOCK
from unibus.errors import BusForked
from unibus.stores.seam import pending
from unibus.stores.engine.switch_interval import switching
from unibus.sync import MessageBus

folder = sys.argv[1]
bus = MessageBus(f"jsonfile:///{folder}/bus")
bus.send("q", 1)
persistence = SqlitePersistence.in_memory()
runtime = bus._runtime
store = runtime.queues().store
locks = [
    LOCK, pending._GUARD, switching._lock, process_bus._lock, store._lock, store._committer.committing,
    store._journal._mutex, runtime.queues().renewals._lock, runtime.timers._changed, persistence._timers._changed,
    persistence.store._lock,
]
held, over = threading.Event(), threading.Event()


def hold():
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        held.set()
        over.wait()


threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    with contextlib.suppress(BusForked):
        bus.send("q", 2)
        os._exit(1)
    with contextlib.suppress(BusForked):
        persistence.replay("c")
        os._exit(2)
    bus.close()
    persistence.close()
    process_bus.get_message_bus()
    with MessageBus(f"jsonfile:///{folder}/own") as mine:
        mine.send("q", 1)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
over.set()
"""


def test_no_lock_that_a_thread_of_the_parent_had_matters_in_the_child(tmp_path: Path) -> None:
    assert python("-c", EVERY_LOCK, str(tmp_path)) == "0\n"


IN_FLIGHT = """
import os, sys, threading
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusForked
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal

begun, over = threading.Event(), threading.Event()


class Slow(JsonFileJournal):
    def append(self, *arguments):
        if arguments[1]:  # Else recovery ends.
            begun.set()
            over.wait()
        super().append(*arguments)


store = EmbeddedStore(Slow(sys.argv[1]), SYSTEM_CLOCK, ThreadTimers(SYSTEM_CLOCK, print))
pending = store.apply([Declare("q", QUEUE, {})])
writer = threading.Thread(target=pending.wait)
writer.start()
begun.wait()
pid = os.fork()
if pid == 0:
    try:
        pending.wait()
    except BusForked:
        os._exit(0)
    os._exit(1)
print(os.waitpid(pid, 0)[1])
over.set()
writer.join()
pending.wait()
store.close()
"""


def test_an_answer_that_the_parent_waits_for_never_comes_in_the_child(tmp_path: Path) -> None:
    assert python("-c", IN_FLIGHT, str(tmp_path / "bus")) == "0\n"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files cannot be listed")
def test_small_cases(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert python("-m", "tests.unit.bus.forks", str(tmp_path)) == ""
