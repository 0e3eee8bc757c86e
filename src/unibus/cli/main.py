"""`unibus`: the entry point of the command line, and the one place where errors become text and exit codes.

    unibus send …  ──▶  Shell (the table below)  ──▶  cli/messages/send.py: send()
                          ▲                              │ returns an ExitCode, or raises an error of `unibus.errors`
                          └── error:, hint:, exit code ◀─┘

A command is a typed function in a file of its own (`cli/demo/demo.py` holds `demo`). Its row in `Shell.table` names the
file and repeats the first line of the docstring. So a start imports the file of one command, and `unibus --help` none.
A command never prints its own errors: this file does it, in the same form for all of them.
"""

import functools
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import typer

from unibus.cli.connection.servers import use_ca
from unibus.cli.terminal.on_demand import CommandEntry, OnDemand
from unibus.cli.terminal.report import ExitCode, print_error, report, set_debug

BEFORE_THE_COMMAND: Final = ("--ca", "--debug", "--version")


class Shell(OnDemand):
    """The group of all commands. It shows `error:` and `hint:` instead of tracebacks and boxes."""

    # One file per command, or per group of commands, in the order of `unibus --help`.
    table: ClassVar[Mapping[str, CommandEntry]] = {
        "demo": CommandEntry("unibus.cli.demo.demo", "Show the bus at work, in one minute."),
        "serve": CommandEntry(
            "unibus.cli.server.serve",
            "Run a server on a store: HTTP and HTTPS, for unibus and for Azure Service Bus clients.",
        ),
        "server": CommandEntry("unibus.cli.server.server", "Show the status and log of a running server, or stop it."),
        "config": CommandEntry("unibus.cli.server.config", "Show the settings of `unibus serve`."),
        "init": CommandEntry("unibus.cli.server.init", "Write a configuration file with all settings as comments."),
        "send": CommandEntry("unibus.cli.messages.send", "Send a message. A missing queue is created."),
        "receive": CommandEntry(
            "unibus.cli.messages.receive", "Receive messages, and complete each one after it was shown."
        ),
        "peek": CommandEntry("unibus.cli.messages.peek", "Show messages without receiving them."),
        "purge": CommandEntry(
            "unibus.cli.messages.purge", "Remove all messages of a queue or subscription. This cannot be undone."
        ),
        "entities": CommandEntry(
            "unibus.cli.entities.entities", "List queues, topics and subscriptions with their counts."
        ),
        "declare": CommandEntry(
            "unibus.cli.entities.declare", "Create and update entities from a file. A missing store is created."
        ),
        "access": CommandEntry("unibus.cli.entities.access", "Manage authorization rules: names, rights and keys."),
        "query": CommandEntry("unibus.cli.messages.query", "Query messages and history with SQL."),
        "relay": CommandEntry("unibus.cli.messages.relay", "Store the messages that wait in an application's outbox."),
        "top": CommandEntry(
            "unibus.cli.entities.top", "Watch the counts and rates of queues, topics and subscriptions."
        ),
        "tail": CommandEntry("unibus.cli.messages.tail", "Show the last events of a channel's history, and follow it."),
        "trace": CommandEntry(
            "unibus.cli.messages.trace", "Show what happened to a message, in every entity it passed."
        ),
        "replay": CommandEntry(
            "unibus.cli.messages.replay", "Show the past messages of a channel, or send them again."
        ),
        "export": CommandEntry(
            "unibus.cli.files.export", "Write queues, topics and subscriptions with their messages to a file."
        ),
        "import": CommandEntry("unibus.cli.files.import_", "Read an export into a store. A missing store is created."),
        "check": CommandEntry(
            "unibus.cli.files.check", "Check a store: records, counts, and that history matches the state."
        ),
        "repair": CommandEntry(
            "unibus.cli.files.repair", "Write a new store with everything recoverable from a damaged one."
        ),
        "capture": CommandEntry("unibus.cli.capture.capture", "Capture the history of a store as Parquet files."),
        "dlq": CommandEntry("unibus.cli.dlq.dlq", "Inspect, retry, redirect or discard dead-lettered messages."),
        "filter": CommandEntry("unibus.cli.filter.filter_", "Test the filters of subscriptions."),
        "pipeline": CommandEntry(
            "unibus.cli.pipeline.pipeline", "Analyse the history of the bus with Spark: reports and SQL."
        ),
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
            # One line: typer lists the choices of an argument below each other.
            print_error(" ".join(error.format_message().split()), _usage_hint(error))
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
    # Imported here: no other start of the command line needs it.
    from unibus.bus.build_kind import build_hint, describe_version

    typer.echo(describe_version())
    if hint := build_hint():
        typer.echo(f"hint: {hint}")
    raise typer.Exit


app = typer.Typer(
    name="unibus",
    cls=Shell,
    help="A message bus for Python: publish and subscribe, durable queues, a server. `unibus demo` shows it at work; "
    "`unibus send orders hello` and `unibus receive orders` are a first message in the file unibus.db.",
    epilog="Exit codes: 0 success, 1 failed, 2 usage, 3 nothing matched, 4 cannot connect, 5 unauthorised.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # The contexts of all commands inherit it.
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
