"""Parses Atom documents into descriptions. Elements are found by their local name, in any order and in any namespace.

The namespace is ignored: clients differ in it (a prefix, a default, none at all), and no two elements of the documents
differ by namespace alone. An element that is nil, or that the schema does not have, counts as absent.
"""

from collections.abc import Sequence
from typing import Final

from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import (
    AccessDescription,
    ActionDescription,
    EntityDescription,
    FilterDescription,
    RuleDescription,
    TypedValue,
)
from unibus.codecs.atom.elements import Element, parse

_DESCRIPTIONS: Final = (schema.QUEUE, schema.TOPIC, schema.SUBSCRIPTION, schema.RULE)
_STRUCTURED: Final = frozenset({schema.AUTHORIZATION_RULES, schema.COUNT_DETAILS, schema.DEFAULT_RULE})
_ENTRY_HINT: Final = "send <entry><content><QueueDescription>…, with the namespaces of Azure Service Bus"


def read_description(data: bytes) -> EntityDescription | RuleDescription:
    """The description in an Atom entry, or one without an entry around it. Raises AtomInvalid for anything else."""
    element = _described(parse(data))
    if element.name == schema.RULE:
        return _rule(element)
    return _entity(element)


def _described(root: Element) -> Element:
    if root.name in _DESCRIPTIONS:
        return root
    if root.name != "entry":
        raise root.invalid(f"the document is <{root.name:.60}>, not an Atom entry", _ENTRY_HINT)
    content = root.child("content")
    if content is None:
        raise root.invalid("the entry has no content", _ENTRY_HINT)
    found = [child for child in content.children if child.name in _DESCRIPTIONS]
    if len(found) != 1:
        names = ", ".join(_DESCRIPTIONS)
        raise content.invalid(f"the content has {len(found)} descriptions instead of one", f"send one of {names}")
    return found[0]


def _entity(element: Element) -> EntityDescription:
    known = schema.ELEMENTS[element.name]
    values: dict[str, str] = {}
    for child in element.children:
        name = schema.ALIASES.get(child.name, child.name)
        if name not in known or name in _STRUCTURED or child.is_nil:
            continue
        if name in values:
            raise child.invalid(f"the element {name} is given twice", "leave one of them out")
        values[name] = _plain(child)
    rule = element.child(schema.DEFAULT_RULE) if schema.DEFAULT_RULE in known else None
    return EntityDescription(
        element.name,
        values,
        _access(element) if schema.AUTHORIZATION_RULES in known else None,
        None,
        None if rule is None or rule.is_nil else _rule(rule),
    )


def _plain(element: Element) -> str:
    if element.children:
        raise element.invalid(
            f"the element {element.name} has child elements, but may contain text only", "remove them"
        )
    return element.text


# Authorization rules


def _access(entity: Element) -> tuple[AccessDescription, ...] | None:
    listed = entity.child(schema.AUTHORIZATION_RULES)
    if listed is None or listed.is_nil:
        return None
    return tuple([_access_rule(each) for each in listed.children if each.name == "AuthorizationRule"])


def _access_rule(element: Element) -> AccessDescription:
    rights = element.child("Rights")
    plain = AccessDescription("", ())
    return AccessDescription(
        key_name=_text(element, "KeyName"),
        rights=() if rights is None else tuple([_plain(each).strip() for each in rights.children]),
        primary_key=_text(element, "PrimaryKey"),
        secondary_key=_text(element, "SecondaryKey"),
        type=element.type or plain.type,
        claim_type=_text(element, "ClaimType") or plain.claim_type,
        claim_value=_text(element, "ClaimValue") or plain.claim_value,
        created_time=_text(element, "CreatedTime"),
        modified_time=_text(element, "ModifiedTime"),
    )


def _text(owner: Element, name: str) -> str:
    """The text of a child, empty if it is absent or nil."""
    child = owner.child(name)
    return "" if child is None or child.is_nil else _plain(child).strip()


# Rules


def _rule(element: Element) -> RuleDescription:
    condition, action = element.child("Filter"), element.child("Action")
    return RuleDescription(
        _text(element, "Name"),
        None if condition is None or condition.is_nil else _filter(condition),
        None if action is None or action.is_nil else _action(action),
        _text(element, "CreatedAt"),
    )


def _filter(element: Element) -> FilterDescription:
    kind = element.type or _guessed_filter(element)
    if kind == schema.SQL_FILTER:
        return FilterDescription(kind, _expression(element), _pairs(element.child("Parameters")))
    if kind == schema.CORRELATION_FILTER:
        fields: list[tuple[str, str]] = []
        for name in schema.CORRELATION_FIELDS:
            child = element.child(name)
            if child is not None and not child.is_nil:
                fields.append((name, _plain(child)))
        return FilterDescription(kind, "", (), tuple(fields), _pairs(element.child("Properties")))
    if kind in schema.FILTERS:
        return FilterDescription(kind)
    raise element.invalid(f"the filter has the unknown type {kind!r:.60}", f"use {', '.join(schema.FILTERS)}")


def _guessed_filter(element: Element) -> str:
    """The kind of a filter without `xsi:type`, derived from its elements."""
    names = {child.name for child in element.children}
    if "SqlExpression" in names:
        return schema.SQL_FILTER
    if "Properties" in names or not names.isdisjoint(schema.CORRELATION_FIELDS):
        return schema.CORRELATION_FILTER
    raise element.invalid("the filter has neither a type nor elements", 'add i:type="TrueFilter"')


def _action(element: Element) -> ActionDescription | None:
    expression = element.child("SqlExpression")
    kind = element.type or (schema.EMPTY_ACTION if expression is None else schema.SQL_ACTION)
    if kind == schema.EMPTY_ACTION:
        return None
    if kind == schema.SQL_ACTION:
        return ActionDescription(_expression(element), _pairs(element.child("Parameters")))
    raise element.invalid(
        f"the action has the unknown type {kind!r:.60}", f"use {schema.SQL_ACTION} or {schema.EMPTY_ACTION}"
    )


def _expression(owner: Element) -> str:
    child = owner.child("SqlExpression")
    if child is None or child.is_nil:
        raise owner.invalid(f"the element {owner.name} has no SqlExpression", "add one")
    return _plain(child)


def _pairs(owner: Element | None) -> tuple[tuple[str, TypedValue], ...]:
    children: Sequence[Element] = () if owner is None else owner.children
    return tuple([_pair(each) for each in children if each.name == schema.KEY_VALUE])


def _pair(element: Element) -> tuple[str, TypedValue]:
    key, value = element.child("Key"), element.child("Value")
    if key is None or value is None:
        raise element.invalid(f"the element {element.name} has no Key or no Value", "add both")
    return _plain(key), TypedValue(value.type or "string", None if value.is_nil else _plain(value))
