"""Ids and times of messages: unique, cheap, and given from outside (S0-032, S0-036)."""

from collections.abc import Iterator

import pytest

from unibus.core.envelope.message import Message
from unibus.core.envelope.stamp import IdGenerator, default_id_generator, id_text, set_default_id_generator


@pytest.fixture
def clock() -> Iterator[list[int]]:
    """A stamper whose time is the list's only item; the former stamper comes back afterwards."""
    now = [1_000]
    former = default_id_generator()
    set_default_id_generator(IdGenerator("test-", lambda: now[0]))
    yield now
    set_default_id_generator(former)


def test_numbers_start_at_one_and_never_repeat() -> None:
    id_generator = IdGenerator("p", lambda: 0)
    assert [id_generator.next_number() for _ in range(3)] == [1, 2, 3]


def test_an_id_is_the_prefix_and_the_count_in_hexadecimal() -> None:
    for number in (0, 1, 255, 4095, 4096, 4097, 65_536, 2**40 + 5, 2**63 - 1, 7):
        assert id_text("p-", number) == f"p-{number:x}"
        assert id_text("q-", number) == f"q-{number:x}"


def test_messages_are_stamped_by_the_lent_stamper(clock: list[int]) -> None:
    first = Message.new("c")
    clock[0] = 2_000
    second = Message.new("c")
    assert (first.id, first.timestamp_ns) == ("test-1", 1_000)
    assert (second.id, second.timestamp_ns) == ("test-2", 2_000)


def test_an_id_is_the_same_however_late_it_is_read(clock: list[int]) -> None:
    # The text is made at the first reading; messages made in between must not move it.
    first = Message.new("c")
    others = {Message.new("c").id for _ in range(100)}
    assert first.id == "test-1"
    assert first.id not in others
    assert len(others) == 100


def test_two_stampers_with_different_prefixes_share_no_id() -> None:
    one, other = IdGenerator("a-", lambda: 0), IdGenerator("b-", lambda: 0)
    ids = {id_text(id_generator.prefix, id_generator.next_number()) for id_generator in (one, other) for _ in range(50)}
    assert len(ids) == 100
