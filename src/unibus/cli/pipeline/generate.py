"""`unibus pipeline generate`: history that never happened, to try the pipeline on.

Everything follows from the seed, so that two people who use the same one talk about the same messages.
"""

import signal
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.pipeline.options import extras
from unibus.cli.terminal.folders import check_can_write
from unibus.cli.terminal.moments import moment_of
from unibus.cli.terminal.output import flush, is_terminal, write_json
from unibus.cli.terminal.progress import bar
from unibus.cli.terminal.report import tell
from unibus.counting import counted
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.pipeline.generator.generate import Generated
    from unibus.pipeline.generator.world import WorldPlan

START: Final = "2026-01-05T00:00+00:00"


def generate(
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages are sent.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where: each domain becomes a capture directory there.")],
    domains: Annotated[int, typer.Option(min=1, metavar="N", help="How many domains there are.")] = 3,
    channels: Annotated[int, typer.Option(min=1, metavar="N", help="Queues and topics of each domain.")] = 50,
    hours: Annotated[float, typer.Option(metavar="H", help="How long it took, at most ten years.")] = 24.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same history.")] = 1,
    bodies: Annotated[bool, typer.Option("--bodies", help="Write bodies too.")] = False,
    start: Annotated[str, typer.Option(metavar="TIME", help="When it began, in UTC, or how long ago: 24h.")] = START,
) -> None:
    """Make synthetic history: queues and topics, retries, dead letters, sessions, traces over several domains.

    For trials: `unibus pipeline generate --messages 100000 --out DIR`, then `unibus pipeline run --once --from DIR`.
    """
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
        _tell_half(out, plan)
        raise typer.Exit(128 + signal.SIGINT) from None
    _tell(made, out)


def _tell_half(out: str, plan: "WorldPlan") -> None:
    """What is there looks like a whole history to everybody else."""
    from unibus.capture.manifest import Manifest, is_capture
    from unibus.pipeline.generator.world import domain_name

    named = [str(Path(out) / domain_name(plan, number)) for number in range(plan.domains)]
    folders = [folder for folder in named if is_capture(folder)]
    events = sum(Manifest.load(folder).last for folder in folders)
    tell(
        f"ended before it was done: {counted(events, 'event is', 'events are')} in {_directories(folders, out)}",
        "that is a part of the history; remove it before you generate there again",
    )


def _directories(folders: Sequence[str], out: str) -> str:
    return f"{counted(len(folders), 'capture directory', 'capture directories')} in {out}"


def _tell(made: "Generated", out: str) -> None:
    if is_terminal():
        where = _directories(made.folders, out)
        counts = f"{counted(made.messages, 'message')}, {counted(made.events, 'event')}"
        typer.echo(f"{counts}, {made.bytes / 1e6:,.1f} MB: {where}")
        return
    record = {"messages": made.messages, "events": made.events, "bytes": made.bytes}
    write_json({**record, "folders": list(made.folders)})
    flush()
