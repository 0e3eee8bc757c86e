"""Writes descriptions as Atom documents, with the elements in the order of schema.py.

Text is escaped in one place. Characters that XML cannot represent become U+FFFD: a response that a client cannot parse
would hide the whole entity.
"""

import re
from collections.abc import Sequence
from typing import Final

from unibus.codecs.atom import schema
from unibus.codecs.atom.descriptions import (
    AccessDescription,
    ActionDescription,
    AtomEntry,
    EntityDescription,
    FilterDescription,
    RuleDescription,
    TypedValue,
)

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
_ESCAPED: Final = re.compile('[&<>"\r\n\t]')
_DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'
_TRUE: Final = "1=1"
_FALSE: Final = "1=0"


def entry_document(entry: AtomEntry) -> bytes:
    return (_DECLARATION + _entry(entry, f' xmlns="{schema.ATOM}"')).encode()


def feed_document(address: str, title: str, updated: str, entries: Sequence[AtomEntry], following: str = "") -> bytes:
    """A list. `following` is the address of the next page: clients use a second link element as that, whatever its rel,
    so there are never more than two."""
    pieces = [_DECLARATION, f'<feed xmlns="{schema.ATOM}">', _leaf("id", address)]
    pieces += [f'<title type="text">{_escaped(title)}</title>', _leaf("updated", updated), _link("self", address)]
    if following:
        pieces.append(_link("next", following))
    pieces += [_entry(entry, "") for entry in entries]
    pieces.append("</feed>")
    return "".join(pieces).encode()


def error_document(code: int, detail: str) -> bytes:
    return f"<Error>{_leaf('Code', str(code))}{_leaf('Detail', detail)}</Error>".encode()


def _entry(entry: AtomEntry, namespace: str) -> str:
    pieces = [f"<entry{namespace}>", _leaf("id", entry.address)]
    pieces.append(f'<title type="text">{_escaped(entry.title)}</title>')
    if entry.published:
        pieces.append(_leaf("published", entry.published))
    if entry.updated:
        pieces.append(_leaf("updated", entry.updated))
    if entry.author:
        pieces.append(f"<author>{_leaf('name', entry.author)}</author>")
    pieces += [_link("self", entry.address), '<content type="application/xml">', _content(entry.content)]
    pieces.append("</content></entry>")
    return "".join(pieces)


def _content(content: EntityDescription | RuleDescription) -> str:
    if isinstance(content, RuleDescription):
        return _whole(schema.RULE, _rule(content))
    return _whole(content.kind, _entity(content))


def _whole(kind: str, inner: str) -> str:
    return f'<{kind} xmlns="{schema.SERVICE_BUS}" xmlns:i="{schema.INSTANCE}">{inner}</{kind}>'


def _entity(entity: EntityDescription) -> str:
    pieces: list[str] = []
    for name in schema.ELEMENTS[entity.kind]:
        if name == schema.AUTHORIZATION_RULES:
            rules = "".join([_access(rule) for rule in entity.access or ()])
            pieces.append(f"<{name}>{rules}</{name}>")
        elif name == schema.COUNT_DETAILS:
            pieces.append(_counts(entity))
        elif name == schema.DEFAULT_RULE:
            if entity.default_rule is not None:
                pieces.append(f"<{name}>{_rule(entity.default_rule)}</{name}>")
        elif name in entity.values:
            pieces.append(_leaf(name, entity.values[name]))
    return "".join(pieces)


def _counts(entity: EntityDescription) -> str:
    """The element is in the namespace of the description; its children are in another one."""
    counts = entity.counts
    if counts is None:
        return ""
    inner = "".join([f"<c:{name}>{counts.get(name, 0)}</c:{name}>" for name in schema.COUNT_ELEMENTS])
    return f'<{schema.COUNT_DETAILS} xmlns:c="{schema.COUNTS}">{inner}</{schema.COUNT_DETAILS}>'


def _access(rule: AccessDescription) -> str:
    rights = "".join([_leaf("AccessRights", right) for right in rule.rights])
    pieces = [f'<AuthorizationRule i:type="{_escaped(rule.type)}">', _leaf("ClaimType", rule.claim_type)]
    pieces += [_leaf("ClaimValue", rule.claim_value), f"<Rights>{rights}</Rights>"]
    if rule.created_time:
        pieces.append(_leaf("CreatedTime", rule.created_time))
    if rule.modified_time:
        pieces.append(_leaf("ModifiedTime", rule.modified_time))
    pieces += [_leaf("KeyName", rule.key_name), _leaf("PrimaryKey", rule.primary_key)]
    pieces += [_leaf("SecondaryKey", rule.secondary_key), "</AuthorizationRule>"]
    return "".join(pieces)


# Rules


def _rule(rule: RuleDescription) -> str:
    condition = rule.filter if rule.filter is not None else FilterDescription(schema.TRUE_FILTER)
    pieces = [_filter(condition), _action(rule.action)]
    if rule.created_at:
        pieces.append(_leaf("CreatedAt", rule.created_at))
    pieces.append(_leaf("Name", rule.name))
    return "".join(pieces)


def _filter(condition: FilterDescription) -> str:
    if condition.kind == schema.CORRELATION_FILTER:
        # In the order of the schema, not of the fields.
        fields = dict(condition.fields)
        inner = "".join([_leaf(name, fields[name]) for name in schema.CORRELATION_FIELDS if name in fields])
        inner += _pairs("Properties", condition.properties)
    else:
        constant = {schema.TRUE_FILTER: _TRUE, schema.FALSE_FILTER: _FALSE}
        inner = _sql(constant.get(condition.kind, condition.expression), condition.parameters)
    return f'<Filter i:type="{condition.kind}">{inner}</Filter>'


def _action(action: ActionDescription | None) -> str:
    if action is None:
        return f'<Action i:type="{schema.EMPTY_ACTION}"/>'
    return f'<Action i:type="{schema.SQL_ACTION}">{_sql(action.expression, action.parameters)}</Action>'


def _sql(expression: str, parameters: Sequence[tuple[str, TypedValue]]) -> str:
    # Without RequiresPreprocessing: Azure's clients expect it to be absent here; only the Resource Manager has it.
    level = _leaf("CompatibilityLevel", schema.COMPATIBILITY_LEVEL)
    return _leaf("SqlExpression", expression) + level + _pairs("Parameters", parameters)


def _pairs(name: str, pairs: Sequence[tuple[str, TypedValue]]) -> str:
    if not pairs:
        return f"<{name}/>"
    inner = "".join([_pair(key, value) for key, value in pairs])
    return f"<{name}>{inner}</{name}>"


def _pair(key: str, value: TypedValue) -> str:
    namespace = schema.SERIALIZATION if value.type == "guid" else schema.SCHEMA
    head = f'<Value xmlns:d6p1="{namespace}" i:type="d6p1:{value.type}"'
    text = f'{head} i:nil="true"/>' if value.text is None else f"{head}>{_escaped(value.text)}</Value>"
    return f"<{schema.KEY_VALUE}>{_leaf('Key', key)}{text}</{schema.KEY_VALUE}>"


# Elements


def _leaf(name: str, text: str) -> str:
    return f"<{name}>{_escaped(text)}</{name}>"


def _link(rel: str, address: str) -> str:
    return f'<link rel="{rel}" href="{_escaped(address)}"/>'


def _escaped(text: str) -> str:
    """For elements and attributes. Line ends are escaped, because a parser would normalise them."""
    legal = _ILLEGAL.sub("\ufffd", text)
    return _ESCAPED.sub(lambda found: _ESCAPES[found.group()], legal)
