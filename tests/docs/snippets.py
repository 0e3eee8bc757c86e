"""Runs the code of one document: `python -W error -m tests.docs.snippets README.md`.

All ```python blocks of a document are one program, run from top to bottom in one name space. They are compiled at the
lines where they stand, so that a traceback points into the document. What a `print(…)  # -> text` prints has to be
that text, and it has to be printed. An uncaught exception is a failure, in any thread.

In ```console blocks after `<!-- run -->` the lines with `$ unibus …` are run and must exit with 0; the lines below such
a command must occur in its output in this order, where `…` matches anything.

A page with `<!-- server -->` has a server: `unibus serve` runs in its folder, on a free port that replaces 5300
in the page's code, and ends with 0. There `curl`, `NAME=$(unibus …)` and variables of the shell are run too.

All of it runs in a folder of its own, so that a page may write files, and leaves none behind.
"""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

TIMEOUT_S = 120.0
RUN = "<!-- run -->"
SERVER = "<!-- server -->"
_FENCE = re.compile(r"^(```+)(\w*)\s*$")
_PRINTS = re.compile(r"#\s*->\s?(.*)$")
_ASSIGNED = re.compile(r"([A-Z]\w*)=(\$\(.*\)|\S*)")
"""Not `NAME=value command`, which sets the variable for that command only."""
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
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **(variables or {})}
    if variables is None:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", *words], capture_output=True, text=True, env=environment
        )
    assigned = _ASSIGNED.fullmatch(command)
    script = f'unibus() {{ "{sys.executable}" -W error -m unibus "$@"; }}\n'
    script += f'printf %s "{assigned[2]}"' if assigned else command
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
    if assigned:
        variables[assigned[1]] = done.stdout
        done.stdout = ""
    return done


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
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        has_server = SERVER in path.read_text("utf-8")
        with server(failures) if has_server else contextlib.nullcontext(_PORT) as address:
            first, second = (run_console, run_python) if has_server else (run_python, run_console)
            failures += first(path, address) + second(path, address)
        os.chdir(path.parent)
    return failures


def main(names: list[str]) -> int:
    faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
    failures = [what for name in [Path(name).resolve() for name in names] for what in run_in_folder(name)]
    for what in failures:
        sys.stderr.write(what + "\n")
    # Not sys.exit: a snippet that left a thread or a loop behind must not hold up the verdict.
    sys.stderr.flush()
    asyncio.set_event_loop(None)
    os._exit(1 if failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
