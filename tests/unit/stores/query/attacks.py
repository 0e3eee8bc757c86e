"""Attacks by SQL, and how each has to end: rejected before it runs, or stopped at a limit.

Most of these were real ways to hang or fill some SQLite. A few only look dangerous; they say what comes out.
"""

from dataclasses import dataclass

from unibus.errors import BusError, QueryInvalid, QueryStopped


@dataclass(frozen=True)
class Attack:
    name: str
    sql: str
    ends: type[BusError] | None  # None: it is harmless, and gives these rows.
    rows: tuple[tuple[object, ...], ...] | None = None


def _doubling(levels: int, first: str, step: str) -> str:
    """Subqueries that each use the one before twice."""
    named = "".join(f", c{at} AS ({step.format(c=f'c{at - 1}')})" for at in range(1, levels))
    return f"WITH c0 AS ({first}){named} SELECT length(y) FROM c{levels - 1}"


def _refused(**attacks: str) -> list[Attack]:
    return [Attack(name, sql, QueryInvalid) for name, sql in attacks.items()]


def _stopped(**attacks: str) -> list[Attack]:
    return [Attack(name, sql, QueryStopped) for name, sql in attacks.items()]


_COUNT = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) "
_QUOTED = '"y" || [y] || `y` || Y'
_LONG = "printf('%.*c', 10000, 'x')"

WRITING = _refused(
    delete="DELETE FROM messages",
    delete_where="DELETE FROM messages WHERE channel = 'orders'",
    delete_returning="DELETE FROM messages RETURNING *",
    insert="INSERT INTO messages(id) VALUES('x')",
    insert_select="INSERT INTO messages SELECT * FROM messages",
    replace_into="REPLACE INTO messages(id) VALUES('x')",
    update="UPDATE messages SET payload = ''",
    with_delete="WITH x AS (SELECT 1) DELETE FROM messages",
    drop="DROP TABLE messages",
    create_table="CREATE TABLE t(x)",
    create_table_as="CREATE TABLE t AS SELECT * FROM messages",
    create_temp_table="CREATE TEMP TABLE t(x)",
    create_view="CREATE VIEW v AS SELECT * FROM messages",
    create_temp_view="CREATE TEMP VIEW v AS SELECT 1",
    create_index="CREATE INDEX i ON messages(id)",
    create_trigger="CREATE TRIGGER t AFTER INSERT ON messages BEGIN SELECT 1; END",
    create_temp_trigger="CREATE TEMP TRIGGER t INSTEAD OF DELETE ON messages BEGIN SELECT 1; END",
    alter="ALTER TABLE messages RENAME TO m",
    alter_column="ALTER TABLE messages ADD COLUMN x",
    write_schema="INSERT INTO sqlite_schema VALUES('table','t','t',0,'CREATE TABLE t(x)')",
    update_schema="UPDATE sqlite_schema SET sql = ''",
    upsert="INSERT INTO outgoing(id) VALUES(1) ON CONFLICT DO UPDATE SET id = 2",
)

REACHING_OUT = _refused(
    attach="ATTACH 'bus.db' AS other",
    attach_memory="ATTACH ':memory:' AS other",
    attach_uri="ATTACH 'file:bus.db?mode=ro' AS other",
    attach_expression="ATTACH (SELECT 'bus' || '.db') AS other",
    detach="DETACH main",
    vacuum="VACUUM",
    vacuum_into="VACUUM INTO 'stolen.db'",
    other_database="SELECT * FROM other.sqlite_schema",
    main_schema="SELECT * FROM main.sqlite_master",
    file_as_table="SELECT * FROM 'bus.db'",
    load_extension="SELECT load_extension('evil')",
    load_extension_entry="SELECT load_extension('evil.so', 'init')",
    readfile="SELECT readfile('/etc/passwd')",
    writefile="SELECT writefile('stolen', 'x')",
    edit="SELECT edit('x', 'vi')",
    fts3_tokenizer="SELECT fts3_tokenizer('simple')",
    fts3_tokenizer_pointer="SELECT fts3_tokenizer('x', x'4141414141414141')",
    fsdir="SELECT * FROM fsdir('/')",
    zipfile="SELECT * FROM zipfile('x.zip')",
    csv="CREATE VIRTUAL TABLE t USING csv(filename='/etc/passwd')",
    fts5="CREATE VIRTUAL TABLE t USING fts5(x)",
    rtree="CREATE VIRTUAL TABLE t USING rtree(a, b, c)",
    our_module="CREATE VIRTUAL TABLE t USING messages",
    geopoly="SELECT geopoly_area('[[0,0],[1,0],[1,1],[0,0]]')",
    rtreecheck="SELECT rtreecheck('main', 't')",
    dbpage="SELECT * FROM sqlite_dbpage",
    dbpage_call="SELECT data FROM sqlite_dbpage('main')",
    dbstat="SELECT * FROM dbstat",
    stmt="SELECT * FROM sqlite_stmt",
    bytecode="SELECT * FROM bytecode('SELECT 1')",
    tables_used="SELECT * FROM tables_used('SELECT 1')",
    carray="SELECT * FROM carray(1, 2)",
    generate_series="SELECT * FROM generate_series(1, 1000000000)",
    completion="SELECT * FROM completion('S')",
    compile_options="SELECT sqlite_compileoption_get(0)",
    version="SELECT sqlite_version()",
    log="SELECT sqlite_log(1, 'x')",
    offset="SELECT sqlite_offset(id) FROM messages",
    changes="SELECT total_changes()",
)

PRAGMAS = _refused(
    pragma_database_list="PRAGMA database_list",
    pragma_table_info="PRAGMA table_info(messages)",
    pragma_writable_schema="PRAGMA writable_schema = 1",
    pragma_temp_store_directory="PRAGMA temp_store_directory = '/'",
    pragma_temp_store="PRAGMA temp_store = FILE",
    pragma_journal_mode="PRAGMA journal_mode = WAL",
    pragma_hard_heap_limit="PRAGMA hard_heap_limit = 1",
    pragma_soft_heap_limit="PRAGMA soft_heap_limit = 1",
    pragma_mmap="PRAGMA mmap_size = 1000000000",
    pragma_trusted_schema="PRAGMA trusted_schema = ON",
    pragma_threads="PRAGMA threads = 8",
    pragma_key="PRAGMA key = 'x'",
    pragma_function="SELECT * FROM pragma_function_list",
    pragma_table_function="SELECT * FROM pragma_database_list",
    pragma_counted="SELECT count(*) FROM pragma_compile_options",
    pragma_called="SELECT name FROM pragma_table_info('messages')",
    pragma_quoted='SELECT count(*) FROM "pragma_module_list"',
    pragma_in_schema="SELECT count(*) FROM main.pragma_database_list",
)

TRANSACTIONS = _refused(
    begin="BEGIN",
    begin_exclusive="BEGIN EXCLUSIVE",
    commit="COMMIT",
    rollback="ROLLBACK",
    savepoint="SAVEPOINT s",
    release="RELEASE s",
    reindex="REINDEX",
    analyze="ANALYZE",
)

SHAPES = _refused(
    nothing="",
    only_a_comment="-- SELECT 1",
    unfinished_comment="/* SELECT 1",
    two_statements="SELECT 1; DELETE FROM messages",
    two_selects="SELECT 1; SELECT 2",
    second_after_comment="SELECT 1; /* ; */ SELECT 2",
    second_on_next_line="SELECT 1 --;\n; DROP TABLE messages",
    hidden_behind_zero="SELECT 1\0; DELETE FROM messages",
    comment_in_a_word="DEL/**/ETE FROM messages",
    statement_after_comment="/* SELECT */ DELETE FROM messages",
    schema="SELECT sql FROM sqlite_schema",
    schema_counted="SELECT count(*) FROM sqlite_schema",
    schema_old_name="SELECT * FROM sqlite_master",
    schema_temp="SELECT * FROM temp.sqlite_temp_schema",
    schema_in_a_join="SELECT 1 FROM messages JOIN sqlite_schema",
    schema_in_a_subquery="SELECT (SELECT count(*) FROM sqlite_schema)",
    schema_in_a_cte="WITH s AS (SELECT * FROM sqlite_schema) SELECT count(*) FROM s",
    explain_delete="EXPLAIN DELETE FROM messages",
    double_quoted_text='SELECT * FROM messages WHERE channel = "orders"',
    deep_expression="SELECT " + "(" * 500 + "1" + ")" * 500 + " + 1" * 500,
    deep_not="SELECT " + "NOT " * 2_000 + "1",
    deep_subqueries="SELECT * FROM " + "(SELECT * FROM " * 600 + "messages" + ")" * 600,
    many_selects=" UNION ALL ".join(["SELECT 1"] * 400),
    many_words="SELECT " + ", ".join(["id"] * 2_000) + " FROM messages",
    many_columns="SELECT " + ", ".join(["1"] * 200),
    many_arguments="SELECT coalesce(" + ", ".join(["1"] * 120) + ")",
    many_joins="SELECT count(*) FROM " + ", ".join(f"messages m{at}" for at in range(80)),
    subqueries_by_the_thousand=_doubling(12, "SELECT 1 AS y", "SELECT a.y FROM {c} a, {c} b"),
    zeroblob="SELECT zeroblob(1000000000)",
    randomblob="SELECT randomblob(1000000000)",
    json_patch="SELECT json_patch('{}', '{}')",
    unhex="SELECT unhex('00')",
    regexp="SELECT id FROM messages WHERE id REGEXP '(a+)+b'",
    match="SELECT id FROM messages WHERE id MATCH 'x'",
    collation="SELECT id FROM messages ORDER BY id COLLATE evil",
    long_like="SELECT 'a' LIKE '" + "%a" * 100 + "'",
    long_glob="SELECT 'a' GLOB '" + "*a" * 100 + "'",
)

LASTING = _stopped(
    endless_recursion=_COUNT + "SELECT count(*) FROM n",
    endless_recursion_of_one="WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i FROM n) SELECT max(i) FROM n",
    endless_in_a_subquery=f"SELECT ({_COUNT} SELECT sum(i) FROM n)",
    endless_filter=_COUNT + "SELECT i FROM n WHERE i < 0",
    two_recursions=_COUNT.replace("FROM n)", "FROM n LIMIT 100000)") + "SELECT count(*) FROM n a, n b",
    cross_join="SELECT count(*) FROM " + ", ".join(f"messages m{at}" for at in range(12)),
    cross_join_of_events="SELECT count(*) FROM " + ", ".join(f"events e{at}" for at in range(10)),
    cross_join_in_exists="SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM "
    + ", ".join(f"messages m{at}" for at in range(12))
    + " WHERE m0.id || m11.id = 'x')",
    json_each_squared="SELECT count(*) FROM "
    + ", ".join(f"json_each('[1,2,3,4,5,6,7,8,9]') j{at}" for at in range(10)),
    json_tree_squared="SELECT count(*) FROM "
    + ", ".join(f"json_tree('[[1,2],[3,[4,[5,6]]],7,8]') j{at}" for at in range(8)),
    numbers_for_ever=_COUNT + "SELECT max(sin(i) + cos(i)) FROM n",
    dates_for_ever=_COUNT + "SELECT max(date('2000-01-01', i || ' days')) FROM n",
    likes_for_ever=_COUNT + f"SELECT count(*) FROM n WHERE {_LONG} LIKE '%y%' || i",
    window_squared=_COUNT.replace("FROM n)", "FROM n LIMIT 20000)")
    + "SELECT max(s) FROM (SELECT sum(i) OVER (ORDER BY i ROWS BETWEEN 9999 PRECEDING AND CURRENT ROW "
    "EXCLUDE CURRENT ROW) s FROM n)",
)

GROWING = _stopped(
    printf_width="SELECT length(printf('%1000000000d', 1))",
    printf_star="SELECT length(printf('%.*c', 1000000000, 'x'))",
    printf_precision="SELECT length(printf('%.1000000000f', 1.0))",
    format_many=f"SELECT length(format('{'%999999s' * 9}', 1))",
    replace_grows="SELECT replace(replace(printf('%.*c', 9000, 'a'), 'a', 'bbbb'), 'b', printf('%.*c', 9000, 'c'))",
    replace_of_one="SELECT length(replace(printf('%.*c', 100000, 'a'), 'a', printf('%.*c', 100000, 'b')))",
    hex_of_hex="SELECT length(" + "hex(" * 30 + "'a'" + ")" * 31,
    quote_of_quote="SELECT length(" + "quote(" * 40 + "'" * 6 + ")" * 41,
    group_concat=_COUNT + f"SELECT length(group_concat({_LONG})) FROM n",
    string_agg=_COUNT + f"SELECT length(string_agg({_LONG}, '')) FROM n",
    json_group_array=_COUNT + f"SELECT length(json_group_array({_LONG})) FROM n",
    json_group_object=_COUNT + f"SELECT length(json_group_object(i, {_LONG})) FROM n",
    json_of_json="WITH RECURSIVE n(j) AS (VALUES('1') UNION ALL SELECT json_array(json(j), json(j)) FROM n) "
    "SELECT max(length(j)) FROM n",
    growing_text="WITH RECURSIVE n(t) AS (VALUES('x') UNION ALL SELECT t || t FROM n) SELECT length(t) FROM n",
    wide_rows=_COUNT + "SELECT printf('%.*c', 100000, 'x') FROM n",
    sorting=_COUNT + f"SELECT i FROM n ORDER BY {_LONG}",
    grouping=_COUNT + f"SELECT count(*) FROM (SELECT 1 FROM n GROUP BY {_LONG} || i)",
    distinct=_COUNT + f"SELECT count(*) FROM (SELECT DISTINCT {_LONG} || i FROM n)",
    union_of_long=f"WITH RECURSIVE n(t) AS (VALUES('x') UNION SELECT {_LONG} || length(t) || t FROM n) "
    "SELECT max(t) FROM n",
    materialized=_COUNT.rstrip() + f", m AS MATERIALIZED (SELECT {_LONG} t FROM n) SELECT count(*) FROM m a, m b",
    in_a_subquery=_COUNT + f"SELECT 1 WHERE 'y' IN (SELECT {_LONG} || i FROM n)",
    columns_at_once="WITH v(a) AS MATERIALIZED (SELECT printf('%.*c', 2000000, 'x')) SELECT "
    + ", ".join(f"a || {at}" for at in range(90))
    + " FROM v",
    arguments_at_once="WITH v(a) AS MATERIALIZED (SELECT printf('%.*c', 2000000, 'x')) SELECT length(max("
    + ", ".join(f"a || {at}" for at in range(49))
    + ")) FROM v",
    terms_at_once="SELECT 1 WHERE "
    + " OR ".join(f"hex(printf('%.*c', {900_000 + at}, 'x')) = 'q'" for at in range(90)),
    in_list=f"SELECT 1 IN ({','.join(['1'] * 20_000)})",
    values_list="VALUES " + ", ".join(["(1)"] * 16_000),
    long_text="SELECT '" + "x" * 100_000 + "'",
    flattened=_doubling(24, "SELECT 'x' || 'x' AS y", "SELECT y || y AS y FROM {c}"),
    flattened_column=_doubling(24, "SELECT id AS y FROM messages", "SELECT y || y AS y FROM {c}"),
    flattened_wide=_doubling(4, "SELECT id AS y FROM messages", f"SELECT {' || '.join(['y'] * 90)} AS y FROM {{c}}"),
    flattened_in_lists=_doubling(
        4, "SELECT id AS y FROM messages", f"SELECT y IN ({', '.join(['y'] * 200)}) AS y FROM {{c}}"
    ),
    flattened_under_many_names=_doubling(
        4, "SELECT id AS y FROM messages", f"SELECT {'||'.join([_QUOTED] * 20)} AS y FROM {{c}}"
    ),
    flattened_keyword=_doubling(4, "SELECT id AS y FROM messages", f"SELECT {'||'.join(['y'] * 90)} AS y FROM {{c}}")
    .replace("y", "plan")
    .replace("bplan", "by"),
    aliased=f"SELECT id IN ({','.join(['1'] * 15_000)}) AS a FROM messages WHERE {' OR '.join(['a'] * 90)}",
    nested_from="SELECT length(y) FROM "
    + "(SELECT y || y AS y FROM " * 40
    + "(SELECT id AS y FROM messages)"
    + ")" * 40,
)

_HAY = "printf('%.*c', 400000, 'a')"
HARMLESS = [
    Attack("long_trim", f"SELECT length(trim({_HAY}, {_HAY} || 'b'))", None, ((0,),)),
    Attack("long_instr", f"SELECT instr({_HAY}, substr({_HAY}, 1, 200000) || 'b')", None, ((0,),)),
    Attack(
        "long_replace", f"SELECT length(replace({_HAY}, substr({_HAY}, 1, 200000) || 'b', ''))", None, ((400_000,),)
    ),
    Attack("like_bomb", f"SELECT {_HAY} LIKE '{'%a' * 49}%b'", None, ((0,),)),
    Attack("glob_bomb", f"SELECT {_HAY} GLOB '{'*[a-c]' * 16}b'", None, ((0,),)),
    Attack("far_dates", "SELECT date('9999-12-31', '+1 day'), strftime('%s', 'now', '-999999999 months')", None),
    Attack("hostile_modifier", "SELECT date('now', '1 day; DROP TABLE messages')", None, ((None,),)),
    Attack("integer_overflow", "SELECT abs(-9223372036854775807), 9223372036854775807 + 1", None),
    Attack("quoted_text", "SELECT '; DELETE FROM messages; --'", None, (("; DELETE FROM messages; --",),)),
    Attack("blanks_around", "\n\t -- x\n /* ; */ SELECT 1 ; \n ;; ", None, ((1,),)),
    Attack("foreign_letters", "/* ü€ */ SELECT 'ü€' ; -- ü", None, (("ü€",),)),
    Attack("trailing_comment", "SELECT 1; -- ; DELETE FROM messages", None, ((1,),)),
    Attack("explain", "EXPLAIN SELECT * FROM messages", None),
    Attack("explain_query_plan", "EXPLAIN QUERY PLAN SELECT * FROM messages", None),
    Attack("cte_of_our_name", "WITH messages(x) AS (SELECT 7) SELECT x FROM messages", None, ((7,),)),
]

ATTACKS = [*WRITING, *REACHING_OUT, *PRAGMAS, *TRANSACTIONS, *SHAPES, *LASTING, *GROWING, *HARMLESS]
