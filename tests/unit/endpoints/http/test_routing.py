"""From paths to shapes: every family of paths, odd names, and what cannot be read."""

import pytest

from unibus.endpoints.http import routing
from unibus.endpoints.http.routing import RoutedPath, place_of
from unibus.errors import DecodeError

TOKEN = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"
LOCKED = {"message": "m", "token": TOKEN}
HELD = {"session": "s", "token": TOKEN}

PATHS = [
    # Azure's bare form
    ("/q", RoutedPath("entity", "q")),
    ("/q/", RoutedPath("entity", "q")),
    ("//q", RoutedPath("entity", "q")),
    ("/q/messages", RoutedPath("entity/messages", "q")),
    ("/q/Messages/HEAD", RoutedPath("entity/messages/head", "q")),
    ("/q/messages/receive", RoutedPath("entity/messages/receive", "q")),
    (f"/q/messages/m/{TOKEN}", RoutedPath("entity/messages/*/*", "q", LOCKED)),
    (f"/q/messages/m/{TOKEN}/RenewLock", RoutedPath("entity/messages/*/*/renewlock", "q", LOCKED)),
    ("/t/subscriptions", RoutedPath("entity/subscriptions", "t")),
    ("/t/subscriptions/s", RoutedPath("entity", "t/Subscriptions/s")),
    ("/t/SUBSCRIPTIONS/s/messages/head", RoutedPath("entity/messages/head", "t/Subscriptions/s")),
    ("/t/subscriptions/s/rules", RoutedPath("entity/rules", "t/Subscriptions/s")),
    ("/t/subscriptions/s/rules/r", RoutedPath("entity/rules/*", "t/Subscriptions/s", {"rule": "r"})),
    ("/q/$DeadLetterQueue/messages/head", RoutedPath("entity/messages/head", "q/$DeadLetterQueue")),
    ("/q/%24deadletterqueue/messages", RoutedPath("entity/messages", "q/$DeadLetterQueue")),
    ("/t/subscriptions/s/$deadletterqueue", RoutedPath("entity", "t/Subscriptions/s/$DeadLetterQueue")),
    ("/q/$scheduled/7", RoutedPath("entity/$scheduled/*", "q", {"sequence": "7"})),
    ("/q/$sessions", RoutedPath("entity/$sessions", "q")),
    ("/q/$Sessions/s", RoutedPath("entity/$sessions/*", "q", {"session": "s"})),
    (f"/q/$sessions/s/{TOKEN}", RoutedPath("entity/$sessions/*/*", "q", HELD)),
    (f"/q/$sessions/s/{TOKEN}/State", RoutedPath("entity/$sessions/*/*/state", "q", HELD)),
    (f"/q/$sessions/s/{TOKEN}/messages/head", RoutedPath("entity/$sessions/*/*/messages/head", "q", HELD)),
    # The documented form
    ("/servicebus/queues", RoutedPath("/queues", family="queues")),
    ("/servicebus/queues/q", RoutedPath("entity", "q", family="queues")),
    ("/ServiceBus/Queues/q/messages", RoutedPath("entity/messages", "q", family="queues")),
    (
        "/servicebus/topics/t/subscriptions/s/messages/head",
        RoutedPath("entity/messages/head", "t/Subscriptions/s", {}, "topics"),
    ),
    ("/servicebus/queues/health/messages", RoutedPath("entity/messages", "health", family="queues")),
    ("/servicebus/queues/servicebus", RoutedPath("entity", "servicebus", family="queues")),
    # Another emulator's
    ("/servicebus/ns/q/messages", RoutedPath("entity/messages", "q")),
    ("/servicebus/ns/topics/t/messages", RoutedPath("entity/messages", "t", family="topics")),
    ("/servicebus/ns/topics", RoutedPath("/topics", family="topics")),
    ("/servicebus/ns", RoutedPath("/servicebus")),
    # Without an entity
    ("/", RoutedPath("/")),
    ("", RoutedPath("/")),
    ("/servicebus", RoutedPath("/servicebus")),
    ("/health", RoutedPath("/health")),
    ("/Health/", RoutedPath("/health")),
    ("/servicebus/health/ready", RoutedPath("/servicebus/health/ready")),
    ("/$Resources/Queues", RoutedPath("/queues", family="queues")),
    ("/servicebus/$resources/topics", RoutedPath("/topics", family="topics")),
    ("/$namespaceinfo", RoutedPath("/$namespaceinfo")),
    ("/docs", RoutedPath("/docs")),
    # Odd names
    ("/a/b/c/messages", RoutedPath("entity/messages", "a/b/c")),
    ("/a%2Fb/messages", RoutedPath("entity/messages", "a/b")),
    ("/a%2fmessages/messages", RoutedPath("entity/messages", "a/messages")),
    ("/messages/messages", RoutedPath("entity/messages", "messages")),
    ("/messages", RoutedPath("entity", "messages")),
    ("/rules/messages", RoutedPath("entity/messages", "rules")),
    ("/a/rules/messages", RoutedPath("entity/messages", "a/rules")),
    ("/t/subscriptions/messages/messages/head", RoutedPath("entity/messages/head", "t/Subscriptions/messages")),
    (
        "/t/subscriptions/rules/rules/messages",
        RoutedPath("entity/rules/*", "t/Subscriptions/rules", {"rule": "messages"}),
    ),
    ("/t/subscriptions/s/rules/$Default", RoutedPath("entity/rules/*", "t/Subscriptions/s", {"rule": "$Default"})),
    ("/subscriptions/messages", RoutedPath("entity/messages", "subscriptions")),
    (
        f"/q/messages/$sessions/{TOKEN}",
        RoutedPath("entity/messages/*/*", "q", {"message": "$sessions", "token": TOKEN}),
    ),
    (f"/q/messages/a%2Fb/{TOKEN}", RoutedPath("entity/messages/*/*", "q", {"message": "a/b", "token": TOKEN})),
    (
        f"/q/$sessions/messages/{TOKEN}",
        RoutedPath("entity/$sessions/*/*", "q", {"session": "messages", "token": TOKEN}),
    ),
    ("/%C3%A4%20%2B/messages", RoutedPath("entity/messages", "ä +")),
    ("/a+b", RoutedPath("entity", "a+b")),
    ("/q/messages/a/b/c/d", RoutedPath("entity/messages/*/*/c/d", "q", {"message": "a", "token": "b"})),
]


@pytest.mark.parametrize(("path", "place"), PATHS)
def test_paths(path: str, place: RoutedPath) -> None:
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
