"""The Atom documents of Azure Service Bus's administration API, read and written.

    bytes ──▶ elements.parse ──▶ reading ──▶ EntityDescription, RuleDescription     (descriptions.py)
    the same ──▶ writing ──▶ bytes

Every value stays the text that the document has for it: durations, numbers and flags are converted by the endpoint,
which knows their limits and names the property in its error. `schema.py` holds the names and the order of elements.

Unknown elements are ignored, as Azure does: newer clients send elements that older servers do not know, and send back
the read-only ones that they were given. Broken XML, a DOCTYPE, and documents beyond the limits are AtomInvalid.
"""
