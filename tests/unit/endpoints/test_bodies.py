"""The one table for bodies: bytes stay bytes, other values are JSON with its content type."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.endpoints.bodies import wire_body

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_value_is_json(value: object) -> None:
    data, content_type = wire_body(value, None)
    assert (json.loads(data), content_type) == (value, "application/json")


@given(st.binary(), st.none() | st.just("text/plain"))
def test_bytes_stay_bytes(data: bytes, content_type: str | None) -> None:
    for form in (data, bytearray(data), memoryview(data)):
        assert wire_body(form, content_type) == (data, content_type or "")


@pytest.mark.parametrize("format", list(SerializationFormat))
def test_serialized_data_is_not_touched(format: SerializationFormat) -> None:
    data, content_type = wire_body(Serialized(format, b"\x00{"), None)
    assert data == b"\x00{"
    assert content_type.startswith("application/")
    assert wire_body(Serialized(format, b""), "own/type") == (b"", "own/type")


@pytest.mark.parametrize(
    ("value", "written"),
    [({1: {2}}, {"1": [2]}), ({None: 1}, {"$map": [[None, 1]]}), ({(1,): 2}, {"$map": [[{"$tuple": [1]}, 2]]})],
)
def test_what_json_does_not_know_is_still_written(value: object, written: object) -> None:
    assert json.loads(wire_body(value, "text/plain")[0]) == written
    assert wire_body(value, "text/plain")[1] == "application/json"
