"""Rows by name, by place and as dictionaries."""

import pytest

from unibus.stores.query.result import QueryResult


def result(*names: str) -> QueryResult:
    rows = [tuple(f"{name}{number}" for name in names) for number in range(3)]
    return QueryResult(names, rows, False, 0.5)


def test_rows_are_a_sequence() -> None:
    found = result("a", "b")
    assert (found.columns, len(found), found.truncated, found.seconds) == (("a", "b"), 3, False, 0.5)
    assert [row.as_tuple() for row in found] == [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]
    assert found[-1] == ("a2", "b2")
    assert found[1:] == [("a1", "b1"), ("a2", "b2")]
    assert found.scalar() == "a0"
    assert QueryResult(["a"], [], False, 0.0).scalar() is None
    assert not QueryResult(["a"], [], False, 0.0)


def test_a_row_by_name_place_and_as_a_dictionary() -> None:
    row = result("a", "b")[0]
    assert (row["b"], row[1], row[-1], row.get("b"), row.get("c", 7)) == ("b0", "b0", "b0", "b0", 7)
    assert row.as_dict() == dict(row) == {"a": "a0", "b": "b0"}
    assert (list(row), len(row)) == (["a0", "b0"], 2)
    one, other = row
    assert (one, other) == ("a0", "b0")
    assert {row: 1}[result("a", "b")[0]] == 1
    assert repr(row) == "Row(a='a0', b='b0')"


def test_names_need_not_be_exact() -> None:
    row = result("COUNT(*)", "Total", "max(a)", "max(b)")[0]
    assert row["COUNT(*)"] == row["count(*)"] == row["count"] == row["Count"] == "COUNT(*)0"
    assert row["total"] == "Total0"
    with pytest.raises(KeyError):
        row["max"]  # Which of the two?


def test_the_exact_name_wins() -> None:
    row = result("count(*)", "count", "A", "a")[0]
    assert (row["count"], row["a"], row["A"]) == ("count0", "a0", "A0")
    assert result("a", "a")[0]["a"] == "a0"


def test_a_column_that_is_not_there_is_told() -> None:
    with pytest.raises(KeyError, match="did you mean 'channel'"):
        result("channel")[0]["chanel"]
    with pytest.raises(KeyError, match="there are a, b"):
        result("a", "b")[0]["nothing"]
