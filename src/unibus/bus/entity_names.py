"""What queues, topics, subscriptions and rules may be called, as Azure Service Bus has it.

It holds for entities that are created on purpose, through `bus.entities`, a file or a server: their names have to fit
into paths and addresses. A name that is created by sending to it has only to be printable (names.py).
"""

import logging
import re
from typing import Final

from unibus.core.envelope.exact_text import exact_text
from unibus.core.lifecycle.state.entity import is_reserved
from unibus.errors import NameInvalid
from unibus.limits import ENTITY_PATH_CHARS_MAX, SUBSCRIPTION_NAME_CHARS_MAX

log = logging.getLogger("unibus")

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
"""First segments of paths that a server answers itself. An entity of such a name cannot be created over HTTP; one that
exists is reached under /servicebus/queues/ or /servicebus/topics/."""

_PART: Final = r"[A-Za-z0-9._-]+"
_PATH: Final = re.compile(rf"(?=[A-Za-z0-9]){_PART}(?:/{_PART})*(?<=[A-Za-z0-9])")
_NAME: Final = re.compile(rf"(?=[A-Za-z0-9]){_PART}(?<=[A-Za-z0-9])")


def checked_path(name: object) -> str:
    """The path of a queue or a topic. One that begins with an address of a server is possible, and logs a warning."""
    if not isinstance(name, str) or not 1 <= len(name) <= ENTITY_PATH_CHARS_MAX:
        raise NameInvalid(f"no entity can be called {name!r:.80}", f"1 to {ENTITY_PATH_CHARS_MAX} characters")
    if _PATH.fullmatch(name) is None:
        raise NameInvalid(
            f"no entity can be called {name!r:.80}",
            "letters and digits, with . - _ and single / in between, from a letter or digit to a letter or digit",
        )
    if is_reserved(name):
        raise NameInvalid(f"{name!r:.80} has a part that is called Subscriptions", "it would look like a subscription")
    warn_if_reserved(name)
    return exact_text(name)


def checked_server_path(name: object) -> str:
    """The path of a queue or a topic that a server creates for a client: not one of its own addresses."""
    first = reserved_first(name) if isinstance(name, str) else ""
    if first:
        hint = "add a prefix: an entity of that name would hide behind an address of the server"
        raise NameInvalid(f"{name!r:.80} begins with {first!r}, which is an address of the server", hint)
    return checked_path(name)


def reserved_first(name: str) -> str:
    """The first segment of a name, if it is reserved; else an empty text."""
    first = name.partition("/")[0].casefold()
    return first if first in RESERVED_FIRST else ""


def warn_if_reserved(name: str) -> None:
    """For names that are chosen on purpose: they work, and a server answers their address itself."""
    if reserved_first(name):
        log.warning("%r begins with an address of the server: over HTTP it is only reached under /servicebus/", name)


def checked_subscription(name: object) -> str:
    """The name of a subscription, without its topic."""
    if not isinstance(name, str) or not 1 <= len(name) <= SUBSCRIPTION_NAME_CHARS_MAX:
        raise NameInvalid(
            f"no subscription can be called {name!r:.80}", f"1 to {SUBSCRIPTION_NAME_CHARS_MAX} characters"
        )
    if _NAME.fullmatch(name) is None or is_reserved(name):
        raise NameInvalid(f"no subscription can be called {name!r}", "letters and digits, with . - _ in between")
    return exact_text(name)
