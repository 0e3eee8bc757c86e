"""`unibus demo`: a minute that shows the bus at work, in a terminal or through a pipe.

It uses the public calls only, so everything it shows can be done by anybody. Ctrl-C ends it at once: the bus is
closed, the summary is printed, and the exit code is that of the signal.
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
"""Every stage has ended its subscriptions by then; what is left are threads on their way out."""


def demo(
    seconds: Annotated[float, typer.Option(min=0.1, max=3600.0, help="How long the whole story takes.")] = 60.0,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live table.")] = False,
) -> None:
    """A minute in the terminal that shows the bus at work."""
    console = Console(highlight=False)
    bus = SyncMessageBus()
    watch = DemoWatch(bus)
    live = console.is_terminal and not console.is_dumb_terminal and not plain
    screen: Screen = LiveScreen(console, watch) if live else PlainScreen(console, watch)
    began_s = time.monotonic()
    try:
        with _quiet_log(), screen:
            _tell_the_story(bus, screen, seconds)
    finally:
        # Also after Ctrl-C, which then goes on to `main` and becomes the exit code.
        with _quiet_log():  # A short story leaves messages that its slow handler did not get to.
            bus.close(CLOSE_TIMEOUT_S)
        screen.summary(time.monotonic() - began_s)


def _tell_the_story(bus: SyncMessageBus, screen: Screen, seconds: float) -> None:
    whole = sum(chapter.share for chapter in STAGES)
    for number, chapter in enumerate(STAGES, 1):
        screen.begin(f"{number}/{len(STAGES)} {chapter.title}", chapter.text)
        with contextlib.closing(Stage(bus, screen, seconds * chapter.share / whole)) as stage:
            chapter.play(stage)


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """The bus logs each dead letter, which is right in a program and would tear the table here."""
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
