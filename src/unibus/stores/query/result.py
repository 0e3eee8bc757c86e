"""The result of a query: rows with values by name and by position. The column `count(*)` is also found as `count`."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, overload

from unibus.counting import counted
from unibus.display import HTML_ROWS_MAX, described, html_table, short_value, shortened
from unibus.near_names import hint_for_name

Value: TypeAlias = int | float | str | bytes | None
"""The types of a column's values."""


class Row:
    """One row. It compares as the tuple of its values, and `dict(row)` works."""

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: "Columns", values: tuple[Value, ...]) -> None:
        self._columns = columns
        self._values = values

    def __getitem__(self, key: int | str) -> Value:
        return self._values[key if isinstance(key, int) else self._columns.place(key)]

    def keys(self) -> tuple[str, ...]:
        return self._columns.names

    def get(self, name: str, otherwise: Value = None) -> Value:
        return self[name] if self._columns.has(name) else otherwise

    def as_dict(self) -> dict[str, Value]:
        return dict(zip(self._columns.names, self._values, strict=True))

    def as_tuple(self) -> tuple[Value, ...]:
        return self._values

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == (other._values if isinstance(other, Row) else other)

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return shortened(f"Row({', '.join(f'{name}={short_value(value)}' for name, value in self.as_dict().items())})")


class Columns:
    """The column names of a result, and their positions."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names: Final = tuple(names)
        self._places: dict[str, int] = {}
        # The exact name first, then case-insensitive, then the bare word; of equal names the first.
        for form in (str, str.casefold):
            for place, name in enumerate(self.names):
                self._places.setdefault(form(name), place)
        words = [_word(name) for name in self.names]
        for place, word in enumerate(words):
            if words.count(word) == 1:
                self._places.setdefault(word, place)

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def place(self, name: str) -> int:
        found = self._find(name)
        if found is None:
            hint = hint_for_name(name, self.names, f"there are {', '.join(self.names)}")
            raise KeyError(f"the result has no column {name!r} ({hint})")
        return found

    def _find(self, name: str) -> int | None:
        found = self._places.get(name)
        return self._places.get(name.casefold()) if found is None else found


def _word(name: str) -> str:
    """`COUNT(*)` as `count`."""
    return name.partition("(")[0].strip().casefold()


class QueryResult(Sequence[Row]):
    """The rows of a query. `truncated`: there were more than the limit. `seconds` is how long it took."""

    def __init__(self, names: Sequence[str], rows: list[tuple[Value, ...]], truncated: bool, seconds: float) -> None:
        index = Columns(names)
        self.columns: Final = index.names
        self.rows: Final = [Row(index, values) for values in rows]
        self.truncated: Final = truncated
        self.seconds: Final = seconds

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def dicts(self) -> list[dict[str, Value]]:
        return [row.as_dict() for row in self.rows]

    def scalar(self) -> Value:
        """The first value of the first row; None when there is no row."""
        return self.rows[0][0] if self.rows else None

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        more = ", truncated" if self.truncated else ""
        return f"{counted(len(self.rows), 'row')}{more} of {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        shown = [row.as_tuple() for row in self.rows[:HTML_ROWS_MAX]]
        more = ", truncated" if self.truncated else ""
        caption = f"{counted(len(self.rows), 'row')}{more}"
        return html_table(caption, self.columns, shown, len(self.rows) - len(shown))
