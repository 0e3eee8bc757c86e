"""Whether a text is a SELECT that only reads the tables it was shown. Spark's SQL can do more than that in one SELECT.

It can start programs (TRANSFORM … USING 'rm'), call any static method of Java (reflect), read any file as a table
(csv.`/etc/passwd`), have one opened by a function (a schema for from_xml, a DTD that a text for xpath names), and look
into the environment (${env:…}). Tables that are files and the environment are switched off by settings, see HARMLESS;
the others are refused here, by their words, before Spark sees the text. The words are found as Spark's own lexer would
find them, and forms that would make this uncertain are refused as well. What is left is put in brackets behind
SELECT * FROM, where nothing but a query can stand.

No Spark here, so that a wrong text is answered without starting it.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from unibus.errors import QueryInvalid

BEGINNINGS: Final = frozenset({"select", "with", "values", "from", "table", "("})
ABOUT_TABLES: Final = "SELECT … FROM messages; `unibus pipeline sql --help` names the tables"
HARMLESS: Final[dict[str, str]] = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",  # Else "reflect" were a name, and here it is a text.
    "spark.sql.debug.maxToStringFields": "1000000",  # What is looked for in a plan is not to be left out of it.
}
"""Settings of a session that answers SELECTs of others."""

JAVA: Final = ("reflect", "java_method", "try_reflect")
OPENING: Final = (
    *("from_xml", "schema_of_xml", "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "xpath"),
    *("xpath_boolean", "xpath_double", "xpath_float", "xpath_int"),
    *("xpath_long", "xpath_number", "xpath_short", "xpath_string"),
)
"""Functions that open what an option, or the text that they read, names: files, and addresses too."""
_CALLS: Final = frozenset({*JAVA, *OPENING, "identifier"})
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+ | --(?:\\\n|[^\r\n])*)
    | (?P<text>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>\w+)
    | (?P<comment>/\*)
    | (?P<address>://)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class SqlToken(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def plain(self) -> str:
        """As Spark compares names: without quotes and case. It knows its keywords by their capitals, and there are
        small letters beyond a to z that have one of A to Z: USıNG is USING."""
        return self.text.strip("`").upper().lower()


def tokens(sql: str) -> Iterator[SqlToken]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "sign"
        if kind != "space":
            yield SqlToken(kind, found[0], found.start())


def wrapped(sql: str, limit: int) -> str:
    """The query that is asked for it: at most `limit` rows. QueryInvalid for what is no SELECT."""
    found = list(tokens(sql))
    while found and found[-1].text == ";":
        sql = sql[: found.pop().at]
    if not found:
        raise QueryInvalid("there is no query", ABOUT_TABLES)
    if found[0].plain not in BEGINNINGS:
        raise QueryInvalid(f"only a SELECT is answered, not {found[0].text.upper()[:40]}", ABOUT_TABLES)
    _check(found)
    # On lines of its own: the text may end with a comment.
    return f"SELECT * FROM (\n{sql}\n) LIMIT {limit}"


def _check(found: list[SqlToken]) -> None:
    for at, token in enumerate(found):
        following = found[at + 1].text if at + 1 < len(found) else ""
        if token.kind == "sign" and token.text == ";":
            raise QueryInvalid("one query at a time, without a ; in it", "ask the next one with the next call")
        if token.kind == "comment":
            raise QueryInvalid("comments and hints of the form /* … */ are not taken", "-- begins a comment")
        if token.kind == "address":  # Spark would take it for a name, and the -- of one for no comment.
            raise QueryInvalid(":// does not belong there", "a text stands in 'quotes'")
        if token.kind == "sign" and token.text in "$'\"`":
            raise QueryInvalid(f"{token.text} does not belong there", "is a text not closed?")
        if token.kind in ("word", "quoted") and token.plain in _CALLS:
            why = "it opens files" if token.plain in OPENING else "a query only reads"
            raise QueryInvalid(f"{token.plain} is not allowed: {why}", ABOUT_TABLES)
        if token.kind == "word" and token.plain == "using" and following != "(":
            raise QueryInvalid(
                "USING without a list of columns is not allowed: a query starts no programs", ABOUT_TABLES
            )
