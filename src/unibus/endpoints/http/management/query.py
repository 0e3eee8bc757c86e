"""Parses values of a request's query; an error names the parameter."""

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from unibus.endpoints.http.request import Request
from unibus.endpoints.http.runner import while_connected
from unibus.errors import UsageError

T = TypeVar("T")
WHOLE_MAX: Final = 2**63 - 1


def whole(request: Request, name: str, default: int, least: int = 0, most: int = WHOLE_MAX) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise UsageError(f"{name} must be a whole number from {least} to {most}, got {text!r:.40}")
    return int(text)


def flag(request: Request, name: str) -> bool:
    text = request.query.get(name, "0")
    if text not in ("0", "1"):
        raise UsageError(f"{name} must be 0 or 1, got {text!r:.40}")
    return text == "1"


async def in_thread(request: Request, work: Callable[[], T], stop: threading.Event) -> T:
    """Run blocking work. When the client disconnects `stop` is set, which the work checks."""
    try:
        return await while_connected(request, asyncio.to_thread(work))
    finally:
        stop.set()
