"""Clients of a server over HTTP that do what programs do, at random from a seed, and write each call into a ledger.

A client outlives the servers: what it has received from one it settles at the next, as a program that reconnects does.
"""

import base64
import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tests.crash.http_ledger import (
    ABANDON,
    CANCEL,
    COMPLETE,
    COPIES,
    DEAD,
    DEAD_LETTER,
    DEFER,
    DESTRUCTIVE,
    DUPLICATES_DETECTED,
    LOCK_S,
    SESSIONS,
    TOPIC,
    HttpLedger,
    Receipt,
    Sent,
)
from tests.crash.ledger import body_of
from tests.crash.server_process import TOKEN

PATIENCE_S = 30.0
BATCH = "application/vnd.microsoft.servicebus.json"
QUEUES = ("a", "b")
RECEIVED_FROM = (*QUEUES, *COPIES, "a" + DEAD, "b" + DEAD, COPIES[0] + DEAD, DUPLICATES_DETECTED)
SESSION_IDS = ("s1", "s2", "s3")
_LOCKED: dict[str, Any] = {"lock_duration": LOCK_S, "max_delivery_count": 1_000}
ENTITIES = {
    "queues": {
        "a": _LOCKED,
        "b": _LOCKED,
        DESTRUCTIVE: _LOCKED,
        DUPLICATES_DETECTED: {**_LOCKED, "duplicate_detection": True},
        SESSIONS: {**_LOCKED, "requires_session": True},
    },
    "topics": {TOPIC: {"subscriptions": {"one": _LOCKED, "two": _LOCKED}}},
}


class ServerGone(Exception):
    """The connection died. What was asked last has an unknown outcome, unless `is_asked` is False."""

    def __init__(self, is_asked: bool) -> None:
        super().__init__()
        self.is_asked = is_asked


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def properties(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.headers["brokerproperties"])
        return found


@dataclass
class Holding:
    """A message that is locked for this client."""

    entity: str
    id: str
    sequence: int
    token: str
    until_s: float
    is_tried: bool = False

    def path(self, verb: str = "") -> str:
        return f"/{self.entity}/messages/{self.sequence}/{self.token}{verb}"


class Client:
    """`name` begins the ids of its messages. `live` works until the server is gone or `stop` is set."""

    def __init__(self, ledger: HttpLedger, name: str) -> None:
        self._ledger = ledger
        self._name = name
        self._chance = random.Random(name)
        self._count = 0
        self._connection: http.client.HTTPConnection | None = None
        self._port = 0
        self._holdings: list[Holding] = []
        self._deferred: list[tuple[str, str, int]] = []
        self._scheduled: list[Sent] = []
        self._unknown: list[list[Sent]] = []
        self._session = ""
        self._sequences: dict[str, int] = {}

    def live(self, port: int, stop: threading.Event) -> None:
        self._port, self._connection, self._session = port, None, ""
        kinds, weights = zip(*_WEIGHTS, strict=True)
        try:
            while not stop.is_set():
                self._chance.choices(kinds, weights)[0](self)
        except ServerGone:
            return
        except BaseException as error:
            self._ledger.wrong(f"a client failed: {error!r}")
            raise
        finally:
            if self._connection is not None:
                self._connection.close()

    # Requests

    def _ask(self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = http.client.HTTPConnection("127.0.0.1", self._port, PATIENCE_S)
                connection.connect()
        except OSError as error:
            raise ServerGone(False) from error
        try:
            connection.request(method, path, body, {"authorization": TOKEN, **(headers or {})})
            response = connection.getresponse()
            read = response.read()
        except TimeoutError:
            self._ledger.wrong(f"{method} {path} got no answer")
            raise
        except (OSError, http.client.HTTPException) as error:
            raise ServerGone(True) from error
        answer = Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, read)
        if answer.headers.get("connection") == "close":
            connection.close()
            self._connection = None
        return answer

    def _unexpected(self, what: str, answer: Answer) -> None:
        self._ledger.wrong(f"{what} was answered {answer.status} {answer.body[:300]!r}")

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    # Sends

    def send(self) -> None:
        entity = self._chance.choice((*QUEUES, *QUEUES, TOPIC, DESTRUCTIVE, SESSIONS))
        self._send(self._ledger.asks_send(entity, [self._new_id()]))

    def schedule(self) -> None:
        """Soon, or so late that it is cancelled before."""
        due_s = round(time.time() + self._chance.choice((0.1, 0.5, 3_600.0)), 3)
        self._send(self._ledger.asks_send(self._chance.choice(QUEUES), [self._new_id()], due_s))

    def send_once(self) -> None:
        self._send(self._ledger.asks_send(DUPLICATES_DETECTED, [self._new_id()]))

    def send_again(self) -> None:
        """What a client with retries does after a broken connection."""
        if self._unknown:
            asked = self._unknown.pop()
            self._ledger.counts["repeated sends"] += 1
            self._send(asked)

    def _send(self, asked: list[Sent]) -> None:
        (sent,) = asked
        properties: dict[str, object] = {"MessageId": sent.id}
        if sent.due_s:
            properties["ScheduledEnqueueTimeUtc"] = datetime.fromtimestamp(sent.due_s, UTC).isoformat()
        if sent.entity == SESSIONS:
            properties["SessionId"] = self._chance.choice(SESSION_IDS)
        try:
            answer = self._ask(
                "POST", f"/{sent.entity}/messages", {"BrokerProperties": json.dumps(properties)}, body_of(sent.id)
            )
        except ServerGone as error:
            self._unanswered(asked, error)
            raise
        if answer.status != 201:
            self._unexpected(f"sending {sent}", answer)
            return
        given = answer.properties()
        self._ledger.counts["duplicates"] += "Duplicate" in given
        self._sent(asked, [given])

    def _unanswered(self, asked: list[Sent], error: ServerGone) -> None:
        if not error.is_asked:
            self._ledger.refused_send(asked)
            return
        self._ledger.counts["unknown sends"] += len(asked)
        if asked[0].entity == DUPLICATES_DETECTED:
            self._unknown.append(asked)

    def _sent(self, asked: list[Sent], given: list[dict[str, Any]]) -> None:
        for sent, properties in zip(asked, given, strict=True):
            sequence = properties.get("SequenceNumber", 0)
            if properties["MessageId"] != sent.id:
                self._ledger.wrong(f"{sent} was answered {properties}")
            if sent.entity in QUEUES and sequence <= self._sequences.get(sent.entity, 0):
                self._ledger.wrong(f"{sent} has #{sequence} after #{self._sequences[sent.entity]}")
            self._sequences[sent.entity] = sequence
            if sent.due_s > time.time() + 60:
                self._scheduled.append(sent)
        self._ledger.acked_send(asked, [each.get("SequenceNumber", 0) for each in given])

    def send_batch(self) -> None:
        entity = self._chance.choice((*QUEUES, TOPIC))
        asked = self._ledger.asks_send(entity, [f"tiny{self._new_id()}" for _ in range(self._chance.randrange(2, 40))])
        document = [{"Body": each.id, "BrokerProperties": {"MessageId": each.id}} for each in asked]
        try:
            answer = self._ask("POST", f"/{entity}/messages", {"content-type": BATCH}, json.dumps(document).encode())
        except ServerGone as error:
            self._unanswered(asked, error)
            raise
        if answer.status == 201:
            self._ledger.counts["acknowledged batches"] += 1
            self._sent(asked, json.loads(answer.body))
        else:
            self._unexpected("a batch", answer)

    def cancel(self) -> None:
        if self._scheduled:
            sent = self._scheduled.pop()
            self._ledger.asks_cancel(sent.entity, sent.id)
            answer = self._ask("DELETE", f"/{sent.entity}/$scheduled/{sent.sequence}")
            if answer.status == 200:
                self._ledger.acked_settle(sent.entity, sent.id, CANCEL)
            else:
                self._unexpected(f"cancelling {sent}", answer)

    # Receives

    def receive(self) -> None:
        entity = self._chance.choice(RECEIVED_FROM)
        began = self._ledger.tick()
        waits = f"?timeout={self._chance.choice(('0', '0.05', '0.2'))}" if self._chance.random() < 0.4 else ""
        answer = self._ask("POST", f"/{entity}/messages/head{waits}")
        if answer.status == 204:
            self._ledger.counts["empty receives"] += 1
        elif answer.status == 201:
            self._took(entity, began, [(answer.properties(), answer.body)])
        else:
            self._unexpected(f"receiving from {entity}", answer)

    def receive_many(self) -> None:
        entity = self._chance.choice(RECEIVED_FROM)
        self._receive_list(entity, f"/{entity}/messages/receive", {"max_count": self._chance.randrange(1, 20)})

    def _receive_list(self, entity: str, path: str, wanted: dict[str, object] | None) -> None:
        began = self._ledger.tick()
        answer = self._ask("POST", path, body=b"" if wanted is None else json.dumps(wanted).encode())
        if answer.status != 200:
            self._unexpected(f"receiving from {path}", answer)
            return
        self._took(entity, began, [(each, self._body(each)) for each in json.loads(answer.body)])

    def _body(self, message: dict[str, Any]) -> bytes:
        text = message["Body"]
        return base64.b64decode(text) if message.get("IsBodyBase64") else str(text).encode()

    def take(self) -> None:
        """Without a lock: it is gone with the answer."""
        began = self._ledger.tick()
        try:
            answer = self._ask("DELETE", f"/{DESTRUCTIVE}/messages/head")
        except ServerGone as error:
            self._ledger.counts["unknown receives without a lock"] += error.is_asked
            raise
        if answer.status == 200:
            properties = answer.properties()
            self._took(DESTRUCTIVE, began, [(properties, answer.body)])
            self._ledger.asks_settle(DESTRUCTIVE, properties["MessageId"], COMPLETE)
            self._ledger.acked_settle(DESTRUCTIVE, properties["MessageId"], COMPLETE)
        elif answer.status != 204:
            self._unexpected("receiving without a lock", answer)

    def _took(self, entity: str, began: int, taken: list[tuple[dict[str, Any], bytes]]) -> None:
        ended, now_s = self._ledger.tick(), time.time()
        for properties, body in taken:
            message_id, sequence = properties["MessageId"], properties["SequenceNumber"]
            until_s = _instant_s(properties["LockedUntilUtc"]) if "LockToken" in properties else 0.0
            if body != body_of(message_id):
                self._ledger.wrong(f"{message_id} came with another body")
            receipt = Receipt(properties["DeliveryCount"], sequence, began, ended, until_s)
            self._ledger.received(entity, message_id, receipt, now_s)
            if until_s:
                self._holdings.append(Holding(entity, message_id, sequence, properties["LockToken"], until_s))
        self._ledger.answered_receive(entity, began, ended, [each["SequenceNumber"] for each, _ in taken])

    def receive_deferred(self) -> None:
        if self._deferred:
            entity, _, sequence = self._deferred.pop()
            self._receive_list(entity, f"/{entity}/messages/deferred?sequences={sequence}", None)

    # Settlements

    def settle(self) -> None:
        if not self._holdings:
            return
        holding = self._holdings.pop(self._chance.randrange(len(self._holdings)))
        verbs = [COMPLETE] * 6 + [ABANDON] * 2
        if not holding.entity.endswith(DEAD):
            verbs += [DEAD_LETTER]
        if holding.entity in QUEUES:
            verbs += [DEFER]
        self._settle(holding, self._chance.choice(verbs))

    def _settle(self, holding: Holding, verb: str) -> None:
        method, path = _SETTLEMENTS[verb]
        self._ledger.asks_settle(holding.entity, holding.id, verb)
        was_tried, holding.is_tried = holding.is_tried, True
        try:
            answer = self._ask(method, holding.path(path))
        except ServerGone:
            self._holdings.append(holding)  # To try again: with the same verb or with another.
            raise
        if answer.status == 200:
            self._ledger.acked_settle(holding.entity, holding.id, verb)
            if verb == DEFER:
                self._deferred.append((holding.entity, holding.id, holding.sequence))
        elif answer.status == 410:
            self._ledger.refused_settle(holding.entity, holding.id, verb)
            if not was_tried and holding.until_s > time.time() + 0.5 and holding.entity != SESSIONS:
                self._ledger.wrong(f"the lock of {holding} ended early")
        else:
            self._unexpected(f"{verb} of {holding}", answer)

    def renew(self) -> None:
        holding = self._chance.choice(self._holdings) if self._holdings else None
        if holding is not None and not holding.is_tried and holding.entity != SESSIONS:
            answer = self._ask("POST", holding.path())
            if answer.status == 200:
                holding.until_s = _instant_s(answer.properties()["LockedUntilUtc"])
                self._ledger.renewed(holding.entity, holding.id, holding.until_s)
            elif answer.status != 410 or holding.until_s > time.time() + 0.5:
                self._unexpected(f"renewing {holding}", answer)

    # Sessions

    def work_in_session(self) -> None:
        """Accept a session, read its state, receive, set the state, and release it."""
        answer = self._ask("POST", f"/{SESSIONS}/$sessions")
        if answer.status == 204:
            return
        if answer.status != 201:
            self._unexpected("accepting a session", answer)
            return
        lock = json.loads(answer.body)
        path = f"/{SESSIONS}/$sessions/{lock['SessionId']}/{lock['LockToken']}"
        state = self._ask("GET", f"{path}/state")
        if state.status not in (200, 204):
            self._unexpected("the state of a session", state)
            return
        self._ledger.read_state(lock["SessionId"], state.body.decode())
        self._receive_list(SESSIONS, f"{path}/messages/receive", {"max_count": 3})
        held = [each for each in self._holdings if each.entity == SESSIONS and not each.is_tried]
        self._holdings = [each for each in self._holdings if each not in held]
        for holding in held:
            self._settle(holding, COMPLETE)
        new = self._new_id()
        self._ledger.asks_state(lock["SessionId"], new)
        if self._ask("PUT", f"{path}/state", body=new.encode()).status == 200:
            self._ledger.acked_state(lock["SessionId"], new)
        if self._chance.random() < 0.8:
            self._ask("DELETE", path)


def _instant_s(text: str) -> float:
    if text[0].isdigit():
        return datetime.fromisoformat(text).timestamp()
    return parsedate_to_datetime(text).timestamp()


_SETTLEMENTS = {
    COMPLETE: ("DELETE", ""),
    ABANDON: ("PUT", ""),
    DEAD_LETTER: ("PUT", "/deadletter?reason=because"),
    DEFER: ("PUT", "/defer"),
}
_WEIGHTS: tuple[tuple[Callable[[Client], None], float], ...] = (
    (Client.send, 30),
    (Client.send_batch, 5),
    (Client.send_once, 6),
    (Client.send_again, 6),
    (Client.schedule, 3),
    (Client.cancel, 1),
    (Client.receive, 20),
    (Client.receive_many, 6),
    (Client.take, 5),
    (Client.receive_deferred, 2),
    (Client.settle, 30),
    (Client.renew, 2),
    (Client.work_in_session, 4),
)
