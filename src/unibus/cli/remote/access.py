"""Authorization rules of a server. It returns new keys when the request asks for them, and never existing ones."""

from typing import TYPE_CHECKING

from unibus.bus.management.settings.access import AccessPage, AccessRule, AddRequest, RemoveRuleRequest, RotateRequest
from unibus.client.client import Client
from unibus.errors import StoreBusy

if TYPE_CHECKING:
    from unibus.core.access.rules import AuthorizationRule


class RemoteAccess:
    """See `management.AccessRules`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, entity: str) -> list[AccessRule]:
        found: list[AccessRule] = []
        after: str | None = None
        while True:
            page = self._client.get("access", AccessPage, {"entity": entity or None, "after": after})
            found += page.rules
            if page.next is None:
                return found
            after = page.next

    def add(self, entity: str, request: AddRequest) -> AccessRule:
        return self._changed("add", entity, request)

    def rotate(self, entity: str, request: RotateRequest) -> AccessRule:
        return self._changed("rotate", entity, request)

    def remove(self, entity: str, name: str) -> AccessRule:
        return self._changed("remove", entity, RemoveRuleRequest(name))

    def _changed(self, verb: str, entity: str, request: object) -> AccessRule:
        return self._client.post(f"access/{verb}", AccessRule, request, {"entity": entity or None})

    def with_keys(self, entity: str, name: str) -> "AuthorizationRule":
        address = str(self._client.address)
        raise StoreBusy(f"the server {address} does not return the keys of its rules", "", address)
