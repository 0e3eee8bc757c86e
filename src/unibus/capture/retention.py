"""Retention: removes segments and bodies by age; bodies usually have the shorter time.

The manifest line is written first and the file is deleted after it: a crash between the two leaves a file that the
manifest does not name, which the next sweep deletes.
"""

import time
from typing import TYPE_CHECKING

from unibus.capture.manifest import Removed, RemovedBodies
from unibus.capture.segments import SegmentWriter

if TYPE_CHECKING:
    from unibus.capture.settings import Policy


def keep(writer: SegmentWriter, policy: "Policy", now_us: int | None = None) -> int:
    """Remove what is older than the policy allows; return the number of files. A segment is as old as its newest
    event."""
    now_us = time.time_ns() // 1_000 if now_us is None else now_us
    lines: list[Removed | RemovedBodies] = []
    for segment in list(writer.manifest.segments):
        if policy.keep_s is None or segment.newest_us >= now_us - policy.keep_s * 1e6:
            break  # Only from the old end: what remains must have no holes.
        lines.append(Removed(segment.first, segment.last, segment.file, at_us=now_us))
    gone = {line.file for line in lines}
    for segment in writer.manifest.segments:
        old = policy.bodies_keep_s is not None and segment.newest_us < now_us - policy.bodies_keep_s * 1e6
        # Bodies may be removed from the middle: each segment stays, so history has no hole.
        if segment.bodies is not None and segment.file not in gone and (old or not policy.bodies):
            lines.append(RemovedBodies(segment.bodies.file, now_us))
    if lines:
        # One append for all lines: after a crash a first part of them is valid, and the next run does the rest.
        writer.remove(*lines)
        writer.sweep()
    return len(lines)
