"""The page "Write a store": its journal is the one that passes the contract, and its tables name every method."""

import re
from pathlib import Path

import pytest

from tests.docs.snippets import blocks
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.history import EventHistory, History
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import Store
from unibus.stores.seam.store_files import StoreFiles
from unibus.stores.seam.store_view import StoreView

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/write-a-store.md").read_text("utf-8")
JOURNAL = (ROOT / "tests/contract/dictionary_journal.py").read_text("utf-8")
CODE_LINES_MAX = 80
ATTRIBUTES = {Journal: {"oldest", "last", "size_bytes", "is_quick"}}


def test_its_journal_is_the_one_that_is_tested() -> None:
    assert next(block.code for block in blocks(PAGE) if block.language == "python") == JOURNAL.splitlines()


def test_its_journal_is_small() -> None:
    lines = [line.strip() for line in JOURNAL.splitlines()]
    assert len([line for line in lines if line and not line.startswith(("#", '"""'))]) <= CODE_LINES_MAX


PROTOCOLS = [Journal, Store, EventHistory, History, Catalog, StoreView, StoreFiles]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.__name__)
def test_its_tables_name_every_method(protocol: type) -> None:
    section = PAGE.partition(f"\n### {protocol.__name__}\n")[2].partition("\n### ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    methods = {name for name, value in vars(protocol).items() if callable(value) or isinstance(value, property)}
    public = {name for name in methods if not name.startswith("_")} - ATTRIBUTES.get(protocol, set())
    assert sorted(named) == sorted(public)
