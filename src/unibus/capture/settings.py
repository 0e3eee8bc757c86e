"""The settings of a capture: when it seals a segment (`Rotation`), and what it keeps (`Policy`).

The rotation belongs to one run. The policy is a promise about the data, so it is stored in capture.json: a restart
continues with it, and a change is recorded there beside the former value. A change applies to later events only.
"""

import time
from typing import Final

import msgspec

from unibus.capture.manifest import CaptureMetadata
from unibus.capture.redaction import RedactionRule
from unibus.errors import CaptureDamaged, ConfigInvalid

ROWS: Final = 1_000_000
BYTES: Final = 128_000_000
EVERY_S: Final = 2.0
CURSOR: Final = "capture"


class Rotation(msgspec.Struct, frozen=True):
    """When a segment is sealed: whichever comes first."""

    rows: int = ROWS
    bytes: int = BYTES
    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        if self.rows < 1 or self.bytes < 1 or self.every_s <= 0:
            raise ConfigInvalid(
                f"rows={self.rows}, bytes={self.bytes}, every_s={self.every_s:g}: each has to be more than 0",
                "check --rows, --bytes and --every",
            )


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept, and for how many seconds. None: without limit."""

    bodies: bool = True
    bodies_keep_s: float | None = None
    keep_s: float | None = None
    redact: tuple[RedactionRule, ...] = ()


def policy_of(about: CaptureMetadata) -> Policy:
    try:
        return msgspec.convert(about.settings, Policy)
    except msgspec.ValidationError as error:
        raise CaptureDamaged(
            f"the settings in capture.json cannot be read: {error}", "correct that file, or restore it from a backup"
        ) from error


def with_policy(about: CaptureMetadata, policy: Policy) -> CaptureMetadata | None:
    """The metadata with a new policy; None if it has that policy already."""
    before = policy_of(about)
    if policy == before:
        return None
    changed = list(about.changed)
    if about.settings or before != Policy():
        changed.append({"at_us": time.time_ns() // 1_000, "before": about.settings})
    return msgspec.structs.replace(about, settings=msgspec.to_builtins(policy), changed=changed)
