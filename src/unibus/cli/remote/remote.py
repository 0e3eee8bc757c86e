"""Commands through a running server: every call is a request of the management API and returns the same records.

A change counts only after the server acknowledged it (see `unibus.client`). Lists are read in pages.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unibus.cli.connection.management import BATCH, Asked, Progress, Relay, WantedEvents
from unibus.errors import AnswerInvalid, EntityNotFound

if TYPE_CHECKING:
    from unibus.bus.history.export_lines import Contents
    from unibus.bus.history.trace import MessageTrace
    from unibus.bus.management.messages.sending import SendRequest
    from unibus.bus.management.settings.declaring import DeclaredPlan
    from unibus.cli.connection.command_import import CommandImport
    from unibus.cli.remote.access import RemoteAccess
    from unibus.cli.remote.dead_letters import RemoteDeadLetters, RemotePurge
    from unibus.cli.remote.entities import RemoteWatch
    from unibus.cli.remote.events import RemoteTail
    from unibus.cli.remote.history import RemoteExport, RemoteResending
    from unibus.cli.remote.receiving import RemoteReceiver
    from unibus.client.client import Client
    from unibus.core.envelope.message import Message
    from unibus.core.lifecycle.commands import SendResult
    from unibus.stores.query.result import QueryResult
    from unibus.stores.seam.store import EntityInfo

DURABILITY: Final = "durability"


class RemoteManagement:
    """See `Management`."""

    def __init__(self, client: "Client") -> None:
        self.client = client

    def close(self) -> None:
        self.client.close()

    # Entities and messages

    def entities(self) -> "list[EntityInfo]":
        from unibus.cli.remote.entities import all_entities

        return all_entities(self.client)

    def send(self, entity: str, bodies: Sequence[object], fields: Mapping[str, object]) -> "list[SendResult]":
        from unibus.bus.management.messages.documents import outgoing_of
        from unibus.bus.management.messages.sending import SendRequest

        own = {name: value for name, value in fields.items() if name != DURABILITY}
        messages = [outgoing_of(body, own) for body in bodies]
        request = SendRequest(messages, _level(fields.get(DURABILITY)))
        try:
            return self._sent(entity, request, None)
        except EntityNotFound:
            # Only now, because creating a queue requires the Manage right on the namespace.
            return self._sent(entity, request, "true")

    def _sent(self, entity: str, request: "SendRequest", create: str | None) -> "list[SendResult]":
        from unibus.bus.management.messages.sending import SentMessage
        from unibus.core.lifecycle.commands import SendResult

        query = {"entity": entity, "create": create}
        found = self.client.post("messages/send", list[SentMessage], request, query)
        if len(found) != len(request.messages):
            raise AnswerInvalid(
                f"the server acknowledged {len(found)} messages of {len(request.messages)}",
                "`unibus tail` shows what it has stored",
            )
        results = [SendResult(each.entity, each.sequence, each.id, each.duplicate) for each in found]
        for result, each in zip(results, found, strict=True):
            result.durability = each.durability
        return results

    def peek(self, entity: str, from_sequence: int, count: int) -> "Iterator[Message]":
        from unibus.bus.management.messages.documents import message_of_document
        from unibus.bus.management.messages.peeking import PeekedPage
        from unibus.core.lifecycle.envelope import show_lock

        left, start = count, from_sequence
        while True:
            query = {"entity": entity, "from": start, "top": min(left, BATCH) if count else BATCH}
            page = self.client.get("messages", PeekedPage, query)
            for each in page.messages:
                message = message_of_document(each.document)  # type: ignore[arg-type]  # No preview was requested.
                message.sequence = each.sequence
                message.delivery_count = each.delivery_count
                if each.locked_until_ns is not None:
                    show_lock(message, each.locked_until_ns)
                yield message
            left -= len(page.messages)
            if page.next is None or (count and left <= 0):
                return
            start = page.next

    @contextlib.asynccontextmanager
    async def receiver(self) -> "AsyncIterator[RemoteReceiver]":
        from unibus.cli.remote.receiving import RemoteReceiver

        with contextlib.closing(RemoteReceiver(self.client)) as receiver:
            yield receiver

    # Settings

    def declare(self, file: str, dry_run: bool) -> "DeclaredPlan":
        from unibus.bus.entities.file import read_entity_file
        from unibus.bus.management.settings.declaring import DeclaredPlan, DeclareRequest

        read_entity_file(file)  # Checked here first: these errors name the file.
        text = Path(file).read_text("utf-8-sig", "strict")
        return self.client.post("entities/declare", DeclaredPlan, DeclareRequest(text, dry_run))

    def access(self) -> "RemoteAccess":
        from unibus.cli.remote.access import RemoteAccess

        return RemoteAccess(self.client)

    # History

    def query(self, asked: Asked) -> "QueryResult":
        from unibus.bus.management.history.queries import QueryAnswer, QueryRequest, result_of

        request = QueryRequest(asked.sql, [*asked.parameters], asked.rows, asked.time_limit_s, asked.memory_mb)
        answer = self.client.post("query", QueryAnswer, request, is_safe=True, wait_s=asked.time_limit_s)
        return result_of(answer)

    def trace(self, message_id: str) -> "MessageTrace":
        from unibus.bus.management.history.traces import TraceRecord, trace_of_record

        return trace_of_record(self.client.get("trace", TraceRecord, {"id": message_id}))

    def watch(self, once: bool) -> "RemoteWatch":
        from unibus.cli.remote.entities import RemoteWatch

        return RemoteWatch(self.client, once)

    def tail(self, wanted: WantedEvents) -> "RemoteTail":
        from unibus.cli.remote.events import RemoteTail

        return RemoteTail(self.client, wanted)

    def replay(self, channel: str, after: int, since_ns: int) -> "Iterator[Message]":
        from unibus.cli.remote.history import replayed

        return replayed(self.client, channel, after, since_ns)

    def resending(self, channel: str, target: str, after: int, since_ns: int, count: int) -> "RemoteResending":
        from unibus.cli.remote.history import RemoteResending

        return RemoteResending(self.client, channel, target, (after, since_ns), count)

    # The whole bus

    def export(self, put: Callable[[bytes], object], progress: Progress, names: Sequence[str]) -> "RemoteExport":
        from unibus.cli.remote.history import RemoteExport

        exported = RemoteExport(put, progress)
        exported.run(self.client, names)
        return exported

    def importing(self, contents: "Contents") -> "CommandImport":
        from unibus.cli.connection.command_import import CommandImport
        from unibus.cli.remote.steps import ServerTarget

        return CommandImport(ServerTarget(self.client), contents)

    @contextlib.asynccontextmanager
    async def relaying(self, file: str) -> AsyncIterator[Relay]:
        from unibus.cli.remote.steps import relaying

        with relaying(self.client.twin(), file) as relay:
            yield relay

    def dead_letters(self) -> "RemoteDeadLetters":
        from unibus.cli.remote.dead_letters import RemoteDeadLetters

        return RemoteDeadLetters(self.client)

    def purge(self, entity: str, dry_run: bool) -> "RemotePurge":
        from unibus.cli.remote.dead_letters import RemotePurge

        return RemotePurge(self.client, entity, dry_run)


def _level(given: object) -> Any:
    if given is None:
        return None
    from unibus.stores.seam.durability import Durability

    return Durability.of(given).name
