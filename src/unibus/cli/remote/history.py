"""Replay and export through a server, in pages and batches."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from unibus.bus.history.export_lines import ExportEnd, Header
from unibus.bus.management.messages.documents import message_of_document
from unibus.bus.management.messages.replaying import ReplayCount, ReplayedPage, ReplaySendRequest, ReplaySent
from unibus.cli.connection.management import BATCH, Progress
from unibus.client.client import Client
from unibus.errors import AnswerInvalid

if TYPE_CHECKING:
    from unibus.core.envelope.message import Message

T = TypeVar("T")

_END: Final = b'{"end"'


def replayed(client: Client, channel: str, after: int, since_ns: int) -> "Iterator[Message]":
    while True:
        query = {"entity": channel, "after": after, "since_ns": since_ns, "top": BATCH}
        page = client.get("replay", ReplayedPage, query)
        for each in page.messages:
            message = message_of_document(each.document)
            message.sequence = each.sequence
            yield message
        if page.next is None:
            return
        after = page.next


class RemoteResending:
    """Each batch starts after the last sequence number that the server acknowledged."""

    def __init__(self, client: Client, channel: str, target: str, begin: tuple[int, int], count: int) -> None:
        self.sent = 0
        self.duplicates = 0
        self._client = client
        self._channel, self._target = channel, target
        self._after, self._since_ns = begin
        _check_target(client, target)
        query = {"entity": channel, "after": self._after, "since_ns": self._since_ns}
        total = client.get("replay/count", ReplayCount, query).count
        self.total = min(total, count or total)
        self._has_ended = not self.total

    def send_next(self) -> bool:
        left = self.total - self.sent
        if self._has_ended or left <= 0:
            return False
        request = ReplaySendRequest(
            source=self._channel,
            to=self._target,
            after=self._after,
            since_ns=self._since_ns,
            count=min(BATCH, left),
        )
        found = self._client.post("replay/send", ReplaySent, request)
        self.sent += found.sent
        self.duplicates += found.duplicates
        self._after, self._has_ended = found.last_sequence, found.done
        return True


def _check_target(client: Client, target: str) -> None:
    from unibus.cli.remote.entities import all_entities
    from unibus.errors import EntityNotFound

    if target not in [info.name for info in all_entities(client)]:
        raise EntityNotFound(f"there is no queue or subscription {target!r}")


# The whole bus


class RemoteExport:
    """Writes the stream of an export as it arrives, and checks that its last line exists and has the right SHA-256."""

    def __init__(self, put: Callable[[bytes], object], progress: Progress) -> None:
        self.entities = 0
        self.messages = 0
        self.sessions = 0
        self._put = put
        self._progress = progress
        self._digest = hashlib.sha256()
        self._end: ExportEnd | None = None
        self._header: Header | None = None

    def run(self, client: Client, names: Sequence[str]) -> None:
        rest = b""
        for piece in client.pieces("export", {"queue": list(names)}):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
        if rest or self._end is None or self._end.sha256 != self._digest.hexdigest():
            raise AnswerInvalid("the export of the server is incomplete", "export again")

    def _take(self, line: bytes) -> None:
        if self._header is None:
            self._header = _read(line, Header)
        if line.startswith(_END):
            self._end = _read(line, ExportEnd)
        else:
            self._digest.update(line)
            self._count(line)
        self._put(line)

    def _count(self, line: bytes) -> None:
        self.entities += line.startswith(b'{"entity"')
        self.messages += line.startswith(b'{"message"')
        self.sessions += line.startswith(b'{"session"')
        if self._header is not None and self.messages % BATCH == 0:
            self._progress(self.messages, self._header.messages)


def _read(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        hint = "use the same version of unibus on both sides"
        raise AnswerInvalid("the export of the server cannot be read", hint) from error
