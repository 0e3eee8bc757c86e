"""What is set: declared entities, rules of subscriptions, authorization rules."""

from typing import Final

from unibus.endpoints.http.operation import Operation

SETTINGS: Final[tuple[Operation, ...]] = ()
