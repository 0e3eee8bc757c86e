"""GET dead-letters and dead-letters/groups: the records of `unibus dlq`, by pages."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from tests.unit.endpoints.http.management.bulk import QUEUE, Operators, operators
from unibus.bus.management.jobs import dead_letters
from unibus.bus.management.jobs.dead_letters import DeadLetterPage, FilterRecord, key_of
from unibus.errors import UsageError


@pytest.fixture(params=["front-memory", "front-sqlite", "fastapi-memory"])
async def http(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Operators]:
    dispatcher, store = request.param.split("-")
    async with operators(dispatcher, "memory://" if store == "memory" else f"sqlite:///{folder}/bus.db") as found:
        yield found


async def pages(http: Operators, query: str) -> list[DeadLetterPage]:
    found: list[DeadLetterPage] = []
    after = ""
    while not found or found[-1].next is not None:
        answer = await http.ask("GET", f"dead-letters?{query}{after}")
        assert answer.status == 200, answer
        found.append(msgspec.json.decode(answer.body, type=DeadLetterPage))
        after = f"&after={quote(found[-1].next or '')}"
    return found


async def test_pages_go_by_key_in_the_order_of_the_deaths(http: Operators) -> None:
    await http.bus.create_queue("billing")
    wanted = await http.dead_letter(3)
    await http.clock.advance_async(1)
    wanted += await http.dead_letter(3, queue="billing")
    await http.clock.advance_async(1)
    wanted += await http.dead_letter(1)
    found = await pages(http, "top=2")
    assert [[item.id for item in page.items] for page in found] == [wanted[:2], wanted[2:4], wanted[4:6], wanted[6:]]
    listed = await http.bus.dead_letter_queue().list_messages()
    assert [each.id for each in listed] == wanted


async def test_a_page_goes_on_where_its_last_message_was_although_that_is_gone(http: Operators) -> None:
    ids = await http.dead_letter(4)
    (first, *_) = await pages(http, "top=2")
    await http.bus.dead_letter_queue().discard_message(ids[1])
    rest = await http.get(f"dead-letters?top=2&after={quote(str(first.next))}")
    assert [item["id"] for item in rest["items"]] == ids[2:]
    assert rest["next"] is None


async def test_a_record_has_what_dlq_ls_prints_and_a_body_only_where_it_is_asked_for(http: Operators) -> None:
    (message_id,) = await http.dead_letter(1)
    (letter,) = await http.bus.dead_letter_queue().list_messages()
    (page,) = await pages(http, "")
    (item,) = page.items
    assert (item.id, item.entity, item.sequence, item.source) == (message_id, letter.entity, letter.sequence, QUEUE)
    assert (item.reason, item.description, item.last_error) == ("Broken", "by hand", "by hand")
    assert (item.died_ns, item.attempts, item.recoveries) == (letter.failure_ns, 1, 0)
    assert (item.state, item.session_id, item.size) == ("active", None, letter.size)
    assert bytes(item.message) == b"null"
    with pytest.raises(UsageError, match="was not requested"):
        item.original()
    (page,) = await pages(http, "bodies=1")
    original = page.items[0].original()
    assert (original.id, original.body, original.headers) == (message_id, {"number": 0}, letter.original.headers)


async def test_every_part_of_a_filter_is_a_parameter(http: Operators) -> None:
    first = await http.dead_letter(2, "Poison")
    await http.clock.advance_async(100)
    second = await http.dead_letter(1, "Timeout")

    async def ids(query: str) -> list[str]:
        return [item.id for page in await pages(http, query) for item in page.items]

    assert await ids("reason=pois") == first
    assert await ids("older_than=50") == first
    assert await ids("newer_than=50.5") == second
    assert await ids(f"id={first[0]}&id={second[0]}") == [first[0], second[0]]
    assert await ids("queue=ord*&source=ORDERS&description=hand&error=hand") == first + second
    assert await ids("queue=other") == []
    assert await ids("attempts_from=2") == [] == await ids("recoveries_from=1")
    assert await ids("attempts_below=2&recoveries_below=1") == first + second


@pytest.mark.parametrize(
    "query",
    [
        "top=0",
        "top=1001",
        "top=x",
        "after=x",
        "after=1:2",
        "bodies=2",
        "older_than=-1",
        "older_than=1h",
        "attempts_from=x",
    ],
)
async def test_a_parameter_that_is_none_of_its_kind_is_refused_by_name(http: Operators, query: str) -> None:
    answer = await http.ask("GET", f"dead-letters?{query}")
    assert (answer.status, answer.code()) == (400, "usage")
    assert query.partition("=")[0] in answer.body.decode()


async def test_a_page_is_bounded_in_bytes_and_has_one_message_at_least(
    http: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await http.dead_letter(5)
    monkeypatch.setattr("unibus.endpoints.http.management.dead_letters.ANSWER_BYTES_MAX", 2_500)
    found = await pages(http, "")
    assert [len(page.items) for page in found] == [2, 2, 1]
    monkeypatch.setattr("unibus.endpoints.http.management.dead_letters.ANSWER_BYTES_MAX", 1)
    found = await pages(http, "bodies=1")
    assert [item.id for page in found for item in page.items] == ids


async def test_groups_count_by_queue_and_reason(http: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    await http.bus.create_queue("billing")
    await http.dead_letter(2, "Poison")
    oldest_ns = http.broker.now_ns()
    await http.clock.advance_async(1)
    await http.dead_letter(3, "Timeout")
    await http.dead_letter(1, "Poison", "billing")
    found = await http.get("dead-letters/groups")
    counted = [(group["entity"].partition("/")[0], group["reason"], group["count"]) for group in found["groups"]]
    assert counted == [("billing", "Poison", 1), ("orders", "Timeout", 3), ("orders", "Poison", 2)]
    assert found["groups"][2]["oldest_ns"] == oldest_ns
    assert (found["total"], found["left_off"]) == (6, 0)
    assert (await http.get("dead-letters/groups?reason=poison&queue=orders"))["total"] == 2
    monkeypatch.setattr(dead_letters, "GROUPS_MAX", 1)
    found = await http.get("dead-letters/groups")
    assert (len(found["groups"]), found["total"], found["left_off"]) == (1, 6, 2)


def test_a_key_is_read_as_it_was_written() -> None:
    key = dead_letters.DeadLetterKey(17, "a:b/$DeadLetterQueue", 3)
    assert key_of(key.text()) == key


def test_a_filter_with_a_function_cannot_be_sent() -> None:
    from datetime import timedelta

    from unibus.bus.dead_letters.filters import DeadLetterFilter

    with pytest.raises(UsageError, match="where"):
        FilterRecord.of(DeadLetterFilter(where=lambda message: True))
    made = FilterRecord.of(DeadLetterFilter(queue="q", older_than=timedelta(seconds=90), ids=("a",)))
    assert made == FilterRecord(queue="q", older_than=90.0, ids=("a",))
    assert made.as_filter() == DeadLetterFilter(queue="q", older_than=90.0, ids=("a",))
