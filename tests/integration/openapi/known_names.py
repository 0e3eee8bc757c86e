"""Hooks of schemathesis: most requests go to entities that exist. Otherwise nearly every answer would be 404.

It is loaded by the process of schemathesis, by the name of this module in SCHEMATHESIS_HOOKS. The file that LOCKS names
has locks to settle: of messages, each for one request, and of one session.
"""

import base64
import itertools
import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import schemathesis

LOCKS = "UNIBUS_TEST_LOCKS"
NAMES = {"entity": "orders", "queue": "orders", "topic": "news", "subscription": "all", "session": "s", "rule": "r"}
WITH_SESSIONS = {**NAMES, "entity": "sessions", "queue": "sessions", "topic": "threads"}
OTHER, RULE = "moved", "app"
MANAGEMENT = "/unibus/v1/"
_KNOWN = frozenset({*NAMES.values(), *WITH_SESSIONS.values()})
_DELETED = ("{queue}", "{topic}", "{subscription}", "{rule}", "$sessions/{session}/{token}")

_numbers = itertools.count()
_locks: dict[str, Any] = json.loads(Path(os.environ[LOCKS]).read_text()) if LOCKS in os.environ else {}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Three of four go to what exists, by their number, so that a run can be repeated."""
    given = dict(case.path_parameters or {})
    # What deletes an entity, or releases the session, gets names of none: the other operations need theirs.
    if next(_numbers) % 4 == 3 or (case.method == "DELETE" and case.path.endswith(_DELETED)):
        # What schemathesis has created, or seen in an answer, it uses again, also where that entity has no sessions.
        is_session = "$sessions" in case.path
        given = {
            name: "unknown" if value in _KNOWN or (is_session and name in NAMES) else value
            for name, value in given.items()
        }
    else:
        known = WITH_SESSIONS if "$sessions" in case.path else NAMES
        is_accepting = case.path.endswith("$sessions/{session}")  # Another one: ours is locked.
        known_here = given.keys() & known.keys() - ({"session"} if is_accepting else set())
        given |= {name: known[name] for name in known_here} | _lock(given)
    case.path_parameters = given
    if case.path.startswith(MANAGEMENT) and _is_positive(case):
        _use_known(case, case.path.removeprefix(MANAGEMENT))
    if case.query and _is_number(case.query.get("timeout")):
        case.query = {**case.query, "timeout": "0.01"}  # A long poll would make the run last for minutes.


def _is_positive(case: Any) -> bool:
    return case.meta is not None and case.meta.generation.mode.name == "POSITIVE"


def _use_known(case: Any, tail: str) -> None:
    """The management API names entities in the query, and the rest in the body."""
    query, body = dict(case.query or {}), case.body
    if "entity" in query and tail not in ("entities/delete", "access/add"):
        subscription = f"{NAMES['topic']}/Subscriptions/{NAMES['subscription']}"
        named = {"rules": subscription, "rules/set": subscription, "messages/remove": OTHER}
        is_of_session = tail.startswith("sessions/")
        query["entity"] = named.get(tail, WITH_SESSIONS["queue"] if is_of_session else NAMES["queue"])
    query |= {name: value for name, value in _known_query(tail).items() if name in query}
    if tail == "export":
        query = {}
    case.query = query
    if isinstance(body, dict) and _locks:
        case.body = {**body, **_known_body(tail)}


def _known_query(tail: str) -> dict[str, str]:
    return {"trace": {"id": str(_locks.get("id"))}, "import": {"name": "import/x"}}.get(tail, {})


def _known_body(tail: str) -> dict[str, Any]:
    """Values in place of random ones; waiting would make the run last for minutes."""
    if tail in ("messages/settle", "messages/renew"):
        return {"tokens": [_base64(_locks["messages"].pop()[1])]}
    return {
        "messages/receive": {"wait_s": 0.01, "session": None},
        # One of its own, because the data plane accepts sessions, too.
        "sessions/accept": {"wait_s": 0.01, "session_id": f"m{next(_numbers)}"} if tail == "sessions/accept" else {},
        "sessions/renew": {"session_id": NAMES["session"], "token": _base64(_locks["session"])},
        "messages/move": {"to": OTHER, "sequences": None},
        "messages/remove": {"sequences": [_locks["removable"].pop()]} if tail == "messages/remove" else {},
        "replay/send": {"from": NAMES["queue"], "to": OTHER, "since_ns": 0, "after": 0, "count": 1},
        "query": {"sql": "SELECT 1", "parameters": []},
        "access/rotate": {"name": RULE},
        "rules/set": {"filter": "a = 1", "action": None},
        "entities/declare": {"text": "{}"},
        "messages/send": {"durability": None},
    }.get(tail, {})


def _base64(token: str) -> str:
    """Lock tokens of the management API are base64, those of Azure's are UUIDs."""
    return base64.b64encode(UUID(token).bytes_le).decode()


def _lock(given: dict[str, Any]) -> dict[str, str]:
    if "token" not in given or not _locks:
        return {}
    if "session" in given:
        return {"token": _locks["session"]}
    message, token = _locks["messages"].pop()
    return {"message": message, "token": token}


def _is_number(value: object) -> bool:
    try:
        return float(str(value)) > 0
    except ValueError:
        return False
