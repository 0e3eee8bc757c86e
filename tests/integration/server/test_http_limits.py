"""What uvicorn lets through and a server must not: each input is refused with one answer and one line in the log.

The requests are bytes on a socket: no client library would send them.
"""

import json
import logging
from collections.abc import Callable
from xml.etree import ElementTree

import httptools
import pytest

from tests.integration.server.running import Running, read_all, read_answer, request, status_of
from unibus.endpoints.log_lines import fields_of

Serve = Callable[..., Running]
HOST = "host: localhost\r\n"
CHUNKED = "transfer-encoding: chunked\r\n"
CODES = {400: "BadRequest: ", 413: "MessageSizeExceeded: ", 503: "ServerBusy: "}
LIMITS = {"header_bytes_max": 8_192, "headers_max": 50, "body_bytes_max": 20_000}


def post(headers: str, body: bytes = b"") -> bytes:
    return f"POST / HTTP/1.1\r\n{HOST}{headers}\r\n".encode() + body


REFUSED: dict[str, tuple[bytes, int]] = {
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "no Host in HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", 400),
    "two Hosts": (request(headers="host: a\r\nhost: a\r\n"), 400),
    "an empty Host": (request(headers="host:\r\n"), 400),
    "a Host with a path": (request(headers="host: a/b\r\n"), 400),
    "a Host with a user": (request(headers="host: u@a\r\n"), 400),
    "a Host with a space": (request(headers="host: a b\r\n"), 400),
    "length beside encoding": (post(f"content-length: 5\r\n{CHUNKED}", b"0\r\n\r\n"), 400),
    "encoding beside length": (post(f"{CHUNKED}content-length: 5\r\n", b"0\r\n\r\n"), 400),
    "two lengths": (post("content-length: 5\r\ncontent-length: 6\r\n", b"12345"), 400),
    "two equal lengths": (post("content-length: 5\r\ncontent-length: 5\r\n", b"12345"), 400),
    "a list of lengths": (post("content-length: 5, 5\r\n", b"12345"), 400),
    "a negative length": (post("content-length: -1\r\n"), 400),
    "a length with a sign": (post("content-length: +5\r\n", b"12345"), 400),
    "a length in hex": (post("content-length: 0x5\r\n", b"12345"), 400),
    "an endless length": (post(f"content-length: {'9' * 40}\r\n"), 400),
    "chunked twice": (post("transfer-encoding: chunked, identity\r\n", b"0\r\n\r\n"), 400),
    "not quite chunked": (post("transfer-encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
    "a chunk without length": (post(CHUNKED, b"zz\r\n"), 400),
    "a chunk of negative length": (post(CHUNKED, b"-1\r\n"), 400),
    "a chunk of 2**64 bytes": (post(CHUNKED, b"fffffffffffffffff\r\n"), 400),
    "a chunk that is longer": (post(CHUNKED, b"1\r\nab\r\n0\r\n\r\n"), 400),
    "bare line feeds": (b"GET / HTTP/1.1\nhost: a\n\n", 400),
    "a bare line feed after a header": (b"GET / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n", 400),
    "a bare carriage return": (b"GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n", 400),
    "a folded header": (request(headers=f"{HOST}x: a\r\n b\r\n"), 400),
    "a space before the colon": (request(headers="host : a\r\n"), 400),
    "a header without a colon": (request(headers=f"{HOST}nothing\r\n"), 400),
    "a header without a name": (request(headers=f"{HOST}: x\r\n"), 400),
    "a zero in a header": (request(headers=f"{HOST}x: a\0b\r\n"), 400),
    "a zero in a name": (request(headers=f"{HOST}x\0: b\r\n"), 400),
    "no HTTP": (b"hello, is this the server?\r\n\r\n", 400),
    "a method in lower case": (b"get / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "an unknown method": (b"FETCH / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\nhost: a\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/2 in HTTP/1 form": (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 400),
    "HTTP/1.7": (b"GET / HTTP/1.7\r\nhost: a\r\n\r\n", 400),
    "a target without a slash": (request("nowhere"), 400),
    "a target that is no ASCII": (b"GET /\xc3\xa4 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "a target with a space": (request("/a b"), 400),
    "CONNECT": (b"CONNECT example:443 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "a header of 200 KB": (request(headers=f"{HOST}x: {'y' * 200_000}\r\n"), 400),
    "a header of 9 KB": (request(headers=f"{HOST}x: {'y' * 9_000}\r\n"), 400),
    "10,000 headers": (request(headers=HOST + "".join(f"x{each}: y\r\n" for each in range(10_000))), 400),
    "51 headers": (request(headers=HOST + "".join(f"x{each}: y\r\n" for each in range(49))), 400),
    "a target of 20 KB": (request("/" + "a" * 20_000), 400),
    "a head without end": (b"GET / HTTP/1.1\r\nx: " + b"y" * 1_000_000, 400),
    "a long body": (request(method="POST", body=b"x" * 20_001), 413),
    "a long body that only is announced": (post("content-length: 20001\r\n"), 413),
    "a long body in one chunk": (post(CHUNKED, b"4e21\r\n" + b"x" * 20_001 + b"\r\n0\r\n\r\n"), 413),
    "a long body in small chunks": (post(CHUNKED, b"1\r\nx\r\n" * 20_001), 413),
    "a trailer without end": (post(CHUNKED, b"0\r\nx: " + b"y" * 2_000_000), 400),
    "a chunk's extension without end": (post(CHUNKED, b"1;" + b"y" * 2_000_000), 400),
    "a TLS greeting inside plain text": (b"\x15\x03\x01\x00\x02", 400),
    "many offers of HTTP/2 at once": (
        b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n" * 1_000,
        0,
    ),
    "an offer of HTTP/2 with a header of 9 KB": (
        request(headers=f"{HOST}upgrade: h2c\r\nconnection: upgrade\r\nx: {'y' * 9_000}\r\n"),
        400,
    ),
    "an offer of HTTP/2 with two Hosts": (
        request(headers=f"{HOST}{HOST}upgrade: h2c\r\nconnection: upgrade\r\n"),
        400,
    ),
    "zeros": (b"\0" * 100, 400),
}


@pytest.fixture
def server(shared_servers: Serve, loop_name: str) -> Running:
    shared = shared_servers(loop_name, **LIMITS)
    shared.until(lambda: len(shared.server.connections) == 0)
    shared.pass_seconds(1)  # Its log has ten lines for each second.
    return shared


def assert_xml(answer: bytes, status: int) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/xml; charset=utf-8\r\n" in head
    root = ElementTree.fromstring(body)
    assert (root.tag, root.findtext("Code")) == ("Error", str(status))
    assert (root.findtext("Detail") or "").startswith(CODES[status])


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(server: Running, name: str, caplog: pytest.LogCaptureFixture) -> None:
    sent, status = REFUSED[name]
    with caplog.at_level(logging.INFO), server.connect() as client:
        client.sendall(sent)
        answer = read_all(client)
        assert status_of(answer) == status, answer[:200]
        assert answer.count(b"HTTP/1.1 ") == (1 if status else 0)
        if status:
            assert_xml(answer, status)
    lines = [each for each in caplog.records if each.name != "asyncio"]
    assert [(each.name, each.getMessage()) for each in lines] == [("unibus.server", "connection refused")]
    assert fields_of(lines[0])["reason"]
    # Other clients are served, and nothing is left behind.
    assert status_of(server.ask(request())) == 200
    server.until(lambda: len(server.server.connections) == 0)
    assert server.server.connections.bodies_bytes == 0


JSON = "accept: text/html, application/json;q=0.9\r\n"

REFUSED_AS_JSON: dict[str, tuple[bytes, str, str]] = {
    "no Host": (request(headers=JSON), "BadRequest", "the request has 0 Host headers, 1 is required"),
    "a header after Accept": (request(headers=f"{JSON}host: a/b\r\n"), "BadRequest", "the header Host is not valid"),
    "a long body": (
        post(f"{JSON}content-length: 20001\r\n"),
        "MessageSizeExceeded",
        "the request has a body of more than 20000 bytes",
    ),
    "a body that becomes too long": (
        post(f"{JSON}{CHUNKED}", b"4e21\r\n" + b"x" * 20_001),
        "MessageSizeExceeded",
        "the request has a body of more than 20000 bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSED_AS_JSON)
def test_it_is_refused_in_json_where_that_was_asked_for(server: Running, name: str) -> None:
    sent, code, message = REFUSED_AS_JSON[name]
    head, _, body = server.ask(sent).partition(b"\r\n\r\n")
    assert b"content-type: application/json; charset=utf-8\r\n" in head
    assert json.loads(body) == {"error": {"code": code, "message": message, "details": ""}}


def test_an_earlier_request_does_not_choose_the_form(server: Running) -> None:
    with server.connect() as client:
        client.sendall(f"GET / HTTP/1.1\r\n{HOST}{JSON}\r\n".encode())
        assert status_of(read_answer(client)) == 200
        client.sendall(b"\0")  # Refused before its first header.
        assert_xml(read_all(client), 400)


ACCEPTED: dict[str, tuple[bytes, int]] = {
    "the least": (b"GET / HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n", 0),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\nhost: a\r\n\r\n", 0),
    "any Host": (request(headers="host: host.docker.internal:32768\r\n"), 0),
    "an address as Host": (request(headers="host: [::1]:5300\r\n"), 0),
    "a whole URL": (request("http://elsewhere:1/x?y=z"), 0),
    "a body": (request(method="PUT", body=b"x" * 20_000), 20_000),
    "chunks": (post(f"connection: close\r\n{CHUNKED}", b"3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\n\r\n"), 5),
    "many small chunks": (post(f"connection: close\r\n{CHUNKED}", b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"), 20_000),
    "a trailer": (post(f"connection: close\r\n{CHUNKED}", b"1\r\nx\r\n0\r\nauthorization: forged\r\n\r\n"), 1),
    "50 headers": (request(headers=HOST + "".join(f"x{each}: y\r\n" for each in range(48))), 0),
    "headers of 8 KB": (request(headers=f"{HOST}x: {'y' * 8_000}\r\n"), 0),
    "an offer of HTTP/2": (
        request(headers=f"{HOST}upgrade: h2c\r\nhttp2-settings: AAM\r\nconnection: upgrade, http2-settings\r\n"),
        0,
    ),
    "an offer of HTTP/2 with a body": (
        post("upgrade: h2c\r\nconnection: upgrade, close\r\ncontent-length: 3\r\n", b"abc"),
        3,
    ),
    "an offer of HTTP/2 with chunks": (
        post(f"upgrade: h2c\r\nconnection: close, upgrade\r\n{CHUNKED}", b"3\r\nabc\r\n0\r\n\r\n"),
        3,
    ),
    "a WebSocket": (request(headers=f"{HOST}upgrade: websocket\r\nconnection: upgrade\r\n"), 0),
    "waiting for 100 Continue": (post("expect: 100-continue\r\nconnection: close\r\ncontent-length: 2\r\n", b"ab"), 2),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_it_is_accepted(server: Running, name: str) -> None:
    refused_before = server.server.connections.refused
    sent, count = ACCEPTED[name]
    answer = server.ask(sent)
    assert answer.count(b"HTTP/1.1 200 OK") == 1, answer[:300]
    assert f'"bytes": {count}'.encode() in answer
    assert b"authorization" not in answer
    assert server.server.connections.refused == refused_before


def test_what_uvicorn_alone_accepts_is_really_accepted_there() -> None:
    """Or the subclass would guard against nothing: a later uvicorn may refuse these itself."""
    for name in ("no Host", "two Hosts", "a header of 200 KB", "10,000 headers", "a head without end"):
        httptools.HttpRequestParser(object()).feed_data(REFUSED[name][0])


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    server = serve(**LIMITS)
    one = b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n" + b"x" * 9_000
    answer = server.ask(b"".join([one.replace(b"%d", str(each).encode()) for each in range(5)]) + request("/last"))
    found = [answer.index(f'"/{each}"'.encode()) for each in (0, 1, 2, 3, 4, "last")]
    assert found == sorted(found)
    assert server.server.connections.bodies_bytes == 0


def test_a_connection_goes_on_after_an_offer(serve: Serve) -> None:
    server = serve()
    offer = b"POST /%d HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 3\r\n\r\n"
    with server.connect() as client:
        for number in range(3):
            head = offer.replace(b"%d", str(number).encode())
            for part in (head, b"ab", b"c") if number else (head + b"abc",):
                client.sendall(part)
            answer = read_answer(client)
            assert f'"/{number}"'.encode() in answer
            assert b'"bytes": 3' in answer
            assert b'"upgrade"' not in answer


def test_a_broken_request_behind_one_that_is_being_answered_ends_both(serve: Serve) -> None:
    server = serve(**LIMITS)
    with server.connect() as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n")
        assert server.app.entered.wait(30)
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n")
        assert read_all(client) == b""  # An answer now would pass for that of the first request.
    server.do(lambda: server.app.answer.set())  # type: ignore[union-attr]
    assert status_of(server.ask(request())) == 200


def test_bodies_of_all_requests_together_are_bounded(serve: Serve) -> None:
    server = serve(body_bytes_max=2_000_000, bodies_bytes_max=3_000_000)
    with server.connect() as client:
        client.sendall(post("content-length: 2000000\r\n", b"x" * 1_500_000))
        server.until(lambda: server.server.connections.bodies_bytes == 1_500_000)
        refused = server.ask(post("content-length: 1600000\r\n"))
        assert status_of(refused) == 503
        assert_xml(refused, 503)
        assert b"retry-after: 1\r\n" in refused
        client.sendall(b"x" * 500_000)
        assert status_of(read_answer(client)) == 200
        server.until(lambda: server.server.connections.bodies_bytes == 0)
    assert status_of(server.ask(request(method="POST", body=b"x" * 1_600_000))) == 200


def test_a_flood_of_refusals_is_ten_lines_a_second_and_a_count(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve()
    with caplog.at_level(logging.INFO, "unibus.server"):
        for _ in range(30):
            server.ask(b"\0\r\n")
        server.pass_seconds(1)
    assert caplog.messages == ["connection refused"] * 10 + ["more connections refused"]
    assert fields_of(caplog.records[-1]) == {"count": 20}
    assert server.server.connections.refused == 30
