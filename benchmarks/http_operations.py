"""The operations of the HTTP benchmarks: what a load does to our server, and the same request to the limits.

Each load has an entity of its own, which is deleted afterwards. Before that its messages are counted: as many must have
come or gone as requests were answered, and no more than those that were in flight when the load ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from benchmarks import http_inprocess, wrk
from benchmarks import http_requests as requests
from benchmarks.http_client import Client, connected
from benchmarks.http_requests import BATCH, JSON_TYPE
from benchmarks.http_servers import Server
from benchmarks.measure import Undelivered
from benchmarks.wrk import Load

SUBSCRIPTIONS = 10
SESSIONS = 32
SINGLE_MOST, BATCHED_MOST = 15_000, http_inprocess.MESSAGES_MAX
"""Messages that a load can receive or settle; it ends with the last of them."""

_numbers = count(1)

Ours = Callable[[Server, int, int], Load]
"""Puts a load on a server of ours, with so many connections and for so many seconds at most."""


@dataclass(frozen=True)
class Operation:
    """`limit` makes the request for an application of `benchmarks.http_limits`; `messages` are those of a request.
    `in_process` does the same without a network, with so many tasks and for so many seconds at most."""

    name: str
    ours: Ours
    limit: Callable[[str], bytes]
    messages: int = 1
    in_process: Callable[[int, int], Load] | None = None


def send(server: Server, connections: int, seconds: int) -> Load:
    with _queue(server) as (client, queue):
        load = wrk.run(
            server.address, server.pid, [requests.send(f"/{queue}/messages", server.token)], connections, seconds
        )
        check_count(client.count(_path(queue)), load.requests, connections)
    return load


def send_batches(server: Server, connections: int, seconds: int) -> Load:
    with _queue(server) as (client, queue):
        batch = requests.send_batch(f"/{queue}/messages", server.token)
        load = wrk.run(server.address, server.pid, [batch], connections, seconds)
        check_count(client.count(_path(queue)), BATCH * load.requests, BATCH * connections)
    return load


def send_to_topic(server: Server, connections: int, seconds: int) -> Load:
    """Every subscription gets every message."""
    with connected(server) as client:
        topic = f"topic-{next(_numbers)}"
        client.create_topic(topic, SUBSCRIPTIONS)
        load = wrk.run(
            server.address, server.pid, [requests.send(f"/{topic}/messages", server.token)], connections, seconds
        )
        for number in range(SUBSCRIPTIONS):
            found = client.count(f"/servicebus/topics/{topic}/subscriptions/s{number}")
            check_count(found, load.requests, connections)
        client.delete(f"/servicebus/topics/{topic}")
    return load


def send_in_sessions(server: Server, connections: int, seconds: int) -> Load:
    with _queue(server, sessions=True) as (client, queue):
        sent = [requests.send(f"/{queue}/messages", server.token, {"SessionId": each}) for each in _sessions()]
        load = wrk.run(server.address, server.pid, sent, connections, seconds)
        check_count(client.count(_path(queue)), load.requests, connections)
    return load


def receive(server: Server, connections: int, seconds: int) -> Load:
    """Each message is locked, none is settled."""
    with _queue(server) as (client, queue):
        client.fill(queue, SINGLE_MOST)
        head = requests.request("POST", f"/{queue}/messages/head", server.token)
        load = wrk.run(server.address, server.pid, [head], connections, seconds, SINGLE_MOST)
        # Whatever is left can be locked now: so many were locked by the load.
        left = _locked_by_client(client, queue)
        check_count(SINGLE_MOST - left, load.requests, connections)
    return load


def receive_in_sessions(server: Server, connections: int, seconds: int) -> Load:
    """The sessions are locked before, and have an equal share of the messages."""
    with _queue(server, sessions=True) as (client, queue):
        share = SINGLE_MOST // SESSIONS
        client.fill(queue, SESSIONS * share, _sessions())
        tokens = {each: client.accept_session(queue, each) for each in _sessions()}
        heads = [
            requests.request("POST", f"/{queue}/$sessions/{each}/{token}/messages/head", server.token)
            for each, token in tokens.items()
        ]
        return wrk.run(server.address, server.pid, heads, connections, seconds, SESSIONS * share)


def complete(server: Server, connections: int, seconds: int) -> Load:
    with _queue(server) as (client, queue):
        client.fill(queue, SINGLE_MOST)
        paths = client.lock_all(queue, SINGLE_MOST)
        settled = [requests.request("DELETE", path, server.token) for path in paths]
        load = wrk.run(server.address, server.pid, settled, connections, seconds, len(settled))
        check_count(SINGLE_MOST - client.count(_path(queue)), load.requests, connections)
    return load


def receive_batches(server: Server, connections: int, seconds: int) -> Load:
    """Received and deleted: what a client gets is settled, as there is no call that settles many."""
    with _queue(server) as (client, queue):
        client.fill(queue, BATCHED_MOST)
        path = f"/{queue}/messages/head?numofmessages={BATCH}&mode=ReceiveAndDelete"
        head = requests.request("POST", path, server.token)
        load = wrk.run(server.address, server.pid, [head], connections, seconds, BATCHED_MOST // BATCH)
        gone = BATCHED_MOST - client.count(_path(queue))
        check_count(gone, BATCH * load.requests, BATCH * connections)
    return load


def check_count(found: int, answered: int, in_flight_max: int) -> None:
    """What a request in flight at the end has done is not known, as its answer was not read."""
    if not answered <= found <= answered + in_flight_max:
        raise Undelivered(f"{answered} were answered and at most {in_flight_max} in flight, but {found} are there")


@contextmanager
def _queue(server: Server, sessions: bool = False) -> Iterator[tuple[Client, str]]:
    name = f"queue-{next(_numbers)}"
    with connected(server) as client:
        client.create_queue(name, sessions)
        yield client, name
        client.delete(_path(name))


def _path(queue: str) -> str:
    return f"/servicebus/queues/{queue}"


def _sessions() -> list[str]:
    return [f"session-{number}" for number in range(SESSIONS)]


def _locked_by_client(client: Client, queue: str) -> int:
    found = 0
    while locked := client.lock_some(queue):
        found += len(locked)
    return found


def _limit_of_send(token: str) -> bytes:
    return requests.send("/orders/messages", token)


def _limit_of_receive(token: str) -> bytes:
    return requests.request("POST", "/orders/head", token)


SEND = Operation("send", send, _limit_of_send)
OPERATIONS = (
    SEND,
    Operation("receive", receive, _limit_of_receive),
    Operation("complete", complete, lambda token: requests.request("DELETE", f"/orders/messages/1/{'0' * 36}", token)),
    Operation(f"send to {SUBSCRIPTIONS} subscriptions", send_to_topic, _limit_of_send),
    Operation("send in sessions", send_in_sessions, _limit_of_send),
    Operation("receive in sessions", receive_in_sessions, _limit_of_receive),
    Operation(
        f"send, by {BATCH}",
        send_batches,
        lambda token: requests.send_batch("/orders/batch", token, JSON_TYPE),
        BATCH,
        http_inprocess.send,
    ),
    Operation(
        f"receive, by {BATCH}",
        receive_batches,
        lambda token: requests.request("POST", "/orders/list", token),
        BATCH,
        http_inprocess.receive,
    ),
)
