"""Checks the names of queues, topics and subscriptions by the rules of Azure Service Bus.

The rules apply to entities that are created explicitly, through `bus.entities`, a file or a server: their names become
parts of URLs. An entity that is created by the first send to it needs only a printable name (names.py).
"""

import re
from typing import Final

from unibus.core.envelope.exact_text import exact_text
from unibus.core.lifecycle.state.entity import is_reserved
from unibus.errors import NameInvalid
from unibus.limits import ENTITY_PATH_CHARS_MAX, SUBSCRIPTION_NAME_CHARS_MAX
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

RESERVED_FIRST: Final = frozenset(
    {
        "servicebus",
        "health",
        "metrics",
        "docs",
        "openapi.json",
        "console",
        "unibus",
        "favicon.ico",
        "robots.txt",
    }
)
"""First path segments that the server uses for its own URLs. An entity whose name begins with one cannot be created
over HTTP; an existing one is available under /servicebus/queues/ or /servicebus/topics/."""

# Lookahead and lookbehind for the first and the last character, so that a path of one character matches.
_PART: Final = r"[A-Za-z0-9._-]+"
_PATH: Final = re.compile(rf"(?=[A-Za-z0-9]){_PART}(?:/{_PART})*(?<=[A-Za-z0-9])")
_NAME: Final = re.compile(rf"(?=[A-Za-z0-9]){_PART}(?<=[A-Za-z0-9])")


def checked_path(name: object) -> str:
    """The path of a queue or a topic, or NameInvalid. A path that begins with a URL of the server logs a warning."""
    if not isinstance(name, str) or not 1 <= len(name) <= ENTITY_PATH_CHARS_MAX:
        raise NameInvalid(f"entity name {name!r:.80} must be a str of 1 to {ENTITY_PATH_CHARS_MAX} characters")
    if _PATH.fullmatch(name) is None:
        raise NameInvalid(
            f"entity name {name!r:.80} has characters that are not allowed",
            "use letters and digits, with . - _ and single / between them; begin and end with a letter or digit",
        )
    # `Subscriptions` as a part of a path marks a subscription: a queue `a/Subscriptions/b` would look like one.
    if is_reserved(name):
        raise NameInvalid(
            f"entity name {name!r:.80} has a reserved part",
            "leave out the part Subscriptions: it marks the path of a subscription",
        )
    warn_if_reserved(name)
    return exact_text(name)


def checked_server_path(name: object) -> str:
    """As `checked_path`, for an entity that a server creates for a client: a path of the server's own is refused."""
    # Only for servers: a program in the process reaches the entity by its name, and needs no URL.
    first = reserved_first(name) if isinstance(name, str) else ""
    if first:
        hint = "choose another first part: the server answers this URL itself, and clients could not use the entity"
        raise NameInvalid(f"entity name {name!r:.80} begins with {first!r}, which the server reserves", hint)
    return checked_path(name)


def reserved_first(name: str) -> str:
    """The first segment of a name if it is reserved, else the empty string. Case does not matter."""
    first = name.partition("/")[0].casefold()
    return first if first in RESERVED_FIRST else ""


def warn_if_reserved(name: str) -> None:
    """Log that HTTP clients need the longer URL for this name. In the process the name works as any other."""
    if reserved_first(name):
        log.warning("%r begins with a reserved URL of the server: HTTP clients must use /servicebus/", name)


def checked_subscription(name: object) -> str:
    """The name of a subscription, without its topic."""
    if not isinstance(name, str) or not 1 <= len(name) <= SUBSCRIPTION_NAME_CHARS_MAX:
        raise NameInvalid(
            f"subscription name {name!r:.80} must be a str of 1 to {SUBSCRIPTION_NAME_CHARS_MAX} characters"
        )
    if _NAME.fullmatch(name) is None or is_reserved(name):
        raise NameInvalid(
            f"subscription name {name!r} has characters that are not allowed, or is reserved",
            "use letters and digits, with . - _ between them; begin and end with a letter or digit",
        )
    return exact_text(name)
