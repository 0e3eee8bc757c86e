"""A forked child cannot use the buses of its parent, does them no harm, and can make its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unibus.sync import MessageBus

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

ROOT = Path(__file__).resolve().parents[3]


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "jsonfile"])
def test_a_child_is_refused_at_once_and_changes_nothing(tmp_path: Path, scheme: str) -> None:
    url = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/bus"
    own = "memory://" if scheme == "memory" else f"{scheme}:///{tmp_path}/own"
    found = json.loads(python("-W", "ignore::DeprecationWarning", "-m", "tests.unit.bus.forking", url, own))
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
for number in range(12):
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
    out = python("-W", "ignore::DeprecationWarning", "-c", BUSY, str(tmp_path))
    assert json.loads(out) == [0] * 12
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
    assert done.stdout.startswith("StoreBusy start this process by" if scheme == "sqlite" else "opened")
    with MessageBus(url) as bus:
        assert [message.body for message in bus.peek("q", 2)] == [1]


READERS = """
import os, sys
from unibus.errors import BusForked, StoreBusy
from unibus.stores.reading import open_reader
from unibus.sync import MessageBus
url = f"sqlite:///{sys.argv[1]}"
with MessageBus(url) as bus:
    bus.send("q", 1)
reader = open_reader(url)
assert len(reader.entities()) == 1
if os.fork() == 0:
    for attempt in (reader.entities, lambda: list(reader.held())):
        try:
            attempt()
            os._exit(1)
        except BusForked:
            pass
    reader.close()
    sys.exit(0)
assert os.wait()[1] == 0
assert len(reader.entities()) == 1
reader.close()
bus = MessageBus(url)
if os.fork() == 0:
    try:
        open_reader(url)
    except StoreBusy:
        os._exit(0)
    os._exit(2)
assert os.wait()[1] == 0
bus.close()
print("done")
"""


def test_a_reader_is_the_parents_too(tmp_path: Path) -> None:
    assert python("-W", "ignore::DeprecationWarning", "-c", READERS, str(tmp_path / "bus.db")) == "done\n"


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


CAPTURED = """
import os, sys
from unibus.sync import MessageBus
bus = MessageBus(f"sqlite:///{sys.argv[1]}/bus.db?capture={sys.argv[1]}/captured")
bus.send("q", 1)
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.read(reading, 1)  # Lives until the parent has closed its bus.
    os._exit(0)
bus.close()
os.write(writing, b"x")
os.wait()
"""


def test_a_child_does_not_keep_the_capture_of_its_parent_running(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    # Else the capture has no end of its input as long as the child lives, and the parent waits for it and warns.
    assert python("-W", "ignore::DeprecationWarning", "-c", CAPTURED, str(tmp_path)) == ""
    assert list((tmp_path / "captured" / "segments").iterdir())
