"""Hooks of schemathesis: most requests go to entities that exist. Otherwise nearly every answer would be 404.

It is loaded by the process of schemathesis, by the name of this module in SCHEMATHESIS_HOOKS. The file that LOCKS names
has locks to settle: of messages, each for one request, and of one session.
"""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import schemathesis

LOCKS = "UNIBUS_TEST_LOCKS"
NAMES = {"entity": "orders", "queue": "orders", "topic": "news", "subscription": "all", "session": "s", "rule": "r"}
WITH_SESSIONS = {**NAMES, "entity": "sessions", "queue": "sessions", "topic": "threads"}
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
        # What schemathesis has seen in an answer it uses again, also where that entity has no sessions.
        given = {name: "unknown" if value in _KNOWN else value for name, value in given.items()}
    else:
        known = WITH_SESSIONS if "$sessions" in case.path else NAMES
        is_accepting = case.path.endswith("$sessions/{session}")  # Another one: ours is locked.
        known_here = given.keys() & known.keys() - ({"session"} if is_accepting else set())
        given |= {name: known[name] for name in known_here} | _lock(given)
    case.path_parameters = given
    if case.query and _is_number(case.query.get("timeout")):
        case.query = {**case.query, "timeout": "0.01"}  # A long poll would make the run last for minutes.


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
