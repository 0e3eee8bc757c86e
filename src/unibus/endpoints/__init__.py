"""Network endpoints: what a server needs around the bus to serve other processes.

    accept ─▶ Port ─▶ first byte ─┬─ 0x16 ─▶ TLS ─▶ first byte inside ─┐
                                  ├─ 'A' ───▶ AMQP                     │
                                  └─ else ──▶ HttpConnection ◀─────────┘
                                                  │ ASGI
                                                  ▼
                                       the application ──▶ Serving ──▶ Broker ──▶ bus

Nothing that a peer sends, or fails to send, may take memory or time without bound: every connection has a deadline
while it owes bytes (`connections`), and every request has limits (`http_protocol`).
"""
