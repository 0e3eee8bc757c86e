"""Every error that unibus raises on purpose, in one tree.

Errors are part of the interface: each has a stable `code` that programs may match, says whether the same
call may succeed later (`retryable`), and carries a `hint` that tells a person what to do about it.
An error from `publish` means that nothing was delivered and nothing will be; publish errors are also
`RuntimeError`s, as the first users of this interface expect.
"""


class BusError(Exception):
    """The root of the tree. `str()` gives what happened, followed by the hint."""

    code: str = "bus_error"
    retryable: bool = False

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what if not hint else f"{what} ({hint})")
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the joined text, and repeat the hint.
        return (type(self), (self.what, self.hint), self.__dict__)


class UsageError(BusError, ValueError):
    """The call itself is wrong; repeating it cannot help."""

    code = "usage"


class NameInvalid(UsageError):
    code = "name_invalid"


class PriorityInvalid(UsageError):
    """A priority outside 0–255, or not a whole number."""

    code = "priority_invalid"


class ConfigInvalid(UsageError):
    """A setting that is unknown or out of its range, for instance an unknown drop_policy."""

    code = "config_invalid"


class HandlerInvalid(UsageError, TypeError):
    """A handler that cannot be called, or whose parameters cannot be filled."""

    code = "handler_invalid"


class HeaderInvalid(UsageError):
    """A header whose name or value no encoding can carry."""

    code = "header_invalid"


class FilterInvalid(UsageError):
    """A filter or rule action that is not in the language. `position` counts characters from 0."""

    code = "filter_invalid"

    def __init__(self, what: str, hint: str = "", position: int = 0) -> None:
        super().__init__(what, hint)
        self.position = position


class EvaluationError(BusError):
    """A filter or rule action that has no result for this message: a division by zero, a number beyond its type."""

    code = "evaluation_error"


class SubscriptionLimit(BusError):
    """One peer holds as many patterns as a peer may."""

    code = "subscription_limit"


class ChannelExists(BusError):
    """`create_channel` for a name that exists with other settings, or differs from one only by case."""

    code = "channel_exists"


class StoreUnavailable(BusError):
    """The store that the URL names is not built into this version, or cannot be opened."""

    code = "store_unavailable"


class BusClosed(BusError, RuntimeError):
    code = "bus_closed"


class BusForked(BusError, RuntimeError):
    """The bus was opened by the parent of this process and is the parent's alone. Nothing was done."""

    code = "bus_forked"


class LoopMismatch(BusError, RuntimeError):
    """A call that would block the very event loop it is waiting for."""

    code = "loop_mismatch"


class RequestTimeout(BusError, TimeoutError):
    """No reply arrived in time. The request may still be handled later."""

    code = "request_timeout"
    retryable = True


class RequestFailed(BusError, RuntimeError):
    """The handler of a request raised until its attempts were used up; the request is a dead letter now."""

    code = "request_failed"


class PublishError(BusError, RuntimeError):
    """The message was not accepted and will never be delivered."""

    code = "publish_error"


class QueueFull(PublishError):
    """No room under the channel's `max_queue_size`. `item` is what was refused, given back to the caller."""

    code = "queue_full"
    retryable = True

    def __init__(self, what: str, hint: str = "", item: object = None) -> None:
        super().__init__(what, hint)
        self.item = item


class RateLimited(PublishError):
    """The channel's token bucket is empty. `retry_after_s` tells when one token will be there."""

    code = "rate_limited"
    retryable = True

    def __init__(self, what: str, hint: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(what, hint)
        self.retry_after_s = retry_after_s


class ChannelNotFound(PublishError, LookupError):
    """With `strict=True` nothing is made on the fly; the channel has to be created first."""

    code = "channel_not_found"


class MessageTooLarge(PublishError):
    code = "message_too_large"


class SerializationFailed(PublishError):
    """The payload cannot be written in the encoding that was asked for."""

    code = "serialization_failed"


class DuplicateMessage(PublishError):
    """The same id or dedup key was accepted within the window, and the caller asked for an error."""

    code = "duplicate_message"


class DecodeError(BusError, ValueError):
    """Bytes from outside that are no message of ours. Nothing was changed by reading them."""

    code = "decode_error"


class CloudEventInvalid(DecodeError):
    """What came as a CloudEvent is none, or none of version 1.0. Nothing was changed by reading it."""

    code = "cloudevent_invalid"


class AtomInvalid(DecodeError):
    """An administration document that is no XML, or not the Atom entry of a queue, topic, subscription or rule.

    `line` and `column` count from 1; 0 where the document as a whole is meant. Nothing was changed by reading it.
    """

    code = "atom_invalid"

    def __init__(self, what: str, hint: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(what, hint)
        self.line = line
        self.column = column


class ExtraMissing(BusError, ImportError):
    """A feature that needs a package which is not installed. The hint names the extra that brings it."""

    code = "extra_missing"


class PayloadMismatch(BusError, TypeError):
    """The payload does not fit the type that the handler's annotation asks for."""

    code = "payload_mismatch"


# Durable entities


class EntityNotFound(PublishError, LookupError):
    """No queue, topic or subscription of that name. Nothing was changed."""

    code = "entity_not_found"


class EntityExists(BusError):
    """The name is taken, by an entity of another kind or with other settings."""

    code = "entity_exists"


class EntityDisabled(PublishError):
    """Somebody has set the status of the entity so that nobody sends to it, or nobody receives. Nothing was changed."""

    code = "entity_disabled"


class QuotaExceeded(PublishError):
    """The entity holds as many messages or bytes as its settings allow. Nothing was stored."""

    code = "quota_exceeded"
    retryable = True


class SessionRequired(PublishError):
    """The entity works by sessions: the message needs a session id, the receiver an accepted session."""

    code = "session_required"


class SessionNotAllowed(BusError):
    """A session was asked of an entity that has none."""

    code = "session_not_allowed"


class SessionLocked(BusError):
    """Another receiver holds the session."""

    code = "session_locked"
    retryable = True


class SessionNotFound(BusError, LookupError):
    """No session with messages is free, or none came within the time-out."""

    code = "session_not_found"
    retryable = True


class LockLost(BusError):
    """The lock has ended, or was never this one: the message may be with somebody else. Nothing was changed."""

    code = "lock_lost"


class SessionLockLost(LockLost):
    """The same for the lock on a session."""

    code = "session_lock_lost"


class MessageNotFound(BusError, LookupError):
    """The entity has no such message in the state that the call needs."""

    code = "message_not_found"


class PositionMoved(BusError):
    """A named position does not stand where the caller believes. The batch was refused: it has had its effect before,
    or somebody else does the same work."""

    code = "position_moved"


class TransactionInvalid(BusError, RuntimeError):
    """The transaction is over, or cannot hold what it was given."""

    code = "transaction_invalid"


class JobNotFound(BusError, LookupError):
    """No job of a server has that number; it may have ended so long ago that it is no longer listed."""

    code = "job_not_found"


class JobEnded(BusError):
    """The job is done or cancelled, and never changes again. Nothing was changed."""

    code = "job_ended"


class QueryInvalid(UsageError):
    """SQL that is no query over messages: a mistake in it, or something other than reading. Nothing was run."""

    code = "query_invalid"


class QueryStopped(BusError):
    """A query that reached one of its limits: time, memory, or the size of a value."""

    code = "query_stopped"


# Access


class AccessRefused(BusError):
    """The family of both: nothing was done. The text never tells which rules, keys or entities there are."""

    code = "access_refused"


class Unauthorised(AccessRefused):
    """Nobody vouches for the caller: no token, a broken, forged or expired one, or a rule that does not hold here."""

    code = "unauthorised"


class Forbidden(AccessRefused):
    """The token is genuine, and does not grant this right on this entity."""

    code = "forbidden"


# Stores


class StoreBusy(StoreUnavailable):
    """Another process owns the store, or this one has it open already. The message names it, and so does `holder`."""

    code = "store_busy"
    retryable = True

    def __init__(self, what: str, hint: str = "", holder: str = "") -> None:
        super().__init__(what, hint)
        self.holder = holder


class StoreVersion(StoreUnavailable):
    """A newer version of unibus wrote the store; this one leaves it alone."""

    code = "store_version"


DAMAGED_HINT = (
    "`unibus check` shows what is wrong, `unibus repair` saves what it can; nothing that may be wrong was served"
)


class StoreDamaged(StoreUnavailable):
    """What was read is not what was written. It is named, and never served."""

    code = "store_damaged"


class StoreFull(PublishError):
    """The disk of the store is full. Nothing of the call was stored; what is stored can still be received."""

    code = "store_full"
    retryable = True


class StoreFailed(BusError, OSError):
    """The store could not write. Whether the last calls took effect is unknown until it has been opened again."""

    code = "store_failed"


# Servers


class PortUnavailable(BusError, OSError):
    """The address that a server should listen on is taken, not allowed, or not of this machine. Nothing was started."""

    code = "port_unavailable"


class ServerUnavailable(StoreUnavailable):
    """A server that cannot be reached, or that gave no answer. Nothing was changed by the call."""

    code = "server_unavailable"
    retryable = True


class ServerError(BusError):
    """A server refused with a code that this version does not know, or failed by itself."""

    code = "server_error"


class AnswerInvalid(BusError):
    """What came back is no answer of a unibus server, or not a whole one. Nothing of it was used."""

    code = "answer_invalid"


class OutcomeUnknown(BusError):
    """A server has the request, and its answer was lost: whether it was carried out is not known."""

    code = "outcome_unknown"


# Capture


class CaptureBusy(BusError):
    """Another process captures into the directory. Nothing was changed."""

    code = "capture_busy"
    retryable = True


class CaptureMismatch(BusError):
    """The store is not the one whose history the directory holds. Nothing was written."""

    code = "capture_mismatch"


class CaptureDamaged(BusError):
    """A capture directory is not what was written: its manifest, or a segment. It is named, and never served.

    `reason` is one word for programs: missing, size, crc, unreadable, schema or manifest.
    """

    code = "capture_damaged"

    def __init__(self, what: str, hint: str = "", reason: str = "manifest") -> None:
        super().__init__(what, hint)
        self.reason = reason


class DomainTaken(UsageError):
    """Two sources of one lake have the same domain: their messages could not be told apart."""

    code = "domain_taken"


# Pipeline


class LakeError(BusError):
    """The family of what can go wrong with a lake. What was committed stays as it was."""

    code = "lake_error"


class LakeBusy(LakeError):
    """Another process works on the lake. The message names it; nothing was changed."""

    code = "lake_busy"
    retryable = True


class LakeMismatch(LakeError):
    """A source holds less than the lake has read of its domain: it is another history. Nothing was read."""

    code = "lake_mismatch"


class LakeIncomplete(LakeError):
    """A batch or a rebuild stopped half way, or a file of a table is lost. The hint tells how it goes on."""

    code = "lake_incomplete"


class JobFailed(LakeError):
    """A job of Spark ended with an error. Nothing of its batch counts; running again does it once."""

    code = "job_failed"
    retryable = True


class WorkerLost(JobFailed):
    """A Python worker of Spark ended while it worked, again and again. Nothing of the batch counts."""

    code = "worker_lost"


class SparkLost(JobFailed):
    """The Java machine of Spark ended while it worked: a new session is needed. Nothing of the batch counts."""

    code = "spark_lost"
