"""Every failed command prints what was wrong and a hint on the error stream, and has the matching exit code."""

import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError

import pytest
import typer
from typer.testing import CliRunner, Result

from unibus import errors
from unibus.bus import build_kind
from unibus.cli import main
from unibus.cli.terminal import report
from unibus.cli.terminal.report import EXIT_CODES, ExitCode, exit_code, masked
from unibus.core import COMPILED

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs `unibus` with one more command, `act`, that does what the test wants."""

    def call(*arguments: str, act: Callable[[], object] = lambda: None) -> Result:
        app = typer.Typer(cls=main.Shell, pretty_exceptions_enable=False)
        app.callback(invoke_without_command=True)(main.start)

        @app.command("act")
        def command(count: int = 0) -> object:
            return act()

        return CliRunner().invoke(app, arguments, prog_name="unibus")

    return call


def raises(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "COLUMNS": "100"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


def test_version_names_the_release_and_whether_it_is_compiled(run: Run) -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("unibus ")
    assert ("(compiled)" if COMPILED else "(plain Python") in result.stdout


@pytest.mark.parametrize(
    ("compiled", "checkout", "described", "hints"),
    [
        (True, False, "(compiled), Python 3.", 0),
        (False, True, "(plain Python, from a checkout), Python 3.", 0),
        (False, False, "(plain Python, about ten times slower than compiled), Python 3.", 1),
    ],
)
def test_version_of_a_plain_package_tells_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, compiled: bool, checkout: bool, described: str, hints: int
) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", compiled)
    monkeypatch.setattr(build_kind, "is_checkout", lambda: checkout)
    first, *others = run("--version").stdout.splitlines()
    assert described in first
    assert [line.startswith("hint: install it again with `pip install -v`") for line in others] == [True] * hints


def test_version_works_in_a_tree_that_is_not_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    result = run("--version")
    assert (result.exit_code, result.stdout.startswith("unibus (not installed)")) == (0, True)


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    assert "--version" in result.stdout
    assert "act" in result.stdout


@pytest.mark.parametrize("name", main.Shell.table)
def test_every_command_is_found_by_its_name(name: str) -> None:
    result = CliRunner().invoke(main.app, [name, "--help"], prog_name="unibus")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"Usage: unibus {name} " in result.stdout


@pytest.mark.parametrize("name", main.Shell.table)
def test_the_summary_of_a_command_is_the_first_line_of_its_own_help(name: str) -> None:
    command = main.Shell(name="unibus").get_command(None, name)
    assert main.Shell.table[name].summary == command.help.partition("\n")[0]


@pytest.mark.parametrize("name", main.Shell.table)
def test_a_paragraph_of_the_help_is_one_line_that_the_terminal_wraps(name: str) -> None:
    command = main.Shell(name="unibus").get_command(None, name)
    for each in (command, *getattr(command, "commands", {}).values()):
        assert "\n" not in each.help.replace("\n\n", "")


def test_the_help_lists_every_command_and_imports_none() -> None:
    modules = [entry.module for entry in main.Shell.table.values()]
    program = f"""
import sys
from unibus.cli.main import app
app(["--help"], standalone_mode=False)
assert not sys.modules.keys() & {set(modules)!r}
"""
    found = python("-c", program)
    assert (found.returncode, found.stderr) == (0, "")
    listed = [line.split()[1] for line in found.stdout.splitlines() if re.match(r"│ [a-z]", line)]
    assert listed == list(main.Shell.table)


def test_a_name_that_is_near_is_suggested() -> None:
    result = CliRunner().invoke(main.app, ["entites"], prog_name="unibus")
    assert result.stderr.startswith("error: No such command 'entites'. Did you mean 'entities'?\n")


@pytest.mark.parametrize("arguments", [("--ca", "ca.pem"), ("--debug",)])
def test_an_option_of_all_commands_behind_the_command_is_explained(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main.app, ["entities", *arguments], prog_name="unibus")
    assert (result.exit_code, result.stderr.splitlines()[1]) == (
        ExitCode.USAGE,
        f"hint: put it before the command: `unibus {arguments[0]} …`",
    )


def test_a_start_loads_no_more_than_it_needs() -> None:
    done = python("-c", "import sys, unibus.cli.main; sys.exit(' '.join(sys.modules))")
    loaded = done.stderr.split()
    assert "unibus.cli.main" in loaded
    assert not {"asyncio", "unibus.public", "unibus.bus", "unibus.cli.demo.demo"} & set(loaded)


def test_python_m_unibus_is_the_same_program() -> None:
    done = python("-m", "unibus", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: unibus" in done.stdout
    assert "4 cannot connect" in done.stdout  # The exit codes are part of the help.


def test_a_wrong_call_of_the_real_program_exits_with_2() -> None:
    done = python("-m", "unibus", "--no-such-option")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "\nhint: `unibus --help`" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["no-such-command"], ["act", "--count", "many"], ["act", "more"]]
)
def test_usage_errors_exit_with_2_and_point_to_the_help(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    what, hint = result.stderr.splitlines()
    assert what.startswith("error: ")
    assert hint == f"hint: `unibus{' act' if arguments[0] == 'act' else ''} --help` shows the usage"


def test_an_error_of_the_bus_is_told_in_two_lines_without_traceback(run: Run) -> None:
    result = run("act", act=raises(errors.StoreUnavailable("no server at redis://h", "start it first")))
    assert result.stderr == "error: no server at redis://h\nhint: start it first\n"
    assert (result.exit_code, result.stdout) == (ExitCode.CANNOT_CONNECT, "")


def test_an_error_without_advice_has_no_hint(run: Run) -> None:
    assert run("act", act=raises(errors.BusClosed("closed"))).stderr == "error: closed\n"


def test_debug_adds_the_traceback_and_keeps_the_exit_code(run: Run) -> None:
    result = run("--debug", "act", act=raises(errors.NameInvalid("no such name", "choose another")))
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith("Traceback ")
    assert result.stderr.endswith("error: no such name\nhint: choose another\n")


def test_a_defect_is_told_as_one_and_points_to_debug(run: Run) -> None:
    result = run("act", act=raises(ZeroDivisionError("by zero")))
    assert (result.exit_code, "Traceback" in result.stderr) == (ExitCode.FAILED, False)
    assert result.stderr.startswith("error: unexpected ZeroDivisionError: by zero\nhint: ")
    assert "--debug" in result.stderr


def test_an_error_of_the_system_is_no_defect(run: Run) -> None:
    result = run("act", act=raises(FileNotFoundError(2, "No such file or directory", "bus.db")))
    assert (result.exit_code, "unexpected" in result.stderr) == (ExitCode.FAILED, False)
    assert "bus.db" in result.stderr
    assert run("act", act=raises(ConnectionRefusedError("refused"))).exit_code == ExitCode.CANNOT_CONNECT


def test_a_command_may_return_its_exit_code(run: Run) -> None:
    assert run("act", act=lambda: ExitCode.NOTHING_MATCHED).exit_code == 3
    assert run("act", act=lambda: None).exit_code == 0
    assert run("act", act=raises(typer.Exit(5))).exit_code == 5


def test_an_interrupt_ends_quietly_with_the_code_of_its_signal(run: Run) -> None:
    result = run("act", act=raises(KeyboardInterrupt()))
    assert (result.exit_code, "Traceback" in result.stderr) == (128 + signal.SIGINT, False)


def test_a_cancelled_question_fails(run: Run) -> None:
    result = run("act", act=raises(typer.Abort()))
    assert (result.exit_code, result.stderr) == (ExitCode.FAILED, "error: cancelled\n")


def test_ctrl_c_at_a_question_is_an_interrupt(run: Run) -> None:
    def asked() -> object:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise typer.Abort from None  # As typer's own prompts do.

    result = run("act", act=asked)
    assert (result.exit_code, result.stderr) == (128 + signal.SIGINT, "error: cancelled\n")


SECRETS = [
    ("redis://user:hunter2@host/0", "redis://user:***@host/0"),
    ("redis://:hunter2@host", "redis://:***@host"),
    ("postgresql://me:p@ss:w@host/db", "postgresql://me:***@host/db"),
    (
        "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=aGk=;x=1",
        "SharedAccessKeyName=n;SharedAccessKey=***;x=1",
    ),
    ("password=hunter2 user=me", "password=*** user=me"),
    ("http://h/?sig=abc&se=1", "http://h/?sig=***&se=1"),
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_secrets_are_masked(run: Run, text: str, shown: str) -> None:
    assert shown in masked(text)
    for arguments in (["act"], ["--debug", "act"]):
        told = run(*arguments, act=raises(errors.StoreUnavailable(f"cannot open {text}", f"check {text}"))).stderr
        assert shown in told
        assert text not in told


@pytest.mark.parametrize("text", ["redis://host:6379/0", "user@host", "tokens=3 of 4", "amqp://h"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


def bus_errors() -> list[type[errors.BusError]]:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, errors.BusError) and kind is not errors.BusError]


@pytest.mark.parametrize("kind", bus_errors(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_that_somebody_chose(kind: type[errors.BusError]) -> None:
    assert set(kind.__mro__) & set(EXIT_CODES), f"decide in {report.__name__}.EXIT_CODES how {kind.__name__} ends"


def test_the_nearest_class_decides() -> None:
    # A usage error is also a ValueError, a refused connection also an OSError.
    assert exit_code(errors.NameInvalid("x")) is ExitCode.USAGE
    assert exit_code(errors.QueueFull("x")) is ExitCode.FAILED
    assert exit_code(ConnectionResetError()) is ExitCode.CANNOT_CONNECT
    assert exit_code(RuntimeError()) is ExitCode.FAILED


def test_a_misspelt_variable_is_noted_and_the_command_goes_on(shell: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_ULR", "other.db")
    result = shell("send", "orders", "1")
    assert result.exit_code == 0
    assert result.stderr == "note: UNIBUS_ULR is unknown and ignored; did you mean UNIBUS_URL?\n"
