"""Idempotent steps on a server: imports, and the outbox of an application's database.

Each request has the position that it expects and advances. If its answer is lost, the position shows whether the
server applied it, so a step is applied exactly once.
"""

import base64
import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from unibus.bus.history.export_lines import EntityLine, Line, MessageLine, SessionLine, encode_line
from unibus.bus.management.messages.imports import ImportAnswer, ImportRequest, PositionRecord
from unibus.bus.management.messages.relays import RelayAnswer, RelayRequest
from unibus.bus.outbox.outbox import OutboxRow, position_name
from unibus.bus.outbox.registry import file_of_outbox
from unibus.bus.outbox.relay import Relay
from unibus.bus.outbox.sqlite import SqliteTable
from unibus.cli.connection.management import Relay as RelayCall
from unibus.client.client import Client
from unibus.errors import AccessRefused, AnswerInvalid, OutcomeUnknown, ServerError, ServerUnavailable
from unibus.stores.seam.pending import Pending, resolved

CLOSE_S = 1.0


def position_of(client: Client, name: str) -> int:
    return client.get("position", PositionRecord, {"name": name}).position


class ServerTarget:
    """See `bus.history.import_.ImportTarget`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = ""

    def position(self, name: str) -> int:
        self._name = name
        return position_of(self._client, name)

    def declare(self, lines: list[EntityLine]) -> None:
        self._sent("entities", lines, 0, 0)

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        self._sent("messages", lines, before, len(lines))

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        return not self._sent("state", [line], before, 1).is_kept

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        self._sent("end", lines, before, 1)

    def _sent(
        self, phase: Literal["entities", "messages", "state", "end"], lines: Sequence[Line], before: int, steps: int
    ) -> ImportAnswer:
        request = ImportRequest(phase, [msgspec.Raw(encode_line(line)) for line in lines], before)
        try:
            # Declaring entities again with the same settings changes nothing, so that request may be repeated.
            is_safe = not steps
            return self._client.post("import", ImportAnswer, request, {"name": self._name}, is_safe=is_safe)
        except OutcomeUnknown:
            if position_of(self._client, self._name) == before + steps:
                return ImportAnswer(before + steps)
            raise


class ServerRelay:
    """See `bus.outbox.relay_route.RelayTarget`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def has_stopped(self) -> bool:
        return False  # The server opens its store again by itself.

    def position(self, name: str) -> int:
        return position_of(self._client, name)

    def advance(self, name: str, before: int, to: int, row: OutboxRow | None) -> Pending[list[object]]:
        source = name.removeprefix(position_name(""))
        batch = None if row is None else base64.b64encode(row.batch).decode("ascii")
        request = RelayRequest(source, before, to, batch, 0 if row is None else row.crc)
        try:
            # Safe to repeat: the second request finds that the position has moved.
            found = self._client.post("relay", RelayAnswer, request, is_safe=True)
        except (AnswerInvalid, ServerError, AccessRefused) as error:
            # None of these errors is about the row itself. Raised as they are, they would set the row aside as refused.
            raise ServerUnavailable(error.what, error.hint) from error
        return resolved(list[object](found.results))


@contextlib.contextmanager
def relaying(client: Client, file: str) -> Iterator[RelayCall]:
    address = file_of_outbox(file)
    relay = Relay(ServerRelay(client))
    try:
        yield lambda again, adopt: relay.relay(address, lambda: SqliteTable(address), again, adopt)
    finally:
        relay.close(CLOSE_S)
        client.close()
