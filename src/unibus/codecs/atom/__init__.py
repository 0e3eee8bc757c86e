"""Parses and writes the Atom documents of Azure Service Bus's administration API.

    bytes ──▶ elements.parse ──▶ reading ──▶ EntityDescription, RuleDescription     (descriptions.py)
    the same ──▶ writing ──▶ bytes

Every value stays the text of the document: the endpoint converts durations, numbers and flags, because it knows their
limits and names the property in its error. `schema.py` has the names and the order of elements.

Unknown elements are ignored, as in Azure: newer clients send elements that older servers do not know, and return the
read-only ones that they received. Malformed XML, a DOCTYPE, and documents beyond the limits are AtomInvalid.
"""
