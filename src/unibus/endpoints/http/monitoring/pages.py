"""The server's own documents: the OpenAPI description, two readers of it, and the CA certificate.

The pages load their scripts from a public network; the description itself needs nothing but this server. They are
operations of the table, so that access to them is decided like any other.
"""

import asyncio
import re
from typing import Final

from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html

from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound

_TITLE: Final = "unibus"
_DOCUMENT: Final = "openapi.json"
"""Relative, so that it is found below any prefix that the application is mounted at."""

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\s*")


async def openapi(service: Service, request: Request) -> Response:
    # FastAPI needs hundreds of milliseconds for the first one, in which nothing else would be served.
    return json_response(await asyncio.to_thread(service.document))


async def docs(service: Service, request: Request) -> Response:
    page = get_swagger_ui_html(openapi_url=_DOCUMENT, title=_TITLE)
    return Response(200, bytes(page.body), "text/html; charset=utf-8")


async def redoc(service: Service, request: Request) -> Response:
    page = get_redoc_html(openapi_url=_DOCUMENT, title=_TITLE)
    return Response(200, bytes(page.body), "text/html; charset=utf-8")


async def certificate(service: Service, request: Request) -> Response:
    """What a client has to trust. Only certificates leave the file, whatever else is in it."""
    path = service.settings.ca_path
    try:
        data = b"" if path is None else await asyncio.to_thread(path.read_bytes)
    except OSError:
        data = b""
    found = b"".join(_CERTIFICATE.findall(data))
    if not found:
        raise EntityNotFound("this server has no CA certificate", "it has none, or one of another CA")
    return Response(200, found, "application/x-pem-file")
