"""The properties: the optional fields of the envelope, which most messages in memory never need.

They are created when the first of them is set, and all copies of a message share them. Treat them as read-only once the
message is published: change a message with its `with_…` builders, which return a new one.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias, final
from uuid import UUID

from mypy_extensions import i64, mypyc_attr

from unibus.errors import HeaderInvalid

HeaderValue: TypeAlias = bool | int | float | Decimal | str | bytes | UUID | datetime | timedelta | None


@mypyc_attr(native_class=False)
class Int32(int):
    """A whole number of 32 bits in a header, for protocols (AMQP) that distinguish integer widths.

    It is an int in every other respect; a plain int is encoded with 64 bits.
    """

    def __new__(cls, value: int = 0) -> "Int32":
        if not -(2**31) <= value < 2**31:
            raise HeaderInvalid(f"the value {value} of an Int32 does not fit into 32 bits", "use a plain int")
        return int.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Int32({int(self)})"


# The text properties, in the order in which every encoding writes them. Only append: the order is on disk.
TEXT_FIELDS: Final[tuple[str, ...]] = (
    "type",
    "subject",
    "content_type",
    "correlation_id",
    "reply_to",
    "reply_to_session_id",
    "to",
    "source",
    "target",
    "session_id",
    "partition_key",
    "routing_key",
    "dedup_key",
    "traceparent",
    "tracestate",
    "tx_id",
    "backend_id",
)


# Acyclic like Message: header values are scalars, so nothing here can refer back to it.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class MessageProperties:
    """Absent text is None, absent times are 0. `ttl_ns` counts from the message's timestamp.

    The given mappings are used without a copy and without a check: `fields.py` checks what comes from a caller.
    """

    def __init__(self, headers: dict[str, HeaderValue] | None = None, trace: dict[str, str] | None = None) -> None:
        self.type: str | None = None
        self.subject: str | None = None
        self.content_type: str | None = None
        self.correlation_id: str | None = None
        self.reply_to: str | None = None
        self.reply_to_session_id: str | None = None
        self.to: str | None = None
        self.source: str | None = None
        self.target: str | None = None
        self.session_id: str | None = None
        self.partition_key: str | None = None
        self.routing_key: str | None = None
        self.dedup_key: str | None = None
        self.traceparent: str | None = None
        self.tracestate: str | None = None
        self.tx_id: str | None = None
        self.backend_id: str | None = None
        self.ttl_ns: i64 = 0
        self.scheduled_at_ns: i64 = 0
        self.locked_until_ns: i64 = 0  # Of a peeked message; no part of what is sent and stored.
        self.headers: dict[str, HeaderValue] = {} if headers is None else headers
        self.trace: dict[str, str] = {} if trace is None else trace
        # The headers that are known to be plain, and their number then: see `trust_headers`.
        self._plain: dict[str, HeaderValue] | None = None
        self._plain_count: i64 = 0

    def trust_headers(self) -> None:
        """Remember that each value is text, a bool, int (not Int32), float or None, so that no encoder checks again.

        Another mapping, or another number of headers, is not trusted. A value that is replaced in place is not
        detected.
        """
        self._plain = self.headers
        self._plain_count = len(self.headers)

    def trusts_headers(self) -> bool:
        return self._plain is self.headers and self._plain_count == len(self.headers)

    def copy(self) -> "MessageProperties":
        other = MessageProperties(self.headers.copy(), self.trace.copy())
        for name in TEXT_FIELDS:
            setattr(other, name, getattr(self, name))
        other.ttl_ns = self.ttl_ns
        other.scheduled_at_ns = self.scheduled_at_ns
        if self.trusts_headers():
            other.trust_headers()
        return other

    def as_tuple(self) -> tuple[object, ...]:
        """Every property in one fixed order, for comparison."""
        texts = tuple([getattr(self, name) for name in TEXT_FIELDS])
        return (*texts, self.ttl_ns, self.scheduled_at_ns, self.headers, self.trace)


NO_HEADERS: Final[Mapping[str, HeaderValue]] = {}
NO_TRACE: Final[Mapping[str, str]] = {}
