"""The part of the envelope that most messages in process never need.

It is made when the first of its fields is set, and shared by the copies of a message. Treat it as read-only
once its message is published: change a message with its `with_…` builders, which make a new one.
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
    """A whole number in a header that is 32 bits wide, for doors (AMQP) whose peers tell the widths apart.

    It is an int in every other respect; a plain int travels as 64 bits.
    """

    def __new__(cls, value: int = 0) -> "Int32":
        if not -(2**31) <= value < 2**31:
            raise HeaderInvalid(f"{value} is beyond 32 bits", "use a plain int")
        return int.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Int32({int(self)})"


# Text fields, in the order in which every encoding writes them.
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


# Acyclic like Message: header values are scalars, so nothing here can lead back to it.
@final
@mypyc_attr(acyclic=True, free_list_len=1)
class MessageProperties:
    """Absent text is None, absent times are 0. `ttl_ns` counts from the message's timestamp.

    The mappings given become its own, uncopied and unchecked: `fields.py` checks what comes from outside.
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
        self.headers: dict[str, HeaderValue] = {} if headers is None else headers
        self.trace: dict[str, str] = {} if trace is None else trace
        # The headers that are known to be plain, and how many they were: see `trust_headers`.
        self._plain: dict[str, HeaderValue] | None = None
        self._plain_count: i64 = 0

    def trust_headers(self) -> None:
        """Remember that each value is text, a bool, int (no Int32), float or None, so that no encoder looks again.

        Other headers, or one more or less, are not trusted. A value replaced in place is not noticed.
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
        """Every field in one fixed order, for comparison."""
        texts = tuple([getattr(self, name) for name in TEXT_FIELDS])
        return (*texts, self.ttl_ns, self.scheduled_at_ns, self.headers, self.trace)


NO_HEADERS: Final[Mapping[str, HeaderValue]] = {}
NO_TRACE: Final[Mapping[str, str]] = {}
