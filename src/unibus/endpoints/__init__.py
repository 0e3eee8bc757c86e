"""Network endpoints: an endpoint parses bytes, authorizes the caller, calls the broker, and formats the result.

    accept ─▶ Port ─▶ first byte ─┬─ 0x16 ─▶ TLS ─▶ first byte inside ─┐
                                  ├─ 'A' ───▶ AMQP: refused            │
                                  └─ else ──▶ HttpConnection ◀─────────┘
                                                  │ ASGI
                                                  ▼
                                       the application ──▶ Serving ──▶ Broker ──▶ bus

An endpoint has no messaging rules of its own: `core/access` decides about access, `bus/api/broker.py` about messages.
Nothing that a peer sends, or fails to send, may take memory or time without bound: every connection has a deadline
while the server waits for its bytes (`connections`), and every request has limits (`http_protocol`). A bus inside a
process needs nothing of this package.
"""
