"""The dedup window of a channel: the exact set of dedup keys that were accepted within a time window.

The rule: a key is known if it was marked less than one window ago. The set is exact, without a probabilistic filter.
Only the limit on entries evicts keys early, the oldest first, and `evicted` counts them. Time only moves forward here:
a `now_ns` before the latest one that marked or expired a key counts as that one.

    parts    key -> the instant at which its mark ends. Read on every check.
    places   the keys in the order of their marks, oldest first. As the window is constant, this is also the order in
             which the marks end, so the expired ones are always at the front.

No call takes long. Each mark clears at most two places, so the set shrinks while it is used; `expire` clears the others
in bounded portions while it is not. There are many parts, because a Python dict is copied as a whole when it grows, and
repeatedly at its full size while keys are added and removed: with a million entries in one dict this is a pause of
about 80 ms, with 64 parts of one or two.

Every object that the garbage collector tracks (a list, a dict) is allocated before the state is read, or after it is
consistent again, never in between: see `core.atomic`.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.atomic import atomic
from unibus.errors import ConfigInvalid
from unibus.limits import DEDUP_ENTRIES_MAX, DEDUP_WINDOW_S_MAX

PLACES_PER_MARK: Final = 2
"""With one, the size would stay constant; with two, it shrinks."""

PLACES_PER_EXPIRE: Final = 1_024
"""A fraction of a millisecond."""

_CHUNK_PLACES: Final = 682
"""The capacity of a dict with 1,024 slots."""

_PART_ENTRIES: Final = 16_384
_PART_UP_ENTRIES: Final = 4_096
_PART_PEAK_MIN: Final = 64
_NEVER: Final = 9_223_372_036_854_775_807


@final
class _Part:
    """A part of the keys that releases memory: a plain dict keeps the memory of its largest size."""

    def __init__(self) -> None:
        # With one key that is not text, CPython stores the hash in each entry. Then looking up a missing key does not
        # read the memory of other keys, and takes two thirds of the time at a million entries.
        self.ends: dict[str | None, int] = {None: 0}
        self._peak: i64 = _PART_PEAK_MIN

    def grown(self) -> None:
        entries: i64 = len(self.ends)
        if entries > self._peak:
            self._peak = entries

    def shrunk(self) -> None:
        if self._peak > _PART_PEAK_MIN and len(self.ends) * 4 < self._peak:
            ends: dict[str | None, int] = {None: 0}
            ends.update(self.ends)
            self.ends = ends
            self._peak = max(_PART_PEAK_MIN, len(ends))


@final
class _Places:
    """The order of the marks. A place is stale when its key was removed, or has a later place.

    Chunks are dicts because a key can be removed from one in constant time, and because the garbage collector does not
    traverse a dict that has only text: a million keys in lists would make each full collection a long pause.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self._oldest: list[str] = []  # Latest first, so that the oldest is popped from the end.
        self._chunks: list[dict[str, None]] = []
        self._young: dict[str, None] = {}
        # How many places of a key are stale: always its oldest ones. Empty unless marks are removed late.
        self._stale: dict[str, int] = {}

    def append(self, key: str) -> None:
        """The key must not have a place in the young chunk: call `take_back` first."""
        self.count += 1
        self._young[key] = None

    def first(self) -> str:
        """The key of the oldest place. One must exist, and `turn` must have been called."""
        return self._oldest[-1]

    def clear_first(self) -> None:
        self.count -= 1
        self._oldest.pop()

    def clear_first_if_stale(self) -> bool:
        if not self._stale:
            return False
        key = self._oldest[-1]
        number = self._stale.get(key, 0)
        if number == 0:
            return False
        if number == 1:
            del self._stale[key]
        else:
            self._stale[key] = number - 1
        self.clear_first()
        return True

    def take_back(self, key: str) -> None:
        """Remove the last place of the key. If it is in a middle chunk, it stays there as stale: finding it is slow."""
        if key in self._young:
            del self._young[key]
            self.count -= 1
        elif key in self._oldest:
            self._oldest.remove(key)
            self.count -= 1
        else:
            self._stale[key] = self._stale.get(key, 0) + 1

    def seal(self) -> None:
        """Begin a new chunk if the young one is full."""
        if len(self._young) >= _CHUNK_PLACES:
            self._begin_chunk(_CHUNK_PLACES)

    def turn(self) -> None:
        """Make the oldest place, if any, reachable for `first`."""
        while not self._oldest and self.count > 0:
            if not self._chunks:
                self._begin_chunk(1)
                continue
            chunk = self._chunks[0]
            keys = list(chunk)  # Allocates, so another call may have run: check again.
            if not self._oldest and self._chunks and self._chunks[0] is chunk:
                keys.reverse()
                self._oldest = keys
                self._chunks.pop(0)

    def _begin_chunk(self, places_min: int) -> None:
        fresh: dict[str, None] = {}
        if len(self._young) >= places_min:
            self._chunks.append(self._young)
            self._young = fresh


@final
class Deduplicator:
    """The keys marked within the last `window_s` seconds, at most `entries_max` of them.

    A removed mark may leave a stale place until it is cleared. Places count towards the limit, so memory stays bounded
    whatever is marked and removed.
    """

    def __init__(self, window_s: float, entries_max: int = DEDUP_ENTRIES_MAX) -> None:
        if not 1e-9 <= window_s <= DEDUP_WINDOW_S_MAX:
            raise ConfigInvalid(
                f"dedup window of {window_s!r} s is out of range", f"give seconds above 0, up to {DEDUP_WINDOW_S_MAX}"
            )
        if entries_max < 1:
            raise ConfigInvalid(f"dedup entries_max {entries_max!r} is below 1", "give at least 1")
        self.evicted: i64 = 0
        self._entries: i64 = 0
        self._entries_max: i64 = entries_max
        self._window_ns: i64 = round(window_s * 1e9)
        self._latest_ns: i64 = -_NEVER
        self._due_ns: i64 = _NEVER  # Nothing needs clearing before this instant.
        self._places = _Places()
        # A small set needs one part only, and an idle set should be small.
        self._parts: list[_Part] = [_Part()]
        self._part_mask: i64 = 0

    def __len__(self) -> int:
        """Keys in memory: the known ones, and the expired ones that are not cleared yet."""
        return self._entries

    def seen(self, key: str, now_ns: i64) -> bool:
        """Whether the key is known. Changes nothing."""
        if now_ns < self._latest_ns:
            now_ns = self._latest_ns
        end_ns = self._part(key).ends.get(key)
        return end_ns is not None and end_ns > now_ns

    def check_and_mark(self, key: str, now_ns: i64) -> bool:
        """True for an unknown key, which is then marked. False for a known key, whose window does not change."""
        now_ns = self._advanced(now_ns)
        part = self._part(key)
        end_ns: int = now_ns + self._window_ns
        before = len(part.ends)
        known_end_ns = part.ends.setdefault(key, end_ns)
        if len(part.ends) == before:
            if known_end_ns > now_ns:
                return False
            self._places.take_back(key)  # Expired, but not cleared yet.
            part.ends[key] = end_ns
        else:
            self._entries += 1
            part.grown()
        self._places.append(key)
        if self._due_ns == _NEVER:
            self._due_ns = now_ns + self._window_ns
        self._places.seal()
        if self._places.count > self._entries_max:
            self._evict()
        if self._part_mask == 0 and self._entries > _PART_UP_ENTRIES:
            self._part_up()
        return True

    def mark(self, key: str, now_ns: i64) -> None:
        """The key was accepted now. If it was known, its window starts again."""
        if not self.check_and_mark(key, now_ns):
            self.forget(key)
            self.check_and_mark(key, now_ns)

    def forget(self, key: str) -> bool:
        """Remove the mark, so that the key is unknown again. Returns whether it was in memory."""
        part = self._part(key)
        if key not in part.ends:
            return False
        self._places.take_back(key)
        self._drop(part, key)
        return True

    def expire(self, now_ns: i64, places_max: int = PLACES_PER_EXPIRE) -> int:
        """Clear a bounded number of expired keys, and return how many. Call again until it returns 0."""
        if now_ns > self._latest_ns:
            self._latest_ns = now_ns
        return self._clear(self._latest_ns, places_max)

    def _part(self, key: str) -> _Part:
        if self._part_mask == 0:
            return self._parts[0]
        chosen: i64 = hash(key)
        return self._parts[chosen & self._part_mask]

    def _advanced(self, now_ns: i64) -> i64:
        """The current time by this set, never earlier than before. Also clears a few expired keys."""
        if now_ns > self._latest_ns:
            self._latest_ns = now_ns
        if self._due_ns <= self._latest_ns:
            self._clear(self._latest_ns, PLACES_PER_MARK)
        return self._latest_ns

    def _clear(self, now_ns: i64, places_max: i64) -> i64:
        places = self._places
        cleared: i64 = 0
        visited: i64 = 0
        while visited < places_max:
            visited += 1
            places.turn()
            if places.count == 0:
                self._due_ns = _NEVER
                break
            if places.clear_first_if_stale():
                continue
            key = places.first()
            part = self._part(key)
            end_ns: i64 = part.ends[key]
            if end_ns > now_ns:
                self._due_ns = end_ns
                break
            places.clear_first()
            self._drop(part, key)
            cleared += 1
        return cleared

    def _evict(self) -> None:
        """Free one place. If the oldest place is stale, no key is lost."""
        places = self._places
        places.turn()
        if places.count <= self._entries_max or places.clear_first_if_stale():
            return
        # Not expired: this mark began by clearing expired places, and one of those would have been enough.
        self.evicted += 1
        key = places.first()
        places.clear_first()
        self._drop(self._part(key), key)

    def _drop(self, part: _Part, key: str) -> None:
        """The last step of a change: it may allocate, so other calls may run from here on."""
        del part.ends[key]
        self._entries -= 1
        part.shrunk()
        if self._entries == 0 and self._part_mask != 0:
            self._reset()

    def _reset(self) -> None:
        parts = [_Part()]
        if self._entries == 0:
            self._parts = parts
            self._part_mask = 0

    def _part_up(self) -> None:
        """Split the one part into as many as the limit ever needs, while few keys have to move."""
        number = 2
        while number * _PART_ENTRIES < self._entries_max:
            number *= 2
        parts = [_Part() for _ in range(number)]
        mask: i64 = number - 1
        if self._part_mask != 0:
            return
        for key, end_ns in self._parts[0].ends.items():
            if key is not None:
                chosen: i64 = hash(key)
                parts[chosen & mask].ends[key] = end_ns
        self._parts = parts
        self._part_mask = mask


atomic(Deduplicator, "seen", "check_and_mark", "mark", "forget", "expire")
