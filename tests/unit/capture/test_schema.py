"""The tables of kinds cover what core knows, and mean what core does."""

import pyarrow as pa

from unibus.capture import schema
from unibus.core.lifecycle.events import KINDS, Event
from unibus.core.lifecycle.state.states import GONE, STATE_NAMES, TRANSITIONS


def test_every_kind_of_core_has_a_number_of_its_own() -> None:
    assert set(schema.KIND_CODES) == set(KINDS)
    assert len(set(schema.KIND_CODES.values())) == len(KINDS)
    assert schema.UNKNOWN not in schema.KIND_CODES.values()
    assert max(schema.KIND_CODES.values()) < 128


def test_numbers_that_are_in_files_stay() -> None:
    assert [schema.KIND_CODES[kind] for kind in ("sent", "scheduled", "copied", "completed", "forgotten")] == [
        *(1, 2, 3, 10, 26)
    ]


def test_what_ends_a_message_is_what_core_says() -> None:
    ends = {kind for kind, (_, left) in TRANSITIONS.items() if left == {GONE}}
    assert ends == schema.TERMINAL


def test_states_are_those_that_core_allows() -> None:
    for kind, (_, left) in TRANSITIONS.items():
        assert schema.STATES[kind] in {STATE_NAMES[state] for state in left}, kind
    assert set(schema.STATES) == set(TRANSITIONS) | schema.CAME
    assert schema.CAME <= schema.STORED_KEY


def test_a_channel_has_one_key_in_its_domain() -> None:
    assert schema.channel_key("local", "orders") == schema.channel_key("local", "orders")
    assert schema.channel_key("local", "orders") != schema.channel_key("other", "orders")
    assert schema.channel_key("a", "b\0c") != schema.channel_key("a\0b", "d")
    assert -(2**63) <= schema.channel_key("local", "orders") < 2**63


def test_the_key_is_the_one_that_files_have() -> None:
    assert schema.channel_key("local", "orders") == -5520700267562651542


def test_events_become_rows() -> None:
    events = [
        Event(1, 1_000_001, "d", "orders", "sent", 1, "m", size=3, attrs={"priority": "50"}),
        Event(2, 1_000_002, "d", "orders", "of the future", 1),
    ]
    table = schema.table_of(events)
    assert table.schema.equals(schema.EVENTS)
    assert table["kind_code"].to_pylist() == [1, 0]
    assert table["ts"].cast(pa.int64()).to_pylist() == [1_000_001, 1_000_002]
    assert table["attrs"].to_pylist() == [[("priority", "50")], None]
    assert table["channel_key"].to_pylist() == [schema.channel_key("d", "orders")] * 2
