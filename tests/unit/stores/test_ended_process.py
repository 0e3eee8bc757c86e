"""The process that had a store open ended while its handlers had messages: the next opening redelivers them at once."""

import logging
from pathlib import Path

import pytest

from unibus.core.flow.deadletter import MAX_DELIVERY_COUNT_EXCEEDED, REASON_HEADER
from unibus.core.lifecycle.claiming import Claimed
from unibus.stores.opening import open_store
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import ANSWER_S, Rig

schemes = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
saved = pytest.mark.parametrize("is_saved", [True, False], ids=["snapshot", "log"])


def opened(scheme: str, path: Path, clock: VirtualClock) -> Rig:
    return Rig(open_store(f"{scheme}:///{path}/bus", clock, clock.timers(lambda: True)), clock)


def claim_for_handlers(rig: Rig, entity: str, count: int) -> list[Claimed]:
    request = ClaimRequest(entity, count, ends_with_process=True, starts_max=count)
    return rig.store.claim(request).wait(ANSWER_S)


@schemes
@saved
def test_locks_of_handlers_end_at_the_next_opening(
    scheme: str,
    is_saved: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not is_saved:
        request.getfixturevalue("log_only")
    clock = VirtualClock()
    rig = opened(scheme, tmp_path, clock)
    rig.queue("q", lock_duration=60)
    rig.queue("last", lock_duration=60, max_delivery_count=1)
    rig.fill("q", "abc")
    rig.send("last", "x")
    claim_for_handlers(rig, "q", 2)
    claim_for_handlers(rig, "last", 1)
    received = rig.one("q")
    rig.store.close()
    with caplog.at_level(logging.WARNING, logger="unibus"):
        rig = opened(scheme, tmp_path, clock)
    [line] = caplog.messages
    assert line.endswith("its handlers had 3 messages: redelivered 2, dead-lettered 1 (no delivery left)")
    again = rig.claim("q", 5)
    assert [each.sequence for each in again] == [1, 2]
    assert [each.delivery_count for each in again] == [2, 2], "the deliveries are counted"
    assert [message.headers[REASON_HEADER] for message in rig.dead("last")] == [MAX_DELIVERY_COUNT_EXCEEDED]
    returned = [event.reason for event in rig.events() if event.kind == "returned"]
    assert returned == ["lock_expired", "lock_expired"]
    assert rig.info("q").locked == 3, "the lock of a receiver keeps its time"
    rig.complete(received)
    assert rig.store.check() == []
    rig.store.close()


@schemes
@saved
def test_a_later_lock_of_a_receiver_is_not_one_of_a_handler(
    scheme: str, is_saved: bool, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    if not is_saved:
        request.getfixturevalue("log_only")
    clock = VirtualClock()
    rig = opened(scheme, tmp_path, clock)
    rig.queue("q", lock_duration=60)
    rig.send("q", "a")
    rig.abandon(*claim_for_handlers(rig, "q", 1))
    rig.one("q")
    rig.store.close()
    rig = opened(scheme, tmp_path, clock)
    assert rig.claim("q") == []
    assert caplog.messages == []
    clock.advance(60)
    assert rig.one("q").delivery_count == 3
    rig.store.close()
