"""Flags before variables before the file before defaults, and every value knows where it came from."""

from pathlib import Path

import pytest

from unibus.config.sources import misspelt_variables, read_configuration
from unibus.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("flag", "variable", "line", "port", "origin"),
    [
        (None, None, None, 5300, "default"),
        (None, None, "port: 1", 1, "{file}, line 2"),
        (None, "2", None, 2, "UNIBUS_PORT"),
        (None, "2", "port: 1", 2, "UNIBUS_PORT"),
        (3, None, None, 3, "--port"),
        (3, None, "port: 1", 3, "--port"),
        (3, "2", None, 3, "--port"),
        (3, "2", "port: 1", 3, "--port"),
    ],
)
def test_the_order(
    tmp_path: Path, flag: int | None, variable: str | None, line: str | None, port: int, origin: str
) -> None:
    file = tmp_path / "unibus.yaml"
    if line:
        file.write_text(f"# settings\n{line}\n")
    variables = {"UNIBUS_PORT": variable} if variable else {}
    found = read_configuration({"port": flag}, variables, folder=tmp_path)
    assert found.settings.port == port
    assert found.origins["port"] == origin.format(file=file)
    assert ("port" in found.settings.given) == (origin != "default")


def test_a_file_is_named_by_a_flag_then_a_variable_then_found(tmp_path: Path) -> None:
    for number, name in enumerate(("a.yaml", "b.toml", "unibus.yml"), 1):
        (tmp_path / name).write_text(f"port {'=' if name.endswith('toml') else ':'} {number}\n")
    named = {"UNIBUS_CONFIG": str(tmp_path / "b.toml")}
    assert read_configuration({}, named, str(tmp_path / "a.yaml"), tmp_path).settings.port == 1
    assert read_configuration({}, named, folder=tmp_path).settings.port == 2
    assert read_configuration({}, {}, folder=tmp_path).settings.port == 3


def test_two_files_are_one_too_many(tmp_path: Path) -> None:
    for name in ("unibus.yaml", "unibus.toml"):
        (tmp_path / name).write_text("")
    with pytest.raises(ConfigInvalid, match=r"unibus\.yaml and unibus\.toml"):
        read_configuration({}, {}, folder=tmp_path)


def test_the_store_may_come_from_the_variable_of_the_other_commands(tmp_path: Path) -> None:
    assert read_configuration({}, {"UNIBUS_URL": "a.db"}, folder=tmp_path).settings.store == "a.db"
    both = {"UNIBUS_URL": "a.db", "UNIBUS_STORE": "b.db"}
    assert read_configuration({}, both, folder=tmp_path).settings.store == "b.db"


def test_a_variable_that_resembles_a_setting_is_reported(tmp_path: Path) -> None:
    found = read_configuration({}, {"UNIBUS_PROT": "1", "UNIBUS_LAKE": "x", "OTHER": "1"}, folder=tmp_path)
    assert found.warnings == ("UNIBUS_PROT is unknown and ignored; did you mean UNIBUS_PORT?",)
    assert found.settings.port == 5300


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("UNIBUS_ULR", "UNIBUS_URL"),
        ("UNIBUS_KYE", "UNIBUS_KEY"),
        ("UNIBUS_CONECTION_STRING", "UNIBUS_CONNECTION_STRING"),
    ],
)
def test_a_misspelt_variable_of_commands_is_reported(given: str, meant: str) -> None:
    assert misspelt_variables({given: "x"}) == [f"{given} is unknown and ignored; did you mean {meant}?"]


def test_variables_of_others_are_not_reported() -> None:
    orchestrator = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_5300_TCP", "PORT_5300_TCP_PROTO")
    known = ("URL", "KEY", "CA", "PORT", "LAKE", "CONFIG", "STORE", "PURE")
    assert misspelt_variables({f"UNIBUS_{name}": "x" for name in (*orchestrator, *known)}) == []


def test_the_port_variable_of_an_orchestrator_is_no_port(tmp_path: Path) -> None:
    found = read_configuration({}, {"UNIBUS_PORT": "tcp://10.0.0.7:5300"}, folder=tmp_path)
    assert found.settings.port == 5300
    assert "orchestrator" in found.warnings[0]


def test_records_show_no_key(tmp_path: Path) -> None:
    key = "c2VjcmV0" * 5 + "c2Vj"
    file = tmp_path / "unibus.yaml"
    file.write_text(f"authorization_rules:\n  - name: app\n    rights: [Send]\n    primary_key: {key[:43]}=\n")
    found = read_configuration({}, {}, folder=tmp_path)
    (rule,) = found.settings.authorization_rules
    assert rule.secondary_key == rule.primary_key == f"{key[:43]}="
    assert key[:20] not in str(found.records())
    assert key[:20] not in repr(found)
