"""The properties of a message: what copies share and what encoders may rely on."""

from uuid import UUID

from unibus.core.envelope.fields import set_fields
from unibus.core.envelope.message_properties import TEXT_FIELDS, MessageProperties


def test_a_copy_has_every_field_and_shares_no_mapping() -> None:
    properties = MessageProperties({"a": 1}, {"k": "v"})
    for name in TEXT_FIELDS:
        setattr(properties, name, name)
    properties.ttl_ns, properties.scheduled_at_ns = 1, 2
    copy = properties.copy()
    assert copy.as_tuple() == properties.as_tuple()
    copy.headers["b"] = 2
    copy.trace["l"] = "w"
    assert (properties.headers, properties.trace) == ({"a": 1}, {"k": "v"})


def test_two_property_objects_share_no_default() -> None:
    one, other = MessageProperties(), MessageProperties()
    one.headers["a"] = 1
    one.trace["k"] = "v"
    assert (other.headers, other.trace) == ({}, {})


def test_only_checked_plain_headers_are_trusted() -> None:
    properties = MessageProperties({"a": 1})
    assert not properties.trusts_headers()
    set_fields(properties, {"headers": {"a": 1, "b": "x", "c": 1.5, "d": None, "e": True}})
    assert properties.trusts_headers()
    assert properties.copy().trusts_headers()
    set_fields(properties, {"headers": {"a": UUID(int=1)}})
    assert not properties.trusts_headers()


def test_headers_that_changed_since_are_not_trusted() -> None:
    properties = MessageProperties()
    set_fields(properties, {"headers": {"a": 1}})
    properties.headers["b"] = UUID(int=1)
    assert not properties.trusts_headers()
    del properties.headers["b"]
    properties.headers = {"c": UUID(int=1)}
    assert not properties.trusts_headers()
