"""unibus in a FastAPI application: the public names.

    bus = lifespan("sqlite:///bus.db")
    app = FastAPI(lifespan=bus)                    the bus opens and closes with the application
    app.mount("/bus", http_endpoint(bus))          the HTTP endpoint of `unibus serve`, on the same bus


    @app.post("/orders")
    async def order(bus: Bus) -> None:             the same as bus: Annotated[MessageBus, Depends(get_message_bus)]
        await bus.send("orders", ...)

`get_message_bus` is not `unibus.get_message_bus`: that one returns the bus of the process, this one the bus of the
application that serves the request.
"""

from unibus.errors import ExtraMissing
from unibus.extras import install_extra

try:
    import fastapi as _fastapi  # noqa: F401 - imported first, so that the error has a hint if it is missing
except ModuleNotFoundError as error:
    if error.name != "fastapi":
        raise
    raise ExtraMissing(
        "unibus.integrations.fastapi needs FastAPI, which is not installed", install_extra("fastapi")
    ) from error

from unibus.integrations.bus_lifespan import Bus, BusLifespan, bus_of, get_message_bus, lifespan
from unibus.integrations.http_endpoint import EndpointSettings, http_endpoint, http_router

__all__ = [
    "Bus",
    "BusLifespan",
    "EndpointSettings",
    "bus_of",
    "get_message_bus",
    "http_endpoint",
    "http_router",
    "lifespan",
]
