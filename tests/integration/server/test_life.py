"""How a server starts and stops, and what it does while its store has failed."""

import asyncio
import http.client
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import (
    PATIENCE_S,
    Running,
    TinyApp,
    TinyBroker,
    fail,
    read_all,
    read_answer,
    request,
    status_of,
)
from unibus.config.server_file import ServerFile, read_server_file, write_server_file
from unibus.config.settings import ServerSettings
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.server.server import Server
from unibus.endpoints.server.serving import Serving
from unibus.errors import (
    BusError,
    ConfigInvalid,
    EntityExists,
    StoreBusy,
    StoreFailed,
    StoreUnavailable,
    UsageError,
)
from unibus.stores.files.lock_holder import is_held_by
from unibus.sync import MessageBus

Serve = Callable[..., Running]


def test_a_request_in_flight_is_answered_when_the_server_stops(serve: Serve) -> None:
    server = serve()
    with server.connect() as busy, server.connect() as silent, server.connect() as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert status_of(read_answer(idle)) == 200
        busy.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert server.app.entered.wait(PATIENCE_S)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert read_all(idle) == b""
        assert read_all(silent) == b""
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        assert not server.app.is_down
        server.do(lambda: server.app.answer.set())  # type: ignore[union-attr]
        assert status_of(read_all(busy)) == 200  # And closed after it.
        stopping.join(PATIENCE_S)
    assert server.app.is_down
    with pytest.raises(StoreUnavailable, match="the server has stopped"):
        _ = server.server.serving.broker


def test_what_does_not_answer_in_time_is_ended(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(drain_deadline_s=0)
    with server.connect() as busy:
        busy.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert server.app.entered.wait(PATIENCE_S)
        server.stop()
        assert status_of(read_all(busy)) in (0, 500)
    assert server.app.is_down


def test_what_waits_is_notified_that_the_server_stops(serve: Serve) -> None:
    class LongPoll:
        def __init__(self, serving: Serving[TinyBroker]) -> None:
            self.serving = serving
            self.entered = threading.Event()

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                raise NotImplementedError("no lifespan")
            self.entered.set()
            await self.serving.draining.wait()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

    built: list[LongPoll] = []

    def build(serving: Serving[TinyBroker], settings: ServerSettings) -> LongPoll:
        built.append(LongPoll(serving))
        return built[0]

    server = serve({"build_app": build})
    with server.connect() as client:
        client.sendall(request())
        assert built[0].entered.wait(PATIENCE_S)
        server.stop()
        assert status_of(read_all(client)) == 204


def test_an_application_that_does_not_start(serve: Serve, tmp_path: Path) -> None:
    class Broken:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(ConfigInvalid, match="startup of the ASGI application failed"):
        serve({"build_app": lambda serving, settings: Broken()}, store=str(tmp_path / "a.db"))
    with MessageBus(str(tmp_path / "a.db")):  # Nothing holds the store.
        pass


def test_a_server_that_never_started_can_be_stopped(serve: Serve, tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with MessageBus(path), pytest.raises(StoreBusy):
        serve(store=path)
    assert not (tmp_path / "a.db-certificates").exists()


def test_certificates_are_beside_the_store_and_reused(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    server = serve(store=str(path), certificate_folder="")
    assert server.server.ca_file == tmp_path / "a.db-certificates" / "ca.pem"
    before = server.server.ca_file.read_bytes()
    server.stop()
    again = serve(store=str(path), certificate_folder="")
    assert (tmp_path / "a.db-certificates" / "ca.pem").read_bytes() == before
    assert status_of(again.ask(request(), tls=True)) == 200


def test_a_certificate_of_ones_own(serve: Serve, certificates: Path) -> None:
    serve()  # Makes one.
    server = serve(tls_certificate=str(certificates / "server.pem"), tls_key=str(certificates / "server-key.pem"))
    assert server.server.ca_file is None
    with pytest.raises(ConfigInvalid, match="not a certificate with its key"):
        serve(tls_certificate=str(certificates / "server.pem"), tls_key=str(certificates / "ca-key.pem"))


def test_entities_of_a_file_exist_at_the_start(serve: Serve, tmp_path: Path) -> None:
    file, store = tmp_path / "Config.json", str(tmp_path / "a.db")
    file.write_text('{"queues": {"orders": {}}} // that is all')
    server = serve(store=store, entities=str(file))

    async def names() -> list[str]:
        return [each.name for each in await server.server.serving.bus.entities()]

    assert server.call(names()) == ["orders"]
    server.stop()
    file.write_text('{"topics": {"orders": {}}}')
    with pytest.raises(EntityExists, match="'orders' is a queue in the store and a topic in the file"):
        serve(store=store, entities=str(file))
    file.write_text('{"queues":\n{"orders": {"colour": 1}}}')
    with pytest.raises(ConfigInvalid, match=r"Config\.json, line 2"):
        serve(store=store, entities=str(file))


@pytest.mark.parametrize("name", ["a.db", "jsonfile"])
def test_listening_elsewhere_needs_a_key_or_a_flag(
    serve: Serve, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = str(tmp_path / name) if name == "a.db" else f"jsonfile:///{tmp_path / name}"
    with pytest.raises(ConfigInvalid, match=r"listening on 0\.0\.0\.0 without TLS"):
        serve(store=store, host=("0.0.0.0",), tls=False)
    assert not (tmp_path / name).exists()
    with pytest.raises(ConfigInvalid, match=r"listening on 0\.0\.0\.0 without a key"):
        serve(store=store, host=("0.0.0.0",))
    assert list(tmp_path.iterdir()) == []  # A refused start leaves nothing behind.
    server = serve(store=store, host=("0.0.0.0",), insecure=True)
    assert status_of(server.ask(request())) == 200
    assert "clients on other machines are refused" in caplog.text


REFUSED_STARTS: dict[str, tuple[dict[str, Any], type[BusError]]] = {
    "a certificate that does not exist": ({"tls_certificate": "none.pem", "tls_key": "none.pem"}, ConfigInvalid),
    "a name that no certificate can have": ({"certificate_names": ("a" * 300 + "ä",)}, ConfigInvalid),
    "a folder of certificates below a file": ({"certificate_folder": "/dev/null/certificates"}, ConfigInvalid),
    "two rules of one name": (
        {"authorization_rules": tuple([AuthorizationRule.generated(each, ["Send"], bytes(64)) for each in "aA"])},
        ConfigInvalid,
    ),
    "no file of entities": ({"entities": "/dev/null/Config.json"}, UsageError),
    "a forward to no entity": ({"entities": '{"queues": {"a": {"forward_to": "b"}}}'}, EntityExists),
    "a setting of no entity": ({"entities": '{"queues": {"a": {"colour": 1}}}'}, ConfigInvalid),
}


@pytest.mark.parametrize("name", ["a.db", "jsonfile"])
@pytest.mark.parametrize("case", REFUSED_STARTS)
def test_a_refused_start_leaves_no_new_store(
    serve: Serve, tmp_path: Path, name: str, case: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings, error = REFUSED_STARTS[case]
    if settings.get("entities", "").startswith("{"):
        file = tmp_path_factory.mktemp("entities") / "Config.json"
        file.write_text(settings["entities"])
        settings = {"entities": str(file)}
    store = str(tmp_path / name) if name == "a.db" else f"jsonfile:///{tmp_path / name}"
    with pytest.raises(error):
        serve(store=store, **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_use_is_reported_before_a_port_in_use(serve: Serve, tmp_path: Path) -> None:
    """A server that is started twice: StoreBusy names the process."""
    store = str(tmp_path / "a.db")
    first = serve(store=store)
    with pytest.raises(StoreBusy):
        serve(store=store, port=first.server.port)


# A store that fails


class Health:
    """Answers 503 while the broker is missing, as the application does."""

    def __init__(self, serving: Serving[TinyBroker]) -> None:
        self.serving = serving

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError("no lifespan")
        try:
            self.serving.broker.namespace_rules()
            if scope["path"] == "/send":
                await self.serving.broker.bus.send("q", b"x")
            status = 200
        except StoreUnavailable:
            status = 503
        except StoreFailed as error:
            self.serving.report(error)
            status = 503
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


@pytest.mark.unchecked
@pytest.mark.parametrize("notices", ["a request", "the sweep"])
def test_a_failed_store_is_opened_again(
    serve: Serve, tmp_path: Path, notices: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.db"
    server = serve({"build_app": lambda serving, settings: Health(serving)}, store=str(path))
    serving = server.server.serving

    async def create() -> None:
        await serving.bus.create_queue("q")

    server.call(create())
    first = serving.broker
    client = http.client.HTTPConnection("127.0.0.1", server.server.port)

    def status(request_path: str) -> int:
        client.request("GET", request_path)
        answer = client.getresponse()
        answer.read()
        return answer.status

    assert status("/send") == 200
    away = path.with_name("away.db")
    os.rename(path, away)  # So that it cannot be opened before the test has looked.
    server.do(lambda: fail(server))
    if notices == "a request":
        assert status("/send") == 503
    else:
        server.do(serving.check)
    assert status("/") == 503
    server.until(lambda: "does not exist any more" in serving.problem)
    assert not path.exists()  # No new store in its place.
    os.rename(away, path)
    server.until(lambda: not serving.problem)
    assert serving.reopened == 1
    assert serving.broker is not first
    assert status("/send") == 200
    client.close()
    messages = [each.getMessage() for each in caplog.records if each.name == "unibus.server"]
    assert messages[0] == "the store has failed"
    assert messages[-1] == "the store is open again"


@pytest.mark.unchecked
def test_a_server_can_stop_while_its_store_is_away(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    server = serve(store=str(path))
    os.rename(path, tmp_path / "away.db")
    server.do(lambda: fail(server))
    server.do(server.server.serving.check)
    server.until(lambda: "does not exist any more" in server.server.serving.problem)
    server.stop()
    assert server.app.is_down


@pytest.mark.parametrize("error", [ValueError("mine"), StoreFailed("of the store before this one")])
def test_other_errors_do_not_end_the_broker(serve: Serve, error: Exception) -> None:
    server = serve()
    server.do(lambda: server.server.serving.report(error))
    assert server.server.serving.problem == ""


async def test_it_runs_on_the_loop_that_starts_it(certificates: Path) -> None:
    """As tests of users do it: no thread, no signal."""
    settings = ServerSettings(store="memory://", port=0, amqp_port=None, certificate_folder=str(certificates))
    server = Server(settings, build_app=TinyApp().build, make_broker=TinyBroker)
    handlers = list(logging.getLogger("unibus").handlers)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(request())
        assert status_of(await reader.read()) == 200
        writer.close()
    finally:
        await server.stop()
        await server.stop()
    assert logging.getLogger("unibus").handlers == handlers


# FILE.serve.json


def test_a_server_says_where_it_is_while_it_listens(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "said.db"
    server = serve(store=str(path))
    found = read_server_file(str(path))
    assert found is not None
    assert found.url == f"http://127.0.0.1:{server.server.port}"
    assert found.pid == os.getpid()
    assert is_held_by(str(path), found.pid)
    server.stop()
    assert read_server_file(str(path)) is None
    assert [each.name for each in tmp_path.iterdir() if "serve" in each.name] == []


def test_a_server_replaces_what_a_killed_one_left(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "left.db"
    write_server_file(str(path), ServerFile("http://127.0.0.1:1", 2**30, "old", "old", "", 0))
    server = serve(store=str(path))
    found = read_server_file(str(path))
    assert found is not None
    assert found.rule != "old"
    server.stop()


def test_a_server_that_cannot_write_the_file_serves_as_well(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, found: ServerFile) -> None:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr("unibus.endpoints.server.server_file.write_server_file", refuse)
    server = serve(store=str(tmp_path / "silent.db"))
    with server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert status_of(read_answer(client)) == 200
    assert "cannot write the file" in caplog.text


def test_a_store_in_memory_has_no_such_file(serve: Serve) -> None:
    assert serve(store="memory://").server._server_file.rule is None
