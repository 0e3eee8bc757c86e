"""Every operation × every kind of caller: exactly those are allowed that the table below allows.

The table is written by hand and knows nothing of the operations' own rights. An operation that it does not name fails
the build: a new operation has to be listed here with its callers.
"""

import base64
import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pytest

from tests.unit.endpoints.http.namespace import (
    ALL,
    ELSEWHERE,
    LOOPBACK,
    NOW_S,
    Holding,
    Namespace,
    Silent,
    ask,
    opened,
    rule,
    token,
)
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, well_known_rule
from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.application.app import Asgi, Front, application
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.management.tables.table import MANAGEMENT
from unibus.endpoints.http.messages.table import MESSAGES
from unibus.endpoints.http.monitoring.console import STATIC
from unibus.endpoints.http.monitoring.table import MONITORING
from unibus.endpoints.http.operation import Operation, OperationTable
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.routing import place_of
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings

OPEN = ""

MESSAGE_RIGHTS = {
    **dict.fromkeys(("send", "cancel_scheduled"), "Send"),
    **dict.fromkeys(
        (
            *("receive", "receive_and_delete", "receive_list", "receive_deferred", "peek"),
            *("complete", "abandon", "renew", "complete_locked", "abandon_locked", "abandon_put", "complete_by_token"),
            *("dead_letter", "dead_letter_put", "defer", "defer_put", "renew_lock"),
            *("accept_next_session", "list_sessions", "accept_session", "renew_session", "release_session"),
            *("get_session_state", "set_session_state", "delete_session_state"),
            *("receive_in_session", "receive_and_delete_in_session"),
            *("receive_list_in_session", "receive_deferred_in_session"),
        ),
        "Listen",
    ),
}
ADMINISTRATION_RIGHTS = dict.fromkeys(
    (
        *("put_entity", "get_entity", "delete_entity", "list_queues", "list_topics", "list_subscriptions"),
        *("put_rule", "get_rule", "delete_rule", "list_rules", "get_namespace"),
    ),
    "Manage",
)
MONITORING_RIGHTS = {
    **dict.fromkeys(
        ("health", "health_overall", "health_live", "health_ready", "health_consumers", "ca_certificate", "proof"), OPEN
    ),
    **dict.fromkeys(("metrics", "servicebus_metrics"), "Listen"),
    **dict.fromkeys(("docs", "servicebus_docs", "openapi", "servicebus_openapi"), "Listen"),
    "reset": "Manage",
    "console": "Listen",
    **{f"console_{name.replace('.', '_')}": OPEN for name in STATIC},
}
# The management API, one table after the other. An operation with `names_entity` belongs in OF_QUERY, too.
ENTITIES_RIGHTS = dict.fromkeys(("entities", "entities_live"), "Listen")
OWN_SCOPE = {"entities", "entities_live"}
"""For whatever a token is for: the handler shows no more than that."""

# What is set.
SETTINGS_RIGHTS: dict[str, str] = dict.fromkeys(
    (
        *("declare_entities", "delete_named_entity", "rules_of_entity", "set_rule", "delete_named_rule"),
        *("list_access", "add_access", "rotate_access", "remove_access"),
    ),
    "Manage",
)
OF_QUERY_SETTINGS = {*SETTINGS_RIGHTS} - {"declare_entities"}

# Messages one by one.
MESSAGES_RIGHTS: dict[str, str] = {
    "send_messages": "Send",
    **dict.fromkeys(("move_messages", "remove_messages"), "Manage"),
    **dict.fromkeys(
        (
            *("peek_messages", "receive_messages", "settle_messages", "renew_messages"),
            *("accept_session_lock", "renew_session_lock", "release_session_lock"),
        ),
        "Listen",
    ),
}
OF_QUERY_MESSAGES = {*MESSAGES_RIGHTS}

# History.
HISTORY_RIGHTS: dict[str, str] = dict.fromkeys(
    (
        *("query_store", "trace_message", "replay_messages", "count_replay", "send_replay", "export_store"),
        *("read_position", "list_positions", "delete_position", "import_lines", "relay_batch"),
    ),
    "Manage",
)

# Events.
EVENTS_RIGHTS = dict.fromkeys(("events", "events_last", "events_live"), "Manage")

# Bulk.
BULK_RIGHTS: dict[str, str] = dict.fromkeys(
    (
        *("list_dead_letters", "list_dead_letter_groups", "create_job", "list_jobs", "get_job", "watch_job"),
        *("pause_job", "resume_job", "cancel_job"),
    ),
    "Manage",
)

# The server itself.
CONTROL_RIGHTS = {
    **dict.fromkeys(("server", "server_live", "server_errors"), "Listen"),
    **dict.fromkeys(("server_logs", "server_stop"), "Manage"),
}

# All of them.
MANAGEMENT_RIGHTS = {
    **ENTITIES_RIGHTS,
    **SETTINGS_RIGHTS,
    **MESSAGES_RIGHTS,
    **HISTORY_RIGHTS,
    **EVENTS_RIGHTS,
    **BULK_RIGHTS,
    **CONTROL_RIGHTS,
}
OF_QUERY = OF_QUERY_SETTINGS | OF_QUERY_MESSAGES
RIGHTS = {**MESSAGE_RIGHTS, **ADMINISTRATION_RIGHTS, **MONITORING_RIGHTS, **MANAGEMENT_RIGHTS}
OF_PATHS = {*MESSAGE_RIGHTS, *ADMINISTRATION_RIGHTS} - {"list_queues", "list_topics", "get_namespace"}
OF_ENTITIES = OF_PATHS | OF_QUERY
BASIC = {
    *("metrics", "servicebus_metrics", "docs", "servicebus_docs", "openapi", "servicebus_openapi"),
    *("entities", "entities_live", "server", "server_live", "server_errors", "console"),
}

ENTITY, SIBLING = "orders", "orders1"
QUERY_NAMES = (
    *("orders", "ORDERS", "%6frders", "/orders/", "orders/$DeadLetterQueue", "orders%2F%24deadletterqueue"),
    "orders/Subscriptions/s2",
)

ROOT = rule("root", ALL, 1)
BY_RIGHT = {right: rule(f"only{right}", ALL if right == "Manage" else [right], 2 + at) for at, right in enumerate(ALL)}
OFF = rule("off", ALL, 6).switched(False)
ROTATED = rule("rotated", ALL, 7)
NOW_ROTATED = ROTATED.rotated(bytes(range(32)))
OUT = dataclasses.replace(NOW_ROTATED.rotated(bytes(range(1, 33))), name="out")
OWN = {right: rule(f"own{right}", ALL if right == "Manage" else [right], 10 + at) for at, right in enumerate(ALL)}
ON_SIBLING = rule("beside", ALL, 14)
STRANGER = rule("stranger", ALL, 15)

NAMESPACE = Namespace(
    [ROOT, *BY_RIGHT.values(), OFF, NOW_ROTATED, OUT],
    {ENTITY: tuple(OWN.values()), SIBLING: (ON_SIBLING,), "order": (), "other": ()},
)


class Identity(NamedTuple):
    """A caller. `rights` None: 401. Otherwise 403, unless they have the right and its scope covers the operation.

    `everywhere`: it is for the namespace. `own`: it is for the entity of the operation and what is below it.
    """

    name: str
    authorization: str | None
    rights: tuple[str, ...] | None
    everywhere: bool = False
    own: bool = False
    peer: str = ELSEWHERE
    basic: bool = False


def basic(name: str, key: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()


def identities() -> Iterator[Identity]:
    yield Identity("none", None, None)
    yield Identity("none, on this machine", None, None, peer=LOOPBACK)
    for text in ("", " ", "nonsense", "SharedAccessSignature", "SharedAccessSignature sr=&sig=&se=&skn="):
        yield Identity(f"broken {text!r}", text, None)
    yield Identity("bearer", "Bearer eyJhbGciOiJub25lIn0.e30.", None)
    yield Identity("expired", token("", ROOT, NOW_S), None)
    yield Identity("forged", token("", ROOT, key=STRANGER.primary_key), None)
    yield Identity("signature of another resource", token("", ROOT).replace("sr=sb", "sr=SB"), None)
    yield Identity("signature of another time", token("", ROOT).replace("&se=18", "&se=19"), None)
    yield Identity("unknown rule", token("", STRANGER), None)
    yield Identity("name of another rule", token("", STRANGER).replace("stranger", "root"), None)
    yield Identity("disabled rule", token("", OFF), None)
    yield Identity("rotated-out key", token("", OUT, key=ROTATED.primary_key), None)
    yield Identity("well-known key", token("", well_known_rule()), None)
    yield Identity("well-known key, on this machine", token("", well_known_rule()), None, peer=LOOPBACK)
    yield Identity("secondary key after a rotation", token("", ROTATED), ALL, everywhere=True)
    yield Identity("root", token("", ROOT), ALL, everywhere=True)
    yield Identity("root, for the entity", token(ENTITY, ROOT), ALL, own=True)
    yield Identity("root, for the entity in capitals", token(f"{ENTITY.upper()}/", ROOT), ALL, own=True)
    for path in ("other", SIBLING, "order", f"{ENTITY}/..", f"{ENTITY}//", ".", f"{ENTITY}%2F", f"{ENTITY}/deeper"):
        # A trailing slash or two is no part of a scope; everything else is a name that the entity does not have.
        yield Identity(f"root, for {path}", token(path, ROOT), ALL, own=path.strip("/") == ENTITY)
    for right, by in BY_RIGHT.items():
        rights = ALL if right == "Manage" else (right,)
        yield Identity(f"{right} on the namespace", token("", by), rights, everywhere=True)
        yield Identity(f"{right} for the entity", token(ENTITY, by), rights, own=True)
        yield Identity(f"{right} for its sibling", token(SIBLING, by), rights)
    for right, by in OWN.items():
        rights = ALL if right == "Manage" else (right,)
        yield Identity(f"{right} on the entity", token(ENTITY, by), rights, own=True)
        yield Identity(f"{right} on the entity, for all", token("", by), None)
        yield Identity(f"{right} on the entity, for its sibling", token(SIBLING, by), None)
    yield Identity("a rule of the sibling", token(SIBLING, ON_SIBLING), ALL)
    yield Identity("a rule of the sibling, for the entity", token(ENTITY, ON_SIBLING), None)
    yield Identity("basic", basic("root", ROOT.primary_key), ALL, everywhere=True, basic=True)
    yield Identity("basic, wrong key", basic("root", STRANGER.primary_key), None)
    yield Identity("basic, disabled rule", basic("off", OFF.primary_key), None)


IDENTITIES = list(identities())


def expected(operation: str, caller: Identity) -> int:
    """The oracle: from the table above and the identity alone."""
    right = RIGHTS[operation]
    if right == OPEN:
        return 200
    if caller.rights is None or (caller.basic and operation not in BASIC):
        return 401
    covers = caller.everywhere or (caller.own and operation in OF_ENTITIES) or operation in OWN_SCOPE
    return 200 if covers and right in caller.rights else 403


def paths(operation: Operation) -> Iterator[str]:
    """Every documented path, and spellings of the entity that must make no difference."""
    if operation.names_entity:
        yield from [f"{operation.documented[0]}?entity={name}" for name in QUERY_NAMES]
        return
    for documented in operation.documented:
        path = re.sub(r"{(entity|queue|topic)}", ENTITY, documented).replace("{subscription}", "s1")
        path = re.sub(r"{\w+}", "7", path)
        yield path
        yield path.replace(ENTITY, "ORDERS") + "/"
        yield path.replace(ENTITY, "%6frders")
        if operation.shape.startswith("entity/messages"):
            yield path.replace(ENTITY, f"{ENTITY}/$DeadLetterQueue", 1)
            yield path.replace(ENTITY, f"{ENTITY}%2F%24deadletterqueue", 1)
            yield path.replace(ENTITY, f"{ENTITY}/Subscriptions/s2", 1)


def application_of(front: bool) -> Asgi:
    """The table as it is, with handlers that only report that they were reached."""
    serving = cast(Any, Holding(NAMESPACE))
    service = Service(serving, SasAuthorization(serving, HttpSettings()), cast(Any, Silent()), 1_000)
    table = OperationTable(tuple(opened(operation) for operation in TABLE.operations))
    documented = application(service, table)
    return cast(Any, Front(service, table, documented) if front else documented)


FRONT, FASTAPI = application_of(True), application_of(False)


# The table is complete


@pytest.mark.parametrize(
    ("operations", "rights"),
    [
        (MESSAGES, MESSAGE_RIGHTS),
        (ADMINISTRATION, ADMINISTRATION_RIGHTS),
        (MONITORING, MONITORING_RIGHTS),
        (MANAGEMENT, MANAGEMENT_RIGHTS),
    ],
    ids=["messages", "administration", "monitoring", "management"],
)
def test_every_operation_has_a_row_here_and_every_row_an_operation(
    operations: tuple[Operation, ...], rights: dict[str, str]
) -> None:
    names = [operation.name for operation in operations]
    assert len(set(names)) == len(names)
    if names:
        assert set(names) == rights.keys()


def test_the_matrix_covers_the_whole_table() -> None:
    assert {operation.name for operation in TABLE.operations} <= RIGHTS.keys()
    assert all([operation.documented for operation in TABLE.operations])


def test_every_documented_path_leads_to_its_operation() -> None:
    for operation in TABLE.operations:
        for path in paths(operation):
            place = place_of(path.partition("?")[0].encode())
            assert TABLE.find(place.shape, operation.method) is operation, path
            named = place.entity.casefold()
            assert (named == ENTITY or named.startswith(f"{ENTITY}/")) == (operation.name in OF_PATHS), path
        assert operation.names_entity == (operation.name in OF_QUERY)


# Zero wrong allows


@pytest.mark.parametrize("operation", TABLE.operations, ids=lambda operation: str(operation.name))
async def test_exactly_those_are_allowed_that_may(operation: Operation) -> None:
    for caller in IDENTITIES:
        headers = {"Accept": operation.media} if operation.media else {}
        headers |= {} if caller.authorization is None else {"Authorization": caller.authorization}
        wanted = expected(operation.name, caller)
        for path in paths(operation):
            answer = await ask(FRONT, operation.method, path, headers, peer=caller.peer)
            assert answer.status == wanted, (caller.name, operation.method, path, answer)
            assert (answer.body == b"allowed") == (wanted == 200), (caller.name, path)
        answer = await ask(FASTAPI, operation.method, next(paths(operation)), headers, peer=caller.peer)
        assert answer.status == wanted, (caller.name, operation.method, answer)


def test_the_matrix_has_allowed_and_refused_callers_for_every_operation() -> None:
    """So that an oracle that always says no, or yes, fails."""
    for operation in TABLE.operations:
        statuses = {expected(operation.name, caller) for caller in IDENTITIES}
        assert statuses == ({200} if RIGHTS[operation.name] == OPEN else {200, 401, 403}), operation.name


# Paths that try to be another


@pytest.mark.parametrize(
    "path",
    [
        "/orders1/messages",
        "/orders/../other/messages",
        "/orders%2F..%2Fother/messages",
        "/other/messages?sr=orders",
        "/other%2Fmessages",
        "/%2Forders/messages",
        "/orders%252F..%252Fother/messages",
        "/servicebus/queues/other/messages",
        "/servicebus/orders/other/messages",
        "/servicebus/orders/queues/other/messages",
        "/orders%00/messages",
        "/orders;/messages",
        "/order/s/messages",
    ],
)
@pytest.mark.parametrize("by", [ROOT, OWN["Manage"]], ids=["by a rule of the namespace", "by a rule of the entity"])
async def test_a_token_for_one_entity_never_reaches_the_name_of_another(path: str, by: AuthorizationRule) -> None:
    """Where such a request is allowed at all, the entity that its handler sees is one that the token is for."""
    reached: list[str] = []
    base = opened(next(iter(TABLE.operations)))

    async def handler(service: Service, request: Request) -> Response:
        reached.append(request.entity)
        return Response(200)

    operations = tuple(
        dataclasses.replace(base, name=shape, method="POST", shape=shape, right=Right.SEND, handler=handler)
        for shape in ("entity/messages", "entity")
    )
    serving = cast(Any, Holding(NAMESPACE))
    service = Service(serving, SasAuthorization(serving, HttpSettings()), cast(Any, Silent()), 1_000)
    table = OperationTable(operations)
    app = cast(Any, Front(service, table, application(service, table)))
    answer = await ask(app, "POST", path, {"Authorization": token(ENTITY, by)})
    for entity in reached:
        first = entity.casefold().split("/")[0]
        assert first == ENTITY, (path, entity)
    assert (answer.status == 200) == bool(reached)
    assert "other" not in reached
