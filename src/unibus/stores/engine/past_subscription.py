"""Creates a subscription that starts in the past: reads history without the store's lock, and decides under it.

    1. without a lock   pages of history ──▶ Backfill, until the rest is small; other calls are decided meanwhile
    2. under the locks  the rest of history, and what is decided and not written ──▶ Backfill ──▶ declare, copy

Step 2 holds `committing`, so that no group is being written: every change is in the journal or in `state.fresh`. It
holds the store's lock, so that none is added. So each change is read exactly once: no message is missed or copied
twice.
"""

from typing import Final

from unibus.core.lifecycle.backfill import Backfill
from unibus.core.lifecycle.state.state import StoreState
from unibus.stores.engine.history import PAGE, EmbeddedHistory
from unibus.stores.seam.journal import Journal

REST_MAX: Final = 1_000
"""Changes that may be read under the lock: about a millisecond."""

ROUNDS_MAX: Final = 16
"""If senders are so much faster that the rest never gets small, it is read under the lock, however long it is."""


class PastReader:
    """Reads history into a Backfill."""

    def __init__(self, topic: int, after_sequence: int, since_ns: int) -> None:
        self.backfill = Backfill(topic, after_sequence, since_ns)
        self._rounds = 0

    def read_pages(self, history: EmbeddedHistory) -> None:
        """Without a lock: up to the end of history, or near it if it grows meanwhile."""
        self._rounds += 1
        while True:
            page = history.some_after(self.backfill.seq)
            for seq, change in page:
                self.backfill.add_change(seq, change)
            if len(page) < PAGE:
                return

    def is_near(self, state: StoreState) -> bool:
        return state.seq - self.backfill.seq <= REST_MAX or self._rounds >= ROUNDS_MAX

    def read_rest(self, journal: Journal, state: StoreState) -> None:
        """Under both locks."""
        for seq, change in journal.changes_after(self.backfill.seq):
            self.backfill.add_change(seq, change)
        for seq, change in enumerate(state.fresh, state.seq - len(state.fresh) + 1):
            self.backfill.add_change(seq, change)
