"""A subscription that starts in the past gets the messages of its topic that have not expired by then."""

import pytest

from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.backfill import Backfill
from unibus.core.lifecycle.batch import run
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.changes import Declared, MessageRef, Passed
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC, subscription_path
from unibus.core.lifecycle.state.state import StoreState

SENT_NS = 1_000_000_000_000
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(("age_ns", "copies"), [(SECOND_NS - 1, 1), (SECOND_NS, 0), (SECOND_NS + 1, 0)])
def test_a_message_is_copied_until_the_instant_of_its_expiry(age_ns: int, copies: int) -> None:
    data = encode(Message.new("t", "body").with_fields({"ttl": 1.0}))
    change = Passed(SENT_NS, 1, 1, MessageRef("m", len(data)), 50, None, 0, data)
    state = StoreState(1_000_000)
    run(state, [Declare("t", TOPIC, {})], SENT_NS)
    backfill = Backfill(1, 0, 0)
    backfill.hold(state.entities[1])
    backfill.add_change(1, Declared(SENT_NS, 1, 0, "t", TOPIC, {}))
    backfill.add_change(2, change)
    now_ns = SENT_NS + age_ns
    run(state, [Declare(subscription_path("t", "s"), SUBSCRIPTION, {})], now_ns)
    subscription = state.entities[2]
    assert backfill.copy_to(state, subscription, now_ns) == copies
    assert [entry.expires_ns for entry in subscription.entries.values()] == [SENT_NS + SECOND_NS] * copies
