"""Queues, topics and subscriptions over HTTP: created, updated, read, listed, deleted, refused."""

import msgspec
import pytest

from tests.unit.endpoints.http.administration.conftest import ATOM, Client, Gate, described
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.http.administration.times import time_text

JSON = {"content-type": "application/json", "accept": "application/json"}
UPDATE = {"if-match": "*"}
QUEUE = described("QueueDescription")
FOREVER = "P10675199DT2H48M5.4775807S"


async def test_a_queue_with_the_defaults_of_azure(http: Client, broker: Broker) -> None:
    created = await http("PUT", "/orders", QUEUE, {"content-type": "application/atom+xml"})
    assert created.status == 201
    assert created.headers["content-type"] == "application/atom+xml;type=entry;charset=utf-8"
    entry = created.xml()
    assert entry.findtext(f"{ATOM}title") == "orders"
    assert entry.findtext(f"{ATOM}id") == "http://bus.test:5300/orders"
    properties = created.elements()
    for name in ("CreatedAt", "UpdatedAt", "AccessedAt"):
        properties.pop(name)
    assert properties == {
        "LockDuration": "PT1M",
        "MaxSizeInMegabytes": "1024",
        "RequiresDuplicateDetection": "false",
        "RequiresSession": "false",
        "DefaultMessageTimeToLive": FOREVER,
        "DeadLetteringOnMessageExpiration": "false",
        "DuplicateDetectionHistoryTimeWindow": "PT10M",
        "MaxDeliveryCount": "10",
        "EnableBatchedOperations": "true",
        "SizeInBytes": "0",
        "MessageCount": "0",
        "IsAnonymousAccessible": "false",
        "AuthorizationRules": "",
        "Status": "Active",
        "SupportOrdering": "true",
        "AutoDeleteOnIdle": FOREVER,
        "EnablePartitioning": "false",
        "EntityAvailabilityStatus": "Available",
        "EnableExpress": "false",
    }
    assert (await broker.entity("orders")).settings["ordering"] == "sequence"
    assert (await http("GET", "/ORDERS")).elements()["LockDuration"] == "PT1M"


async def test_every_property_is_returned_as_it_was_given(http: Client) -> None:
    given = {
        "LockDuration": "PT30S",
        "MaxSizeInMegabytes": "2048",
        "RequiresDuplicateDetection": "true",
        "RequiresSession": "true",
        "DefaultMessageTimeToLive": "P1DT2H3M4.5S",
        "DeadLetteringOnMessageExpiration": "true",
        "DuplicateDetectionHistoryTimeWindow": "PT1M",
        "MaxDeliveryCount": "100",
        "EnableBatchedOperations": "false",
        "Status": "ReceiveDisabled",
        "SupportOrdering": "false",
        "AutoDeleteOnIdle": "PT10M",
        "EnablePartitioning": "true",
        "EnableExpress": "true",
        "UserMetadata": "a <b> é",
        "MaxMessageSizeInKilobytes": "2048",
    }
    inner = "".join(f"<{name}>{text.replace('<', '&lt;')}</{name}>" for name, text in given.items())
    assert (await http("PUT", "/q", described("QueueDescription", inner))).status == 201
    found = (await http("GET", "/q")).elements()
    assert {name: found[name] for name in given} == given


async def test_a_second_put_conflicts_and_changes_nothing(http: Client) -> None:
    assert (await http("PUT", "/q", QUEUE)).status == 201
    again = await http("PUT", "/Q", described("QueueDescription", "<LockDuration>PT5S</LockDuration>"))
    assert again.status == 409
    assert again.detail().startswith("MessagingEntityAlreadyExists")
    assert (await http("PUT", "/q", described("TopicDescription"))).status == 409
    assert (await http("GET", "/q")).elements()["LockDuration"] == "PT1M"


async def test_an_update_replaces_what_azure_knows(http: Client, bus: MessageBus, broker: Broker) -> None:
    await broker.create("queue", "target")
    inner = "<RequiresSession>true</RequiresSession><ForwardTo>target</ForwardTo><UserMetadata>x</UserMetadata>"
    await http("PUT", "/q", described("QueueDescription", inner + "<MaxDeliveryCount>3</MaxDeliveryCount>"))
    await broker.update("q", {"max_count": 7})
    changed = await http("PUT", "/q", described("QueueDescription", "<LockDuration>PT5S</LockDuration>"), UPDATE)
    assert changed.status == 200
    properties = changed.elements()
    assert (properties["LockDuration"], properties["MaxDeliveryCount"]) == ("PT5S", "10")
    assert "ForwardTo" not in properties
    assert "UserMetadata" not in properties
    assert properties["RequiresSession"] == "true"
    assert (await broker.entity("q")).settings["max_count"] == 7
    fixed = described("QueueDescription", "<RequiresSession>false</RequiresSession>")
    assert (await http("PUT", "/q", fixed, UPDATE)).status == 400


async def test_an_update_of_nothing(http: Client) -> None:
    missing = await http("PUT", "/none", QUEUE, UPDATE)
    assert missing.status == 404
    assert missing.detail().startswith("MessagingEntityNotFound")
    await http("PUT", "/q", QUEUE)
    assert (await http("PUT", "/q", described("TopicDescription"), UPDATE)).status == 400
    assert (await http("PUT", "/q", QUEUE, {"if-match": "etag"})).status == 400


async def test_delete(http: Client) -> None:
    await http("PUT", "/q", QUEUE)
    gone = await http("DELETE", "/q")
    assert (gone.status, gone.body) == (200, b"")
    assert (await http("GET", "/q")).status == 404
    assert (await http("DELETE", "/q")).status == 404


async def test_topics_and_subscriptions(http: Client) -> None:
    assert (await http("PUT", "/t/subscriptions/s", described("SubscriptionDescription"))).status == 404
    assert (await http("PUT", "/T", described("TopicDescription"))).status == 201
    inner = (
        "<DeadLetteringOnFilterEvaluationExceptions>false</DeadLetteringOnFilterEvaluationExceptions>"
        "<DefaultRuleDescription><Filter i:type='SqlFilter'><SqlExpression>a = 1</SqlExpression></Filter>"
        "<Name>mine</Name></DefaultRuleDescription>"
    )
    made = await http("PUT", "/t/subscriptions/S", described("SubscriptionDescription", inner))
    assert made.status == 201
    assert made.xml().findtext(f"{ATOM}title") == "S"
    assert made.xml().findtext(f"{ATOM}id") == "http://bus.test:5300/T/Subscriptions/S"
    assert made.elements()["DeadLetteringOnFilterEvaluationExceptions"] == "false"
    rules = await http("GET", "/T/Subscriptions/s/Rules")
    assert [each.findtext(f"{ATOM}title") for each in rules.xml().findall(f"{ATOM}entry")] == ["mine"]
    topic = (await http("GET", "/servicebus/topics/T")).elements()
    assert (topic["SubscriptionCount"], topic["SqlFilterCount"], topic["CorrelationFilterCount"]) == ("1", "1", "0")
    listed = await http("GET", "/t/subscriptions")
    assert [each.findtext(f"{ATOM}title") for each in listed.xml().findall(f"{ATOM}entry")] == ["S"]
    assert (await http("GET", "/none/subscriptions")).status == 404
    assert (await http("DELETE", "/T/subscriptions/S")).status == 200
    assert (await http("GET", "/T")).elements()["SubscriptionCount"] == "0"


async def test_counts(http: Client, bus: MessageBus, broker: Broker) -> None:
    await http("PUT", "/q", QUEUE)
    for at in range(3):
        await bus.send("q", f"m{at}")
    await bus.send("q", "later", delay=60)
    received = await broker.receive("q", 2)
    await broker.settle("dead_letter", received[0].token)
    found = await http("GET", "/q")
    details = found.xml().find(".//{*}CountDetails")
    assert details is not None
    assert {child.tag.partition("}")[2]: child.text for child in details} == {
        "ActiveMessageCount": "2",
        "DeadLetterMessageCount": "1",
        "ScheduledMessageCount": "1",
        "TransferDeadLetterMessageCount": "0",
        "TransferMessageCount": "0",
    }
    assert found.elements()["MessageCount"] == "4"
    assert (await http("GET", "/q/$DeadLetterQueue")).elements()["MessageCount"] == "1"


# The kind of a new entity


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/servicebus/queues/e", "QueueDescription", 201),
        ("/servicebus/topics/e", "TopicDescription", 201),
        ("/servicebus/queues/e", "TopicDescription", 400),
        ("/servicebus/topics/e", "QueueDescription", 400),
        ("/servicebus/ns/e", "TopicDescription", 201),
        ("/servicebus/ns/topics/e", "TopicDescription", 201),
        ("/e", "SubscriptionDescription", 400),
        ("/e", "RuleDescription", 400),
        ("/e/subscriptions/s", "QueueDescription", 400),
        ("/servicebus/queues/e/subscriptions/s", "SubscriptionDescription", 400),
    ],
)
async def test_the_body_and_the_address_agree(http: Client, path: str, kind: str, status: int) -> None:
    assert (await http("PUT", path, described(kind))).status == status


async def test_an_address_of_the_other_family_finds_nothing(http: Client) -> None:
    await http("PUT", "/q", QUEUE)
    assert (await http("GET", "/servicebus/queues/q")).status == 200
    assert (await http("GET", "/servicebus/topics/q")).status == 404
    assert (await http("DELETE", "/servicebus/topics/q")).status == 404
    assert (await http("GET", "/q")).status == 200


async def test_without_a_body_the_address_says_the_kind(http: Client) -> None:
    assert (await http("PUT", "/servicebus/queues/q")).status == 201
    assert (await http("PUT", "/servicebus/topics/t")).status == 201
    assert (await http("PUT", "/servicebus/topics/t/subscriptions/s")).status == 201
    assert (await http("PUT", "/t/subscriptions/s2")).status == 201
    refused = await http("PUT", "/unclear")
    assert refused.status == 400
    assert "/servicebus/queues/" in refused.detail()


async def test_names_with_slashes(http: Client) -> None:
    assert (await http("PUT", "/a%2Fb", QUEUE)).status == 201
    assert (await http("GET", "/a/b")).xml().findtext(f"{ATOM}title") == "a/b"
    assert (await http("PUT", "/c/d/e", QUEUE)).status == 201
    assert (await http("GET", "/c%2Fd%2Fe")).status == 200


@pytest.mark.parametrize("first", ["health", "Docs", "unibus", "servicebus"])
async def test_reserved_names_are_not_created_over_http(http: Client, bus: MessageBus, first: str) -> None:
    refused = await http("PUT", f"/servicebus/queues/{first}%2Fx", QUEUE)
    assert refused.status == 400
    assert "which the server reserves" in refused.detail()
    await bus.entities.create_queue(f"{first}/x")
    assert (await http("GET", f"/servicebus/queues/{first}%2Fx")).status == 200
    await bus.entities.create_topic(f"{first}/t")
    assert (await http("PUT", f"/servicebus/topics/{first}%2Ft/subscriptions/s")).status == 201


# Refusals name the property


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("LockDuration", "soon"),
        ("LockDuration", "PT6M"),
        ("LockDuration", FOREVER),
        ("MaxDeliveryCount", "many"),
        ("MaxDeliveryCount", "0"),
        ("MaxSizeInMegabytes", "-1"),
        ("RequiresSession", "maybe"),
        ("DuplicateDetectionHistoryTimeWindow", "P8D"),
        ("AutoDeleteOnIdle", "PT1S"),
        ("Status", "Sleeping"),
        ("UserMetadata", "x" * 1025),
        ("ForwardTo", "sb://host/"),
        ("MaxMessageSizeInKilobytes", "1000000"),
    ],
)
async def test_a_bad_property_is_named(http: Client, element: str, text: str) -> None:
    refused = await http("PUT", "/q", described("QueueDescription", f"<{element}>{text}</{element}>"))
    assert refused.status == 400
    assert element in refused.detail()
    assert (await http("GET", "/q")).status == 404


@pytest.mark.parametrize(
    "body", ["<entry", "{", "[]", "hello", "<!DOCTYPE a><entry/>", '{"no": "such setting"}', b"\xff\xfe"]
)
async def test_a_broken_body(http: Client, body: bytes | str) -> None:
    refused = await http("PUT", "/servicebus/queues/q", body)
    assert refused.status == 400
    assert refused.detail()
    assert (await http("GET", "/q")).status == 404


@pytest.mark.parametrize("name", ["a b", ".a", "a..", "x" * 261, "%C3%A4", "a%00b"])
async def test_a_bad_name(http: Client, name: str) -> None:
    refused = await http("PUT", f"/{name}".replace(" ", "%20"), QUEUE)
    assert refused.status == 400


# Forwarding


@pytest.mark.parametrize("given", ["sb://elsewhere:1/Other/Queue", "https://h/Other/Queue?x=1", "Other/Queue"])
async def test_forward_targets_are_addresses(http: Client, broker: Broker, given: str) -> None:
    await broker.create("queue", "Other/Queue")
    inner = f"<ForwardTo>{given}</ForwardTo><ForwardDeadLetteredMessagesTo>{given}</ForwardDeadLetteredMessagesTo>"
    found = (await http("PUT", "/q", described("QueueDescription", inner))).elements()
    assert found["ForwardTo"] == "sb://bus.test:5300/Other/Queue"
    assert found["ForwardDeadLetteredMessagesTo"] == "sb://bus.test:5300/Other/Queue"
    settings = (await broker.entity("q")).settings
    assert (settings["forward_to"], settings["forward_dead_letters_to"]) == ("Other/Queue", "Other/Queue")


async def test_forwarding_needs_a_right_on_the_target(http: Client, broker: Broker, gate: Gate) -> None:
    await broker.create("queue", "secret")
    gate.forbidden.add(("mine", "secret"))
    body = described("QueueDescription", "<ForwardTo>secret</ForwardTo>")
    refused = await http("PUT", "/q", body, {"authorization": "mine"})
    assert refused.status == 403
    assert (await http("GET", "/q")).status == 404
    assert (await http("PUT", "/q", body, {"authorization": "theirs"})).status == 201
    # Once it is set, the owner of the queue may update other things without a right on the target.
    assert (await http("PUT", "/q", body, {"authorization": "mine", **UPDATE})).status == 200
    again = described("QueueDescription", "<ForwardDeadLetteredMessagesTo>secret</ForwardDeadLetteredMessagesTo>")
    assert (await http("PUT", "/q", again, {"authorization": "mine", **UPDATE})).status == 403
    assert (await broker.entity("q")).settings["forward_to"] == "secret"


# Authorization rules

KEY = "a" * 43 + "="


def access(name: str, rights: str, keys: str = "") -> str:
    listed = "".join(f"<AccessRights>{right}</AccessRights>" for right in rights.split())
    return (
        f"<AuthorizationRule i:type='SharedAccessAuthorizationRule'><Rights>{listed}</Rights>"
        f"<KeyName>{name}</KeyName>{keys}</AuthorizationRule>"
    )


async def test_authorization_rules(http: Client, broker: Broker) -> None:
    keys = f"<PrimaryKey>{KEY}</PrimaryKey><SecondaryKey>{KEY}</SecondaryKey>"
    inner = f"<AuthorizationRules>{access('a', 'Send', keys)}{access('b', 'Listen')}</AuthorizationRules>"
    made = await http("PUT", "/q", described("QueueDescription", inner))
    assert made.status == 201
    first, second = broker.access_rules("q")
    assert (first.name, first.rights, first.primary_key) == ("a", {Right.SEND}, KEY)
    assert len(second.primary_key) == 44  # Made here.
    assert [each.text for each in made.xml().iterfind(".//{*}PrimaryKey")] == [KEY, second.primary_key]
    # A rule that was disabled here stays so, though a document cannot say it.
    await broker.update("q", {"authorization_rules": [first.switched(False)]})
    await http("PUT", "/q", described("QueueDescription", inner), UPDATE)
    assert [rule.enabled for rule in broker.access_rules("q")] == [False, True]
    await http("PUT", "/q", QUEUE, UPDATE)
    assert list(broker.access_rules("q")) == []


@pytest.mark.parametrize(
    "rule",
    [
        access("a", "Own"),
        access("", "Send"),
        access("a", ""),
        access("a", "Send", "<PrimaryKey>short</PrimaryKey>"),
        access("a", "Manage"),
        access("a", "Send").replace("SharedAccess", "Other"),
    ],
)
async def test_bad_authorization_rules(http: Client, rule: str) -> None:
    refused = await http("PUT", "/q", described("QueueDescription", f"<AuthorizationRules>{rule}</AuthorizationRules>"))
    assert refused.status == 400
    assert "AuthorizationRules" in refused.detail()
    assert "short" not in refused.detail()


# JSON


async def test_json_both_ways(http: Client, broker: Broker) -> None:
    made = await http("PUT", "/servicebus/queues/q", '{"lock_duration": "PT30S", "max_delivery_count": 3}', JSON)
    assert made.status == 201
    document = made.document()
    settings = document["settings"]
    assert isinstance(settings, dict)
    assert (document["name"], document["kind"]) == ("q", "queue")
    assert (settings["lock_duration"], settings["max_delivery_count"]) == (30.0, 3)
    assert (settings["ordering"], settings["default_ttl"]) == ("sequence", None)
    changed = await http("PUT", "/q", '{"max_delivery_count": 4}', {**JSON, **UPDATE})
    assert changed.status == 200
    now = (await broker.entity("q")).settings
    assert (now["lock_duration"], now["max_delivery_count"]) == (30.0, 4)
    again = await http("PUT", "/servicebus/queues/copy", made.body, JSON)
    assert again.status == 400  # The whole document is no set of settings.
    only = {name: value for name, value in settings.items() if value is not None}
    assert (await http("PUT", "/servicebus/queues/copy", msgspec.json.encode(only), JSON)).status == 201


async def test_json_of_a_subscription_with_rules(http: Client) -> None:
    await http("PUT", "/t", '{"kind": "topic"}', JSON)
    rules = {"a": {"filter": "x = 1", "action": "SET y = 2"}, "b": {"filter": {"subject": "s"}}, "c": {"filter": False}}
    body = msgspec.json.encode({"rules": rules, "requires_session": True})
    made = await http("PUT", "/t/subscriptions/s", body, JSON)
    assert made.status == 201
    settings = made.document()["settings"]
    assert isinstance(settings, dict)
    assert settings["rules"] == rules
    assert settings["requires_session"] is True


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ('{"lock_duraton": 5}', "lock_duraton"),
        ('{"lock_duration": "soon"}', "soon"),
        ('{"kind": "stack"}', "stack"),
        ('{"kind": "topic"}', "topic"),
        ('{"rules": {}}', "rules"),
        ("[1]", "object"),
    ],
)
async def test_json_that_is_refused(http: Client, body: str, what: str) -> None:
    refused = await http("PUT", "/servicebus/queues/q", body, JSON)
    assert refused.status == 400
    assert what in refused.body.decode()
    error = refused.document()["error"]
    assert isinstance(error, dict)
    assert error["details"]


async def test_json_of_keys(http: Client, broker: Broker) -> None:
    rule = AuthorizationRule("send", frozenset({Right.SEND}), KEY, KEY)
    await broker.create("queue", "q", {"authorization_rules": [rule]})
    settings = (await http("GET", "/q", headers={"accept": "application/json"})).document()["settings"]
    assert isinstance(settings, dict)
    assert settings["authorization_rules"] == [rule.as_dict()]


# Lists


async def test_pages(http: Client, broker: Broker) -> None:
    for at in range(5):
        await broker.create("queue", f"q{at}")
    await broker.create("topic", "t")
    names: list[str | None] = []
    target = "/$Resources/queues?api-version=2024-05&$top=2"
    for _ in range(10):
        feed = (await http("GET", target)).xml()
        names += [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")]
        links = [link.attrib for link in feed.findall(f"{ATOM}link")]
        if len(links) == 1:
            break
        assert [link["rel"] for link in links] == ["self", "next"]
        assert "api-version=2024-05" in links[1]["href"]
        target = links[1]["href"].removeprefix("http://bus.test:5300")
    assert names == [f"q{at}" for at in range(5)]
    document = (await http("GET", "/servicebus/queues?$skip=4&$top=9", headers=JSON)).document()
    assert document["next"] is None
    assert [item["name"] for item in document["items"]] == ["q4"]  # type: ignore[attr-defined]
    assert (await http("GET", "/$Resources/Topics")).xml().findtext(f"{ATOM}entry/{ATOM}title") == "t"


@pytest.mark.parametrize("query", ["$top=0", "$top=x", "$skip=-1", "$top=99999999999", "$skip=1.5"])
async def test_pages_that_cannot_be(http: Client, query: str) -> None:
    assert (await http("GET", f"/$Resources/queues?{query}")).status == 400


async def test_a_page_is_bounded(http: Client, broker: Broker) -> None:
    for at in range(1_001):
        broker.create("queue", f"q{at}")
    document = (await http("GET", "/servicebus/queues?$top=5000", headers=JSON)).document()
    assert len(document["items"]) == 1_000  # type: ignore[arg-type]
    assert document["next"] == "http://bus.test:5300/servicebus/queues?$skip=1000&$top=1000"


async def test_the_namespace(http: Client) -> None:
    found = (await http("GET", "/$namespaceinfo?api-version=2024-05")).elements()
    assert (found["Name"], found["NamespaceType"]) == ("bus.test", "Messaging")
    assert (await http("GET", "/$namespaceinfo", headers={"host": "[::1]:5300"})).elements()["Name"] == "::1"


async def test_the_namespace_has_been_created_at_one_instant(http: Client, broker: Broker) -> None:
    async def times() -> tuple[str, str]:
        found = (await http("GET", "/$namespaceinfo")).elements()
        return found["CreatedTime"], found["ModifiedTime"]

    await broker.create("queue", "first")
    created = time_text((await broker.entity("first")).created_ns)
    await broker.create("queue", "second")
    assert await times() == (created, created)
    await broker.delete("first")
    assert await times() == (created, created)
    await broker.set_namespace_rules([])
    modified = time_text(broker.namespace_updated_ns())
    assert modified > created
    assert await times() == (created, modified)


async def test_an_empty_namespace_was_created_when_its_store_was_opened(http: Client, broker: Broker) -> None:
    before = time_text(broker.created_ns())
    assert (await http("GET", "/$namespaceinfo")).elements()["CreatedTime"] == before
    await broker.set_namespace_rules([])
    assert broker.created_ns() > 0
    assert (await http("GET", "/$namespaceinfo")).elements()["CreatedTime"] == before


async def test_all_operations_ask_for_manage(http: Client, gate: Gate) -> None:
    await http("GET", "/q")
    await http("GET", "/$Resources/queues")
    await http("PUT", "/q", QUEUE)
    assert gate.asked == [("", Right.MANAGE, "q"), ("", Right.MANAGE, ""), ("", Right.MANAGE, "q")]


async def test_a_post_to_an_entity_gets_the_address_for_messages(http: Client) -> None:
    answer = await http("POST", "/q", b"x")
    assert answer.status == 405
    assert "/{entity}/messages" in answer.detail()
