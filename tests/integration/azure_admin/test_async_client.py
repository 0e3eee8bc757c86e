"""The asynchronous administration client: another transport, the same documents."""

import datetime as dt

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter


async def test_everything_once(async_client: ServiceBusAdministrationClient) -> None:
    client = async_client
    queue = await client.create_queue("q", lock_duration=dt.timedelta(seconds=30), user_metadata="m")
    queue.max_delivery_count = 3
    await client.update_queue(queue)
    assert (await client.get_queue("q")).max_delivery_count == 3
    assert (await client.get_queue_runtime_properties("q")).total_message_count == 0

    topic = await client.create_topic("a/t")
    topic.user_metadata = "topic"
    await client.update_topic(topic)
    assert (await client.get_topic("a/t")).user_metadata == "topic"

    subscription = await client.create_subscription("a/t", "s", forward_to="q")
    subscription.max_delivery_count = 4
    await client.update_subscription("a/t", subscription)
    found = await client.get_subscription("a/t", "s")
    assert (found.max_delivery_count, found.forward_to) == (4, subscription.forward_to)
    assert (await client.get_topic_runtime_properties("a/t")).subscription_count == 1

    condition = SqlRuleFilter("a = @x", {"@x": 1})
    rule = await client.create_rule("a/t", "s", "r", filter=condition, action=SqlRuleAction(sql_expression="SET b = 1"))
    assert rule.filter.parameters == {"@x": 1}
    rule.filter = CorrelationRuleFilter(properties={"k": True})
    await client.update_rule("a/t", "s", rule)
    assert (await client.get_rule("a/t", "s", "r")).filter.properties == {"k": True}
    assert [each.name async for each in client.list_rules("a/t", "s")] == ["$Default", "r"]

    with pytest.raises(ResourceExistsError):
        await client.create_queue("q")
    await client.delete_rule("a/t", "s", "r")
    await client.delete_subscription("a/t", "s")
    await client.delete_topic("a/t")
    with pytest.raises(ResourceNotFoundError):
        await client.get_topic("a/t")
    assert (await client.get_namespace_properties()).name == "localhost"


async def test_pages(async_client: ServiceBusAdministrationClient) -> None:
    for at in range(7):
        await async_client.create_queue(f"q{at}")
    assert [queue.name async for queue in async_client.list_queues(max_page_size=3)] == [f"q{at}" for at in range(7)]
    assert [topic async for topic in async_client.list_topics()] == []
