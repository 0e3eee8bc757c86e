"""`unibus pipeline serve`: one warm Spark for many questions, and for programs that speak Spark Connect."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.pipeline.options import DEFAULT_LAKE, LakeDir, Master, extras, needs_pipeline, open_lake
from unibus.cli.pipeline.run import MAX_EVENTS_DEFAULT, Bad, Batches, Source
from unibus.cli.pipeline.sources import opened_sources
from unibus.cli.terminal.durations import seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush, is_terminal, write_json
from unibus.cli.terminal.signals import stopping
from unibus.errors import SparkLost
from unibus.stores.files.private import make_folder

if TYPE_CHECKING:
    from unibus.pipeline.serving.client import ServingAddress

PORT: Final = 15_002
LOOK_S: Final = 0.5


@dataclass(frozen=True)
class ServeOptions:
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Of the Connect server, on this computer only.")] = PORT
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Also bring the tables up to date, so often: 10s.")
    ] = None
    source: Source = None
    lake: LakeDir = Path(DEFAULT_LAKE)
    master: Master = None
    bad: Bad = "quarantine"
    max_events: Annotated[int, typer.Option(min=1, metavar="N", help="Of one batch.")] = MAX_EVENTS_DEFAULT


@with_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Keep a warm Spark: report, sql and trace find it by the lake, and are answered at once.

    It is a Spark Connect server too. Both are for this computer and this user only. Ctrl-C ends it.
    """
    every_s = None if options.every is None else seconds_of("--every", options.every)
    needs_pipeline()
    lake = open_lake(options.lake, makes=every_s is not None)
    with extras():
        from unibus.pipeline.serving.protocol import lock_door
        from unibus.pipeline.serving.server import answering, serving_session
    make_folder(str(options.lake))
    lock_door(options.lake).release()  # Before Spark is started for nothing.
    aside("starting Spark …")
    with extras():
        spark, connect = serving_session(options.port, options.master)
    aside("warming up …")
    lost = threading.Event()
    with (
        answering(options.lake, lake, spark, connect, lost) as address,
        stopping("ending; once more ends at once") as stop,
    ):
        _tell(address)
        if every_s is None:
            _wait(stop, lost)
            return
        with opened_sources(options.lake, options.source, options.bad != "fail") as sources:
            Batches(spark, lake, sources, options.max_events, options.bad).follow(every_s, stop)


def _wait(stop: threading.Event, lost: threading.Event) -> None:
    """A server whose Spark has ended does so too: its clients start a Spark of their own then."""
    while not stop.wait(LOOK_S):
        if lost.is_set():
            raise SparkLost("the Java machine of Spark has ended, and the server ends with it", "start it again")


def _tell(address: "ServingAddress") -> None:
    if is_terminal():
        typer.echo(f"serving; for Spark Connect: {address.connect}")
        aside("report, sql and trace with the same --lake are answered here; Ctrl-C ends")
    else:
        write_json({"pid": address.pid, "connect": address.connect})
        flush()
