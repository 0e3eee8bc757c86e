"""From a URL to a store: paths, options, schemes of other packages, and what is rejected."""

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import pytest

from unibus.clock import SYSTEM_CLOCK, Clock, Timers
from unibus.errors import BusError, ConfigInvalid, StoreBusy, StoreUnavailable, UsageError
from unibus.stores import opening, schemes
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.store import Store
from unibus.sync import MessageBus


class NoTimers:
    """Nothing is scheduled in these tests."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Never."""

    def stop(self) -> None:
        """There is nothing to stop."""


def opened(url: str) -> Store:
    return opening.open_store(url, SYSTEM_CLOCK, NoTimers())


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "memory",
        "in_memory://",
        "in_memory",
        "inmemory",
    ],
)
def test_memory(url: str) -> None:
    store = opened(url)
    assert (store.url, store.durability) == ("memory://", Durability.D0)
    store.close()


def test_three_slashes_are_from_here_and_four_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened("sqlite:///here.db").close()
    opened(f"sqlite:///{tmp_path}/there.db").close()
    opened("sqlite:///sp%20ace%3F.db").close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"here.db", "there.db", "sp ace?.db"}


def test_a_folder_of_json_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = opened("jsonfile:///here")
    assert store.durability == Durability.D2
    store.close()
    opened(f"jsonfile:///{tmp_path}/there/").close()
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there"}
    with MessageBus("jsonfile:///here") as bus:
        assert bus.send("orders", {"id": 1}).durability == "D2"
    with MessageBus("jsonfile:///here") as bus:
        assert [message.body for message in bus.receive_batch("orders", 10, timeout=0)] == [{"id": 1}]


SCHEMES = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])


@SCHEMES
def test_the_options_of_a_url(tmp_path: Path, scheme: str) -> None:
    store = opened(
        f"{scheme}:///{tmp_path}/bus.db?durability=d1&memory_budget_mb=1.5&history_age=60&history_bytes=1e6&domain=north"
    )
    assert store.durability == Durability.D1
    assert isinstance(store, EmbeddedStore)
    store.close()
    bus = MessageBus(f"{scheme}:///{tmp_path}/bus.db?durability=D1&domain=north")
    assert bus.send("q", 1).durability == "D1"
    assert bus.events_after(0)[0][0].domain == "north"
    assert bus.health_check().store.durability == "D1"  # type: ignore[union-attr]
    bus.close()


@SCHEMES
@pytest.mark.parametrize(
    "query",
    [
        "nonsense=1",
        "Durability=D1",
        "durability=D9",
        "durability=D3",
        "durability=",
        "memory_budget_mb=-1",
        "memory_budget_mb=nan",
        "memory_budget_mb=much",
        "history_age=inf",
        "history_bytes=",
    ],
)
def test_a_wrong_option_is_said_and_leaves_the_file_free(tmp_path: Path, query: str, scheme: str) -> None:
    with pytest.raises(UsageError):
        opened(f"{scheme}:///{tmp_path}/bus.db?{query}")
    opened(f"{scheme}:///{tmp_path}/bus.db").close()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://host/bus.db",
        "sqlite:bus.db",
        "jsonfile://",
        "jsonfile:///",
        "jsonfile://host/folder",
    ],
)
def test_a_url_without_a_file_is_said(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        opened(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", schemes.PLANNED)
def test_what_is_not_built_yet_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(StoreUnavailable, match=scheme) as caught:
        opened(f"{scheme}://localhost/x")
    assert "sqlite" in caught.value.hint


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="carrier-pigeon") as caught:
        opened("carrier-pigeon://loft")
    for row in schemes.STORE_SCHEMES:
        assert f"{row.example} ({row.description})" in caught.value.hint
    assert isinstance(caught.value, BusError)


class Points(list[importlib.metadata.EntryPoint]):
    """The installed entry points of this test."""

    def __call__(self, *, group: str) -> "Points":
        return Points(point for point in self if point.group == group)


def open_mine(url: str, clock: Clock, timers: Timers) -> Store:
    """The opener of a store of another package."""
    store = EmbeddedStore(MemoryJournal(), clock, timers)
    store.url = url
    return store


def test_another_package_may_bring_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", f"{__name__}:open_mine", schemes.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", Points([point]))
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: open_mine)
    bus = MessageBus("mine://somewhere?x=1")
    bus.create_channel("c", persistent=True)
    assert bus.send("q", 1).sequence == 1
    assert bus.health_check().store.url == "mine://somewhere?x=1"  # type: ignore[union-attr]
    bus.close()
    with pytest.raises(UsageError) as caught:
        opened("other://x")
    assert "mine" in caught.value.hint


def test_of_two_packages_with_one_scheme_the_first_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [importlib.metadata.EntryPoint("mine", f"package:{name}", schemes.GROUP) for name in ("first", "second")]
    monkeypatch.setattr(importlib.metadata, "entry_points", Points(points))
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: self.value)
    assert schemes.installed_openers()["mine"]() == "package:first"


@SCHEMES
def test_a_file_has_one_owner_until_it_is_closed(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:///{tmp_path}/bus.db"
    store = opened(url)
    with pytest.raises(StoreBusy):
        opened(url)
    store.close()
    store.close()
    opened(url).close()


def test_numbers_are_numbers() -> None:
    with pytest.raises(ConfigInvalid):
        opening._number({"a": "1e18"}, "a", 5)
    assert opening._number({"a": "0"}, "a", 5) == 0
    assert opening._number({}, "a", 5) == 5
