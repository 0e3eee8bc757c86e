"""`unibus demo`: a one-minute tour of the bus, on a terminal or to a pipe.

It uses the public API only. Ctrl-C ends it at once: the bus is closed, the summary is printed, and the exit code is
that of the signal.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.cli.demo.screen import LiveScreen, PlainScreen, Screen
from unibus.cli.demo.stages import STAGES, Stage
from unibus.cli.demo.table import DemoWatch

CLOSE_TIMEOUT_S = 0.2
"""Short, because every stage has cancelled its subscriptions: only threads that are ending remain."""


def demo(
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="The duration of the whole demo.")] = 60.0,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live table.")] = False,
) -> None:
    """Show the bus at work, in one minute."""
    console = Console(highlight=False)
    bus = SyncMessageBus()
    watch = DemoWatch(bus)
    live = console.is_terminal and not console.is_dumb_terminal and not plain
    screen: Screen = LiveScreen(console, watch) if live else PlainScreen(console, watch)
    began_s = time.monotonic()
    try:
        with _quiet_log(), screen:
            _run_stages(bus, screen, seconds)
    finally:
        # Also after Ctrl-C, which `main` then turns into the exit code.
        with _quiet_log():  # A short demo leaves a backlog behind its slow handler.
            bus.close(CLOSE_TIMEOUT_S)
        screen.summary(time.monotonic() - began_s)


def _run_stages(bus: SyncMessageBus, screen: Screen, seconds: float) -> None:
    whole = sum(chapter.share for chapter in STAGES)
    for number, chapter in enumerate(STAGES, 1):
        screen.begin(f"{number}/{len(STAGES)} {chapter.title}", chapter.text)
        with contextlib.closing(Stage(bus, screen, seconds * chapter.share / whole)) as stage:
            chapter.run(stage)


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Silences the log: the bus logs each dead-lettered message, and these lines would break the live table."""
    log = logging.getLogger("unibus")
    silence = logging.NullHandler()
    propagates = log.propagate
    log.addHandler(silence)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = propagates
        log.removeHandler(silence)
