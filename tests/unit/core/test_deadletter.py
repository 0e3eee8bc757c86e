"""When a message is dead-lettered, where it goes, and the headers that record why."""

import pytest

from unibus.core.flow import deadletter
from unibus.core.flow.deadletter import (
    DESCRIPTION_CHARS_MAX,
    FILTER_EVALUATION_FAILED,
    HANDLER_REJECTED,
    HEADER_SIZE_EXCEEDED,
    MAX_DELIVERY_COUNT_EXCEEDED,
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    PAYLOAD_MISMATCH,
    QUEUE_OVERFLOW,
    SESSION_ID_IS_NULL,
    TRACEBACK_CHARS_MAX,
    TTL_EXPIRED,
    Verdict,
    after_failure,
    dead_letter_headers,
    is_sub_queue,
    ncb_payload,
    sub_queue,
    target,
    was_dead_lettered,
    without_record,
)

FAILURES = [
    MAX_DELIVERY_COUNT_EXCEEDED,
    HEADER_SIZE_EXCEEDED,
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    SESSION_ID_IS_NULL,
    FILTER_EVALUATION_FAILED,
    HANDLER_REJECTED,
    PAYLOAD_MISMATCH,
    "a reason of the user's own",
]
NOBODYS_FAULT = [TTL_EXPIRED, QUEUE_OVERFLOW]


def record(**changes: object) -> dict[str, str | int]:
    values: dict[str, object] = {
        "reason": MAX_DELIVERY_COUNT_EXCEEDED,
        "description": "no such order",
        "error_type": "LookupError",
        "attempts": 4,
        "channel": "orders",
        "group": "billing",
        "now_ns": 1_700_000_000_000_000_000,
        "traceback": "Traceback …",
    }
    return dead_letter_headers(**(values | changes))  # type: ignore[arg-type]


def test_reasons_that_azure_has_are_spelt_as_azure_does() -> None:
    assert MAX_DELIVERY_COUNT_EXCEEDED == "MaxDeliveryCountExceeded"
    assert TTL_EXPIRED == "TTLExpiredException"
    assert HEADER_SIZE_EXCEEDED == "HeaderSizeExceeded"
    assert MAX_TRANSFER_HOP_COUNT_EXCEEDED == "MaxTransferHopCountExceeded"
    assert SESSION_ID_IS_NULL == "Session ID is null"


@pytest.mark.parametrize(
    ("delivery_count", "verdict"),
    [(1, Verdict.RETRY), (2, Verdict.RETRY), (3, Verdict.DEAD_LETTER), (4, Verdict.DEAD_LETTER)],
)
def test_the_last_allowed_delivery_is_not_followed_by_a_retry(delivery_count: int, verdict: Verdict) -> None:
    # Counted at delivery, checked when it failed.
    assert after_failure(delivery_count, 3) is verdict


def test_with_one_delivery_the_first_failure_is_the_end() -> None:
    assert after_failure(1, 1) is Verdict.DEAD_LETTER


def test_a_permanent_failure_is_never_tried_again() -> None:
    assert after_failure(1, 10, permanent=True) is Verdict.DEAD_LETTER


@pytest.mark.parametrize("reason", FAILURES)
def test_a_failed_message_is_always_kept(reason: str) -> None:
    # Every channel has its own sub-queue; a dead_letter_channel is a forward target.
    assert target("orders", "", reason) == "orders/$DeadLetterQueue"
    assert target("orders", "errors", reason) == "errors"


@pytest.mark.parametrize("reason", NOBODYS_FAULT)
def test_an_expired_or_evicted_message_is_kept_only_where_a_channel_was_named(reason: str) -> None:
    assert target("orders", "", reason) == ""
    assert target("orders", "errors", reason) == "errors"


@pytest.mark.parametrize("reason", FAILURES + NOBODYS_FAULT)
@pytest.mark.parametrize("channel", ["orders/$DeadLetterQueue", "t/Subscriptions/s/$deadletterqueue"])
@pytest.mark.parametrize("named", ["", "errors", "orders/$DeadLetterQueue"])
def test_nothing_leaves_a_sub_queue(reason: str, channel: str, named: str) -> None:
    assert target(channel, named, reason) == ""
    assert target(channel, named, reason, dead_before=True) == ""


@pytest.mark.parametrize("named", ["errors", "Errors"])
def test_a_dead_letter_channel_that_names_itself_does_not_feed_itself(named: str) -> None:
    assert target("errors", named, PAYLOAD_MISMATCH) == "errors/$DeadLetterQueue"


def test_a_dead_letter_is_not_forwarded_a_second_time() -> None:
    assert target("errors", "fatal", PAYLOAD_MISMATCH, dead_before=True) == "errors/$DeadLetterQueue"


@pytest.mark.parametrize("reason", FAILURES + NOBODYS_FAULT)
@pytest.mark.parametrize(
    "named",
    [
        {"a": "a"},
        {"a": "b", "b": "a"},
        {"a": "b", "b": "c", "c": "a"},
        {"a": "b", "b": "b"},
        {"a": "b/$DeadLetterQueue", "b": "a"},
        {},
    ],
)
def test_no_settings_make_a_message_circle(named: dict[str, str], reason: str) -> None:
    channel, headers, path = "a", {}, ["a"]
    while place := target(channel, named.get(channel, ""), reason, was_dead_lettered(headers)):
        headers = record(reason=reason, channel=channel)
        assert place not in path
        path.append(place)
        channel = place
    assert len(path) <= 3


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("orders/$DeadLetterQueue", True),
        ("orders/$DEADLETTERQUEUE", True),
        ("orders", False),
        ("$DeadLetterQueue", False),
        ("orders/$DeadLetterQueue/x", False),
        ("orders$DeadLetterQueue", False),
    ],
)
def test_a_sub_queue_is_known_by_its_name(name: str, is_one: bool) -> None:
    assert is_sub_queue(name) is is_one
    assert is_sub_queue(sub_queue(name))


def test_the_record_says_why_what_how_often_where_and_when() -> None:
    assert record() == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "no such order",
        "DeadLetterErrorType": "LookupError",
        "DeadLetterAttempts": 4,
        "DeadLetterSource": "orders",
        "DeadLetterGroup": "billing",
        "DeadLetterTimeNs": 1_700_000_000_000_000_000,
        "DeadLetterTraceback": "Traceback …",
    }


def test_what_is_not_known_leaves_no_header() -> None:
    bare = record(description="", error_type="", group="", traceback="")
    assert set(bare) == {"DeadLetterReason", "DeadLetterSource", "DeadLetterAttempts", "DeadLetterTimeNs"}


def test_a_long_error_text_keeps_its_beginning_and_a_long_traceback_its_end() -> None:
    text = "begin" + "x" * 100_000 + "end"
    headers = record(reason=text, description=text, error_type=text, traceback=text)
    for name in ("DeadLetterReason", "DeadLetterErrorDescription", "DeadLetterErrorType"):
        value = str(headers[name])
        assert len(value) == DESCRIPTION_CHARS_MAX
        assert value.startswith("begin")
        assert value.endswith("…")
    trace = str(headers["DeadLetterTraceback"])
    assert len(trace) == TRACEBACK_CHARS_MAX
    assert trace.startswith("…")
    assert trace.endswith("end")


def test_a_text_of_just_the_allowed_length_is_kept_whole() -> None:
    text = "x" * DESCRIPTION_CHARS_MAX
    assert record(description=text)["DeadLetterErrorDescription"] == text
    text = "x" * TRACEBACK_CHARS_MAX
    assert record(traceback=text)["DeadLetterTraceback"] == text


def test_error_texts_that_no_encoding_can_write_are_made_writable() -> None:
    headers = record(description="half a pair: \ud800", traceback="\udfff!")
    assert headers["DeadLetterErrorDescription"] == "half a pair: ?"
    assert headers["DeadLetterTraceback"] == "?!"
    for value in headers.values():
        str(value).encode()


def test_a_message_carries_its_record_until_it_gets_a_new_life() -> None:
    own = {"tenant": "acme", "DeadLetterish": 1}
    assert not was_dead_lettered(own)
    dead = own | record()
    assert was_dead_lettered(dead)
    assert without_record(dead) == own
    assert was_dead_lettered(dead)  # Only a copy was cleaned.


def test_every_header_of_the_record_is_removed_for_a_new_life() -> None:
    names = {getattr(deadletter, name) for name in dir(deadletter) if name.endswith("_HEADER")}
    assert names == set(record())
    assert without_record(dict.fromkeys(names, 1)) == {}


def test_programs_for_the_neural_cognitive_bus_find_its_payload() -> None:
    # {origin_channel, subscriber, error_type, error, traceback, message}
    message = {"id": 1}
    payload = ncb_payload(record(), message)
    assert payload == {
        "origin_channel": "orders",
        "subscriber": "billing",
        "error_type": "LookupError",
        "error": "no such order",
        "traceback": "Traceback …",
        "message": {"id": 1},
    }
    assert payload["message"] is message
    assert ncb_payload({}, None)["error"] == ""
