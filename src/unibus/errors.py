"""Every error that unibus raises on purpose, in one tree under `BusError`.

Errors are part of the interface. Each class has a stable `code` that programs may match, and `retryable`, which says
whether the same call may succeed later without a change. Each instance has `what` (which value was wrong, and how) and
a `hint` (what to do). The docstring of a class says when it is raised and what the caller can do.

An error from `publish` or `send` means that the message was not accepted and is never delivered. Those errors are also
`RuntimeError`s, so a caller may catch them without importing unibus.
"""


class BusError(Exception):
    """The root of the tree: catch it to catch every error of unibus. `str()` is `what`, followed by the hint."""

    code: str = "bus_error"
    retryable: bool = False
    command_index: int | None = None
    """In an error of an atomic batch: the index of the command that was rejected, from 0."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what if not hint else f"{what} ({hint})")
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # The default passes the joined text to the class, so a pickled copy would repeat the hint.
        return (type(self), (self.what, self.hint), self.__dict__)


class UsageError(BusError, ValueError):
    """The call itself is wrong: a value, a type or a combination of arguments. Repeating it cannot help; correct the
    call."""

    code = "usage"


class KeywordUnknown(UsageError, TypeError):
    """Raised for a keyword argument that the method does not have. The hint names the one that was probably meant."""

    code = "keyword_unknown"


class NameInvalid(UsageError):
    """Raised for the name of a channel, queue, topic, subscription or rule that is empty, too long or has characters
    that are not allowed. Choose another name: the hint says which rule was broken."""

    code = "name_invalid"


class PriorityInvalid(UsageError):
    """Raised for a priority that is not a whole number from 0 to 255. Lower is more urgent; `Priority` names five
    levels."""

    code = "priority_invalid"


class ConfigInvalid(UsageError):
    """Raised for a setting that is unknown or out of its range, for instance an unknown `drop_policy`. Correct the
    setting."""

    code = "config_invalid"


class HandlerInvalid(UsageError, TypeError):
    """Raised by `subscribe` for a handler that cannot be called, or whose parameters the bus cannot fill. Pass a
    function that takes the message, its body, or both."""

    code = "handler_invalid"


class HeaderInvalid(UsageError):
    """Raised for a header whose name or value no encoding can write. Convert the value, or put it into the body."""

    code = "header_invalid"


class FilterInvalid(UsageError):
    """Raised for a filter or rule action that cannot be parsed. Correct the text at `position`, a count of characters
    from 0."""

    code = "filter_invalid"

    def __init__(self, what: str, hint: str = "", position: int = 0) -> None:
        super().__init__(what, hint)
        self.position = position


class EvaluationError(BusError):
    """Raised where a filter or rule action has no result for one message: a division by zero, a number beyond its type.
    Make the expression safe for such messages, or correct the message."""

    code = "evaluation_error"


class SubscriptionLimit(BusError):
    """Raised when one peer subscribes to more patterns than a peer may have. Unsubscribe from some, or use wider
    patterns."""

    code = "subscription_limit"


class ChannelExists(BusError):
    """Raised by `create_channel` for a name that exists with other settings, or that differs from one only by case. Use
    the existing channel, or choose another name."""

    code = "channel_exists"


class StoreUnavailable(BusError):
    """Raised when the store that the URL names cannot be opened, or is not supported by this version. Check the URL,
    the path and the permissions."""

    code = "store_unavailable"


class BusClosed(BusError, RuntimeError):
    """Raised by every call on a bus that was closed, or that closes. Open a new bus."""

    code = "bus_closed"


class BusForked(BusError, RuntimeError):
    """Raised in a forked child for a bus that the parent process opened. Nothing was done: open a bus in the child."""

    code = "bus_forked"


class LoopMismatch(BusError, RuntimeError):
    """Raised for a blocking call on the event loop that has to run its result: it would wait for itself. Await the
    async form, or call from another thread."""

    code = "loop_mismatch"


class RequestTimeout(BusError, TimeoutError):
    """Raised by `request` when no reply arrived in time. The request may still be handled later: make its handler
    idempotent before you try again."""

    code = "request_timeout"
    retryable = True


class RequestFailed(BusError, RuntimeError):
    """Raised by `request` when the handler failed on every attempt. The request is in the dead-letter queue: correct
    the cause, then retry it from there."""

    code = "request_failed"


class PublishError(BusError, RuntimeError):
    """The base of the errors of `publish` and `send`: the message was not accepted and is never delivered."""

    code = "publish_error"


class QueueFull(PublishError):
    """Raised when the channel holds `max_queue_size` messages. Try again later, add handlers, or change the
    `drop_policy`. `item` is the rejected message."""

    code = "queue_full"
    retryable = True

    def __init__(self, what: str, hint: str = "", item: object = None) -> None:
        super().__init__(what, hint)
        self.item = item


class RateLimited(PublishError):
    """Raised when the rate limit of the channel is used up. Try again after `retry_after_s` seconds."""

    code = "rate_limited"
    retryable = True

    def __init__(self, what: str, hint: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(what, hint)
        self.retry_after_s = retry_after_s


class ChannelNotFound(PublishError, LookupError):
    """Raised on a bus with `strict=True` for a channel that does not exist. Create it first, with `create_channel`."""

    code = "channel_not_found"


class MessageTooLarge(PublishError):
    """Raised for a message beyond the size limit of its entity or of the protocol. Send less, or send a reference to
    the data."""

    code = "message_too_large"


class SerializationFailed(PublishError):
    """Raised when the payload cannot be written in the requested encoding. Use the types that the hint names, or send
    bytes."""

    code = "serialization_failed"


class DuplicateMessage(PublishError):
    """Raised when the same id or dedup key was accepted within the dedup window, and the caller asked for an error. The
    first message is accepted: nothing has to be done."""

    code = "duplicate_message"


class DecodeError(BusError, ValueError):
    """Raised for bytes from outside that are not a unibus message. Nothing was changed; check where the bytes come
    from."""

    code = "decode_error"


class CloudEventInvalid(DecodeError):
    """Raised for input that is not a CloudEvent of version 1.0. Nothing was changed; correct the attribute that the
    text names."""

    code = "cloudevent_invalid"


class AtomInvalid(DecodeError):
    """Raised for an administration document that is not XML, or not the Atom entry of a queue, topic, subscription or
    rule.

    `line` and `column` count from 1; they are 0 if the document as a whole is wrong. Nothing was changed; correct the
    document there.
    """

    code = "atom_invalid"

    def __init__(self, what: str, hint: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(what, hint)
        self.line = line
        self.column = column


class ExtraMissing(BusError, ImportError):
    """Raised by a feature that needs a package which is not installed. Install the extra that the hint names."""

    code = "extra_missing"


class PayloadMismatch(BusError, TypeError):
    """Raised when the payload cannot be converted to the type that the handler's annotation names. Correct the
    publisher or the annotation."""

    code = "payload_mismatch"


# Durable entities


class EntityNotFound(PublishError, LookupError):
    """Raised when no queue, topic, subscription or rule has that name. Nothing was changed; create it first."""

    code = "entity_not_found"


class EntityExists(BusError):
    """Raised when the name is used by an entity of another kind or with other settings. Choose another name, or update
    the entity."""

    code = "entity_exists"


class EntityDisabled(PublishError):
    """Raised when the status of the entity disables sending or receiving. Nothing was changed; set the status to
    Active."""

    code = "entity_disabled"


class QuotaExceeded(PublishError):
    """Raised when the entity holds as many messages or bytes as its settings allow. Nothing was stored; receive some of
    its backlog, or raise the limit."""

    code = "quota_exceeded"
    retryable = True


class SessionRequired(PublishError):
    """Raised by an entity with sessions for a message without a session id, or for a receiver without a session. Pass
    `session_id=`, or accept a session."""

    code = "session_required"


class SessionNotAllowed(BusError):
    """Raised when a session is requested from an entity that has none. Receive without one, or create the entity with
    `requires_session`."""

    code = "session_not_allowed"


class SessionLocked(BusError):
    """Raised when another receiver holds the lock of the session. Try again later, or accept any free session."""

    code = "session_locked"
    retryable = True


class SessionNotFound(BusError, LookupError):
    """Raised when no unlocked session has messages, or none got one within the time-out. Try again later."""

    code = "session_not_found"
    retryable = True


class LockLost(BusError):
    """Raised when the lock has expired, or the token was never the message's lock. Nothing was changed: the message is
    redelivered, perhaps to another receiver. Do not settle it again; renew earlier, or lengthen the lock duration."""

    code = "lock_lost"


class SessionLockLost(LockLost):
    """Raised when the lock on a session has expired or was released. Nothing was changed; accept the session again."""

    code = "session_lock_lost"


class MessageNotFound(BusError, LookupError):
    """Raised when the entity has no such message in the state that the call needs. It may be settled or expired
    already: peek to see its state."""

    code = "message_not_found"


class PositionMoved(BusError):
    """Raised when a named position is not at the value that the caller expected. Nothing of the batch was applied: it
    was applied before, or another process does the same work. Continue at `position`, which is where it is now."""

    code = "position_moved"

    def __init__(self, what: str, hint: str = "", position: int = 0) -> None:
        super().__init__(what, hint)
        self.position = position


class TransactionInvalid(BusError, RuntimeError):
    """Raised for a transaction that has ended, or for an operation that a transaction cannot contain. Open a new one,
    or do the operation outside."""

    code = "transaction_invalid"


class JobNotFound(BusError, LookupError):
    """Raised when a server has no job with that number. An ended job is listed for a limited time only; list the
    jobs."""

    code = "job_not_found"


class JobEnded(BusError):
    """Raised for a change to a job that is done or cancelled. Nothing was changed; create a new job."""

    code = "job_ended"


class QueryInvalid(UsageError):
    """Raised for SQL that is wrong, or that does anything but read messages. Nothing was run; correct the query."""

    code = "query_invalid"


class QueryStopped(BusError):
    """Raised when a query reaches one of its limits: time, memory, or the size of a value. Narrow the query, or raise
    the limit."""

    code = "query_stopped"


# Access


class AccessRefused(BusError):
    """The base of both access errors: nothing was done. The text never reveals which rules, keys or entities exist."""

    code = "access_refused"


class Unauthorised(AccessRefused):
    """Raised when the caller is not authenticated: no token, a malformed, forged or expired one, or one of a rule that
    is not valid here. Get a new token; check the key and the clock."""

    code = "unauthorised"


class Forbidden(AccessRefused):
    """Raised when the token is genuine, but does not grant this right on this entity. Use a rule that grants it."""

    code = "forbidden"


# Stores


class StoreBusy(StoreUnavailable):
    """Raised when another process owns the store, or this process has it open already. Close it there, or connect to
    that process; the message and `holder` name it."""

    code = "store_busy"
    retryable = True

    def __init__(self, what: str, hint: str = "", holder: str = "") -> None:
        super().__init__(what, hint)
        self.holder = holder


class StoreVersion(StoreUnavailable):
    """Raised for a store that a newer version of unibus wrote. Nothing was changed; upgrade unibus."""

    code = "store_version"


DAMAGED_HINT = (
    "`unibus check` shows what is wrong, `unibus repair` saves what it can; nothing that may be wrong was served"
)


class StoreDamaged(StoreUnavailable):
    """Raised when the data read is not the data written. The text names the damage, and damaged data is never
    delivered. Run `unibus check`, then `unibus repair`."""

    code = "store_damaged"


class StoreFull(PublishError):
    """Raised when the disk of the store is full. Nothing of the call was stored, and stored messages can still be
    received. Free space, then try again."""

    code = "store_full"
    retryable = True


class StoreFailed(BusError, OSError):
    """Raised when it is unknown whether the call took effect: a write failed, or its answer was lost. Look for the
    effect, or repeat the call in a form that takes effect once: a dedup key, a position, a batch id. Whether the store
    has stopped is in `health().store.stopped`; then open it again, which recovers what was committed."""

    code = "store_failed"


# Servers


class PortUnavailable(BusError, OSError):
    """Raised when the address that a server should listen on is in use, not permitted, or not of this machine. Nothing
    was started; choose another address, or end the other program."""

    code = "port_unavailable"


class ServerUnavailable(StoreUnavailable):
    """Raised when a server cannot be reached, or did not answer. Nothing was changed; start it, or check the
    address."""

    code = "server_unavailable"
    retryable = True


class ServerError(BusError):
    """Raised when a server rejects a request with a code that this version does not know, or fails itself. Read the log
    of the server; the versions may differ."""

    code = "server_error"


class AnswerInvalid(BusError):
    """Raised when a response is not that of a unibus server, or is incomplete. Nothing of it was used; check the
    address and any proxy between the two."""

    code = "answer_invalid"


class OutcomeUnknown(BusError):
    """Raised when a server received the request and the connection was lost before its response. The request may have
    been applied: check before you repeat it, or repeat it with the same message id."""

    code = "outcome_unknown"


# Capture


class CaptureBusy(BusError):
    """Raised when another process captures into the directory. Nothing was changed; use another directory, or end the
    other process."""

    code = "capture_busy"
    retryable = True


class CaptureMismatch(BusError):
    """Raised when the directory holds the history of another store. Nothing was written; use a directory for each
    store."""

    code = "capture_mismatch"


class CaptureDamaged(BusError):
    """Raised when the manifest or a segment of a capture directory is not what was written. Damaged data is never used;
    the text names the file.

    `reason` is one word for programs: missing, size, crc, unreadable, schema or manifest.
    """

    code = "capture_damaged"

    def __init__(self, what: str, hint: str = "", reason: str = "manifest") -> None:
        super().__init__(what, hint)
        self.reason = reason


class DomainTaken(UsageError):
    """Raised when two sources of one lake have the same domain: their messages could not be distinguished. Give each
    source its own domain."""

    code = "domain_taken"


# Pipeline


class LakeError(BusError):
    """The base of the errors of a lake. What was committed stays as it was."""

    code = "lake_error"


class LakeBusy(LakeError):
    """Raised when another process works on the lake. Nothing was changed; wait for the process that the message
    names."""

    code = "lake_busy"
    retryable = True


class LakeMismatch(LakeError):
    """Raised when a source holds less than the lake has already read of its domain: it is another history. Nothing was
    read; give the source another domain, or restore the right one."""

    code = "lake_mismatch"


class LakeIncomplete(LakeError):
    """Raised when a batch or a rebuild stopped before its end, or a file of a table is missing. The hint says how to
    continue."""

    code = "lake_incomplete"


class JobFailed(LakeError):
    """Raised when a Spark job ends with an error. Nothing of its batch was committed: run it again."""

    code = "job_failed"
    retryable = True


class WorkerLost(JobFailed):
    """Raised when a Python worker of Spark ends repeatedly during a job. Nothing of the batch was committed; give the
    workers more memory, then run it again."""

    code = "worker_lost"


class SparkLost(JobFailed):
    """Raised when the Java process of Spark ends during a job. Nothing of the batch was committed; start a new session,
    then run it again."""

    code = "spark_lost"
