"""uvicorn documents little of what this package uses. A version that changes one of these names fails here first."""

import inspect

import uvicorn
from uvicorn.config import LIFESPAN, Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from unibus.config.settings import ServerSettings
from unibus.endpoints.transport.application import ApplicationServer
from unibus.endpoints.transport.http_protocol import HttpConnection


async def app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nothing is sent to it")


def config() -> Config:
    made = Config(app, http=HttpConnection, ws="none", loop="none", interface="asgi3", log_config=None)
    made.load()
    return made


def test_the_server() -> None:
    server = uvicorn.Server(config())
    assert server.server_state.connections == set()
    assert server.server_state.total_requests == 0
    assert server.server_state.tasks == set()
    assert (server.should_exit, server.force_exit) == (False, False)
    assert inspect.iscoroutinefunction(server.main_loop)
    assert list(inspect.signature(server.shutdown).parameters) == ["sockets"]
    source = inspect.getsource(uvicorn.Server.shutdown)
    for used in (
        "self.servers",
        "self.server_state.connections",
        ".shutdown()",
        "timeout_graceful_shutdown",
        "lifespan",
    ):
        assert used in source


async def test_the_lifespan() -> None:
    made = config()
    assert set(LIFESPAN) >= {"auto", "on", "off"}
    lifespan = made.lifespan_class(made)
    assert lifespan.state == {}
    assert lifespan.should_exit is False
    for step in (lifespan.startup, lifespan.shutdown):
        assert inspect.iscoroutinefunction(step)


def test_the_class_of_the_protocol_is_the_one_that_was_given() -> None:
    made = config()
    assert made.http_protocol_class is HttpConnection
    assert made.ws_protocol_class is None
    parameters = list(inspect.signature(HttpToolsProtocol.__init__).parameters)
    assert parameters[:4] == ["self", "config", "server_state", "app_state"]


def test_nothing_selects_another_parser() -> None:
    """h11 accepts a length beside an encoding, bare line feeds and folded headers."""
    served = ApplicationServer(app, ServerSettings())
    assert served._server.config.http_protocol_class is HttpConnection
    assert issubclass(HttpConnection, HttpToolsProtocol)


async def test_the_protocol() -> None:
    protocol = HttpToolsProtocol(config(), ServerState(), {})
    for name in ("parser", "transport", "flow", "cycle", "pipeline", "headers", "url", "client", "scope"):
        assert name in vars(protocol) or name in inspect.getsource(HttpToolsProtocol), name
    assert protocol.expect_100_continue is False
    assert protocol.server_state.connections == set()
    own = {name for name, value in vars(HttpConnection).items() if callable(value) and not name.startswith("_")}
    # What is overridden has to be called by the parser, the transport or the server: under that very name.
    assert own - {"sweep", "abort"} <= set(dir(HttpToolsProtocol))
    assert {"shutdown", "on_response_complete", "on_body"} <= own


def test_what_replaces_a_method_of_uvicorn_does_what_that_did() -> None:
    """These two are written again, without the timer: a change there has to be looked at here."""
    on_response = inspect.getsource(HttpToolsProtocol.on_response_complete)
    for step in ("total_requests += 1", "is_closing()", "resume_reading()", "self.pipeline", "timeout_keep_alive"):
        assert step in on_response
    on_header = inspect.getsource(HttpToolsProtocol.on_header)
    for step in ("name.lower()", b"100-continue".decode(), "expect_100_continue = True", "self.headers.append"):
        assert step in on_header
    assert len(on_header.splitlines()) == 5
    received = inspect.getsource(HttpToolsProtocol.data_received)
    for step in ("_unset_keepalive_if_required", "parser.feed_data(data)", "HttpParserError", "HttpParserUpgrade"):
        assert step in received


def test_the_cycle_and_the_flow() -> None:
    cycle = inspect.getsource(RequestResponseCycle)
    for name in ("response_started", "response_complete", "disconnected", "message_event", "keep_alive"):
        assert f"self.{name} = " in cycle
    flow = inspect.getsource(FlowControl)
    for name in ("read_paused", "def resume_reading", "def pause_writing", "def resume_writing"):
        assert name in flow
