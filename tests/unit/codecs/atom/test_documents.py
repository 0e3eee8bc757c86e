"""Documents as azure-servicebus writes and reads them: its own models are the other side."""

import datetime as dt
from xml.etree import ElementTree

import pytest
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from azure.servicebus.management import _models as public
from azure.servicebus.management._generated import models
from azure.servicebus.management._model_workaround import MODEL_CLASS_ATTRIBUTES
from azure.servicebus.management._utils import deserialize_rule_key_values, serialize_rule_key_values

from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import (
    AccessDescription,
    ActionDescription,
    AtomEntry,
    EntityDescription,
    FilterDescription,
    RuleDescription,
    TypedValue,
)
from unibus.codecs.atom.reading import read_description
from unibus.codecs.atom.writing import entry_document, error_document, feed_document
from unibus.errors import AtomInvalid

KEY = "a" * 43 + "="
STAMP = "2026-11-17T10:00:00.1234567Z"


def sent(body: object) -> bytes:
    return ElementTree.tostring(body.serialize(is_xml=True), encoding="utf-8")  # type: ignore[attr-defined]


def sent_rule(rule: public.RuleProperties) -> bytes:
    body = models.CreateRuleBody(content=models.CreateRuleBodyContent(rule_description=rule._to_internal_entity()))
    element = body.serialize(is_xml=True)
    serialize_rule_key_values(element, rule)
    return ElementTree.tostring(element, encoding="utf-8")


def received_rule(data: bytes) -> public.RuleProperties:
    element = ElementTree.fromstring(data)
    entry = models.RuleDescriptionEntry.deserialize(element)
    rule = public.RuleProperties._from_internal_entity(entry.title, entry.content.rule_description)
    deserialize_rule_key_values(element, rule)
    return rule


def test_the_order_of_elements_is_that_of_the_client() -> None:
    for kind, model in (
        (schema.QUEUE, models.QueueDescription),
        (schema.TOPIC, models.TopicDescription),
        (schema.SUBSCRIPTION, models.SubscriptionDescription),
        (schema.NAMESPACE, models.NamespaceProperties),
    ):
        attributes = [model._attribute_map[name] for name in MODEL_CLASS_ATTRIBUTES[model]]
        structured = {"[AuthorizationRule]": "AuthorizationRules", "MessageCountDetails": "CountDetails"}
        structured["RuleDescription"] = "DefaultRuleDescription"
        names = tuple(structured.get(each["type"], each.get("xml", {}).get("name")) for each in attributes)
        assert schema.ELEMENTS[kind] == names


def test_a_queue_that_the_client_sends() -> None:
    queue = models.QueueDescription(
        lock_duration=dt.timedelta(seconds=30),
        max_size_in_megabytes=2048,
        requires_session=True,
        default_message_time_to_live=dt.timedelta(days=1),
        enable_partitioning=True,
        user_metadata="<&> \u00e9 \u20ac",
        forward_to="sb://localhost:5300/q2",
        authorization_rules=[
            models.AuthorizationRule(
                type="SharedAccessAuthorizationRule",
                claim_type="SharedAccessKey",
                claim_value="None",
                rights=["Manage", "Send", "Listen"],
                key_name="all",
                primary_key=KEY,
                secondary_key=KEY,
            )
        ],
    )
    read = read_description(
        sent(models.CreateQueueBody(content=models.CreateQueueBodyContent(queue_description=queue)))
    )
    assert isinstance(read, EntityDescription)
    assert read.kind == "QueueDescription"
    assert read.values == {
        "LockDuration": "PT30S",
        "MaxSizeInMegabytes": "2048",
        "RequiresSession": "true",
        "DefaultMessageTimeToLive": "P1D",
        "EnablePartitioning": "true",
        "UserMetadata": "<&> \u00e9 \u20ac",
        "ForwardTo": "sb://localhost:5300/q2",
    }
    assert read.access == (AccessDescription("all", ("Manage", "Send", "Listen"), KEY, KEY),)


def test_a_queue_that_the_client_receives() -> None:
    values = {
        "UserMetadata": "a\r\nb <&> \u20ac",
        "LockDuration": "PT30S",
        "EnableBatchedOperations": "true",
        "MessageCount": "7",
        "CreatedAt": STAMP,
        "Status": "ReceiveDisabled",
    }
    access = (AccessDescription("send", ("Send",), KEY, KEY, created_time=STAMP),)
    counts = {"ActiveMessageCount": 4, "DeadLetterMessageCount": 2, "ScheduledMessageCount": 1}
    content = EntityDescription(schema.QUEUE, values, access, counts)
    data = entry_document(AtomEntry("https://h:1/a/b?x=1&y=2", "a/b", content, STAMP, STAMP, "h"))
    entry = models.QueueDescriptionEntry.deserialize(ElementTree.fromstring(data))
    assert (entry.id, entry.title, entry.author.name) == ("https://h:1/a/b?x=1&y=2", "a/b", "h")
    assert entry.published == dt.datetime(2026, 11, 17, 10, 0, 0, 123456, tzinfo=dt.UTC)
    queue = entry.content.queue_description
    assert queue.user_metadata == "a\r\nb <&> \u20ac"
    assert queue.lock_duration == dt.timedelta(seconds=30)
    assert queue.enable_batched_operations is True
    assert queue.status == "ReceiveDisabled"
    assert queue.message_count == 7
    details = queue.message_count_details
    assert (details.active_message_count, details.dead_letter_message_count) == (4, 2)
    assert (details.scheduled_message_count, details.transfer_message_count) == (1, 0)
    rule = queue.authorization_rules[0]
    assert (rule.type, rule.key_name, rule.rights) == ("SharedAccessAuthorizationRule", "send", ["Send"])
    assert (rule.primary_key, rule.secondary_key) == (KEY, KEY)
    assert rule.created_time == dt.datetime(2026, 11, 17, 10, 0, 0, 123456, tzinfo=dt.UTC)


def test_what_is_written_is_in_the_order_of_the_schema() -> None:
    values = dict.fromkeys(reversed(schema.ELEMENTS[schema.TOPIC]), "0")
    data = entry_document(AtomEntry("https://h/t", "t", EntityDescription(schema.TOPIC, values, (), {})))
    topic = ElementTree.fromstring(data).find(f".//{{{schema.SERVICE_BUS}}}TopicDescription")
    assert topic is not None
    assert [child.tag.partition("}")[2] for child in topic] == list(schema.ELEMENTS[schema.TOPIC])
    details = topic.find(f"{{{schema.SERVICE_BUS}}}CountDetails")
    assert details is not None
    assert {child.tag.partition("}")[0][1:] for child in details} == {schema.COUNTS}


def test_a_list_has_a_second_link_where_a_page_follows() -> None:
    content = EntityDescription(schema.QUEUE, {}, (), {})
    entries = [AtomEntry(f"https://h/q{at}", f"q{at}", content) for at in range(2)]
    data = feed_document("https://h/$Resources/queues", "Queues", STAMP, entries, "https://h/l?$skip=2&$top=2")
    feed = models.QueueDescriptionFeed.deserialize(ElementTree.fromstring(data))
    assert [entry.title for entry in feed.entry] == ["q0", "q1"]
    assert [link.href for link in feed.link] == ["https://h/$Resources/queues", "https://h/l?$skip=2&$top=2"]
    data = feed_document("https://h/$Resources/queues", "Queues", STAMP, [])
    feed = models.QueueDescriptionFeed.deserialize(ElementTree.fromstring(data))
    assert len(feed.link) == 1
    assert feed.entry == []


def test_a_namespace() -> None:
    values = {"Name": "ns", "MessagingSKU": "Premium", "MessagingUnits": "1", "NamespaceType": "Messaging"}
    data = entry_document(AtomEntry("https://h/$namespaceinfo", "ns", EntityDescription(schema.NAMESPACE, values)))
    found = models.NamespacePropertiesEntry.deserialize(ElementTree.fromstring(data)).content.namespace_properties
    assert (found.name, found.messaging_sku, found.messaging_units) == ("ns", "Premium", 1)


def test_an_error() -> None:
    error = models.ServiceBusManagementError.deserialize(ElementTree.fromstring(error_document(404, "no <queue>\x00")))
    assert (error.code, error.detail) == (404, "no <queue>\ufffd")


# Rules

VALUES = {
    "int": 5,
    "long": 2**40,
    "string": "x <\u00e9>",
    "double": 1.5,
    "boolean": True,
    "dateTime": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "duration": dt.timedelta(seconds=90),
}
TEXTS = {
    "int": "5",
    "long": str(2**40),
    "string": "x <\u00e9>",
    "double": "1.5",
    "boolean": "true",
    "dateTime": "2026-01-02T03:04:05+00:00",
    "duration": "PT1M30S",
}
TYPED = tuple((name, TypedValue(name, text)) for name, text in TEXTS.items())


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (TrueRuleFilter(), FilterDescription("TrueFilter")),
        (FalseRuleFilter(), FilterDescription("FalseFilter")),
        (SqlRuleFilter("a = @int", parameters=VALUES), FilterDescription("SqlFilter", "a = @int", TYPED)),
        (
            CorrelationRuleFilter(correlation_id="c", label="l", properties=VALUES),
            FilterDescription("CorrelationFilter", "", (), (("CorrelationId", "c"), ("Label", "l")), TYPED),
        ),
    ],
)
def test_rules_of_the_client(given: object, read: FilterDescription) -> None:
    action = SqlRuleAction("SET a = @int", parameters={"@int": 5})
    described = RuleDescription(
        "r", read, ActionDescription("SET a = @int", (("@int", TypedValue("int", "5")),)), STAMP
    )
    assert read_description(
        sent_rule(public.RuleProperties("r", filter=given, action=action, created_at_utc=None))
    ) == described._replace(created_at="")
    received = received_rule(entry_document(AtomEntry("https://h/t/Subscriptions/s/Rules/r", "r", described)))
    assert type(received.filter) is type(given)
    assert received.action.sql_expression == "SET a = @int"
    assert received.action.parameters == {"@int": 5}
    if isinstance(given, CorrelationRuleFilter):
        assert (received.filter.correlation_id, received.filter.label) == ("c", "l")
        assert received.filter.properties == VALUES
    elif read.parameters:
        assert received.filter.sql_expression == "a = @int"
        assert received.filter.parameters == VALUES


def test_a_rule_without_an_action() -> None:
    sent_out = sent_rule(public.RuleProperties("r", filter=TrueRuleFilter(), action=None, created_at_utc=None))
    assert read_description(sent_out) == RuleDescription("r", FilterDescription("TrueFilter"))
    assert received_rule(entry_document(AtomEntry("https://h/r", "r", RuleDescription("r")))).action is None


def described(inner: str) -> EntityDescription | RuleDescription:
    head = f'<entry xmlns="{schema.ATOM}"><content type="application/xml">'
    return read_description(f"{head}{inner}</content></entry>".encode())


def rule(inner: str) -> RuleDescription:
    read = described(f'<RuleDescription xmlns:i="{schema.INSTANCE}">{inner}</RuleDescription>')
    assert isinstance(read, RuleDescription)
    return read


def test_a_filter_without_a_type_is_read_by_its_children() -> None:
    assert rule("<Filter><SqlExpression>a=1</SqlExpression></Filter>").filter == FilterDescription("SqlFilter", "a=1")
    correlation = rule("<Filter><Label>l</Label></Filter><Action><SqlExpression>SET a=1</SqlExpression></Action>")
    assert correlation.filter == FilterDescription("CorrelationFilter", fields=(("Label", "l"),))
    assert correlation.action == ActionDescription("SET a=1")
    assert rule("").filter is None
    pair = "<KeyValueOfstringanyType><Key>k</Key><Value>v</Value></KeyValueOfstringanyType>"
    properties = rule(f"<Filter><Properties>{pair}</Properties></Filter>").filter
    assert properties == FilterDescription("CorrelationFilter", properties=(("k", TypedValue("string", "v")),))


def test_null_values() -> None:
    pair = '<KeyValueOfstringanyType><Key>k</Key><Value i:nil="true"/></KeyValueOfstringanyType>'
    read = rule(f"<Filter i:type='SqlFilter'><SqlExpression>a</SqlExpression><Parameters>{pair}</Parameters></Filter>")
    assert read.filter is not None
    assert read.filter.parameters == (("k", TypedValue("string", None)),)
    written = received_rule(entry_document(AtomEntry("https://h/r", "r", read)))
    assert written.filter.parameters == {"k": None}


@pytest.mark.parametrize(
    ("inner", "what"),
    [
        ("<Filter/>", "neither a type nor elements"),
        ("<Filter i:type='RegexFilter'/>", "RegexFilter"),
        ("<Filter i:type='SqlFilter'/>", "no SqlExpression"),
        ("<Action i:type='Explode'/>", "Explode"),
        ("<Filter i:type='TrueFilter'/><Filter i:type='TrueFilter'/>", "twice"),
        (
            "<Filter><Properties><KeyValueOfstringanyType><Key>k</Key></KeyValueOfstringanyType></Properties></Filter>",
            "no Value",
        ),
        ("<Filter><Label><b/></Label></Filter>", "has child elements"),
    ],
)
def test_a_rule_that_is_refused(inner: str, what: str) -> None:
    with pytest.raises(AtomInvalid, match=what) as refused:
        rule(inner)
    assert refused.value.line == 1


# Reading leniently where Azure does, and strictly elsewhere


def test_any_order_any_namespace_unknown_elements_nil_and_the_alias() -> None:
    read = described(
        f'<QueueDescription xmlns:i="{schema.INSTANCE}"><Unknown><Deep>1</Deep></Unknown>'
        "<EnableDeadLetteringOnMessageExpiration>true</EnableDeadLetteringOnMessageExpiration>"
        '<MaxDeliveryCount>3</MaxDeliveryCount><LockDuration>PT5S</LockDuration><ForwardTo i:nil="true"/>'
        '<CountDetails xmlns="urn:x"><A>1</A></CountDetails></QueueDescription>'
    )
    assert isinstance(read, EntityDescription)
    assert read.values == {"DeadLetteringOnMessageExpiration": "true", "MaxDeliveryCount": "3", "LockDuration": "PT5S"}
    assert read.access is None


def test_a_bare_description_and_a_default_rule() -> None:
    read = read_description(
        b"<SubscriptionDescription><DefaultRuleDescription><Filter><SqlExpression>a=1</SqlExpression></Filter>"
        b"<Name>mine</Name></DefaultRuleDescription></SubscriptionDescription>"
    )
    assert isinstance(read, EntityDescription)
    assert read.default_rule == RuleDescription("mine", FilterDescription("SqlFilter", "a=1"))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"<feed/>", "not an Atom entry"),
        (b"<entry/>", "no content"),
        (b"<entry><content/></entry>", "0 descriptions"),
        (b"<entry><content><QueueDescription/><TopicDescription/></content></entry>", "2 descriptions"),
        (
            b"<QueueDescription><DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>"
            b"<EnableDeadLetteringOnMessageExpiration>false</EnableDeadLetteringOnMessageExpiration></QueueDescription>",
            "twice",
        ),
        (b"<QueueDescription><LockDuration><b/></LockDuration></QueueDescription>", "has child elements"),
    ],
)
def test_documents_that_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(AtomInvalid, match=what):
        read_description(data)
