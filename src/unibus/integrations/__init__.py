"""unibus inside of frameworks that other people wrote: one public module for each, and nothing that a bus needs.

    unibus.integrations.fastapi    a bus that lives as long as the application, its dependency, and the HTTP endpoint

A module here only connects: when the framework starts, open the bus; when it stops, close it; where it asks for a
dependency, hand out the bus. Rules of messages are in `core`, those of HTTP in `endpoints`.
"""
