"""Targets of forwarding: clients send and expect addresses, the bus uses names.

The host of an address is not checked: a server has many host names, through mapped ports and aliases.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service
from unibus.errors import ConfigInvalid

FORWARD_TO: Final = "forward_to"
FORWARD_DEAD_LETTERS_TO: Final = "forward_dead_letters_to"
TARGETS: Final = (FORWARD_TO, FORWARD_DEAD_LETTERS_TO)


def target_name(element: str, text: str) -> str | None:
    """The entity's name in an address, or the name itself; None for an empty text, which means no target."""
    given = text.strip()
    if not given:
        return None
    try:
        path = unquote(urlsplit(given).path, errors="strict") if "://" in given else given
    except ValueError as error:
        raise ConfigInvalid(
            f"{element} is {given!r:.80}, which is no address", "use sb://host/queue, or the name of an entity"
        ) from error
    name = path.strip("/")
    if not name:
        raise ConfigInvalid(
            f"{element} is {given!r:.80}, which names no entity", "use sb://host/queue, or the name of an entity"
        )
    return name


def target_address(host: str, name: str) -> str:
    return f"sb://{host}/{quote(name, safe='/')}"


def check_targets(
    service: Service, request: Request, settings: Mapping[str, object], now: Mapping[str, object] | None = None
) -> None:
    """Forwarding needs the right Manage on its target: else it would be a way to send there without a right.

    Targets that do not change (`now`) are not checked again.
    """
    forward_to, dead_letters_to = [_new_target(setting, settings, now or {}) for setting in TARGETS]
    if forward_to or dead_letters_to:
        service.authorization.check_forwarding(request, forward_to, dead_letters_to)


def _new_target(setting: str, settings: Mapping[str, object], now: Mapping[str, object]) -> str:
    target = settings.get(setting)
    return target if isinstance(target, str) and now.get(setting) != target else ""
