"""A keyword that a method does not have: the error names the one that was meant."""

import asyncio
import inspect
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from unibus.bus.api.bus_operations import BusOperations
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.execution.failure_log import one_line
from unibus.bus.mistaken_keywords import COLD, CONSTRUCTOR, PUBLISH, publish_hint
from unibus.bus.settings import ChannelConfig, SubscribeOptions
from unibus.core.envelope.fields import BESIDE, NAMES
from unibus.core.lifecycle.state.settings import SETTINGS
from unibus.errors import KeywordUnknown, UsageError
from unibus.other_words import _WORDS

Call = Callable[[SyncMessageBus], object]


@pytest.fixture
def bus() -> Iterator[SyncMessageBus]:
    with SyncMessageBus() as opened:
        yield opened


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda bus: bus.receive("q", timout=1), "receive() has no argument 'timout' (did you mean 'timeout'?)"),
        (
            lambda bus: bus.receive_batch("q", max_messages=5),
            "receive_batch() has no argument 'max_messages' (did you mean 'count'?)",
        ),
        (
            lambda bus: bus.peek("q", 1, start=3),
            "peek() has no argument 'start' (known are count, entity, from_sequence)",
        ),
        (lambda bus: bus.drain(time_limit=3), "drain() has no argument 'time_limit' (did you mean 'timeout'?)"),
        (lambda bus: bus.close(timeout=3), "close() has no argument 'timeout' (did you mean 'drain_timeout'?)"),
        (
            lambda bus: bus.accept_session("q", session="a"),
            "accept_session() has no argument 'session' (did you mean 'session_id'?)",
        ),
        (
            lambda bus: bus.query_messages("SELECT 1", limit=3),
            "query_messages() has no argument 'limit' (did you mean 'rows_max'?)",
        ),
        (lambda bus: bus.request("c", 1, timout=3), "request() has no argument 'timout' (did you mean 'timeout'?)"),
        (
            lambda bus: SyncMessageBus(workers=2),
            "SyncMessageBus() has no argument 'workers' (did you mean 'worker_count'?)",
        ),
    ],
)
def test_the_error_names_the_keyword_that_was_meant(bus: SyncMessageBus, call: Call, text: str) -> None:
    with pytest.raises(KeywordUnknown) as error:
        call(bus)
    assert str(error.value) == text
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, UsageError)
    assert bus.entities() == []  # Nothing was created.


async def test_the_async_api_raises_at_the_call() -> None:
    async with MessageBus() as bus:
        with pytest.raises(KeywordUnknown, match="did you mean 'timeout'"):
            bus.receive("q", timout=1)
        with pytest.raises(KeywordUnknown, match="did you mean 'timeout'"):
            bus.request("q", 1, timout=3)
        with pytest.raises(KeywordUnknown, match="did you mean 'count'"):
            await bus.receive_batch("q", limit=1)


def test_a_type_error_for_another_reason_stays(bus: SyncMessageBus) -> None:
    with pytest.raises(TypeError) as error:
        bus.peek()  # type: ignore[call-arg]
    assert not isinstance(error.value, KeywordUnknown)


def misspelt(bus: SyncMessageBus, **keywords: object) -> None:
    bus.publish("c", 1, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keyword", "note"),
    [
        ("prioritet", "publish: did you mean 'priority'?"),
        ("subject", "publish: pass it as fields={'subject': …}"),
        ("body", "publish: did you mean 'payload'?"),
        ("time_to_live", "publish: did you mean 'ttl'?"),
        ("session", "publish: pass it as fields={'session_id': …}"),
        (
            "countdown",
            "publish: use send(queue, payload, delay=…) or schedule(queue, payload, at), which store the message until "
            "then",
        ),
        (
            "id",
            "publish: publish makes the id itself; send takes message_id=, and dedup_key= detects a message published "
            "twice",
        ),
    ],
)
def test_a_publish_gets_a_note_at_the_end_of_the_block(keyword: str, note: str) -> None:
    with pytest.raises(TypeError) as error, SyncMessageBus() as bus:
        misspelt(bus, **{keyword: 3})
    assert error.value.__notes__ == [note]
    assert traceback.format_exception(error.value)[-1] == f"{note}\n"

    async def main() -> None:
        async with MessageBus() as opened:
            await opened.publish("c", 1, **{keyword: 3})  # type: ignore[arg-type]

    with pytest.raises(TypeError) as error:
        asyncio.run(main())
    assert error.value.__notes__ == [note]


@pytest.mark.processes
def test_a_program_without_a_block_gets_the_hint_at_its_end(tmp_path: Path) -> None:
    program = "from unibus.sync import MessageBus\nMessageBus().publish('orders', 1, countdown=5)\n"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1
    [error, hint] = ended.stderr.splitlines()[-2:]
    assert "countdown" in error
    assert hint.startswith("publish: use send(queue, payload, delay=…)")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda bus: bus.send("q", 1, countdown=5), "did you mean 'delay'?"),
        (lambda bus: bus.send("q", 1, eta=5), "did you mean 'scheduled_at'?"),
        (lambda bus: bus.send("q", 1, expiration=5), "did you mean 'ttl'?"),
        (lambda bus: bus.send("q", 1, id="a"), "did you mean 'message_id'?"),
        (lambda bus: bus.send("q", body=1), "did you mean 'payload'?"),
        (lambda bus: bus.send_many("q", [1], time_to_live=5), "did you mean 'ttl'?"),
        (lambda bus: bus.publish("q", 1, fields={"expires": 5}), "did you mean 'ttl'?"),
        (lambda bus: bus.receive_batch("q", max_wait_time=5), "did you mean 'timeout'?"),
        (lambda bus: bus.create_queue("q", time_to_live=5), "did you mean 'default_ttl'?"),
        (lambda bus: bus.create_queue("q", visibility_timeout=5), "did you mean 'lock_duration'?"),
        (lambda bus: bus.create_queue("q", max_messages=5), "did you mean 'max_count'?"),
        (lambda bus: bus.create_channel("q", capacity=5), "did you mean 'max_queue_size'?"),
        (lambda bus: bus.subscribe("q", print, max_retries=5), "did you mean 'retry_attempts'?"),
        (lambda bus: bus.subscribe("q", print, durable="a"), "did you mean 'group'?"),
    ],
)
def test_a_word_of_another_system_names_our_keyword(bus: SyncMessageBus, call: Call, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        call(bus)
    assert error.value.hint == hint
    assert bus.entities() == []


def test_each_row_of_words_is_for_a_keyword_that_exists() -> None:
    known = {*PUBLISH, *CONSTRUCTOR, *NAMES, *BESIDE, *SETTINGS, *SubscribeOptions.__annotations__}
    known |= {field.name for field in fields(ChannelConfig)}
    for method in (*COLD, "subscribe"):
        known |= set(inspect.signature(getattr(SyncMessageBus, method)).parameters)
    assert set(_WORDS) - known == set()


def test_a_handler_that_misspells_a_publish_is_logged_with_the_hint(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "unibus"), SyncMessageBus() as bus:
        bus.subscribe("c", lambda message: misspelt(bus, prioritet=3), retry_attempts=0)
        bus.publish("c", 1)
    assert "(did you mean 'priority'?)" in caplog.text


def test_the_text_of_compiled_code_is_known_too() -> None:
    error = TypeError("'prioritet' is an invalid keyword argument for publish()")
    assert publish_hint(error) == "did you mean 'priority'?"
    assert one_line(error).endswith("publish() (did you mean 'priority'?)")
    assert publish_hint(TypeError("got an unexpected keyword argument 'x'")) == ""
    assert publish_hint(ValueError(str(error))) == ""


def test_the_lists_of_keywords_are_those_of_the_signatures() -> None:
    for kind in (MessageBus, SyncMessageBus):
        known = list(inspect.signature(kind.publish).parameters)
        assert [name for name in known if name not in ("self", "delay")] == list(PUBLISH)
        for name in COLD:
            parameters = inspect.signature(getattr(kind, name)).parameters.values()
            assert parameters
            assert all(each.kind is not each.VAR_KEYWORD for each in parameters)
    constructor = inspect.getfullargspec(BusOperations.__init__)
    assert tuple([*constructor.args, *constructor.kwonlyargs][1:]) == CONSTRUCTOR or constructor.args == ["self"]
