"""Network endpoints: bytes of other programs become calls of the broker operations, and their results become bytes.

    accept ─▶ Port ─▶ first byte ─┬─ 0x16 ─▶ TLS ─▶ first byte inside ─┐
                                  ├─ 'A' ───▶ AMQP: refused            │
                                  └─ else ──▶ HttpConnection ◀─────────┘
                                                  │ ASGI
                                                  ▼
                                       the application ──▶ Serving ──▶ Broker ──▶ bus

An endpoint holds no rule of its own. It parses, asks `core/access` whether the caller may, calls `bus/api/broker.py`,
and formats. Nothing that a peer sends, or fails to send, may take memory or time without bound: every connection has a
deadline while it owes bytes (`connections`), and every request has limits (`http_protocol`). Nothing in the package is
needed to use a bus inside a process.
"""
