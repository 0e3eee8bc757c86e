"""`unibus`: the entry point of the command line, and the one place where errors become text and exit codes.

    unibus send …  ──▶  Shell (the table below)  ──▶  cli/messages/send.py: send()
                          ▲                              │ returns an ExitCode, or raises an error of `unibus.errors`
                          └── error:, hint:, exit code ◀─┘

A command is a typed function in a file of its own (`cli/demo/demo.py` holds `demo`). Its row in `Shell.homes` names the
file, so a start imports the file of one command.
A command never prints its own errors: this file does it, in the same form for all of them.
"""

import functools
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import typer

from unibus.cli.connection.servers import use_ca
from unibus.cli.terminal.on_demand import OnDemand
from unibus.cli.terminal.report import ExitCode, print_error, report, set_debug

BEFORE_THE_COMMAND: Final = ("--ca", "--debug", "--version")


class Shell(OnDemand):
    """The group of all commands. It shows `error:` and `hint:` instead of tracebacks and boxes."""

    # One file per command, or per group of commands. The order is the order of `unibus --help`.
    homes: ClassVar[Mapping[str, str]] = {
        "demo": "unibus.cli.demo.demo",
        "serve": "unibus.cli.server.serve",
        "server": "unibus.cli.server.server",
        "config": "unibus.cli.server.config",
        "init": "unibus.cli.server.init",
        "send": "unibus.cli.messages.send",
        "receive": "unibus.cli.messages.receive",
        "peek": "unibus.cli.messages.peek",
        "purge": "unibus.cli.messages.purge",
        "entities": "unibus.cli.entities.entities",
        "declare": "unibus.cli.entities.declare",
        "access": "unibus.cli.entities.access",
        "query": "unibus.cli.messages.query",
        "relay": "unibus.cli.messages.relay",
        "top": "unibus.cli.entities.top",
        "tail": "unibus.cli.messages.tail",
        "trace": "unibus.cli.messages.trace",
        "replay": "unibus.cli.messages.replay",
        "export": "unibus.cli.files.export",
        "import": "unibus.cli.files.import_",
        "check": "unibus.cli.files.check",
        "repair": "unibus.cli.files.repair",
        "capture": "unibus.cli.capture.capture",
        "dlq": "unibus.cli.dlq.dlq",
        "filter": "unibus.cli.filter.filter_",
        "pipeline": "unibus.cli.pipeline.pipeline",
    }

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
            print_error(error.format_message(), _usage_hint(error))
            code = error.exit_code
        except typer.Abort as abort:
            # Ctrl-C at a prompt has the exit code of the signal; the answer "no" is an ordinary failure.
            interrupted = isinstance(abort.__context__, KeyboardInterrupt)
            if interrupted and sys.stderr.isatty():
                typer.echo(err=True)  # The prompt is still on the current line.
            print_error("cancelled", "")
            code = 128 + signal.SIGINT if interrupted else ExitCode.FAILED
        except Exception as error:
            debug = "--debug" in (sys.argv if args is None else args)
            code = 128 + signal.SIGINT if _was_interrupted(error) else report(error, debug)
        sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused the error: it cuts a connection, say, and the call on it then fails. Only Ctrl-C counts."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _usage_hint(error: typer.TyperException) -> str:
    option = getattr(error, "option_name", None)
    if option in BEFORE_THE_COMMAND:
        return f"put it before the command: `unibus {option} …`"
    return f"`{_command_path(error)} --help` shows the usage"


def _command_path(error: typer.TyperException) -> str:
    """The command that was called wrongly. Only usage errors have this context."""
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "unibus"


def _version(asked: bool) -> None:
    if not asked:
        return
    # Imported here: no other start of the command line needs them.
    import importlib.metadata

    from unibus.bus.build_kind import build_hint, describe_build

    try:
        number = importlib.metadata.version("unibus")
    except importlib.metadata.PackageNotFoundError:
        number = "(not installed)"
    typer.echo(f"unibus {number} ({describe_build()}), Python {platform.python_version()}")
    if hint := build_hint():
        typer.echo(f"hint: {hint}")
    raise typer.Exit


app = typer.Typer(
    name="unibus",
    cls=Shell,
    help="One message bus for Python, from an import to a data centre.",
    epilog="Exit codes: 0 success, 1 failed, 2 usage, 3 nothing matched, 4 cannot connect, 5 unauthorised.",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks when a command fails.")] = False,
    ca: Annotated[
        str, typer.Option("--ca", metavar="FILE", help="CA certificate of an https:// server; default: UNIBUS_CA.")
    ] = "",
) -> None:
    set_debug(debug)
    use_ca(ca)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
