"""A server whose store fails or whose disk is full: 503 meanwhile, and everything that was acknowledged is there after.

The application is the real one, on SQLite.
"""

import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.full_child import fill
from tests.crash.server_process import TOKEN
from tests.crash.test_full_disk import mounted
from tests.integration.server.running import PATIENCE_S, Running
from tests.integration.server.test_life import fail

Serve = Callable[..., Running]
REAL: dict[str, Any] = {"build_app": None, "make_broker": None}
ENTITIES = '{"queues": {"q": {"lock_duration": 300, "max_delivery_count": 100}, "empty": {}}}'


class Asking:
    """One connection. A status, headers in lower case, a body."""

    def __init__(self, server: Running) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.server.port, PATIENCE_S)

    def __call__(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        self._connection.request(method, path, body, {"authorization": TOKEN, **headers})
        response = self._connection.getresponse()
        read = response.read()
        return response.status, {name.lower(): text for name, text in response.getheaders()}, read

    def send(self, number: int, size: int = 0) -> int:
        properties = json.dumps({"MessageId": str(number)})
        return self("POST", "/q/messages", b"x" * size, BrokerProperties=properties)[0]

    def receive(self) -> tuple[str, str]:
        """The id of the next message, and where it is settled; "" for none."""
        status, headers, _ = self("POST", "/q/messages/head")
        if status == 204:
            return "", ""
        assert status == 201
        return json.loads(headers["brokerproperties"])["MessageId"], headers["location"].split("/", 3)[3]

    def drain(self) -> list[str]:
        found = []
        while (received := self.receive())[0]:
            found.append(received[0])
            assert self("DELETE", f"/{received[1]}")[0] == 200
        return found

    def close(self) -> None:
        self._connection.close()


def is_waited_for(server: Running) -> bool:
    """Whether any receive waits for a message."""
    state = server.server.serving.bus._runtime.queues().store._state  # type: ignore[attr-defined]
    return any(entity.wakers for entity in state.entities.values())


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Iterator[Callable[..., tuple[Running, Callable[[], Asking]]]]:
    opened: list[Asking] = []

    def started(store: Path) -> tuple[Running, Callable[[], Asking]]:
        entities = tmp_path / "entities.json"
        entities.write_text(ENTITIES)
        server = serve(REAL, store=str(store), entities=str(entities))

        def connect() -> Asking:
            opened.append(Asking(server))
            return opened[-1]

        return server, connect

    yield started
    for each in opened:
        each.close()


@pytest.mark.unchecked
def test_a_failed_store_is_503_until_it_is_open_again(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    server, connect = start(path)
    ask, waiting, answers = connect(), connect(), []
    assert [ask.send(number) for number in range(10)] == [201] * 10
    token = ask.receive()[1]
    poll = threading.Thread(target=lambda: answers.append(waiting("POST", "/empty/messages/head?timeout=300")))
    poll.start()
    server.until(lambda: is_waited_for(server))
    away = path.with_name("away.db")
    os.rename(path, away)  # So that it cannot be opened before the test has looked.
    server.do(lambda: fail(server))
    status, headers, body = ask("POST", "/q/messages", b"lost")
    assert (status, headers["retry-after"]) == (503, "1")
    assert b"the disk is gone" in body
    poll.join(PATIENCE_S)  # Not after its 300 seconds: that broker would never wake it.
    assert answers[0][0] == 503
    for method, target in (("POST", "/q/messages"), ("POST", "/q/messages/head"), ("GET", "/health"), ("GET", "/q")):
        assert ask(method, target)[0] == 503
    os.rename(away, path)
    server.until(lambda: not server.server.serving.problem)
    assert ask("GET", "/health")[0] == 200
    assert ask("DELETE", f"/{token}")[0] == 200  # A lock survives it, too.
    assert ask.drain() == [str(number) for number in range(1, 10)]


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["bus.db-wal", "bus.db.lock"])
def test_a_file_that_is_deleted_under_a_server_costs_nothing(start: Any, tmp_path: Path, name: str) -> None:
    server, connect = start(tmp_path / "bus.db")
    ask = connect()
    assert [ask.send(number, 3_000) for number in range(50)] == [201] * 50
    (tmp_path / name).unlink()
    server.do(server.server.serving.check)
    server.until(lambda: server.server.serving.reopened == 1)
    assert ask.send(50) == 201
    assert ask.drain() == [str(number) for number in range(51)]


@pytest.mark.unchecked
def test_a_store_that_fails_again_and_again_under_load(start: Any, tmp_path: Path) -> None:
    """Unknown outcomes are either, never both: a message is there once or not at all, and all acknowledged ones are."""
    server, connect = start(tmp_path / "bus.db")
    acknowledged: list[list[int]] = [[] for _ in range(4)]
    stop = threading.Event()

    def send(lane: int) -> None:
        ask, number = connect(), 0
        while not stop.is_set():
            if ask.send(lane * 100_000 + number) == 201:
                acknowledged[lane].append(lane * 100_000 + number)
            number += 1

    threads = [threading.Thread(target=send, args=(lane,)) for lane in range(4)]
    for each in threads:
        each.start()
    for times in range(1, 4):
        wanted = sum(len(each) for each in acknowledged) + 40
        server.until(lambda wanted=wanted: sum(len(each) for each in acknowledged) >= wanted)
        server.do(lambda: fail(server))
        server.until(lambda times=times: server.server.serving.reopened == times)
    stop.set()
    for each in threads:
        each.join(PATIENCE_S)
    found = [int(each) for each in connect().drain()]
    assert len(found) == len(set(found))
    for lane in acknowledged:
        assert [each for each in found if each in set(lane)] == lane


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted(folder, "-t", "tmpfs", "-o", "size=16m", "tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_sends_and_goes_on_delivering(start: Any, small: Path) -> None:
    server, connect = start(small / "bus.db")
    ask, sent = connect(), 0
    for _ in range(100):
        assert ask.send(sent, 2_000) == 201
        sent += 1
    fill(str(small / "filler"))
    while (status := ask.send(sent, 2_000)) == 201:
        sent += 1
    assert status == 503
    status, headers, body = ask("POST", "/q/messages", b"x" * 2_000, Accept="application/json")
    assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (503, "1", "store_full")
    assert ask("PUT", "/servicebus/queues/more", b"{}", **{"content-type": "application/json"})[0] == 503
    assert server.server.serving.reopened == 0
    assert ask.drain() == [str(number) for number in range(sent)]
    (small / "filler").unlink()
    while (answer := ask("POST", "/q/messages", b"x", BrokerProperties='{"MessageId": "-1"}'))[0] != 201:
        time.sleep(int(answer[1]["retry-after"]))  # As a client does. The store looks for space once a second.
    assert ask.drain() == ["-1"]
