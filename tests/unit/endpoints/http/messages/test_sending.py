"""Sending over HTTP: the body is the message, BrokerProperties and headers are its envelope."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from tests.unit.endpoints.http.messages.conftest import Namespace
from unibus.core.access.rights import Right
from unibus.core.envelope.message import Message

BATCH = {"content-type": "application/vnd.microsoft.servicebus.json"}


async def received(http: Namespace, entity: str = "q") -> Message:
    [claimed] = await http.broker.receive(entity)
    return http.broker.decode(claimed)


async def test_a_body_is_stored_as_the_very_bytes(http: Namespace) -> None:
    answer = await http("POST", "/q/messages", b'{"n" :1}\xff', {"content-type": "application/json"})
    assert (answer.status, answer.body) == (201, b"")
    message = await received(http)
    assert answer.properties() == {"MessageId": message.id, "SequenceNumber": 1}
    assert (message.body, message.content_type, dict(message.headers)) == (b'{"n" :1}\xff', "application/json", {})
    assert http.authorization.asked == [(Right.SEND, "q")]
    assert http.observer.answers == [("send", 201, "")]


async def test_broker_properties_become_the_envelope(http: Namespace) -> None:
    given = {
        "MessageId": "m-1",
        "Label": "order",
        "CorrelationId": "c",
        "SessionId": "s",
        "PartitionKey": "s",
        "ReplyTo": "answers",
        "ReplyToSessionId": "rs",
        "To": "you",
        "TimeToLive": 90.5,
        "Priority": 3,
        "Type": "order.created",
        "DeliveryCount": 7,
        "Invented": [1],
        "ViaPartitionKey": None,
    }
    answer = await http("POST", "/q/messages", "x", {"BrokerProperties": msgspec.json.encode(given).decode()})
    assert answer.properties() == {"MessageId": "m-1", "SequenceNumber": 1}
    message = await received(http)
    assert (message.id, message.subject, message.correlation_id, message.session_id) == ("m-1", "order", "c", "s")
    assert (message.reply_to, message.ttl, message.priority, message.type) == ("answers", 90.5, 3, "order.created")
    assert message.properties is not None
    assert (message.properties.to, message.properties.reply_to_session_id, message.properties.partition_key) == (
        "you",
        "rs",
        "s",
    )
    assert message.delivery_count == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ä€𝄞".encode().decode("latin-1"), "ä€𝄞"), ("\\u00e4\\u20ac\\ud834\\udd1e", "ä€𝄞")],
    ids=["raw UTF-8", "escaped"],
)
async def test_text_beyond_ascii_in_broker_properties(http: Namespace, text: str, expected: str) -> None:
    await http("POST", "/q/messages", "x", {"BrokerProperties": f'{{"Label": "{text}", "MessageId": "{text}"}}'})
    answer = await http("POST", "/q/messages/head")
    assert answer.headers["brokerproperties"].isascii()
    assert (answer.properties()["Label"], answer.properties()["MessageId"]) == (expected, expected)


async def test_custom_properties_have_types(http: Namespace) -> None:
    headers = {
        "Priority": '"High"',
        "Customer": '"12345,ABC \\u20ac \\"x\\""',
        "Retries": "3",
        "Ratio": "-0.5e1",
        "Express": "true",
        "Late": "false",
        "Due": "Wed, 02 Jul 2014 01:32:27 GMT",
        "Made": "2014-07-02T01:32:27.5+02:00",
        "Bare": "just text",
        "Zip": "01234",
        "Huge": "123456789012345678901234567890",
        "Local": "2014-07-02T01:32:27",
        "User-Agent": "curl/8",
        "X-Forwarded-For": "10.0.0.1",
        "Cookie": "secret",
        "Authorization": "SharedAccessSignature secret",
    }
    await http("POST", "/q/messages", "x", headers)
    message = await received(http)
    found = dict(message.headers)
    assert found == {
        "priority": "High",
        "customer": '12345,ABC € "x"',
        "retries": 3,
        "ratio": -5.0,
        "express": True,
        "late": False,
        "due": datetime(2014, 7, 2, 1, 32, 27, tzinfo=UTC),
        "made": datetime(2014, 7, 1, 23, 32, 27, 500_000, tzinfo=UTC),
        "bare": "just text",
        "zip": "01234",
        "huge": "123456789012345678901234567890",
        "local": "2014-07-02T01:32:27",
    }
    assert [type(found[name]) for name in ("retries", "ratio", "express")] == [int, float, bool]


async def test_names_of_properties_are_as_the_client_wrote_them_where_the_server_knows(http: Namespace) -> None:
    http.client.keeps_names = True
    headers = {
        "Priority": '"High"',
        "X-Mixed-Case": "1",
        "unibus-properties": f'{{"Exact Name": {{"$uuid": "{UUID(int=1)}"}}}}',
    }
    await http("POST", "/q/messages", "x", headers)
    assert dict((await received(http)).headers) == {"Priority": "High", "X-Mixed-Case": 1, "Exact Name": UUID(int=1)}


async def test_a_batch_is_stored_as_one(http: Namespace) -> None:
    document = [
        {"Body": "eins", "BrokerProperties": {"TimeToLiveTimeSpan": "00:00:40", "MessageId": "one"}},
        {"Body": {"n": 2}, "UserProperties": {"Priority": "Medium", "n": 1, "big": {"$decimal": "1.10"}}},
        {"Body": "AP8=", "IsBodyBase64": True},
    ]
    answer = await http("POST", "/q/messages", msgspec.json.encode(document), BATCH | {"Ignored": '"x"'})
    assert answer.status == 201
    sent = answer.json()
    assert isinstance(sent, list)
    assert [each["SequenceNumber"] for each in sent] == [1, 2, 3]
    assert sent[0]["MessageId"] == answer.properties()["MessageId"] == "one"
    claimed = await http.broker.receive("q", 9)
    one, two, three = [http.broker.decode(each) for each in claimed]
    assert (one.body, one.ttl, one.content_type) == (b"eins", 40.0, None)
    assert (two.body, two.content_type) == (b'{"n":2}', "application/json")
    assert str(two.headers) == "{'Priority': 'Medium', 'n': 1, 'big': Decimal('1.10')}"
    assert (three.body, dict(three.headers)) == (b"\x00\xff", {})


@pytest.mark.parametrize(
    "wrong",
    [
        '{"Body": 1, "BrokerProperties": []}',
        '{"body": "lower case"}',
        '{"Body": "x", "BrokerProperties": {"TimeToLive": -1}}',
        '{"Body": "x", "BrokerProperties": {"MessageId": ""}, "IsBodyBase64": true}, {',
        '{"Body": "***", "IsBodyBase64": true}',
        '{"Body": 1, "IsBodyBase64": true}',
        '{"Body": "x", "UserProperties": {"list": [1]}}',
        '{"Body": "x", "UserProperties": {"u": {"$uuid": "none"}}}',
        '{"Body": "\\ud800"}',
    ],
)
async def test_one_wrong_message_refuses_the_batch(strict: Namespace, wrong: str) -> None:
    answer = await strict("POST", "/q/messages", f'[{{"Body": "fine"}}, {wrong}]', BATCH)
    assert answer.status == 400
    assert answer.code() in ("decode_error", "usage", "header_invalid")
    assert await strict.settled_counts("q") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("document", ["[]", "{}", "", "[1]", "null", "[" * 100_000])
async def test_what_is_no_batch(strict: Namespace, document: str) -> None:
    answer = await strict("POST", "/q/messages", document, BATCH)
    assert (answer.status, await strict.settled_counts("q")) == (400, (0, 0, 0, 0, 0))


async def test_a_batch_of_too_many(http: Namespace) -> None:
    answer = await http("POST", "/q/messages", "[" + ",".join(["{}"] * 10_001) + "]", BATCH)
    assert (answer.status, answer.code()) == (400, "usage")


async def test_a_duplicate_is_said_to_be_one(http: Namespace) -> None:
    await http.broker.create("queue", "once", {"duplicate_detection": True})
    headers = {"BrokerProperties": '{"MessageId": "same"}'}
    first = await http("POST", "/once/messages", "x", headers)
    second = await http("POST", "/once/messages", "x", headers)
    assert (first.status, second.status) == (201, 201)
    assert "Duplicate" not in first.properties()
    assert (second.properties()["MessageId"], second.properties()["Duplicate"]) == ("same", True)
    assert (await http.settled_counts("once"))[0] == 1


async def test_the_json_envelope_is_read_only_when_it_is_asked_for(http: Namespace) -> None:
    envelope = (
        '{"body": "hello", "label": "l", "session_id": "s", "timeToLive": 60, "userProperties": {"p": "high", "n": 2}}'
    )
    plain = await http("POST", "/q/messages", envelope, {"content-type": "application/json"})
    assert (await received(http)).body == envelope.encode()
    answer = await http("POST", "/q/messages?envelope=json", envelope)
    assert (plain.status, answer.status) == (201, 201)
    message = await received(http)
    assert (message.body, message.subject, message.session_id, message.ttl) == (b"hello", "l", "s", 60.0)
    assert dict(message.headers) == {"p": "high", "n": 2}
    assert answer.json() == answer.properties() == {"MessageId": message.id, "SequenceNumber": 2}


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/q/messages?envelope=xml", "{}"),
        ("/q/messages?envelope=json", ""),
        ("/q/messages?envelope=json", "[]"),
        ("/q/messages?envelope=json", '{"body": "x", "timeToLive": "60"}'),
        ("/q/messages?envelope=json", '{"body": "x", "timeToLive": 0}'),
        ("/q/messages?envelope=json", '{"body": "x", "label": 1}'),
        ("/q/messages?envelope=json", '{"body": "x", "userProperties": []}'),
        ("/q/messages?envelope=json", '{"body": "x", "unknown": 1}'),
        ("/q/messages?envelope=json", '{"body": "x", "scheduledEnqueueTimeUtc": 1}'),
    ],
)
async def test_wrong_envelopes(strict: Namespace, target: str, body: str) -> None:
    answer = await strict("POST", target, body)
    assert (answer.status, await strict.settled_counts("q")) == (400, (0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "x",
        "[]",
        "1",
        "null",
        '"text"',
        '{"MessageId": 5}',
        '{"Label": ["x"]}',
        '{"TimeToLive": -1}',
        '{"TimeToLive": 0}',
        f'{{"TimeToLive": -1{"0" * 400}}}',
        '{"TimeToLive": "60"}',
        '{"TimeToLive": true}',
        '{"TimeToLiveTimeSpan": "soon"}',
        '{"ScheduledEnqueueTimeUtc": "tomorrow"}',
        '{"ScheduledEnqueueTimeUtc": "2024-02-30T00:00:00Z"}',
        '{"ScheduledEnqueueTimeUtc": "9999-12-31T00:00:00Z"}',
        '{"Priority": 256}',
        '{"Priority": "high"}',
        '{"SessionId": "a", "PartitionKey": "b"}',
        '{"MessageId": "\\ud800"}',
        '{"Label": "\xff"}',
        f'{{"MessageId": "{"x" * 129}"}}',
        "[" * 60_000,
    ],
)
async def test_wrong_broker_properties(strict: Namespace, properties: str) -> None:
    answer = await strict("POST", "/q/messages", "x", {"BrokerProperties": properties})
    assert answer.status == 400, answer
    assert answer.code() in ("decode_error", "usage", "priority_invalid")
    assert await strict.settled_counts("q") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("value", ['"half', '"a" "b"', '"C:\\dir"', "\xff\xfe"])
async def test_wrong_property_headers(strict: Namespace, value: str) -> None:
    answer = await strict("POST", "/q/messages", "x", {"Prop": value})
    assert (answer.status, answer.code()) == (400, "header_invalid")
    assert await strict.settled_counts("q") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "value", ["", "[]", "{", '{"a": [1]}', '{"a": {"$uuid": 1}}', '{"a": {"$nothing": 1}}', "\xff"]
)
async def test_wrong_exact_properties(strict: Namespace, value: str) -> None:
    answer = await strict("POST", "/q/messages", "x", {"unibus-properties": value})
    assert (answer.status, await strict.settled_counts("q")) == (400, (0, 0, 0, 0, 0))


async def test_azures_for_ever_is_no_limit(http: Namespace) -> None:
    answer = await http("POST", "/q/messages", "x", {"BrokerProperties": '{"TimeToLive": 922337203685.47754}'})
    assert answer.status == 201
    assert (await received(http)).ttl is None


async def test_an_unknown_entity(http: Namespace) -> None:
    answer = await http("POST", "/nothing/messages", "x")
    assert (answer.status, answer.code()) == (404, "MessagingEntityNotFound")


async def test_a_body_that_is_too_large(http: Namespace) -> None:
    answer = await http("POST", "/q/messages", b"x" * 1_000_001)
    assert (answer.status, answer.code()) == (413, "MessageSizeExceeded")


async def test_an_error_as_azure_writes_it(http: Namespace) -> None:
    answer = await http("POST", "/nothing/messages", "x", {"accept": "*/*", "x-correlation-id": "abc-1"})
    assert answer.headers["content-type"].startswith("application/xml")
    assert answer.body.startswith(b"<Error><Code>404</Code><Detail>MessagingEntityNotFound")
    assert answer.headers["x-correlation-id"] == "abc-1"


@pytest.mark.parametrize("form", ["iso", "http"])
async def test_schedule_and_cancel(http: Namespace, form: str) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=300)
    text = at.isoformat() if form == "iso" else at.strftime("%a, %d %b %Y %H:%M:%S GMT")
    properties = msgspec.json.encode({"ScheduledEnqueueTimeUtc": text}).decode()
    sequence = (await http("POST", "/q/messages", "x", {"BrokerProperties": properties})).properties()["SequenceNumber"]
    assert await http.settled_counts("q") == (0, 0, 1, 0, 0)
    [seen] = (await http("GET", "/q/messages?count=10")).json()  # type: ignore[misc]
    assert (seen["State"], seen["ScheduledEnqueueTimeUtc"]) == ("Scheduled", at.isoformat().replace("+00:00", "Z"))
    assert (await http("POST", "/q/messages/head")).status == 204
    assert (await http("DELETE", f"/q/$scheduled/{sequence}")).status == 200
    assert http.authorization.asked[-1] == (Right.SEND, "q")
    again = await http("DELETE", f"/q/$scheduled/{sequence}")
    assert (again.status, again.code()) == (404, "MessageNotFound")
    for wrong in ("x", "-1", "99999999999999999999"):
        assert (await http("DELETE", f"/q/$scheduled/{wrong}")).status == 400


async def test_a_topic_fans_out_and_each_subscription_receives(http: Namespace) -> None:
    await http.broker.create("topic", "t", {})
    for name in ("one", "two"):
        await http.broker.create("subscription", f"t/Subscriptions/{name}", {})
    answer = await http("POST", "/servicebus/topics/t/messages", "news", {"Kind": '"local"'})
    assert answer.status == 201
    paths = (
        "/t/subscriptions/one",
        "/servicebus/topics/t/Subscriptions/one",
        "/servicebus/ns/topics/t/subscriptions/two",
    )
    first, none, second = [await http("POST", f"{path}/messages/head") for path in paths]
    assert (first.status, first.body, first.headers["kind"]) == (201, b"news", '"local"')
    assert (none.status, second.status) == (204, 201)
    location = second.headers["location"].removeprefix("http://bus.test:5300")
    assert location.startswith("/servicebus/topics/t/Subscriptions/two/messages/1/")
    assert (await http("DELETE", location)).status == 200


async def test_a_trace_goes_with_the_message(http: Namespace) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await http("POST", "/q/messages", "x", {"traceparent": parent, "tracestate": "a=1"})
    answer = await http("POST", "/q/messages/head")
    assert (answer.headers["traceparent"], answer.headers["tracestate"]) == (parent, "a=1")
    for wrong in ("x", parent.upper(), parent.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), "ff" + parent[2:]):
        assert (await http("POST", "/q/messages", "x", {"traceparent": wrong})).status == 201
        assert "traceparent" not in (await http("DELETE", "/q/messages/head")).headers


async def test_a_time_to_live_beyond_all_floats_is_no_limit(http: Namespace) -> None:
    properties = {"BrokerProperties": f'{{"TimeToLive": 1{"0" * 400}}}'}
    assert (await http("POST", "/q/messages", "x", properties)).status == 201
    # That of its queue is left.
    assert (await http("DELETE", "/q/messages/head")).properties()["TimeToLive"] == 14 * 24 * 3600


async def test_a_batch_beyond_the_burst_of_its_queue_is_refused(http: Namespace) -> None:
    """It is never admitted, so there is no time after which to try again."""
    await http.broker.create("queue", "slow", {"max_sends_per_second": 1})
    answer = await http("POST", "/slow/messages", msgspec.json.encode([{"Body": "x"}] * 3), BATCH)
    assert (answer.status, answer.code()) == (429, "ServerBusy")
    assert "retry-after" not in answer.headers
    assert await http.settled_counts("slow") == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "item",
    [
        {"UserProperties": {"Note": "y" * 70_000}},
        {"UserProperties": {"Note": "ü" * 11_000}},
        {"UserProperties": {f"Note{number}": "y" * 1_000 for number in range(70)}},
        {"BrokerProperties": {"Label": "y" * 70_000}},
    ],
)
async def test_properties_that_no_header_could_give_back_are_refused(http: Namespace, item: dict[str, object]) -> None:
    """The message could be sent and not be received: no client reads a header of that size."""
    answer = await http("POST", "/q/messages", msgspec.json.encode([{"Body": "fits"}, {"Body": "x", **item}]), BATCH)
    assert (answer.status, answer.code()) == (413, "MessageSizeExceeded")
    assert await http.settled_counts("q") == (0, 0, 0, 0, 0)
    envelope = msgspec.json.encode({"body": "x", "userProperties": {"Note": "y" * 70_000}})
    assert (await http("POST", "/q/messages?envelope=json", envelope)).status == 413
    assert (await http("POST", "/q/messages", "x", {"Note": "y" * 70_000})).status == 413
