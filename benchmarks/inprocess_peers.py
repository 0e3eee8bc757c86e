"""What a Python user would pick instead of a bus inside one process, each in the form that suits it best.

Every function takes the number of messages and of channels, sends, waits until the handler has had them all,
checks that, and returns nanoseconds per message. Choices are made in the peer's favour and tried out: bursts
where a peer is faster in bursts, a bound where an unbounded heap is slower, bytes for a peer that moves bytes.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter_ns

import blinker
import zmq
from pyee.asyncio import AsyncIOEventEmitter
from pyee.base import EventEmitter

from benchmarks.measure import (
    PAYLOAD,
    PRIORITY,
    Handler,
    check_delivered,
    counting_async_handler,
    counting_handler,
    turns,
)

BURST = 1_000
"""Messages that wait at once where a peer gains from it; also ZeroMQ's own high-water mark."""

ENCODED = b'{"id": 1, "event": "order.created", "amount": 9.5}'
"""The payload for ZeroMQ, which carries bytes: encoding and decoding are left out, in its favour."""


def channel_names(channels: int) -> list[str]:
    return [f"channel-{number}" for number in range(channels)]


def deque_and_call(count: int, channels: int = 1) -> float:
    """The limit: the least that a queued delivery can be in Python, one append, one popleft, one call."""
    handler, received = counting_handler()
    waiting: deque[object] = deque()
    names = channel_names(channels)
    start = perf_counter_ns()
    for _name in turns(names, count):
        waiting.append(PAYLOAD)
        handler(waiting.popleft())
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def deque_and_call_in_thread(count: int, channels: int = 1) -> float:
    """The limit with a worker: the same deque, but another thread pops and calls, and parks when nothing is there."""
    handler, received = counting_handler()
    waiting: deque[object] = deque()
    names = channel_names(channels)
    filled = threading.Event()

    def work() -> None:
        done = 0
        while done < count:
            filled.wait()
            filled.clear()
            while waiting:
                handler(waiting.popleft())
                done += 1

    worker = threading.Thread(target=work)
    worker.start()
    start = perf_counter_ns()
    for _name in turns(names, count):
        waiting.append(PAYLOAD)
        if not filled.is_set():
            filled.set()
    worker.join()
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def pyee_emit(count: int, channels: int = 1) -> float:
    handler, received = counting_handler()
    emitter = EventEmitter()
    names = channel_names(channels)
    for name in names:
        emitter.on(name, handler)
    start = perf_counter_ns()
    for name in turns(names, count):
        emitter.emit(name, PAYLOAD)
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def blinker_send(count: int, channels: int = 1) -> float:
    handler, received = counting_handler()
    signals = [blinker.Signal(name) for name in channel_names(channels)]
    for signal in signals:
        signal.connect(handler)
    start = perf_counter_ns()
    for signal in turns(signals, count):
        signal.send(PAYLOAD)
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def pyzmq_same_thread(count: int, channels: int = 1) -> float:
    """PUSH to PULL over inproc, in bursts, which came out a little quicker than one by one."""
    handler, received = counting_handler()
    with zmq.Context() as context:
        pushes, pull = _zmq_pair(context, channels)
        receive = pull.recv
        start = perf_counter_ns()
        for sent in range(0, count, BURST):
            size = min(BURST, count - sent)
            for push in turns(pushes, size):
                push.send(ENCODED)
            for _ in range(size):
                handler(receive())
        elapsed = perf_counter_ns() - start
        _zmq_close(pushes, pull)
    check_delivered(received(), count)
    return elapsed / count


def pyzmq_consumer_thread(count: int, channels: int = 1) -> float:
    handler, received = counting_handler()
    with zmq.Context() as context:
        pushes, pull = _zmq_pair(context, channels)
        consumer = threading.Thread(target=_zmq_consume, args=(pull, handler, count))
        consumer.start()
        start = perf_counter_ns()
        for push in turns(pushes, count):
            push.send(ENCODED)
        consumer.join()
        elapsed = perf_counter_ns() - start
        _zmq_close(pushes, pull)
    check_delivered(received(), count)
    return elapsed / count


def _zmq_pair(
    context: zmq.Context[zmq.Socket[bytes]], channels: int
) -> tuple[list[zmq.Socket[bytes]], zmq.Socket[bytes]]:
    """One PUSH per channel into one PULL, with no bound that could block the only thread."""
    pull = context.socket(zmq.PULL)
    pull.set(zmq.RCVHWM, 0)
    pull.bind("inproc://bench")
    pushes = [context.socket(zmq.PUSH) for _ in range(channels)]
    for push in pushes:
        push.set(zmq.SNDHWM, 0)
        push.connect("inproc://bench")
    return pushes, pull


def _zmq_consume(pull: zmq.Socket[bytes], handler: Handler, count: int) -> None:
    receive = pull.recv
    for _ in range(count):
        handler(receive())


def _zmq_close(pushes: list[zmq.Socket[bytes]], pull: zmq.Socket[bytes]) -> None:
    for socket in (*pushes, pull):
        socket.close(linger=0)


def priority_queue_thread(count: int, channels: int = 1) -> float:
    """One queue and one consumer for all channels: a thread for each was slower."""
    handler, received = counting_handler()
    names = channel_names(channels)
    waiting: queue.PriorityQueue[tuple[int, int, str, object]] = queue.PriorityQueue(BURST)
    consumer = threading.Thread(target=_consume, args=(waiting, dict.fromkeys(names, handler), count))
    consumer.start()
    start = perf_counter_ns()
    for sequence, name in enumerate(turns(names, count)):
        waiting.put((PRIORITY, sequence, name, PAYLOAD))
    consumer.join()
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def _consume(
    waiting: "queue.PriorityQueue[tuple[int, int, str, object]]", handlers: dict[str, Handler], count: int
) -> None:
    for _ in range(count):
        _priority, _sequence, name, message = waiting.get()
        handlers[name](message)


def asyncio_priority_queue(count: int, channels: int = 1) -> float:
    """The worker loop that every asyncio program has: one queue and one worker task per channel."""
    return asyncio.run(_asyncio_priority_queue(count, channels))


async def _asyncio_priority_queue(count: int, channels: int) -> float:
    handler, received = counting_async_handler()
    bound = max(1, BURST // channels)
    queues: list[asyncio.PriorityQueue[tuple[int, int, object]]] = [
        asyncio.PriorityQueue(bound) for _ in range(channels)
    ]
    workers = [asyncio.create_task(_work(waiting, handler)) for waiting in queues]
    start = perf_counter_ns()
    for sequence, waiting in enumerate(turns(queues, count)):
        await waiting.put((PRIORITY, sequence, PAYLOAD))
    for waiting in queues:
        await waiting.join()
    elapsed = perf_counter_ns() - start
    for worker in workers:
        worker.cancel()
    check_delivered(received(), count)
    return elapsed / count


async def _work(
    waiting: "asyncio.PriorityQueue[tuple[int, int, object]]", handler: Callable[[object], Awaitable[None]]
) -> None:
    while True:
        _priority, _sequence, message = await waiting.get()
        await handler(message)
        waiting.task_done()


def pyee_asyncio(count: int, channels: int = 1) -> float:
    """Makes a task of every call, so the emitter is let breathe after each burst."""
    return asyncio.run(_pyee_asyncio(count, channels))


async def _pyee_asyncio(count: int, channels: int) -> float:
    handler, received = counting_async_handler()
    emitter = AsyncIOEventEmitter()
    names = channel_names(channels)
    for name in names:
        emitter.on(name, handler)
    start = perf_counter_ns()
    for sent, name in enumerate(turns(names, count), start=1):
        emitter.emit(name, PAYLOAD)
        if sent % BURST == 0:
            await emitter.wait_for_complete()
    await emitter.wait_for_complete()
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


def blinker_send_async(count: int, channels: int = 1) -> float:
    return asyncio.run(_blinker_send_async(count, channels))


async def _blinker_send_async(count: int, channels: int) -> float:
    handler, received = counting_async_handler()
    signals = [blinker.Signal(name) for name in channel_names(channels)]
    for signal in signals:
        signal.connect(handler)
    start = perf_counter_ns()
    for signal in turns(signals, count):
        await signal.send_async(PAYLOAD)
    elapsed = perf_counter_ns() - start
    check_delivered(received(), count)
    return elapsed / count


SYNC_PEERS = {
    "pyee": pyee_emit,
    "blinker": blinker_send,
    "pyzmq inproc": pyzmq_same_thread,
    "pyzmq inproc, thread": pyzmq_consumer_thread,
    "queue.PriorityQueue, thread": priority_queue_thread,
    "asyncio.PriorityQueue": asyncio_priority_queue,
}

ASYNC_PEERS = {
    "asyncio.PriorityQueue": asyncio_priority_queue,
    "pyee asyncio": pyee_asyncio,
    "blinker async": blinker_send_async,
}
