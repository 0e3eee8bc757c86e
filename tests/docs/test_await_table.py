"""The table of first steps says of every method of the async API whether it is awaited, as its annotation does."""

import inspect
import re
from pathlib import Path

from unibus.bus.api.message_bus import MessageBus

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "first-steps.md"
AWAITED = ("Awaitable", "Coroutine", "Pending")
GIVES_METHODS = {"entities", "dead_letter_queue"}
"""Their methods are awaited; the page says so below its table."""


def rows() -> dict[str, list[str]]:
    """The names of each row, by what is written before the call."""
    text = PAGE.read_text("utf-8").partition("## Which calls are awaited")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `?([a-z ]+?)`? \| (`?.+) \|$", text, re.MULTILINE)
    return {write: re.findall(r"`(\w+)`", calls) for write, calls in found}


def kind_of(name: str) -> str:
    """How a caller writes the call, by the method's annotation."""
    returned = str(inspect.get_annotations(getattr(MessageBus, name)).get("return", ""))
    if "AsyncIterator" in returned:
        return "async for"
    if name == "transaction":
        return "async with"
    return "await" if any(word in returned for word in AWAITED) else "nothing"


def test_the_table_names_each_method_under_what_its_annotation_says() -> None:
    methods = [
        name
        for name, found in inspect.getmembers(MessageBus)
        if not name.startswith("_") and not isinstance(found, property)
    ]
    expected: dict[str, set[str]] = {}
    for name in methods:
        if name not in GIVES_METHODS and callable(getattr(MessageBus, name)):
            expected.setdefault(kind_of(name), set()).add(name)
    listed = rows()
    assert set(listed["await"]) == expected["await"]
    assert set(listed["async for"]) == expected["async for"]
    assert set(listed["nothing"]) == expected["nothing"]
    assert "transaction" in listed["async with"]
