"""The client of one server: calls that return records, streams, and the proof of the server's identity.

A call is retried only if that is safe: the request was not sent, or it is idempotent (`is_safe`). For every other call
a lost answer is `OutcomeUnknown`.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from unibus.client.address import Address
from unibus.client.answers import error_of, record_of
from unibus.client.signature import Signature
from unibus.client.wire import AnswerLost, HttpAnswer, StreamRefused, Wire
from unibus.errors import AnswerInvalid, BusError, OutcomeUnknown, ServerUnavailable, Unauthorised

T = TypeVar("T")
Query = Mapping[str, object]

ROOT: Final = "/unibus/v1/"
JSON: Final = "application/json"
LOCAL_RULE: Final = "local-"
"""The prefix of the rule in FILE.serve.json. Its key is valid for one run of the server."""

SILENCE_S: Final = 60.0
"""A server sends a keep-alive on an event stream more often than this; a longer silence is a lost connection."""


class _Proof(msgspec.Struct):
    proof: str = ""


class Client:
    """For one thread. Another thread uses a `twin`."""

    def __init__(self, address: Address, ca_file: str = "") -> None:
        self.address = address
        self._ca_file = ca_file
        self._signature = Signature(address, time.time)
        self._proof_key = ""
        self._wire = Wire(address, ca_file, self._check)

    def twin(self) -> "Client":
        """A second client for the same server, with a connection of its own."""
        twin = Client(self.address, self._ca_file)
        twin._proof_key = self._proof_key
        return twin

    def close(self) -> None:
        self._wire.close()

    # Calls

    def get(self, path: str, kind: type[T], query: Query | None = None, wait_s: float = 0.0) -> T:
        return self._call("GET", path, kind, query, None, True, wait_s)

    def post(
        self,
        path: str,
        kind: type[T],
        body: object = None,
        query: Query | None = None,
        *,
        is_safe: bool = False,
        wait_s: float = 0.0,
    ) -> T:
        """`is_safe`: the call is idempotent. `body` is a record, or bytes that are JSON already."""
        data = body if isinstance(body, bytes) else msgspec.json.encode({} if body is None else body)
        return self._call("POST", path, kind, query, data, is_safe, wait_s)

    def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        query: Query | None,
        body: bytes | None,
        is_safe: bool,
        wait_s: float,
    ) -> T:
        answer = self._answer(method, f"{ROOT}{path}{_encoded(query)}", body, is_safe, wait_s)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        return record_of(answer.body, kind)

    def _answer(self, method: str, path: str, body: bytes | None, is_safe: bool, wait_s: float) -> HttpAnswer:
        headers = self._headers(body is not None)
        try:
            return self._wire.ask(method, path, headers, body, wait_s)
        except AnswerLost as lost:
            if not is_safe:
                raise self._unknown(lost) from lost
        try:
            return self._wire.ask(method, path, headers, body, wait_s)
        except AnswerLost as lost:
            raise self._gone(lost) from lost

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"Authorization": self._signature.header(), "Accept": JSON}
        return {**headers, "Content-Type": JSON} if has_body else headers

    def _refusal(self, answer: HttpAnswer) -> BusError:
        """The error of the answer, or a more precise one where the address explains it."""
        error = error_of(answer.status, answer.body)
        if answer.status == 404 and self.address.prefix and ROOT in str(error):
            # The server parsed the path of the address as the name of an entity.
            hint = "remove the path from --url; it is only for servers that are mounted below a path"
            return AnswerInvalid(f"the server is not mounted below the path {self.address.prefix}", hint)
        if isinstance(error, Unauthorised) and self.address.rule.startswith(LOCAL_RULE):
            return Unauthorised(
                f"the server {self.address} was restarted after this command began", "run the command again"
            )
        return error

    def _unknown(self, lost: AnswerLost) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the outcome is unknown: the request was sent to the server {self.address}, and {lost}",
            "check before you repeat it: `unibus peek` and `unibus tail` show what the server has",
        )

    def _gone(self, lost: AnswerLost) -> ServerUnavailable:
        return ServerUnavailable(
            f"the server {self.address} did not answer: {lost}",
            "check that it is running; this call has changed nothing",
        )

    # Streams

    def pieces(self, path: str, query: Query | None = None, last_id: str = "") -> Iterator[bytes]:
        """The bytes of an answer of any length. The first piece is empty and says that the answer has begun.

        AnswerInvalid if the stream ends early, ServerUnavailable if it never began.
        """
        headers = self._headers(False)
        if last_id:
            headers["Last-Event-ID"] = last_id
        has_begun = False
        try:
            for piece in self._wire.stream("GET", f"{ROOT}{path}{_encoded(query)}", headers, SILENCE_S):
                has_begun = True
                yield piece
        except StreamRefused as refused:
            raise self._refusal(refused.answer) from None
        except AnswerLost as lost:
            if not has_begun:
                raise self._gone(lost) from lost
            raise AnswerInvalid(
                f"the answer of {self.address} is incomplete: {lost}", "run the command again"
            ) from lost

    def interrupt(self) -> None:
        """From another thread: end the call that waits for its answer. The server sees a disconnect."""
        self._wire.interrupt()

    # The server itself

    def is_proved(self, key: str) -> bool:
        """Whether the server knows this key. From now on every new connection has to prove it before anything is sent:
        while a command runs its server may stop, and another process may bind the port."""
        self._wire.close()
        self._proof_key = key
        try:
            self._wire.connect()
        except BusError:
            return False
        return True

    def _check(self, ask: Callable[[str], HttpAnswer]) -> None:
        """Verify a new connection. Nothing signed with the key is sent before this succeeds."""
        if not self._proof_key:
            return
        from unibus.config.server_file import proof_of

        nonce = secrets.token_hex(32)
        answer = ask(f"{ROOT}proof{_encoded({'nonce': nonce})}")
        found = record_of(answer.body, _Proof).proof if answer.status == 200 else ""
        if not hmac.compare_digest(found.encode("utf-8"), proof_of(self._proof_key, nonce).encode("ascii")):
            raise Unauthorised(
                f"the server at {self.address} is not the one that this command began with", "run the command again"
            )


def _encoded(query: Query | None) -> str:
    """The query string. None is omitted; a list becomes one parameter for each value."""
    given: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        values = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
        given += [(name, str(each)) for each in values]
    return f"?{urlencode(given)}" if given else ""
