"""The server's documents: the OpenAPI document, the page that shows it, and the CA certificate.

They are operations of the table, so they are authorized like all others.
"""

import asyncio
import re
from typing import Final

from unibus.endpoints.http.monitoring.docs_page import HEADERS, docs_page
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\s*")


async def openapi(service: Service, request: Request) -> Response:
    # In a thread: FastAPI takes hundreds of milliseconds to build the document, and must not block the loop.
    return json_response(await asyncio.to_thread(service.document))


async def docs(service: Service, request: Request) -> Response:
    base_url = f"{request.base_url}{request.root}"
    page = await asyncio.to_thread(lambda: docs_page(service.document(), base_url))
    return Response(200, page, "text/html; charset=utf-8", list(HEADERS))


async def certificate(service: Service, request: Request) -> Response:
    """The CA certificate that clients have to trust. Only certificates are served, whatever else the file contains."""
    path = service.settings.ca_path
    try:
        data = b"" if path is None else await asyncio.to_thread(path.read_bytes)
    except OSError:
        data = b""
    found = b"".join(_CERTIFICATE.findall(data))
    if not found:
        raise EntityNotFound(
            "this server has no CA certificate to download", "it has no TLS, or a certificate of another CA"
        )
    return Response(200, found, "application/x-pem-file")
