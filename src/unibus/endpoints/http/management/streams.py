"""Long answers, piece by piece: each piece is made in a thread when the client has taken most of those before."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from unibus.endpoints.error_body import JSON

JSON_TYPE: Final = f"{JSON}; charset=utf-8"


async def drawn(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The pieces of an iterator that takes time for each."""
    while True:
        piece = await asyncio.to_thread(next, pieces, None)
        if piece is None:
            return
        yield piece
