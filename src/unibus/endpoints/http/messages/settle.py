"""Settle: {entity}/messages/{id}/{token}. The token proves the lock; id and entity have to match it.

    DELETE                      complete                 POST …/complete
    PUT                         abandon                  PUT or POST …/abandon
    POST                        renew                    POST …/renewlock, which answers LockedUntilUtc as JSON
    PUT or POST …/deadletter    ?reason=&description=    PUT or POST …/defer

`id` is the MessageId or the SequenceNumber. If it is not that of the locked message the answer is 404, and the lock
stays; for an expired lock it is 410. A JSON body may have `reason`, `description`, and `properties`, which override
custom properties of the message.
"""

from typing import Final

import msgspec

from unibus.core.envelope.fields import checked_headers
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from unibus.endpoints.http.dates import http_date, iso_date
from unibus.endpoints.http.messages.broker_properties import HEADER, header_text
from unibus.endpoints.http.messages.lock_tokens import token_bytes
from unibus.endpoints.http.messages.property_headers import check_size, properties_of_json
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service


class Settlement(msgspec.Struct):
    """The body of a settlement. Every field is optional."""

    reason: str = ""
    description: str = ""
    properties: dict[str, object] | None = None


class TokenOnly(msgspec.Struct):
    lock_token: str


_settlement: Final = msgspec.json.Decoder(Settlement).decode
_token_only: Final = msgspec.json.Decoder(TokenOnly).decode


async def complete(service: Service, request: Request) -> Response:
    params = request.params
    token = token_bytes(params["token"])
    await service.broker.settle(COMPLETE, token, entity=request.entity, message_id=params["message"])
    return Response(200)


async def complete_by_token(service: Service, request: Request) -> Response:
    """POST messages/complete with {"lock_token"}, in the form of another emulator."""
    token = token_bytes(request.json_as(_token_only).lock_token)
    await service.broker.settle(COMPLETE, token, entity=request.entity)
    return Response(200)


async def abandon(service: Service, request: Request) -> Response:
    return await _settle(service, request, ABANDON)


async def defer(service: Service, request: Request) -> Response:
    return await _settle(service, request, DEFER)


async def dead_letter(service: Service, request: Request) -> Response:
    return await _settle(service, request, DEAD_LETTER)


async def _settle(service: Service, request: Request, verb: int) -> Response:
    params = request.params
    token = token_bytes(params["token"])
    given = request.json_as(_settlement) if request.body.strip() else Settlement()
    query = request.query if request.scope.get("query_string") else {}
    await service.broker.settle(
        verb,
        token,
        entity=request.entity,
        message_id=params["message"],
        reason=query.get("reason") or given.reason,
        description=query.get("description") or given.description,
        properties=_properties(given),
    )
    return Response(200)


def _properties(given: Settlement) -> dict[str, HeaderValue] | None:
    if not given.properties:
        return None
    properties = checked_headers(properties_of_json(given.properties, "properties"))
    check_size({"headers": properties})
    return properties


async def renew(service: Service, request: Request) -> Response:
    until_ns = await _renewed(service, request)
    return Response(200, b"", "", [(HEADER, header_text({"LockedUntilUtc": http_date(until_ns)}))])


async def renew_lock(service: Service, request: Request) -> Response:
    until_ns = await _renewed(service, request)
    return json_response({"LockedUntilUtc": iso_date(until_ns)})


async def _renewed(service: Service, request: Request) -> int:
    params = request.params
    token = token_bytes(params["token"])
    return await service.broker.renew(token, entity=request.entity, message_id=params["message"])
