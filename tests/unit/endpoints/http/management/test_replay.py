"""Replay over the API: the messages of a replay in process, page by page, and each sent again once."""

import pytest

from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.management.messages import replaying
from unibus.bus.management.messages.replaying import Replays
from unibus.errors import DecodeError, EntityNotFound, SessionRequired, UsageError
from unibus.stores.seam import replay_index


async def stored(api: Api, count: int) -> None:
    """Some are gone from the queue, and one is scheduled."""
    for at in range(count):
        await api.bus.send("q", at)
    for claimed in await api.broker.receive("q", count // 2):
        await api.broker.settle("complete", claimed.token)
    await api.bus.send("q", "later", delay=60)


async def pages(api: Api, query: str, top: int) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    after: int | None = 0
    while after is not None:
        page = await api.get(f"replay?{query}&top={top}&after={after}")
        found += [(each["sequence"], each["document"]["body"]) for each in page["messages"]]
        after = page["next"]
    return found


@pytest.mark.parametrize("top", [1, 3, 10, 1_000])
async def test_pages_together_are_the_replay_in_process(api: Api, top: int) -> None:
    await stored(api, 10)
    local = [(message.sequence, message.body) async for message in api.bus.replay("q")]
    assert len(local) == 10
    assert await pages(api, "entity=Q", top) == local
    assert (await api.get("replay/count?entity=q"))["count"] == 10
    assert (await api.get("replay/count?entity=q&after=7"))["count"] == 3


async def test_since_an_instant(api: Api) -> None:
    await stored(api, 4)
    await api.clock.advance_async(10)
    since_ns = api.broker.now_ns()
    await api.bus.send("q", "new")
    assert [body for _, body in await pages(api, f"entity=q&since_ns={since_ns}", 100)] == ["new"]


async def test_all_pages_together_read_the_log_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await stored(api, 50)
    read = []
    see = api.broker.store.history.some_after  # type: ignore[attr-defined]
    history = type(api.broker.store.history)
    monkeypatch.setattr(history, "some_after", lambda self, seq: read.append(found := see(seq)) or found)
    assert len(await pages(api, "entity=q", 5)) == 50
    log = api.broker.store.health().last_seq
    assert sum(len(changes) for changes in read) <= log + 1


async def test_what_comes_and_what_is_forgotten_between_two_pages(api: Api) -> None:
    await stored(api, 6)
    first = await api.get("replay?entity=q&top=2")
    await api.bus.send("q", "new")
    await api.bus.prune_before(5, channel="q")
    rest = await api.get(f"replay?entity=q&after={first['next']}")
    assert [each["document"]["body"] for each in rest["messages"]] == [4, 5, "new"]


async def test_a_page_ends_with_the_message_that_fills_the_answer(api: Api) -> None:
    api.broker.answer_bytes_max = 2_000
    for _ in range(5):
        await api.bus.send("q", "x" * 1_500)
    page = await api.get("replay?entity=q")
    assert ([each["sequence"] for each in page["messages"]], page["next"]) == ([1, 2], 2)
    assert len(await pages(api, "entity=q", 100)) == 5


async def test_an_entity_that_was_created_again_has_no_past(api: Api) -> None:
    await stored(api, 4)
    assert (await api.get("replay/count?entity=q"))["count"] == 4
    await api.broker.delete("q")
    assert same_error(await api.error("GET", "replay?entity=q"), EntityNotFound, 404)
    await api.broker.create("queue", "q", {})
    assert (await api.get("replay?entity=q")) == {"messages": [], "next": None}


async def test_indexes_are_few_and_are_forgotten(api: Api) -> None:
    now_s = [0.0]
    replays = Replays(api.broker, lambda: now_s[0])
    await stored(api, 3)
    for name in ("a", "b", "c"):
        await api.broker.create("queue", name, {})
        await replays.count(name, 0, 0)
    assert len(replays) == replaying.KEPT_MAX
    now_s[0] = replaying.KEPT_S - 1
    await replays.count("q", 0, 0)
    now_s[0] = replaying.KEPT_S + 1
    replays.expire()
    assert len(replays) == 1


def test_the_first_read_is_of_one_message_and_the_next_of_as_many_as_fit() -> None:
    assert replay_index._step(0, 0, 1_000) == 1
    assert replay_index._step(100, 1, 1_000) == 9
    assert replay_index._step(100, 100, 1_000_000) == replay_index.READ_MAX
    assert replay_index._step(999, 1, 1_000) == 1


# Sending again


async def test_all_is_sent_again_batch_by_batch(api: Api) -> None:
    await stored(api, 10)
    await api.broker.create("queue", "copy", {})
    after, done, sent = 0, False, 0
    while not done:
        answer = await api.post("replay/send", {"from": "q", "to": "Copy", "after": after, "count": 3})
        after, done, sent = answer["last_sequence"], answer["done"], sent + answer["sent"]
    assert sent == 10
    assert [message.body for message in await api.bus.peek("copy", 100)] == list(range(10))
    first = [message.id for message in await api.bus.peek("copy", 1)]
    assert first == [message.id async for message in api.bus.replay("q")][:1]


async def test_a_call_that_is_made_again_sends_no_duplicate_where_these_are_detected(api: Api) -> None:
    await stored(api, 4)
    await api.broker.create("queue", "copy", {"duplicate_detection": True})
    given = {"from": "q", "to": "copy"}
    assert (await api.post("replay/send", given))["duplicates"] == 0
    again = await api.post("replay/send", given)
    assert (again["sent"], again["duplicates"], again["done"]) == (4, 4, True)
    assert (await api.counts("copy"))[0] == 4


async def test_one_that_cannot_be_sent_keeps_its_batch(api: Api) -> None:
    await stored(api, 4)
    await api.broker.create("queue", "sessions", {"requires_session": True})
    given = {"from": "q", "to": "sessions"}
    assert same_error(await api.error("POST", "replay/send", given), SessionRequired, 400)
    assert same_error(await api.error("POST", "replay/send", {**given, "to": "none"}), EntityNotFound, 404)
    assert same_error(await api.error("POST", "replay/send", {**given, "from": "none"}), EntityNotFound, 404)


async def test_nothing_left_to_send(api: Api) -> None:
    await stored(api, 2)
    await api.broker.create("queue", "copy", {})
    answer = await api.post("replay/send", {"from": "q", "to": "copy", "after": 100})
    assert answer == {"sent": 0, "duplicates": 0, "last_sequence": 100, "done": True}


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"from": "q"}, {"from": "", "to": "q"}, {"from": "q", "to": "q", "after": -1}),
        *({"from": "q", "to": "q", "count": 0}, {"from": "q", "to": "q", "count": 1_001}),
        *({"from": "q", "to": "q", "since_ns": 2**63}, {"from": "q", "to": "q", "more": 1}),
    ],
)
async def test_what_cannot_be_read_is_refused(api: Api, body: object) -> None:
    assert same_error(await api.error("POST", "replay/send", body), DecodeError, 400)


@pytest.mark.parametrize("query", ["", "entity=", "entity=q&after=-1", "entity=q&since_ns=x", "entity=q&top=0"])
async def test_a_query_that_cannot_be_read_is_refused(api: Api, query: str) -> None:
    assert same_error(await api.error("GET", f"replay?{query}"), UsageError, 400)
