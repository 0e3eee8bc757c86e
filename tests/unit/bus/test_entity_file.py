"""Entities from a file, in both formats: reading, planning, and that the same file again changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from unibus.bus.entities.file import CREATE, SAME, UPDATE, DeclarePlan, declare_entities, planned, read_entity_file
from unibus.bus.entities.shapes import WantedEntity, wanted_entities
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.rules import Rule
from unibus.errors import ConfigInvalid, EntityExists, NameInvalid, UsageError
from unibus.sync import MessageBus

OWN: dict[str, Any] = {
    "queues": {"orders": {"lock_duration": 30, "default_ttl": "P1D"}, "late": {"forward_to": "orders"}},
    "topics": {
        "news": {
            "auto_delete_on_idle": "PT10M",
            "subscriptions": {
                "all": {},
                "some": {
                    "max_delivery_count": 3,
                    "rules": {
                        "sql": {"filter": "color = 'red'", "action": "SET seen = TRUE"},
                        "keyed": {"filter": {"correlation_id": "c", "subject": "s", "properties": {"n": 1}}},
                        "none": {"filter": False},
                        "every": {},
                    },
                },
            },
        }
    },
}
EMULATED: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "local",
                "Queues": [
                    {
                        "Name": "queue.1",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": False,
                            "RequiresSession": True,
                        },
                    }
                ],
                "Topics": [
                    {
                        "Name": "topic.1",
                        "Properties": {
                            "DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
                            "RequiresDuplicateDetection": True,
                            "Status": "SendDisabled",
                        },
                        "Subscriptions": [
                            {"Name": "plain"},
                            {
                                "Name": "ruled",
                                "Properties": {"LockDuration": "PT30S", "UserMetadata": ""},
                                "Rules": [
                                    {
                                        "Name": "fields",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "text/plain",
                                                "CorrelationId": "id1",
                                                "Label": "subject1",
                                                "MessageId": "m1",
                                                "ReplyTo": "q",
                                                "ReplyToSessionId": "s0",
                                                "SessionId": "s1",
                                                "To": "xyz",
                                            },
                                        },
                                    },
                                    {
                                        "Name": "own",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {"Properties": {"prop1": "value1"}},
                                        },
                                    },
                                    {
                                        "Name": "sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "sys.To = 'a' AND n = 1"},
                                            "Action": {"SqlExpression": "SET sys.To = 'b'"},
                                        },
                                    },
                                ],
                            },
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def wanted(document: object) -> list[WantedEntity]:
    return wanted_entities(json.dumps(document))


def plan_for(bus: MessageBus, document: object) -> DeclarePlan:
    return planned(bus.entities(), wanted(document))


def declare(bus: MessageBus, document: object) -> list[str]:
    plan = plan_for(bus, document)
    declare_entities(bus._runtime.queues().store, plan)
    return [step.action for step in plan.steps]


def test_our_own_shape() -> None:
    orders, late, news, everything, some = wanted(OWN)
    assert orders == WantedEntity("orders", QUEUE, {"lock_duration": 30.0, "default_ttl": 86_400.0})
    assert late == WantedEntity("late", QUEUE, {"forward_to": "orders"})
    assert news == WantedEntity("news", TOPIC, {"auto_delete_on_idle": 600.0})
    assert everything == WantedEntity("news/Subscriptions/all", SUBSCRIPTION, {})
    assert (some.name, some.settings) == ("news/Subscriptions/some", {"max_delivery_count": 3})
    assert some.rules == (
        Rule("sql", SqlFilter("color = 'red'"), SqlRuleAction("SET seen = TRUE")),
        Rule("keyed", CorrelationFilter("c", {"n": 1}, subject="s")),
        Rule("none", FalseFilter()),
        Rule("every", TrueFilter()),
    )


def test_the_emulators_shape() -> None:
    queue, topic, plain, ruled = wanted(EMULATED)
    assert queue.settings == {
        "dead_letter_on_expiration": True,
        "default_ttl": 3_600.0,
        "dedup_window": 20.0,
        "duplicate_detection": False,
        "forward_dead_letters_to": None,
        "forward_to": None,
        "lock_duration": 60.0,
        "max_delivery_count": 3,
        "requires_session": True,
    }
    assert topic.settings == {"default_ttl": None, "duplicate_detection": True, "status": "send_disabled"}
    assert (plain.settings, plain.rules) == ({}, None)
    assert (ruled.name, ruled.settings) == (
        "topic.1/Subscriptions/ruled",
        {"lock_duration": 30.0, "user_metadata": None},
    )
    fields = {"content_type": "text/plain", "subject": "subject1", "message_id": "m1", "reply_to": "q"}
    fields |= {"reply_to_session_id": "s0", "session_id": "s1", "to": "xyz"}
    assert ruled.rules == (
        Rule("fields", CorrelationFilter("id1", **fields)),
        Rule("own", CorrelationFilter(properties={"prop1": "value1"})),
        Rule("sql", SqlFilter("sys.To = 'a' AND n = 1"), SqlRuleAction("SET sys.To = 'b'")),
    )


@pytest.mark.parametrize("document", [OWN, EMULATED], ids=["own", "emulated"])
def test_a_file_is_declared_once_and_the_same_again_is_nothing(document: object) -> None:
    with MessageBus() as bus:
        first = declare(bus, document)
        assert set(first) == {CREATE}
        before = bus.entities()
        assert set(declare(bus, document)) == {SAME}
        assert bus.entities() == before
        assert len(bus.entities.list()) == len(first)


def test_what_differs_is_updated_and_the_rest_stays() -> None:
    with MessageBus() as bus:
        declare(bus, OWN)
        bus.update_entity("orders", max_count=9)
        bus.entities.create_rule("news", "all", "more", "n = 1")
        changed = json.loads(json.dumps(OWN))
        changed["queues"]["orders"]["lock_duration"] = 40
        del changed["topics"]["news"]["subscriptions"]["some"]["rules"]["none"]
        plan = plan_for(bus, changed)
        steps = {step.name: step for step in plan.steps if step.action != SAME}
        assert set(steps) == {"orders", "news/Subscriptions/some"}
        assert (steps["orders"].settings, steps["orders"].before) == ({"lock_duration": 40.0}, {"lock_duration": 30.0})
        assert steps["orders"].action == UPDATE
        assert bus.entities.get("orders").settings["lock_duration"] == 30  # A plan does nothing.
        declare(bus, changed)
        settings = bus.entities.get("orders").settings
        assert (settings["lock_duration"], settings["max_count"]) == (40, 9)
        assert [rule.name for rule in bus.entities.rules("news", "some")] == ["every", "keyed", "sql"]
        assert [rule.name for rule in bus.entities.rules("news", "all")] == ["$Default", "more"]


def test_a_rule_that_stays_stays_as_old_as_it_is() -> None:
    document: dict[str, Any] = {"topics": {"t": {"subscriptions": {"s": {"rules": {"a": {"filter": "n = 1"}}}}}}}
    with MessageBus() as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "s")
        bus.entities.create_rule("t", "s", "a", "n = 1")
        made_ns = bus.entities.get_rule("t", "s", "a").created_ns
        assert declare(bus, document) == [SAME, UPDATE]
        assert [(rule.name, rule.created_ns) for rule in bus.entities.rules("t", "s")] == [("a", made_ns)]


def test_all_conflicts_are_named_and_nothing_is_done() -> None:
    with MessageBus() as bus:
        bus.create_topic("orders")
        bus.create_queue("by-session")
        document = {
            "queues": {
                "orders": {},
                "new": {},
                "by-session": {"requires_session": True},
                "lost": {"forward_to": "nowhere"},
            }
        }
        plan = plan_for(bus, document)
        assert len(plan.conflicts) == 3
        with pytest.raises(EntityExists) as caught:
            declare_entities(bus._runtime.queues().store, plan)
        for name in ("'orders' is a topic", "requires_session of 'by-session'", "'nowhere'"):
            assert name in caught.value.what
        assert [info.name for info in bus.entities()] == ["by-session", "orders"]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "the file"),
        ({"queue": {}}, "'queue'"),
        ({"queues": []}, "queues"),
        ({"queues": {"q": {"lock_time": 5}}}, "lock_time"),
        ({"queues": {"q": {"lock_duration": "5 minutes"}}}, "'q'"),
        ({"queues": {"q": {}}, "topics": {"Q": {}}}, "twice"),
        ({"topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"filter": "=="}}}}}}}, "rule 'r'"),
        ({"topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"when": "1 = 1"}}}}}}}, "'when'"),
        ({"topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"filter": {"colour": "x"}}}}}}}}, "'colour'"),
        ({"topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"filter": {"to": 5}}}}}}}}, "rule 'r'"),
        ({"UserConfig": {"Namespaces": [{}, {}]}}, "2 namespaces"),
        ({"UserConfig": {"Namespaces": [{"Queues": [{}]}]}}, "no name"),
        ({"UserConfig": {"Namespaces": [{"Queue": [{"Name": "q"}]}]}}, "'queue'"),
        ({"UserConfig": {"Namespace": []}}, "'namespace'"),
        ({"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "LockDuration": "PT1M"}]}]}}, "'lockduration'"),
        ({"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Properties": {"Colour": 1}}]}]}}, "'Colour'"),
        (
            {"UserConfig": {"Namespaces": [{"Queues": [{"Name": "q", "Properties": {"Status": "Renaming"}}]}]}},
            "Renaming",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(document: object, named: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        wanted(document)
    assert named in caught.value.what


@pytest.mark.parametrize(
    ("namespace", "hint"),
    [
        ({"Queue": []}, "did you mean 'queues'?"),
        ({"Queues": [{"Name": "q", "Properties": {"MaxDeliveryCont": 3}}]}, "did you mean 'MaxDeliveryCount'?"),
        ({"Queues": [{"Name": "q", "Properties": {"Colour": 3}}]}, "leave it out"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one_as_a_hint(namespace: object, hint: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        wanted({"UserConfig": {"Namespaces": [namespace]}})
    assert caught.value.hint == hint


def test_names_are_checked() -> None:
    with pytest.raises(NameInvalid):
        wanted({"queues": {"a b": {}}})
    with pytest.raises(NameInvalid):
        wanted({"topics": {"t": {"subscriptions": {"x" * 51: {}}}}})


@pytest.mark.parametrize("text", ["", "{", '{"queues": {"q": {}, "q": {}}}', "[" * 100_000])
def test_text_that_is_no_file(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        wanted_entities(text)


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "entities.json"
    path.write_text(json.dumps(OWN), "utf-8")
    assert read_entity_file(path) == wanted(OWN)
    with pytest.raises(UsageError, match="cannot read"):
        read_entity_file(tmp_path / "missing.json")


def test_a_plan_shows_no_keys() -> None:
    key = "A" * 43 + "="
    rule = {"name": "r", "rights": ["Send"], "primary_key": key, "secondary_key": key}
    with MessageBus() as bus:
        plan = plan_for(bus, {"queues": {"q": {"authorization_rules": [rule]}}})
    assert key not in repr(plan)
    assert key not in str([step.as_record() for step in plan.steps])


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (
            {"queues": {"q": {"lock_duratoin": 30}}},
            "line 1: 'q': an entity has no setting 'lock_duratoin' (did you mean 'lock_duration'?)",
        ),
        (
            {"topics": {"t": {"subscriptons": {"s": {}}}}},
            "line 1: topic 't' has an unknown name 'subscriptons' (did you mean 'subscriptions'?)",
        ),
        (
            {"topics": {"t": {"subscriptions": {"s": {"rules": {"r": {"fliter": "1=1"}}}}}}},
            "line 1: rule 'r' of 't/Subscriptions/s' has an unknown name 'fliter' (did you mean 'filter'?)",
        ),
        ({"qeues": {}}, "line 1: the file has an unknown name 'qeues' (did you mean 'queues'?)"),
        ({"UserConfg": {}}, "line 1: the file has an unknown name 'UserConfg' (did you mean 'UserConfig'?)"),
        (
            {"queues": ["q"]},
            "queues must be a JSON object, got ['q'] (write {\"NAME\": {…}, …})",
        ),
    ],
)
def test_a_misspelt_key_of_our_own_format_names_the_nearest(document: object, text: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        wanted_entities(json.dumps(document))
    assert str(error.value) == text


def test_a_name_that_occurs_twice_in_another_case_is_refused() -> None:
    # The emulator's format ignores case, so one of the two values would be lost silently.
    queue = '{"Name": "q", "Properties": {"LockDuration": "PT1M",\n "lockduration": "PT2M"}}'
    text = '{"UserConfig": {"Namespaces": [{"Queues": [' + queue + "]}]}}"
    with pytest.raises(ConfigInvalid, match=r"line 2: .*'lockduration' occurs twice"):
        wanted_entities(text)
