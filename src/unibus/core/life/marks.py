# mypyc: compiled
"""Keys that were seen within a window of time: exact, without a bound on their number.

A mark is part of the batch that it guards, so it is as durable as the message. Time never goes back here: the
caller's `now` is monotonic.
"""

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class Marks:
    """`window_ns` counts from the instant of the mark. A mark is kept in memory until it is over, and no longer."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns: i64 = window_ns
        self._at: dict[str, int] = {}
        self._order: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._at)

    def has(self, key: str, now_ns: i64) -> bool:
        at_ns = self._at.get(key)
        return at_ns is not None and at_ns + self.window_ns > now_ns

    def add(self, key: str, now_ns: i64) -> None:
        """Known from now on. A key that is known already keeps its instant: replaying changes nothing."""
        if not self.has(key, now_ns):
            if self._at.pop(key, None) is None:
                self._order.append(key)
            self._at[key] = now_ns
        self._clear(now_ns)

    def items(self) -> list[tuple[str, int]]:
        return list(self._at.items())

    def _clear(self, now_ns: i64) -> None:
        while self._order:
            key = self._order[0]
            at_ns = self._at.get(key)
            if at_ns is not None and at_ns + self.window_ns > now_ns:
                # A key that was marked anew later stands too early here, and holds up a few behind it.
                return
            self._order.popleft()
            self._at.pop(key, None)
