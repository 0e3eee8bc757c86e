"""The reset operation for tests: deletes every entity. Forbidden unless the setting `allow_reset` is on.

The authorization rules of the namespace stay, so that a client does not lock itself out.
"""

from typing import Final

from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound, Forbidden

_PAGE: Final = 100


async def reset(service: Service, request: Request) -> Response:
    if not service.settings.allow_reset:
        raise Forbidden("reset is switched off on this server", "start it with --allow-reset")
    deleted = 0
    # Subscriptions and dead-letter queues are deleted with what they belong to.
    for kind in ("topic", "queue"):
        while page := await service.broker.entities(kind, None, 0, _PAGE):
            for info in page:
                try:
                    await service.broker.delete(info.name)
                    deleted += 1
                except EntityNotFound:
                    continue  # Another client has deleted it meanwhile.
    return json_response({"deleted": deleted})
