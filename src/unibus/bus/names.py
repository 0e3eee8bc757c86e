"""What a channel may be called."""

from unibus.core.envelope.exact_text import exact_text
from unibus.core.flow.deadletter import SUB_QUEUE, is_sub_queue
from unibus.errors import NameInvalid, UsageError
from unibus.limits import CHANNEL_NAME_BYTES_MAX


def folded_name(name: object) -> str:
    """The name of an entity that somebody looks for, without its case."""
    if not isinstance(name, str):
        raise UsageError(f"an entity is named by text, not {type(name).__name__}")
    return name.casefold()


def checked_name(name: object) -> str:
    """A name that every endpoint can carry: text, not empty, printable, not too long (a sub-queue's suffix aside)."""
    if not isinstance(name, str):
        raise NameInvalid(f"a channel name is text, not {type(name).__name__}")
    own = name[: -len(SUB_QUEUE) - 1] if is_sub_queue(name) else name
    if not own or len(own.encode("utf-8", "surrogatepass")) > CHANNEL_NAME_BYTES_MAX:
        raise NameInvalid(f"channel name {name!r:.80} must have 1 to {CHANNEL_NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise NameInvalid(f"channel name {name!r:.80} has characters that cannot be shown", "use printable text")
    return exact_text(name)
