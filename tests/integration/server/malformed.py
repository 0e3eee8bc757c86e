"""Requests that no client library sends: valid ones of every operation, damaged at random from a seed.

Each kind of damage aims at one part: the bytes of the connection, the head, the path, the query, the JSON, XML or
property headers. What comes out may still be valid, so a test cannot expect an error of each: it expects an answer that
is no failure of the server.
"""

import json
import random
import re
import unicodedata
from collections.abc import Callable

from tests.crash.server_process import TOKEN
from unibus.endpoints.http.application.operations import TABLE

LEFT_OUT = {"events_live", "entities_live", "server_live", "server_logs", "watch_job", "server_stop"}
"""Operations whose answers have no end, which other tests read; and the one that ends the server."""

OPERATIONS = [operation for operation in TABLE.operations if operation.name not in LEFT_OUT]

UUID = "00000000-0000-0000-0000-000000000001"
ATOM = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
    '<{kind}Description xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
    ' xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>'
    "<MaxDeliveryCount>10</MaxDeliveryCount></{kind}Description></content></entry>"
)
BODIES = (
    b"",
    b"hello",
    b'{"max_count": 2, "receive_mode": "PeekLock"}',
    b'{"reason": "because", "properties": {"a": 1}}',
    b'{"lock_token": "00000000-0000-0000-0000-000000000001"}',
    b'[{"Body": "x", "BrokerProperties": {"MessageId": "1"}, "UserProperties": {"a": 1}}]',
    b'{"body": "x", "label": "l", "sessionId": "s", "timeToLive": 5, "userProperties": {"a": true}}',
    *[ATOM.format(kind=kind).encode() for kind in ("Queue", "Topic", "Subscription", "Rule")],
)
TYPES = (
    "application/vnd.microsoft.servicebus.json",
    "application/atom+xml;type=entry;charset=utf-8",
    "application/json",
    "text/plain",
    "",
)
QUERIES = (
    "",
    "?timeout=0",
    "?timeout=0.001&mode=PeekLock&numofmessages=3",
    "?sequences=1,2",
    "?envelope=json",
    "?skip=0&top=10&api-version=2021-05",
    "?count=3&from=0&session=s",
    "?reason=r&description=d",
)
PROPERTIES = (
    '{"MessageId": "1"}',
    '{"TimeToLive": 5, "SessionId": "s", "ScheduledEnqueueTimeUtc": "2030-01-01T00:00:00Z"}',
)
NAMES = (
    "q",
    "t",
    "t/subscriptions/s",
    "s",
    "..",
    ".",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/q",
    "%00",
    "q%00.db",
    "q%0d%0ax-injected:%201",
    "a" * 261,
    "%61" * 300,
    unicodedata.normalize("NFC", "é").encode().hex("%").join(("%", "")),
    unicodedata.normalize("NFD", "é").encode().hex("%").join(("%", "")),
    "%ff%fe",
    "%",
    "%zz",
    "%c0%ae%c0%ae",
    "%ed%a0%80",
    "CON",
    "nul.txt",
    "q:stream",
    "q;x=1",
    "q%3fx%3d1",
    "$Resources",
    "$management",
    "q/$DeadLetterQueue",
    "q/$deadletterqueue/$deadletterqueue",
    "servicebus",
    "health",
    "unibus",
    "messages",
    "subscriptions",
    "q//messages",
    "t/subscriptions/" + "s" * 51,
    "%F0%9F%92%A9",
    "%e2%80%ae",
    "q" + "/q" * 200,
)
TEXTS = (
    *(
        "",
        "-1",
        "0",
        "1e999",
        "NaN",
        "Infinity",
        "-0",
        "9" * 400,
        "0x10",
        "1_000",
        "٣",
        "null",
        "true",
        "[]",
        "{}",
        '"',
    ),
    *("PT", "P1Y", "-PT1S", "P99999999D", "PT0.0000001S", "\x7f", "\u2028", "' OR 1=1 --", "%s%n", "${jndi:x}", "<!--"),
)
VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    2**63,
    2**64,
    10**30,
    "",
    "x" * 70_000,
    "\0",
    "\ud83d",
    [],
    {},
    [[]],
)


class Damage:
    """A request, and ways to damage it. All of them are steered by one random source."""

    def __init__(self, seed: object) -> None:
        self.chance = random.Random(seed)
        operation = self.chance.choice(OPERATIONS)
        self.method = operation.method
        shape = self.chance.choice(operation.documented)
        self.path = re.sub(r"{(\w+)[^}]*}", lambda found: self._value(found[1]), shape)
        self.query = self.chance.choice(QUERIES)
        self.headers = {"host": "localhost", "authorization": TOKEN}
        self.body = self.chance.choice(BODIES)
        if kind := self.chance.choice(TYPES):
            self.headers["content-type"] = kind
        if self.chance.random() < 0.4:
            self.headers["BrokerProperties"] = self.chance.choice(PROPERTIES)
        if self.chance.random() < 0.5:
            self.headers["accept"] = "application/json"
        self._raw: Callable[[bytes], bytes] = bytes

    def _value(self, name: str) -> str:
        if name in ("queue", "topic", "entity", "name"):
            return self.chance.choice(("q", "t", "s", "new"))
        return {"token": UUID, "subscription": "s", "message": "1", "sequence": "1"}.get(name, "x")

    def request(self) -> bytes:
        for _ in range(self.chance.choice((0, 1, 1, 2, 3))):
            self.chance.choice(_DAMAGES)(self)
        lines = [f"{self.method} {self.path}{self.query} HTTP/1.1"]
        lines += [f"{name}: {text}" for name, text in self.headers.items()]
        lines += [f"content-length: {len(self.body)}", "connection: close", "", ""]
        return self._raw("\r\n".join(lines).encode("utf-8", "surrogatepass") + self.body)

    # What is damaged

    def change_name(self) -> None:
        parts = self.path.split("/")
        parts[self.chance.randrange(1, len(parts))] = self.chance.choice(NAMES)
        self.path = "/".join(parts)

    def change_method(self) -> None:
        self.method = self.chance.choice(
            ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND")
        )

    def change_query(self) -> None:
        name = self.chance.choice(
            ("timeout", "mode", "numofmessages", "sequences", "skip", "top", "count", "from", "envelope")
        )
        text = self.chance.choice(TEXTS)
        escaped = "".join([f"%{byte:02x}" for byte in text.encode()]) if self.chance.random() < 0.8 else "%" + text[:1]
        self.query = f"{self.query or '?'}&{name}={escaped if escaped.isascii() else ''}"

    def change_header(self) -> None:
        name = self.chance.choice(
            ("BrokerProperties", "content-type", "authorization", "accept", "if-match", "x-prop", "traceparent")
        )
        text = self.chance.choice((*TEXTS, *PROPERTIES, "x" * 20_000, self._json()))
        self.headers[name] = text.replace("\r", "").replace("\n", "")

    def change_json(self) -> None:
        self.body = self._json().encode("utf-8", "surrogatepass")

    def _json(self) -> str:
        """A document of the right shape with one value of a wrong kind, or one that nests without end."""
        if self.chance.random() < 0.1:
            return "[" * 100_000 if self.chance.random() < 0.5 else '{"a":' * 50_000
        document = json.loads(
            self.chance.choice([each for each in (*BODIES, *PROPERTIES) if each[:1] in (b"{", b"[", "{")])
        )
        place = document[0] if isinstance(document, list) else document
        if self.chance.random() < 0.3 and isinstance(place.get("BrokerProperties"), dict):
            place = place["BrokerProperties"]
        name = self.chance.choice(
            [*place, "MessageId", "ScheduledEnqueueTimeUtc", "TimeToLiveTimeSpan", "Priority", "IsBodyBase64"]
        )
        place[name] = self.chance.choice((*VALUES, *TEXTS))
        text = json.dumps(document)
        return text[: self.chance.randrange(len(text))] if self.chance.random() < 0.2 else text

    def change_xml(self) -> None:
        text = ATOM.format(kind=self.chance.choice(("Queue", "Topic", "Subscription", "Rule", "Nothing")))
        self.headers["content-type"] = TYPES[1]
        kind = self.chance.randrange(6)
        if kind == 0:
            text = '<!DOCTYPE x [<!ENTITY a "b">]>' + text
        elif kind == 1:
            text = text.replace("PT1M", self.chance.choice(TEXTS).replace("<", "&lt;").replace("\x7f", ""))
        elif kind == 2:
            text = text.replace(
                "MaxDeliveryCount", self.chance.choice(("Colour", "ForwardTo", "Filter", "AuthorizationRules"))
            )
        elif kind == 3:
            text = "<a>" * 20_000
        elif kind == 4:
            text = text[: self.chance.randrange(len(text))]
        else:
            text = '<?xml version="1.0" encoding="utf-16"?>' + text
        self.body = text.encode()

    def change_bytes(self) -> None:
        """Of the whole request: flipped, removed, inserted, cut."""
        chance = self.chance

        def flip(data: bytes) -> bytes:
            changed = bytearray(data)
            for _ in range(chance.choice((1, 1, 3, 20))):
                at = chance.randrange(len(changed) or 1)
                kind = chance.randrange(4)
                if kind == 0:
                    changed[at : at + 1] = bytes([chance.randrange(256)])
                elif kind == 1:
                    del changed[at : at + chance.randrange(1, 10)]
                elif kind == 2:
                    changed[at:at] = chance.choice(
                        (b"\r\n", b"\0", b"\n", b" ", b":", b"\r\n\r\n", chance.randbytes(8))
                    )
                else:
                    del changed[max(1, at) :]
            return bytes(changed)

        self._raw = flip

    def change_framing(self) -> None:
        """Another form of the body than the length says."""
        chance = self.chance
        framing = chance.choice(
            (
                b"transfer-encoding: chunked\r\n",
                b"transfer-encoding: gzip, chunked\r\n",
                b"content-length: 3\r\n",
                b"host: other\r\n",
                b"expect: 100-continue\r\n",
                b"upgrade: h2c\r\nconnection: upgrade\r\n",
                b"te: trailers\r\n",
                b" folded\r\n",
            )
        )
        self._raw = lambda data: data.replace(b"connection: close\r\n", framing + b"connection: close\r\n", 1)


_DAMAGES: tuple[Callable[[Damage], None], ...] = (
    Damage.change_name,
    Damage.change_name,
    Damage.change_method,
    Damage.change_query,
    Damage.change_header,
    Damage.change_header,
    Damage.change_json,
    Damage.change_json,
    Damage.change_xml,
    Damage.change_bytes,
    Damage.change_framing,
)
