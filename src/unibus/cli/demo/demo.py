"""`unibus demo`: a one-minute tour of the bus, on a terminal or to a pipe.

It uses the public API, a real store and a real `kill -9`. Ctrl-C ends it at once: its process is killed, the buses are
closed, the summary is printed, and the exit code is that of the signal. The exit code is 1 if a message that was
acknowledged is not in the store.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.build_kind import build_hint, describe_version
from unibus.cli.demo.demo_store import DemoStore
from unibus.cli.demo.screen import LiveScreen, PlainScreen, Screen, print_line
from unibus.cli.demo.stage import DemoResult, Scene, Stage
from unibus.cli.demo.stages import STAGES
from unibus.cli.demo.table import DemoRow, DemoWatch
from unibus.cli.terminal.report import ExitCode
from unibus.core import COMPILED

CLOSE_TIMEOUT_S = 0.2
"""Short, because every stage has cancelled its subscriptions: only threads that are ending remain."""


def demo(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600.0, metavar="N", help="The duration of the whole demo.")
    ] = 60.0,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live view.")] = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the store to this folder instead of a temporary one."),
    ] = None,
) -> ExitCode:
    """Show the bus at work, in one minute.

    Throughput in memory; then, on a real store: a sender killed with `kill -9`, the trace of a message, dead-lettered
    messages brought back, and SQL. The end shows where the store is, and commands that show more of it.

    Exit code 1 if a message that was acknowledged is not in the store.
    """
    # Not `console.is_terminal`, which FORCE_COLOR sets: a pipe may get colours, and never a view that is redrawn.
    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, force_terminal=False if plain else None)
    bus, store, result = SyncMessageBus(), DemoStore(keep), DemoResult()
    watch = DemoWatch(bus)
    live = is_terminal and not console.is_dumb_terminal and not plain
    screen: Screen = LiveScreen(console, watch) if live else PlainScreen(console)
    began_s = time.monotonic()
    try:
        _print_build(console)
        with _quiet_log(), screen:
            _run_stages(Scene(bus, store, screen, result, watch), seconds)
    finally:
        # Also after Ctrl-C, which `main` then turns into the exit code.
        rows = _close(bus, store, watch)
        screen.figures(rows)
        _print_summary(console, store, result, rows, time.monotonic() - began_s)
    return ExitCode.FAILED if result.lost else ExitCode.OK


def _run_stages(scene: Scene, seconds: float) -> None:
    whole = sum(chapter.share for chapter in STAGES)
    for number, chapter in enumerate(STAGES, 1):
        scene.screen.begin(f"{number}/{len(STAGES)} {chapter.title}", chapter.text)
        with contextlib.closing(Stage(scene, seconds * chapter.share / whole)) as stage:
            chapter.run(stage)


def _close(bus: SyncMessageBus, store: DemoStore, watch: DemoWatch) -> list[DemoRow]:
    """Closes both buses and returns their last figures, which a store cannot give after that."""
    with _quiet_log():  # A short demo leaves a backlog behind its slow handler.
        try:
            return watch.rows()
        finally:
            store.close()
            bus.close(CLOSE_TIMEOUT_S)


def _print_build(console: Console) -> None:
    print_line(console, describe_version())
    if not COMPILED:
        print_line(console, build_hint() or "`pip install .` compiles it, and makes it about ten times as fast")


def _print_summary(console: Console, store: DemoStore, result: DemoResult, rows: list[DemoRow], seconds: float) -> None:
    published, dispatched = sum(row.published for row in rows), sum(row.dispatched for row in rows)
    dead = sum(row.dead_letters for row in rows)
    figures = f"{published:,} published, {dispatched:,} dispatched, {dead:,} dead-lettered in {seconds:.1f} s"
    print_line(console, figures)
    if result.kills:
        print_line(console, f"after {result.kills} × kill -9: {result.describe()}")
    if store.exists:
        print_line(console, f"The store is {store.path}. These commands show more of it:")
        for command in store.commands(result.traced):
            print_line(console, f"  {command}")


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """Silences the log: the bus logs each dead-lettered message, and these lines would break the live view."""
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
