"""The HTTP endpoint of `unibus serve`, inside of a FastAPI application and on the application's own bus.

    app.mount(path, http_endpoint(bus))              one ASGI application, with the quick dispatcher
    app.include_router(http_router(bus, prefix))     a route for each operation, in the OpenAPI document of the app

Both answer as `unibus serve` does, because both end in `endpoints/http/runner.py`. What differs is around them: ports,
TLS, deadlines and limits of headers are those of the server that runs the application, and its dependencies are not
called for these operations: a shared access signature decides.

The well-known key of Microsoft's emulator is refused unless it is asked for. `unibus serve` accepts it from its own
machine; an application is usually behind a proxy, and then every client seems to be on its own machine.
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
    """What can be set for an endpoint in an application. The rest is of the server that runs it."""

    namespace: str
    """The name that clients are shown; the host that they call if left out."""
    authorization_rules: Iterable[AuthorizationRule]
    """Rules beside those that the store has."""
    well_known_key: bool
    """Accept the emulator's key from this machine and `allow_networks`, while there is no rule. False by default."""
    allow_networks: Iterable[str]
    body_bytes_max: int
    allow_reset: bool
    metrics: bool


def http_endpoint(bus: BusLifespan, **settings: Unpack[EndpointSettings]) -> Asgi:
    """The endpoint for `app.mount("/bus", http_endpoint(bus))`. `bus` is the lifespan of the application."""
    return front(_service(bus, settings))


def http_router(bus: BusLifespan, prefix: str, **settings: Unpack[EndpointSettings]) -> APIRouter:
    """The endpoint for `app.include_router(http_router(bus, "/bus"))`. The prefix is given here, and not there.

    Without a prefix `/{entity}/messages` would take requests from routes of the application: ConfigInvalid.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigInvalid(f"the prefix {prefix!r:.60} is no path", "begin with a slash, end without one: /bus")
    service = _service(bus, settings)

    def document() -> Mapping[str, object]:
        # Made when it is asked for: it takes a while, and the application has a document of its own.
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
            f"an endpoint has no setting {unknown[0]!r}", f"known are {', '.join(EndpointSettings.__annotations__)}"
        )
    networks = given.get("allow_networks", ())
    checked: EndpointSettings = {
        **given,
        "well_known_key": given.get("well_known_key", False),
        "authorization_rules": tuple(given.get("authorization_rules", ())),
        # One network, and not its characters.
        "allow_networks": (networks,) if isinstance(networks, str) else tuple(networks),
    }
    return HttpSettings(**checked)  # type: ignore[arg-type]
