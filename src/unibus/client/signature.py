"""The signature that a request carries: made with the key of a rule, and made again before it expires.

It holds for an hour, so that one that is seen by another is of no use for long. It is made again five minutes before,
for a server whose clock is ahead of ours.
"""

from collections.abc import Callable
from typing import Final

from unibus.client.address import Address
from unibus.core.access.token import make_token
from unibus.errors import Unauthorised

HOLDS_S: Final = 3_600
RENEWED_S: Final = 300


class Signature:
    """`now_s` gives seconds since 1970."""

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
                f"there is no key for the server {address}",
                "set UNIBUS_KEY=rule:key, or UNIBUS_CONNECTION_STRING; `unibus access add` at the server makes a rule",
            )
        if self._now_s() > self._expires_s - RENEWED_S:
            self._expires_s = int(self._now_s()) + HOLDS_S
            resource = f"sb://{address.authority}/{address.entity}"
            self._text = make_token(resource, address.rule, address.key, self._expires_s)
        return self._text
