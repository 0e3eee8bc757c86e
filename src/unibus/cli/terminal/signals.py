"""How a command ends on a signal: Ctrl-C, or SIGTERM from `timeout` and service managers.

The first signal lets the command release its locks and report what it did. A second Ctrl-C ends it at once.
"""

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
    """Runs `work`. A signal cancels it, so that it can clean up; the exit code is then that of the signal."""
    import asyncio  # Here: most commands block, and need no event loop.

    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        # `run` raises KeyboardInterrupt after Ctrl-C, so this was SIGTERM.
        raise typer.Exit(128 + signal.SIGTERM) from None


async def _cancelled_by_sigterm(work: Coroutine[object, object, Answer]) -> Answer:
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


@contextlib.contextmanager
def stopping(remark: str) -> Iterator[threading.Event]:
    """For a loop: the first Ctrl-C or SIGTERM sets the event and prints `remark`, and the exit code is that of the
    signal. A second one raises KeyboardInterrupt."""
    stop = threading.Event()
    came: list[int] = []

    def record(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        stop.set()
        aside(remark)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise typer.Exit(128 + came[0])


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Delays Ctrl-C until the block ends. A call that is interrupted may or may not have taken effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def record(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and before is signal.default_int_handler:
        raise KeyboardInterrupt
