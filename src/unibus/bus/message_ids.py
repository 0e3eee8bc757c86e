"""The ids of new messages, for a bus and for programs that use queues without one."""

import os

from unibus.clock import Clock
from unibus.core.envelope.stamp import IdGenerator


def new_id_generator(clock: Clock) -> IdGenerator:
    """Message ids with a random prefix of 64 bits: unique to this bus in this process and run."""
    return IdGenerator(os.urandom(8).hex() + "-", clock.wall_ns)
