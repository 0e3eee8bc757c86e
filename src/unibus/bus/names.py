"""Checks the names of channels, and of entities that are created by the first use of their name."""

from unibus.core.envelope.exact_text import exact_text
from unibus.core.flow.deadletter import SUB_QUEUE, is_sub_queue
from unibus.errors import NameInvalid, UsageError
from unibus.limits import CHANNEL_NAME_BYTES_MAX


def folded_name(name: object) -> str:
    """The name of an entity for a lookup: entity names are equal regardless of case."""
    if not isinstance(name, str):
        raise UsageError(f"an entity name is a str, not {type(name).__name__}")
    return name.casefold()


def checked_name(name: object, what: str = "channel name") -> str:
    """A name that every endpoint can carry: printable, not empty, not too long. A dead-letter suffix is not counted."""
    if not isinstance(name, str):
        raise NameInvalid(f"a {what} is a str, not {type(name).__name__}")
    # Not counted: the longest name must still have a dead-letter queue.
    own = name[: -len(SUB_QUEUE) - 1] if is_sub_queue(name) else name
    if not own or len(own.encode("utf-8", "surrogatepass")) > CHANNEL_NAME_BYTES_MAX:
        raise NameInvalid(f"{what} {name!r:.80} must have 1 to {CHANNEL_NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise NameInvalid(f"{what} {name!r:.80} has unprintable characters", "use printable text")
    # A subclass of str, such as an enum, becomes a plain str: names are keys of tables and are stored.
    return exact_text(name)
