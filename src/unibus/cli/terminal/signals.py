"""How a command ends when somebody ends it: Ctrl-C, or SIGTERM from `timeout` and service managers.

What it holds is given back first, and what it did is told. A second Ctrl-C ends it at once.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import TypeVar

import typer

from unibus.cli.terminal.output import aside

Answer = TypeVar("Answer")


def until_signal(work: Coroutine[object, object, Answer]) -> Answer:
    """Run to the end. A signal cancels `work`, which may clean up; the exit code is then that of the signal."""
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        # Ctrl-C comes out of `run` as KeyboardInterrupt, so this was the other one.
        raise typer.Exit(128 + signal.SIGTERM) from None


async def _cancelled_by_sigterm(work: Coroutine[object, object, Answer]) -> Answer:
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; or not in the main thread.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


@contextlib.contextmanager
def stopping(told: str) -> Iterator[threading.Event]:
    """For a loop: the first Ctrl-C, or SIGTERM, sets the event and is `told`; the exit code is that of the signal. A
    second one interrupts what is being done, as Ctrl-C does."""
    stop = threading.Event()
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        stop.set()
        aside(told)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise typer.Exit(128 + came[0])


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Put Ctrl-C off until the block is left: whether its call took effect could not be told otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and before is signal.default_int_handler:
        raise KeyboardInterrupt
