"""A tea shop on FastAPI: a route that publishes, a handler in the background, and Service Bus over HTTP, on one bus.

    pip install 'unibus[server]'
    python examples/fastapi_app.py                                    or: uvicorn fastapi_app:app

    curl localhost:8000/orders -H 'Content-Type: application/json' -d '{"drink": "tea", "cups": 2}'
    curl localhost:8000/orders

Other programs reach the same bus at /bus, with the key in TEA_SHOP_KEY (44 characters of base64):

    export TEA_SHOP_KEY=$(openssl rand -base64 32)
    TOKEN=$(unibus access token --connection-string \\
        "Endpoint=sb://localhost:8000;SharedAccessKeyName=shop;SharedAccessKey=$TEA_SHOP_KEY")
    curl localhost:8000/bus/orders/messages -H "Authorization: $TOKEN" \\
        -H 'Content-Type: application/json' -d '{"drink": "maté", "cups": 1}'

The channel is persistent, so an order that was accepted is brewed also when the process ends before that.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI, Request

from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.integrations.fastapi import Bus, bus_of, http_endpoint, lifespan


@dataclass
class Order:
    drink: str
    cups: int = 1


@dataclass
class Kitchen:
    """The handler of orders. It runs in the background, on the loop of the application."""

    brewed: list[Order] = field(default_factory=list)

    async def brew(self, order: Order) -> None:
        self.brewed.append(order)


@asynccontextmanager
async def kitchen(app: FastAPI) -> AsyncIterator[dict[str, Kitchen]]:
    """Our own lifespan: it runs while the bus is open."""
    found, bus = Kitchen(), bus_of(app)
    bus.create_channel("orders", persistent=True)
    bus.subscribe("orders", found.brew, group="kitchen")
    yield {"kitchen": found}


def rules() -> list[AuthorizationRule]:
    """Without a key no other program may use the endpoint."""
    key = os.environ.get("TEA_SHOP_KEY")
    return [AuthorizationRule("shop", frozenset({Right.SEND, Right.LISTEN}), key, key)] if key else []


bus = lifespan(os.environ.get("TEA_SHOP_STORE", "tea-shop.db"), kitchen, drain_timeout=10)
app = FastAPI(title="Tea shop", lifespan=bus)
app.mount("/bus", http_endpoint(bus, authorization_rules=rules()))


@app.post("/orders", status_code=202)
async def order(order: Order, bus: Bus) -> dict[str, str]:
    """202 once the order is on the disk."""
    message = await bus.publish("orders", order)
    return {"id": str(message.id)}


@app.get("/orders")
async def brewed(request: Request) -> list[Order]:
    kitchen: Kitchen = request.state.kitchen
    return kitchen.brewed


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=8000)
