"""Scheduled messages: sent with ScheduledEnqueueTimeUtc, cancelled by DELETE {entity}/$scheduled/{sequence}."""

from unibus.endpoints.http.messages.query_values import whole_number
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service


async def cancel_scheduled(service: Service, request: Request) -> Response:
    """404 if the message is not scheduled, or not any more."""
    await service.broker.cancel(request.entity, [whole_number("the sequence", request.params["sequence"])])
    return Response(200)
