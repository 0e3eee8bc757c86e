"""`sqlite:///bus.db?capture=DIR`: a capture that runs as long as the bus does.

It is `unibus capture` in a process of its own, with the bus at the other end of its input. When that end is closed the
capture reads what is left, seals it and ends: the bus closes it, and the system does where the process of the bus is
gone, however it went. What is kept is what DIR remembers: see the guide to capture.
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
from unibus.stores.files.local_folder import local_folder
from unibus.stores.schemes import has_history, history_schemes
from unibus.threads import Join

log = logging.getLogger("unibus")

OPTION = "capture"
END_S: Final = 30.0
"""How long a bus that closes waits for its capture, at least: it may have been started a moment ago."""


def capture_folder(url: str) -> str | None:
    """Where a URL wants its history to go, and that it can: asked before the store is opened."""
    folder = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get(OPTION)
    if folder is None:
        return None
    if not folder:
        raise ConfigInvalid("the option capture names no directory", "sqlite:///bus.db?capture=DIR")
    if not has_history(url):
        raise ConfigInvalid(
            f"{urlsplit(url).scheme}:// cannot be captured beside its owner", f"{history_schemes()} can"
        )
    if find_spec("pyarrow") is None:
        raise ExtraMissing("capturing needs pyarrow", "pip install 'unibus[capture]'")
    return local_folder(folder, "the capture of the option capture")


class CaptureChild:
    """The process, from now until `end`. Somebody waits for it all the time, to tell when it ends too early."""

    def __init__(self, url: str, folder: str) -> None:
        store = url.partition("?")[0]
        # A session of its own: Ctrl-C is for the bus, and the bus decides what that means for its capture.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "unibus", "capture", store, folder, "--while-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=os.name == "posix",
        )
        self._folder = folder
        self._ending = False
        self._watch = threading.Thread(target=self._wait, name="unibus-capture", daemon=True)
        self._watch.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        code = self._process.wait()
        if code or not self._ending:
            log.warning("the capture into %s has ended with code %d; history waits in the store", self._folder, code)

    def leave_to_parent(self) -> None:
        """In a forked child: close the capture's input, which would stay open when the parent closes it.

        Only the descriptor: the file object has a lock, which a thread of the parent may have held.
        """
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            os.close(stdin.fileno())

    def end(self, timeout_s: float | None, join: Join = threading.Thread.join) -> None:
        """Let it read to the end, for so long, or END_S. After that it goes on by itself, and ends when it is done.

        `join` waits for the thread that watches it.
        """
        self._ending = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        join(self._watch, max(END_S, timeout_s) if timeout_s else timeout_s)
        if self._watch.is_alive() and timeout_s != 0:
            log.warning("the capture into %s was still reading when the bus closed; it ends by itself", self._folder)
