"""Long answers, piece by piece: each is produced in a thread when the client has read most of the former ones."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from unibus.endpoints.error_body import JSON

JSON_TYPE: Final = f"{JSON}; charset=utf-8"


async def drawn(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The pieces of a blocking iterator, each taken in a thread."""
    while True:
        piece = await asyncio.to_thread(next, pieces, None)
        if piece is None:
            return
        yield piece
