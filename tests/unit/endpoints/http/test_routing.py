"""From paths to shapes: every family of paths, odd names, and what cannot be read."""

import pytest

from unibus.endpoints.http import routing
from unibus.endpoints.http.routing import Place, place_of
from unibus.errors import DecodeError

TOKEN = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"
LOCKED = {"message": "m", "token": TOKEN}
HELD = {"session": "s", "token": TOKEN}

PATHS = [
    # Azure's bare form
    ("/q", Place("entity", "q")),
    ("/q/", Place("entity", "q")),
    ("//q", Place("entity", "q")),
    ("/q/messages", Place("entity/messages", "q")),
    ("/q/Messages/HEAD", Place("entity/messages/head", "q")),
    ("/q/messages/receive", Place("entity/messages/receive", "q")),
    (f"/q/messages/m/{TOKEN}", Place("entity/messages/*/*", "q", LOCKED)),
    (f"/q/messages/m/{TOKEN}/RenewLock", Place("entity/messages/*/*/renewlock", "q", LOCKED)),
    ("/t/subscriptions", Place("entity/subscriptions", "t")),
    ("/t/subscriptions/s", Place("entity", "t/Subscriptions/s")),
    ("/t/SUBSCRIPTIONS/s/messages/head", Place("entity/messages/head", "t/Subscriptions/s")),
    ("/t/subscriptions/s/rules", Place("entity/rules", "t/Subscriptions/s")),
    ("/t/subscriptions/s/rules/r", Place("entity/rules/*", "t/Subscriptions/s", {"rule": "r"})),
    ("/q/$DeadLetterQueue/messages/head", Place("entity/messages/head", "q/$DeadLetterQueue")),
    ("/q/%24deadletterqueue/messages", Place("entity/messages", "q/$DeadLetterQueue")),
    ("/t/subscriptions/s/$deadletterqueue", Place("entity", "t/Subscriptions/s/$DeadLetterQueue")),
    ("/q/$scheduled/7", Place("entity/$scheduled/*", "q", {"sequence": "7"})),
    ("/q/$sessions", Place("entity/$sessions", "q")),
    ("/q/$Sessions/s", Place("entity/$sessions/*", "q", {"session": "s"})),
    (f"/q/$sessions/s/{TOKEN}", Place("entity/$sessions/*/*", "q", HELD)),
    (f"/q/$sessions/s/{TOKEN}/State", Place("entity/$sessions/*/*/state", "q", HELD)),
    (f"/q/$sessions/s/{TOKEN}/messages/head", Place("entity/$sessions/*/*/messages/head", "q", HELD)),
    # The documented form
    ("/servicebus/queues", Place("/queues", family="queues")),
    ("/servicebus/queues/q", Place("entity", "q", family="queues")),
    ("/ServiceBus/Queues/q/messages", Place("entity/messages", "q", family="queues")),
    (
        "/servicebus/topics/t/subscriptions/s/messages/head",
        Place("entity/messages/head", "t/Subscriptions/s", {}, "topics"),
    ),
    ("/servicebus/queues/health/messages", Place("entity/messages", "health", family="queues")),
    ("/servicebus/queues/servicebus", Place("entity", "servicebus", family="queues")),
    # Another emulator's
    ("/servicebus/ns/q/messages", Place("entity/messages", "q")),
    ("/servicebus/ns/topics/t/messages", Place("entity/messages", "t", family="topics")),
    ("/servicebus/ns/topics", Place("/topics", family="topics")),
    ("/servicebus/ns", Place("/servicebus")),
    # Without an entity
    ("/", Place("/")),
    ("", Place("/")),
    ("/servicebus", Place("/servicebus")),
    ("/health", Place("/health")),
    ("/Health/", Place("/health")),
    ("/servicebus/health/ready", Place("/servicebus/health/ready")),
    ("/$Resources/Queues", Place("/queues", family="queues")),
    ("/servicebus/$resources/topics", Place("/topics", family="topics")),
    ("/$namespaceinfo", Place("/$namespaceinfo")),
    ("/docs", Place("/docs")),
    # Odd names
    ("/a/b/c/messages", Place("entity/messages", "a/b/c")),
    ("/a%2Fb/messages", Place("entity/messages", "a/b")),
    ("/a%2fmessages/messages", Place("entity/messages", "a/messages")),
    ("/messages/messages", Place("entity/messages", "messages")),
    ("/messages", Place("entity", "messages")),
    ("/rules/messages", Place("entity/messages", "rules")),
    ("/a/rules/messages", Place("entity/messages", "a/rules")),
    ("/t/subscriptions/messages/messages/head", Place("entity/messages/head", "t/Subscriptions/messages")),
    ("/t/subscriptions/rules/rules/messages", Place("entity/rules/*", "t/Subscriptions/rules", {"rule": "messages"})),
    ("/t/subscriptions/s/rules/$Default", Place("entity/rules/*", "t/Subscriptions/s", {"rule": "$Default"})),
    ("/subscriptions/messages", Place("entity/messages", "subscriptions")),
    (f"/q/messages/$sessions/{TOKEN}", Place("entity/messages/*/*", "q", {"message": "$sessions", "token": TOKEN})),
    (f"/q/messages/a%2Fb/{TOKEN}", Place("entity/messages/*/*", "q", {"message": "a/b", "token": TOKEN})),
    (f"/q/$sessions/messages/{TOKEN}", Place("entity/$sessions/*/*", "q", {"session": "messages", "token": TOKEN})),
    ("/%C3%A4%20%2B/messages", Place("entity/messages", "ä +")),
    ("/a+b", Place("entity", "a+b")),
    ("/q/messages/a/b/c/d", Place("entity/messages/*/*/c/d", "q", {"message": "a", "token": "b"})),
]


@pytest.mark.parametrize(("path", "place"), PATHS)
def test_paths(path: str, place: Place) -> None:
    assert place_of(path.encode()) == place
    assert place_of(path.encode()) == place  # The second time from memory.


@pytest.mark.parametrize(
    "path",
    ["/q%", "/q%2", "/q%zz/messages", "/%ff", "/q/%C3/messages", "/a//b", "/q//messages", "/servicebus/queues//q"],
)
def test_what_cannot_be_read_is_refused(path: str) -> None:
    for _ in range(2):
        with pytest.raises(DecodeError):
            place_of(path.encode())


def test_the_memory_of_paths_is_bounded() -> None:
    for number in range(routing._PLACES_MAX * 2):
        place_of(b"/queue-%d" % number)
    place_of(b"/" + b"x" * 10_000)
    assert 0 < len(routing._places) <= routing._PLACES_MAX
    assert max(map(len, routing._places)) <= routing._PLACE_BYTES_MAX


def test_a_place_with_parameters_is_not_remembered() -> None:
    path = f"/q/messages/m/{TOKEN}".encode()
    place_of(path)
    assert path not in routing._places
