"""No bytes crash the reader of administration documents, and what is written is read back."""

from hypothesis import given
from hypothesis import strategies as st

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
from unibus.codecs.atom.reading import read_description
from unibus.codecs.atom.writing import entry_document
from unibus.errors import AtomInvalid

PIECES = [
    b"<entry>",
    b"</entry>",
    b"<content>",
    b"</content>",
    b"<QueueDescription>",
    b"</QueueDescription>",
    b"<RuleDescription>",
    b"</RuleDescription>",
    b'<Filter xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:type="SqlFilter">',
    b"<Filter>",
    b"</Filter>",
    b"<SqlExpression>1=1</SqlExpression>",
    b"<LockDuration>PT1M</LockDuration>",
    b"<AuthorizationRules><AuthorizationRule><Rights><a/></Rights></AuthorizationRule></AuthorizationRules>",
    b"<!DOCTYPE a>",
    b"<![CDATA[ x ]]>",
    b"<!-- c -->",
    b"<?xml version='1.0' encoding='hex'?>",
    b"&amp;",
    b"&#0;",
    b"&x;",
    b"\x00",
    b"\xff\xfe",
]
# Characters that XML can represent. A text of white space alone cannot be distinguished from none where it is stripped.
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=20)
NAME = st.text("abcXYZ019._-", min_size=1, max_size=8)
VALUES = st.tuples(NAME, st.none() | TEXT).map(lambda two: TypedValue(*two))
PAIRS = st.lists(st.tuples(TEXT, VALUES), max_size=3).map(tuple)
RIGHTS = st.lists(NAME, max_size=3).map(tuple)
ACCESS = st.tuples(NAME, RIGHTS, NAME, NAME).map(lambda four: AccessDescription(*four))


@given(st.binary(max_size=200) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=12).map(b"".join))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    try:
        read_description(data)
    except AtomInvalid:
        return


def pieces_inside(inner: list[bytes]) -> bytes:
    head = b'<entry><content><RuleDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
    return head + b"".join(inner) + b"</RuleDescription></content></entry>"


@given(st.lists(st.sampled_from(PIECES), max_size=6).map(pieces_inside))
def test_no_rule_crashes_the_reader(data: bytes) -> None:
    try:
        read_description(data)
    except AtomInvalid:
        return


@given(
    st.sampled_from([schema.QUEUE, schema.TOPIC]),
    st.dictionaries(st.sampled_from(["UserMetadata", "Status", "MaxMessageSizeInKilobytes"]), TEXT),
    st.lists(ACCESS, max_size=3).map(tuple),
)
def test_an_entity_comes_back(kind: str, values: dict[str, str], access: tuple[AccessDescription, ...]) -> None:
    written = EntityDescription(kind, values, access, {})
    assert read_description(entry_document(AtomEntry("https://h/e", "e", written))) == written._replace(counts=None)


FILTERS = st.one_of(
    st.sampled_from([FilterDescription(schema.TRUE_FILTER), FilterDescription(schema.FALSE_FILTER)]),
    st.tuples(TEXT, PAIRS).map(lambda two: FilterDescription(schema.SQL_FILTER, *two)),
    st.tuples(TEXT, PAIRS).map(
        lambda two: FilterDescription(schema.CORRELATION_FILTER, "", (), (("Label", two[0]),), two[1])
    ),
)
ACTIONS = st.tuples(TEXT, PAIRS).map(lambda two: ActionDescription(*two))


@given(FILTERS, st.none() | ACTIONS, NAME)
def test_a_rule_comes_back(condition: FilterDescription, action: ActionDescription | None, name: str) -> None:
    written = RuleDescription(name, condition, action)
    assert read_description(entry_document(AtomEntry("https://h/r", name, written))) == written
