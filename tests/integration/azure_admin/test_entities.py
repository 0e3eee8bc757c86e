"""The unmodified administration client of Python against our server: queues, topics, subscriptions."""

import datetime as dt
import itertools

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import AuthorizationRule, EntityStatus, ServiceBusAdministrationClient

from tests.integration.azure_admin.conftest import options_of
from tests.integration.namespace import KEY, Namespace

FOREVER = dt.timedelta(days=10675199, seconds=10085, microseconds=477581)


def test_a_queue_with_the_defaults(client: ServiceBusAdministrationClient) -> None:
    made = client.create_queue("orders")
    assert made.name == "orders"
    assert made.lock_duration == dt.timedelta(minutes=1)
    assert made.default_message_time_to_live == FOREVER
    assert made.auto_delete_on_idle == FOREVER
    assert made.duplicate_detection_history_time_window == dt.timedelta(minutes=10)
    assert (made.max_delivery_count, made.max_size_in_megabytes) == (10, 1024)
    assert made.enable_batched_operations is True
    assert [made.requires_session, made.requires_duplicate_detection, made.enable_partitioning] == [False] * 3
    assert [made.enable_express, made.dead_lettering_on_message_expiration] == [False] * 2
    assert made.status == EntityStatus.ACTIVE
    assert made.availability_status == "Available"
    assert (made.forward_to, made.user_metadata, made.authorization_rules) == (None, None, None)
    assert client.get_queue("ORDERS").max_delivery_count == 10


def test_a_queue_with_everything(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("target")
    given = {
        "lock_duration": dt.timedelta(seconds=13),
        "max_size_in_megabytes": 3072,
        "requires_duplicate_detection": True,
        "requires_session": True,
        "default_message_time_to_live": dt.timedelta(minutes=11),
        "dead_lettering_on_message_expiration": True,
        "duplicate_detection_history_time_window": dt.timedelta(minutes=12),
        "max_delivery_count": 100,
        "enable_batched_operations": False,
        "auto_delete_on_idle": dt.timedelta(minutes=10),
        "enable_partitioning": True,
        "enable_express": True,
        "user_metadata": "some <text> & é",
        "max_message_size_in_kilobytes": 2048,
    }
    made = client.create_queue("all", forward_dead_lettered_messages_to="target", **given)  # type: ignore[arg-type]
    read = client.get_queue("all")
    for found in (made, read, next(each for each in client.list_queues() if each.name == "all")):
        assert {name: found[name] for name in given} == given
        assert found.forward_dead_lettered_messages_to.endswith("/target")


def test_an_update_of_a_queue(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    client.create_queue("target")
    queue = client.create_queue("q", user_metadata="old")
    queue.lock_duration = dt.timedelta(seconds=20)
    queue.max_delivery_count = 3
    queue.forward_to = "target"
    queue.user_metadata = None
    queue.status = EntityStatus.SEND_DISABLED
    client.update_queue(queue)
    found = client.get_queue("q")
    assert (found.lock_duration, found.max_delivery_count) == (dt.timedelta(seconds=20), 3)
    assert found.forward_to == f"sb://localhost:{namespace.port}/target"
    assert found.user_metadata is None
    assert found.status == EntityStatus.SEND_DISABLED
    # Every property of an update is in the answer, so the next update changes one thing only.
    client.update_queue(found, max_delivery_count=4)
    again = client.get_queue("q")
    assert (again.max_delivery_count, again.lock_duration) == (4, dt.timedelta(seconds=20))
    again.forward_to = None
    client.update_queue(again)
    assert client.get_queue("q").forward_to is None


def test_forwarding_moves_messages(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    client.create_queue("target")
    client.create_queue("source", forward_to="target")
    namespace.call(lambda: namespace.bus.send("source", "x"))
    assert client.get_queue_runtime_properties("target").active_message_count == 1
    assert client.get_queue_runtime_properties("source").total_message_count == 0


def test_names_with_slashes(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("a/b/c")
    assert client.get_queue("a/b/c").name == "a/b/c"
    client.create_topic("x/y")
    client.create_subscription("x/y", "s")
    assert [each.name for each in client.list_subscriptions("x/y")] == ["s"]
    client.create_queue("fwd", forward_to="a/b/c")
    assert client.get_queue("fwd").forward_to.endswith("/a/b/c")
    client.delete_queue("a/b/c")
    assert [each.name for each in client.list_queues()] == ["fwd"]


def test_authorization_rules(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=["Manage", "Send", "Listen"],
        key_name="mine",
        primary_key=KEY,
        secondary_key=KEY,
    )
    for made in (
        client.create_queue("q", authorization_rules=[rule]),
        client.create_topic("t", authorization_rules=[rule]),
    ):
        (found,) = made.authorization_rules
        assert (found.key_name, found.primary_key, found.secondary_key) == ("mine", KEY, KEY)
        assert sorted(found.rights) == ["Listen", "Manage", "Send"]
        assert (found.claim_type, found.claim_value) == ("SharedAccessKey", "None")
        assert found.type == "SharedAccessAuthorizationRule"
        assert found.created_at_utc is not None
    queue = client.get_queue("q")
    client.update_queue(queue, max_delivery_count=2)
    assert [each.key_name for each in client.get_queue("q").authorization_rules] == ["mine"]


def test_runtime_properties(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    client.create_queue("q")
    client.create_topic("t")
    client.create_subscription("t", "s1")
    client.create_subscription("t", "s2")
    for target in ("q", "t"):
        namespace.call(lambda name=target: namespace.bus.send(name, "body"))  # type: ignore[misc]
    namespace.call(lambda: namespace.bus.send("q", "later", delay=60))
    queue = client.get_queue_runtime_properties("q")
    assert (queue.active_message_count, queue.scheduled_message_count, queue.total_message_count) == (1, 1, 2)
    assert (queue.dead_letter_message_count, queue.transfer_message_count) == (0, 0)
    assert queue.size_in_bytes > 0
    now = dt.datetime.now(dt.UTC)
    for moment in (queue.created_at_utc, queue.updated_at_utc, queue.accessed_at_utc):
        assert abs(moment - now) < dt.timedelta(minutes=5)
    topic = client.get_topic_runtime_properties("t")
    assert (topic.subscription_count, topic.scheduled_message_count) == (2, 0)
    subscription = client.get_subscription_runtime_properties("t", "s1")
    assert (subscription.active_message_count, subscription.total_message_count) == (1, 1)
    assert {each.name: each.total_message_count for each in client.list_queues_runtime_properties()} == {"q": 2}
    assert {each.name: each.subscription_count for each in client.list_topics_runtime_properties()} == {"t": 2}
    listed = client.list_subscriptions_runtime_properties("t")
    assert {each.name: each.active_message_count for each in listed} == {"s1": 1, "s2": 1}


def test_topics(client: ServiceBusAdministrationClient) -> None:
    topic = client.create_topic(
        "t",
        default_message_time_to_live="P1D",
        max_size_in_megabytes=2048,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window="PT1M",
        support_ordering=True,
        user_metadata="m",
        auto_delete_on_idle="PT30M",
    )
    assert topic.default_message_time_to_live == dt.timedelta(days=1)
    assert topic.requires_duplicate_detection is True
    assert topic.duplicate_detection_history_time_window == dt.timedelta(minutes=1)
    assert topic.filtering_messages_before_publishing is False
    topic.default_message_time_to_live = dt.timedelta(days=2)
    client.update_topic(topic)
    found = client.get_topic("T")
    assert found.default_message_time_to_live == dt.timedelta(days=2)
    assert (found.user_metadata, found.auto_delete_on_idle) == ("m", dt.timedelta(minutes=30))
    assert [each.name for each in client.list_topics()] == ["t"]
    client.delete_topic("t")
    with pytest.raises(ResourceNotFoundError):
        client.get_topic("t")


def test_subscriptions(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    client.create_queue("target")
    client.create_topic("t")
    made = client.create_subscription(
        "t",
        "s",
        lock_duration="PT30S",
        requires_session=True,
        default_message_time_to_live=dt.timedelta(hours=1),
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        max_delivery_count=5,
        enable_batched_operations=False,
        user_metadata="u",
        auto_delete_on_idle="PT20M",
        forward_dead_lettered_messages_to="target",
    )
    for found in (made, client.get_subscription("t", "s")):
        assert (found.name, found.lock_duration) == ("s", dt.timedelta(seconds=30))
        assert (found.requires_session, found.dead_lettering_on_filter_evaluation_exceptions) == (True, False)
        assert (found.max_delivery_count, found.enable_batched_operations, found.user_metadata) == (5, False, "u")
        assert found.forward_dead_lettered_messages_to == f"sb://localhost:{namespace.port}/target"
    made.max_delivery_count = 6
    client.update_subscription("t", made)
    assert client.get_subscription("t", "s").max_delivery_count == 6
    assert [rule.name for rule in client.list_rules("t", "s")] == ["$Default"]
    client.delete_subscription("t", "s")
    assert list(client.list_subscriptions("t")) == []


def test_a_thousand_queues_in_pages(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    def create() -> None:
        for at in range(1_000):
            namespace.broker.create("queue", f"q{at:04}")

    namespace.call(create)
    assert [queue.name for queue in client.list_queues()] == [f"q{at:04}" for at in range(1_000)]
    pages = list(itertools.islice(client.list_queues(max_page_size=7).by_page(), 3))
    assert [[queue.name for queue in page] for page in pages] == [
        [f"q{at:04}" for at in range(start, start + 7)] for start in (0, 7, 14)
    ]
    # As a clean-up script does it.
    for at in range(1_000):
        namespace.call(lambda name=f"q{at:04}": namespace.broker.delete(name))  # type: ignore[misc]
    assert list(client.list_queues()) == []


def test_the_namespace(client: ServiceBusAdministrationClient) -> None:
    found = client.get_namespace_properties()
    assert (found.name, found.messaging_sku, found.namespace_type) == ("localhost", "Premium", "Messaging")
    assert found.created_at_utc is not None


def test_plain_http_as_in_microsofts_sample(namespace: Namespace) -> None:
    """How Microsoft shows it for its emulator, which has no TLS: by a private attribute."""
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string, retry_total=0) as opened:
        opened._impl._client._base_url = namespace.url
        opened.create_queue("plain")
        assert [queue.name for queue in opened.list_queues()] == ["plain"]
        opened.delete_queue("plain")


# Errors


def test_what_exists_and_what_does_not(client: ServiceBusAdministrationClient) -> None:
    client.create_queue("q")
    client.create_topic("t")
    client.create_subscription("t", "s")
    unknown = client.get_queue("q")
    unknown.name = "none"
    for again in (
        lambda: client.create_queue("q"),
        lambda: client.create_queue("Q"),
        lambda: client.create_topic("q"),
        lambda: client.create_subscription("t", "s"),
    ):
        with pytest.raises(ResourceExistsError):
            again()
    for missing in (
        lambda: client.get_queue("none"),
        lambda: client.get_queue_runtime_properties("none"),
        lambda: client.delete_queue("none"),
        lambda: client.get_topic("none"),
        lambda: client.get_subscription("t", "none"),
        lambda: client.create_subscription("none", "s"),
        lambda: client.delete_subscription("t", "none"),
        lambda: list(client.list_subscriptions("none")),
        lambda: client.update_queue(unknown),
    ):
        with pytest.raises(ResourceNotFoundError):
            missing()


def test_what_is_invalid(client: ServiceBusAdministrationClient) -> None:
    with pytest.raises(HttpResponseError, match="LockDuration"):
        client.create_queue("q", lock_duration=dt.timedelta(minutes=6))
    with pytest.raises(HttpResponseError, match="MaxDeliveryCount"):
        client.create_queue("q", max_delivery_count=0)
    with pytest.raises(HttpResponseError, match="characters that are not allowed"):
        client.create_queue("no good")
    with pytest.raises(HttpResponseError, match="which the server reserves"):
        client.create_queue("metrics/x")
    queue = client.create_queue("q")
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="requires_session"):
        client.update_queue(queue)
    assert client.get_queue("q").requires_session is False


def test_a_wrong_key(namespace: Namespace) -> None:
    wrong = namespace.connection_string_of("RootManageSharedAccessKey", "b" * 43 + "=")
    options = options_of(namespace)
    with ServiceBusAdministrationClient.from_connection_string(wrong, **options) as stranger:
        with pytest.raises(ClientAuthenticationError):
            stranger.create_queue("q")
        with pytest.raises(ClientAuthenticationError):
            list(stranger.list_queues())


def test_a_key_of_one_entity(client: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    """The client signs for the whole namespace, and the rule of one queue does not hold there."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", rights=["Manage", "Send", "Listen"], key_name="own", primary_key=KEY
    )
    client.create_queue("own", authorization_rules=[rule])
    options = options_of(namespace)
    text = namespace.connection_string_of("own", KEY)
    owner = ServiceBusAdministrationClient.from_connection_string(text, **options)
    with owner, pytest.raises(ClientAuthenticationError):
        list(owner.list_queues())
