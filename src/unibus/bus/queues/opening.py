"""The queues of a store without a bus around them, for a program that sends, receives and ends.

    open_queues(url) ──▶ Store, ThreadTimers ──▶ Queues ──▶ end of the block: the store is closed

A bus also has channels, handlers, worker threads, event loops and a relay for outboxes; a command of the command line
uses none of them, and loading them took most of its time. What a message goes through here is the same: `Queues`.
"""

import contextlib
from collections.abc import Iterator

from unibus.bus.message_ids import new_id_generator
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.queues.operations import Queues
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.safe_log import SafeLogger
from unibus.stores.opening import open_store

log = SafeLogger("unibus")


@contextlib.contextmanager
def open_queues(url: str, strict: bool) -> Iterator[Queues]:
    """Open the store as its owner; raises as a bus does. A store option that only a bus has, `capture`, is ignored."""
    timers = ThreadTimers(SYSTEM_CLOCK, _report)
    try:
        # The timers end after the store: closing it may still wait for a deadline that one of them applies.
        with contextlib.closing(open_store(url, SYSTEM_CLOCK, timers)) as store:
            yield Queues(store, Exchange(new_id_generator(SYSTEM_CLOCK), SYSTEM_CLOCK), timers, strict)
    finally:
        timers.stop()


def _report(error: BaseException) -> None:
    """The timers have a thread of their own: no caller could catch it there."""
    log.error(
        "a timer of the store raised %r; the thread continues",
        error,
        exc_info=(type(error), error, error.__traceback__),
    )
