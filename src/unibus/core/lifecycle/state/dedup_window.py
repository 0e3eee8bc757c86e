# mypyc: compiled
"""The dedup window of an entity: the exact set of keys that were accepted within a time window, without a limit.

A key is recorded in the batch of its message, so it is as durable as the message. Time never goes back here: the
caller's `now` is monotonic. Between two runs the clock may have been set back; then the caller first cuts the window.
"""

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class DedupWindow:
    """`window_ns` counts from when the key was added. Expired keys are removed by later additions."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns: i64 = window_ns
        self._at: dict[str, int] = {}
        # By instant, the earliest first. A key that was added again is here twice: its earlier item has no meaning.
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._at)

    def has(self, key: str, now_ns: i64) -> bool:
        at_ns = self._at.get(key)
        return at_ns is not None and at_ns + self.window_ns > now_ns

    def add(self, key: str, now_ns: i64) -> None:
        """Add a key. A known key keeps its instant, so that replaying the change has no effect."""
        # An expired key that is sent again gets the new instant, and a second item in `_order`.
        if not self.has(key, now_ns):
            self._at[key] = now_ns
            self._order.append((now_ns, key))
        self._clear(now_ns)

    def restore(self, key: str, at_ns: i64) -> None:
        """Add a key of a snapshot, in the order of instants. Removes none: a snapshot may still have an expired key
        from before the clock was set back, and by its instant every other key would be expired."""
        self._at[key] = at_ns
        self._order.append((at_ns, key))

    def last_ns(self) -> int:
        """The latest instant at which a key was added; 0 if there is none."""
        return max(self._at.values(), default=0)

    def cut(self, now_ns: i64) -> list[str]:
        """Set the instants that are later than now to now. Returns their keys."""
        later = [key for key, at_ns in self._at.items() if at_ns > now_ns]
        for key in later:
            self._at[key] = now_ns
        if later:
            # `_clear` stops at the first key that is not expired, so the order has to be restored.
            self._order = deque(sorted([(at_ns, key) for key, at_ns in self._at.items()]))
        return later

    def items(self) -> list[tuple[str, int]]:
        return list(self._at.items())

    def _clear(self, now_ns: i64) -> None:
        while self._order:
            at_ns, key = self._order[0]
            if at_ns + self.window_ns > now_ns:
                return
            self._order.popleft()
            # Not if the key was added again since: its later item removes it.
            if self._at.get(key) == at_ns:
                del self._at[key]
