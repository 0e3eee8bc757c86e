"""A plain HTTP client with a token, for what no client of Azure can ask."""

import http.client
import json
import time
from types import TracebackType
from typing import Any, NamedTuple

from tests.integration.namespace import Namespace
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.core.access.token import make_token


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def properties(self) -> Any:
        return json.loads(self.headers["brokerproperties"])


def token_for(port: int) -> str:
    return make_token(f"sb://localhost:{port}", WELL_KNOWN_NAME, WELL_KNOWN_KEY, int(time.time()) + 3600)


class Client:
    """One connection that is kept."""

    def __init__(self, namespace: Namespace, port: int = 0) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port or namespace.port, timeout=60)
        self._headers = {"Authorization": token_for(namespace.port)}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """`body` bytes and text as they are, anything else as JSON. An underscore in a header's name is a dash."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            given.setdefault("Content-Type", "application/json")
        self._connection.request(method, path, body, {**self._headers, **given})
        answer = self._connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def create(self, path: str, **settings: object) -> None:
        answer = self.ask("PUT", path, settings)
        assert answer.status == 201, answer

    def send(self, path: str, body: str) -> None:
        answer = self.ask("POST", f"{path}/messages", body)
        assert answer.status == 201, answer
