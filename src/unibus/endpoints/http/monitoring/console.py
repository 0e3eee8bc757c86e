"""The console, the web page of the server at `/`: static files of `unibus/console`, without a build step.

The page reads everything from the management API, with the rights of the signed-in user. Its files contain nothing of
the server and need no key; the page itself needs one, so that a browser offers to sign in. The Content-Security-Policy
allows scripts, styles and connections of this server only, and no inline script.
"""

import asyncio
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from unibus.endpoints.http.operation import Handler
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service

HTML: Final = "text/html"
PAGE: Final = "index.html"
STATIC: Final = {
    "favicon.svg": "image/svg+xml",
    "format.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "main.js": "text/javascript; charset=utf-8",
    "spark.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "table.js": "text/javascript; charset=utf-8",
}
"""The files of the page, with their content types. No other file is served."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


_ADDRESSES: Final = (
    ("/", "the page of this server, in a browser"),
    ("/docs", "every operation, with its path"),
    ("/health", "whether it works"),
    ("/{queue}/messages", "POST sends a message; `unibus access token` prints the header Authorization"),
    ("/unibus/v1/", "the management API, which the command `unibus` uses"),
)


async def page(service: Service, request: Request) -> Response:
    text = (await asyncio.to_thread(_file, PAGE)).decode()
    body = text.replace("{root}", escape(request.root, quote=True)).encode()
    return Response(200, body, f"{HTML}; charset=utf-8", [*_HEADERS, ("Cache-Control", "no-store")])


def addresses(request: Request) -> Response:
    """For a client that does not ask for HTML, such as curl: where to continue. Needs no key, and shows nothing."""
    lines = [f"{request.root}{path:<18} {what}" for path, what in _ADDRESSES]
    text = "\n".join(["This is a unibus server.", "", *lines, ""])
    return Response(200, text.encode(), "text/plain; charset=utf-8", list(_HEADERS))


def static(name: str) -> Handler:
    async def serve(service: Service, request: Request) -> Response:
        body = await asyncio.to_thread(_file, name)
        return Response(200, body, STATIC[name], [*_HEADERS, ("Cache-Control", "no-cache")])

    return serve


@cache
def _file(name: str) -> bytes:
    return (files("unibus") / "console" / name).read_bytes()
