"""How a capture is doing: how far it has come, how far the store is ahead of it, how large and how old it is."""

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
    """Sizes are of what counts. Without a store `lag_events` and `lag_s` are None; ages are None where nothing is."""

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
    """`reader` of the store that is captured, to tell the lag. It is not written to."""
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
    """The process that captures, by what it wrote beside its lock. The lock itself is not touched: one who starts at
    this very moment would be refused because somebody looked."""
    try:
        with open(path, "rb") as file:
            held = json.loads(file.read())
        pid = int(held["pid"])
        if held["host"] == socket.gethostname():
            os.kill(pid, 0)
    except PermissionError:
        return pid
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid


def _lag(reader: HistoryReader, manifest: Manifest, now_us: int) -> tuple[int, float]:
    """How many events were not captured yet, and for how long the first of them waits."""
    if reader.domain != manifest.domain:
        raise CaptureMismatch(
            f"{manifest.folder} holds the history of {manifest.domain!r}, and the store is {reader.domain!r}",
            "name the store that is captured there",
        )
    behind = max(0, reader.bounds()[1] - manifest.last)
    waiting = reader.groups_after(manifest.last, 1) if behind else []
    return behind, max(0, now_us - waiting[0][1][0].at_ns // 1_000) / 1e6 if waiting else 0.0
