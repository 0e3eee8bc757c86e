"""What an address covers: by whole segments, without case."""

import pytest

from unibus.core.access.scope import Scope, covers, home_of, scope_of, segments_of


@pytest.mark.parametrize("scheme", ["sb", "http", "https", "amqp", "amqps", "SB", "Https"])
@pytest.mark.parametrize("port", ["", ":5671", ":443"])
def test_schemes_and_ports_do_not_matter(scheme: str, port: str) -> None:
    assert scope_of(f"{scheme}://NS.example{port}/Q1") == Scope("ns.example", "Q1", ("q1",))


@pytest.mark.parametrize("uri", ["sb://h", "sb://h/", "sb://h:1", "sb://h:1//"])
def test_an_address_without_a_path_is_the_namespace(uri: str) -> None:
    assert scope_of(uri) == Scope("h", "", ())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "my_service", "a-b.c"])
def test_hosts(host: str) -> None:
    found = scope_of(f"sb://{host}:5672/q/")
    assert found == Scope(host, "q", ("q",))


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/",
        "q1",
        "h/q1",
        "sb:/h/q",
        "sb://",
        "sb:///q1",
        "ftp://h/q",
        "://h/q",
        "sb://user@h/q",
        "sb://user:p@h/q",
        "sb://h:/q",
        "sb://h:port/q",
        "sb://h:123456/q",
        "sb://h?x/q",
        "sb://h#x",
        "sb://h q/",
        "sb://h\\q",
        "sb://hö/q",
        "sb://[::1/q",
        "evil sb://h/q",
        "sb://h\n/q",
    ],
)
def test_what_is_no_address(uri: str) -> None:
    assert scope_of(uri) is None


def test_without_a_scheme_only_a_known_host_is_one() -> None:
    hosts = frozenset({"ns.example"})
    assert scope_of("NS.example/q", hosts) == scope_of("sb://ns.example/q", hosts)
    assert scope_of("ns.example", hosts) == Scope("ns.example", "", ())
    assert scope_of("q1", hosts) is None
    assert scope_of("q1/ns.example", hosts) is None


def test_without_a_scheme_a_port_shows_that_it_is_a_host() -> None:
    """No entity can have a colon in its name. Azure's JavaScript client names the targets of forwarding like this."""
    assert scope_of("localhost:5300") == Scope("localhost", "", ())
    assert scope_of("localhost:5300/q") == Scope("localhost", "q", ("q",))
    assert scope_of("localhost:x/q") is None
    assert scope_of("localhost:") is None


COVERED = [
    ("", "q1"),
    ("", ""),
    ("", "$cbs"),
    ("q1", "q1"),
    ("Q1", "q1"),
    ("q1", "Q1/$DeadLetterQueue"),
    ("topic", "topic/Subscriptions/x"),
    ("topic", "topic/subscriptions/x/$deadletterqueue"),
    ("topic/subscriptions/X", "topic/Subscriptions/x/$DeadLetterQueue"),
    ("orders", "orders/eu"),
    ("q1?api-version=2021-05&x=/y", "q1"),
    ("?api-version=2021-05", "q1"),
    ("straße", "STRASSE"),
]
NOT_COVERED = [
    ("q1", "q10"),
    ("q10", "q1"),
    ("q1", ""),
    ("q1", "q"),
    ("q1", "xq1"),
    ("q1", "x/q1"),
    ("q1", "/q1"),
    ("q1/../q2", "q2"),
    ("q1/..", "q2"),
    (".", "q1"),
    ("a//b", "a/b"),
    ("a/b", "a//b"),
    ("q1?x", "q10"),
    ("q%31", "q1"),
    ("topic/Subscriptions/x", "topic"),
    ("topic/Subscriptions/x", "topic/Subscriptions/xy"),
    ("q1/$DeadLetterQueue", "q1"),
]


@pytest.mark.parametrize(("path", "target"), COVERED)
def test_covered(path: str, target: str) -> None:
    scope = scope_of(f"sb://h/{path}")
    assert scope is not None
    assert covers(scope.segments, segments_of(target))


@pytest.mark.parametrize(("path", "target"), NOT_COVERED)
def test_not_covered(path: str, target: str) -> None:
    scope = scope_of(f"sb://h/{path}")
    assert scope is not None
    assert not covers(scope.segments, segments_of(target))


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("q1", "q1"),
        ("a/b/c", "a/b/c"),
        ("q1/$DeadLetterQueue", "q1"),
        ("q1/$Transfer/$DeadLetterQueue", "q1"),
        ("q1/$management", "q1"),
        ("a/b/Subscriptions/x", "a/b"),
        ("topic/Subscriptions", "topic"),
        ("topic/Subscriptions/x/Rules", "topic"),
        ("Subscriptions/x", ""),
        ("$cbs", ""),
        ("$Resources/queues", ""),
        ("", ""),
    ],
)
def test_what_a_path_belongs_to(path: str, home: str) -> None:
    assert home_of(segments_of(path)) == segments_of(home)
