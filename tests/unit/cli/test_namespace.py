"""No command shows the settings of the namespace, which contain keys."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule

RULE = AuthorizationRule.generated("one", [Right.LISTEN], b"k" * 64)


async def fill() -> None:
    async with MessageBus("sqlite:///unibus.db") as bus:
        await bus.create_queue("q")
        await Broker(bus).set_namespace_rules([RULE])
        await bus.send("q", 1)


@pytest.mark.parametrize(
    "command", [("entities",), ("export", "-"), ("check", "unibus.db"), ("query", "SELECT * FROM messages")]
)
def test_no_command_shows_it(shell: Any, command: tuple[str, ...]) -> None:
    asyncio.run(fill())
    result = shell(*command)
    assert result.exit_code == 0
    assert "namespace" not in result.stdout
    assert RULE.primary_key not in result.stdout


def test_an_export_is_imported_beside_it(shell: Any) -> None:
    asyncio.run(fill())
    (told,) = shell.records("export", "all.jsonl")
    assert told["entities"] == 1
    assert "namespace" not in Path("all.jsonl").read_text()
    result = shell("import", "all.jsonl", "--url", "sqlite:///other.db")
    assert result.exit_code == 0, result.output


def test_history_tells_that_it_was_changed_and_not_the_keys(shell: Any) -> None:
    asyncio.run(fill())
    result = shell("query", "SELECT * FROM events")
    assert "$namespace" in result.stdout
    assert RULE.primary_key not in result.stdout
