"""What `unibus capture` beside a bus costs the bus, at 10,000 durable messages a second, and what it costs itself.

A bus on SQLite in this process is sent 100 messages every hundredth of a second, and receives and completes them, each
batch on the disk before it is answered; 200-byte bodies. Rounds with a capture in a process of its own take turns with
rounds without. What it costs the bus is given in processor time per message, by the best round of each, since the load
is a fixed one; and the rate that was reached has to stay what it was. In each round everything that happened has to be
in the segments afterwards. The design allows a slow-down of a twentieth.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, process_time, sleep

from benchmarks.cpu import cpu_seconds
from benchmarks.disk import scratch
from benchmarks.durable_bus import RECEIVE_SECONDS_MAX, url
from benchmarks.durable_load import BATCH, BODY, QUEUE
from benchmarks.measure import Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report
from unibus import MessageBus
from unibus.capture.manifest import Manifest, is_capture

RATE = 10_000
MESSAGES = 40_000
EVENTS_PER_MESSAGE = 3
SLOWER_TIMES = 1.05
READY_SECONDS_MAX = 60.0
LOOK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class Carried:
    """One round: what the bus paid for a message, how many it carried a second, how long the sender of a batch waited
    in the middle, and what capture paid for an event."""

    cpu: float
    rate: float
    answer: float
    capture_cpu: float = 0.0


def run(options: Options) -> Report:
    rounds = rounds_of({"with": _with, "without": _without}, options.count(MESSAGES), options)
    return Report("capture", tuple(figures_of(rounds)))


def figures_of(rounds: dict[str, list[Carried]]) -> list[Figure]:
    cpu = {name: min(each.cpu for each in found) for name, found in rounds.items()}
    rate = {name: max(each.rate for each in found) for name, found in rounds.items()}
    answer = {name: min(each.answer for each in found) for name, found in rounds.items()}
    own = min(each.capture_cpu for each in rounds["with"])
    return [
        Figure("processor: with capture over without", "times", cpu["with"] / cpu["without"], SLOWER_TIMES),
        Figure("rate: without capture over with", "times", rate["without"] / rate["with"], SLOWER_TIMES),
        Figure("carried beside a capture", "msg/s", rate["with"], limit=rate["without"]),
        Figure(f"answer to {BATCH} sent, median", "s", answer["with"], limit=answer["without"]),
        Figure("processor of the bus, a message", "ns", cpu["with"] * 1e9, limit=cpu["without"] * 1e9),
        Figure("processor of capture, a million events", "s", own * 1e6),
    ]


def _without(count: int) -> Carried:
    with scratch() as folder:
        return asyncio.run(_carry(folder / "bus.db", None, count))


def _with(count: int) -> Carried:
    with scratch() as folder:
        return asyncio.run(_carry(folder / "bus.db", folder / "captured", count))


async def _carry(path: Path, target: Path | None, count: int) -> Carried:
    async with MessageBus(url(path)) as bus:
        await bus.create_queue(QUEUE)
        if target is None:
            return await _load(bus, count)
        with capturing(url(path), target) as process:
            start = cpu_seconds(process.pid)
            carried = await _load(bus, count)
            await asyncio.to_thread(caught_up, target, count * EVENTS_PER_MESSAGE)
            own = cpu_seconds(process.pid) - start
    return replace(carried, capture_cpu=own / (count * EVENTS_PER_MESSAGE))


async def _load(bus: MessageBus, count: int) -> Carried:
    start, cpu = perf_counter(), process_time()
    received, answers = await asyncio.gather(_receive(bus, count), _send(bus, count))
    elapsed, cpu = perf_counter() - start, process_time() - cpu
    check_delivered(received, count)
    return Carried(cpu / count, count / elapsed, median(answers))


async def _send(bus: MessageBus, count: int) -> list[float]:
    """A batch whenever it is due; one that is late is sent at once. Returns how long each took to be durable."""
    start = perf_counter()
    bodies = [BODY] * BATCH
    answers = []
    for number in range(count // BATCH):
        await asyncio.sleep(max(0.0, start + number * BATCH / RATE - perf_counter()))
        sent = perf_counter()
        await bus.send_many(QUEUE, bodies)
        answers.append(perf_counter() - sent)
    return answers


async def _receive(bus: MessageBus, count: int) -> int:
    received = 0
    while received < count:
        messages = await bus.receive_batch(QUEUE, BATCH, timeout=RECEIVE_SECONDS_MAX)
        if not messages:
            break
        await bus.complete_many(messages)
        received += len(messages)
    return received


# The capture beside it


def unibus(*words: object) -> list[str]:
    """The command line of this interpreter's own package."""
    return [sys.executable, "-m", "unibus", *map(str, words)]


@contextmanager
def capturing(source: str, target: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A capture that has begun; stopped, and waited for, on exit."""
    with subprocess.Popen(unibus("capture", source, target), stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
        try:
            wait_until(lambda: _has_begun(target), process, "capture did not begin")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _has_begun(target: Path) -> bool:
    """What was there already, the making of the queue, is sealed: imports are over, and it follows."""
    return is_capture(str(target)) and Manifest.load(str(target)).last > 0


def caught_up(target: Path, events: int) -> None:
    """Until everything that the load did is sealed."""
    wait_until(lambda: Manifest.load(str(target)).last >= events, None, f"{events} events were not captured")


def wait_until(done: Callable[[], bool], process: "subprocess.Popen[bytes] | None", what: str) -> None:
    deadline = monotonic() + READY_SECONDS_MAX
    while not done():
        if monotonic() > deadline or (process is not None and process.poll() is not None):
            raise RuntimeError(what)
        sleep(LOOK_AGAIN_SECONDS)
