"""Lock tokens as text: the UUID whose little-endian bytes are the token.

AMQP sends the same 16 bytes as the delivery tag, and Azure's clients show them in this form, so a message that was
received over one protocol can be settled over another.
"""

from uuid import UUID

from unibus.errors import UsageError


def token_text(token: bytes) -> str:
    """The same as str(UUID(bytes_le=token)), at a third of its cost."""
    return f"{token[3::-1].hex()}-{token[5:3:-1].hex()}-{token[7:5:-1].hex()}-{token[8:10].hex()}-{token[10:16].hex()}"


def token_bytes(text: str) -> bytes:
    """Parse any form of a UUID. UsageError (400) for other text, not LockLost (410): no lock ever had such a token."""
    try:
        return UUID(text).bytes_le
    except ValueError as error:
        raise UsageError(f"{text!r:.60} is not a lock token", "send LockToken as it was received, a UUID") from error
