"""The cold part: what copies share and what encoders may rely on."""

from uuid import UUID

from unibus.core.envelope.fields import set_fields
from unibus.core.envelope.message_properties import TEXT_FIELDS, MessageProperties


def test_a_copy_has_every_field_and_shares_no_mapping() -> None:
    cold = MessageProperties({"a": 1}, {"k": "v"})
    for name in TEXT_FIELDS:
        setattr(cold, name, name)
    cold.ttl_ns, cold.scheduled_at_ns = 1, 2
    copy = cold.copy()
    assert copy.as_tuple() == cold.as_tuple()
    copy.headers["b"] = 2
    copy.trace["l"] = "w"
    assert (cold.headers, cold.trace) == ({"a": 1}, {"k": "v"})


def test_two_cold_parts_share_no_default() -> None:
    one, other = MessageProperties(), MessageProperties()
    one.headers["a"] = 1
    one.trace["k"] = "v"
    assert (other.headers, other.trace) == ({}, {})


def test_only_checked_plain_headers_are_trusted() -> None:
    cold = MessageProperties({"a": 1})
    assert not cold.trusts_headers()
    set_fields(cold, {"headers": {"a": 1, "b": "x", "c": 1.5, "d": None, "e": True}})
    assert cold.trusts_headers()
    assert cold.copy().trusts_headers()
    set_fields(cold, {"headers": {"a": UUID(int=1)}})
    assert not cold.trusts_headers()


def test_headers_that_changed_since_are_not_trusted() -> None:
    cold = MessageProperties()
    set_fields(cold, {"headers": {"a": 1}})
    cold.headers["b"] = UUID(int=1)
    assert not cold.trusts_headers()
    del cold.headers["b"]
    cold.headers = {"c": UUID(int=1)}
    assert not cold.trusts_headers()
