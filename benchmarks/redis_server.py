"""A Redis server of our own for one trial, that promises what we promise: every write is synced before its answer.

Private, because a figure must not depend on what else a server holds, and because no existing data may be touched: a
free port of this machine only, its files in the folder that the trial was given, and gone with the trial.
"""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import apt

PROGRAM = "redis-server"
START_SECONDS_MAX = 10.0
LOOK_AGAIN_SECONDS = 0.01
ATTEMPTS = 3
"""Another process may take the port after we found it free and before the server binds it."""


class NoServer(RuntimeError):
    """There is no Redis to measure beside us, and why."""


@contextmanager
def running(folder: Path) -> Iterator[int]:
    """The port of a server that answers, with its append-only file in `folder`."""
    program = executable()
    server, port = _started(program, folder)
    try:
        yield port
    finally:
        server.terminate()
        server.wait()


def executable() -> str:
    """Where the server is; installed on the way when that is possible."""
    try:
        return apt.executable(PROGRAM)
    except apt.NoProgram as error:
        raise NoServer(str(error)) from error


def _started(program: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(ATTEMPTS):
        port = _free_port()
        server = subprocess.Popen([program, *_settings(folder, port)], stdin=subprocess.DEVNULL)
        try:
            if _answers(server, port):
                return server, port
        except BaseException:
            server.kill()
            server.wait()
            raise
        server.kill()
        server.wait()
    raise NoServer(f"{PROGRAM} did not start: {_last_words(folder)}")


def _settings(folder: Path, port: int) -> list[str]:
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "logfile": str(folder / "redis.log"),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",  # No snapshots beside the log: they would only slow it down.
        "auto-aof-rewrite-percentage": "0",  # Nor a rewrite of the log.
    }
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(server: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits until the server answers; False when it ended, or took too long."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while server.poll() is None and time.monotonic() < deadline:
        if _pongs(port):
            # Another server may have taken the port first; ours has then ended, or will not be the one that answers.
            return server.poll() is None
        time.sleep(LOOK_AGAIN_SECONDS)
    return False


def _pongs(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
            line.sendall(b"PING\r\n")
            return line.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def _last_words(folder: Path) -> str:
    log = folder / "redis.log"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return lines[-1] if lines else "it said nothing"
