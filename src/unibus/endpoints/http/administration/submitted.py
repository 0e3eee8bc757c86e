"""Parses the body of a PUT: an Atom entry, JSON, or nothing.

A Content-Type of XML or JSON decides; else the first character does, because curl sends every body as a form. An empty
body means the defaults. JSON has the settings by their unibus names, and `kind` if the address does not name it.
Unknown settings in JSON are an error; unknown XML elements are ignored, as in Azure.
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
    """`described` for an Atom entry, `fields` for JSON, neither for an empty body."""

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
        raise DecodeError(f"the request body is {found!r:.40}, not a JSON object", 'for instance {"lock_duration": 60}')
    return found


def is_update(request: Request) -> bool:
    """Whether the request is an update (`If-Match: *`). There are no entity tags to compare."""
    wanted = request.headers.get("if-match", "").strip()
    if wanted not in ("", "*", '"*"'):
        raise UsageError(
            f"If-Match must be * (there are no entity tags), got {wanted!r:.60}",
            "use If-Match: * to update an existing entity",
        )
    return wanted != ""


def wants_json(request: Request) -> bool:
    """Whether the client accepts or sends JSON."""
    return request.accepts_json() or JSON in request.headers.get("content-type", "").casefold()
