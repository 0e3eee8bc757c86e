"""A server that others could reach without TLS and keys does not start, unless a setting says so."""

from typing import Any

import pytest

from unibus.config.settings import ServerSettings
from unibus.endpoints.server.exposure import check_exposure
from unibus.endpoints.transport.connections import Connections
from unibus.endpoints.transport.first_byte import AMQP_HEADER, ConnectionRefusal, Protocols
from unibus.errors import ConfigInvalid

ELSEWHERE = {"host": ("127.0.0.1", "0.0.0.0")}


@pytest.mark.parametrize(
    ("settings", "has_keys", "missing"),
    [
        ({}, False, ""),
        ({"host": ("localhost",), "tls": False}, False, ""),
        (ELSEWHERE, True, ""),
        (ELSEWHERE, False, "without a key"),
        ({**ELSEWHERE, "tls": False}, True, "without TLS"),
        ({**ELSEWHERE, "tls": False}, False, "without TLS and without a key"),
        ({"host": ("::",)}, False, "listening on :: without a key"),
        ({**ELSEWHERE, "tls": False, "insecure": True}, False, ""),
        ({**ELSEWHERE, "allow_networks": ("172.16.0.0/12",)}, False, ""),
    ],
)
def test_what_may_be_reached_from_elsewhere(settings: dict[str, Any], has_keys: bool, missing: str) -> None:
    if not missing:
        check_exposure(ServerSettings(**settings), has_keys)
        return
    with pytest.raises(ConfigInvalid) as caught:
        check_exposure(ServerSettings(**settings), has_keys)
    assert missing in caught.value.what
    assert "--insecure" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "peer", "is_tls", "is_served"),
    [
        ({}, "127.0.0.1", False, True),
        ({}, "::1", False, True),
        ({}, "::ffff:127.0.0.1", False, True),
        ({}, "10.0.0.1", False, False),
        ({}, "10.0.0.1", True, True),
        ({"allow_networks": ("10.0.0.0/8",)}, "10.0.0.1", False, True),
        ({"allow_networks": ("10.0.0.0/8",)}, "11.0.0.1", False, False),
        ({"insecure": True}, "11.0.0.1", False, True),
    ],
)
def test_plain_text_is_for_peers_that_are_trusted(
    settings: dict[str, Any], peer: str, is_tls: bool, is_served: bool
) -> None:
    marker: Any = object()
    protocols = Protocols(Connections(ServerSettings(**settings), set()), lambda: marker)
    found = protocols.protocol_for(ord("G"), (peer, 1), is_tls)
    assert (found is marker) is is_served
    if not is_served:
        assert isinstance(found, ConnectionRefusal)
        assert found._answer.startswith(b"HTTP/1.1 403 ")
        amqp = protocols.protocol_for(ord("A"), (peer, 1), is_tls)
        assert isinstance(amqp, ConnectionRefusal)
        assert (amqp._answer, amqp._reason) == (AMQP_HEADER, found._reason)
