"""The bus under the virtual clock: every rule that knows time, at exact instants."""

import asyncio
import threading
from datetime import timedelta

import pytest

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.envelope.message import Message
from unibus.errors import RateLimited
from unibus.testing import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def bus(clock):
    with SyncMessageBus(clock=clock) as bus:
        yield bus


class Failing:
    """A handler that fails so many times and notes when it was called."""

    def __init__(self, clock: VirtualClock, failures: int) -> None:
        self.clock = clock
        self.failures = failures
        self.times: list[float] = []
        self.threads: set[str] = set()

    def __call__(self, message: Message) -> None:
        self.times.append(self.clock.elapsed)
        self.threads.add(threading.current_thread().name)
        if len(self.times) <= self.failures:
            raise ValueError(f"failure {len(self.times)}")


class FailingAsync(Failing):
    async def __call__(self, message: Message) -> None:
        await asyncio.sleep(0)
        super().__call__(message)


# `retry_delay` is the first delay, each further one is twice as long.


@pytest.mark.parametrize("handler", [Failing, FailingAsync])
def test_retries_back_off_at_exact_instants_and_end_as_a_dead_letter(bus, clock, handler):
    failing = handler(clock, failures=99)
    bus.subscribe("orders", failing, retry_attempts=3, retry_delay=0.1, retry_jitter=0.0)
    bus.publish("orders", {"id": 1})
    clock.advance(60)
    assert failing.times == [0.0, 0.1, 0.3, 0.7]
    (letter,) = bus.dead_letters("orders")
    assert letter.body == {"id": 1}
    assert letter.headers["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert letter.headers["DeadLetterAttempts"] == 4
    assert letter.headers["DeadLetterTimeNs"] - letter.timestamp_ns == 700_000_000


@pytest.mark.parametrize("handler", [Failing, FailingAsync])
async def test_the_same_on_an_event_loop(clock, handler):
    failing = handler(clock, failures=99)
    async with MessageBus(clock=clock) as bus:
        bus.subscribe("orders", failing, retry_attempts=3, retry_delay=0.1, retry_jitter=0.0)
        await bus.publish("orders", {"id": 1})
        await clock.advance_async(60)
        assert failing.times == [0.0, 0.1, 0.3, 0.7]
        assert len(bus.dead_letters("orders")) == 1


@pytest.mark.parametrize("step", [0.05, 0.1, 0.7, 2.0])
def test_how_the_time_is_cut_into_steps_changes_nothing(bus, clock, step):
    failing = Failing(clock, failures=99)
    bus.subscribe("orders", failing, retry_attempts=3, retry_delay=0.1, retry_jitter=0.0)
    bus.publish("orders")
    while clock.elapsed < 2:
        clock.advance(step)
    assert failing.times == [0.0, 0.1, 0.3, 0.7]


def test_without_backoff_the_delay_is_fixed(bus, clock):
    failing = Failing(clock, failures=3)
    bus.subscribe("orders", failing, retry_attempts=3, retry_delay=0.5, retry_backoff=1.0, retry_jitter=0.0)
    bus.publish("orders")
    clock.advance(60)
    assert failing.times == [0.0, 0.5, 1.0, 1.5]
    assert bus.dead_letters("orders") == []


def test_jitter_spreads_the_delay_by_its_share(bus, clock):
    failing = Failing(clock, failures=50)
    bus.subscribe("orders", failing, retry_attempts=50, retry_delay=1.0, retry_backoff=1.0, retry_jitter=0.1)
    bus.publish("orders")
    clock.advance(100)
    waits = [after - before for before, after in zip(failing.times, failing.times[1:], strict=False)]
    assert len(waits) == 50
    assert min(waits) >= 0.9 - 1e-9
    assert max(waits) <= 1.1 + 1e-9
    assert len(set(waits)) > 1


def test_a_retry_is_not_early_by_a_nanosecond(bus, clock):
    failing = Failing(clock, failures=1)
    bus.subscribe("orders", failing, retry_delay=0.1, retry_jitter=0.0)
    bus.publish("orders")
    clock.advance(0.099_999_999)
    assert len(failing.times) == 1
    clock.advance(1e-9)
    assert len(failing.times) == 2


def test_messages_that_fail_at_different_times_are_retried_in_the_order_of_their_instants(bus, clock):
    seen = []

    def handler(message):
        seen.append((message.body, clock.elapsed))
        if message.delivery_count == 1:
            raise ValueError("first time")

    bus.subscribe("orders", handler, retry_delay=1.0, retry_jitter=0.0)
    for name in "abc":
        bus.publish("orders", name)
        clock.advance(0.25)
    clock.advance(5)
    assert seen == [("a", 0.0), ("b", 0.25), ("c", 0.5), ("a", 1.0), ("b", 1.25), ("c", 1.5)]


def test_a_jump_of_the_wall_clock_neither_fires_nor_delays_a_retry(bus, clock):
    failing = Failing(clock, failures=1)
    bus.subscribe("orders", failing, retry_delay=10.0, retry_jitter=0.0)
    bus.publish("orders")
    clock.advance(1)
    clock.set_wall(clock.now() + timedelta(days=1))
    clock.advance(1)
    assert len(failing.times) == 1
    clock.set_wall(clock.now() - timedelta(days=2))
    clock.advance(8)
    assert failing.times == [0.0, 10.0]


def test_closing_forgets_the_retries_that_are_not_due(clock):
    failing = Failing(clock, failures=1)
    bus = SyncMessageBus(clock=clock)
    bus.subscribe("orders", failing, retry_delay=1.0)
    bus.publish("orders")
    clock.advance(0)
    bus.close(drain_timeout=0.01)
    clock.advance(60)
    assert failing.times == [0.0]


def test_two_buses_share_one_clock(clock):
    with SyncMessageBus(clock=clock) as one, SyncMessageBus(clock=clock) as other:
        first, second = Failing(clock, 1), Failing(clock, 1)
        one.subscribe("orders", first, retry_delay=1.0, retry_jitter=0.0)
        other.subscribe("orders", second, retry_delay=2.0, retry_jitter=0.0)
        one.publish("orders")
        other.publish("orders")
        clock.advance(1.5)
        assert (first.times, second.times) == ([0.0, 1.0], [0.0])
        one.close()
        clock.advance(1)
        assert second.times == [0.0, 2.0]


def test_a_chain_of_handlers_comes_to_rest_before_time_moves(bus, clock):
    times = []

    def step(message):
        times.append(clock.elapsed)
        if message.body:
            bus.publish("step", message.body - 1)

    bus.subscribe("step", step)
    bus.publish("step", 50)
    clock.advance(1)
    assert times == [0.0] * 51


# Time to live, on the wall clock


def test_a_message_lives_until_its_ttl_is_over_and_not_longer(bus, clock):
    bus.create_channel("orders", dead_letter_channel="late")
    bus.publish("orders", "short", ttl=5)
    bus.publish("orders", "long", ttl=5.000_000_001)
    clock.advance(5)
    message = bus.pop("orders")
    assert message is not None
    assert message.body == "long"
    letter = bus.pop("late")
    assert (letter.body, letter.headers["DeadLetterReason"]) == ("short", "TTLExpiredException")
    assert bus.pop("late") is None


def test_a_message_just_before_its_ttl_is_delivered(bus, clock):
    bus.create_channel("orders", ttl=5)
    bus.publish("orders", "in time")
    clock.advance(4.999_999_999)
    seen = []
    bus.subscribe("orders", lambda message: seen.append(message.body))
    clock.advance(0)
    assert seen == ["in time"]


def test_a_message_that_expires_while_it_waits_for_its_retry_is_not_retried(bus, clock):
    failing = Failing(clock, failures=99)
    bus.subscribe("orders", failing, retry_delay=10.0, retry_jitter=0.0)
    bus.publish("orders", ttl=5)
    clock.advance(60)
    assert failing.times == [0.0]
    assert bus.snapshot("orders").channels[0].expired == 1


def test_a_jump_of_the_wall_clock_expires_messages(bus, clock):
    bus.create_channel("orders")
    bus.publish("orders", ttl=5)
    clock.set_wall(clock.now() - timedelta(hours=1))
    assert bus.queue_size("orders") == 1
    clock.set_wall(clock.now() + timedelta(hours=2))
    assert bus.pop("orders") is None
    assert bus.snapshot("orders").channels[0].expired == 1


def test_the_ttl_of_a_message_made_by_hand_follows_an_entered_clock(bus, clock):
    bus.create_channel("orders")
    with clock:
        bus.publish(Message.new("orders", 1).with_fields({"ttl": 5}))
    clock.advance(5)
    assert bus.pop("orders") is None


def test_a_blocked_handler_need_not_hold_up_the_clock(bus, clock):
    started, release = threading.Event(), threading.Event()
    seen = []

    def slow(message):
        seen.append(message.body)
        started.set()
        release.wait(5)

    bus.subscribe("orders", slow)
    bus.publish("orders", "first")
    bus.publish("orders", "second", ttl=5)
    assert started.wait(5)
    clock.advance(6, settle=False)
    release.set()
    clock.advance(0)
    assert seen == ["first"]
    assert bus.snapshot("orders").channels[0].expired == 1


# Rates and windows, on monotonic time


def test_the_rate_limiter_refills_as_the_clock_is_moved(bus, clock):
    bus.create_channel("orders", rate_limit_per_sec=2, rate_limit_burst=3)
    for number in range(3):
        bus.publish("orders", number)
    with pytest.raises(RateLimited) as refused:
        bus.publish("orders", "too fast")
    assert refused.value.retry_after_s == 0.5
    clock.advance(0.499_999_999)
    with pytest.raises(RateLimited):
        bus.publish("orders", "still too fast")
    clock.advance(1e-9)
    bus.publish("orders", 3)
    with pytest.raises(RateLimited):
        bus.publish("orders", "and again")
    clock.advance(3600)
    for number in range(4, 7):  # Never more than the burst.
        bus.publish("orders", number)
    with pytest.raises(RateLimited):
        bus.publish("orders", "over the burst")
    assert bus.queue_size("orders") == 7


def test_a_jump_of_the_wall_clock_gives_no_tokens(bus, clock):
    bus.create_channel("orders", rate_limit_per_sec=1, rate_limit_burst=1)
    bus.publish("orders")
    clock.set_wall(clock.now() + timedelta(days=1))
    with pytest.raises(RateLimited):
        bus.publish("orders")


def test_a_dedup_window_ends_as_the_clock_is_moved(bus, clock):
    bus.create_channel("orders", dedup_window=10)
    bus.publish("orders", "first", dedup_key="k")
    clock.advance(9.999)
    bus.publish("orders", "second", dedup_key="k")
    assert bus.queue_size("orders") == 1
    clock.advance(0.001)
    bus.publish("orders", "third", dedup_key="k")
    assert bus.queue_size("orders") == 2
