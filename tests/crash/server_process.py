"""`unibus serve FILE` as a process that a test starts, kills and starts again on the same file.

Two ways to start it: `Executed` runs the command as a user does, `Forked` forks a process that has imported the package
before (server_child.py), which makes ten runs a second possible. Everything after that is the same program.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from unibus.core.access.rules import WELL_KNOWN_KEY
from unibus.core.access.token import make_token

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
"""A process that says nothing for so long hangs."""

TOKEN = make_token("sb://localhost", "RootManageSharedAccessKey", WELL_KNOWN_KEY, int(time.time()) + 86_400)
_PORT = re.compile(rb"endpoints +http://localhost:(\d+)")


def arguments_of(path: Path, *more: str) -> list[str]:
    return ["serve", str(path), "--port", "0", "--amqp-port", "off", "--no-tls", "--log-format", "json", *more]


class Lines:
    """Reads the lines of a pipe, up to a deadline."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._buffer = b""
        self.is_closed = False

    def next(self, deadline: float) -> bytes | None:
        """The next line; None at the deadline, or at the end of the pipe."""
        while b"\n" not in self._buffer:
            wait_s = max(0.0, deadline - time.monotonic())
            if self.is_closed or not select.select([self._pipe], [], [], wait_s)[0]:
                return None
            read = os.read(self._pipe, 65_536)
            self.is_closed = not read
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class ServerProcess(Protocol):
    """A server of which one process runs at a time."""

    pid: int

    def start(self, arguments: list[str], log: Path) -> None: ...

    def port(self, deadline: float) -> int:
        """The port once it serves; 0 if that is not so at the deadline, or if it has ended."""

    def wait(self) -> int:
        """The exit code, once it has ended."""

    def close(self) -> None: ...


def kill(server: ServerProcess, number: int = signal.SIGKILL) -> int:
    os.kill(server.pid, number)
    return server.wait()


class Executed:
    """A new interpreter for each run."""

    def __init__(self) -> None:
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = Lines(0)

    def start(self, arguments: list[str], log: Path) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("UNIBUS_")}
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unibus", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                env=environment,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout.fileno())
        self.pid = self._process.pid

    def port(self, deadline: float) -> int:
        while (line := self._lines.next(deadline)) is not None:
            if found := _PORT.match(line):
                return int(found[1])
        return 0

    def wait(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(PATIENCE_S)
        self._process.stdout.close()
        return code

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            kill(self)


class Forked:
    """A fork of a process that has imported everything, with a bug in its journal if `planted` names one."""

    def __init__(self, planted: str = "") -> None:
        command = [sys.executable, "-m", "tests.crash.server_child"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout.fileno())
        self._planted = planted
        self._code: int | None = None
        self.pid = 0

    def start(self, arguments: list[str], log: Path) -> None:
        assert self._process.stdin is not None
        order = {"arguments": json.dumps(arguments), "log": str(log), "planted": self._planted}
        self.pid, self._code = 0, None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        while not self.pid:
            self._read(time.monotonic() + PATIENCE_S)

    def _read(self, deadline: float) -> bytes | None:
        line = self._lines.next(deadline)
        assert line is not None or not self._lines.is_closed, "the process that forks has ended"
        if line is not None and line.startswith(b'{"born"'):
            self.pid = json.loads(line)["born"]
        elif line is not None and line.startswith(b'{"gone"'):
            self._code = json.loads(line)["gone"]
        return line

    def port(self, deadline: float) -> int:
        while self._code is None and (line := self._read(deadline)) is not None:
            if found := _PORT.match(line):
                return int(found[1])
        return 0

    def wait(self) -> int:
        while self._code is None:
            assert self._read(time.monotonic() + PATIENCE_S) is not None, "the server does not end"
        return self._code

    def close(self) -> None:
        if self.pid and self._code is None:
            kill(self)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()
