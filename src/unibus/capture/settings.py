"""What a capture was told to do: when it seals a segment, and what it keeps.

When to seal is a matter of each run. What is kept is a promise about the data, so it stands in capture.json: a restart
goes on with it, and a change is recorded there with what was before. It holds for what comes from then on.
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
            raise ConfigInvalid("a segment needs room for one row, and some time", "--rows, --bytes and --every")


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept, and how long. None: for ever."""

    bodies: bool = True
    bodies_keep_s: float | None = None
    keep_s: float | None = None
    redact: tuple[RedactionRule, ...] = ()


def policy_of(about: CaptureMetadata) -> Policy:
    try:
        return msgspec.convert(about.settings, Policy)
    except msgspec.ValidationError as error:
        raise CaptureDamaged(f"capture.json has settings that cannot be read: {error}", "mend it by hand") from error


def with_policy(about: CaptureMetadata, policy: Policy) -> CaptureMetadata | None:
    """The same with another policy. None: it has that one already."""
    before = policy_of(about)
    if policy == before:
        return None
    changed = list(about.changed)
    if about.settings or before != Policy():
        changed.append({"at_us": time.time_ns() // 1_000, "before": about.settings})
    return msgspec.structs.replace(about, settings=msgspec.to_builtins(policy), changed=changed)
