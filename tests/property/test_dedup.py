"""The deduplicator against a plain dict of mark times, step by step."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unibus.core.flow.dedup import PLACES_PER_EXPIRE, Deduplicator

WINDOW_NS = 10
# Few keys and a short window, so that keys are marked again before, at and after their end.
KEYS = st.sampled_from([f"k{number}" for number in range(12)])
STEPS_NS = st.integers(-5, 12)


class AgainstAModel(RuleBasedStateMachine):
    """`marks` is what should be in the set, oldest first: what is over leaves first, then the oldest at the bound."""

    @initialize(entries_max=st.integers(1, 14))
    def begin(self, entries_max: int) -> None:
        self.dedup = Deduplicator(WINDOW_NS / 1e9, entries_max)
        self.entries_max = entries_max
        self.marks: dict[str, int] = {}
        self.evicted = 0
        self.now_ns = 0
        self.latest_ns = -1_000_000  # Nothing has happened yet, and time may begin below 0.

    def model_known(self, key: str) -> bool:
        time_ns = max(self.now_ns, self.latest_ns)
        return key in self.marks and time_ns < self.marks[key] + WINDOW_NS

    def model_mark(self, key: str) -> None:
        self.marks = {name: at_ns for name, at_ns in self.marks.items() if self.latest_ns < at_ns + WINDOW_NS}
        self.marks.pop(key, None)
        self.marks[key] = self.latest_ns
        if len(self.marks) > self.entries_max:
            del self.marks[next(iter(self.marks))]
            self.evicted += 1

    @rule(step_ns=STEPS_NS)
    def time_passes(self, step_ns: int) -> None:
        self.now_ns += step_ns

    @rule(key=KEYS)
    def check_and_mark(self, key: str) -> None:
        fresh = not self.model_known(key)
        assert self.dedup.check_and_mark(key, self.now_ns) == fresh
        self.latest_ns = max(self.now_ns, self.latest_ns)
        if fresh:
            self.model_mark(key)

    @rule(key=KEYS)
    def mark(self, key: str) -> None:
        self.dedup.mark(key, self.now_ns)
        self.latest_ns = max(self.now_ns, self.latest_ns)
        self.model_mark(key)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        was_known = self.model_known(key)
        was_held = self.dedup.forget(key)
        assert was_held or not was_known
        self.marks.pop(key, None)

    @rule()
    def expire(self) -> None:
        self.dedup.expire(self.now_ns)
        self.latest_ns = max(self.now_ns, self.latest_ns)
        assert len(self.dedup) == sum(self.model_known(key) for key in self.marks)

    @invariant()
    def it_knows_what_the_model_knows(self) -> None:
        for number in range(12):
            key = f"k{number}"
            assert self.dedup.seen(key, self.now_ns) == self.model_known(key)

    @invariant()
    def its_counts_are_right(self) -> None:
        assert self.dedup.evicted == self.evicted
        assert sum(self.model_known(key) for key in self.marks) <= len(self.dedup) <= self.entries_max


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(500, 6_000), st.integers(1, 3))
def test_large_sets_with_late_rollbacks_stay_exact(seed: int, spread: int, pace: int) -> None:
    """Many parts, many chunks, stale places: more keys than the small model ever has. The bound is not met."""
    chance = random.Random(seed)
    dedup = Deduplicator(8_000 / 1e9, entries_max=100_000)
    marks: dict[str, int] = {}
    now_ns = 0
    for _ in range(12_000):
        now_ns += chance.randrange(pace + 1)
        key = f"k{chance.randrange(spread * 3)}"
        alive = key in marks and now_ns < marks[key] + 8_000
        action = chance.randrange(10)
        if action == 0:
            assert dedup.forget(key) or not alive
            marks.pop(key, None)
        elif action == 1:
            dedup.mark(key, now_ns)
            marks[key] = now_ns
        else:
            assert dedup.check_and_mark(key, now_ns) != alive
            if not alive:
                marks[key] = now_ns
    alive_keys = {key for key, at_ns in marks.items() if now_ns < at_ns + 8_000}
    assert {key for key in marks if dedup.seen(key, now_ns)} == alive_keys
    while dedup.expire(now_ns, PLACES_PER_EXPIRE):
        pass
    assert len(dedup) == len(alive_keys)
    assert dedup.evicted == 0
