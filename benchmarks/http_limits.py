"""The limits of the HTTP benchmarks: the same answers from the same engine, without a bus, a store or a key.

Two applications on the same uvicorn, httptools and uvloop as `unibus serve`. The bare one is an ASGI callable that
reads the body and answers: what no server on this engine can surpass. The other is what a team writes by hand, FastAPI
routes with pydantic bodies, and only as many routes as are measured, in its favour. Both answer with the headers and
bodies that a client of ours gets. Neither writes an access log.

    python -m benchmarks.http_limits bare|fastapi     prints its port, serves until it is terminated
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any

from fastapi import FastAPI, Header, Response
from pydantic import BaseModel

from benchmarks.http_requests import BATCH, BODY, ORDER

TOKEN = "01234567-89ab-cdef-0123-456789abcdef"
PROPERTIES = (
    '{"DeliveryCount":1,"EnqueuedTimeUtc":"Wed, 01 Jul 2026 08:00:00 GMT","MessageId":"0123456789abcdef",'
    f'"SequenceNumber":1,"State":"Active","LockToken":"{TOKEN}","LockedUntilUtc":"Wed, 01 Jul 2026 08:05:00 GMT"}}'
)
LOCATION = f"http://localhost/orders/messages/1/{TOKEN}"
ITEM = {"Body": BODY, "MessageId": "0123456789abcdef", "SequenceNumber": 1, "DeliveryCount": 1}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def bare() -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Answers by the last word of the path; what it answers was encoded beforehand."""
    import msgspec

    json_type = (b"content-type", b"application/json")
    batch = msgspec.json.encode([ITEM] * BATCH)
    properties = (b"BrokerProperties", PROPERTIES.encode())
    received = [json_type, properties, (b"Location", LOCATION.encode())]
    answers: dict[str, tuple[int, list[tuple[bytes, bytes]], bytes]] = {
        "messages": (201, [properties], b""),
        "batch": (201, [properties], b""),
        "head": (201, received, BODY.encode()),
        "list": (200, [json_type], batch),
    }
    settled: tuple[int, list[tuple[bytes, bytes]], bytes] = (200, [], b"")
    sized = {
        word: (status, [*headers, (b"content-length", b"%d" % len(body))], body)
        for word, (status, headers, body) in {**answers, "": settled}.items()
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        word = scope["path"].rpartition("/")[2]
        status, headers, body = sized.get(word) or sized[""]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


class Order(BaseModel):
    id: int
    customer: str
    amount: float
    note: str


class Item(BaseModel):
    Body: str
    BrokerProperties: dict[str, str]


class Received(BaseModel):
    Body: str
    MessageId: str
    SequenceNumber: int
    DeliveryCount: int


def fastapi() -> FastAPI:
    app = FastAPI()

    @app.post("/{queue}/messages", status_code=201)
    async def send(queue: str, order: Order, brokerproperties: Annotated[str, Header()]) -> Response:
        return Response(status_code=201, headers={"BrokerProperties": PROPERTIES})

    @app.post("/{queue}/batch", status_code=201)
    async def send_batch(queue: str, items: list[Item]) -> Response:
        return Response(status_code=201, headers={"BrokerProperties": PROPERTIES})

    @app.post("/{queue}/head", status_code=201)
    async def receive(queue: str, response: Response) -> Order:
        response.headers["BrokerProperties"] = PROPERTIES
        response.headers["Location"] = LOCATION
        return Order.model_validate(ORDER)

    @app.post("/{queue}/list")
    async def receive_list(queue: str) -> list[Received]:
        return [Received.model_validate(ITEM) for _ in range(BATCH)]

    @app.delete("/{queue}/messages/{message}/{token}")
    async def complete(queue: str, message: int, token: str) -> Response:
        return Response(status_code=200)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "healthy"}

    return app


APPLICATIONS: dict[str, Callable[[], Any]] = {"bare": bare, "fastapi": fastapi}


async def serve(name: str) -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    settings = uvicorn.Config(
        APPLICATIONS[name](), http="httptools", loop="uvloop", log_level="warning", access_log=False, lifespan="off"
    )
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(settings).serve(sockets=[listening])


def main(arguments: list[str]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
