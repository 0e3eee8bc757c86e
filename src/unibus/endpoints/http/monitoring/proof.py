"""The proof that a server knows the key of its `FILE.serve.json`, for a command that has read that file.

It needs no token: a command must not send one before it has identified the server. The answer is a signature over a
nonce of hexadecimal digits, and a token is a signature over a text with a line break, so neither can be used as the
other.
"""

import re
from typing import Final

from unibus.config.server_file import proof_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound, UsageError

_NONCE: Final = re.compile("[0-9a-f]{32,128}")


async def proof(service: Service, request: Request) -> Response:
    key = service.settings.local_key
    if not key:
        raise EntityNotFound(
            "this server has no key for local commands", "only a server whose store is a file has FILE.serve.json"
        )
    nonce = request.query.get("nonce", "")
    if _NONCE.fullmatch(nonce) is None:
        raise UsageError(
            "nonce is not 32 to 128 lower-case hexadecimal digits", "generate a new random one for each request"
        )
    return json_response({"proof": proof_of(key, nonce)}, headers=[("Cache-Control", "no-store")])
