"""Code that mixes up the async and the sync API: the error names what to write."""

import asyncio
import contextlib
import inspect
import warnings
from collections.abc import Callable

import pytest

import unibus.sync
from unibus.bus.api.message_bus import MessageBus
from unibus.errors import UsageError

SyncBus = unibus.sync.MessageBus


def said(error: pytest.ExceptionInfo[UsageError]) -> str:
    return str(error.value)


def test_with_on_the_async_bus_names_async_with_and_the_sync_bus() -> None:
    with pytest.raises(UsageError) as error, contextlib.ExitStack() as stack:
        stack.enter_context(MessageBus())  # type: ignore[arg-type]
    assert said(error) == (
        "MessageBus is the async bus: `with` cannot open it (write `async with MessageBus() as bus:` in an "
        "`async def`; without async use unibus.sync.MessageBus)"
    )


def test_the_statement_itself_says_the_same() -> None:
    with pytest.raises(UsageError, match=r"use unibus\.sync\.MessageBus"), MessageBus():  # type: ignore[attr-defined]
        pass


async def test_async_with_on_the_sync_bus_names_with() -> None:
    with pytest.raises(UsageError) as error:
        async with SyncBus():  # type: ignore[attr-defined]
            pass
    assert said(error) == (
        "unibus.sync.MessageBus is the bus without async: `async with` cannot open it (write `with`, and call its "
        "methods without `await`; in async code use unibus.MessageBus)"
    )


async def test_a_received_message_has_the_block_of_its_bus() -> None:
    async with MessageBus() as bus:
        await bus.send("q", 1)
        [message] = await bus.receive_batch("q", timeout=0)
        with pytest.raises(UsageError, match="write `async with message:`"), message:  # type: ignore[attr-defined]
            pass
        await message.complete()  # Nothing was changed.


async def test_a_received_message_of_the_sync_bus_too() -> None:
    with SyncBus() as bus:
        bus.send("q", 1)
        [message] = bus.receive_batch("q", timeout=0)
        with pytest.raises(UsageError, match="write `with message:`"):
            async with message:  # type: ignore[attr-defined]
                pass
        message.complete()


async def test_a_session_has_the_block_of_its_bus() -> None:
    async with MessageBus() as bus:
        await bus.create_queue("q", requires_session=True)
        await bus.send("q", 1, session_id="s")
        session = await bus.accept_session("q", timeout=0)
        with pytest.raises(UsageError, match="`async with await"), session:  # type: ignore[attr-defined]
            pass
        async for message in session.receive(timeout=0):
            await message.complete()
        await session.close()


@pytest.mark.parametrize("use", [iter, lambda result: result[0]], ids=["for", "index"])
async def test_a_result_that_was_not_awaited_says_so(use: Callable[[object], object]) -> None:
    async with MessageBus() as bus:
        await bus.create_queue("q")
        peeked = bus.peek("q")
        with pytest.raises(UsageError, match="used before it was awaited"):
            use(peeked)
        assert peeked  # A result has no truth of its own.
        assert await peeked == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("publish", lambda bus: bus.publish("c", 1)),
        ("request", lambda bus: bus.request("c", 1)),
        ("drain", lambda bus: bus.drain()),
        ("stop", lambda bus: bus.stop()),
        ("close", lambda bus: bus.close()),
        ("purge", lambda bus: bus.purge("q")),
        ("query_messages", lambda bus: bus.query_messages("SELECT 1")),
        ("trace_message", lambda bus: bus.trace_message("x")),
        ("delete_message", lambda bus: bus.delete_message("x")),
        ("prune_before", lambda bus: bus.prune_before(1, "c")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_the_warning_of_python_names_the_method(name: str, call: Callable[[MessageBus], object]) -> None:
    async with MessageBus() as bus:
        bus.create_channel("c")
        made = call(bus)
        assert inspect.iscoroutine(made)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del made
        assert [str(each.message) for each in caught] == [f"coroutine '{name}' was never awaited"]
        bus.pop("c")


async def test_receive_of_the_async_bus_says_how_it_is_read() -> None:
    async with MessageBus() as bus:
        await bus.send("q", 1)
        for use in (list, next, lambda messages: messages[0]):
            with pytest.raises(UsageError, match=r"write `async for message in bus\.receive"):
                use(bus.receive("q", timeout=0))  # type: ignore[call-overload, index]
        with pytest.raises(UsageError, match=r"or `await bus\.receive_batch"):
            await bus.receive("q", timeout=0)  # type: ignore[misc]
        assert [message.body async for message in bus.receive("q", timeout=0, mode="receive_and_delete")] == [1]


async def test_receive_of_the_sync_bus_says_how_it_is_read() -> None:
    with SyncBus() as bus:
        bus.send("q", 1)
        with pytest.raises(UsageError, match=r"write `for message in bus\.receive"):
            async for _ in bus.receive("q", timeout=0):  # type: ignore[attr-defined]
                pass
        with pytest.raises(UsageError, match=r"write `for message in bus\.receive"):
            await bus.receive("q", timeout=0)  # type: ignore[misc]
        with pytest.raises(UsageError, match="receive_batch"):
            bus.receive("q", timeout=0)[0]  # type: ignore[index]
        assert [message.body for message in bus.receive("q", timeout=0, mode="receive_and_delete")] == [1]


async def test_a_session_says_it_too() -> None:
    async with MessageBus() as bus:
        await bus.create_queue("q", requires_session=True)
        await bus.send("q", 1, session_id="s")
        async with await bus.accept_session("q", timeout=0) as session:
            with pytest.raises(UsageError, match="write `async for"):
                list(session.receive(timeout=0))  # type: ignore[call-overload]
            async for message in session.receive(timeout=0):
                await message.complete()


async def test_an_iteration_can_be_read_by_one_and_ended() -> None:
    async with MessageBus() as bus:
        await bus.send_many("q", [1, 2])
        messages = bus.receive("q", mode="receive_and_delete")
        assert (await anext(messages)).body == 1
        async with contextlib.aclosing(messages) as same:  # type: ignore[type-var]
            async for message in same:
                assert message.body == 2
                break
        assert [each async for each in messages] == []
    with SyncBus() as sync_bus:
        sync_bus.send_many("q", [1, 2])
        found = sync_bus.receive("q", mode="receive_and_delete")
        assert next(found).body == 1
        with contextlib.closing(found):  # type: ignore[type-var]
            assert next(iter(found)).body == 2
        assert list(found) == []


def test_the_result_of_the_sync_bus_is_not_awaitable() -> None:
    """Python's own TypeError is all that `await bus.publish(…)` gets there: an awaitable Message would be awaited by
    each framework that awaits what a function returned."""

    async def main() -> None:
        with SyncBus() as bus:
            bus.create_channel("c")
            message = bus.publish("c", 1)
            bus.pop("c")
            await message  # type: ignore[misc]

    with pytest.raises(TypeError, match="await"):
        asyncio.run(main())
