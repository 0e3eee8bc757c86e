"""The content of administration documents as plain data. Values are texts, as in the document."""

from collections.abc import Mapping
from typing import NamedTuple


class TypedValue(NamedTuple):
    """The value of a parameter or property. `type` is the local name of its XML type: `int`, `string`, `dateTime`.

    `text` None is the null value, `i:nil` in the document.
    """

    type: str
    text: str | None


class FilterDescription(NamedTuple):
    """`kind` is one of schema.FILTERS. `fields` are the system properties of a correlation filter by element name."""

    kind: str
    expression: str = ""
    parameters: tuple[tuple[str, TypedValue], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, TypedValue], ...] = ()


class ActionDescription(NamedTuple):
    expression: str
    parameters: tuple[tuple[str, TypedValue], ...] = ()


class RuleDescription(NamedTuple):
    """`name` is empty if the document has none: then the address names the rule. `filter` None: every message."""

    name: str = ""
    filter: FilterDescription | None = None
    action: ActionDescription | None = None
    created_at: str = ""


class AccessDescription(NamedTuple):
    """One authorization rule of an entity. A key is empty if the server should generate it."""

    key_name: str
    rights: tuple[str, ...]
    primary_key: str = ""
    secondary_key: str = ""
    type: str = "SharedAccessAuthorizationRule"
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    created_time: str = ""
    modified_time: str = ""


class EntityDescription(NamedTuple):
    """A queue, topic, subscription or namespace: `kind` is the name of its element in schema.ELEMENTS.

    `values` are the plain elements in the order of the document. `access` None: the document has no such element.
    """

    kind: str
    values: Mapping[str, str]
    access: tuple[AccessDescription, ...] | None = None
    counts: Mapping[str, int] | None = None
    default_rule: RuleDescription | None = None


class AtomEntry(NamedTuple):
    """One resource of a response. `address` is its URL. Times are texts, empty for none."""

    address: str
    title: str
    content: EntityDescription | RuleDescription
    published: str = ""
    updated: str = ""
    author: str = ""
