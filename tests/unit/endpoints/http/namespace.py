"""A namespace of rules without a store, and requests to an ASGI application without a network."""

import hashlib
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

from tests.unit.endpoints.asgi_client import Answer, AsgiClient, scope_of
from unibus.core.access.rules import AuthorizationRule
from unibus.core.access.token import make_token
from unibus.endpoints.http.application.app import Asgi
from unibus.endpoints.http.operation import Operation
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.routing import place_of
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound

Message = MutableMapping[str, object]

HOST = "bus.test"
NOW_S = 1_800_000_000
LATER_S = NOW_S + 3600
ALL = ("Send", "Listen", "Manage")
LOOPBACK = "127.0.0.1"
ELSEWHERE = "203.0.113.9"


def rule(name: str, rights: Sequence[str], seed: int) -> AuthorizationRule:
    """The same seed gives the same keys; different ones have none in common."""
    return AuthorizationRule.generated(name, rights, hashlib.sha512(bytes([seed])).digest())


def token(path: str, by: AuthorizationRule, expires_s: int = LATER_S, key: str = "") -> str:
    return make_token(f"sb://{HOST}/{path}", by.name, key or by.primary_key, expires_s)


@dataclass
class Namespace:
    """The part of a broker that decides about access. `asked` counts how often the entities' rules were read."""

    rules: Sequence[AuthorizationRule] = ()
    entities: dict[str, Sequence[AuthorizationRule]] = field(default_factory=dict)
    now_s: int = NOW_S

    def namespace_rules(self) -> Sequence[AuthorizationRule]:
        return self.rules

    def access_rules(self, name: str) -> Sequence[AuthorizationRule]:
        if name not in self.entities:
            raise EntityNotFound(f"there is no entity {name!r}")
        return self.entities[name]

    def now_ns(self) -> int:
        return self.now_s * 1_000_000_000


@dataclass
class Holding:
    """A server's hold on its bus."""

    broker: object


class Silent:
    """An observer that counts nothing."""

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        pass


def request(
    path: str = "/q1/messages",
    authorization: str | None = None,
    peer: str = ELSEWHERE,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> Request:
    given = dict(headers or {})
    if authorization is not None:
        given["Authorization"] = authorization
    scope = scope_of(method, path, given, peer)
    return Request(scope, _empty, place_of(path.partition("?")[0].encode()))


async def _empty() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ask(
    app: Asgi,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    peer: str = ELSEWHERE,
) -> Answer:
    """One request of a client elsewhere that sends no header of its own, with its whole answer."""
    return await AsgiClient(app, {}, peer)(method, path, body, headers)


async def allowed(service: Service, request: Request) -> Response:
    """Instead of a handler: a request that gets here was allowed."""
    return Response(200, b"allowed")


def opened(operation: Operation) -> Operation:
    """The operation with its own right and place, and a handler that only reports that it was reached."""
    import dataclasses

    return dataclasses.replace(operation, handler=allowed)
