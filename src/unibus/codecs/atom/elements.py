"""Parses untrusted XML into a tree of elements, with limits on everything that costs memory or stack.

A DOCTYPE is rejected: without it no entity can expand or read files. Bytes, elements and depth are limited, so memory
and stack are bounded whatever the sender sends. The bytes are parsed as UTF-8 whatever the declaration says: programs
that build a text first often declare UTF-16 and send UTF-8.
"""

from collections.abc import Mapping
from typing import Final, final
from xml.parsers import expat

from unibus.codecs.atom.schema import INSTANCE
from unibus.errors import AtomInvalid
from unibus.limits import ATOM_BYTES_MAX, ATOM_DEPTH_MAX, ATOM_ELEMENTS_MAX

_TYPE: Final = f"{INSTANCE} type"
_NIL: Final = f"{INSTANCE} nil"


@final
class Element:
    """`text` is the character data directly in it. Names of attributes are `namespace name`, or `name` alone."""

    def __init__(self, name: str, namespace: str, attributes: Mapping[str, str], line: int, column: int) -> None:
        self.name = name
        self.namespace = namespace
        self.attributes = attributes
        self.line = line
        self.column = column
        self.children: list[Element] = []
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def type(self) -> str:
        """The local name of its `xsi:type`, empty for none. The sender chooses the prefix, so it has no meaning."""
        return self.attributes.get(_TYPE, "").strip().rpartition(":")[2]

    @property
    def is_nil(self) -> bool:
        return self.attributes.get(_NIL, "").strip() in ("true", "1")

    def child(self, name: str) -> "Element | None":
        """The child of this name, in any namespace. Raises AtomInvalid if there are two."""
        found: Element | None = None
        for each in self.children:
            if each.name == name:
                if found is not None:
                    raise each.invalid(f"the element {name} is given twice", "leave one of them out")
                found = each
        return found

    def invalid(self, what: str, hint: str = "") -> AtomInvalid:
        return AtomInvalid(f"{what} (line {self.line}, column {self.column})", hint, self.line, self.column)


def parse(data: bytes) -> Element:
    """The root element. Raises AtomInvalid for malformed XML, a DOCTYPE, or a document beyond the limits."""
    if len(data) > ATOM_BYTES_MAX:
        raise AtomInvalid(f"the XML document has {len(data)} bytes, at most {ATOM_BYTES_MAX} are allowed")
    tree = _Tree()
    try:
        tree.parser.Parse(data, True)
    except expat.ExpatError as error:
        what = f"malformed XML: {expat.ErrorString(error.code)} (line {error.lineno}, column {error.offset + 1})"
        raise AtomInvalid(what, "send one well-formed document in UTF-8", error.lineno, error.offset + 1) from error
    root = tree.root
    if root is None:
        raise AtomInvalid("the XML document has no element", "send an Atom entry")
    return root


@final
class _Tree:
    """Builds the tree from the events of expat. An exception in a handler ends the parsing."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0

    def _doctype(self, name: str, system_id: str | None, public_id: str | None, has_internal_subset: int) -> None:
        # `has_internal_subset` is an int, whatever the type stubs say: compiled code checks the type.
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        what = f"the XML document has a DOCTYPE (line {line}, column {column})"
        raise AtomInvalid(what, "send the document without it", line, column)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        element = Element(local, namespace, attributes, line, column)
        self._count += 1
        if self._count > ATOM_ELEMENTS_MAX:
            raise element.invalid(
                f"the document has more than {ATOM_ELEMENTS_MAX} XML elements", "send less in one document"
            )
        if len(self._open) >= ATOM_DEPTH_MAX:
            raise element.invalid(
                f"the XML elements nest deeper than {ATOM_DEPTH_MAX}", "an Atom entry needs about ten levels"
            )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._open.pop()

    def _characters(self, data: str) -> None:
        if self._open:
            self._open[-1].pieces.append(data)
