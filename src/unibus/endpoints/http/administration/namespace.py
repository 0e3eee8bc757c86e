"""The description of the namespace: a server has one, with the features of Azure's premium tier."""

from typing import Final

from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import EntityDescription
from unibus.endpoints.http.administration.answers import namespace_name, namespace_response
from unibus.endpoints.http.administration.times import time_text
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.service import Service

_TIER: Final = "Premium"
"""In Azure only this tier has messages of 100 MB and a size limit for each entity."""


async def get_namespace(service: Service, request: Request) -> Response:
    """The name is a setting, else the host that the client called. A store does not record when it was created, so the
    creation time of its oldest entity is used."""
    name = service.settings.namespace or namespace_name(request)
    created_ns = service.created_ns
    updated_ns = service.broker.namespace_updated_ns()
    values = {
        "CreatedTime": time_text(created_ns),
        "MessagingSKU": _TIER,
        "MessagingUnits": "1",
        "ModifiedTime": time_text(updated_ns or created_ns),
        "Name": name,
        "NamespaceType": "Messaging",
    }
    return namespace_response(request, name, EntityDescription(schema.NAMESPACE, values))
