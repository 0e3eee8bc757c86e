"""The unmodified administration client of Python against our server: rules of every kind."""

import datetime as dt
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.integration.namespace import Namespace

VALUES: dict[str, Any] = {
    "text": "x <&> é",
    "number": 5,
    "large": 2**40,
    "negative": -7,
    "fraction": 1.5,
    "flag": True,
    "moment": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "span": dt.timedelta(days=1, seconds=90),
}


@pytest.fixture(autouse=True)
def _subscription(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("t")
    client.create_subscription("t", "s")


@pytest.mark.parametrize("condition", [TrueRuleFilter(), FalseRuleFilter()])
def test_constant_filters(client: ServiceBusAdministrationClient, condition: SqlRuleFilter) -> None:
    made = client.create_rule("t", "s", "r", filter=condition)
    for found in (made, client.get_rule("t", "s", "r")):
        assert type(found.filter) is type(condition)
        assert found.action is None
        assert found.created_at_utc is not None


def test_sql_with_parameters_and_an_action(client: ServiceBusAdministrationClient) -> None:
    parameters = {f"@{name}": value for name, value in VALUES.items()}
    action = SqlRuleAction(sql_expression="SET a = @number; REMOVE b", parameters={"@number": 5})
    condition = SqlRuleFilter("number = @number AND text <> @text", parameters)
    made = client.create_rule("t", "s", "r", filter=condition, action=action)
    for found in (made, client.get_rule("t", "s", "r"), list(client.list_rules("t", "s"))[1]):
        assert found.name == "r"
        assert found.filter.sql_expression == "number = @number AND text <> @text"
        assert found.filter.parameters == parameters
        assert found.action.sql_expression == "SET a = @number; REMOVE b"
        assert found.action.parameters == {"@number": 5}


def test_correlation_with_typed_properties(client: ServiceBusAdministrationClient) -> None:
    fields = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "to",
        "reply_to": "back",
        "label": "l",
        "session_id": "s",
        "reply_to_session_id": "rs",
        "content_type": "text/plain",
    }
    condition = CorrelationRuleFilter(**fields, properties=VALUES)
    made = client.create_rule("t", "s", "r", filter=condition)
    for found in (made, client.get_rule("t", "s", "r"), list(client.list_rules("t", "s"))[1]):
        assert {name: getattr(found.filter, name) for name in fields} == fields
        assert found.filter.properties == VALUES


def test_update_and_delete(client: ServiceBusAdministrationClient) -> None:
    rule = client.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"))
    created = rule.created_at_utc
    rule.filter = CorrelationRuleFilter(label="x")
    rule.action = SqlRuleAction(sql_expression="SET b = 1")
    client.update_rule("t", "s", rule)
    found = client.get_rule("t", "s", "r")
    assert found.filter.label == "x"
    assert found.action.sql_expression == "SET b = 1"
    assert found.created_at_utc == created
    client.delete_rule("t", "s", "$Default")
    assert [each.name for each in client.list_rules("t", "s")] == ["r"]
    client.delete_rule("t", "s", "r")
    assert list(client.list_rules("t", "s")) == []


def test_the_rules_decide(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    client.delete_rule("t", "s", "$Default")
    client.create_rule("t", "s", "r", filter=CorrelationRuleFilter(properties={"n": 5, "f": True}))
    for headers in ({"n": 5, "f": True}, {"n": 5, "f": False}, {"n": "5", "f": True}):
        namespace.call(lambda given=headers: namespace.bus.send("t", "x", headers=given))  # type: ignore[misc]
    assert client.get_subscription_runtime_properties("t", "s").active_message_count == 1


def test_pages_of_rules(client: ServiceBusAdministrationClient) -> None:
    for at in range(5):
        client.create_rule("t", "s", f"r{at}", filter=SqlRuleFilter(f"a = {at}"))
    pages = client.list_rules("t", "s", max_page_size=4).by_page()
    assert [[rule.name for rule in page] for page in pages] == [["$Default", "r0", "r1", "r2"], ["r3", "r4"]]


def test_errors(client: ServiceBusAdministrationClient) -> None:
    client.create_rule("t", "s", "r")
    with pytest.raises(ResourceExistsError):
        client.create_rule("t", "s", "R")
    with pytest.raises(HttpResponseError, match="bad"):
        client.create_rule("t", "s", "bad", filter=SqlRuleFilter("a = "))
    with pytest.raises(HttpResponseError, match="@x"):
        client.create_rule("t", "s", "bad", filter=SqlRuleFilter("a = @x"))
    with pytest.raises(HttpResponseError):
        client.create_rule("t", "s", "bad", filter=CorrelationRuleFilter())
    for missing in (
        lambda: client.get_rule("t", "s", "none"),
        lambda: client.delete_rule("t", "s", "none"),
        lambda: client.create_rule("t", "none", "r"),
        lambda: list(client.list_rules("t", "none")),
    ):
        with pytest.raises(ResourceNotFoundError):
            missing()
    assert [rule.name for rule in client.list_rules("t", "s")] == ["$Default", "r"]
