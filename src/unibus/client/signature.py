"""The shared access signature of requests: made with the key of a rule, and renewed before it expires.

It is valid for an hour, so a leaked one is useful for a short time only. It is renewed five minutes early, for a server
whose clock is ahead of ours.
"""

from collections.abc import Callable
from typing import Final

from unibus.client.address import Address
from unibus.core.access.token import make_token
from unibus.errors import Unauthorised

HOLDS_S: Final = 3_600
RENEWED_S: Final = 300


class Signature:
    """`now_s` returns seconds since 1970."""

    def __init__(self, address: Address, now_s: Callable[[], float]) -> None:
        self._address = address
        self._now_s = now_s
        self._text = address.signature
        self._expires_s = 0

    def header(self) -> str:
        address = self._address
        if address.signature:
            return address.signature
        if not address.key:
            raise Unauthorised(
                f"no key is set for the server {address}",
                "set UNIBUS_KEY=rule:key, or UNIBUS_CONNECTION_STRING; `unibus access add` on the server adds a rule",
            )
        if self._now_s() > self._expires_s - RENEWED_S:
            self._expires_s = int(self._now_s()) + HOLDS_S
            resource = f"sb://{address.authority}/{address.entity}"
            self._text = make_token(resource, address.rule, address.key, self._expires_s)
        return self._text
