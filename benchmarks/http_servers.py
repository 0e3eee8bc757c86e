"""The servers of the HTTP benchmarks, each a process of its own on a free port of this machine, gone with its block.

Ours is started by its own command with its defaults, so that a figure is of what a user gets: authorization, metrics
and the audit log are on, and every send is synced. The log goes to a file beside the store.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.environment import ROOT
from unibus.core.access.token import make_token

RULE, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
"""What a server on loopback accepts while it has no other keys."""

COMMAND = ("-m", "unibus", "serve")
ON_LOOP = ("-m", "benchmarks.http_on_loop", "serve")
"""The same server with commits on the event loop, for which there is no setting."""

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0
TOKEN_SECONDS = 24 * 3_600
_PORT = re.compile(r"http://(?:127\.0\.0\.1|localhost):(\d+)")


class NoServer(RuntimeError):
    """A server did not start, and its last words."""


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    pid: int
    port: int
    token: str = "none"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def limit(name: str) -> Iterator[Server]:
    """An application of `benchmarks.http_limits`."""
    command = [sys.executable, "-m", "benchmarks.http_limits", name]
    with _process(command, subprocess.PIPE, None) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise NoServer(f"the limit {name} did not start; see above")
        # A token as long as ours: the headers are the same bytes for all.
        yield Server(process.pid, int(line), _token(int(line)))


@contextmanager
def unibus(store: Path, *flags: str, command: Sequence[str] = COMMAND) -> Iterator[Server]:
    """`unibus serve` on a file, which may exist, with its output beside it."""
    output = store.with_suffix(".log")
    # AMQP's usual port may be in use on this machine, and is not measured.
    arguments = [sys.executable, *command, str(store), "--port", "0", "--amqp-port", "off", *flags]
    with output.open("w+") as log, _process(arguments, log, subprocess.STDOUT) as process:
        port = _announced_port(process, output)
        yield Server(process.pid, port, _token(port))


@contextmanager
def _process(command: list[str], stdout: int | IO[str], stderr: int | None) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _announced_port(process: "subprocess.Popen[str]", output: Path) -> int:
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        found = _PORT.search(output.read_text(errors="replace"))
        if found is not None:
            return int(found[1])
        time.sleep(0.02)
    raise NoServer(f"unibus serve did not start: {output.read_text(errors='replace')[-500:]}")


def _token(port: int) -> str:
    return make_token(f"http://localhost:{port}/", RULE, KEY, int(time.time()) + TOKEN_SECONDS)
