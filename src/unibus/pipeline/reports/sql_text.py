"""Checks that a text is a SELECT that only reads the given tables. A SELECT of Spark SQL can do much more.

    TRANSFORM … USING 'rm'          starts a program                        rejected here
    reflect(…)                      calls any static method of Java         rejected here
    from_xml(…), xpath(…)           open files that a schema or DTD names   rejected here
    csv.`/etc/passwd`               reads any file as a table               switched off by a setting, see HARMLESS
    ${env:…}                        reads the environment                   switched off by a setting, see HARMLESS

The words are found before Spark gets the text, with the same tokens as Spark's own lexer; forms that would make this
uncertain are rejected too. The text is then put in brackets after SELECT * FROM, where only a query is valid.

No Spark here, so that a wrong text is rejected without starting it.
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
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",  # Otherwise "reflect" is a name for Spark, and a text here.
    "spark.sql.debug.maxToStringFields": "1000000",  # A long plan must not be shortened: sql.py searches it.
}
"""Settings of a session that runs SELECTs of a user."""

JAVA: Final = ("reflect", "java_method", "try_reflect")
OPENING: Final = (
    *("from_xml", "schema_of_xml", "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "xpath"),
    *("xpath_boolean", "xpath_double", "xpath_float", "xpath_int"),
    *("xpath_long", "xpath_number", "xpath_short", "xpath_string"),
)
"""Functions that open a file or a URL that their options or their input name."""
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
        """As Spark compares names: without quotes and case. Spark compares keywords in upper case, and some characters
        outside of a to z have an upper case in A to Z: USıNG is USING."""
        return self.text.strip("`").upper().lower()


def tokens(sql: str) -> Iterator[SqlToken]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "sign"
        if kind != "space":
            yield SqlToken(kind, found[0], found.start())


def wrapped(sql: str, limit: int) -> str:
    """The query that is run: at most `limit` rows. QueryInvalid if the text is not a SELECT."""
    found = list(tokens(sql))
    while found and found[-1].text == ";":
        sql = sql[: found.pop().at]
    if not found:
        raise QueryInvalid("the query is empty", ABOUT_TABLES)
    if found[0].plain not in BEGINNINGS:
        raise QueryInvalid(f"only a SELECT is allowed, not {found[0].text.upper()[:40]}", ABOUT_TABLES)
    _check(found)
    # On lines of their own: the text may end with a comment.
    return f"SELECT * FROM (\n{sql}\n) LIMIT {limit}"


def _check(found: list[SqlToken]) -> None:
    for at, token in enumerate(found):
        following = found[at + 1].text if at + 1 < len(found) else ""
        if token.kind == "sign" and token.text == ";":
            raise QueryInvalid("a text with ; has more than one query", "run one query per call")
        if token.kind == "comment":
            raise QueryInvalid("comments and hints of the form /* … */ are not allowed", "-- begins a comment")
        if token.kind == "address":  # Spark reads a URL as one name, and a -- inside of it not as a comment.
            raise QueryInvalid(":// is only allowed inside a quoted text", "put the text in 'quotes'")
        if token.kind == "sign" and token.text in "$'\"`":
            raise QueryInvalid(f"the SQL has an unexpected {token.text}", "is a quote missing?")
        if token.kind in ("word", "quoted") and token.plain in _CALLS:
            why = "it opens files" if token.plain in OPENING else "a query may only read tables"
            raise QueryInvalid(f"{token.plain} is not allowed: {why}", ABOUT_TABLES)
        if token.kind == "word" and token.plain == "using" and following != "(":
            raise QueryInvalid(
                "USING must be followed by a list of columns in (): a query may not start programs", ABOUT_TABLES
            )
