"""What surrounds a measured load on our server: entities, messages to receive, and the counts that prove the work."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.http_requests import BATCH_TYPE, BODY, JSON_TYPE
from benchmarks.http_servers import Server

FILL_BATCH = 500
LOCK_DURATION = "PT5M"
"""Longer than any load: no lock ends while its message is settled."""

_ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{kind}Description '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">{properties}</{kind}Description>'
    "</content></entry>"
)


class Refused(RuntimeError):
    """The server did not do what was asked outside of a measurement."""


class Client:
    """One connection to a server of ours, with all rights."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._token = server.token

    def close(self) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: str = "", content_type: str = JSON_TYPE) -> bytes:
        headers = {"Authorization": self._token, "Content-Type": content_type, "Accept": JSON_TYPE}
        self._connection.request(method, path, body.encode(), headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 300:
            raise Refused(f"{method} {path}: {response.status} {content[:300]!r}")
        return content

    def create_queue(self, name: str, sessions: bool = False) -> None:
        lock = f"<LockDuration>{LOCK_DURATION}</LockDuration>"
        required = "<RequiresSession>true</RequiresSession>" if sessions else ""
        self._create(f"/servicebus/queues/{name}", "Queue", lock + required)

    def create_topic(self, name: str, subscriptions: int) -> None:
        self._create(f"/servicebus/topics/{name}", "Topic", "")
        for number in range(subscriptions):
            self._create(f"/servicebus/topics/{name}/subscriptions/s{number}", "Subscription", "")

    def _create(self, path: str, kind: str, properties: str) -> None:
        self.call("PUT", path, _ENTRY.format(kind=kind, properties=properties), "application/atom+xml")

    def delete(self, path: str) -> None:
        self.call("DELETE", path)

    def count(self, path: str) -> int:
        """The messages of a queue or subscription that are not settled, locked ones included."""
        counts = json.loads(self.call("GET", path))["counts"]
        return int(counts["active"]) + int(counts["locked"])

    def fill(self, queue: str, count: int, sessions: list[str] | None = None) -> None:
        """So many messages, those of the sessions in turn."""
        for first in range(0, count, FILL_BATCH):
            items: list[dict[str, object]] = [{"Body": BODY} for _ in range(first, min(first + FILL_BATCH, count))]
            for number, item in enumerate(items):
                if sessions:
                    item["BrokerProperties"] = {"SessionId": sessions[(first + number) % len(sessions)]}
            self.call("POST", f"/{queue}/messages", json.dumps(items), BATCH_TYPE)

    def lock_some(self, queue: str) -> list[str]:
        """Receive some messages, none when all are locked; gives the paths at which they are settled."""
        found = json.loads(self.call("POST", f"/{queue}/messages/head?numofmessages={FILL_BATCH}"))
        return [f"/{queue}/messages/{each['MessageId']}/{each['LockToken']}" for each in found]

    def lock_all(self, queue: str, count: int) -> list[str]:
        """Receive so many messages."""
        paths: list[str] = []
        while len(paths) < count:
            found = self.lock_some(queue)
            if not found:
                raise Refused(f"{queue} has {len(paths)} messages of {count}")
            paths += found
        return paths

    def accept_session(self, queue: str, session: str) -> str:
        """Lock a session; gives its token."""
        return str(json.loads(self.call("POST", f"/{queue}/$sessions/{session}"))["LockToken"])


@contextmanager
def connected(server: Server) -> Iterator[Client]:
    client = Client(server)
    try:
        yield client
    finally:
        client.close()
