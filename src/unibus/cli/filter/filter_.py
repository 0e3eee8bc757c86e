"""`unibus filter`: test the filter of a subscription on a message, and explain the result."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from uuid import uuid4

import typer

from unibus.cli.filter.message import message_of, values_of
from unibus.cli.filter.view import changes_of, pointed_at, show_action, show_parts, show_verdict
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside
from unibus.cli.terminal.report import ExitCode
from unibus.errors import EvaluationError, FilterInvalid

if TYPE_CHECKING:
    from unibus.core.envelope.message import Message
    from unibus.core.filters.actions import SqlRuleAction
    from unibus.core.filters.filters import SqlFilter

Made = TypeVar("Made")

PROPERTY_HELP: Final = "A property: 1, 1.5, true, 'text' or text, 2026-01-31T12:00Z; null removes it. May be repeated."

filter_ = typer.Typer(name="filter", help="Test the filters of subscriptions.")


@filter_.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@dataclass(frozen=True)
class FilterTryOptions:
    expression: Annotated[str, typer.Argument(metavar="EXPR", help="The text of the filter.", show_default=False)]
    properties: Annotated[list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help=PROPERTY_HELP)] = None
    system: Annotated[
        list[str] | None,
        typer.Option("--sys", metavar="NAME=VALUE", help="A system property: subject=x. May be repeated."),
    ] = None
    parameters: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="The value of @NAME. May be repeated.")
    ] = None
    message: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A message in JSON, as `unibus peek` writes it; - reads standard input."),
    ] = None
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="azure, or lenient: text such as '7' counts as a number.")
    ] = "azure"
    action: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A SQL action (SET, REMOVE); shows what it changes.")
    ] = None


@filter_.command("test")
@with_options(FilterTryOptions)
def try_(options: FilterTryOptions) -> ExitCode:
    """Show whether a message matches a filter, and why.

    Prints a tree of the expressions with their values on a terminal, JSON Lines to a pipe. For example:
    unibus filter test "color = 'red' AND price > 10" --property color=red --property price=20

    Exit code 3 if it does not match, 2 if the filter is invalid, 1 if it cannot be evaluated for the message.
    """
    condition, action = _condition(options), _action(options)
    message = message_of(options.message, options.properties or (), options.system or ())
    parts = condition.explain(message)
    show_parts(parts)
    try:
        matches = condition.matches(message)
    except EvaluationError as error:
        show_verdict(False, None, error)
        raise
    show_verdict(matches, parts[0].value, None)
    if action is not None:
        _act(action, message, matches)
    return ExitCode.OK if matches else ExitCode.NOTHING_MATCHED


def _condition(options: FilterTryOptions) -> "SqlFilter":
    from unibus.core.filters.filters import SqlFilter

    values = values_of("--param", options.parameters or ())
    return _pointed(options.expression, lambda: SqlFilter(options.expression, values, options.mode, uuid4))


def _action(options: FilterTryOptions) -> "SqlRuleAction | None":
    from unibus.core.filters.actions import SqlRuleAction

    text = options.action
    if text is None:
        return None
    values = values_of("--param", options.parameters or ())
    return _pointed(text, lambda: SqlRuleAction(text, values, options.mode, uuid4))


def _pointed(text: str, make: Callable[[], Made]) -> Made:
    """Prints the position of a syntax error in the text before the error itself is raised."""
    try:
        return make()
    except FilterInvalid as error:
        # Not every error has a position in the text.
        if f"at character {error.position + 1}" in error.what:
            typer.echo(pointed_at(text, error.position), err=True)
        raise


def _act(action: "SqlRuleAction", message: "Message", matches: bool) -> None:
    if matches:
        show_action(action.text, changes_of(message, action.apply(message)))
    else:
        aside("the action was not applied: it applies to matching messages only")
