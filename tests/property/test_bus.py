"""Invariants of the bus under random operations."""

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.errors import PublishError, QueueFull, RateLimited

SECOND = 1_000_000_000
GUARD_S = 10.0


class HandClock:
    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def clock(self) -> Clock:
        return Clock(wall_ns=lambda: self.now, monotonic_ns=lambda: self.now)


MESSAGES = 6
X07_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, MESSAGES - 1)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("tick"), st.integers(1, 1_000)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps=X07_STEPS, burst=st.integers(1, 4), bound=st.integers(1, 3), keyed=st.booleans())
def test_an_error_means_never_delivered_and_its_retry_is_delivered_once(
    steps: list[tuple[str, int]], burst: int, bound: int, keyed: bool
) -> None:
    # Duplicates are known by id (or key), the rate and the queue are small, every refusal is tried again.
    time = HandClock()
    bus = SyncMessageBus(clock=time.clock(), idempotency_ttl=None if keyed else 3600.0)
    bus.create_channel("c", max_queue_size=bound, rate_limit_per_sec=2, rate_limit_burst=burst)
    messages = [
        Message.new("c", number).with_fields({"dedup_key": f"k{number}"} if keyed else {}) for number in range(MESSAGES)
    ]
    accepted: set[int] = set()
    delivered: list[object] = []

    def publish(number: int) -> bool:
        before = bus.queue_size("c")
        try:
            bus.publish(messages[number])
        except (QueueFull, RateLimited):
            assert number not in accepted  # What was accepted once is a duplicate from then on, never an error.
            assert bus.queue_size("c") == before
            return False
        accepted.add(number)
        return True

    def pop() -> None:
        message = bus.pop("c")
        if message is not None:
            delivered.append(message.body)

    for name, value in steps:
        if name == "publish":
            publish(value)
        elif name == "pop":
            pop()
        else:
            time.now += value * SECOND // 1_000
    while bus.queue_size("c"):
        pop()
    assert sorted(delivered, key=str) == sorted(accepted, key=str)
    for number in range(MESSAGES):
        while not publish(number):
            pop()
            time.now += SECOND
    while bus.queue_size("c"):
        pop()
    assert sorted(delivered, key=str) == list(range(MESSAGES))
    bus.close(0)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=8),
    bound=st.integers(1, 5),
    limited=st.booleans(),
    policy=st.sampled_from(["drop_new", "drop_old"]),
)
def test_many_are_admitted_to_every_group_or_to_none(
    batches: list[list[int]], bound: int, limited: bool, policy: str
) -> None:
    # Several groups, one of them with a filter: an error leaves every backlog as it was.
    time = HandClock()
    bus = SyncMessageBus(clock=time.clock())
    rate = {"rate_limit_per_sec": 1, "rate_limit_burst": 7} if limited else {}
    bus.create_channel("c", max_queue_size=bound, drop_policy=policy, **rate)
    assert bus.stop(GUARD_S)
    everything: list[object] = []
    even: list[object] = []
    bus.subscribe("c", lambda message: everything.append(message.body), group="everything")
    bus.subscribe("c", lambda message: even.append(message.body), group="even", filter=lambda m: m.body[1] % 2 == 0)
    expected: list[tuple[int, int]] = []
    for number, batch in enumerate(batches):
        bodies = [(number * 10 + place, value) for place, value in enumerate(batch)]
        try:
            bus.publish_many("c", bodies)
        except PublishError:
            continue
        expected += bodies
    bus.start()
    assert bus.drain(GUARD_S)
    if policy == "drop_new":
        assert everything == expected
        assert even == [body for body in expected if body[1] % 2 == 0]
    else:
        assert everything == expected[-bound:]
        assert even == [body for body in expected if body[1] % 2 == 0][-bound:]
    bus.close(1)


@settings(max_examples=60, deadline=None)
@given(
    first=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    later=st.dictionaries(st.integers(0, 20), st.lists(st.integers(0, 3), max_size=3), max_size=5),
    failures=st.sets(st.integers(0, 30), max_size=10),
)
def test_hand_over_is_exactly_by_priority_and_sequence_with_failures_put_back(
    first: list[int], later: dict[int, list[int]], failures: set[int]
) -> None:
    # Some deliveries fail and go back to their place, some publish more while they run.
    bus = SyncMessageBus(worker_count=1)
    bus.create_channel("c", max_queue_size=0)
    seen: list[tuple[int, int]] = []

    def handler(message: Message) -> None:
        turn = len(seen)
        seen.append((message.priority, message.sequence))
        for priority in later.get(turn, []):
            bus.publish("c", None, priority)
        if turn in failures:
            raise ValueError("put back")

    for priority in first:
        bus.publish("c", None, priority)
    bus.subscribe("c", handler, retry_attempts=100, retry_delay=0)
    assert bus.drain(GUARD_S)
    bus.close(1)

    waiting = [(priority, number + 1) for number, priority in enumerate(first)]
    heapq.heapify(waiting)
    sequence = len(first)
    expected: list[tuple[int, int]] = []
    while waiting:
        item = heapq.heappop(waiting)
        turn = len(expected)
        expected.append(item)
        for priority in later.get(turn, []):
            sequence += 1
            heapq.heappush(waiting, (priority, sequence))
        if turn in failures:
            heapq.heappush(waiting, item)
    assert seen == expected


@settings(max_examples=150, deadline=None)
@given(priorities=st.lists(st.integers(0, 4), max_size=40), bound=st.integers(1, 5), taken=st.sets(st.integers(0, 40)))
def test_drop_old_pushes_out_as_the_model_does(priorities: list[int], bound: int, taken: set[int]) -> None:
    # The least urgent class, the oldest of it, and never something more urgent than the newcomer.
    bus = SyncMessageBus()
    bus.create_channel("c", max_queue_size=bound, drop_policy="drop_old")
    waiting: list[tuple[int, int]] = []
    evicted = 0
    for number, priority in enumerate(priorities):
        fits = True
        if len(waiting) >= bound:
            level = max(item[0] for item in waiting)
            fits = level >= priority
            if fits:
                waiting.remove(min(item for item in waiting if item[0] == level))
                evicted += 1
        try:
            bus.publish("c", number, priority)
            accepted = True
            waiting.append((priority, number))
        except QueueFull:
            accepted = False
        assert accepted == fits
        if number in taken and waiting:
            popped = bus.pop("c")
            assert popped is not None
            assert (popped.priority, popped.body) == min(waiting)
            waiting.remove(min(waiting))
        assert bus.queue_size("c") == len(waiting)
    assert bus.snapshot("c").channels[0].evicted == evicted
    left: list[tuple[int, object]] = []
    while (message := bus.pop("c")) is not None:
        left.append((message.priority, message.body))
    assert left == sorted(waiting)
    bus.close(0)
