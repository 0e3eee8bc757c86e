"""`unibus access`: authorization rules of a store; a key is shown once or never."""

import asyncio
import time
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.decide import Access
from unibus.core.access.rights import Right
from unibus.core.access.rules import well_known_rule
from unibus.core.access.token import make_token
from unibus.errors import AccessRefused

NOW_NS = 1_800_000_000 * 10**9
ADD_ROOT = ("access", "add", "root", "--rights", "Send,Listen,Manage")


def opens(shell: Any, name: str, key: str, right: Right, target: str = "orders", scope: str = "") -> bool:
    """Whether a server on this store would allow it."""

    async def ask() -> bool:
        async with MessageBus(f"sqlite:///{shell.folder}/unibus.db") as bus:
            broker = Broker(bus)
            access = Access(broker.namespace_rules(), broker.access_rules)
            try:
                access.check(make_token(f"sb://h/{scope}", name, key, 1_800_000_060), right, target, NOW_NS)
            except AccessRefused:
                return False
            return True

    return asyncio.run(ask())


def test_a_rule_that_is_added_opens_what_it_says(shell: Any) -> None:
    (record,) = shell.records("access", "add", "web", "--rights", "Send, Listen", "--show")
    assert (record["action"], record["name"], record["rights"], record["entity"]) == (
        "added",
        "web",
        ["Listen", "Send"],
        None,
    )
    for key in (record["primary_key"], record["secondary_key"]):
        assert opens(shell, "web", key, Right.SEND)
        assert not opens(shell, "web", key, Right.MANAGE)


def test_keys_are_shown_only_when_asked_for_and_never_listed(shell: Any) -> None:
    (shown,) = shell.records(*ADD_ROOT, "--show")
    (hidden,) = shell.records("access", "add", "web", "--rights", "Send")
    assert "primary_key" in shown
    assert not [name for name in hidden if "key" in name]
    listing = shell("access", "list").stdout
    assert shown["primary_key"] not in listing
    assert "key" not in listing
    assert [(each["name"], each["rights"], each["enabled"]) for each in shell.records("access", "list")] == [
        ("root", ["Listen", "Manage", "Send"], True),
        ("web", ["Send"], True),
    ]


def test_rotate_keeps_the_old_key_as_the_secondary_once(shell: Any) -> None:
    (first,) = shell.records(*ADD_ROOT, "--show")
    (second,) = shell.records("access", "rotate", "ROOT", "--show")
    assert second["secondary_key"] == first["primary_key"] != second["primary_key"]
    assert opens(shell, "root", first["primary_key"], Right.SEND)
    assert not opens(shell, "root", first["secondary_key"], Right.SEND)
    (third,) = shell.records("access", "rotate", "root", "--both", "--show")
    for key in (second["primary_key"], second["secondary_key"]):
        assert not opens(shell, "root", key, Right.SEND)
    assert opens(shell, "root", third["secondary_key"], Right.SEND)
    assert "primary_key" not in shell.records("access", "rotate", "root")[0]


def test_rules_of_one_entity(shell: Any) -> None:
    shell.records("send", "orders", "x")
    (record,) = shell.records("access", "add", "own", "--rights", "Listen", "--entity", "ORDERS", "--show")
    assert record["entity"] == "orders"
    assert opens(shell, "own", record["primary_key"], Right.LISTEN, "orders", "orders")
    assert not opens(shell, "own", record["primary_key"], Right.LISTEN, "other", "")
    assert [(each["entity"], each["name"]) for each in shell.records("access", "list")] == [("orders", "own")]
    assert shell.records("access", "list", "--entity", "orders")[0]["name"] == "own"
    shell.records("access", "remove", "own", "--entity", "orders")
    assert shell.records("access", "list") == []


def test_a_rule_that_is_removed_opens_nothing(shell: Any) -> None:
    (record,) = shell.records(*ADD_ROOT, "--show")
    assert shell.records("access", "remove", "root")[0]["action"] == "removed"
    assert not opens(shell, "root", record["primary_key"], Right.SEND)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "root", "--rights", "Send"), "a rule 'root' exists already"),
        (("add", "ROOT", "--rights", "Send"), "a rule 'ROOT' exists already"),
        (("add", "x", "--rights", "Read"), "there is no right 'Read'"),
        (("add", "x", "--rights", ""), "rights of a rule are empty"),
        (("add", "x", "--rights", "Manage"), "Manage was given without Send and Listen"),
        (("add", "a b", "--rights", "Send"), "the name of an authorization rule is too long, or has characters"),
        (("add", "x", "--rights", "Send", "--entity", "nowhere"), "there is no queue or topic 'nowhere'"),
        (("add", "x", "--rights", "Send", "--entity", "$namespace"), "there is no queue or topic"),
        (("rotate", "missing"), "the namespace has no rule 'missing'"),
        (("remove", "missing"), "the namespace has no rule 'missing'"),
        (("list", "--entity", "nowhere"), "there is no queue or topic 'nowhere'"),
    ],
)
def test_what_is_refused_changes_nothing(shell: Any, arguments: tuple[str, ...], said: str) -> None:
    shell.records(*ADD_ROOT)
    before = shell.records("access", "list")
    result = shell("access", *arguments)
    assert result.exit_code in (1, 2, 3)
    assert said in result.stderr
    assert shell.records("access", "list") == before


def test_thirteen_rules_are_too_many(shell: Any) -> None:
    for number in range(12):
        shell.records("access", "add", f"r{number}", "--rights", "Send")
    result = shell("access", "add", "r12", "--rights", "Send")
    assert (result.exit_code, "13 authorization rules" in result.stderr) == (2, True)


def test_without_a_store_there_is_nothing_to_list_or_rotate(shell: Any) -> None:
    for arguments in (("list",), ("rotate", "x"), ("remove", "x"), ("add", "x", "--rights", "Send", "--entity", "q")):
        assert shell("access", *arguments).exit_code == 4
    assert not (shell.folder / "unibus.db").exists()


def test_beside_the_owner_it_is_refused(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("fill orders 1")
        assert shell(*ADD_ROOT).exit_code == 4


def test_people_read_lines(shell: Any, terminal: Any) -> None:
    added = terminal("access", "add", "web", "--rights", "Send", "--show")
    assert added.read_all() == 0
    assert "added web: Send on the namespace" in added.output
    assert "primary_key" in added.output
    listed = terminal("access", "list")
    assert listed.read_all() == 0
    assert "web: Send on the namespace" in listed.output
    assert "key" not in listed.output


def test_a_token_opens_what_it_was_made_for(shell: Any) -> None:
    (record,) = shell.records(*ADD_ROOT, "--show")
    string = f"Endpoint=sb://h:1/;SharedAccessKeyName=root;SharedAccessKey={record['primary_key']}"
    token = shell("access", "token", "--connection-string", string, "--entity", "orders", "--for", "10m").stdout.strip()

    async def claims() -> tuple[str, tuple[str, ...], int]:
        async with MessageBus(f"sqlite:///{shell.folder}/unibus.db") as bus:
            broker = Broker(bus)
            found = Access(broker.namespace_rules(), broker.access_rules).identify(token, 1)
            return found.rule, found.scope, found.expires_s or 0

    rule, scope, expires_s = asyncio.run(claims())
    assert (rule, scope) == ("root", ("orders",))
    assert 500 < expires_s - time.time() <= 601


def identified(shell: Any, token: str) -> tuple[str, tuple[str, ...]]:
    async def claims() -> tuple[str, tuple[str, ...]]:
        async with MessageBus(f"sqlite:///{shell.folder}/unibus.db") as bus:
            broker = Broker(bus)
            found = Access(broker.namespace_rules(), broker.access_rules).identify(token, 1)
            return found.rule, found.scope

    return asyncio.run(claims())


def test_a_token_by_a_rule_of_the_store(shell: Any) -> None:
    shell.records(*ADD_ROOT)
    shell.records("send", "orders", "x")
    shell.records("access", "add", "own", "--rights", "Send", "--entity", "orders")
    token = shell("access", "token", "--rule", "ROOT").stdout.strip()
    assert identified(shell, token) == ("root", ())
    token = shell("access", "token", "--rule", "own", "--entity", "orders", "--url", "unibus.db").stdout.strip()
    assert identified(shell, token) == ("own", ("orders",))
    token = shell("access", "token", "--rule", "root", "--entity", "orders").stdout.strip()
    assert identified(shell, token) == ("root", ("orders",))


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--rule", "missing"), 3, "the namespace has no rule 'missing'"),
        (("--rule", "own"), 3, "the namespace has no rule 'own'"),
        (("--rule", "root", "--entity", "nowhere"), 3, "there is no queue or topic 'nowhere'"),
        (("--rule", "root", "--url", "other.db"), 4, "file other.db does not exist"),
        (
            ("--rule", "root", "--connection-string", "Endpoint=sb://h/"),
            2,
            "--rule and --connection-string exclude each other",
        ),
    ],
)
def test_a_token_by_a_rule_that_the_store_does_not_have(
    shell: Any, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    shell.records(*ADD_ROOT)
    result = shell("access", "token", *arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert said in result.stderr


def test_a_token_by_a_rule_of_a_store_in_use(shell: Any) -> None:
    shell.records(*ADD_ROOT)
    with owner_of(shell.folder / "unibus.db"):
        result = shell("access", "token", "--rule", "root")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "a running server does not return keys: pass --connection-string" in result.stderr


def test_a_token_for_a_server_of_this_machine_needs_no_key(shell: Any) -> None:
    token = shell("access", "token").stdout.strip()
    claims = Access([well_known_rule()]).identify(token, 1)
    assert claims.rule == "RootManageSharedAccessKey"
