"""Events of history over HTTP: pages, the newest, and those that come, on a store in memory and in a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.endpoints.http.management.live_client import Live, until
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.bus.management.history import event_feed
from unibus.bus.management.history.event_feed import FOUND_MAX, EventFeed, EventFeedPage
from unibus.bus.management.history.events import EventFilter
from unibus.core.lifecycle.events import Event
from unibus.endpoints.http.management import events
from unibus.errors import StoreFailed
from unibus.testing import VirtualClock

LIVE = "/unibus/v1/events/live"


@pytest.fixture(params=["memory front", "sqlite front", "memory fastapi"])
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Live]:
    store, dispatcher = request.param.split()
    clock = VirtualClock()
    async with MessageBus("memory://" if store == "memory" else str(tmp_path / "a.db"), clock=clock) as bus:
        broker = Broker(bus)
        await broker.create("queue", "orders")
        await broker.create("queue", "other")
        yield Live(bus, broker, clock, dispatcher)


def feed_of(live: Live) -> EventFeed:
    return live.service.shared(events._feed)


async def seqs(live: Live, target: str) -> list[int]:
    answer = await live.ask(f"/unibus/v1/{target}")
    assert answer.status == 200, answer
    found = answer.json()
    assert isinstance(found, dict)
    return [each["seq"] for each in found["events"]]


# Pages and the newest


async def test_a_page_continues_after_the_former_one(live: Live) -> None:
    await live.send("orders", *range(5))
    first = (await live.ask("/unibus/v1/events?limit=4")).json()
    assert [each["kind"] for each in first["events"]] == ["declared", "declared", "sent", "sent"]  # type: ignore[index]
    assert first["next"] == first["events"][-1]["seq"]  # type: ignore[index]
    rest = (await live.ask(f"/unibus/v1/events?after={first['next']}")).json()  # type: ignore[index]
    assert [each["kind"] for each in rest["events"]] == ["sent"] * 3  # type: ignore[index]
    assert rest["next"] == rest["last"]  # type: ignore[index]


async def test_filters_by_channel_kind_and_field(live: Live) -> None:
    await live.send("orders", "a")
    await live.send("other", "b")
    await live.broker.receive("orders")
    all_of = await seqs(live, "events")
    assert len(await seqs(live, "events?channel=orders")) == 3
    assert len(await seqs(live, "events?channel=*")) == len(all_of)
    assert len(await seqs(live, "events?kind=sent&kind=delivered")) == 3
    assert len(await seqs(live, "events?where=channel=other&where=kind=sent")) == 1
    assert len(await seqs(live, "events/last?channel=orders&kind=sent")) == 1


@pytest.mark.parametrize("word", ["kind=sents", "where=colour=red", "where=x", "limit=0", "limit=x", "after=-1"])
async def test_what_could_never_match_is_refused_by_its_name(live: Live, word: str) -> None:
    answer = await live.ask(f"/unibus/v1/events?{word}")
    assert answer.status == 400
    assert answer.code() == "usage"


async def test_the_newest_in_order_however_long_history_is(live: Live) -> None:
    for _ in range(6):
        await live.send("orders", *range(500))
    await live.send("other", "x")
    await live.send("orders", *range(3))
    newest = await seqs(live, "events/last?count=3")
    everything = (await live.ask("/unibus/v1/events?limit=1")).json()["last"]  # type: ignore[index,call-overload]
    assert newest == [everything - 2, everything - 1, everything]
    assert await seqs(live, "events/last?count=2&channel=other") == [2, everything - 3]
    answer = (await live.ask("/unibus/v1/events/last?count=1000&channel=other")).json()
    assert answer["complete"] is True  # type: ignore[index,call-overload]


async def test_since_an_instant(live: Live) -> None:
    await live.send("orders", *range(20))
    await live.clock.advance_async(10)
    moment_ns = live.broker.now_ns()
    await live.send("orders", "late", "later")
    assert len(await seqs(live, f"events?since_ns={moment_ns}")) == 2
    assert len(await seqs(live, f"events/last?count=100&since_ns={moment_ns}")) == 2
    assert len(await seqs(live, f"events/last?count=100&since_ns={moment_ns + 10**9}")) == 0


# Live


async def test_what_comes_from_now_on(live: Live) -> None:
    await live.send("orders", "before")
    async with live.stream(LIVE) as stream:
        await stream_has_begun(live)
        await live.send("orders", "a", "b")
        found = await stream.take(2)
        assert [each.data["kind"] for each in found] == ["sent", "sent"]
        assert [each.id for each in found] == [str(each.data["seq"]) for each in found]
        await live.send("other", "c")
        assert (await stream.next()).data["channel"] == "other"


async def stream_has_begun(live: Live, tails: int = 1) -> None:
    """Until the tails know their place: what is sent after that comes."""
    await until(lambda: feed_of(live)._tails == tails)


async def test_a_client_resumes_after_its_last_event(live: Live) -> None:
    await live.send("orders", *range(4))
    async with live.stream(f"{LIVE}?after=3") as stream:
        assert [each.id for each in await stream.take(3)] == ["4", "5", "6"]
    async with live.stream(f"{LIVE}?after=0", {"Last-Event-ID": "5"}) as stream:
        assert (await stream.next()).id == "6"


@pytest.mark.parametrize("given", ["-1", "x", "9" * 19, "0" * 20 + "9" * 4_500, "1e3"])
async def test_a_place_that_is_none(live: Live, given: str) -> None:
    assert (await live.ask(LIVE, {"Last-Event-ID": given})).status == 400


async def test_a_filter_of_a_tail(live: Live) -> None:
    async with live.stream(f"{LIVE}?after=0&channel=other&kind=sent") as stream:
        await live.send("orders", "a")
        await live.send("other", "b")
        assert (await stream.next()).data["channel"] == "other"


async def test_many_tails_share_one_reading(live: Live) -> None:
    await live.send("orders", "a")
    async with live.stream(LIVE) as first, live.stream(LIVE) as second:
        await stream_has_begun(live, 2)
        feed = feed_of(live)
        await live.send("orders", "b")
        assert (await first.next()).id == (await second.next()).id
        page = feed._pages[-1]
        assert len(page._found) == 1  # Joined once, for both.
    assert feed._reading is None  # Nothing is read for none.
    assert not feed._pages


def test_a_page_does_not_grow_with_the_filters_of_its_tails() -> None:
    found = [Event(at, 0, "q", "orders", "sent", at) for at in range(1, 4)]
    page = EventFeedPage(0, 3, found, [b"%d" % event.seq for event in found])
    for number in range(300):
        assert page.pieces_for(EventFilter("ord*", where=[f"session_id=s{number}"]), 0) == []
        assert page.pieces_for(EventFilter("*"), 0) == [b"123"]
    assert len(page._found) == FOUND_MAX


@pytest.mark.parametrize("live", ["memory front"], indirect=True)  # A file keeps history for days.
async def test_history_that_is_gone_is_counted(live: Live) -> None:
    journal = live.broker.store._journal  # type: ignore[attr-defined]
    journal._changes_max, journal._full_seq = 640, 0
    for _ in range(10):
        await live.send("orders", *range(100))
    oldest = journal.oldest
    assert oldest > 100
    async with live.stream(f"{LIVE}?after=5") as stream:
        missed = await stream.next()
        assert (missed.name, missed.data) == ("missed", {"missed": oldest - 6, "after": oldest - 1})
        assert (await stream.next()).id == str(oldest)


async def test_a_place_that_does_not_exist_begins_now(live: Live) -> None:
    async with live.stream(f"{LIVE}?after=1000000") as stream:
        assert (await stream.next()).name == "missed"
        await live.send("orders", "a")
        assert (await stream.next()).data["kind"] == "sent"


async def test_a_tail_that_is_behind_the_ring_reads_history(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "RING_EVENTS_MAX", 10)
    async with live.stream(LIVE) as quick:
        await stream_has_begun(live)
        for _ in range(4):
            await live.send("orders", *range(10))
        found = [int(each.id) for each in await quick.take(40)]
        assert found == list(range(found[0], found[0] + 40))
        async with live.stream(f"{LIVE}?after={found[0]}") as late:
            assert [int(each.id) for each in await late.take(39)] == found[1:]


async def test_a_store_that_fails_ends_the_tails(live: Live) -> None:
    async with live.stream(LIVE) as stream:
        await stream_has_begun(live)
        live.broker.store._committer.fail(StoreFailed("the disk is gone"))  # type: ignore[attr-defined]
        await stream.ended()
    assert [type(each) for each in live.server.reported] == [StoreFailed]


async def test_a_server_that_stops_ends_the_tails(live: Live) -> None:
    async with live.stream(LIVE) as stream:
        live.server.interrupted.set()
        await stream.ended()


async def test_a_comment_keeps_a_quiet_connection(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_S", 0.01)
    async with live.stream(LIVE) as stream:
        await until(lambda: stream.comments >= 2)
