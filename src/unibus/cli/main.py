"""`unibus`: the entry of the command line, and the one place where errors become text and exit codes.

A command is a typed function in a file of its own (`cli/demo.py` holds `demo`), named in COMMANDS below. It
raises the errors of `unibus.errors` and leaves telling about them to this file. It may return an ExitCode.
"""

import functools
import importlib.metadata
import platform
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from unibus.cli.capture import capture
from unibus.cli.declare import declare
from unibus.cli.demo import demo
from unibus.cli.dlq import dlq
from unibus.cli.entities import entities
from unibus.cli.export import export
from unibus.cli.filter_ import filter_
from unibus.cli.import_ import import_
from unibus.cli.peek import peek
from unibus.cli.pipeline import pipeline
from unibus.cli.query import query
from unibus.cli.receive import receive
from unibus.cli.relay import relay
from unibus.cli.replay import replay
from unibus.cli.report import ExitCode, report, tell
from unibus.cli.send import send
from unibus.cli.tail import tail
from unibus.cli.top import top
from unibus.cli.trace import trace

# One file per command: import its function above, and name it here. The order is the order of `unibus --help`.
COMMANDS: Final[tuple[Callable[..., ExitCode | None], ...]] = (
    demo,
    send,
    receive,
    peek,
    entities,
    declare,
    query,
    relay,
    top,
    tail,
    trace,
    replay,
    export,
    import_,
    capture,
)

# Commands that have commands of their own.
GROUPS: Final[tuple[typer.Typer, ...]] = (dlq, filter_, pipeline)


class Shell(TyperGroup):
    """The group of all commands. It shows `error:` and `hint:` instead of tracebacks and boxes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process; with `standalone_mode=False` return, and raise what the command raised."""
        run = functools.partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return run()
        try:
            code = run()
        except typer.TyperException as error:
            tell(error.format_message(), f"`{_command_path(error)} --help` shows how to call it")
            code = error.exit_code
        except typer.Abort as abort:
            tell("cancelled", "")
            # Ctrl-C at a question ends as it does everywhere; a "no" is an answer.
            interrupted = isinstance(abort.__context__, KeyboardInterrupt)
            code = 128 + signal.SIGINT if interrupted else ExitCode.FAILED
        except Exception as error:
            code = report(error, debug="--debug" in (sys.argv if args is None else args))
        sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)


def _command_path(error: typer.TyperException) -> str:
    """Which command was called wrongly; only usage errors know it."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "unibus"


def _version(asked: bool) -> None:
    if not asked:
        return
    from unibus.core import COMPILED  # Here, because no other start of the command line needs it this early.

    try:
        number = importlib.metadata.version("unibus")
    except importlib.metadata.PackageNotFoundError:
        number = "(not installed)"
    kind = "compiled" if COMPILED else "plain"
    typer.echo(f"unibus {number}, {kind}, Python {platform.python_version()}")
    raise typer.Exit


app = typer.Typer(
    name="unibus",
    cls=Shell,
    help="One message bus for Python, from an import to a data centre.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing matched, 4 cannot connect, 5 unauthorised.",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks when a command fails.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in COMMANDS:
    app.command()(command)
for group in GROUPS:
    app.add_typer(group)
