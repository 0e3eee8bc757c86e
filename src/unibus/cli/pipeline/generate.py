"""`unibus pipeline generate`: synthetic history to try the pipeline with.

The seed determines everything, so that two runs with the same seed have the same messages.
"""

import signal
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.pipeline.options import extras
from unibus.cli.terminal.durations import METAVAR as DURATION
from unibus.cli.terminal.durations import seconds_of
from unibus.cli.terminal.folders import check_can_write
from unibus.cli.terminal.moments import METAVAR, moment_of
from unibus.cli.terminal.output import flush, is_terminal, write_json
from unibus.cli.terminal.progress import bar
from unibus.cli.terminal.report import print_error
from unibus.counting import counted
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.pipeline.generator.generate import Generated
    from unibus.pipeline.generator.world import WorldPlan

START: Final = "2026-01-05T00:00+00:00"


def generate(
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="Number of messages.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="The folder to write: one capture directory per domain.")],
    domains: Annotated[int, typer.Option(min=1, metavar="N", help="Number of domains.")] = 3,
    channels: Annotated[int, typer.Option(min=1, metavar="N", help="Number of queues and topics per domain.")] = 50,
    span: Annotated[
        str, typer.Option(metavar=DURATION, help="The time span of the history, at most ten years.")
    ] = "24h",
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same history.")] = 1,
    bodies: Annotated[bool, typer.Option("--bodies", help="Write bodies, too.")] = False,
    start: Annotated[
        str, typer.Option(metavar=METAVAR, help="The start of the history, in UTC, or how long ago: 24h.")
    ] = START,
) -> None:
    """Generate synthetic history: retries, dead-lettered messages, sessions, traces over several domains.

    For example: `unibus pipeline generate --messages 100000 --out DIR`, then `unibus pipeline run --once --from DIR`.
    """
    hours = seconds_of("--span", span) / 3_600
    began = moment_of("--start", start, zone=UTC)
    with extras():
        from unibus.pipeline.generator.generate import generate as make
        from unibus.pipeline.generator.world import WorldPlan
    out = local_folder(out, "a capture")
    check_can_write("--out DIR", out)
    plan = WorldPlan(messages, domains, channels, hours, seed, bodies, int(began.timestamp()) * 1_000_000)
    try:
        with bar() as progress:
            made = make(out, plan, progress)
    except KeyboardInterrupt:
        _report_incomplete(out, plan)
        raise typer.Exit(128 + signal.SIGINT) from None
    _report(made, out)


def _report_incomplete(out: str, plan: "WorldPlan") -> None:
    """Warns, because a part of a history looks like a complete one to all other commands."""
    from unibus.capture.manifest import Manifest, is_capture
    from unibus.pipeline.generator.world import domain_name

    named = [str(Path(out) / domain_name(plan, number)) for number in range(plan.domains)]
    folders = [folder for folder in named if is_capture(folder)]
    events = sum(Manifest.load(folder).last for folder in folders)
    print_error(
        f"stopped before the end: {counted(events, 'event is', 'events are')} in {_directories(folders, out)}",
        "this history is incomplete; remove it before you generate into the same folder again",
    )


def _directories(folders: Sequence[str], out: str) -> str:
    return f"{counted(len(folders), 'capture directory', 'capture directories')} in {out}"


def _report(made: "Generated", out: str) -> None:
    if is_terminal():
        where = _directories(made.folders, out)
        counts = f"{counted(made.messages, 'message')}, {counted(made.events, 'event')}"
        typer.echo(f"{counts}, {made.bytes / 1e6:,.1f} MB: {where}")
        return
    record = {"messages": made.messages, "events": made.events, "bytes": made.bytes}
    write_json({**record, "folders": list(made.folders)})
    flush()
