"""`unibus dlq`: inspect dead-lettered messages, and retry, redirect or discard one or thousands (bulk.py)."""

from dataclasses import dataclass
from typing import Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.dlq.bulk import carry_out
from unibus.cli.dlq.jobs import jobs
from unibus.cli.dlq.options import ChosenOptions, FilterOptions
from unibus.cli.dlq.rules import rules
from unibus.cli.dlq.view import show_groups, show_list, show_message
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside, flush
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import Limit, limit_of
from unibus.errors import MessageNotFound

dlq = typer.Typer(name="dlq", help="Inspect, retry, redirect or discard dead-lettered messages.")


@dlq.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@dataclass(frozen=True, kw_only=True)
class ListOptions(FilterOptions):
    limit: Limit = "50"
    summary: Annotated[bool, typer.Option("--summary", help="Only the counts by queue and reason.")] = False


@dlq.command()
@with_options(ListOptions)
def ls(options: ListOptions) -> ExitCode:
    """List dead-lettered messages, the oldest first.

    Exit code 3 if there are none.
    """
    chosen, limit = options.chosen(), limit_of(options.limit)
    with managed(options.url) as bus:
        dead_letters = bus.dead_letters()
        groups = dead_letters.groups(chosen)
        shown = [] if options.summary else dead_letters.list(chosen, limit)
    if options.summary:
        show_groups(groups)
    else:
        show_list(shown)
        left = sum(group.count for group in groups) - len(shown)
        if left > 0:
            aside(f"and {left:,} more; --limit all lists them, --summary counts them")
    if not groups:
        aside("no dead-lettered messages match")
    return ExitCode.OK if groups else ExitCode.NOTHING_MATCHED


@dlq.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the message.", show_default=False)],
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only in this queue or subscription.")] = None,
    url: Url = DEFAULT_STORE,
) -> None:
    """Show a dead-lettered message: the reason, and the message itself."""
    from unibus.bus.dead_letters.filters import DeadLetterFilter

    with managed(url) as bus:
        found = bus.dead_letters().list(DeadLetterFilter(queue=queue, ids=(id,)), None)
    if not found:
        raise MessageNotFound(f"there is no dead-lettered message {id}", "`unibus dlq ls` lists all of them")
    for message in found:
        show_message(message)
    flush()


@dataclass(frozen=True, kw_only=True)
class RetryOptions(ChosenOptions):
    force: Annotated[bool, typer.Option("--force", help="Also retry messages that have reached --max-recoveries.")] = (
        False
    )


@dlq.command()
@with_options(RetryOptions)
def retry(options: RetryOptions) -> ExitCode:
    """Send dead-lettered messages back to the entity they came from.

    Exit code 1 if some failed, 3 if there were none.
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
    """Send dead-lettered messages to another queue, topic or subscription.

    Exit code 1 if some failed, 3 if there were none.
    """
    return carry_out(options, f"redirect to {options.target}", options.request("redirect", target=options.target))


@dlq.command()
@with_options(ChosenOptions)
def discard(options: ChosenOptions) -> ExitCode:
    """Discard dead-lettered messages. This cannot be undone.

    Exit code 1 if some failed, 3 if there were none.
    """
    return carry_out(options, "discard", options.request("discard"))


dlq.add_typer(rules)
dlq.add_typer(jobs)
