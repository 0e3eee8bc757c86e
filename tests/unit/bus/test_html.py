"""Tables for notebooks: escaped, bounded, and without anything from a network."""

import re
from html.parser import HTMLParser

import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.display import HTML_ROWS_MAX, html_table
from unibus.stores.query.result import QueryResult
from unibus.stores.seam.store import EntityInfo

SCRIPT = "<script>alert('x')</script>"


class Tags(HTMLParser):
    """Checks that each tag is closed, and collects their names and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style", "colspan"}
        self.names.add(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


ALLOWED = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_a_query_result_is_a_table() -> None:
    result = QueryResult(["id", "n"], [("a", 1), (None, 2)], False, 0.1)
    assert result._repr_html_() == (
        "<table><caption>2 rows</caption><thead><tr><th>id</th><th>n</th></tr></thead><tbody>"
        '<tr><td style="text-align: left">a</td><td style="text-align: right">1</td></tr>'
        '<tr><td></td><td style="text-align: right">2</td></tr></tbody></table>'
    )


def test_rows_and_cells_are_bounded() -> None:
    result = QueryResult(["body"], [("x" * 10_000,)] * 1_000, True, 0.1)
    shown = Tags(result._repr_html_())
    assert shown.text[0] == "1,000 rows, truncated"
    assert shown.text[-1] == f"… {1_000 - HTML_ROWS_MAX} more"
    assert len("".join(shown.text)) < HTML_ROWS_MAX * 250


@pytest.mark.parametrize("value", [SCRIPT, SCRIPT.encode(), 1.5, None, True], ids=repr)
def test_a_table_is_escaped(value: object) -> None:
    text = html_table(SCRIPT, [SCRIPT], [[value]])
    assert Tags(text).names <= ALLOWED
    assert "<script" not in text


def test_entities_and_traces_are_tables(bus_with_script: SyncMessageBus) -> None:
    bus = bus_with_script
    listed = bus.entities()
    assert listed == list(listed)
    for text in (
        listed._repr_html_(),
        bus.entities.list()._repr_html_(),
        listed[0]._repr_html_(),
        bus.trace_message(SCRIPT)._repr_html_(),
        bus.query_messages("SELECT * FROM messages")._repr_html_(),
        bus.trace_message("no such")._repr_html_(),
    ):
        shown = Tags(text)
        assert shown.names <= ALLOWED
        assert "<script" not in text
        assert re.search("https?:|url\\(", text) is None
    assert "sent, 34 bytes" in re.sub(r"\d+ bytes", "34 bytes", bus.trace_message(SCRIPT)._repr_html_())
    assert SCRIPT in "".join(Tags(bus.trace_message(SCRIPT)._repr_html_()).text)


def test_an_entity_is_a_row() -> None:
    shown = Tags(EntityInfo("orders", "queue", active=3, dead=1)._repr_html_())
    assert shown.text[-8:] == ["orders", "queue", "3", "0", "0", "0", "1", "0"]


@pytest.fixture
def bus_with_script() -> SyncMessageBus:
    bus = SyncMessageBus()
    bus.send(SCRIPT, {"body": SCRIPT}, message_id=SCRIPT)
    yield bus
    bus.receive_batch(SCRIPT, timeout=0, mode="receive_and_delete")
    bus.close()
