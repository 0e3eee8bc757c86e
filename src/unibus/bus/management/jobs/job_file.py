"""The list of jobs in a file beside the store, `FILE.jobs.json`: a restarted server can list and resume them.

The file is replaced atomically (written beside the old one, synced, renamed): after a crash it has the old content or
the new one. It is for listing and resuming only. What remains to do follows from the store and from the job's limits,
so a list that is a second old, or lost, never moves a message twice. For the same reason a write error of the file does
not stop a job: an operator must be able to discard messages when the disk is full.

A file that cannot be read is renamed, with a warning, and the server continues with an empty list.
"""

import os
import time
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from unibus.bus.management.jobs.job_records import Job
from unibus.safe_log import SafeLogger
from unibus.stores.files.disk import RealFiles, replace
from unibus.stores.schemes import kept_in

log = SafeLogger("unibus")

SUFFIX: Final = ".jobs.json"
VERSION: Final = 1


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    unibus_jobs: int
    last_id: int
    jobs: list[Job]


def path_of(url: str) -> str:
    """The path of the jobs file of a store; "" for a store without a file."""
    parts = urlsplit(url)
    path = "" if parts.netloc or not kept_in(parts.scheme) else unquote(parts.path)[1:].rstrip("/")
    # The real path, as for the owner's lock: a server that is started through a link finds the same list.
    return f"{os.path.realpath(path)}{SUFFIX}" if path else ""


class JobFile:
    """It blocks: call it in a thread. `problem` is the error of the last write; "" if it succeeded."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.problem = ""

    def load(self) -> tuple[int, list[Job]]:
        """The last id in use, and the jobs, the oldest first."""
        if not self._path:
            return 0, []
        try:
            with open(self._path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=_Content)
            # A newer file is set aside and not overwritten: the newer program can have it back.
            if found.unibus_jobs != VERSION:
                raise ValueError(f"it has version {found.unibus_jobs}, this program reads version {VERSION}")
        except FileNotFoundError:
            # The first start, or an operator has removed the list.
            return 0, []
        # A server must start with a damaged list of jobs: the messages are in the store, which is not affected.
        except (OSError, ValueError, RecursionError) as error:
            self._set_aside(error)
            return 0, []
        # Ids are not reused, also after the oldest jobs were removed from the list: an operator's script may refer to
        # them.
        return max([found.last_id, *[job.record.id for job in found.jobs]]), found.jobs

    def _set_aside(self, error: Exception) -> None:
        name = f"{self._path}.damaged-{time.time_ns()}"
        try:
            os.replace(self._path, name)
        except OSError as refused:
            log.warning("%s is not a list of jobs (%.200s) and cannot be renamed: %s", self._path, error, refused)
            self._path = ""  # It may be any file of the user: never overwrite it.
        else:
            log.warning("%s is not a list of jobs (%.200s): it was renamed to %s", self._path, error, name)

    def save(self, last_id: int, jobs: list[Job]) -> None:
        """Write the list. An OSError is logged, not raised: see the module."""
        if not self._path:
            return
        try:
            replace(RealFiles(), self._path, msgspec.json.encode(_Content(VERSION, last_id, jobs)))
        except OSError as error:
            # Once until a write succeeds: progress is saved every second, and the log must not fill a full disk.
            if not self.problem:
                log.warning("the list of jobs %s cannot be written: %s", self._path, error)
            self.problem = error.strerror or str(error)
        else:
            self.problem = ""
