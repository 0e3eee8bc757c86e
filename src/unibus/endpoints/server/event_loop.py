"""The event loop of a server: uvloop where it is installed, else asyncio's own."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows, and interpreters other than CPython: the extra leaves it out there.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
