"""A received message as an HTTP answer: one message as body and headers, several as a JSON list.

    one      body = the message's body · Content-Type · BrokerProperties · Location · custom properties · traceparent
    several  [{"Body": "…", "ContentType": …, "UserProperties": {…}, "MessageId": …, "LockToken": …, …}, …]

In a list a body is text, or base64 with `"IsBodyBase64": true` if it is not UTF-8. An answer is well-formed whatever a
sender has put into its message: text that no header can hold is omitted from the headers.
"""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from unibus.bus.api.broker import Broker, Claimed
from unibus.core.codec.wire import base64_text
from unibus.core.envelope.message import Message
from unibus.endpoints.bodies import wire_body
from unibus.endpoints.http.messages.broker_properties import HEADER, header_text, properties_of
from unibus.endpoints.http.messages.lock_tokens import token_text
from unibus.endpoints.http.messages.property_headers import headers_of_properties, json_of_properties
from unibus.endpoints.http.request import Request, Response, json_response

BYTES_TYPE: Final = "application/octet-stream"
_PRINTABLE: Final = re.compile(r"[\t -~]{1,1024}", re.ASCII)


def message_response(broker: Broker, request: Request, claimed: Claimed, status: int) -> Response:
    message = broker.decode(claimed)
    properties = message.properties
    body, content_type = wire_body(message.body, None if properties is None else properties.content_type)
    headers = [(HEADER, header_text(properties_of(claimed, message, True)))]
    if claimed.until_ns:
        path = f"{request.root}{entity_path(request.place.family, request.entity)}"
        headers.append(
            ("Location", f"{request.base_url}{path}/messages/{claimed.sequence}/{token_text(claimed.token)}")
        )
    if properties is not None:
        if properties.headers:
            headers += headers_of_properties(properties.headers)
        for name, text in (("traceparent", properties.traceparent), ("tracestate", properties.tracestate)):
            if text is not None and _PRINTABLE.fullmatch(text):
                headers.append((name, text))
    if not _PRINTABLE.fullmatch(content_type):
        content_type = BYTES_TYPE
    return Response(status, body, content_type, headers)


@lru_cache(maxsize=4096)
def entity_path(family: str, entity: str) -> str:
    """The path of an entity, in the family of paths that the client used."""
    return f"/servicebus/{family}/{quote(entity, safe='/$')}" if family else f"/{quote(entity, safe='/$')}"


def list_response(broker: Broker, claimed: list[Claimed], status: int = 200) -> Response:
    return json_response([json_message(each, broker.decode(each)) for each in claimed], status)


def json_message(claimed: Claimed, message: Message) -> dict[str, object]:
    properties = message.properties
    body, content_type = wire_body(message.body, None if properties is None else properties.content_type)
    found: dict[str, object] = {}
    try:
        found["Body"] = body.decode()
    except UnicodeDecodeError:
        found["Body"] = base64_text(body)
        found["IsBodyBase64"] = True
    found |= properties_of(claimed, message, False)
    if content_type:
        found["ContentType"] = content_type
    found["UserProperties"] = json_of_properties(message.headers)
    if message.traceparent is not None:
        found["Traceparent"] = message.traceparent
    return found
