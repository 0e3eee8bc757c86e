"""The client against servers that lie, crash, or are not unibus servers: one named error each."""

import contextlib
import hashlib
import hmac
import inspect
import socket
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from tests.unit.client.fake_server import FakeServer, cut, ok, refused, talking
from unibus import errors
from unibus.cli.terminal.report import masked
from unibus.client import wire
from unibus.client.address import Address
from unibus.client.answers import by_code, error_of
from unibus.client.client import Client
from unibus.client.signature import HOLDS_S, RENEWED_S, Signature
from unibus.errors import (
    AnswerInvalid,
    BusError,
    EntityNotFound,
    Forbidden,
    OutcomeUnknown,
    ServerError,
    ServerUnavailable,
    Unauthorised,
)


class Numbers(msgspec.Struct):
    n: int


def test_a_call_gives_the_record_and_keeps_its_connection() -> None:
    with talking(ok(b'{"n": 1}'), ok(b'{"n": 2, "new_in_a_later_version": true}')) as (client, server):
        assert client.get("x", Numbers, {"entity": "a/b c", "none": None, "kind": ["x", "y"]}).n == 1
        assert client.post("y", Numbers, {"k": 1}).n == 2
        assert server.connections == 1
    assert server.requests[0].startswith(b"GET /unibus/v1/x?entity=a%2Fb+c&kind=x&kind=y HTTP/1.1\r\n")
    assert b"Authorization: SharedAccessSignature sr=" in server.requests[0]
    assert server.requests[1].endswith(b'\r\n\r\n{"k":1}')


def test_the_hint_about_a_missing_key_stays_readable_where_keys_are_masked() -> None:
    with pytest.raises(Unauthorised) as caught:
        Signature(Address("https", "bus.example.com", 443), lambda: 0.0).header()
    assert masked(caught.value.hint) == caught.value.hint
    assert "UNIBUS_KEY=rule:key" in caught.value.hint


def test_a_path_that_the_server_is_not_below_is_named() -> None:
    body = b'{"error": {"code": "MessagingEntityNotFound", "message": "there is no entity \'foo/unibus/v1/x\'"}}'
    with talking(refused(404, body)) as (_client, server):
        below = Client(replace(server.address, prefix="/foo"))
        with pytest.raises(AnswerInvalid, match="not mounted below the path /foo"):
            below.get("x", Numbers)
        below.close()


def test_a_key_of_an_earlier_run_of_the_server_is_explained() -> None:
    body = b'{"error": {"code": "unauthorised", "message": "the token is not valid here"}}'
    with talking(refused(401, body)) as (_client, server):
        before = Client(server.address.with_key("local-0123456789abcdef", "a2V5"))
        with pytest.raises(Unauthorised, match="was restarted after"):
            before.get("x", Numbers)
        before.close()


def wait_for_end(client: Client) -> None:
    """Until the end of the connection is here."""
    sock = client._wire._connection.sock  # type: ignore[union-attr]
    assert sock.recv(1, socket.MSG_PEEK) == b""


def test_a_connection_that_the_server_has_closed_is_noticed_before_a_request_is_lost() -> None:
    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(ok(b'{"n": 1}'))

    with talking(answer_and_close, ok(b'{"n": 2}')) as (client, server):
        assert client.get("x", Numbers).n == 1
        wait_for_end(client)
        assert client.post("x", Numbers).n == 2  # Not OutcomeUnknown.
        assert server.connections == 2


# What is lost


@pytest.mark.parametrize(
    "reply",
    [
        cut,
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
    ],
    ids=["before the answer", "half a body", "half a chunk", "half, and closed"],
)
def test_a_lost_answer_to_a_change_is_an_unknown_outcome_and_is_not_repeated(reply: Any) -> None:
    last = cut if isinstance(reply, bytes) else reply
    replies = [lambda connection: (connection.sendall(reply), cut(connection))] if isinstance(reply, bytes) else [last]
    with talking(*replies, ok(b'{"n": 7}')) as (client, server):  # type: ignore[arg-type]
        with pytest.raises(OutcomeUnknown, match="outcome is unknown"):
            client.post("messages/send", Numbers, {})
        assert len(server.requests) == 1


def test_what_changes_nothing_is_asked_for_once_more() -> None:
    with talking(cut, ok(b'{"n": 7}')) as (client, server):
        assert client.get("x", Numbers).n == 7
        assert len(server.requests) == 2
    with talking(cut, cut, ok(b"{}")) as (client, server):
        with pytest.raises(ServerUnavailable, match="did not answer"):
            client.get("x", Numbers)
        assert len(server.requests) == 2
    with talking(cut, ok(b'{"n": 8}')) as (client, server):
        assert client.post("query", Numbers, is_safe=True).n == 8


def test_a_server_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_S", 0.05)
    with talking(lambda connection: connection.recv(1)) as (client, _), pytest.raises(OutcomeUnknown, match="in time"):  # type: ignore[arg-type,return-value]
        client.post("x", Numbers)


def test_a_server_that_answers_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_S", 0.1)

    sent: list[int] = []

    def dribble(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with contextlib.suppress(OSError):
            for number in range(1_000):
                connection.sendall(b" ")
                sent.append(number)
                threading.Event().wait(0.01)

    with talking(dribble) as (client, _), pytest.raises(OutcomeUnknown, match="in time"):
        client.post("x", Numbers)
    assert len(sent) < 1_000


def test_a_port_without_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = Client(Address("http", "127.0.0.1", port, rule="r", key="k"))
    for call in (client.get, client.post):
        with pytest.raises(ServerUnavailable, match=f"{port} cannot be reached.*refused") as caught:
            call("x", Numbers)
        assert "port" in caught.value.hint


def test_a_host_that_does_not_exist() -> None:
    client = Client(Address("http", "nowhere.invalid", 5300, rule="r", key="k"))
    with pytest.raises(ServerUnavailable, match=r"the host nowhere\.invalid is unknown"):
        client.get("x", Numbers)


def test_a_server_without_tls_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        client = Client(Address("https", "127.0.0.1", listener.getsockname()[1], rule="r", key="k"))
        with pytest.raises(ServerUnavailable, match="no TLS") as caught:
            client.get("x", Numbers)
        assert "http://" in caught.value.hint
        thread.join()


def test_a_ca_file_that_is_none(tmp_path: Any) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        client = Client(Address("https", "127.0.0.1", 1, rule="r", key="k"), str(tmp_path / name))
        with pytest.raises(ServerUnavailable, match="certificates") as caught:
            client.get("x", Numbers)
        assert "--ca" in caught.value.hint


# What is no answer


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n",
        ok(b""),
        ok(b"<html>"),
        ok(b'{"n": "one"}'),
        ok(b'{"n": null}'),
        ok(b"{}"),
        ok(b"[]"),
        ok(b"\xff\xfe"),
        ok(b"[" * 100_000),
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        refused(404, b"<html>not found</html>"),
        refused(404, b'{"error": {"code": "NotFound", "message": "no", "details": ""}}'),
        refused(500, b""),
        refused(503, b'{"error": {"code": 7}}'),
    ],
)
def test_what_is_no_answer_of_ours_is_one_error(reply: bytes) -> None:
    with talking(reply, reply) as (client, _), pytest.raises(AnswerInvalid):
        client.post("x", Numbers)


def test_an_answer_that_is_too_large_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(wire._whole, "__defaults__", (10_000,))

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                connection.sendall(b"100\r\n" + b"x" * 256 + b"\r\n")
        except OSError:
            return

    with talking(endless) as (client, _), pytest.raises(AnswerInvalid, match="more than"):
        client.post("x", Numbers)


def test_an_answer_before_the_whole_request_was_read() -> None:
    def refuse_early(connection: socket.socket) -> None:
        connection.sendall(refused(413, b'{"error":{"code":"message_too_large","message":"big","details":"less"}}'))

    with talking(refuse_early) as (client, _), pytest.raises(errors.MessageTooLarge, match="big"):
        client.post("x", Numbers, b"[" + b"1," * 100 + b"1]")


# Errors


def test_every_code_of_the_tree_comes_back_as_its_class() -> None:
    for kind in [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, BusError)]:
        body = msgspec.json.encode({"error": {"code": kind.code, "message": "what", "details": "hint"}})
        found = error_of(400, body)
        assert type(found) is by_code()[kind.code]
        assert isinstance(found, kind) or kind.code == kind.__mro__[1].code  # type: ignore[attr-defined]
        assert (found.what, found.hint) == ("what", "hint")


def test_the_error_of_a_server_is_raised() -> None:
    body = b'{"error":{"code":"entity_not_found","message":"no queue","details":"make it"}}'
    with talking(refused(404, body)) as (client, _), pytest.raises(EntityNotFound) as caught:
        client.get("x", Numbers)
    assert (caught.value.what, caught.value.hint) == ("no queue", "make it")


def test_a_code_of_a_later_version_keeps_its_text() -> None:
    found = error_of(418, b'{"error":{"code":"teapot","message":"short and stout","details":""}}')
    assert type(found) is ServerError
    assert (found.what, found.hint) == ("short and stout", "its error code is teapot")


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorised), (403, Forbidden)])
def test_a_refusal_without_a_text_is_one_of_access(status: int, kind: type[BusError]) -> None:
    assert type(error_of(status, b"<html>")) is kind


def test_an_error_is_cut_where_it_is_endless() -> None:
    body = msgspec.json.encode({"error": {"code": "usage", "message": "x" * 10**6, "details": "y" * 10**6}})
    assert len(str(error_of(400, body))) < 5_000


# Keys


def test_without_a_key_nothing_is_sent() -> None:
    with talking(ok(b"{}")) as (_, server):
        client = Client(Address("http", "127.0.0.1", server.port))
        with pytest.raises(Unauthorised, match="no key"):
            client.get("x", Numbers)
        assert server.connections == 0
        client.close()
        with socket.create_connection(("127.0.0.1", server.port)):
            pass


def test_a_signature_is_made_again_before_it_expires() -> None:
    now = [1_000_000.0]
    signature = Signature(Address("http", "h", 80, rule="r", key="k"), lambda: now[0])
    first = signature.header()
    now[0] += HOLDS_S - RENEWED_S - 1
    assert signature.header() == first
    now[0] += 2
    assert signature.header() != first


def test_a_server_proves_itself_and_only_with_the_key() -> None:
    def prove(connection: socket.socket) -> None:
        request = seen[-1].requests[-1].decode()
        nonce = parse_qs(urlsplit(request.split()[1]).query)["nonce"][0]
        proof = hmac.new(b"secret", nonce.encode(), hashlib.sha256).hexdigest()
        connection.sendall(ok(f'{{"proof": "{proof}", "version": "1"}}'.encode()))

    seen: list[Any] = []
    for key, is_proved in (("secret", True), ("another", False)):
        with talking(prove) as (client, server):
            seen.append(server)
            assert client.is_proved(key) is is_proved
            assert b"authorization" not in server.requests[0].lower()
            assert key.encode() not in server.requests[0]


def proving(server: list[FakeServer], then: bytes = b"") -> Any:
    """Answers a nonce with its proof, and then the next request with `then`; the connection ends after that."""

    def prove(connection: socket.socket) -> None:
        nonce = parse_qs(urlsplit(server[0].requests[-1].decode().split()[1]).query)["nonce"][0]
        proof = hmac.new(b"secret", nonce.encode(), hashlib.sha256).hexdigest()
        connection.sendall(ok(f'{{"proof": "{proof}"}}'.encode()))
        if then:
            server[0].requests.append(connection.recv(65_536))
            connection.sendall(then)

    return prove


def test_another_process_at_the_port_gets_nothing() -> None:
    """The server stops while a command runs. A process that takes its port must see no message and confirm none."""
    found: list[FakeServer] = []
    lie = ok(b'{"proof": "lie"}')
    with talking(proving(found, ok(b'{"n": 1}')), lie, ok(b'{"n": 2}'), ok(b'{"n": 3}')) as (client, server):
        found.append(server)
        assert client.is_proved("secret")
        assert client.post("x", Numbers).n == 1
        wait_for_end(client)
        for caller in (client, client.twin()):
            with pytest.raises(errors.BusError) as caught:
                caller.post("x", Numbers, b"[1]")
            assert not isinstance(caught.value, OutcomeUnknown)
            caller.close()
        assert [each.split()[0] for each in server.requests].count(b"POST") == 1
        assert all([b"/proof?" in each for each in server.requests if each.startswith(b"GET")])


def test_a_connection_that_is_new_is_proved_again() -> None:
    found: list[FakeServer] = []
    with talking(proving(found, ok(b'{"n": 1}')), proving(found, ok(b'{"n": 2}'))) as (client, server):
        found.append(server)
        assert client.is_proved("secret")
        assert client.post("x", Numbers).n == 1
        wait_for_end(client)
        assert client.post("x", Numbers).n == 2
        assert server.connections == 2


@pytest.mark.parametrize("reply", [ok(b"{}"), ok(b'{"proof": ""}'), ok(b'{"proof": 1}'), refused(401, b""), cut])
def test_a_server_without_a_proof_is_not_believed(reply: Any) -> None:
    with talking(reply) as (client, _):
        assert not client.is_proved("secret")
