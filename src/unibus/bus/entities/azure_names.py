"""The names that Azure Service Bus uses for our settings: for the emulator's file and for the administration API.

A setting has its Azure name in its row (core/lifecycle/state/settings.py).
"""

from typing import Final

from unibus.core.lifecycle.state.setting_types import SECONDS
from unibus.core.lifecycle.state.settings import SETTINGS

TIMES: Final = frozenset([row.name for row in SETTINGS.values() if row.type == SECONDS])
"""Settings that are durations: ISO 8601 in Azure, seconds in unibus."""

PROPERTIES: Final[dict[str, str]] = {row.azure: row.name for row in SETTINGS.values() if row.azure}

STATUSES: Final[dict[str, str]] = {
    "Active": "active",
    "Disabled": "disabled",
    "SendDisabled": "send_disabled",
    "ReceiveDisabled": "receive_disabled",
}

CORRELATION: Final[dict[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
"""System properties of a correlation filter."""
