"""Runs the code of documents: `python -W error -m tests.docs.snippets README.md docs/guide/sql.md`.

All ```python blocks of a document are one program, run from top to bottom in one name space. They are compiled at the
lines where they stand, so that a traceback points into the document. What a `print(…)  # -> text` prints has to be
that text, and it has to be printed. An uncaught exception is a failure, in any thread.

In ```console blocks after `<!-- run -->` the lines with `$ unibus …` are run and must exit with 0; the lines below such
a command must occur in its output in this order, where `…` matches anything.

A page with `<!-- server -->` has a server: `unibus serve` runs in its folder, on a free port that replaces 5300
in the page's code, and ends with 0. There `curl`, `NAME=$(unibus …)` and variables of the shell are run too.

All of it runs in a folder of its own, so that a page may write files, and leaves none behind.

Each page, and on a page without a server its program and each command, runs in a fork of this process. It is as
separate as a process that was started, and the interpreter and the modules of the package are loaded once for all:

    runner ── page ─┬─ program
                    ├─ command
                    └─ command

What went wrong is written to stderr, and to stdout as one line of JSON for each page.
"""

import asyncio
import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, NamedTuple, NoReturn

from unibus.cli.main import Shell, app

TIMEOUT_S = 120.0
RUN = "<!-- run -->"
SERVER = "<!-- server -->"
_FENCE = re.compile(r"^(```+)(\w*)\s*$")
_PRINTS = re.compile(r"#\s*->\s?(.*)$")
_ASSIGNED = re.compile(r"([A-Z]\w*)=(\$\(.*\)|\S*)")
"""Not `NAME=value command`, which sets the variable for that command only."""
SHOWN = {"NO_COLOR": "1", "COLUMNS": "100"}
"""The environment in which a page shows its commands. Rich reads it when it is imported, so it is set before."""
_LISTENING = re.compile(r"http://localhost:(\d+)")
_PORT = "localhost:5300"


class Block(NamedTuple):
    """A fenced block. `line` is the number of its first line of code, counted from 1."""

    language: str
    line: int
    code: list[str]
    marked: bool


def blocks(text: str) -> Iterator[Block]:
    before = ""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is not None:
            code = []
            for _, inside in lines:
                if inside.strip() == fence[1]:
                    break
                code.append(inside)
            yield Block(fence[2], number + 1, code, before == RUN)
        before = line.strip() or before


def text_of(path: Path, address: str) -> str:
    return path.read_text("utf-8").replace(_PORT, address)


def program(path: Path, address: str = _PORT) -> CodeType:
    """The Python of a document, each line at its own number."""
    text = text_of(path, address)
    lines = [""] * (len(text.splitlines()) + 1)
    for block in blocks(text):
        if block.language == "python":
            lines[block.line - 1 : block.line - 1 + len(block.code)] = block.code
    return compile("\n".join(lines), str(path), "exec")


def promised(path: Path) -> dict[int, str]:
    """Line → the text that the `# ->` on it promises."""
    promises = {}
    for block in blocks(path.read_text("utf-8")):
        for number, line in enumerate(block.code, block.line):
            if block.language == "python" and (found := _PRINTS.search(line)):
                promises[number] = found[1].rstrip()
    return promises


class Judge:
    """Collects what is wrong; threads and loops would swallow an exception."""

    def __init__(self, path: Path) -> None:
        self.failures: list[str] = []
        self._path = path
        self._promised = promised(path)
        self._kept: set[int] = set()

    def print(self, *values: object) -> None:
        line = sys._getframe(1).f_lineno
        text = " ".join(map(str, values))
        wanted = self._promised.get(line)
        if wanted is not None:
            self._kept.add(line)
            if text != wanted:
                self.fail(f"{self._path}:{line}: printed {text!r}, the document says {wanted!r}")

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def watch(self) -> None:
        threading.excepthook = lambda args: self.fail(f"in a thread: {args.exc_value!r}")
        sys.unraisablehook = lambda args: self.fail(f"unraisable: {args.exc_value!r} in {args.object!r}")
        reported = logging.Handler(logging.ERROR)
        reported.emit = lambda record: self.fail(f"logged: {record.getMessage()}")  # type: ignore[method-assign]
        # Handlers of the pages fail on purpose: what they show is the dead-lettered message.
        reported.addFilter(lambda record: record.module != "failure_log")
        logging.getLogger("asyncio").addHandler(reported)
        logging.getLogger("unibus").addHandler(reported)

    def verdict(self) -> list[str]:
        missing = sorted(self._promised.keys() - self._kept)
        return self.failures + [f"{self._path}:{line}: nothing was printed here" for line in missing]


def run_python(path: Path, address: str) -> list[str]:
    """What went wrong."""
    judge = Judge(path)
    judge.watch()
    # A module of its own, so that annotations are looked up where the document's names are.
    module = ModuleType("snippets")
    sys.modules["snippets"] = module
    module.__dict__["print"] = judge.print
    try:
        exec(program(path, address), module.__dict__)
    except BaseException:
        judge.fail(traceback.format_exc())
    gc.collect()  # So that Python warns now about a coroutine that was never awaited.
    return judge.verdict()


def run_console(path: Path, address: str) -> list[str]:
    failures = []
    variables: dict[str, str] = {}
    for block in blocks(text_of(path, address)):
        if block.language == "console" and block.marked:
            with_shell = None if address == _PORT else variables
            failures += [f"{path}:{block.line}: {what}" for what in _run_session(block.code, with_shell)]
    return failures


def _run_session(lines: list[str], variables: dict[str, str] | None) -> Iterator[str]:
    """`variables` are those of the shell, kept from command to command; None where only `unibus` is run."""
    sessions: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            sessions.append((line[2:], []))
        elif sessions and sessions[-1][0].endswith("\\"):
            sessions[-1] = (f"{sessions[-1][0][:-1]}{line.strip()}", [])
        elif sessions:
            sessions[-1][1].append(line)
    if not sessions:
        yield "no line with `$ unibus …` to run"
    for command, shown in sessions:
        words = shlex.split(command, comments=True)
        if words[0] != "unibus" and variables is None:
            yield f"only unibus is run here, not {words[0]!r}"
            continue
        done = _run(command, words, variables)
        if done.returncode:
            yield f"{command!r} exits with {done.returncode}: {done.stderr}"
        wanted = "(?s:.*)".join(re.escape(line.strip()).replace("…", ".*") for line in shown if line.strip())
        if not re.search(wanted, done.stdout):
            yield f"{command!r} does not print what is shown, but:\n{done.stdout}"


def _run(command: str, words: list[str], variables: dict[str, str] | None) -> "subprocess.CompletedProcess[str]":
    if variables is None:
        return _run_forked(words)
    environment = {**os.environ, **SHOWN, **variables}
    assigned = _ASSIGNED.fullmatch(command)
    script = f'unibus() {{ "{sys.executable}" -W error -m unibus "$@"; }}\n'
    script += f'printf %s "{assigned[2]}"' if assigned else command
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    if assigned:
        variables[assigned[1]] = done.stdout
        done.stdout = ""
    return done


def _run_forked(words: list[str]) -> "subprocess.CompletedProcess[str]":
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
    ):
        child = os.fork()
        if child == 0:
            _become_command(words, out, errors)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), errors.read())


def _become_command(words: list[str], out: IO[str], errors: IO[str]) -> NoReturn:
    """What `python -m unibus …` does from its first line to the end of the interpreter."""
    _limit(TIMEOUT_S)
    os.dup2(out.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    sys.argv = words
    status: object = 1
    try:
        app(prog_name=words[0])
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else int(status is not None))


@contextlib.contextmanager
def server(failures: list[str]) -> Iterator[str]:
    """A server in this folder. Gives its address."""
    command = [sys.executable, "-m", "unibus", "serve", "--port", "0", "--amqp-port", "off", "--allow-reset"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serving:
        assert serving.stdout is not None
        shown = ""
        while not (found := _LISTENING.search(shown)):
            line = serving.stdout.readline()
            assert line, f"the server did not start:\n{shown}"
            shown += line
        reading = threading.Thread(target=serving.stdout.read)  # A full pipe would stop the server.
        reading.start()
        yield f"localhost:{found[1]}"
        serving.terminate()
        reading.join()
        if serving.wait():
            failures.append(f"the server ended with {serving.returncode}")


def run_in_folder(path: Path) -> list[str]:
    failures: list[str] = []
    folder = tempfile.mkdtemp()  # Not TemporaryDirectory: every fork that ends as a command does would remove it.
    os.chdir(folder)
    try:
        if SERVER in path.read_text("utf-8"):
            with server(failures) as address:
                failures += run_console(path, address) + run_python(path, address)
        else:  # The program may leave threads behind, and a process with threads must not fork.
            failures += in_fork(partial(run_python, path, _PORT), TIMEOUT_S) + run_console(path, _PORT)
    finally:
        os.chdir(path.parent)
        shutil.rmtree(folder)
    return failures


def in_fork(call: Callable[[], list[str]], limit_s: float) -> list[str]:
    """What `call` finds in a child process, whose threads, loops and open stores end with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _limit(limit_s)
        _report(call, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as report:
        text = report.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if text else [f"ended by signal or exit status {status} before its end"]


def _limit(seconds: float) -> None:
    """End this process when its time is over, and show where its threads are. A fork does not inherit the timer."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _report(call: Callable[[], list[str]], writing: int) -> NoReturn:
    try:
        failures = call()
    except BaseException:
        failures = [traceback.format_exc()]
    with open(writing, "w", encoding="utf-8") as report:
        json.dump(failures, report)
    asyncio.set_event_loop(None)
    sys.stderr.flush()
    # Not sys.exit: a snippet that left a thread or a loop behind must not hold up the verdict.
    os._exit(0)


def main(names: list[str]) -> int:
    for entry in Shell.table.values():
        importlib.import_module(entry.module)
    found = {name: in_fork(partial(run_in_folder, Path(name).resolve()), 2 * TIMEOUT_S) for name in names}
    for name, failures in found.items():
        sys.stdout.write(json.dumps([name, failures]) + "\n")
        sys.stderr.write("".join(f"{what}\n" for what in failures))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
