"""Every command on a file, through the server of the file, and by the address of a server: the same output each time.

One script of commands runs three times, in folders of their own. What each step writes and how it exits has to be the
same, but for what is different in every run: ids, instants, keys. A command that is added to the shell and is in no
step, and not among those that have nothing to do with a server, fails the last test.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from tests.unit.cli.served import Served, serving
from unibus.cli.main import Shell, app
from unibus.client.address import address_of
from unibus.client.client import Client
from unibus.sync import MessageBus

WITHOUT_SERVER = {"demo", "serve", "config", "init", "check", "repair", "capture", "filter", "pipeline"}
ONLY_SERVER = {"server", "dlq jobs"}
"""Commands on files or processes, and commands that need a server: tested in test_server_commands.py."""

ENTITIES = {
    "queues": {
        "carts": {"requires_session": True},
        "fragile": {"max_delivery_count": 1},
    },
    "topics": {"news": {"subscriptions": {"all": {}, "red": {"rules": {"hue": {"filter": "hue = 'red'"}}}}}},
}

Text = Callable[["Way"], str]


class Step(NamedTuple):
    arguments: tuple[str | Text, ...]
    input: str | None = None


class Way:
    """One of the three. `memory` has the output of earlier steps, for steps that need an id."""

    def __init__(self, name: str, folder: Path, served: Served | None, target: str) -> None:
        self.name = name
        self.folder = folder
        self.served = served
        self.target = target
        self.memory: dict[str, str] = {}

    def run(self, step: Step) -> tuple[int, str, str]:
        arguments = [each if isinstance(each, str) else each(self) for each in step.arguments]
        result = CliRunner().invoke(
            app, arguments, input=step.input, prog_name="unibus", env={"UNIBUS_URL": self.target}
        )
        return result.exit_code, result.stdout, result.stderr


def dead_letter(way: Way) -> str:
    """Dead-letters a message in `fragile`, with a receiver that is not a command. Returns its id."""
    if way.served is None:
        with MessageBus("bus.db") as bus:
            sent = bus.send("fragile", {"n": 1}, headers={"hue": "red"})
            bus.receive_batch("fragile", 1, timeout=0)[0].dead_letter("Broken", "bent\nat the corner")
            return str(sent.id)
    client = Client(address_of(way.served.url, {}))
    fragile = {"entity": "fragile"}
    message = {"body": {"n": 1}, "headers": {"hue": "red"}}
    [sent] = client.post("messages/send", list[dict[str, Any]], {"messages": [message]}, fragile)
    [received] = client.post("messages/receive", list[dict[str, Any]], {}, fragile)
    death = {"reason": "Broken", "description": "bent\nat the corner"}
    settling = {"verb": "dead_letter", "tokens": [received["token"]], **death}
    client.post("messages/settle", list[Any], settling, fragile)
    client.close()
    return str(sent["id"])


def buried(name: str) -> Text:
    def text(way: Way) -> str:
        return way.memory.setdefault(name, dead_letter(way) if name not in way.memory else "")

    return text


def sent_id(way: Way) -> str:
    return way.memory.get("sent", "none")


def leave_in_outbox(way: Way) -> str:
    """Two transactions that an application has left in its own database, meant for this store."""
    if "outbox" not in way.memory:
        way.memory["outbox"] = "app.db"
        with pytest.MonkeyPatch.context() as patch, closing(sqlite3.connect("app.db")) as connection:
            patch.setattr("unibus.bus.outbox.relay.Relay._wake", lambda *given: True)
            with MessageBus("other.db") as bus:
                for body in (1, 2):
                    with bus.transaction(connection=connection):
                        bus.send("orders", body)
    return "app.db"


def step(*arguments: str | Text, input: str | None = None) -> Step:
    return Step(arguments, input)


SCRIPT = [
    # Messages
    step("send", "orders", '{"tea": 2}', "--header", "hue=red", "--priority", "7", "--correlation-id", "c1"),
    step("send", "orders", "plain text", "--dedup-key", "k1", "--durability", "D1"),
    step("send", "orders", "-", input="from the input\n"),
    step("send", "orders", "--lines", input='{"n": 1}\n\n{"n": 2}\n'),
    step("send", "orders", "late", "--delay", "3600"),
    step("send", "orders", "short", "--ttl", "3600"),
    step("send", "orders", "x", "--priority", "999"),
    step("send", "orders", "x", "--header", "wrong"),
    step("send", "orders", "x", "--durability", "D9"),
    step("send", "a//b", "x"),
    step("send", "orders", '{"half":'),
    step("send", "orders", '{"half":', "--json"),
    step("peek", "orders"),
    step("peek", "orders", "--limit", "2", "--from", "2", "--raw"),
    step("peek", "ordres"),
    step("peek", "orders", "--dead-letters"),
    step("receive", "orders"),
    step("receive", "orders", "--limit", "2", "--keep"),
    step("receive", "orders", "--delete", "--raw"),
    step("receive", "orders", "--session", "next"),
    step("receive", "nowhere"),
    step("receive", "orders", "--limit", "all"),
    step("receive", "orders"),
    step("receive", "orders", "--keep", "--delete"),
    # Entities
    step("declare", "entities.json", "--dry-run"),
    step("declare", "entities.json"),
    step("declare", "entities.json"),
    step("declare", "conflict.json", "--dry-run"),
    step("declare", "conflict.json"),
    step("declare", "broken.json"),
    step("declare", "missing.json"),
    step("entities"),
    step("entities", "--settings", "--dead-letters"),
    step("send", "news", "told", "--header", "hue=red"),
    step("send", "news", "told", "--header", "hue=blue"),
    step("receive", "news/Subscriptions/all", "--limit", "all"),
    step("receive", "news/subscriptions/red", "--limit", "all"),
    # Sessions
    step("send", "carts", "one", "--session", "s1"),
    step("send", "carts", "two", "--session", "s1"),
    step("send", "carts", "three", "--session", "s2"),
    step("send", "carts", "none"),
    step("receive", "carts"),
    step("receive", "carts", "--session", "next"),
    step("receive", "carts", "--session", "s2", "--keep"),
    step("receive", "carts", "--session", "s1", "--limit", "all"),
    step("receive", "carts", "--session", "s1"),
    # History
    step("send", "traced", '{"way": 1}'),
    step("trace", sent_id),
    step("trace", "no-such-id"),
    step("trace", "c1"),
    step("tail", "traced"),
    step("tail", "*", "-n", "3"),
    step("tail", "orders", "--kind", "completed", "--where", "sequence=1"),
    step("tail", "orders", "--since", "0", "-n", "4"),
    step("tail", "trac*", "--since", "1h"),
    step("tail", "nothing"),
    step("tail", "orders", "--kind", "eaten"),
    step("tail", "orders", "--where", "colour=red"),
    step("replay", "orders", "--limit", "3"),
    step("replay", "orders", "--after", "4", "--raw"),
    step("replay", "orders", "--since", "1h", "--limit", "1"),
    step("replay", "ordres"),
    step("replay", "orders", "--to", "again", "--yes"),
    step("send", "again", "first"),
    step("replay", "orders", "--to", "again", "--limit", "2", "--yes"),
    step("replay", "orders", "--to", "again"),
    step("query", "SELECT channel, status, count(*) AS n FROM messages GROUP BY 1, 2 ORDER BY 1, 2"),
    step("query", "SELECT channel FROM messages WHERE channel = ?", "-p", "again", "--csv", "--limit", "1"),
    step("query", "SELECT 1 WHERE 0"),
    step("query", "DELETE FROM messages"),
    step("query", "-", input="SELECT x'00ff' AS b, 1.5 AS f, NULL AS n"),
    step("top", "--once"),
    step("top", "--once", "--sort", "dead"),
    # Dead-lettered messages
    step("dlq", "ls"),
    step("dlq", "show", buried("first")),
    step("dlq", "ls"),
    step("dlq", "ls", "--summary"),
    step("dlq", "ls", "--reason", "odd"),
    step("dlq", "show", "no-such-id"),
    step("dlq", "retry"),
    step("dlq", "retry", "--all"),
    step("dlq", "retry", "--all", "--dry-run"),
    step("dlq", "retry", "--id", buried("first"), "--yes"),
    step("dlq", "redirect", "orders", "--queue", buried("second"), "--yes"),
    step("dlq", "redirect", "orders", "--id", buried("second"), "--yes"),
    step("dlq", "redirect", "nowhere", "--id", buried("third"), "--yes"),
    step("dlq", "rules", "show"),
    step("dlq", "rules", "test"),
    step("dlq", "rules", "run", "rules.json", "--dry-run"),
    step("dlq", "rules", "run", "rules.json", "--yes"),
    step("dlq", "discard", "--all", "--yes"),
    step("dlq", "discard", "--id", buried("fourth"), "--yes", "--rate", "1000", "--batch-size", "1"),
    step("purge", "again"),
    step("purge", "again", "--dry-run"),
    step("purge", "agan", "--yes"),
    step("purge", "traced", "--yes"),
    step("purge", "traced", "--yes"),
    step("purge", "fragile", "--dead-letters", "--yes"),
    step("purge", "news", "--yes"),
    step("purge", "traced", "--dead-letters", "--yes"),
    step("purge", "missing", "--dead-letters", "--yes"),
    step("purge", "news", "--dead-letters", "--yes"),
    step("purge", "NEWS/subscriptions/ALL", "--dry-run"),
    # Access
    step("access", "list"),
    step("access", "add", "sender", "--rights", "Send", "--entity", "orders", "--show"),
    step("access", "add", "sender", "--rights", "Send", "--entity", "orders"),
    step("access", "add", "x", "--rights", "Fly", "--entity", "orders"),
    step("access", "add", "x", "--rights", "Send", "--entity", "missing"),
    step("access", "list"),
    step("access", "list", "--entity", "orders"),
    step("access", "rotate", "sender", "--entity", "orders", "--both", "--show"),
    step("access", "remove", "sender", "--entity", "orders"),
    step("access", "remove", "sender", "--entity", "orders"),
    step("access", "token"),
    # The whole bus
    step("export", "all.jsonl"),
    step("export", "all.jsonl"),
    step("export", "-", "--queue", "again"),
    step("export", "-", "--queue", "missing"),
    step("import", "all.jsonl"),
    step("import", "all.jsonl"),
    step("import", "broken.json"),
    step("relay", leave_in_outbox),
    step("relay", leave_in_outbox, "--adopt"),
    step("relay", leave_in_outbox),
]

FILES = {
    "entities.json": json.dumps(ENTITIES),
    "conflict.json": json.dumps({"queues": {"carts": {"requires_session": False}}}),
    "broken.json": "{",
    "rules.json": json.dumps([{"action": "discard", "reason": "Broken"}]),
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Way]]:
    folders = [tmp_path_factory.mktemp(name) for name in ("file", "served", "address")]
    for folder in folders:
        for name, text in FILES.items():
            (folder / name).write_text(text)
    with serving(folders[1] / "bus.db") as own, serving(folders[2] / "bus.db") as other:
        yield [
            Way("file", folders[0], None, "bus.db"),
            Way("served", folders[1], own, "bus.db"),
            Way("address", folders[2], other, other.url),
        ]


DIFFERENT = {
    *("id", "message_id", "at", "ts", "oldest_at", "created_at", "updated_at", "enqueued_at", "sent_at", "died_at"),
    *("scheduled_at", "expires_at", "first_delivered_at", "oldest_s", "primary_key", "secondary_key", "sha256"),
    *("timestamp_ns", "enqueued_ns", "first_delivered_ns", "expires_ns", "visible_ns", "trace_id", "seq", "size_bytes"),
    *("size", "envelope", "in_per_s", "out_per_s"),
}
ID = re.compile(r"\b[0-9a-f]{12,40}(-[0-9a-f]+)*\b|SharedAccessSignature.*")


def same(value: Any) -> Any:
    """Without the values that differ in every run."""
    if isinstance(value, dict):
        return {name: "*" if name in DIFFERENT and each is not None else same(each) for name, each in value.items()}
    if isinstance(value, list):
        return [same(each) for each in value]
    return ID.sub("*", value) if isinstance(value, str) else value


def shown(text: str) -> list[Any]:
    lines = text.splitlines()
    try:
        return [same(json.loads(line)) for line in lines]
    except ValueError:
        return [same(line) for line in lines]


def remember(way: Way, arguments: tuple[Any, ...], stdout: str) -> None:
    if arguments[:2] == ("send", "traced") and stdout:
        way.memory["sent"] = json.loads(stdout)["id"]


def test_each_command_does_the_same_in_all_three_ways(ways: list[Way], monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("UNIBUS_KEY", "UNIBUS_CONNECTION_STRING", "UNIBUS_CA"):
        monkeypatch.delenv(each, raising=False)
    differences = []
    for at, current in enumerate(SCRIPT):
        found = {}
        for way in ways:
            monkeypatch.chdir(way.folder)
            code, stdout, stderr = way.run(current)
            remember(way, current.arguments, stdout)
            found[way.name] = (code, shown(stdout), shown(stderr))
        first = found["file"]
        if any(each != first for each in found.values()):
            differences.append((at, current.arguments, found))
    text = "\n\n".join(
        "\n".join([f"{at}: {arguments}", *[f"    {name}: {each}" for name, each in found.items()]])
        for at, arguments, found in differences
    )
    assert not differences, text


def test_every_command_of_the_shell_is_in_the_script() -> None:
    """A new command must be added above, or to the commands that work without a server."""
    covered = {words(each.arguments) for each in SCRIPT}
    commands = set()
    for name in Shell.table:
        commands |= {f"{name} {each}".strip() for each in _below(Shell(name="unibus").get_command(None, name))}
    missing = {
        each
        for each in commands - covered
        if each.split()[0] not in WITHOUT_SERVER and not any(each.startswith(known) for known in ONLY_SERVER)
    }
    assert missing == set()
    assert {each.split()[0] for each in covered} <= set(Shell.table)


def words(arguments: tuple[Any, ...]) -> str:
    depth = 1 + (arguments[0] in ("access", "dlq")) + (arguments[:2] == ("dlq", "rules"))
    return " ".join(str(each) for each in arguments[:depth])


def _below(command: Any) -> set[str]:
    found = getattr(command, "commands", None)
    if not found:
        return {""}
    return {f"{name} {below}".strip() for name, each in found.items() for below in _below(each)}
