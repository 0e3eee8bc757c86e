"""unibus inside third-party frameworks: one public module for each. The bus itself needs none of them.

    unibus.integrations.fastapi    a bus with the lifespan of the application, its dependency, and the HTTP endpoint

A module here only connects: it opens the bus when the framework starts, closes it when it stops, and provides it as a
dependency. The rules of messages are in `core`, those of HTTP in `endpoints`.
"""
