"""GET dead-letters and dead-letters/groups: dead-lettered messages, as `unibus dlq ls` and `dlq show` print them.

The filter is in the query, one parameter for each option of these commands. The work runs in a thread, because a filter
visits every dead-lettered message.
"""

import re
from typing import Final

from unibus.bus.api.broker import ANSWER_BYTES_MAX
from unibus.bus.dead_letters.steps import walk
from unibus.bus.management.jobs.dead_letters import PAGE_MAX, FilterRecord, groups, key_of, page
from unibus.bus.management.jobs.job_work import in_thread
from unibus.endpoints.http.messages.query_values import whole_number
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError

TEXTS: Final = ("queue", "source", "reason", "error", "description")
AGES: Final = ("older_than", "newer_than")
COUNTS: Final = ("attempts_below", "attempts_from", "recoveries_below", "recoveries_from")
TOP_DEFAULT: Final = 100
AGE_S_MIN: Final = 0.001
_SECONDS: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


async def list_dead_letters(service: Service, request: Request) -> Response:
    chosen = filter_of(request).as_filter()
    after = request.query.get("after")
    key = None if after is None else key_of(after)
    top = whole_number("top", request.query.get("top", str(TOP_DEFAULT)))
    if not 1 <= top <= PAGE_MAX:
        raise UsageError(f"top must be a whole number from 1 to {PAGE_MAX}, got {top}")
    bodies = _flag(request, "bodies")
    queues = service.broker.queues
    work = page(queues, chosen, key, top, bodies, ANSWER_BYTES_MAX)
    return await in_thread(lambda: json_response(walk(work)))


async def list_groups(service: Service, request: Request) -> Response:
    work = groups(service.broker.queues, filter_of(request).as_filter(), ANSWER_BYTES_MAX)
    return await in_thread(lambda: json_response(walk(work)))


def filter_of(request: Request) -> FilterRecord:
    """The filter of the query; UsageError for an invalid value."""
    query = request.query
    given: dict[str, object] = {name: query[name] for name in TEXTS if name in query}
    given |= {name: _seconds(name, query[name]) for name in AGES if name in query}
    given |= {name: whole_number(name, query[name]) for name in COUNTS if name in query}
    if "id" in query:
        given["ids"] = tuple(request.query_values("id"))
    return FilterRecord(**given)  # type: ignore[arg-type]  # Each is of its field's type.


def _seconds(name: str, text: str) -> float:
    if not _SECONDS.fullmatch(text) or float(text) < AGE_S_MIN:
        raise UsageError(f"{name} must be a number of seconds of at least {AGE_S_MIN}, got {text!r:.40}")
    return float(text)


def _flag(request: Request, name: str) -> bool:
    text = request.query.get(name, "0")
    if text not in ("0", "1"):
        raise UsageError(f"{name} must be 0 or 1, got {text!r:.40}")
    return text == "1"
