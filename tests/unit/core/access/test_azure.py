"""Tokens of Azure's clients. The Python SDK is asked itself; the others' ways of escaping are written down here."""

import base64
import hmac
import re
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus._base_handler import ServiceBusAzureNamedKeyTokenCredential, ServiceBusSharedKeyCredential
from azure.servicebus._pyamqp.utils import generate_sas_token
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.access.parts import ALL, HOST, LATER_S, NOW_NS, NOW_S, ROOT, access, rule, signed_raw
from unibus.core.access.decide import Access
from unibus.core.access.rights import Right
from unibus.core.access.token import EXPIRY_S_MAX, make_token
from unibus.errors import Unauthorised

PATHS = [
    "",
    "q1",
    "Q1",
    "topic/Subscriptions/x",
    "a/b/c",
    "orders eu",
    "straße",
    "q~1!*'()",
    "a+b",
    "q1/$DeadLetterQueue",
    "数据/队列",
]
RESOURCES = [
    f"{scheme}://{HOST}{port}/{path}" for path in PATHS for scheme in ("sb", "https", "amqps") for port in ("", ":5671")
]


@pytest.mark.parametrize("resource", RESOURCES)
def test_ours_is_the_python_sdks_byte_for_byte(resource: str) -> None:
    theirs = generate_sas_token(resource, ROOT.name, ROOT.primary_key, LATER_S)
    assert make_token(resource, ROOT.name, ROOT.primary_key, LATER_S) == theirs


names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?", fullmatch=True)
# A question mark ends a path.
paths = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="?"), max_size=60)


@given(paths, names, st.binary(min_size=64, max_size=64), st.integers(NOW_S + 1, EXPIRY_S_MAX))
def test_whatever_is_signed(path: str, name: str, random: bytes, expires_s: int) -> None:
    by = rule(name, ALL, 0).rotated(random[:32])
    resource = f"sb://{HOST}/{path}"
    theirs = generate_sas_token(resource, by.name, by.primary_key, expires_s)
    assert make_token(resource, by.name, by.primary_key, expires_s) == theirs
    assert Access([by]).check(theirs, Right.SEND, path.strip("/"), NOW_NS).claims.expires_s == expires_s


@pytest.mark.parametrize("path", PATHS)
def test_the_sdks_own_credentials_are_taken(path: str) -> None:
    resource = f"sb://{HOST}/{path}"
    by_name = ServiceBusSharedKeyCredential(ROOT.name, ROOT.primary_key).get_token(resource)
    by_azure = ServiceBusAzureNamedKeyTokenCredential(AzureNamedKeyCredential(ROOT.name, ROOT.secondary_key))
    now_ns = time.time_ns()  # The SDK has only the real clock; its tokens are valid for an hour.
    for text in (by_name.token, by_azure.get_token(resource).token):
        assert access(hosts=[HOST]).check(text, Right.MANAGE, path, now_ns).claims.rule == ROOT.name


def java(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def small_digits(text: str) -> str:
    return re.sub("%..", lambda escape: escape[0].lower(), text)


ESCAPES: dict[str, Callable[[str], str]] = {
    "Python": quote_plus,
    "JavaScript": lambda text: quote(text, safe="!~*'()"),
    "Java": java,
    ".NET": lambda text: quote_plus(text, safe="!*()").replace("~", "%7E"),
    ".NET before": lambda text: small_digits(quote_plus(text, safe="!*()")),
    "Go": lambda text: quote_plus(text).lower(),
    "PHP": lambda text: quote(text.lower(), safe="").lower(),
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
@pytest.mark.parametrize("path", PATHS)
def test_each_client_escapes_in_its_own_way(escape: Callable[[str], str], path: str) -> None:
    sr = escape(f"sb://{HOST}/{path}")
    text = signed_raw(sr, str(LATER_S), ROOT.name, ROOT.primary_key)
    assert access(hosts=[HOST]).check(text, Right.LISTEN, path, NOW_NS).claims.rule == ROOT.name


def test_a_path_that_needs_no_escape_may_come_without() -> None:
    text = signed_raw(f"http://{HOST}/topic/Subscriptions/x", str(LATER_S), ROOT.name, ROOT.primary_key)
    assert access().check(text, Right.LISTEN, "topic/Subscriptions/x", NOW_NS)


def test_go_signs_a_host_without_a_scheme_for_a_connection_string() -> None:
    text = signed_raw(HOST, str(LATER_S), ROOT.name, ROOT.primary_key)
    assert access(hosts=[HOST]).check(text, Right.LISTEN, "q1", NOW_NS)


def test_a_key_that_signs_as_bytes_is_not_ours() -> None:
    sr = quote_plus(f"sb://{HOST}/q1")
    digest = hmac.digest(base64.b64decode(ROOT.primary_key), f"{sr}\n{LATER_S}".encode(), "sha256")
    text = f"SharedAccessSignature sr={sr}&sig={quote_plus(base64.b64encode(digest))}&se={LATER_S}&skn={ROOT.name}"
    with pytest.raises(Unauthorised):
        access().check(text, Right.SEND, "q1", NOW_NS)
