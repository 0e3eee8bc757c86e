"""Parses a path into its shape (which operation) and its entity.

Three families of paths have the same operations:

    /{entity}/messages                                  Azure's own REST form
    /servicebus/queues/{queue}/messages                 the documented form; also /servicebus/topics/{topic}/…
    /servicebus/{namespace}/{entity}/messages           of another emulator, with or without topics/ before the entity

A shape is the path with its variable parts replaced: `entity/messages/*/*`. The name of an entity may contain slashes,
plain or escaped, so a path is parsed from its fixed words: the first fixed word ends the name. For a name that contains
a fixed word, the client escapes the slashes (`a%2Fmessages/messages`). Fixed words are case-insensitive. A segment that
begins with `$` is never part of an entity's name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from unibus.bus.entity_names import RESERVED_FIRST
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.state.entity import SUBSCRIPTIONS
from unibus.endpoints.http.address import decoded
from unibus.errors import DecodeError

RESERVED: Final = RESERVED_FIRST

MANAGEMENT_PREFIX: Final = "/unibus/v1/"

CONSOLE_PAGES: Final = frozenset(
    {
        *("/", "/unibus/v1/entities", "/unibus/v1/entities/live"),
        *("/unibus/v1/server", "/unibus/v1/server/live", "/unibus/v1/server/errors"),
    }
)
"""The web page of the server, and the operations that it reads. All are GET and change nothing."""

OPERATOR_PAGES: Final = CONSOLE_PAGES | frozenset(
    {
        *("/metrics", "/servicebus/metrics", "/docs", "/servicebus/docs"),
        *("/openapi.json", "/servicebus/openapi.json"),
    }
)
"""Shapes for scrapers and browsers. They cannot create a signature, so HTTP Basic is accepted here."""

_FAMILIES: Final = frozenset({"queues", "topics"})
_SERVICEBUS_FIXED: Final = frozenset({"health", "metrics", "docs", "openapi.json"})
_WORDS: Final = frozenset({"$sessions", "$scheduled", "messages", "rules"})
_SESSION_PARAMS: Final = ("session", "token")


@dataclass(frozen=True, slots=True)
class RoutedPath:
    """`entity` is empty for a shape without one. `family` is the kind that the path names: queues, topics or none."""

    shape: str
    entity: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    family: str = ""


# A cache: most requests repeat a few paths. Clients choose the paths, so their number and length are bounded.
_PLACES_MAX: Final = 4_096
_PLACE_BYTES_MAX: Final = 300
_places: Final[dict[bytes, RoutedPath]] = {}


def place_of(raw_path: bytes) -> RoutedPath:
    """DecodeError for a path with an invalid escape. Any path has a shape; if no operation has it, the caller answers
    404."""
    found = _places.get(raw_path)
    if found is None:
        found = _place_of(raw_path)
        if not found.params and len(raw_path) <= _PLACE_BYTES_MAX:
            if len(_places) >= _PLACES_MAX:
                _places.clear()
            _places[raw_path] = found
    return found


def _place_of(raw_path: bytes) -> RoutedPath:
    segments = [decoded(segment) for segment in raw_path.split(b"/")]
    while segments and not segments[0]:
        segments.pop(0)
    while segments and not segments[-1]:
        segments.pop()
    if not segments:
        return RoutedPath("/")
    first = segments[0].casefold()
    if first == "servicebus":
        return _in_servicebus(segments[1:])
    if first in RESERVED or (first.startswith("$") and len(segments) <= 2):
        return _fixed(segments)
    return _in_entity(segments, "")


def _in_servicebus(rest: list[str]) -> RoutedPath:
    if not rest:
        return RoutedPath("/servicebus")
    head = rest[0].casefold()
    if head in _FAMILIES:
        return RoutedPath(f"/{head}", family=head) if len(rest) == 1 else _in_entity(rest[1:], head)
    if head in _SERVICEBUS_FIXED:
        return _fixed(["servicebus", *rest])
    if head == "$resources":
        return _fixed(rest)
    # In the form of another emulator the first segment is the namespace, which this server ignores: it has one.
    inner = rest[1:]
    family = inner[0].casefold() if inner else ""
    if family in _FAMILIES:
        return RoutedPath(f"/{family}", family=family) if len(inner) == 1 else _in_entity(inner[1:], family)
    return _in_entity(inner, "") if inner else RoutedPath("/servicebus")


def _fixed(segments: list[str]) -> RoutedPath:
    """Paths without an entity. `/$Resources/queues` is the same as `/servicebus/queues`."""
    folded = [segment.casefold() for segment in segments]
    if folded[0] == "$resources" and len(folded) == 2 and folded[1] in _FAMILIES:
        return RoutedPath(f"/{folded[1]}", family=folded[1])
    return RoutedPath("/" + "/".join(folded))


def _in_entity(segments: list[str], family: str) -> RoutedPath:
    if any([not segment for segment in segments]):
        raise DecodeError("the address has an empty segment (//)", "write one slash between the parts of a name")
    folded = [segment.casefold() for segment in segments]
    at = _first_word(folded)
    if at:
        return _below(segments[:at], folded[at], segments[at + 1 :], family)
    if len(segments) > 1 and folded[-1] == "subscriptions":
        return RoutedPath("entity/subscriptions", "/".join(segments[:-1]), family=family)
    return RoutedPath("entity", entity_name(segments), family=family)


def _first_word(folded: list[str]) -> int:
    """The index of the first fixed word; 0 for none. A queue may be named `messages`, and so may a subscription."""
    for at in range(1, len(folded)):
        word = folded[at]
        if word not in _WORDS or (at > 1 and folded[at - 1] == "subscriptions"):
            continue
        # Only a subscription has rules: topic/subscriptions/name/rules.
        if word != "rules" or (at > 2 and folded[at - 2] == "subscriptions"):
            return at
    return 0


def _below(owner: list[str], word: str, tail: list[str], family: str) -> RoutedPath:
    entity = entity_name(owner)
    if word == "$sessions":
        return _session(entity, tail, family)
    if word == "messages":
        return _message(entity, tail, family)
    name = "rule" if word == "rules" else "sequence"
    shape = f"entity/{word}" + "/*" * len(tail)
    return RoutedPath(shape, entity, {name: tail[0]} if tail else {}, family)


def _message(entity: str, tail: list[str], family: str) -> RoutedPath:
    if len(tail) <= 1:
        return RoutedPath("/".join(["entity/messages", *[word.casefold() for word in tail]]), entity, {}, family)
    verb = "".join([f"/{word.casefold()}" for word in tail[2:]])
    return RoutedPath(f"entity/messages/*/*{verb}", entity, {"message": tail[0], "token": tail[1]}, family)


def _session(entity: str, tail: list[str], family: str) -> RoutedPath:
    params = dict(zip(_SESSION_PARAMS, tail, strict=False))
    words = "".join([f"/{word.casefold()}" for word in tail[2:]])
    return RoutedPath("entity/$sessions" + "/*" * min(2, len(tail)) + words, entity, params, family)


def resource_of(place: RoutedPath) -> str:
    """The resource of a token for exactly this address: the entity, and the words below it that no entity's name has.

    `messages` is not among these words: a token for the queue `a/messages` must not be valid for the queue `a`.
    """
    if not place.entity:
        return f"$resources{place.shape}" if place.family else place.shape[1:] if place.shape[1:2] == "$" else ""
    below = place.shape.removeprefix("entity").removesuffix("/*")
    if below.startswith(("/rules", "/subscriptions")):
        return "/".join([place.entity + below, *place.params.values()])
    return place.entity


def named_entity(text: str) -> str:
    """The name of an entity in a query. The words for dead-letter queues and subscriptions are case-insensitive."""
    segments = text.strip("/").split("/")
    return entity_name(segments) if text else ""


def entity_name(segments: list[str]) -> str:
    """The name in the form of the bus: `topic/Subscriptions/name`, `queue/$DeadLetterQueue`."""
    folded = [segment.casefold() for segment in segments]
    if folded[-1] == "$deadletterqueue" and len(segments) > 1:
        return sub_queue(entity_name(segments[:-1]))
    if len(segments) >= 3 and folded[-2] == "subscriptions":
        return "/".join([*segments[:-2], SUBSCRIPTIONS, segments[-1]])
    return "/".join(segments)
