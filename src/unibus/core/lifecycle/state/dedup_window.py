# mypyc: compiled
"""Keys that were seen within a window of time: exact, without a bound on their number.

A mark is part of the batch that it guards, so it is as durable as the message. Time never goes back here: the
caller's `now` is monotonic. Between two runs it may have gone back; then the caller cuts the marks first.
"""

from collections import deque
from typing import final

from mypy_extensions import i64


@final
class DedupWindow:
    """`window_ns` counts from the instant of the mark. A mark is kept in memory until it is over, and no longer."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns: i64 = window_ns
        self._at: dict[str, int] = {}
        # By instant, the earliest first. A key that was marked again is here twice: its earlier place has no meaning.
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._at)

    def has(self, key: str, now_ns: i64) -> bool:
        at_ns = self._at.get(key)
        return at_ns is not None and at_ns + self.window_ns > now_ns

    def add(self, key: str, now_ns: i64) -> None:
        """Known from now on. A key that is known already keeps its instant: replaying changes nothing."""
        if not self.has(key, now_ns):
            self._at[key] = now_ns
            self._order.append((now_ns, key))
        self._clear(now_ns)

    def last_ns(self) -> int:
        """The latest instant of a mark; 0 if there is none."""
        return max(self._at.values(), default=0)

    def cut(self, now_ns: i64) -> list[str]:
        """No mark is later than now. Gives the keys of those that were."""
        later = [key for key, at_ns in self._at.items() if at_ns > now_ns]
        for key in later:
            self._at[key] = now_ns
        if later:
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
            if self._at.get(key) == at_ns:
                del self._at[key]
