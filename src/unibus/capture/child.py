"""`sqlite:///bus.db?capture=DIR`: a capture process that runs as long as the bus.

    bus process ── pipe to stdin ──▶ `unibus capture STORE DIR --while-stdin`, a process of its own

The child reads its standard input until end of file, then captures the remaining events, seals them and exits. The bus
closes the pipe when it closes; if the bus process is killed, the operating system closes it. So the child never
outlives its bus for longer than it needs to catch up. The retention and redaction settings are those stored in DIR.
"""

import logging
import os
import subprocess
import sys
import threading
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from unibus.errors import ConfigInvalid, ExtraMissing
from unibus.extras import install_extra
from unibus.stores.files.local_folder import local_folder
from unibus.stores.schemes import has_history, history_schemes
from unibus.threads import Join

log = logging.getLogger("unibus")

OPTION = "capture"
END_S: Final = 30.0
"""The least time that a closing bus waits for its capture: the child may have been started a moment ago."""


def capture_folder(url: str) -> str | None:
    """The directory that the URL's option `capture` names, or None. Called before the store is opened: ConfigInvalid or
    ExtraMissing if that store cannot be captured, and nothing is created then."""
    folder = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get(OPTION)
    if folder is None:
        return None
    if not folder:
        raise ConfigInvalid("the option capture= of the store URL is empty", "name a directory: ?capture=DIR")
    if not has_history(url):
        raise ConfigInvalid(
            f"a {urlsplit(url).scheme}:// store cannot be captured while a bus owns it", f"use {history_schemes()}"
        )
    if find_spec("pyarrow") is None:
        raise ExtraMissing("capturing needs pyarrow", install_extra("capture"))
    return local_folder(folder, "the capture of the option capture")


class CaptureChild:
    """The child process, from its construction until `end`. A thread waits for it and logs an early exit."""

    def __init__(self, url: str, folder: str) -> None:
        store = url.partition("?")[0]
        # A session of its own: the terminal sends Ctrl-C to the bus only, and the bus then ends its capture in order.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "unibus", "capture", store, folder, "--while-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=os.name == "posix",
        )
        self._folder = folder
        self._ending = False
        # Reaps the child as soon as it exits: without a wait it would stay a zombie, and an early exit would not be
        # noticed.
        self._watch = threading.Thread(target=self._wait, name="unibus-capture", daemon=True)
        self._watch.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        code = self._process.wait()
        if code or not self._ending:
            log.warning(
                "the capture into %s ended with exit code %d; no event is lost: they wait in the store, and the next "
                "capture reads them",
                self._folder,
                code,
            )

    def leave_to_parent(self) -> None:
        """In a forked child of the bus process: close the inherited copy of the pipe, which would keep it open after
        the parent closes its own.

        Only the descriptor: the file object has a lock, which a thread of the parent may have held at the fork.
        """
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            os.close(stdin.fileno())

    def end(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        """Close the pipe and wait for the child to capture the rest: `timeout_s`, or END_S if that is longer. A child
        that is not done by then continues without the bus, and exits when it is done.

        `timeout_s` None waits as long as it takes, 0 does not wait. `join` waits for the watching thread.
        """
        # Before the pipe is closed: the watching thread must not report the exit that follows as an early one.
        self._ending = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        join(self._watch, max(END_S, timeout_s) if timeout_s else timeout_s)
        if self._watch.is_alive() and timeout_s != 0:
            log.warning(
                "the capture into %s was not done when the bus closed; it finishes in the background", self._folder
            )
