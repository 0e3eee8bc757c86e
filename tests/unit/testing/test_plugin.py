"""The pytest plugin, in pytest runs of its own: with each way of running async tests, and with none."""

import re
import tomllib
from pathlib import Path

import pytest

import unibus

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.processes

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "testing.md"
PLUGIN = "unibus.testing.plugin"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on test files in a process of its own, with the named plugins and no others. Warnings are errors."""
    # The package as it is here, plain or compiled; and not through the entry point, which only an installed one has.
    monkeypatch.setenv("PYTHONPATH", str(Path(unibus.__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(options, **files):
        pytester.makepyfile(**files)
        return pytester.runpytest_subprocess(
            "-p", PLUGIN, "-p", "no:cacheprovider", "-W", "error", *options, timeout=60
        )

    return run


def asyncio_options(mode):
    # The second setting only because pytest-asyncio warns when it is left out.
    settings = [f"asyncio_mode={mode}", "asyncio_default_fixture_loop_scope=function"]
    return ["-p", "pytest_asyncio.plugin", "--strict-markers", *[f"--override-ini={each}" for each in settings]]


ASYNC_TESTS = """
    import asyncio
    import pytest
    from unibus.core.envelope.message import Message

    pytestmark = MARKS

    async def test_handlers_run_on_the_loop_of_the_test(bus):
        loops = []

        @bus.subscribe("orders")
        async def handler(message):
            loops.append(asyncio.get_running_loop())
            await bus.publish("invoices", message.body)

        await bus.publish("orders", 1)
        assert await bus.drain()
        assert loops == [asyncio.get_running_loop()]
        assert [message.body for message in bus.sent()] == [1, 1]

    @pytest.fixture
    def subscribed(bus):
        bus.seen = []

        async def handler(message):
            bus.seen.append((message.body, asyncio.get_running_loop()))

        bus.subscribe("orders", handler)
        return bus

    async def test_a_handler_that_a_fixture_subscribed_runs_there_too(subscribed):
        await subscribed.publish("orders", 1)
        assert await subscribed.drain()
        assert subscribed.seen == [(1, asyncio.get_running_loop())]

    async def test_each_test_has_its_own_bus(bus):
        assert bus.sent() == []
        assert bus.channels() == []

    async def test_the_bus_is_on_the_virtual_clock_if_there_is_one(bus, virtual_clock):
        times = []

        async def failing(message):
            times.append(virtual_clock.elapsed)
            raise ValueError("always")

        bus.subscribe("orders", failing, retry_attempts=1, retry_delay=3600, retry_jitter=0)
        await bus.publish("orders")
        await virtual_clock.advance_async(3600)
        assert times == [0, 3600]
        assert len(bus.dead_letters("orders")) == 1
        assert Message.new("orders").timestamp_ns == virtual_clock.wall_ns()

    async def test_retries_and_handlers_that_are_left_over_do_no_harm(bus, virtual_clock):
        async def stuck(message):
            await asyncio.Event().wait()

        async def failing(message):
            raise ValueError("always")

        bus.subscribe("orders", stuck)
        bus.subscribe("orders", failing)
        await bus.publish_many("orders", [1, 2, 3])
        await asyncio.sleep(0.01)

    async def test_a_bus_may_be_entered_and_so_closed_by_the_test(bus):
        async with bus:
            await bus.publish("orders", 1)
"""
ASYNC_TEST_COUNT = 6


def test_async_tests_run_in_strict_mode_on_a_loop_each_or_on_one_loop_for_all(run):
    each = ASYNC_TESTS.replace("MARKS", "pytest.mark.asyncio")
    shared = ASYNC_TESTS.replace("MARKS", 'pytest.mark.asyncio(loop_scope="session")')
    result = run(asyncio_options("strict"), test_each=each, test_shared=shared)
    result.assert_outcomes(passed=2 * ASYNC_TEST_COUNT)


def test_async_tests_run_in_auto_mode_and_those_of_the_guide_pass(run):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    # The contract of stores brings tests of its own; tests/contract runs them.
    guide = "\n\n".join(block for block in blocks if "StoreContract" not in block)
    count = len(re.findall(r"^(?:async )?def test_", guide, re.MULTILINE))
    assert count >= 4
    result = run(asyncio_options("auto"), test_auto=ASYNC_TESTS.replace("MARKS", "[]"), test_guide=guide)
    result.assert_outcomes(passed=ASYNC_TEST_COUNT + count)


SYNC_TESTS = """
    import asyncio
    import sys
    import threading
    import pytest

    def test_nothing_was_imported_that_no_test_has_asked_for():
        assert [name for name in sys.modules if name.startswith("unibus.testing.")] == ["unibus.testing.plugin"]
        assert "pytest_asyncio" not in sys.modules

    def test_the_sync_bus_runs_both_kinds_of_handlers(sync_bus):
        seen = []

        async def later(message):
            await asyncio.sleep(0)
            seen.append(message.body)

        sync_bus.subscribe("orders", lambda message: seen.append(message.body))
        sync_bus.subscribe("orders", later)
        sync_bus.publish("orders", 1)
        assert sync_bus.drain()
        assert seen == [1, 1]
        assert [message.body for message in sync_bus.sent()] == [1]

    def test_the_sync_bus_is_on_the_virtual_clock_if_there_is_one(sync_bus, virtual_clock):
        sync_bus.create_channel("orders", ttl=60)
        sync_bus.publish("orders")
        virtual_clock.advance(60)
        assert sync_bus.pop("orders") is None

    def test_the_async_bus_works_inside_of_asyncio_run(bus):
        seen = []

        async def handler(message):
            seen.append(message.body)

        async def main():
            bus.subscribe("orders", handler)
            await bus.publish("orders", 1)
            assert await bus.drain()

        asyncio.run(main())
        assert seen == [1]

    def test_the_async_bus_works_without_a_loop(bus):
        arrived = threading.Event()

        async def handler(message):
            arrived.set()

        bus.subscribe("orders", handler)
        bus.publish_from_sync("orders", 1)
        assert arrived.wait(5)
        assert len(bus.sent("orders")) == 1

    def test_no_thread_of_the_bus_is_left(sync_bus):
        assert [thread for thread in threading.enumerate() if thread.name.startswith("unibus")] == []

    def test_a_blocked_handler_is_left_behind(sync_bus):
        sync_bus.subscribe("orders", lambda message: threading.Event().wait(0.5))
        sync_bus.publish("orders")

    def test_that_fails_for_its_own_reason(sync_bus):
        sync_bus.publish("orders")
        assert [message.body for message in sync_bus.sent("orders")] == ["something else"]

    class TestOfAProjectWithAFixtureOfTheSameName:
        @pytest.fixture
        def bus(self):
            return "a vehicle"

        def test_its_own_wins(self, bus):
            assert bus == "a vehicle"

    def test_the_virtual_clock_is_given_back():
        import time
        from unibus.core.envelope.message import Message
        assert abs(Message.new("orders").timestamp_ns - time.time_ns()) < 60e9
"""


def test_sync_tests_need_no_plugin_for_async_tests(run):
    result = run([], test_sync=SYNC_TESTS)
    result.assert_outcomes(passed=9, failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: assert [[]None[]] == [[]'something else'[]]"])


def test_the_package_announces_the_plugin_to_pytest():
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"unibus": PLUGIN}
