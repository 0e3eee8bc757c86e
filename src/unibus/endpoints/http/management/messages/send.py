"""POST messages/send: a list of messages, all or none.

With `create=true` a missing queue is created, which also needs the right Manage on the namespace.
"""

from typing import Final

import msgspec

from unibus.bus.management.messages.sending import SendRequest, send
from unibus.core.access.rights import Right
from unibus.endpoints.http.management.forms import body_as, entity_of, flag_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service

_decode: Final = msgspec.json.Decoder(SendRequest).decode


async def send_messages(service: Service, request: Request) -> Response:
    entity = entity_of(request)
    creates = flag_of(request, "create")
    if creates:
        service.authorization.check(request, Right.MANAGE, "")
    given = await body_as(request, _decode)
    return json_response(await send(service.broker, entity, given, creates))
