"""The sorted table of prefixes: its links and its runs. Its matches are tested with the index."""

import random

from unibus.core.topics.prefixes import Prefix, PrefixTable


def table_of(*keys: bytes, run_size_max: int = 1024) -> tuple[PrefixTable, dict[bytes, Prefix]]:
    table = PrefixTable(run_size_max)
    rows: dict[bytes, Prefix] = {}
    for number, key in enumerate(keys):
        rows[key] = table.insert(key)
        rows[key].join((number,))
    return table, rows


def matched(table: PrefixTable, topic: bytes) -> list[int]:
    parts: list[tuple[int, ...]] = []
    table.match(topic, parts)
    return sorted(peer for part in parts for peer in part)


def parent_of(table: PrefixTable, rows: dict[bytes, Prefix], key: bytes) -> bytes | None:
    """The parent as a match of the key itself leaves it."""
    matched(table, key)
    parent = rows[key].parent
    return None if parent is None else parent.key


def test_the_parent_is_the_longest_stored_proper_prefix() -> None:
    # The table that is drawn in the docstring of prefixes.py.
    table, rows = table_of(b"", b"A", b"AB", b"ABC", b"B", b"BTC", b"BTC/USD")
    parents = {key: parent_of(table, rows, key) for key in rows}
    assert parents == {
        b"": None, b"A": b"", b"AB": b"A", b"ABC": b"AB", b"B": b"", b"BTC": b"B", b"BTC/USD": b"BTC",
    }  # fmt: skip


def test_a_parent_is_found_past_siblings_that_share_some_bytes() -> None:
    table, rows = table_of(b"a", b"aab", b"aabbx", b"aabc", b"aacd", b"aad")
    assert parent_of(table, rows, b"aad") == b"a"
    assert parent_of(table, rows, b"aabc") == b"aab"


def test_a_key_between_two_others_takes_over_the_link() -> None:
    table, rows = table_of(b"a", b"abc")
    assert parent_of(table, rows, b"abc") == b"a"
    rows[b"ab"] = table.insert(b"ab")
    assert parent_of(table, rows, b"abc") == b"ab"
    table.remove(rows[b"ab"])
    assert parent_of(table, rows, b"abc") == b"a"
    table.remove(rows[b"a"])
    assert parent_of(table, rows, b"abc") is None


def test_a_link_is_taken_over_across_the_border_of_runs() -> None:
    table, rows = table_of(b"", b"ab", b"b", run_size_max=1)
    assert parent_of(table, rows, b"ab") == b""
    rows[b"a"] = table.insert(b"a")
    assert parent_of(table, rows, b"ab") == b"a"
    table.remove(rows[b"a"])
    assert parent_of(table, rows, b"ab") == b""


def test_a_key_without_descendants_leaves_every_link_as_it_was() -> None:
    table, rows = table_of(b"a", b"ab", b"b")
    for key in rows:
        matched(table, key)
    stamps = {key: row.stamp for key, row in rows.items()}
    leaf = table.insert(b"abc")
    matched(table, b"ab")
    table.remove(leaf)
    matched(table, b"ab")
    assert {key: row.stamp for key, row in rows.items()} == stamps


def test_a_match_relinks_what_it_walks_and_nothing_else() -> None:
    # No change and no match visits the whole table, though "" is above every key.
    keys = [b"k%05d" % number for number in range(3000)]
    table, rows = table_of(*keys)
    every = table.insert(b"")
    untouched = {row.stamp for row in rows.values()}
    matched(table, b"k00007/x")
    assert [key for key, row in rows.items() if row.stamp not in untouched] == [b"k00007"]
    assert rows[b"k00007"].parent is every


def test_a_removed_key_holds_no_other() -> None:
    table, rows = table_of(b"a", b"ab", b"abc")
    matched(table, b"abc")
    table.remove(rows[b"ab"])
    assert rows[b"ab"].parent is None


def test_find_knows_only_whole_keys() -> None:
    table, rows = table_of(b"a", b"abc")
    assert table.find(b"abc") is rows[b"abc"]
    assert table.find(b"ab") is None
    assert table.find(b"") is None


def test_runs_are_cut_and_vanish_without_losing_a_key() -> None:
    order = random.Random(7)
    keys = [b"%04d" % number for number in range(500)]
    order.shuffle(keys)
    table, rows = table_of(*keys, run_size_max=4)
    for key in keys:
        assert table.find(key) is rows[key]
    order.shuffle(keys)
    for number, key in enumerate(keys, 1):
        table.remove(rows[key])
        assert table.find(key) is None
        assert table.size == len(keys) - number
    assert matched(table, b"0001") == []
    table.insert(b"0001").join((9,))
    assert matched(table, b"0001") == [9]
