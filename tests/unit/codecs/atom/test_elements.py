"""Parsing XML: what is rejected, and at which position."""

import pytest

from unibus.codecs.atom.elements import parse
from unibus.errors import AtomInvalid
from unibus.limits import ATOM_BYTES_MAX, ATOM_DEPTH_MAX, ATOM_ELEMENTS_MAX


def test_a_tree_has_names_namespaces_texts_and_types() -> None:
    root = parse(
        b'<a:entry xmlns:a="urn:one" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        b'<b i:type="p:SqlFilter" plain="x">one<c/>two</b></a:entry>'
    )
    assert (root.name, root.namespace) == ("entry", "urn:one")
    child = root.children[0]
    assert (child.name, child.namespace, child.text, child.type) == ("b", "", "onetwo", "SqlFilter")
    assert child.attributes["plain"] == "x"
    assert not child.is_nil


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"", 1, 1),
        (b"no xml", 1, 1),
        (b"<a>\n  <b></a>", 2, 8),
        (b"<a/><b/>", 1, 5),
        (b"<a>\xff</a>", 1, 4),
        (b"<p:a/>", 1, 1),
    ],
)
def test_broken_xml_is_named_with_its_place(data: bytes, line: int, column: int) -> None:
    with pytest.raises(AtomInvalid) as refused:
        parse(data)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert f"line {line}, column {column}" in refused.value.what
    assert refused.value.code == "atom_invalid"


@pytest.mark.parametrize(
    "data",
    [
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b"<?xml version='1.0'?>\n<!DOCTYPE a><a/>",
    ],
)
def test_a_doctype_is_refused(data: bytes) -> None:
    with pytest.raises(AtomInvalid, match="DOCTYPE"):
        parse(data)


def test_a_document_is_bounded() -> None:
    with pytest.raises(AtomInvalid, match="bytes"):
        parse(b"<a>" + b" " * ATOM_BYTES_MAX + b"</a>")
    assert parse(b"<a>" * ATOM_DEPTH_MAX + b"</a>" * ATOM_DEPTH_MAX).name == "a"
    with pytest.raises(AtomInvalid, match="deeper"):
        parse(b"<a>" * (ATOM_DEPTH_MAX + 1) + b"</a>" * (ATOM_DEPTH_MAX + 1))
    with pytest.raises(AtomInvalid, match="elements"):
        parse(b"<a>" + b"<b/>" * ATOM_ELEMENTS_MAX + b"</a>")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf<?xml version='1.0' encoding='utf-8'?><a>\xc3\xa9</a>",
        b"<?xml version='1.0' encoding='utf-16'?><a>\xc3\xa9</a>",
        b"<?xml version='1.0' encoding='no-such-thing'?><a>\xc3\xa9</a>",
    ],
)
def test_bytes_are_utf_8_whatever_the_declaration_says(data: bytes) -> None:
    assert parse(data).text == "é"


def test_one_name_twice_is_refused() -> None:
    with pytest.raises(AtomInvalid, match="twice"):
        parse(b"<a><b/><b/></a>").child("b")
