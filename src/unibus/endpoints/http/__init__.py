"""The HTTP endpoint: REST data plane, Atom administration, health and metrics.

    path + method ──▶ routing ──▶ Operation ──▶ runner ──▶ authorization ──▶ handler ──▶ Response
                                  (operations)     │                            │
                                                   └── errors: BusError ──▶ status and body

`application/operations.py` is the one table of operations: method, path, right, handler, statuses. Two dispatchers use
it, and both end in `runner.run`: the ASGI callable `Front` of `unibus serve`, and FastAPI routes for programs that
mount the API and for the OpenAPI document (`application/app.py`).
"""
