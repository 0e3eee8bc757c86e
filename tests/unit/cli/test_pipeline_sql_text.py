"""Which texts are a SELECT that only reads, decided without Spark."""

import pytest

from unibus.errors import QueryInvalid
from unibus.pipeline.reports.sql_text import wrapped


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select channel, count(*) from messages group by 1 -- by channel",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "(SELECT 1) UNION (SELECT 2)",
        "VALUES (1), (2)",
        "SELECT * FROM messages JOIN channels USING (channel_key)",
        "SELECT transform(array(1, 2), x -> x + 1)",
        "SELECT * FROM messages WHERE reason = 'we are using; reflect(x) /* DROP */ $1 it''s'",
        "SELECT * FROM events WHERE reason LIKE 'http://%'",
        "SELECT 'it\\'s; DROP', \"a;b\", r'\\'",
        "-- first a remark; with a sign\nSELECT 1",
    ],
)
def test_a_select_is_put_into_brackets(sql: str) -> None:
    assert wrapped(sql, 7) == f"SELECT * FROM (\n{sql}\n) LIMIT 7"


@pytest.mark.parametrize("sql", ["SELECT 1;", "SELECT 1 ;; ", "SELECT 1; -- done"])
def test_a_last_semicolon_is_cut_off(sql: str) -> None:
    assert wrapped(sql, 1).split("\n")[1].rstrip() == "SELECT 1"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("", "the query is empty"),
        (" -- nothing\n", "the query is empty"),
        ("DROP TABLE messages", "only a SELECT is allowed, not DROP"),
        ("INSERT INTO messages VALUES (1)", "not INSERT"),
        ("SET spark.sql.runSQLOnFiles=true", "not SET"),
        ("ADD JAR x", "not ADD"),
        ("EXPLAIN SELECT 1", "not EXPLAIN"),
        ("BEGIN SELECT 1; END", "not BEGIN"),
        ("SELECT 1; DROP TABLE messages", "has more than one query"),
        ("SELECT reflect('java.lang.System', 'exit', 1)", "reflect is not allowed"),
        ("SELECT `Java_Method`('java.lang.System', 'exit', 1)", "java_method is not allowed"),
        ("SELECT system.builtin.try_reflect('a', 'b')", "try_reflect is not allowed"),
        ("SELECT identifier('re' || 'flect')('a', 'b')", "identifier is not allowed"),
        ("SELECT TRANSFORM(a) USING 'rm' FROM x", "may not start programs"),
        ("SELECT TRANSFORM(a) USING --(\n 'rm' FROM x", "may not start programs"),
        ("SELECT TRANSFORM(a) US\N{LATIN SMALL LETTER DOTLESS I}NG 'rm' FROM x", "may not start programs"),
        ("SELECT TRANSFORM(a) U\N{LATIN SMALL LETTER LONG S}ING 'rm' FROM x", "may not start programs"),
        ("SELECT \N{LATIN SMALL LETTER DOTLESS I}dentifier('reflect')('a', 'b')", "identifier is not allowed"),
        (
            "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd'))",
            "from_xml is not allowed: it opens",
        ),
        ("SELECT xpath_string('<!DOCTYPE r SYSTEM \"http://127.0.0.1/\"><r/>', 'r')", "xpath_string is not allowed"),
        ("SELECT from_protobuf(X'00', 'M', '/etc/passwd')", "from_protobuf is not allowed"),
        ("SELECT 1 AS a://-- , reflect('a', 'b')\n", ":// is only allowed inside a quoted text"),
        ("SELECT 1 /* ' */ , reflect('a', 'b') -- '", "/* … */"),
        ("-- it's\nSELECT reflect('a', 'b') -- '", "reflect is not allowed"),
        ("SELECT r'\\', reflect('a', 'b'), '\\''", "reflect is not allowed"),
        ("-- \\\n ' \nSELECT reflect('a', 'b') -- '", "reflect is not allowed"),
        ("SELECT '${env:HOME}', ${env:HOME}", "unexpected $"),
        ("SELECT 'open", "unexpected '"),
    ],
)
def test_what_is_none_is_refused(sql: str, told: str) -> None:
    with pytest.raises(QueryInvalid) as refused:
        wrapped(sql, 1)
    assert told in refused.value.what
    assert refused.value.hint
