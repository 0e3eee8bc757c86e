"""The status of a capture: its position, its lag behind the store, its size and its age."""

import json
import os
import socket
import time
from dataclasses import dataclass

from unibus.capture.manifest import Manifest
from unibus.capture.settings import policy_of
from unibus.errors import CaptureMismatch
from unibus.stores.seam.store_view import HistoryReader


@dataclass(frozen=True)
class Status:
    """Sizes are of the files that the manifest names. `lag_events` and `lag_s` are None without a store, ages are None
    without a segment."""

    folder: str
    domain: str
    running: int | None
    first: int
    last: int
    events: int
    segments: int
    bytes: int
    bodies: int
    bodies_bytes: int
    gaps: int
    missed: int
    oldest_us: int | None
    newest_us: int | None
    sealed_s: float | None
    lag_events: int | None
    lag_s: float | None
    keep_s: float | None
    bodies_keep_s: float | None
    redact: list[str]


def status_of(folder: str, reader: HistoryReader | None = None, now_us: int | None = None) -> Status:
    """The status of a capture directory. `reader` reads the captured store, for the lag; nothing is written to it."""
    now_us = time.time_ns() // 1_000 if now_us is None else now_us
    manifest = Manifest.load(folder)
    segments, policy = manifest.segments, policy_of(manifest.about)
    bodies = [each.bodies for each in segments if each.bodies is not None]
    lag_events, lag_s = (None, None) if reader is None else _lag(reader, manifest, now_us)
    return Status(
        folder=manifest.folder,
        domain=manifest.domain,
        running=_running(os.path.join(manifest.folder, "capture.lock")),
        first=manifest.first,
        last=manifest.last,
        events=sum(each.rows for each in segments),
        segments=len(segments),
        bytes=sum(each.bytes for each in segments),
        bodies=sum(each.rows for each in bodies),
        bodies_bytes=sum(each.bytes for each in bodies),
        gaps=len(manifest.gaps),
        missed=sum(last - first + 1 for first, last in manifest.gaps),
        oldest_us=segments[0].from_us if segments else None,
        newest_us=segments[-1].to_us if segments else None,
        sealed_s=(now_us - max(each.sealed_us for each in segments)) / 1e6 if segments else None,
        lag_events=lag_events,
        lag_s=lag_s,
        keep_s=policy.keep_s,
        bodies_keep_s=policy.bodies_keep_s,
        redact=[rule.text for rule in policy.redact],
    )


def _running(path: str) -> int | None:
    """The pid of the running capture, as its lock file says. The lock itself is not taken: a capture that starts at the
    same moment would be refused because of this check."""
    try:
        with open(path, "rb") as file:
            held = json.loads(file.read())
        pid, is_here = int(held["pid"]), held["host"] == socket.gethostname()
    except (OSError, ValueError, KeyError, TypeError):
        return None  # Also if the file belongs to another user: only its owner may read it.
    try:
        if is_here:
            os.kill(pid, 0)
    except PermissionError:
        return pid  # The process exists, and belongs to another user.
    except (OSError, OverflowError):
        return None
    return pid


def _lag(reader: HistoryReader, manifest: Manifest, now_us: int) -> tuple[int, float]:
    """How many events are not captured yet, and how long ago the first of them happened, in seconds."""
    if reader.domain != manifest.domain:
        raise CaptureMismatch(
            f"{manifest.folder} holds the history of domain {manifest.domain!r}, and the store has domain "
            f"{reader.domain!r}",
            "name the store that is captured there",
        )
    behind = max(0, reader.bounds()[1] - manifest.last)
    waiting = reader.groups_after(manifest.last, 1) if behind else []
    return behind, max(0, now_us - waiting[0][1][0].at_ns // 1_000) / 1e6 if waiting else 0.0
