"""File names from entity names: readable, reversible, without a path separator, and never too long.

    queue_orders.json                       the queue "orders"
    queue_a%2Fb.json                        the queue "a/b"
    subscription_prices_audit.json          the subscription "audit" of the topic "prices"
    deadletter_queue_orders.json            the dead-letter queue of either
    queue_very%20long…~0a1b2c3d4e5f6071.json

A name that is too long ends in a hash; then only the file has the whole name. "~" is never part of a name itself. If
two entities have one name at the same time (one is deleted, but a snapshot needs it), the later one gets "~number".
"""

import hashlib
from typing import Final
from urllib.parse import quote, unquote

from unibus.core.lifecycle.state.entity import DEAD_LETTERS, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC

STEM_CHARS_MAX: Final = 180
"""With its suffixes a name stays below 255 bytes, the limit of file systems."""

_HASH_CHARS: Final = 16
_BETWEEN: Final = f"/{SUBSCRIPTIONS}/"


def stem_of(name: str, kind: int) -> str:
    """The name of the entity's file, without its suffix."""
    if kind == DEAD_LETTERS:
        owner, _, _ = name.rpartition("/")
        stem = f"deadletter_{stem_of(owner, SUBSCRIPTION if _BETWEEN in owner else 0)}"
    elif kind == SUBSCRIPTION:
        topic, _, own = name.rpartition(_BETWEEN)
        stem = f"subscription_{_quoted(topic).replace('_', '%5F')}_{_quoted(own)}"
    else:
        stem = f"{'topic' if kind == TOPIC else 'queue'}_{_quoted(name)}"
    return _capped(stem, name)


def name_of(stem: str) -> str:
    """The name of the entity; "" if only the file has it."""
    if "~" in stem:
        return ""
    kind, _, rest = stem.partition("_")
    if kind == "deadletter":
        return f"{name_of(rest)}/$DeadLetterQueue"
    if kind == "subscription":
        topic, _, own = rest.partition("_")
        return f"{unquote(topic)}{_BETWEEN}{unquote(own)}"
    return unquote(rest)


def _quoted(text: str) -> str:
    """Letters, digits, "-", "_" and "." stay. A file system may ignore case: no two entity names differ by case
    alone."""
    return quote(text, safe="").replace("~", "%7E")


def _capped(stem: str, name: str) -> str:
    if len(stem) <= STEM_CHARS_MAX:
        return stem
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARS]
    kept = stem.partition("~")[0][: STEM_CHARS_MAX - _HASH_CHARS - 1]
    while "%" in kept[-2:]:
        kept = kept[:-1]  # Not half of an escaped byte.
    return f"{kept}~{digest}"
