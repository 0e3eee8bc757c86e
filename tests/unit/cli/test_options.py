"""Options are the same in every command: one spelling, one meaning, one text."""

import re
from collections import defaultdict
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.cli.command_tree import all_commands
from unibus.cli.main import app
from unibus.cli.terminal.shared_options import limit_of
from unibus.errors import UsageError

COMMANDS = dict(all_commands())
LEAVES = {path: each for path, each in COMMANDS.items() if not hasattr(each, "list_commands")}
OPTIONS = [
    (path, each) for path, command in LEAVES.items() for each in command.params if each.param_type_name == "option"
]
SHORT = {"-n": "--limit", "-f": "--follow", "-y": "--yes", "-p": "--param"}
SAME_HELP = ("--yes", "--json", "--csv", "--dry-run", "--raw", "--url", "--dead-letters", "--lake", "--master")
UNIT_IN_ITS_NAME = re.compile(r"--seconds|--.*-s")
"""The value is a number of that unit, as in the settings of a server."""


def help_of(path: str, option: str, columns: int = 100) -> str:
    result = CliRunner().invoke(app, [*path.split()[1:], option], prog_name="unibus", env={"COLUMNS": str(columns)})
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("path", COMMANDS)
def test_h_is_help_and_shows_no_types(path: str) -> None:
    assert not re.search(r"<(bool|str|int|float|path)", help_of(path, "-h"))


def shown_options(path: str) -> list[Any]:
    return [each for each in COMMANDS[path].params if each.param_type_name == "option" and not each.hidden]


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_80_columns_and_cuts_off_no_name(path: str) -> None:
    shown = help_of(path, "-h", 80)
    assert max(len(line) for line in shown.splitlines()) <= 80
    names = [name for each in shown_options(path) for name in (*each.opts, *each.secondary_opts)]
    assert [name for name in names if name not in shown] == []


@pytest.mark.parametrize("path", ["unibus", "unibus purge", "unibus dlq rules", "unibus dlq rules run"])
def test_h_is_the_same_as_help(path: str) -> None:
    assert help_of(path, "-h") == help_of(path, "--help")


def test_a_short_option_has_one_meaning() -> None:
    for path, option in OPTIONS:
        short = [each for each in option.opts if re.fullmatch("-.", each)]
        assert all(SHORT[each] in option.opts for each in short), (path, option.opts)
        for wanted, long in SHORT.items():
            if long in option.opts and path != "unibus filter test":  # Its --param is NAME=VALUE.
                assert wanted in short, (path, option.opts)


@pytest.mark.parametrize("name", SAME_HELP)
def test_an_option_of_several_commands_has_one_text(name: str) -> None:
    texts: dict[str, list[str]] = defaultdict(list)
    for path, option in OPTIONS:
        if name in option.opts:
            texts[option.help].append(path)
    if name == "--dead-letters":
        texts = {text: paths for text, paths in texts.items() if paths != ["unibus entities"]}  # There it lists them.
    assert len(texts) == 1, texts


def test_limits_are_called_limit() -> None:
    named = {path: option for path, option in OPTIONS if "--limit" in option.opts}
    assert {option.metavar for option in named.values()} == {"N|all"}
    lists = {"receive", "peek", "tail", "replay", "query", "dlq ls", "server logs", "pipeline report", "pipeline sql"}
    assert set(named) == {f"unibus {name}" for name in lists}
    assert not [path for path, option in OPTIONS if "--count" in option.opts]


@pytest.mark.parametrize(
    ("text", "least", "most", "limit"),
    [("1", 1, None, 1), ("all", 1, None, None), ("ALL", 1, 5, None), ("0", 0, None, 0), ("5", 1, 5, 5)],
)
def test_a_limit(text: str, least: int, most: int | None, limit: int | None) -> None:
    assert limit_of(text, least, most) == limit


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "1_000", "1.5", "٣", "9" * 5_000, "6"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageError, match="--limit"):
        limit_of(text, most=5)


DURATIONS = [
    (path, option)
    for path, option in OPTIONS
    # The commands of dlq share the class of these options.
    if option.metavar == "DURATION" and (not path.startswith("unibus dlq ") or path == "unibus dlq ls")
]
ARGUMENTS = {
    "unibus capture": ["unibus.db", "cap"],
    "unibus pipeline generate": ["--messages", "1", "--out", "out"],
    "unibus pipeline sql": ["SELECT 1"],
}


@pytest.mark.parametrize(("path", "option"), DURATIONS, ids=lambda each: getattr(each, "name", each))
def test_every_duration_is_read_by_one_parser(shell: Any, path: str, option: Any) -> None:
    assert shell("send", "q", "1").exit_code == 0
    required = [each for each in LEAVES[path].params if each.required and each.param_type_name == "argument"]
    arguments = ARGUMENTS.get(path, ["q"] * len(required))
    result = shell(*path.split()[1:], *arguments, option.opts[0], "2 fortnights")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"error: {option.opts[0]} '2 fortnights' is not a duration" in result.stderr


def test_no_option_takes_a_duration_by_another_name() -> None:
    other = {option.metavar for path, option in OPTIONS if not any(map(UNIT_IN_ITS_NAME.fullmatch, option.opts))}
    assert not other & {"TIME", "SECONDS", "S", "H", "HOURS"}
    assert len(DURATIONS) >= 15
