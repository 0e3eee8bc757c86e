"""The JSON envelope of another emulator (`?envelope=json`): body, label, sessionId, timeToLive, userProperties.

Without that parameter a JSON body is the message body itself. A name may be in camelCase or in snake_case.
"""

from typing import Final

import msgspec

from unibus.endpoints.http.messages.batch import body_of_json
from unibus.endpoints.http.messages.broker_properties import is_number, put_schedule, put_time_to_live
from unibus.endpoints.http.messages.property_headers import properties_of_json
from unibus.errors import DecodeError

_TEXTS: Final = {
    "messageid": "message_id",
    "label": "subject",
    "subject": "subject",
    "sessionid": "session_id",
    "correlationid": "correlation_id",
    "contenttype": "content_type",
    "to": "to",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_session_id",
    "partitionkey": "partition_key",
}
_decode: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def message_of_envelope(document: bytes) -> tuple[bytes, dict[str, object]]:
    try:
        given = _decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"the envelope is not JSON: {error!s:.200}", 'for instance {"body": "…"}') from error
    body = msgspec.Raw(b'""')
    fields: dict[str, object] = {}
    for name, raw in given.items():
        word = name.replace("_", "").lower()
        if word == "body":
            body = raw
        else:
            _put(fields, name, word, _value(name, raw))
    return body_of_json(body, False, fields), fields


def _value(name: str, raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"{name!r:.60} in the envelope is not JSON: {error!s:.100}") from error


def _put(fields: dict[str, object], name: str, word: str, value: object) -> None:
    if value is None:
        return
    if word in _TEXTS:
        if not isinstance(value, str):
            raise DecodeError(f"{name!r} in the envelope is not a string", "write it in quotes")
        if value:
            fields[_TEXTS[word]] = value
    elif word == "timetolive":
        if not is_number(value):
            raise DecodeError(f"{name!r} in the envelope is not a number", "send a number of seconds")
        put_time_to_live(fields, value)
    elif word == "scheduledenqueuetimeutc":
        if not isinstance(value, str):
            raise DecodeError(f"{name!r} in the envelope is not a string", "for instance 2030-01-31T08:00:00Z")
        put_schedule(fields, value)
    elif word in ("userproperties", "properties"):
        fields["headers"] = properties_of_json(value, name)
    else:
        raise DecodeError(
            f"unknown name {name!r:.60} in the envelope", "use body, label, sessionId, timeToLive, userProperties"
        )
