"""The reset call for tests: every entity is deleted. Switched off unless the server was started for it.

Rules of access stay, so that a client that resets does not lock itself out.
"""

from typing import Final

from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound, Forbidden

_PAGE: Final = 100


async def reset(service: Service, request: Request) -> Response:
    if not service.settings.allow_reset:
        raise Forbidden("this server does not allow to delete everything", "start it with --allow-reset")
    deleted = 0
    # Subscriptions and dead-letter queues are deleted with what they belong to.
    for kind in ("topic", "queue"):
        while page := await service.broker.entities(kind, None, 0, _PAGE):
            for info in page:
                try:
                    await service.broker.delete(info.name)
                    deleted += 1
                except EntityNotFound:
                    continue  # Another client was quicker.
    return json_response({"deleted": deleted})
