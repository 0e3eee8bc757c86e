"""Entities over HTTP: pages by name, what each caller may see, and changes as they happen."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.endpoints.http.management.live_client import ROOT, Live, Stream, until
from tests.unit.endpoints.http.namespace import LOOPBACK, rule
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.bus.management.settings import entities as records
from unibus.bus.management.settings.entities import Changes, EntityWatch
from unibus.core.access.rules import rules_text
from unibus.errors import StoreFailed
from unibus.testing import VirtualClock

PATH = "/unibus/v1/entities"
OWN = rule("own", ["Listen"], 5)
NAMES = ["Apple", "banana", "cherry", "cherry/eu", "news", "news/Subscriptions/a", "news/Subscriptions/b"]


@pytest.fixture(params=["front", "fastapi"])
async def live(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    monkeypatch.setattr(records, "EVERY_S", 0.01)
    clock = VirtualClock()
    async with MessageBus("memory://", clock=clock) as bus:
        broker = Broker(bus)
        for name in ("cherry/eu", "banana", "Apple"):
            await broker.create("queue", name)
        await broker.create("queue", "cherry", {"authorization_rules": rules_text([OWN])})
        await broker.create("topic", "news")
        for name in ("b", "a"):
            await broker.create("subscription", f"news/Subscriptions/{name}")
        yield Live(bus, broker, clock, request.param)


async def names(live: Live, query: str, authorization: str | None = None) -> tuple[list[str], Any]:
    answer = await live.ask(f"{PATH}?{query}", authorization=authorization)
    assert answer.status == 200, answer
    found: Any = answer.json()
    return [each["name"] for each in found["entities"]], found["next"]


# Pages


async def test_by_name_whatever_the_kind(live: Live) -> None:
    assert await names(live, "") == (NAMES, None)
    assert await names(live, "kind=topic&kind=queue") == (["Apple", "banana", "cherry", "cherry/eu", "news"], None)
    assert (await live.ask(f"{PATH}?kind=table")).code() == "usage"


@pytest.mark.parametrize("top", [1, 2, 3, 7, 100])
async def test_pages_give_each_once(live: Live, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PAGE", 2)
    found: list[str] = []
    after: Any = ""
    while after is not None:
        page, after = await names(live, f"top={top}&after={after}")
        found += page
    assert found == NAMES


async def test_a_prefix_in_any_case(live: Live) -> None:
    assert await names(live, "prefix=CHER") == (["cherry", "cherry/eu"], None)
    assert await names(live, "prefix=cherry&after=cherry") == (["cherry/eu"], None)
    assert await names(live, "prefix=zebra") == ([], None)
    assert await names(live, "prefix=a") == (["Apple"], None)


async def test_counts_and_settings_without_keys(live: Live) -> None:
    await live.send("banana", 1, 2, 3)
    await live.broker.receive("banana")
    answer: Any = (await live.ask(f"{PATH}?settings=1")).json()
    by_name = {each["name"]: each for each in answer["entities"]}
    banana = by_name["banana"]
    assert (banana["active"], banana["locked"], banana["sent"], banana["delivered"]) == (2, 1, 3, 1)
    assert banana["oldest_ns"] > 0
    assert banana["settings"]["max_delivery_count"] == 10
    assert by_name["cherry"]["settings"]["authorization_rules"] == "***"
    plain: Any = (await live.ask(PATH)).json()
    assert all("settings" not in each for each in plain["entities"])


async def test_dead_letter_queues_where_they_are_asked_for(live: Live) -> None:
    await live.send("banana", 1)
    claimed = (await live.broker.receive("banana"))[0]
    await live.broker.settle("dead_letter", claimed.token, entity="banana")
    assert await names(live, "kind=dead-letter%20queue") == (["banana/$DeadLetterQueue"], None)
    assert "banana/$DeadLetterQueue" not in (await names(live, ""))[0]


async def test_a_caller_sees_what_it_has_a_right_on(live: Live) -> None:
    assert await names(live, "", live.token(OWN, "cherry")) == (["cherry"], None)
    assert await names(live, "", live.token(ROOT, "cherry")) == (["cherry", "cherry/eu"], None)
    assert await names(live, "top=1", live.token(ROOT, "news")) == (["news"], "news")
    assert await names(live, "", live.token(ROOT, "nowhere")) == ([], None)
    sender = rule("sender", ["Send"], 6)
    live.use(authorization_rules=(ROOT, sender))
    assert (await live.ask(PATH, authorization=live.token(sender))).status == 403
    assert (await live.ask(PATH, authorization="")).status == 401


async def test_a_browser_is_asked_for_its_key(live: Live) -> None:
    answer = await live.ask(PATH, authorization="")
    assert answer.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:5300", 200), ("127.0.0.1", 200), ("[::1]:5300", 200), ("bus.localhost", 200)),
        *(("evil.example:5300", 401), ("127.0.0.1.evil.example", 401), ("", 401), ("10.0.0.1", 401)),
    ],
)
async def test_open_to_this_machine_by_its_own_name_only(live: Live, host: str, status: int) -> None:
    """A name that was made to lead here (DNS rebinding) is the name of another site, whose scripts could read this."""
    live.use()
    answer = await live.ask(PATH, {"host": host}, peer=LOOPBACK, authorization="")
    assert answer.status == status
    assert (await live.ask(PATH, {"host": host}, authorization="")).status == 401


# Live


async def snapshot(stream: Stream) -> dict[str, Any]:
    first = await stream.next()
    assert first.name == "snapshot"
    return {row["name"]: row for row in first.data["rows"]}


async def test_everything_first_and_then_what_changed(live: Live) -> None:
    async with live.stream(f"{PATH}/live") as stream:
        rows = await snapshot(stream)
        assert sorted(rows, key=str.casefold) == NAMES
        assert rows["banana"]["in_per_s"] is None
        await live.send("banana", 1, 2, 3)
        while True:
            found = await stream.next()
            assert found.name == "changes"
            row = next((each for each in found.data["rows"] if each["name"] == "banana"), None)
            if row is not None and row["active"] == 3:
                break
        assert row["in_per_s"] > 0
        while row["in_per_s"]:  # And when it is over, its rate is 0 again.
            row = next(each for each in (await stream.next()).data["rows"] if each["name"] == "banana")
        await live.broker.delete("banana")
        while not (removed := (await stream.next()).data["removed"]):
            pass
        assert removed == ["banana"]


async def test_all_clients_share_one_reading_and_none_runs_without_a_client(live: Live) -> None:
    watch = live.service.shared(EntityWatch)
    async with live.stream(f"{PATH}/live") as first, live.stream(f"{PATH}/live") as second:
        await snapshot(first)
        await snapshot(second)
        readings = watch.readings
        await until(lambda: watch.readings > readings + 2)
    assert watch._reading is None
    assert watch.rows == {}


async def test_each_sees_its_own(live: Live) -> None:
    async with live.stream(f"{PATH}/live", authorization=live.token(OWN, "cherry")) as stream:
        assert list(await snapshot(stream)) == ["cherry"]
        await live.send("banana", 1)
        await live.send("cherry", 1)
        found = await stream.next()
        assert {row["name"] for row in found.data["rows"]} == {"cherry"}


async def test_a_store_that_fails_ends_it(live: Live) -> None:
    async with live.stream(f"{PATH}/live") as stream:
        await snapshot(stream)
        live.broker.store._committer.fail(StoreFailed("the disk is gone"))  # type: ignore[attr-defined]
        while not stream.is_ended:
            await stream._events.get()


def test_changes_of_several_readings_become_one() -> None:
    watch = EntityWatch.__new__(EntityWatch)
    watch.__dict__.update(version=4, rows={}, _batches=[])
    watch._batches += [
        Changes(2, {"a": b"1", "b": b"1"}, frozenset({"c"})),
        Changes(3, {"c": b"2"}, frozenset({"b"})),
        Changes(4, {"a": b"3"}, frozenset()),
    ]
    found = watch.changes_since(1)
    assert found is not None
    assert (found.rows, found.removed) == ({"a": b"3", "c": b"2"}, {"b"})
    assert watch.changes_since(4) == Changes(4, {}, frozenset())
    assert watch.changes_since(0) is None  # Too long ago: everything again.
