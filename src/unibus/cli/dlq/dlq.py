"""`unibus dlq`: look at dead letters and bring them back, one or thousands. How thousands go is in dlq_bulk.py."""

from dataclasses import dataclass
from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.dlq.bulk import carry_out
from unibus.cli.dlq.jobs import jobs
from unibus.cli.dlq.options import ChosenOptions, FilterOptions
from unibus.cli.dlq.rules import rules
from unibus.cli.dlq.view import show_groups, show_letter, show_list
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush
from unibus.cli.terminal.report import ExitCode
from unibus.errors import MessageNotFound

dlq = typer.Typer(name="dlq", help="Look at dead letters, and bring them back.")


@dlq.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@dataclass(frozen=True, kw_only=True)
class ListOptions(FilterOptions):
    count: Annotated[int, typer.Option(min=0, help="How many; 0 for all there are.")] = 50
    summary: Annotated[bool, typer.Option("--summary", help="Only how many, by queue and reason.")] = False


@dlq.command()
@with_options(ListOptions)
def ls(options: ListOptions) -> ExitCode:
    """List dead letters, the first to die first.

    Exit code 3 if there is none.
    """
    chosen = options.chosen()
    with managed(options.url) as bus:
        letters = bus.dead_letters()
        groups = letters.groups(chosen)
        shown = [] if options.summary else letters.list(chosen, options.count or None)
    if options.summary:
        show_groups(groups)
    else:
        show_list(shown)
        left = sum(group.count for group in groups) - len(shown)
        if left > 0:
            aside(f"and {left:,} more; --count 0 lists all, --summary counts them")
    if not groups:
        aside("no dead letters that match")
    return ExitCode.OK if groups else ExitCode.NOTHING_MATCHED


@dlq.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the message.", show_default=False)],
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only there.")] = None,
    url: Url = DEFAULT_STORE,
) -> None:
    """Show a dead letter: why it died, and the message itself."""
    from unibus.bus.dead_letters.filters import DeadLetterFilter

    with managed(url) as bus:
        found = bus.dead_letters().list(DeadLetterFilter(queue=queue, ids=(id,)), None)
    if not found:
        raise MessageNotFound(f"there is no dead letter {id}", "`unibus dlq ls` lists what there is")
    for letter in found:
        show_letter(letter)
    flush()


@dataclass(frozen=True, kw_only=True)
class RetryOptions(ChosenOptions):
    force: Annotated[bool, typer.Option("--force", help="Also those that were brought back too often.")] = False


@dlq.command()
@with_options(RetryOptions)
def retry(options: RetryOptions) -> ExitCode:
    """Send dead letters back to where they died.

    Exit code 1 if some could not go, 3 if there was none.
    """
    return carry_out(options, "retry", options.request("retry", force=options.force))


@dataclass(frozen=True, kw_only=True)
class RedirectOptions(ChosenOptions):
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A queue, topic or topic/Subscriptions/name.", show_default=False)
    ]


@dlq.command()
@with_options(RedirectOptions)
def redirect(options: RedirectOptions) -> ExitCode:
    """Send dead letters to another queue, topic or subscription."""
    return carry_out(options, f"redirect to {options.target}", options.request("redirect", target=options.target))


@dlq.command()
@with_options(ChosenOptions)
def discard(options: ChosenOptions) -> ExitCode:
    """Throw dead letters away. They cannot be brought back after that."""
    return carry_out(options, "throw away", options.request("discard"))


dlq.add_typer(rules)
dlq.add_typer(jobs)
