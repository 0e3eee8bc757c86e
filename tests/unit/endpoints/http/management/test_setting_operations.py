"""Declared entities, rules and authorization rules over the API: what the same commands do to a file."""

import asyncio
import json

import pytest

from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.entities.access import StoredRules
from unibus.bus.entities.file import planned
from unibus.bus.entities.shapes import wanted_entities
from unibus.endpoints.http.application.observation import administrative
from unibus.endpoints.http.management.tables.table import MANAGEMENT
from unibus.errors import ConfigInvalid, DecodeError, EntityExists, EntityNotFound, UsageError

FILE = json.dumps(
    {
        "queues": {"orders": {"max_delivery_count": 3}, "q": {"lock_duration": 30}},
        "topics": {"news": {"subscriptions": {"all": {"rules": {"r": {"filter": "a = 1"}}}}}},
    }
)


# Declaring


async def test_a_dry_run_gives_the_plan_and_does_nothing(api: Api) -> None:
    before = await api.bus.entities()
    found = await api.post("entities/declare", {"text": FILE, "dry_run": True})
    plan = planned(before, wanted_entities(FILE))
    assert found == {"steps": [step.as_record() for step in plan.steps], "conflicts": []}
    assert [info.name for info in await api.bus.entities()] == ["q"]


async def test_declaring_does_what_the_plan_says_and_the_same_again_nothing(api: Api) -> None:
    found = await api.post("entities/declare", {"text": FILE})
    assert [(step["action"], step["name"]) for step in found["steps"]] == [
        ("create", "orders"),
        ("update", "q"),
        ("create", "news"),
        ("create", "news/Subscriptions/all"),
    ]
    assert found["steps"][1]["before"] == {"lock_duration": 60.0}
    again = await api.post("entities/declare", {"text": FILE})
    assert {step["action"] for step in again["steps"]} == {"same"}


async def test_conflicts_are_named_and_nothing_is_done(api: Api) -> None:
    text = json.dumps({"queues": {"new": {}}, "topics": {"q": {}}})
    found = await api.post("entities/declare", {"text": text, "dry_run": True})
    assert len(found["conflicts"]) == 1
    assert same_error(await api.error("POST", "entities/declare", {"text": text}), EntityExists, 409)
    assert [info.name for info in await api.bus.entities()] == ["q"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"queues": 1}', '{"colour": {}}', '{"queues": {"a": {"x": 1}}}', "[" * 100_000, '{"q":NaN}'],
)
async def test_a_text_that_is_no_such_file_is_refused(api: Api, text: str) -> None:
    assert same_error(await api.error("POST", "entities/declare", {"text": text}), ConfigInvalid, 400)
    assert same_error(await api.error("POST", "entities/declare", {"text": text, "more": 1}), DecodeError, 400)


async def test_an_entity_is_deleted_with_all_that_it_has(api: Api) -> None:
    await api.bus.send("q", 1)
    assert await api.post("entities/delete?entity=Q") == {}
    assert same_error(await api.error("POST", "entities/delete?entity=q"), EntityNotFound, 404)
    assert same_error(await api.error("POST", "entities/delete"), UsageError, 400)


# Rules


async def test_rules_are_set_listed_and_deleted(api: Api) -> None:
    await api.post("entities/declare", {"text": FILE})
    of = "?entity=news/Subscriptions/all"
    made = await api.post(f"rules/set{of}", {"name": "s", "filter": {"subject": "x"}, "action": "SET a = 2"})
    assert (made["filter"], made["action"]) == ({"subject": "x"}, "SET a = 2")
    changed = await api.post(f"rules/set{of}", {"name": "S", "filter": False})
    assert changed["filter"] is False
    listed = (await api.get(f"rules{of}"))["rules"]
    assert [(rule["name"], rule["filter"]) for rule in listed] == [("r", "a = 1"), (changed["name"], False)]
    assert listed[1]["created_ns"] > 0
    assert await api.post(f"rules/delete{of}", {"name": "r"}) == {}
    assert same_error(await api.error("POST", f"rules/delete{of}", {"name": "r"}), EntityNotFound, 404)
    assert len((await api.get(f"rules{of}"))["rules"]) == 1


async def test_a_rule_that_cannot_be_is_refused(api: Api) -> None:
    await api.post("entities/declare", {"text": FILE})
    of = "?entity=news/Subscriptions/all"
    for bad in ({"name": "x", "filter": "a ="}, {"name": "x y"}, {"name": "x", "filter": {"nothing": 1}}):
        assert (await api.error("POST", f"rules/set{of}", bad))[0] == 400
    assert same_error(await api.error("POST", f"rules/set{of}", {"name": "x", "more": 1}), DecodeError, 400)
    assert len((await api.get(f"rules{of}"))["rules"]) == 1
    assert (await api.error("GET", "rules?entity=q"))[0] in (400, 404)
    assert same_error(await api.error("POST", "rules/set?entity=none", {"name": "x"}), EntityNotFound, 404)


# Authorization rules


async def test_rules_of_access_are_added_listed_rotated_and_removed(api: Api) -> None:
    made = await api.post("access/add?entity=Q", {"name": "app", "rights": ["Send", "Listen"]})
    assert made == {"name": "app", "rights": ["Listen", "Send"], "entity": "q", "enabled": True}
    await api.post("access/add", {"name": "root", "rights": ["Send", "Listen", "Manage"]})
    assert await api.get("access?entity=q") == {"rules": [made], "next": None}
    everywhere = (await api.get("access"))["rules"]
    assert [(rule["entity"], rule["name"]) for rule in everywhere] == [(None, "root"), ("q", "app")]
    before = StoredRules(api.broker.store, "q").get("app")
    rotated = await api.post("access/rotate?entity=q", {"name": "APP", "show_keys": True})
    assert rotated["secondary_key"] == before.primary_key
    assert rotated["primary_key"] == StoredRules(api.broker.store, "q").get("app").primary_key
    both = await api.post("access/rotate?entity=q", {"name": "app", "both": True, "show_keys": True})
    assert not {both["primary_key"], both["secondary_key"]} & {rotated["primary_key"], rotated["secondary_key"]}
    assert (await api.post("access/remove?entity=q", {"name": "app"}))["name"] == "app"
    assert await api.get("access?entity=q") == {"rules": [], "next": None}


async def test_keys_are_shown_only_where_that_is_asked_for(api: Api) -> None:
    shown = await api.post("access/add", {"name": "a", "rights": ["Send"], "show_keys": True})
    hidden = await api.client("POST", "/unibus/v1/access/rotate", '{"name": "a"}')
    listed = await api.client("GET", "/unibus/v1/access")
    rule = StoredRules(api.broker.store).get("a")
    assert shown["primary_key"] == rule.secondary_key
    for key in (rule.primary_key, rule.secondary_key):
        assert key.encode() not in hidden.body + listed.body


async def test_changes_at_the_same_time_are_all_kept(api: Api) -> None:
    names = [f"r{at}" for at in range(8)]
    await asyncio.gather(*[api.post("access/add", {"name": name, "rights": ["Send"]}) for name in names])
    assert sorted(rule["name"] for rule in (await api.get("access"))["rules"]) == names


async def test_pages_of_access_go_by_the_name_of_the_entity(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unibus.bus.management.settings.access.PAGE_MAX", 2)
    for name in ("a", "b", "c"):
        await api.broker.create("queue", name, {})
        await api.post(f"access/add?entity={name}", {"name": "r", "rights": ["Send"]})
    first = await api.get("access")
    assert ([rule["entity"] for rule in first["rules"]], first["next"]) == (["a", "b"], "b")
    rest = await api.get("access?after=b")
    assert ([rule["entity"] for rule in rest["rules"]], rest["next"]) == (["c"], None)


async def test_a_rule_of_access_that_cannot_be_is_refused(api: Api) -> None:
    good = {"name": "a", "rights": ["Send"]}
    await api.post("access/add", good)
    assert same_error(await api.error("POST", "access/add", good), EntityExists, 409)
    for bad in ({**good, "name": "a b"}, {**good, "rights": ["Fly"]}, {**good, "rights": ["Manage"]}):
        assert (await api.error("POST", "access/add", {**bad, "name": bad["name"] + "x"}))[0] == 400
    for unreadable in ({}, {**good, "rights": []}, {**good, "keys": 1}, {"name": 1, "rights": ["Send"]}):
        assert same_error(await api.error("POST", "access/add", unreadable), DecodeError, 400)
    assert same_error(await api.error("POST", "access/add?entity=none", good), EntityNotFound, 404)
    assert same_error(await api.error("POST", "access/rotate", {"name": "none"}), EntityNotFound, 404)
    assert same_error(await api.error("GET", "access?entity=none"), EntityNotFound, 404)


def test_changes_are_audited_and_queries_are_not() -> None:
    names = administrative(MANAGEMENT)
    assert {"add_access", "rotate_access", "remove_access", "declare_entities", "set_rule"} <= set(names)
    assert "query_store" not in names
