"""From an error of the bus to an HTTP answer: a table of statuses, and Azure's names for errors.

The most specific class in the table decides. A test walks the tree of `unibus.errors` and fails for a class without a
row of its own or of a base class below `BusError`. `endpoints/error_body` writes the body, as XML or JSON.
"""

import math
from typing import Final

import unibus.errors as errors
from unibus.endpoints.error_body import error_content
from unibus.endpoints.http.request import Request, Response
from unibus.endpoints.http.routing import OPERATOR_PAGES

STATUSES: Final[dict[type[errors.BusError], int]] = {
    errors.UsageError: 400,
    errors.DecodeError: 400,
    errors.EvaluationError: 400,
    errors.SerializationFailed: 400,
    errors.SessionRequired: 400,
    errors.SessionNotAllowed: 400,
    errors.PayloadMismatch: 400,
    errors.TransactionInvalid: 400,
    errors.QueryStopped: 400,
    errors.Unauthorised: 401,
    errors.Forbidden: 403,
    errors.AccessRefused: 403,
    errors.QuotaExceeded: 403,
    errors.EntityDisabled: 403,
    errors.SubscriptionLimit: 403,
    errors.EntityNotFound: 404,
    errors.ChannelNotFound: 404,
    errors.MessageNotFound: 404,
    errors.SessionNotFound: 404,
    errors.JobNotFound: 404,
    errors.EntityExists: 409,
    errors.ChannelExists: 409,
    errors.DuplicateMessage: 409,
    errors.SessionLocked: 409,
    errors.JobEnded: 409,
    errors.PositionMoved: 412,
    errors.LockLost: 410,
    errors.MessageTooLarge: 413,
    errors.RateLimited: 429,
    errors.QueueFull: 429,
    errors.RequestTimeout: 503,
    errors.RequestFailed: 503,
    errors.PublishError: 503,
    errors.StoreFull: 503,
    errors.StoreUnavailable: 503,
    errors.StoreFailed: 503,
    errors.BusClosed: 503,
    errors.BusForked: 503,
    errors.LoopMismatch: 503,
    errors.ExtraMissing: 503,
    errors.PortUnavailable: 503,
    # Errors of clients, which no operation of this endpoint raises.
    errors.ServerError: 503,
    errors.AnswerInvalid: 503,
    errors.OutcomeUnknown: 503,
    # Errors of capture and pipeline, which no operation of this endpoint raises.
    errors.CaptureBusy: 503,
    errors.CaptureMismatch: 503,
    errors.CaptureDamaged: 503,
    errors.LakeError: 503,
}
UNEXPECTED: Final = 500

_TEMPORARY: Final = (errors.StoreUnavailable, errors.StoreFailed, errors.BusClosed)
"""Not retryable for a caller in this process; but a server reopens its store, so its clients may retry."""

_CODES: Final[dict[str, str]] = {
    "entity_not_found": "MessagingEntityNotFound",
    "entity_exists": "MessagingEntityAlreadyExists",
    "entity_disabled": "MessagingEntityDisabled",
    "quota_exceeded": "QuotaExceeded",
    "lock_lost": "MessageLockLost",
    "session_lock_lost": "SessionLockLost",
    "session_locked": "SessionCannotBeLocked",
    "message_not_found": "MessageNotFound",
    "message_too_large": "MessageSizeExceeded",
    "rate_limited": "ServerBusy",
    "unauthorised": "Unauthorized",
    "forbidden": "Unauthorized",
}
"""Azure's name of an error, where it has one; else the code of the error class is used."""


def status_of(error: errors.BusError) -> int:
    for kind in type(error).__mro__:
        status = STATUSES.get(kind)
        if status is not None:
            return status
    return UNEXPECTED


def code_of(error: errors.BusError) -> str:
    return _CODES.get(error.code, error.code)


def error_response(request: Request | None, error: errors.BusError) -> Response:
    """The answer to an error. `request` is None if the request itself could not be parsed."""
    status = status_of(error)
    is_management = request is not None and request.is_management
    response = error_body(request, status, error.code if is_management else code_of(error), error.what, error.hint)
    if isinstance(error, errors.RateLimited):
        if math.isfinite(error.retry_after_s):  # Else it is more than the burst allows, and no retry can succeed.
            response.headers.append(("Retry-After", str(max(1, round(error.retry_after_s)))))
    elif status == 503 and (error.retryable or isinstance(error, _TEMPORARY)):
        response.headers.append(("Retry-After", "1"))
    if status == 401:
        pages = request is not None and request.place.shape in OPERATOR_PAGES
        challenge = 'Basic realm="unibus", charset="UTF-8"' if pages else "SharedAccessSignature"
        response.headers.append(("WWW-Authenticate", challenge))
    return response


def error_body(request: Request | None, status: int, code: str, what: str, hint: str = "") -> Response:
    as_json = request is not None and request.accepts_json()
    return Response(status, *error_content(as_json, status, code, what, hint))
