"""Ten million publishes while subscribers come and go: memory stays flat, and no message is unaccounted for."""

import gc
from pathlib import Path

from unibus.core.envelope.message import Message
from unibus.sync import MessageBus

ROUNDS = 100
PUBLISHES_PER_ROUND = 100_000
CHANNELS = 20
# The allocator keeps some pages of its own; a leak of one small object per message would be a hundred times this.
GROWTH_BYTES_MAX = 8 * 1024 * 1024


def resident_bytes() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS in /proc/self/status")


def churn(bus: MessageBus, round_number: int) -> int:
    """One round: subscribers of every kind come, get their messages, and go. How many deliveries there must be."""
    seen = [0, 0, 0]

    def exact(message: Message) -> None:
        seen[0] += 1

    def by_prefix(message: Message) -> None:
        seen[1] += 1

    def by_wildcard(message: Message) -> None:
        seen[2] += 1

    # One worker each, so that the counters need no lock of their own.
    subscriptions = [bus.subscribe(f"soak.{number}.x", exact, group="exact") for number in range(CHANNELS)][:1]
    subscriptions.append(bus.subscribe("soak.1.", by_prefix, match="prefix"))
    subscriptions.append(bus.subscribe("soak.*.x", by_wildcard, match="wildcard"))
    for number in range(PUBLISHES_PER_ROUND):
        bus.publish(f"soak.{number % CHANNELS}.x", number)
    # Names that are never used again.
    for number in range(2_000):
        bus.publish(f"once.{round_number}.{number}", number)
    assert bus.drain(60)
    for subscription in subscriptions:
        subscription.cancel()
    bus.unsubscribe(exact)
    assert seen[1] == PUBLISHES_PER_ROUND // CHANNELS
    assert seen[2] == PUBLISHES_PER_ROUND
    return sum((PUBLISHES_PER_ROUND, seen[1], seen[2]))


def test_ten_million_publishes_with_churn_keep_memory_flat() -> None:
    with MessageBus() as bus:
        for number in range(CHANNELS):
            bus.create_channel(f"soak.{number}.x", max_queue_size=0)
        delivered = sum(churn(bus, number) for number in range(ROUNDS // 10))
        before = resident_bytes()
        delivered += sum(churn(bus, number) for number in range(ROUNDS // 10, ROUNDS))
        grown = resident_bytes() - before
        counted = bus.metrics()
        assert counted["dispatched"] == delivered
        assert counted["dropped"] == 0
        assert grown < GROWTH_BYTES_MAX, f"{grown:,} bytes more after {ROUNDS * PUBLISHES_PER_ROUND:,} publishes"
