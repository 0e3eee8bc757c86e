"""GET export?queue=…: a whole bus, or some of its queues, as JSON lines. A disconnect of the client ends it."""

from collections.abc import AsyncGenerator
from typing import Final

from unibus.bus.management.messages.exports import Exports
from unibus.endpoints.http.management.forms import values_of
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError

LINES: Final = "application/x-ndjson"
NAMES_MAX: Final = 1_000


async def export_store(service: Service, request: Request) -> Response:
    names = values_of(request, "queue")
    if len(names) > NAMES_MAX or "" in names:
        raise UsageError(
            f"queue= is empty, or given more than {NAMES_MAX} times", f"add ?queue=NAME, up to {NAMES_MAX} times"
        )
    beginning = service.shared(Exports).stream(names)
    stream = await while_connected(request, beginning, _close)
    return Response(content_type=LINES, stream=stream)


async def _close(stream: AsyncGenerator[bytes, None]) -> None:
    await stream.aclose()
