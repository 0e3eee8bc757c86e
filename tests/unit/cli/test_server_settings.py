"""`unibus config show`, `unibus init`, and the flags of `unibus serve`."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.unit.cli.conftest import Shell
from tests.unit.cli.programs import Terminal, environment
from unibus.config.settings import setting_fields
from unibus.config.sources import flag_of


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNIBUS_CONFIG", raising=False)


def test_every_setting_is_shown_with_its_origin(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "unibus.toml").write_text('log_level = "debug"\n')
    monkeypatch.setenv("UNIBUS_PORT", "1")
    found = {each["name"]: each for each in shell.records("config", "show", "--origin")}
    assert list(found) == [each.name for each in setting_fields()]
    assert found["port"] == {"name": "port", "value": 1, "origin": "UNIBUS_PORT"}
    assert found["log_level"]["origin"] == "unibus.toml, line 1"
    assert found["tls"] == {"name": "tls", "value": True, "origin": "default"}
    assert "origin" not in shell.records("config", "show")[0]


def test_keys_are_not_shown(shell: Shell) -> None:
    key = "A" * 43 + "="
    file = shell.folder / "other.yaml"
    file.write_text(f"authorization_rules: [{{name: app, rights: [Send], primary_key: {key}}}]\n")
    result = shell("config", "show", "--config", "other.yaml")
    assert result.exit_code == 0
    assert "AAAA" not in result.output
    assert '"name":"app"' in result.output


def test_people_see_lines(shell: Shell, terminal: Callable[..., Terminal]) -> None:
    (shell.folder / "unibus.yaml").write_text("port: 7\n")
    shown = terminal("config", "show", "--origin")
    assert shown.read_all() == 0
    lines = shown.output.replace("\r", "").splitlines()
    assert any("amqp_port" in line and "5672  (default)" in line for line in lines)
    assert any("port                    7  (unibus.yaml, line 1)" in line for line in lines)


@pytest.mark.parametrize("name", ["unibus.yaml", "unibus.toml"])
def test_init_writes_a_file_that_changes_nothing(shell: Shell, name: str) -> None:
    before = shell.records("config", "show", "--origin")
    assert shell("init", name).exit_code == 0
    assert shell.records("config", "show", "--origin") == before
    text = (shell.folder / name).read_text()
    assert all(f"#{each.name}" in text for each in setting_fields())
    again = shell("init", name)
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    (shell.folder / name).write_text("")
    assert shell("init", name, "--force").exit_code == 0
    assert (shell.folder / name).read_text() == text


def test_init_needs_a_name_that_says_the_format(shell: Shell) -> None:
    result = shell("init", "unibus.json")
    assert result.exit_code == 2
    assert "error: unibus.json has the name of neither a YAML nor a TOML file" in result.stderr
    assert shell("init", "none/unibus.yaml").exit_code == 2


def test_every_setting_but_secrets_is_a_flag(shell: Shell) -> None:
    result = shell("serve", "--help")
    assert result.exit_code == 0
    for each in setting_fields():
        if each.name != "store":
            assert (flag_of(each.name)[:18] in result.output) == (each.name != "authorization_rules")
    assert "--workers" not in result.output
    assert "a store has one owner" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--port", "many"), "error: --port: port must be a number from 0 (a free port) to 65535, got 'many'"),
        (("--allow-networks", "nowhere"), "error: --allow-networks: allow_networks contains 'nowhere'"),
        (("--workers", "4"), "No such option"),
        (("--config", "none.yaml"), "error: cannot read none.yaml"),
    ],
)
def test_a_wrong_flag_is_named(shell: Shell, arguments: tuple[str, ...], error: str) -> None:
    result = shell("serve", *arguments)
    assert result.exit_code == 2
    assert error in result.stderr
    assert not list(shell.folder.iterdir())


def test_without_the_extra_it_says_what_to_install(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "uvicorn" else find(name, package)
    )
    result = shell("serve", "memory://")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "error: `unibus serve` needs the package uvicorn",
        "hint: in the checkout of unibus: pip install '.[server]'",
    ]


PROGRAM = """
import sys
import unibus.cli.main, unibus.cli.server.config, unibus.cli.server.serve
print([name for name in ("uvicorn", "fastapi", "yaml", "cryptography") if name in sys.modules])
"""


def test_nothing_of_a_server_is_imported_before_it_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=environment(), check=True)
    assert done.stdout == b"[]\n"
