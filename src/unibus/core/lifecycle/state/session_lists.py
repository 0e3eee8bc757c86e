# mypyc: compiled
"""The sessions of an entity in order of their ids, for clients that read them page by page.

Created by the first page, and then maintained: a change of a session is recorded in constant time, and the next page
applies the recorded changes. So a page costs its own size and the changes since the last one, not the number of
sessions. An entity whose sessions are never listed does not have it.

    ids        a b d e f          sorted, without duplicates
    changes    c: listed  e: not  since the last page; the next one begins by applying them
    stated     b d a              by the time of their state, the latest last: for lists after an instant
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, final

_FEW: Final = 64
"""Applying one change costs a bisect and a shift of what follows it. If more than one of so many ids has changed,
merging all is cheaper."""

_SLACK: Final = 1_024
INSTANTS_MAX: Final = 4
"""How many lists after an instant are kept: a client reads page after page with the same instant."""


@final
class SortedIds:
    """Sorted ids. Changes are applied when a page is read, or when they outnumber the ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = sorted(ids)
        self._changes: dict[str, bool] = {}

    def update(self, session_id: str, is_listed: bool) -> None:
        self._changes[session_id] = is_listed
        if len(self._changes) > len(self._ids) + _SLACK:
            self._apply()  # Else the changes of sessions that are created and deleted unread would grow without end.

    def page(self, skip: int, top: int) -> list[str]:
        if self._changes:
            self._apply()
        return self._ids[skip : skip + top]

    def _apply(self) -> None:
        changes, self._changes = self._changes, {}
        if len(changes) * _FEW < len(self._ids):
            for session_id, is_listed in changes.items():
                self._place(session_id, is_listed)
            return
        ids = [each for each in self._ids if each not in changes]
        ids += sorted([each for each, is_listed in changes.items() if is_listed])
        ids.sort()  # Two sorted runs: `sort` only merges them.
        self._ids = ids

    def _place(self, session_id: str, is_listed: bool) -> None:
        at = bisect_left(self._ids, session_id)
        exists = at < len(self._ids) and self._ids[at] == session_id
        if is_listed and not exists:
            self._ids.insert(at, session_id)
        elif exists and not is_listed:
            del self._ids[at]


@final
class SessionLists:
    """`listed` are the sessions with messages or a state; `stated` has the time of the state of those with a state."""

    def __init__(self, listed: Iterable[str], stated: dict[str, int]) -> None:
        self._listed = SortedIds(listed)
        self._stated: dict[str, int] = {}
        self._after: dict[int, SortedIds] = {}
        self._restate(stated)

    def update(self, session_id: str, is_listed: bool) -> None:
        self._listed.update(session_id, is_listed)

    def update_state(self, session_id: str, stated_ns: int) -> None:
        """The state of the session was set at that time; 0: it was removed."""
        self._stated.pop(session_id, None)
        if stated_ns:
            latest_ns = next(reversed(self._stated.values()), 0)
            self._stated[session_id] = stated_ns
            if stated_ns < latest_ns:
                self._restate(self._stated)  # A wall clock may be set back.
        for after_ns, ids in self._after.items():
            ids.update(session_id, stated_ns > after_ns)

    def _restate(self, stated: dict[str, int]) -> None:
        by_time = sorted([(stated_ns, session_id) for session_id, stated_ns in stated.items()])
        self._stated = {session_id: stated_ns for stated_ns, session_id in by_time}

    def page(self, skip: int, top: int) -> list[str]:
        return self._listed.page(skip, top)

    def page_after(self, after_ns: int, skip: int, top: int) -> list[str]:
        """A page of the sessions whose state was set after that instant."""
        found = self._after.get(after_ns)
        if found is None:
            found = SortedIds(self._stated_after(after_ns))
            if len(self._after) == INSTANTS_MAX:
                del self._after[next(iter(self._after))]
            self._after[after_ns] = found
        return found.page(skip, top)

    def _stated_after(self, after_ns: int) -> list[str]:
        found: list[str] = []
        for session_id, stated_ns in reversed(self._stated.items()):
            if stated_ns <= after_ns:
                break
            found.append(session_id)
        return found
