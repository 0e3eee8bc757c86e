"""`unibus pipeline serve`: keep one Spark running for many queries, and for Spark Connect clients."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.pipeline.options import DEFAULT_LAKE, LakeDir, Master, extras, needs_pipeline, open_lake
from unibus.cli.pipeline.run import MAX_EVENTS_DEFAULT, Bad, Batches, Source
from unibus.cli.pipeline.sources import opened_sources
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.signals import stopping
from unibus.errors import SparkLost
from unibus.stores.files.private import make_folder

if TYPE_CHECKING:
    from unibus.pipeline.serving.client import ServingAddress

PORT: Final = 15_002
POLL_S: Final = 0.5


@dataclass(frozen=True)
class ServeOptions:
    port: Annotated[
        int,
        typer.Option(
            min=1, max=65_535, metavar="PORT", help="The port of the Spark Connect server, on this machine only."
        ),
    ] = PORT
    every: Annotated[
        str | None, typer.Option(metavar=METAVAR, help="Also bring the tables up to date at this interval: 10s.")
    ] = None
    source: Source = None
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    bad: Bad = "quarantine"
    max_events: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of events in one batch.")] = (
        MAX_EVENTS_DEFAULT
    )


@with_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Keep Spark running, so that report, sql and trace on this lake are answered at once.

    It is a Spark Connect server, too. Both are for this machine and this user only. Ctrl-C ends it.
    """
    every_s = None if options.every is None else seconds_of("--every", options.every)
    needs_pipeline()
    lake = open_lake(options.lake, makes=every_s is not None)
    with extras():
        from unibus.pipeline.serving.protocol import lock_serving
        from unibus.pipeline.serving.server import answering, serving_session
    make_folder(str(options.lake))
    lock_serving(options.lake).release()  # Raises here if another server runs, before Spark is started.
    aside("starting Spark …")
    with extras():
        spark, connect = serving_session(options.port, options.master)
    aside("warming up …")
    lost = threading.Event()
    with (
        answering(options.lake, lake, spark, connect, lost) as address,
        stopping("ending; press Ctrl-C again to end at once") as stop,
    ):
        _report(address)
        if every_s is None:
            _wait(stop, lost)
            return
        with opened_sources(options.lake, options.source, options.bad != "fail") as sources:
            Batches(spark, lake, sources, options.max_events, options.bad).follow(every_s, stop)


def _wait(stop: threading.Event, lost: threading.Event) -> None:
    """Waits for `stop`. Ends if Spark has ended: clients then start their own Spark."""
    while not stop.wait(POLL_S):
        if lost.is_set():
            raise SparkLost("the Java process of Spark has ended, so the server ends, too", "start the server again")


def _report(address: "ServingAddress") -> None:
    if is_terminal():
        typer.echo(f"serving; for Spark Connect: {address.connect}")
        aside("answers report, sql and trace with the same --lake; press Ctrl-C to end")
    else:
        write_json({"pid": address.pid, "connect": address.connect})
        flush()
