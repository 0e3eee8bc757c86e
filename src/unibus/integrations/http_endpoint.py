"""The HTTP endpoint of `unibus serve`, inside a FastAPI application and on the application's own bus.

    app.mount(path, http_endpoint(bus))              one ASGI application, with the fast dispatcher
    app.include_router(http_router(bus, prefix))     a route for each operation, in the OpenAPI document of the app

Both answer as `unibus serve` does, because both end in `endpoints/http/runner.py`. Ports, TLS, deadlines and header
limits are those of the server that runs the application. The application's dependencies are not called for these
operations: a shared access signature authorizes them.

The well-known key of Microsoft's emulator is refused unless a setting accepts it. `unibus serve` accepts it from its
own machine; an application is usually behind a proxy, and then every client seems to be on the same machine.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypedDict, Unpack

from fastapi import APIRouter

from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.http.application.app import Asgi, application, documented_router, front
from unibus.endpoints.http.application.observation import Observation, administrative
from unibus.endpoints.http.application.operations import TABLE
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings
from unibus.errors import ConfigInvalid
from unibus.integrations.bus_lifespan import BusLifespan

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class EndpointSettings(TypedDict, total=False):
    """The settings of an endpoint in an application. The server that runs the application has the others."""

    namespace: str
    """The name of the namespace in answers; the host that clients call if omitted."""
    authorization_rules: Iterable[AuthorizationRule]
    """Rules in addition to those of the store."""
    well_known_key: bool
    """Accept the emulator's key from this machine and `allow_networks`, while no rule exists. False by default."""
    allow_networks: Iterable[str]
    body_bytes_max: int
    allow_reset: bool
    metrics: bool


def http_endpoint(bus: BusLifespan, **settings: Unpack[EndpointSettings]) -> Asgi:
    """The endpoint for `app.mount("/bus", http_endpoint(bus))`. `bus` is the lifespan of the application."""
    return front(_service(bus, settings))


def http_router(bus: BusLifespan, prefix: str, **settings: Unpack[EndpointSettings]) -> APIRouter:
    """The endpoint for `app.include_router(http_router(bus, "/bus"))`. Pass the prefix here, not to `include_router`.

    ConfigInvalid without a prefix: `/{entity}/messages` would catch requests for routes of the application.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigInvalid(f"the prefix {prefix!r:.60} is not a path", "begin with a slash, end without one: /bus")
    service = _service(bus, settings)

    def document() -> Mapping[str, object]:
        # Built at the first request for it: that takes a while, and the application has a document of its own.
        return application(service, TABLE).openapi()

    service.document = document
    return documented_router(service, TABLE, prefix)


def _service(bus: BusLifespan, given: EndpointSettings) -> Service:
    if not isinstance(bus, BusLifespan):
        raise ConfigInvalid(
            f"an endpoint needs the lifespan of its application, not a {type(bus).__name__}",
            "bus = lifespan(…); app = FastAPI(lifespan=bus); app.mount(path, http_endpoint(bus))",
        )
    settings = _settings(given)
    observation = Observation(administrative(TABLE.operations), settings.metrics_histograms_max)
    return Service(bus, SasAuthorization(bus, settings), observation, settings.body_bytes_max, settings)


def _settings(given: EndpointSettings) -> HttpSettings:
    unknown = sorted(given.keys() - EndpointSettings.__annotations__.keys())
    if unknown:
        raise ConfigInvalid(
            f"an endpoint has no setting {unknown[0]!r}", f"use one of {', '.join(EndpointSettings.__annotations__)}"
        )
    networks = given.get("allow_networks", ())
    checked: EndpointSettings = {
        **given,
        "well_known_key": given.get("well_known_key", False),
        "authorization_rules": tuple(given.get("authorization_rules", ())),
        # A single text is one network, not a sequence of characters.
        "allow_networks": (networks,) if isinstance(networks, str) else tuple(networks),
    }
    return HttpSettings(**checked)  # type: ignore[arg-type]
