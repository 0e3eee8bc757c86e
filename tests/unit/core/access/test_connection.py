"""Connection strings, there and back."""

import pytest
from azure.servicebus import parse_connection_string

from tests.unit.core.access.parts import HOST, LATER_S, NOW_NS, ROOT, access, token
from unibus.core.access.connection import ConnectionString, Credentials
from unibus.core.access.rights import Right
from unibus.errors import ConfigInvalid

WHOLE = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={ROOT.name};SharedAccessKey={ROOT.primary_key};EntityPath=q1"


def test_there_and_back() -> None:
    read = ConnectionString.parse(WHOLE)
    assert (read.host, read.name, read.key, read.entity) == (HOST, ROOT.name, ROOT.primary_key, "q1")
    assert read.as_text() == WHOLE
    assert ConnectionString.parse(read.as_text()) == read


def test_with_a_token_in_place_of_a_key() -> None:
    text = f"Endpoint=sb://{HOST}/;SharedAccessSignature={token('q1')}"
    read = ConnectionString.parse(text)
    assert read.signature == read.token(LATER_S) == token("q1")
    assert read.as_text() == text
    with pytest.raises(ConfigInvalid):
        read.credentials()


def test_of_the_emulator() -> None:
    text = (
        "Endpoint=sb://localhost:5672/;SharedAccessKeyName=r;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    )
    read = ConnectionString.parse(text + ";")
    assert read.emulator
    assert read.host == "localhost:5672"
    assert read.as_text() == text


@pytest.mark.parametrize(
    "text",
    [
        WHOLE.replace("Endpoint", "ENDPOINT").replace("EntityPath", "entitypath"),
        ";".join(reversed(WHOLE.split(";"))),
        f"  {WHOLE};;  ".replace(";;", ";"),
        WHOLE.replace(";", " ; "),
        WHOLE + ";OperationTimeout=00:01:00;TransportType=Amqp",
        WHOLE.replace(f"{HOST}/", HOST),
        WHOLE.replace("sb:", "amqps:"),
        WHOLE.replace("=q1", "=/q1/"),
    ],
)
def test_the_same_written_otherwise(text: str) -> None:
    assert ConnectionString.parse(text) == ConnectionString.parse(WHOLE)


BROKEN = [
    "",
    ";",
    "nonsense",
    "=x",
    WHOLE.replace("Endpoint=", "Host="),
    WHOLE.replace(f"sb://{HOST}/", HOST),
    WHOLE.replace("sb:", "ftp:"),
    WHOLE.replace(HOST, ""),
    WHOLE.replace(HOST, f"user@{HOST}"),
    WHOLE.replace(f"{HOST}/", f"{HOST}/q1"),
    WHOLE.replace(f"SharedAccessKeyName={ROOT.name};", ""),
    WHOLE.replace(f"SharedAccessKey={ROOT.primary_key};", ""),
    WHOLE.replace(ROOT.primary_key, ""),
    WHOLE + f";SharedAccessSignature={token('q1')}",
    WHOLE + f";SharedAccessKey={ROOT.secondary_key}",
    WHOLE + ";sharedaccesskey=x",
    WHOLE + ";;EntityPath=q2",
    f"Endpoint=sb://{HOST}/",
    WHOLE + ";x=" + "y" * 10_000,
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_is_none_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        ConnectionString.parse(text)
    assert ROOT.primary_key not in str(refused.value)
    assert HOST not in str(refused.value)


def test_nothing_is_smuggled_into_one() -> None:
    for wrong in ({"entity": "q;SharedAccessKey=x"}, {"name": "r;x=1"}, {"key": "k;"}, {"host": "h/;EntityPath=q"}):
        with pytest.raises(ConfigInvalid):
            ConnectionString(**{"host": HOST, "name": "r", "key": "k", **wrong})  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    read = ConnectionString.parse(WHOLE)
    carried = ConnectionString.parse(f"Endpoint=sb://{HOST}/;SharedAccessSignature={token('q1')}")
    for shown in (
        repr(read),
        str(read),
        repr(read.credentials()),
        repr(carried),
        str(Credentials("r", ROOT.primary_key)),
    ):
        assert ROOT.primary_key not in shown
        assert "sig=" not in shown


def test_azures_parser_reads_ours_alike() -> None:
    theirs = parse_connection_string(ConnectionString.parse(WHOLE).as_text())
    assert theirs.fully_qualified_namespace == HOST
    assert theirs.endpoint == f"sb://{HOST}/"
    assert (theirs.shared_access_key_name, theirs.shared_access_key) == (ROOT.name, ROOT.primary_key)
    assert theirs.entity_path == "q1"
    carried = parse_connection_string(ConnectionString(HOST, signature=token("q1")).as_text())
    assert carried.shared_access_signature == token("q1")


def test_both_ways_lead_in() -> None:
    read = ConnectionString.parse(WHOLE)
    for credential in (read.token(LATER_S), read.credentials()):
        assert access().check(credential, Right.SEND, "q1", NOW_NS).claims.rule == ROOT.name
