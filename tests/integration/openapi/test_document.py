"""Requests that the OpenAPI document allows, and requests that it forbids, made by schemathesis.

No answer is a 5xx or one that the document does not know; what the document forbids is refused, and so is a request
without its token. One address of each operation: the others lead to the same handlers (test_routing).
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.namespace import KEY, Namespace, namespace_running
from tests.integration.openapi.known_names import LOCKS, NAMES, OTHER, RULE, WITH_SESSIONS
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, rules_text
from unibus.core.access.token import make_token
from unibus.core.filters.filters import SqlFilter
from unibus.core.lifecycle.state.entity import subscription_path
from unibus.core.lifecycle.state.rules import Rule
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.messages.lock_tokens import token_text
from unibus.endpoints.http.operation import Operation

SEED = "14"
FOLDER = Path(__file__).parent
OTHER_ADDRESSES = (
    r"^/\{entity\}|^/\{topic\}|DeadLetterQueue|subscriptions/\{subscription\}/(messages|\$sessions)"
    r"|^/servicebus/(health/|metrics)"
)
ROOT = AuthorizationRule("root", frozenset(Right), KEY, KEY)
LOCKED = 1_000
NEVER_SUCCESSFUL = {
    *("abandon_put", "dead_letter_put", "defer_put", "complete_locked"),
    *("cancel_scheduled", "receive_deferred", "receive_deferred_in_session", "complete_by_token"),
    *("delete_entity", "delete_rule", "release_session", "reset", "proof"),
    *("delete_named_entity", "delete_named_rule", "release_session_lock", "remove_access"),
    *("get_job", "watch_job", "pause_job", "resume_job", "cancel_job"),
    *("events_live", "entities_live", "server_live", "server_logs", "server_stop"),
}
"""Switched off, or of a server of a file; in need of a number or a token that no document can give; kept from what the
others need."""


async def fill(namespace: Namespace) -> dict[str, object]:
    """Entities with messages and locks; the locks as the hooks of schemathesis read them."""
    broker = namespace.broker
    for names, settings in ((NAMES, {}), (WITH_SESSIONS, {"requires_session": True})):
        broker.create("queue", names["queue"], {**settings, "lock_duration": 300, "max_delivery_count": 100})
        broker.create("topic", names["topic"])
        subscription = subscription_path(names["topic"], names["subscription"])
        broker.create("subscription", subscription, settings)
        broker.create_rule(subscription, Rule(names["rule"], SqlFilter("a = 1")))
    for _ in range(LOCKED // 100):
        await broker.send_many("orders", [broker.message("orders", "body", {}) for _ in range(100)])
    await broker.send("sessions", broker.message("sessions", "body", {"session_id": "s"}))
    locked = [await broker.receive("orders", 100) for _ in range(LOCKED // 100)]
    await broker.send_many("orders", [broker.message("orders", {"more": at}, {}) for at in range(100)])
    session = await broker.accept_session("sessions", "s")
    await broker.create("queue", OTHER, {})
    removable = await broker.send_many(OTHER, [broker.message(OTHER, at, {}) for at in range(LOCKED)])
    rules = rules_text([AuthorizationRule(RULE, frozenset({Right.SEND}), KEY, KEY)])
    await broker.update(NAMES["queue"], {"authorization_rules": rules})
    return {
        "removable": [each.sequence for each in removable],
        "id": removable[0].id,
        "messages": [[str(each.sequence), token_text(each.token)] for part in locked for each in part],
        "session": token_text(session.token),
    }


@pytest.fixture
def filled(certificates: Path, tmp_path: Path) -> Iterator[Namespace]:
    """A key of its own, so that nothing is open to this machine."""
    with namespace_running(certificates, authorization_rules=(ROOT,), request_log=False, audit=False) as found:
        (tmp_path / "locks.json").write_text(json.dumps(found.call(lambda: fill(found))))
        yield found


def run(namespace: Namespace, token: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        *(str(Path(sys.executable).with_name("st")), "--no-color"),
        *("--config-file", str(FOLDER / "schemathesis.toml")),
        *("run", f"{namespace.url}/openapi.json", "--seed", SEED, "-H", f"Authorization:{token}", *options),
    ]
    path = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    hooks = {"SCHEMATHESIS_HOOKS": "tests.integration.openapi.known_names", LOCKS: str(folder / "locks.json")}
    environment = {**os.environ, **hooks, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


def test_answers_are_those_of_the_document(filled: Namespace, tmp_path: Path) -> None:
    token = make_token(f"sb://localhost:{filled.port}", ROOT.name, KEY, int(time.time()) + 3600)
    done = run(filled, token, tmp_path, "--exclude-path-regex", OTHER_ADDRESSES)
    assert done.returncode == 0, done.stdout[-20_000:]
    passed = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-2_000:]
    assert passed[1] == passed[2]
    # Requests that get nowhere prove nothing.
    served = successful(filled, token)
    wanted = {each.name for each in TABLE.operations if each.in_document and is_asked(each)} - NEVER_SUCCESSFUL
    assert wanted - served == set()


def is_asked(operation: Operation) -> bool:
    return not all(re.search(OTHER_ADDRESSES, path) for path in operation.documented)


def successful(namespace: Namespace, token: str) -> set[str]:
    """The operations that have answered at least one request with success."""
    answer = namespace.get("/metrics", {"Authorization": token})
    return set(re.findall(r'operation="(\w+)",status="2\d\d"', answer))
