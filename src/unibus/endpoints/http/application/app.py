"""The ASGI application: the dispatcher `Front` of `unibus serve`, and FastAPI routes for the document and for mounting.

Both parse a path with `routing.place_of`, find the operation in the same table and end in `runner.run`, so they answer
alike. `Front` exists because FastAPI's routing costs more than a send (measured: a third of the requests per second).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.http.application.documents import described
from unibus.endpoints.http.application.observation import Observation, administrative, switch_logs
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.errors import error_body, error_response
from unibus.endpoints.http.monitoring.console import addresses
from unibus.endpoints.http.operation import Operation, OperationTable
from unibus.endpoints.http.request import PREFIX, Disconnected, Receive, Request, Response, Scope, Send
from unibus.endpoints.http.routing import RoutedPath, place_of
from unibus.endpoints.http.runner import answer, run
from unibus.endpoints.http.service import ControlledBroker, Service
from unibus.endpoints.http.settings import HttpSettings, Served
from unibus.errors import BusError

Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_RESOLVED: Final = "unibus.place"
_ELSEWHERE: Final = RoutedPath("")


class Front:
    """The ASGI callable of a server: dispatches requests to operations, and the lifespan to `behind`."""

    def __init__(self, service: Service, table: OperationTable, behind: Asgi) -> None:
        self._service = service
        self._table = table
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._behind(scope, receive, send)
            return
        try:
            place = resolved(scope)
        except BusError as error:
            await refuse_path(self._service, error, scope, receive, send)
            return
        operation = self._table.find(place.shape, str(scope["method"]))
        if operation is not None and (not operation.media or accepts(scope, operation.media)):
            await serve(self._service, operation, place, scope, receive, send)
        else:
            await refuse(self._service, self._table, Request(scope, receive, place), send)


async def refuse_path(service: Service, error: BusError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a path that cannot be parsed."""
    request = Request(scope, receive, RoutedPath("/"))
    await _refused(service, request, error_response(request, error), error.code, send)


async def refuse(service: Service, table: OperationTable, request: Request, send: Send) -> None:
    """Answer a request without an operation: 405 if the path has other methods, else 404. `/` has one for browsers
    only; another client gets the addresses to continue with."""
    if request.method == "GET" and request.place.shape == "/":
        await answer(request, addresses(request), send)
        service.observer.answered(request, NO_OPERATION, 200, 0, "", "")
        return
    allowed = table.methods(request.place.shape)
    if allowed:
        what = f"the method {request.method} is not allowed for this path"
        hint = f"use {' or '.join(allowed)}"
        if request.method == "POST" and request.place.shape == "entity":
            hint += "; messages are sent to /{entity}/messages"
        response = error_body(request, 405, "MethodNotAllowed", what, hint)
        response.headers.append(("Allow", ", ".join(allowed)))
    else:
        response = error_body(request, 404, "NotFound", "this path does not exist", "see /docs for the paths")
    await _refused(service, request, response, "no_operation", send)


async def _refused(service: Service, request: Request, response: Response, code: str, send: Send) -> None:
    await answer(request, response, send)
    service.observer.answered(request, NO_OPERATION, response.status, 0, code, "")


NO_OPERATION: Final = "none"
"""The operation in logs and metrics of a request that has none."""


async def serve(
    service: Service, operation: Operation, place: RoutedPath, scope: Scope, receive: Receive, send: Send
) -> None:
    try:
        await run(service, operation, Request(scope, receive, place), send)
    except Disconnected:
        return


def accepts(scope: Scope, media: str) -> bool:
    """Whether the client's Accept names this media type. `*/*` alone does not count: programs send that."""
    raw = scope["headers"]
    assert isinstance(raw, (list, tuple))
    return any([name.lower() == b"accept" and media.encode() in value for name, value in raw])


def resolved(scope: Scope, prefix: str = "") -> RoutedPath:
    """The parsed path of a request, cached in its scope. Inside a mount the path begins with the mount's prefix."""
    found = scope.get(_RESOLVED + prefix)
    if not isinstance(found, RoutedPath):
        raw = scope.get("raw_path")
        path = raw if isinstance(raw, bytes) and raw else str(scope["path"]).encode()
        root = f"{scope.get('root_path') or ''}{prefix}".encode()
        if prefix and not path.startswith(root + b"/"):
            return _ELSEWHERE
        found = place_of(path.removeprefix(root) if root else path)
        scope[_RESOLVED + prefix] = found
    return found


class OperationRoute(APIRoute):
    """A FastAPI route whose path is only documentation: the table decides which requests it serves.

    Each operation has a subclass of its own: some versions of FastAPI copy the routes of an included router, and such a
    copy inherits nothing but the class of the original.
    """

    operation: Operation
    service: Service
    prefix: str

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] != self.operation.method:
            return Match.NONE, {}
        try:
            place = resolved(scope, self.prefix)
        except BusError:
            return Match.NONE, {}
        operation = self.operation
        if place.shape != operation.shape or (operation.media and not accepts(scope, operation.media)):
            return Match.NONE, {}
        return Match.FULL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PREFIX] = self.prefix
        await serve(self.service, self.operation, resolved(scope, self.prefix), scope, receive, send)


def documented_router(service: Service, table: OperationTable, prefix: str = "") -> APIRouter:
    """Every operation as FastAPI routes, for `include_router`, mounting, and the OpenAPI document.

    Pass the prefix here, not to `include_router`: names of entities may have slashes, so a path alone does not show
    where its prefix ends.
    """
    router = APIRouter()
    for operation in table.operations:
        row = {"operation": operation, "service": service, "prefix": prefix}
        kind = type("OperationRoute", (OperationRoute,), row)
        for path in operation.documented:
            router.add_api_route(
                f"{prefix}{path}",
                _documented,
                methods=[operation.method],
                route_class_override=kind,
                include_in_schema=operation.in_document,
                **described(operation, path),
            )
    return router


async def _documented() -> None:
    # Never called: OperationRoute.handle answers. No docstring: FastAPI would show it as each operation's description.
    raise NotImplementedError


def application(service: Service, table: OperationTable) -> FastAPI:
    """The FastAPI application. Its own pages are switched off: those of the table check access."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await service.jobs.stop()  # The store is closed after this.

    app = FastAPI(
        title="unibus",
        description="Queues, topics and subscriptions over HTTP.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
    )
    app.include_router(documented_router(service, table))

    async def elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
        """Replaces FastAPI's own 404, so that both dispatchers answer alike."""
        try:
            place = resolved(scope)
        except BusError as error:
            await refuse_path(service, error, scope, receive, send)
        else:
            await refuse(service, table, Request(scope, receive, place), send)

    app.router.default = elsewhere
    app.router.redirect_slashes = False  # A path with a slash at its end is the same path.
    service.document = app.openapi
    return app


def front(service: Service) -> Front:
    return Front(service, TABLE, application(service, TABLE))


def build(
    serving: ControlledBroker,
    settings: Served,
    ca_path: Path | None = None,
    local_rule: AuthorizationRule | None = None,
) -> Front:
    """The application of `unibus serve`, with all its parts.

    `ca_path` is the file with the CA certificate that clients have to trust; None if there is none. `local_rule` is the
    rule for commands on this machine, in addition to those of the store and of the settings.
    """
    own = HttpSettings.of(settings, ca_path, local_rule)
    switch_logs(own.request_log, own.audit)
    observation = Observation(administrative(TABLE.operations), own.metrics_histograms_max)
    return front(Service(serving, SasAuthorization(serving, own), observation, own.body_bytes_max, own))
