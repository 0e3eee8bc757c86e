"""What a PUT brings: an Atom entry, JSON, or nothing, and which of them it is.

The type counts where it says XML or JSON; else the first character does, because curl sends every body as a form. An
empty body means the defaults. JSON has the settings by our names, `kind` beside them where the address does not say it.
Unknown settings in JSON are refused by name; unknown XML elements are ignored, as Azure does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unibus.codecs.atom.descriptions import EntityDescription, RuleDescription
from unibus.codecs.atom.reading import read_description
from unibus.endpoints.error_body import JSON
from unibus.endpoints.http.request import Request
from unibus.errors import DecodeError, UsageError


@dataclass(frozen=True)
class Submitted:
    """Exactly one of both, or neither for an empty body."""

    described: EntityDescription | RuleDescription | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    is_json: bool = False


def submitted(request: Request) -> Submitted:
    body = request.body.strip()
    kind = request.headers.get("content-type", "").casefold()
    if not body:
        return Submitted(is_json=JSON in kind)
    if JSON in kind or ("xml" not in kind and body.startswith(b"{")):
        return Submitted(fields=_json(request), is_json=True)
    return Submitted(read_description(request.body))


def _json(request: Request) -> Mapping[str, object]:
    found = request.json()
    if not isinstance(found, dict):
        raise DecodeError(f"the request body is {found!r:.40}", "send an object with names and values")
    return found


def is_update(request: Request) -> bool:
    """`If-Match: *` asks for an update. There are no entity tags to compare with."""
    wanted = request.headers.get("if-match", "").strip()
    if wanted not in ("", "*", '"*"'):
        raise UsageError(f"If-Match is {wanted!r:.60}", "only If-Match: * is possible: update what exists")
    return wanted != ""


def wants_json(request: Request) -> bool:
    """Asked for, or sent."""
    return request.accepts_json() or JSON in request.headers.get("content-type", "").casefold()
