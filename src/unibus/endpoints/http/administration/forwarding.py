"""Targets of forwarding: clients give and expect addresses, the bus has names.

The host of an address is not compared: a server is reached under many, through mapped ports and aliases.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from unibus.core.access.rights import Right
from unibus.endpoints.http.request import AsgiMessage, Request
from unibus.endpoints.http.service import Service
from unibus.errors import AccessRefused, ConfigInvalid

TOKENS: Final = {
    "forward_to": "servicebussupplementaryauthorization",
    "forward_dead_letters_to": "servicebusdlqsupplementaryauthorization",
}
"""Where a client puts a token for the target, which may belong to another rule than that of the request."""


def target_name(element: str, text: str) -> str | None:
    """The name in an address, or a name as it is. Empty: no target."""
    given = text.strip()
    if not given:
        return None
    try:
        path = unquote(urlsplit(given).path, errors="strict") if "://" in given else given
    except ValueError as error:
        raise ConfigInvalid(f"{element} is {given!r:.80}, which is no address", "name an entity") from error
    name = path.strip("/")
    if not name:
        raise ConfigInvalid(f"{element} is {given!r:.80}, which names no entity", "sb://host/queue, or queue")
    return name


def target_address(host: str, name: str) -> str:
    return f"sb://{host}/{quote(name, safe='/')}"


def check_targets(
    service: Service, request: Request, settings: Mapping[str, object], now: Mapping[str, object] | None = None
) -> None:
    """Who forwards needs Manage on the target too: else forwarding would be a way to send without that right."""
    for setting, header in TOKENS.items():
        target = settings.get(setting)
        if isinstance(target, str) and (now is None or now.get(setting) != target):
            _check_target(service, request, header, target)


def _check_target(service: Service, request: Request, header: str, target: str) -> None:
    try:
        service.authorization.check(request, Right.MANAGE, target)
    except AccessRefused:
        token = request.headers.get(header)
        if token is None:
            raise
        other = Request(request.scope, _no_body, request.place)
        other.headers = {**request.headers, "authorization": token}
        service.authorization.check(other, Right.MANAGE, target)


async def _no_body() -> AsgiMessage:
    return {"type": "http.disconnect"}
