"""What is wrong in a configuration is named: the file, the line, the setting and what it allows. Nothing is ignored."""

from pathlib import Path

import pytest

from unibus.config.settings import ServerSettings, is_loopback, is_trusted, setting_fields
from unibus.config.sources import read_configuration
from unibus.config.template import template
from unibus.errors import ConfigInvalid


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("unibus.yaml", "port: 1\n\nprot: 2\n", "line 3: unknown setting 'prot' (did you mean 'port'?)"),
        (
            "unibus.yaml",
            "tls: true\nport: many\n",
            "line 2: port must be a number from 0 (a free port) to 65535, got 'many'",
        ),
        ("unibus.yaml", "port: 70000\n", "line 1: port must be a number from 0 (a free port) to 65535, got 70000"),
        ("unibus.yaml", "port: 1\nport: 2\n", "line 2: port is given twice (see line 1)"),
        ("unibus.yaml", "port: 1\nhost: [a\nlog_level: info\n", "line 3:"),
        ("unibus.yaml", "port: 1\n\ttls: true\n", "line 2: found character '\\t'"),
        ("unibus.yaml", "- port\n", "line 1: not a mapping"),
        ("unibus.yaml", "store: !!python/object/apply:os.system [ls]\n", "line 1: could not determine a constructor"),
        ("unibus.yaml", "tls: perhaps\n", "line 1: tls must be true or false, got 'perhaps'"),
        (
            "unibus.yaml",
            "log_level: loud\n",
            "line 1: log_level must be one of debug, info, warning, error, got 'loud'",
        ),
        ("unibus.yaml", "host: {a: 1}\n", "line 1: host must be a list of texts, got {'a': 1}"),
        (
            "unibus.yaml",
            "head_deadline_s: -1\n",
            "line 1: head_deadline_s must be a number of seconds, 1 or more, got -1",
        ),
        (
            "unibus.yaml",
            "head_deadline_s: .nan\n",
            "line 1: head_deadline_s must be a number of seconds, 1 or more, got nan",
        ),
        ("unibus.yaml", "headers_max: 20.5\n", "line 1: headers_max must be a whole number of 16 or more, got 20.5"),
        ("unibus.yaml", "allow_networks: [127.0.0.0/8, nowhere]\n", "line 1: allow_networks contains 'nowhere'"),
        ("unibus.yaml", "tls_key: a.pem\n", "line 1: tls_certificate is missing"),
        ("unibus.yaml", "host: []\n", "line 1: host is empty"),
        ("unibus.toml", "port = 1\nprot = 2\n", "line 2: unknown setting 'prot' (did you mean 'port'?)"),
        ("unibus.toml", "tls = true\nport = \n", "line 2: Invalid value"),
        (
            "unibus.toml",
            "tls = true\nport = 'x'\n",
            "line 2: port must be a number from 0 (a free port) to 65535, got 'x'",
        ),
        ("unibus.toml", "port = 1\n[limits]\nx = 1\n", "line 2: unknown setting 'limits'"),
    ],
)
def test_the_line_is_named(tmp_path: Path, name: str, text: str, expected: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigInvalid) as caught:
        read_configuration({}, {}, folder=tmp_path)
    assert f"{tmp_path / name}, {expected}" in str(caught.value)


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "unibus.yaml").write_bytes(b"port: 1\nstore: \xff\n")
    with pytest.raises(ConfigInvalid, match="line 2 is not UTF-8"):
        read_configuration({}, {}, folder=tmp_path)
    with pytest.raises(ConfigInvalid, match=r"cannot read .*none\.yaml"):
        read_configuration({}, {}, str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unibus.yaml", "authorization_rules: [{name: app, rights: [Send], primary_key: sesame}]"),
        ("unibus.toml", 'authorization_rules = [{name = "app", rights = ["Send"], primary_key = "sesame"}]'),
    ],
)
def test_a_wrong_rule_is_named_without_its_key(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigInvalid) as caught:
        read_configuration({}, {}, folder=tmp_path)
    assert "line 1: authorization_rules: the primary_key of a rule is not a key" in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("UNIBUS_HOST", "127.0.0.1, ::1", "host", ("127.0.0.1", "::1")),
        ("UNIBUS_TLS", "off", "tls", False),
        ("UNIBUS_AMQP_PORT", "off", "amqp_port", None),
        ("UNIBUS_AMQP_PORT", "0", "amqp_port", 0),
        ("UNIBUS_HEAD_DEADLINE_S", "2.5", "head_deadline_s", 2.5),
        ("UNIBUS_BODY_BYTES_MAX", "2048", "body_bytes_max", 2048),
    ],
)
def test_variables_are_text(tmp_path: Path, variable: str, text: str, name: str, value: object) -> None:
    assert getattr(read_configuration({}, {variable: text}, folder=tmp_path).settings, name) == value


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="UNIBUS_TLS: tls must be true or false, got 'maybe'"):
        read_configuration({}, {"UNIBUS_TLS": "maybe"}, folder=tmp_path)


def test_yaml_reads_a_bare_off(tmp_path: Path) -> None:
    (tmp_path / "unibus.yaml").write_text("amqp_port: off\n")
    assert read_configuration({}, {}, folder=tmp_path).settings.amqp_port is None


@pytest.mark.parametrize("is_toml", [False, True])
def test_the_written_file_changes_nothing_and_is_valid_without_its_comments(tmp_path: Path, is_toml: bool) -> None:
    file = tmp_path / ("unibus.toml" if is_toml else "unibus.yaml")
    file.write_text(template(is_toml))
    assert read_configuration({}, {}, folder=tmp_path).settings == ServerSettings()
    key = "A" * 43 + "="
    lines = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in template(is_toml).splitlines()
    ]
    file.write_text("\n".join(lines).replace("44 characters of base64", key))
    found = read_configuration({}, {}, folder=tmp_path)
    assert found.settings.given == {each.name for each in setting_fields()}
    assert {each.name for each in setting_fields() if getattr(found.settings, each.name) != each.default} == {
        "authorization_rules"
    }


@pytest.mark.parametrize(
    ("address", "loopback", "trusted"),
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("::ffff:127.0.0.1", True, True),
        ("localhost", True, True),
        ("172.17.0.1", False, True),
        ("::ffff:172.17.0.1", False, True),
        ("10.0.0.1", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("fe80::1%eth0", False, False),
        ("example", False, False),
    ],
)
def test_which_addresses_are_trusted(address: str, loopback: bool, trusted: bool) -> None:
    networks = ServerSettings(allow_networks=("172.16.0.0/12", "fd00::/8")).networks()
    assert is_loopback(address) is loopback
    assert is_trusted(address, networks) is trusted
