"""Rules through the bus: each message is evaluated by one version of them, and they outlive the bus that created them.

The two rules of a version divide all messages between them, and another version divides them the other way round. So a
message that is judged by one version has one copy; a mix of two versions gives it two copies, or none.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.bus.probes import GUARD_S, eager_switching
from tests.unit.bus.rigs import NoTimers, Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.cli.main import app
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, SqlFilter
from unibus.core.lifecycle.commands import Declare, SetRule
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.rules import Rule, rules_of, text_of
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.journal import SqliteJournal

PATH = "t/Subscriptions/s"
PUBLISHERS = 8
"""Threads, and as many tasks."""

LEAST_SENT = 40
"""By each of them; they go on until there were CHANGES as well."""

CHANGES = 30
BATCH = 4


def version(number: int) -> list[Rule]:
    """Even and odd messages change places with every version, and every copy tells which version made it."""
    stamp = f"SET version = {number}"
    return [
        Rule("first", SqlFilter(f"v % 2 = {number % 2}"), SqlRuleAction(f"{stamp}; SET rule = 'first'")),
        Rule("second", SqlFilter(f"v % 2 = {1 - number % 2}"), SqlRuleAction(f"{stamp}; SET rule = 'second'")),
    ]


class Campaign:
    """Publishers and one who changes the rules, and what they know about the order in which that happened."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.asked = 0  # The last version that may hold already.
        self.holds = 0  # The last one of which it is certain.
        self.sent: dict[str, tuple[int, int, int]] = {}  # Id → v, and between which versions it was judged.
        self.batches: list[list[str]] = []
        self.done = threading.Event()
        self.failures: list[BaseException] = []

    def change(self) -> None:
        """Until the publishers are done: the whole setting at once."""
        while not self.done.is_set():
            self.asked += 1
            self.bus.update_entity(PATH, rules=version(self.asked)).wait(GUARD_S)
            self.holds = self.asked

    def goes_on(self, sent: int) -> bool:
        return not self.failures and (sent < LEAST_SENT or self.holds < CHANGES)

    def publish(self, publisher: int) -> None:
        sent = 0
        while self.goes_on(sent):
            least = self.holds
            result = self.bus.send("t", sent, headers={"v": sent + publisher}).wait(GUARD_S)
            self.sent[result.id] = (sent + publisher, least, self.asked)
            sent += 1

    async def publish_batches(self) -> None:
        sent = 0
        while self.goes_on(sent):
            least = self.holds
            # All of a batch have the same headers, and it is judged in one step.
            results = await self.bus.send_many("t", [sent] * BATCH, headers={"v": sent})
            self.batches.append([result.id for result in results])
            self.sent.update({result.id: (sent, least, self.asked) for result in results})
            sent += 1

    def guarded(self, work: object, *given: object) -> None:
        try:
            work(*given)  # type: ignore[operator]
        except BaseException as error:
            self.failures.append(error)


async def run(campaign: Campaign) -> None:
    publishers = [
        threading.Thread(target=campaign.guarded, args=(campaign.publish, number), daemon=True)
        for number in range(PUBLISHERS)
    ]
    changer = threading.Thread(target=campaign.guarded, args=(campaign.change,), daemon=True)
    for thread in (*publishers, changer):
        thread.start()
    await asyncio.gather(*(campaign.publish_batches() for _ in range(PUBLISHERS)))
    await asyncio.to_thread(lambda: [thread.join(6 * GUARD_S) for thread in publishers])
    campaign.done.set()
    await asyncio.to_thread(changer.join, GUARD_S)
    assert campaign.failures == []
    assert not any(thread.is_alive() for thread in (*publishers, changer))


def audit(sent: dict[str, tuple[int, int, int]], found: list[Message]) -> list[str]:
    """What is wrong. `found` is what the subscription holds, in the order in which it was stored."""
    wrong = []
    copies = Counter(message.id for message in found)
    for id, (v, _, _) in sent.items():
        if copies[id] != 1:
            wrong.append(f"{copies[id]} copies of {id}, v={v}")
    latest = 0
    for message in found:
        v, least, most = sent[message.id]
        made_by = message.headers["version"]
        assert isinstance(made_by, int)
        if message.headers["rule"] != ("first" if v % 2 == made_by % 2 else "second"):
            wrong.append(f"{message.id}: version {made_by} does not have this rule for {v}")
        if not max(latest, least) <= made_by <= most:
            wrong.append(f"{message.id}: version {made_by}, after {latest}, sent between {least} and {most}")
        latest = made_by
    return wrong


@pytest.fixture
async def bus(store_path: Path | None) -> AsyncIterator[MessageBus]:
    """Durable as far as it matters here: nothing is synced, so that there is more to and fro."""
    async with MessageBus("memory://" if store_path is None else f"sqlite:///{store_path}?durability=D1") as bus:
        yield bus


async def test_each_message_is_judged_by_one_version_of_the_rules(bus: MessageBus) -> None:
    await bus.create_topic("t")
    await bus.create_subscription("t", "s", rules=version(0))
    await bus.create_subscription("t", "all")
    campaign = Campaign(bus)
    with eager_switching():
        await run(campaign)
    everything = len(campaign.sent)
    found = await bus.peek(PATH, 10 * everything)
    assert audit(campaign.sent, found) == []
    made_by = {message.id: message.headers["version"] for message in found}
    assert len(set(made_by.values())) > 2
    assert [ids for ids in campaign.batches if len({made_by[id] for id in ids}) != 1] == []
    control = await bus.peek("t/Subscriptions/all", 10 * everything)
    assert Counter(message.id for message in control) == Counter(list(campaign.sent))


async def test_a_mix_of_versions_would_be_found(bus: MessageBus) -> None:
    # The same change in two steps, with messages in between: the audit must see it.
    await bus.create_topic("t")
    await bus.create_subscription("t", "s", rules=version(0))
    sent = {}
    first, second = version(1)
    store = bus._runtime.queues().store
    await store.apply([SetRule(PATH, first, update=True)])
    for v in range(4):
        result = await bus.send("t", v, headers={"v": v})
        sent[result.id] = (v, 0, 1)
    await store.apply([SetRule(PATH, second, update=True)])
    found = await bus.peek(PATH, 100)
    assert [what[:8] for what in audit(sent, found)[:4]] == ["0 copies", "2 copies", "0 copies", "2 copies"]
    result = await bus.send("t", 9, headers={"v": 9})
    (last,) = [message for message in await bus.peek(PATH, 100) if message.id == result.id]
    assert audit({result.id: (9, 1, 1)}, [last]) == []
    assert audit({result.id: (9, 2, 2)}, [last]) != []


# Rules outlive the bus that created them

RULES = [
    Rule("red", SqlFilter("color = @color", {"color": "red"})),
    Rule("key", CorrelationFilter("c", {"n": 7}, subject="order")),
    Rule("cheap", SqlFilter("price < 10"), SqlRuleAction("SET sale = TRUE; REMOVE price")),
]


def judged(bus: SyncMessageBus) -> list[tuple[object, dict[str, object]]]:
    """What the subscription makes of some messages."""
    bus.send("t", "red", headers={"color": "red"})
    bus.send("t", "blue", headers={"color": "blue"})
    bus.send("t", "key", headers={"n": 7}, correlation_id="c", subject="order")
    bus.send("t", "cheap", headers={"price": 5, "color": "red"})
    bus.send("t", "broken", headers={"price": "5"})
    found = bus.receive_batch(PATH, 100, timeout=0)
    bus.complete_many(found)
    return [(message.body, dict(message.headers)) for message in found]


JUDGED = [
    ("red", {"color": "red"}),
    ("key", {"n": 7}),
    ("cheap", {"price": 5, "color": "red"}),
    ("cheap", {"color": "red", "sale": True}),
]


def settings_of(bus: SyncMessageBus) -> dict[str, object]:
    (found,) = [info for info in bus.entities() if info.name == PATH]
    return dict(found.settings)


def test_rules_are_there_when_the_file_is_opened_again(file_rig: Rig) -> None:
    file_rig.create_topic("t")
    file_rig.create_subscription("t", "s", rules=RULES, filter_mode="lenient", dead_letter_on_filter_error=False)
    before = file_rig.info(PATH).settings
    file_rig.reopen()
    assert file_rig.info(PATH).settings == before
    text = before["rules"]
    assert isinstance(text, str)
    assert rules_of(text, "azure") == RULES
    result = file_rig.send("t", "again", headers={"color": "red"})
    assert [message.id for message in file_rig.take(PATH, 10)] == [result.id]


@pytest.mark.parametrize("url", ["sqlite:///{}/bus.db", "jsonfile:///{}/bus"], ids=["sqlite", "jsonfile"])
def test_rules_that_were_changed_are_those_that_come_back(url: str, tmp_path: Path) -> None:
    place = url.format(tmp_path)
    with SyncMessageBus(place) as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "s", rules=[Rule("none", SqlFilter("1 = 0"))])
        bus.update_entity(PATH, rules=RULES)
        assert judged(bus) == JUDGED
    with SyncMessageBus(place) as bus:
        assert judged(bus) == JUDGED
        bus.update_entity(PATH, rules=None)
    with SyncMessageBus(place) as bus:
        assert [body for body, _ in judged(bus)] == ["red", "blue", "key", "cheap", "broken"]


def test_a_snapshot_has_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    store = EmbeddedStore(SqliteJournal(str(path)), SYSTEM_CLOCK, NoTimers(), snapshot_every=3)
    store.apply([Declare("t", TOPIC, {})]).wait()
    store.apply([Declare(PATH, SUBSCRIPTION, {"rules": text_of(version(0))})]).wait()
    store.apply([Declare(PATH, SUBSCRIPTION, {"rules": text_of(RULES)}, True)]).wait()
    told = store.health().last_seq
    for name in ("a", "b", "c", "d", "e", "f"):  # So that a snapshot becomes due, and its pieces are written.
        store.apply([Declare(name, TOPIC, {})]).wait()
    assert store.health().snapshot_seq >= told
    store.close()
    with SyncMessageBus(persistence_path=path) as bus:
        assert rules_of(str(settings_of(bus)["rules"]), "azure") == RULES
        assert judged(bus) == JUDGED


def test_an_export_takes_the_rules_along(tmp_path: Path) -> None:
    old, new, file = (str(tmp_path / name) for name in ("old.db", "new.db", "all.jsonl"))
    with SyncMessageBus(persistence_path=old) as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "s", rules=RULES, dead_letter_on_filter_error=False)
        bus.send("t", "waits", headers={"price": 1})
        before = settings_of(bus)
    for arguments in (["export", file, "--url", old], ["import", file, "--url", new]):
        done = CliRunner().invoke(app, arguments, prog_name="unibus")
        assert (done.exit_code, done.stderr) == (0, "")
    with SyncMessageBus(persistence_path=new) as bus:
        assert settings_of(bus) == before
        waiting = bus.receive_batch(PATH, 10, timeout=0)
        # What an action has made once is not judged again.
        assert [(message.body, dict(message.headers)) for message in waiting] == [("waits", {"sale": True})]
        bus.complete_many(waiting)
        assert judged(bus) == JUDGED
