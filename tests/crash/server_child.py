"""`unibus serve` without the second that importing it takes: a process that has imported everything, and forks.

`python -m tests.crash.server_child` reads orders, one JSON line each. For every order it forks a child that runs the
command line of `unibus serve` as it is; the lines that the child prints appear on the standard output. The fork itself
is reported before them ("born"), and the end of the child after them ("gone").
"""

import json
import os
import signal
import sys

import unibus.bus.api.broker
import unibus.endpoints.http.application.app
import unibus.endpoints.server.server  # noqa: F401 - imported here once, so that no child has to
from tests.crash import planted
from unibus.cli.main import app
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal


def serve(order: dict[str, str]) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    if order["planted"]:
        plant(order["planted"])
    app(json.loads(order["arguments"]), prog_name="unibus")


def plant(name: str) -> None:
    """Put a bug into the journal of the store; not into one in memory, where a start is tried."""
    original = EmbeddedStore.__init__

    def damaged(self: EmbeddedStore, journal: object, *arguments: object, **more: object) -> None:
        if not isinstance(journal, MemoryJournal):
            journal = getattr(planted, name)(journal)
        original(self, journal, *arguments, **more)  # type: ignore[arg-type]

    EmbeddedStore.__init__ = damaged  # type: ignore[method-assign, assignment]


def report(**line: object) -> None:
    os.write(1, b"\n" + json.dumps(line).encode() + b"\n")


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                serve(json.loads(line))
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 70
            finally:
                sys.stdout.flush()
                os._exit(status)
        report(born=pid)
        report(gone=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    main()
