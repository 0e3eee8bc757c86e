"""`unibus serve` over HTTP, with wrk: requests and messages a second, percentiles, processor time, memory.

200-byte JSON messages with BrokerProperties over keep-alive connections, 32 and 1 of them; every send and settlement is
synced (D2), with authorization, metrics and audit on, as a server has them by default. Beside us, in turns, two servers
without a store or a key on the same uvicorn, httptools and uvloop (`benchmarks.http_limits`): FastAPI routes with
pydantic bodies, and as the limit a bare ASGI callable. Batches are also compared with `send_many` and `receive_batch`
in process. The best round counts. Processor time is the server's, for a request: it varies least between runs. The last
figures are the bars that we set ourselves. The targets are 10,000 and 5,000 messages a second and a latency; that
is given at one connection and as a difference to the limit, since an empty route at 32 connections
would miss them by itself.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import http_entities, http_idle, http_servers, wrk
from benchmarks.disk import scratch
from benchmarks.http_figures import (
    BARE,
    FASTAPI,
    IN_PROCESS,
    ON_LOOP,
    OURS,
    VARIANTS,
    WITH_ENTITIES,
    WITH_REQUEST_LOG,
    Found,
    Key,
    bars,
    figures_of,
    variants,
)
from benchmarks.http_operations import OPERATIONS, SEND, Operation
from benchmarks.http_servers import Server
from benchmarks.measure import Options, rounds_of
from benchmarks.report import Figure, Report
from benchmarks.wrk import Load

CONNECTIONS = (32, 1)
SECONDS = 1
ROUNDS_MAX = 5
"""A round of all contenders and operations takes a minute or two."""

SEND_TIMES = 2
IDLE_ROUNDS_MAX = 2


def run(options: Options) -> Report:
    few = Options(min(options.rounds, 2 if options.quick else ROUNDS_MAX), options.quick)
    http_idle.allow_files()
    with scratch() as folder:
        loads = _loads(folder, few)
        idle = _idle(folder, Options(min(few.rounds, IDLE_ROUNDS_MAX), few.quick))
    entities = http_entities.figures(options)
    figures = (*figures_of(loads, CONNECTIONS), *variants(loads, CONNECTIONS), idle, *entities, *bars(loads))
    return Report("http", figures)


def _loads(folder: Path, options: Options) -> Found:
    """The bars depend on how we send, so that is measured in more rounds than the other operations."""
    more = Options(SEND_TIMES * options.rounds, options.quick)
    found: dict[Key, Load] = {}
    with _servers(folder) as servers:
        for operations, chosen in (((SEND,), more), (OPERATIONS[1:], options)):
            rounds = rounds_of(_trials(operations, servers), SECONDS, chosen, warm_up=False)
            found |= {key: wrk.best(loads) for key, loads in rounds.items()}
    return found


def _trials(operations: Sequence[Operation], servers: Mapping[str, Server]) -> dict[Key, Callable[[int], Load]]:
    """Those of one operation follow each other, so that they meet the same neighbours on the machine."""
    found: dict[Key, Callable[[int], Load]] = {}
    for operation in operations:
        for connections in CONNECTIONS:
            for name, server in servers.items():
                if operation is SEND or name not in VARIANTS:
                    found[operation.name, connections, name] = partial(_load, operation, name, server, connections)
            if operation.in_process is not None:
                found[operation.name, connections, IN_PROCESS] = partial(operation.in_process, connections)
    return found


@contextmanager
def _servers(folder: Path) -> Iterator[dict[str, Server]]:
    """All of them at once: who is not measured is idle, and the order of turns can change."""
    many = folder / "many.db"
    asyncio.run(http_entities.fill(many))
    with ExitStack() as stack:
        yield {
            OURS: stack.enter_context(http_servers.unibus(folder / "bus.db")),
            ON_LOOP: stack.enter_context(http_servers.unibus(folder / "loop.db", command=http_servers.ON_LOOP)),
            WITH_REQUEST_LOG: stack.enter_context(http_servers.unibus(folder / "logged.db", "--request-log")),
            WITH_ENTITIES: stack.enter_context(http_servers.unibus(many)),
            FASTAPI: stack.enter_context(http_servers.limit("fastapi")),
            BARE: stack.enter_context(http_servers.limit("bare")),
        }


def _load(operation: Operation, name: str, server: Server, connections: int, seconds: int) -> Load:
    if name not in (FASTAPI, BARE):
        return operation.ours(server, connections, seconds)
    return wrk.run(server.address, server.pid, [operation.limit(server.token)], connections, seconds)


def _idle(folder: Path, options: Options) -> Figure:
    def ours(connections: int) -> float:
        with http_servers.unibus(folder / "idle.db") as server:
            return http_idle.idle_bytes(server, connections)

    def limit(name: str, connections: int) -> float:
        with http_servers.limit(name) as server:
            return http_idle.idle_bytes(server, connections)

    trials = {OURS: ours, FASTAPI: partial(limit, "fastapi"), BARE: partial(limit, "bare")}
    rounds = rounds_of(trials, http_idle.CONNECTIONS, options, warm_up=False)
    best = {name: min(found) for name, found in rounds.items()}
    return Figure("an idle connection, resident", "bytes", best[OURS], None, {FASTAPI: best[FASTAPI]}, best[BARE])
