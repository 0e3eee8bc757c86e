"""Where a server is and by which key; and that no key is in any text."""

import pytest

from unibus.client.address import Address, address_of, is_server
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.errors import BusError, ConfigInvalid, UsageError

KEY = "ab/cd+ef" + "x" * 35 + "="


@pytest.mark.parametrize(
    ("text", "shown", "rule", "key"),
    [
        ("http://localhost:5300", "http://localhost:5300", WELL_KNOWN_NAME, WELL_KNOWN_KEY),
        ("HTTP://127.0.0.1:5300/", "http://127.0.0.1:5300", WELL_KNOWN_NAME, WELL_KNOWN_KEY),
        ("http://[::1]:5300", "http://[::1]:5300", WELL_KNOWN_NAME, WELL_KNOWN_KEY),
        ("https://bus.example.com", "https://bus.example.com", "", ""),
        ("https://bus.example.com:443/below/", "https://bus.example.com/below", "", ""),
        (f"http://sender:{KEY}@host:5300", "http://host:5300", "sender", KEY),
        ("http://a%40b:c%2Fd@host:5300", "http://host:5300", "a@b", "c/d"),
        (
            f"Endpoint=sb://localhost;SharedAccessKeyName=r;SharedAccessKey={KEY}",
            "http://localhost:5300",
            "r",
            KEY,
        ),
        (
            f"Endpoint=sb://bus.example.com/;SharedAccessKeyName=r;SharedAccessKey={KEY};EntityPath=q",
            "https://bus.example.com",
            "r",
            KEY,
        ),
        (
            f"SharedAccessKeyName=r;SharedAccessKey={KEY};Endpoint=sb://bus:5300;UseDevelopmentEmulator=true",
            "http://bus:5300",
            "r",
            KEY,
        ),
    ],
)
def test_an_address(text: str, shown: str, rule: str, key: str) -> None:
    assert is_server(text)
    found = address_of(text, {})
    assert (str(found), found.rule, found.key) == (shown, rule, key)
    assert not key or key == WELL_KNOWN_KEY or key not in repr(found)


@pytest.mark.parametrize("text", ["bus.db", "sqlite:///bus.db", "memory://", "", "C:\\bus.db", "Endpoint=x", "a;b"])
def test_what_names_a_store_names_no_server(text: str) -> None:
    assert not is_server(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        f"http://:{KEY}@host",
        f"http://{KEY}@host",
        f"http://rule:@{KEY}:x",
        f"http://r:{KEY}@host:99999",
        f"http://r:{KEY}@host:port",
        f"http://r:{KEY}@host?x=1",
        f"http://r:{KEY}@ho st",
        f"http://r:{KEY}@[::1",
        f"Endpoint=sb://host;SharedAccessKey={KEY}",
        f"Endpoint=sb://host:99999;SharedAccessKeyName=r;SharedAccessKey={KEY}",
    ],
)
def test_what_cannot_be_read_is_refused_without_the_key(text: str) -> None:
    with pytest.raises(BusError) as caught:
        address_of(text, {})
    assert isinstance(caught.value, UsageError)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "rule", "key"),
    [
        ({"UNIBUS_KEY": "sender:abc"}, "sender", "abc"),
        ({"UNIBUS_KEY": "abc"}, WELL_KNOWN_NAME, "abc"),
        ({"UNIBUS_CONNECTION_STRING": "Endpoint=sb://h:1;SharedAccessKeyName=r;SharedAccessKey=s"}, "r", "s"),
        ({"UNIBUS_CONNECTION_STRING": "Endpoint=sb://other;SharedAccessKeyName=r;SharedAccessKey=s"}, "", ""),
        (
            {
                "UNIBUS_KEY": "first:1",
                "UNIBUS_CONNECTION_STRING": "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=s",
            },
            "first",
            "1",
        ),
        ({}, "", ""),
    ],
)
def test_the_key_of_the_environment(environment: dict[str, str], rule: str, key: str) -> None:
    found = address_of("http://h:5300", environment)
    assert (found.rule, found.key) == (rule, key)


def test_what_is_in_the_address_wins() -> None:
    assert address_of("http://r:k@h", {"UNIBUS_KEY": "other:1"}).key == "k"


def test_a_broken_variable_is_named_without_its_key() -> None:
    with pytest.raises(ConfigInvalid, match="UNIBUS_CONNECTION_STRING") as caught:
        address_of("http://h", {"UNIBUS_CONNECTION_STRING": f"SharedAccessKey={KEY}"})
    assert KEY not in str(caught.value)


def test_a_finished_signature_is_used() -> None:
    text = "Endpoint=sb://localhost:5300;SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=1&skn=z"
    found = address_of(text, {})
    assert found.signature.startswith("SharedAccessSignature sr=")
    assert "sig=y" not in repr(found)


def test_a_port_is_shown_where_it_is_not_the_usual_one() -> None:
    assert str(Address("https", "h", 5300)) == "https://h:5300"
    assert str(Address("https", "::1", 443)) == "https://[::1]"
