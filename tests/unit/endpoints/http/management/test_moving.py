"""Messages that wait are moved and removed by hand: all of a call or none, and never one that a receiver has."""

import pytest

from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.management.messages import moving
from unibus.core.access.rights import Right
from unibus.core.lifecycle.envelope import message_of
from unibus.errors import DecodeError, EntityNotFound, Forbidden, MessageNotFound, SessionRequired, UsageError


async def filled(api: Api, count: int = 4) -> None:
    await api.broker.create("queue", "other", {})
    for at in range(count):
        await api.bus.send("q", at, headers={"h": at})


async def test_messages_are_moved_by_sequence(api: Api) -> None:
    await filled(api)
    answer = await api.post("messages/move?entity=Q", {"to": "Other", "sequences": [2, 3, 3]})
    assert answer == {"moved": 2, "left": 2}
    assert [(each.body, each.headers["h"]) for each in await api.bus.peek("other", 9)] == [(1, 1), (2, 2)]
    assert [each.body for each in await api.bus.peek("q", 9)] == [0, 3]
    assert (Right.MANAGE, "Other") in api.authorization.asked


async def test_without_sequences_the_first_that_wait_are_moved(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "PAGE_MAX", 2)
    await filled(api, 5)
    await api.broker.receive("q")
    await api.bus.send("q", "later", delay=60)
    assert await api.post("messages/move?entity=q", {"to": "other"}) == {"moved": 2, "left": 2}
    assert await api.post("messages/move?entity=q", {"to": "other"}) == {"moved": 2, "left": 0}
    assert await api.post("messages/move?entity=q", {"to": "other"}) == {"moved": 0, "left": 0}
    assert await api.counts("q") == (0, 1, 1, 0, 0)


async def test_one_that_is_locked_or_gone_keeps_all_of_them(api: Api) -> None:
    await filled(api)
    await api.broker.receive("q")
    for path, others in (("move", {"to": "other"}), ("remove", {})):
        for missing in (1, 99):
            given = {"sequences": [2, missing], **others}
            found = await api.error("POST", f"messages/{path}?entity=q", given)
            assert same_error(found, MessageNotFound, 404)
    assert await api.counts("q") == (3, 1, 0, 0, 0)
    assert await api.counts("other") == (0, 0, 0, 0, 0)


async def test_a_dead_lettered_message_leaves_its_record_behind(api: Api) -> None:
    await filled(api, 1)
    (claimed,) = await api.broker.receive("q")
    await api.broker.settle("dead_letter", claimed.token, reason="why")
    given = {"to": "other", "sequences": [1]}
    assert (await api.post("messages/move?entity=q/$deadletterqueue", given))["moved"] == 1
    (moved,) = await api.broker.peek("other", 0, 1)
    headers = message_of(moved).headers
    assert "DeadLetterReason" not in headers
    assert headers["h"] == 0


async def test_a_time_to_live_goes_on(api: Api) -> None:
    await api.broker.create("queue", "other", {})
    await api.bus.send("q", 1, ttl=60)
    await api.clock.advance_async(20)
    await api.post("messages/move?entity=q", {"to": "other"})
    (moved,) = await api.broker.peek("other", 0, 1)
    assert moved.expires_ns == api.broker.now_ns() + 40_000_000_000


async def test_messages_are_removed_by_sequence(api: Api) -> None:
    await filled(api)
    assert await api.post("messages/remove?entity=q", {"sequences": [1, 4, 4], "reason": "test"}) == {"removed": 2}
    assert [each.body for each in await api.bus.peek("q", 9)] == [1, 2]
    events, _ = api.broker.store.history.events_after(0, 1_000, ("purged",))
    assert [event.reason for event in events] == ["test", "test"]


async def test_targets_that_cannot_be(api: Api) -> None:
    await filled(api)
    await api.broker.create("queue", "sessions", {"requires_session": True})
    given = {"sequences": [1]}
    for to, error, status in (
        ("none", EntityNotFound, 404),
        ("Q", UsageError, 400),
        ("sessions", SessionRequired, 400),
    ):
        found = await api.error("POST", "messages/move?entity=q", {**given, "to": to})
        assert same_error(found, error, status), to
    api.authorization.refused.add((Right.MANAGE, "other"))
    assert same_error(await api.error("POST", "messages/move?entity=q", {**given, "to": "other"}), Forbidden, 403)
    assert same_error(await api.error("POST", "messages/move?entity=none", {"to": "q"}), EntityNotFound, 404)
    assert same_error(await api.error("POST", "messages/remove?entity=none", given), EntityNotFound, 404)
    assert await api.counts("q") == (4, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("move", {}), ("move", {"to": ""}), ("move", {"to": "other", "sequences": []})),
        *(("move", {"to": "other", "sequences": [-1]}), ("move", {"to": "other", "sequences": [2**63]})),
        *(("move", {"to": "other", "more": 1}), ("remove", {}), ("remove", {"sequences": None})),
        *(("remove", {"sequences": list(range(1_001))}), ("remove", {"sequences": [1.5]})),
        ("remove", {"sequences": [1], "reason": 1}),
    ],
    ids=str,
)
async def test_what_cannot_be_read_is_refused(api: Api, path: str, body: object) -> None:
    assert same_error(await api.error("POST", f"messages/{path}?entity=q", body), DecodeError, 400)


async def test_what_is_audited_of_changes_of_many_messages(api: Api) -> None:
    await api.broker.create("queue", "other", {})
    await api.post("messages/send?entity=q", {"messages": [{"body": 1}]})
    await api.post("messages/move?entity=q", {"to": "other"})
    await api.post("replay/send", {"from": "q", "to": "other"})
    assert api.observer.changes[1:] == [
        ("move_messages", "q", "to other"),
        ("send_replay", "other", "from q"),
    ]
