"""`unibus pipeline generate`: history that never happened, to try the pipeline on.

Everything follows from the seed, so that two people who use the same one talk about the same messages.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from unibus.cli.moments import moment_of
from unibus.cli.output import flush, is_terminal, write_json
from unibus.cli.progress import bar
from unibus.errors import ExtraMissing

if TYPE_CHECKING:
    from unibus.pipeline.generator.generate import Generated

START: Final = "2026-01-05T00:00+00:00"


def generate(
    messages: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages are sent.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where: each domain becomes a capture directory there.")],
    domains: Annotated[int, typer.Option(min=1, metavar="N", help="How many domains there are.")] = 3,
    channels: Annotated[int, typer.Option(min=1, metavar="N", help="Queues and topics of each domain.")] = 50,
    hours: Annotated[float, typer.Option(metavar="H", help="How long it took.")] = 24.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed gives the same history.")] = 1,
    bodies: Annotated[bool, typer.Option("--bodies", help="Write bodies too.")] = False,
    start: Annotated[str, typer.Option(metavar="TIME", help="When it began, or how long ago: 24h.")] = START,
) -> None:
    """Make synthetic history: queues and topics, retries, dead letters, sessions, traces over several domains.

    For trials: `unibus pipeline generate --messages 100000 --out DIR`, then `unibus pipeline run --once --from DIR`.
    """
    began = moment_of("--start", start)
    try:
        from unibus.pipeline.generator.generate import generate as make
        from unibus.pipeline.generator.world import Plan
    except ModuleNotFoundError as error:
        raise ExtraMissing(f"there is no {error.name} here", "pip install 'unibus[pipeline]'") from error
    plan = Plan(messages, domains, channels, hours, seed, bodies, int(began.timestamp()) * 1_000_000)
    with bar() as progress:
        made = make(out, plan, progress)
    _tell(made, out)


def _tell(made: "Generated", out: str) -> None:
    if is_terminal():
        where = f"{len(made.folders)} capture directories in {out}"
        typer.echo(f"{made.messages:,} messages, {made.events:,} events, {made.bytes / 1e6:,.1f} MB: {where}")
        return
    counts = {"messages": made.messages, "events": made.events, "bytes": made.bytes}
    write_json({**counts, "folders": list(made.folders)})
    flush()
