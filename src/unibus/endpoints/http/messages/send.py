# mypyc: compiled
"""Send: POST {entity}/messages.

    body, any content type                            the message, with BrokerProperties and property headers
    application/vnd.microsoft.servicebus.json         a batch (batch.py)
    ?envelope=json                                    a JSON envelope (envelope.py)

A send answers 201 after the message is stored, with MessageId and SequenceNumber in the header BrokerProperties. A
duplicate (by duplicate detection) answers 201 too, with `"Duplicate": true`, so a retry is idempotent.
"""

from typing import Final

from unibus.bus.api.broker import SendResult
from unibus.endpoints.http.messages.batch import messages_of_batch
from unibus.endpoints.http.messages.broker_properties import HEADER, fields_of_header, header_text
from unibus.endpoints.http.messages.envelope import message_of_envelope
from unibus.endpoints.http.messages.property_headers import HEADER_NAMES, as_spelled, check_size, properties_of_headers
from unibus.endpoints.http.messages.trace_context import put_trace_context
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"


async def send(service: Service, request: Request) -> Response:
    headers = request.headers
    content_type = headers.get("content-type", "")
    if content_type[: len(BATCH_TYPE)].lower() == BATCH_TYPE:
        return await _send_batch(service, request)
    if request.scope.get("query_string") and "envelope" in request.query:
        return await _send_envelope(service, request)
    given = headers.get("brokerproperties")
    fields: dict[str, object] = {}
    if given is not None:
        fields = fields_of_header(given, service.unknown_names, request.entity)
    if content_type:
        fields["content_type"] = content_type
    properties = properties_of_headers(headers)
    if properties:
        fields["headers"] = as_spelled(properties, request.scope.get(HEADER_NAMES))
    if fields:
        check_size(fields)
    put_trace_context(request, fields)
    broker = service.broker
    result = await broker.send(request.entity, broker.message(request.entity, request.body, fields))
    return Response(201, b"", "", [(HEADER, header_text(sent_properties(result)))])


async def _send_batch(service: Service, request: Request) -> Response:
    """Send all messages or none. The body of the answer lists them in order; the header has the first."""
    broker = service.broker
    shared: dict[str, object] = {}
    put_trace_context(request, shared)
    given = messages_of_batch(request.body, service.unknown_names, request.entity)
    if shared:
        given = [(body, fields | shared) for body, fields in given]
    results = await broker.send_many(request.entity, broker.messages(request.entity, given))
    sent = [sent_properties(result) for result in results]
    return json_response(sent, 201, [(HEADER, header_text(sent[0]))])


async def _send_envelope(service: Service, request: Request) -> Response:
    kind = request.query["envelope"]
    if kind != "json":
        raise UsageError(f"envelope must be json, got {kind!r:.40}", "use envelope=json, or omit it")
    broker = service.broker
    body, fields = message_of_envelope(request.body)
    check_size(fields)
    put_trace_context(request, fields)
    result = await broker.send(request.entity, broker.message(request.entity, body, fields))
    sent = sent_properties(result)
    return json_response(sent, 201, [(HEADER, header_text(sent))])


def sent_properties(result: SendResult) -> dict[str, object]:
    found: dict[str, object] = {"MessageId": result.id}
    if result.sequence:
        found["SequenceNumber"] = int(result.sequence)
    if result.duplicate:
        found["Duplicate"] = True
    return found
