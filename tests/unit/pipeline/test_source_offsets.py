"""Offsets: the same after JSON, places in history by every name, and shares of what waits."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.errors import UsageError
from unibus.pipeline.connector import offsets
from unibus.pipeline.connector.offsets import SEQ_MAX, Offset, bound_of, limited, offset_at

NOW_US = 1_794_000_000_000_000
domains = st.text(min_size=1, max_size=8) | st.sampled_from(["$", "$$", "$from", "$$from", "$initial", "from"])
any_offset = st.dictionaries(domains, st.integers(0, SEQ_MAX), max_size=5)


@dataclass
class Ten:
    """Events 11 to 20, one each second before now."""

    domain: str = "local"

    def first(self) -> int:
        return 11

    def last(self) -> int:
        return 20

    def seq_at(self, ts_us: int) -> int:
        return min(max(20 - (NOW_US - ts_us) // 1_000_000, 10), 20)


@given(any_offset)
def test_an_offset_is_the_same_after_json(offset: Offset) -> None:
    assert offsets.plain(json.loads(json.dumps(offsets.to_stored(offset)))) == offset
    assert offsets.plain(json.loads(json.dumps(offsets.initial(offset)))) == offset


@given(any_offset)
def test_what_spark_shows_is_a_place_to_start_from(offset: Offset) -> None:
    for shown in (offsets.to_stored(offset), offsets.reached(offsets.initial({}), {}, offset)):
        bound = bound_of("startingOffsets", json.dumps(shown), "earliest", NOW_US)
        assert {domain: each.seq for domain, each in bound.domains.items()} == offset


@given(any_offset, any_offset, any_offset)
def test_the_first_batch_knows_where_it_began(start: Offset, end: Offset, later: Offset) -> None:
    begun = offsets.initial(start)
    end = {**start, **end}  # A batch ends in every domain in which it began.
    reached = json.loads(json.dumps(offsets.reached(begun, start, end)))
    # After a crash Spark asks for the beginning again, and gets another one.
    assert offsets.between(offsets.initial(later), reached) == (start if start != end else later, end)
    # From there on a start is where the batch before has ended.
    following = offsets.between(reached, offsets.reached(reached, end, later))
    assert following[1] == later
    if start != end:
        assert following[0] == end


@given(any_offset, any_offset, any_offset)
def test_a_batch_knows_where_its_new_domains_begin(start: Offset, came: Offset, end: Offset) -> None:
    stored = offsets.to_stored(start)
    begin = {**came, **start}
    reached = json.loads(json.dumps(offsets.reached(stored, begin, end)))
    assert offsets.between(stored, reached) == (begin if start != end else start, end)


def test_nothing_new_is_the_same_text() -> None:
    for start in (offsets.initial({"b": 2, "a": 1}), {"b": 2, "a": 1}):
        assert json.dumps(offsets.reached(start, {"a": 1, "b": 2}, {"a": 1, "b": 2})) == json.dumps(start)


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        ("", 10),
        ("earliest", 10),
        ("Latest", 20),
        ("0", 0),
        ("15", 15),
        ("-5s", 15),
        ("-1h", 10),
        ('{"local": 12}', 12),
        ('{"local": "latest"}', 20),
        ('{"local": "-5s"}', 15),
        ("{}", 10),
        ('{"local": 12, "$from": {"local": 3}}', 12),
        ('{"local": 12, "$initial": true}', 12),
        ("2026-11-06T21:19:55Z", 15),
        ("2026-11-06T21:19:55", 15),
        ("2026-11-06T23:19:55+02:00", 15),
    ],
)
def test_a_place_in_history(text: str, seq: int) -> None:
    assert offset_at("startingOffsets", bound_of("startingOffsets", text, "earliest", NOW_US), [Ten()]) == {
        "local": seq
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("erliest", "did you mean 'earliest'"),
        ("-5", "is not a position in history"),
        ("-5 apples", "is not a duration"),
        ("yesterday", "a sequence, a time"),
        ("{", "is not JSON"),
        ('{"local": [1]}', "is not JSON"),
        ('{"lokal": 1}', "did you mean 'local'"),
        ("21", "beyond the last event of 'local', which is 20"),
    ],
)
def test_what_is_no_place_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        offset_at("startingOffsets", bound_of("startingOffsets", text, "earliest", NOW_US), [Ten()])


def test_each_domain_has_a_place_of_its_own() -> None:
    bound = bound_of("startingOffsets", '{"b": 12}', "earliest", NOW_US)
    assert offset_at("startingOffsets", bound, [Ten("a"), Ten("b")]) == {"a": 10, "b": 12}


small = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1)


@given(small, st.integers(1, 60))
def test_a_share_of_what_waits(ranges: dict[str, tuple[int, int]], most: int) -> None:
    start = {domain: low for domain, (low, _) in ranges.items()}
    end = {domain: low + more for domain, (low, more) in ranges.items()}
    cut = limited(start, end, most)
    assert all(start[domain] <= cut[domain] <= end[domain] for domain in end)
    assert offsets.distance(start, cut) == min(most, offsets.distance(start, end))
