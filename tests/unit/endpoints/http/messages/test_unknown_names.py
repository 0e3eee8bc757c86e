"""Names in BrokerProperties that neither Azure nor this server knows: accepted, and named once in the log."""

import logging

import msgspec
import pytest

from tests.unit.endpoints.http.messages.conftest import Namespace
from unibus.endpoints.http.unknown_names import NAMES_MAX, UnknownNames
from unibus.endpoints.log_lines import fields_of

BATCH = {"content-type": "application/vnd.microsoft.servicebus.json"}


def reported(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    lines = [each for each in caplog.records if each.getMessage() == "unknown name in BrokerProperties"]
    assert {each.levelno for each in lines} <= {logging.WARNING}
    return [fields_of(each) for each in lines]


async def test_a_misspelt_name_is_accepted_and_named_once(http: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        answer = await http(
            "POST", "/q/messages", "x", {"BrokerProperties": '{"messageId": "1", "Labl": 5, "Colour": "red"}'}
        )
        assert answer.status == 201
        assert answer.properties()["MessageId"] != "1"  # Names have case, as for Azure.
    assert reported(caplog) == [
        {"name": "messageId", "entity": "q", "hint": "did the sender mean MessageId? names are case-sensitive"},
        {"name": "Labl", "entity": "q", "hint": "did the sender mean Label? names are case-sensitive"},
        {"name": "Colour", "entity": "q"},
    ]


async def test_a_misspelt_name_in_a_batch(http: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    items = [{"Body": "a"}, {"Body": "b", "BrokerProperties": {"label": "x", "MessageId": "m"}}]
    answer = await http("POST", "/q/messages", msgspec.json.encode(items), BATCH)
    assert answer.status == 201
    assert reported(caplog) == [
        {"name": "label", "entity": "q", "hint": "did the sender mean Label? names are case-sensitive"}
    ]


async def test_a_received_message_can_be_sent_again(http: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    sent = {"MessageId": "m", "Label": "l", "TimeToLive": 60, "ForcePersistence": True, "ViaPartitionKey": "p"}
    assert (await http("POST", "/q/messages", "x", {"BrokerProperties": msgspec.json.encode(sent).decode()})).status
    for _ in range(2):
        received = await http("POST", "/q/messages/head")
        given = {"BrokerProperties": received.headers["brokerproperties"]}
        assert (await http("POST", "/q/messages", received.body, given)).status == 201
    assert reported(caplog) == []


def test_only_so_many_names_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    unknown = UnknownNames()
    for each in range(NAMES_MAX + 10):
        unknown.report(f"name {each}", (), "q")
    assert len(reported(caplog)) == NAMES_MAX


def test_a_long_name_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    UnknownNames().report("x" * 1_000_000, (), "q")
    [line] = reported(caplog)
    assert line["name"] == "x" * 60
