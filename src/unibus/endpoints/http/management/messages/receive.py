"""POST messages/receive, messages/settle, messages/renew: many messages in one call.

If the client disconnects before it is answered, the locks that were taken for it are released.
"""

from typing import Final

import msgspec

from unibus.bus.api.broker import Claimed
from unibus.bus.management.messages.receiving import (
    ReceiveRequest,
    RenewRequest,
    SettleRequest,
    receive,
    received_records,
    release,
    renew,
    settle,
)
from unibus.endpoints.http.management.forms import body_as, entity_of
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.runner import while_connected
from unibus.endpoints.http.service import Service

_receiving: Final = msgspec.json.Decoder(ReceiveRequest).decode
_settling: Final = msgspec.json.Decoder(SettleRequest).decode
_renewing: Final = msgspec.json.Decoder(RenewRequest).decode


async def receive_messages(service: Service, request: Request) -> Response:
    broker = service.broker
    given = request.json_as(_receiving)

    async def undo(claimed: list[Claimed]) -> None:
        await release(broker, claimed)

    claiming = receive(broker, entity_of(request), given, service.interrupted)
    claimed = await while_connected(request, claiming, undo)
    try:
        return json_response(await received_records(claimed))
    except BaseException:
        await release(broker, claimed)  # The client does not get them.
        raise


async def settle_messages(service: Service, request: Request) -> Response:
    given = await body_as(request, _settling)
    return json_response(await settle(service.broker, entity_of(request), given))


async def renew_messages(service: Service, request: Request) -> Response:
    given = await body_as(request, _renewing)
    return json_response(await renew(service.broker, entity_of(request), given))
