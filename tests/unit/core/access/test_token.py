"""Parsing and signing shared access signatures."""

import pytest

from tests.unit.core.access.parts import HOST, LATER_S, ROOT, signed_raw, token
from unibus.core.access.token import EXPIRY_S_MAX, SasToken, make_token, parse_token
from unibus.errors import Unauthorised, UsageError

SR = f"sb%3A%2F%2F{HOST}%2Fq1"
SIG = "A" * 43 + "%3D"


def made(**fields: str) -> str:
    given = {"sr": SR, "sig": SIG, "se": str(LATER_S), "skn": "r", **fields}
    return "SharedAccessSignature " + "&".join(f"{field}={value}" for field, value in given.items())


def test_a_token_is_read() -> None:
    read = parse_token(token("Q1"))
    assert (read.name, read.scope.host, read.scope.path, read.expires_s) == (ROOT.name, HOST, "Q1", LATER_S)
    assert parse_token(made()).signature == b"A" * 43 + b"="


def test_what_was_sent_is_what_was_signed() -> None:
    sr = f"SB%3a%2F%2f{HOST}%2fa+b%20c"
    read = parse_token(made(sr=sr))
    assert read.signed == f"{sr}\n{LATER_S}".encode()
    assert read.scope.path == "a b c"


def test_fields_come_in_any_order() -> None:
    first = parse_token(made())
    turned = "SharedAccessSignature " + "&".join(reversed(made().removeprefix("SharedAccessSignature ").split("&")))
    assert parse_token(turned) == first


def test_a_signature_may_come_unescaped() -> None:
    assert parse_token(made(sig="+" * 43 + "=")).signature == b"+" * 43 + b"="


BROKEN = {
    "empty": "",
    "the prefix alone": "SharedAccessSignature ",
    "no prefix": made().removeprefix("SharedAccessSignature "),
    "another scheme": made().replace("SharedAccessSignature", "Bearer"),
    "a small prefix": made().replace("SharedAccessSignature", "sharedaccesssignature"),
    "two spaces": made().replace(" ", "  "),
    "a space before": " " + made(),
    "a space after": made() + " ",
    "a tab": made() + "\t",
    "a line break in sr": made(sr=SR + "\n1"),
    "a line break in se": made(se=f"{LATER_S}\n1"),
    "a NUL": made(skn="r\0"),
    "unicode in sr": made(sr=f"sb%3A%2F%2F{HOST}%2Fä"),
    "unicode in skn": made(skn="ä"),
    "a fullwidth digit in se": made(se="１８00000000"),
    "an arabic digit in se": made(se="١800000000"),
    "a lone surrogate": made(skn="\ud800"),
    "a trailing &": made() + "&",
    "a leading &": made().replace(" ", " &"),
    "an empty pair": made().replace("&se", "&&se"),
    "an unknown field": made() + "&sv=1",
    "a field without =": made() + "&x",
    "capital fields": made().replace("sr=", "SR="),
    "two in one": made() + made(),
    "a semicolon": made().replace("&", ";"),
    "half an escape": made(sr=SR + "%"),
    "an escape of no digits": made(skn="%zz"),
    "no UTF-8 in sr": made(sr=SR + "%ff"),
    "overlong UTF-8 in sr": made(sr=SR + "%c0%af"),
    "no UTF-8 in skn": made(skn="%ff"),
    "no UTF-8 in sig": made(sig="A" * 43 + "%ff"),
    "sr escaped twice": made(sr=SR.replace("%", "%25")),
    "sr without a host": made(sr="sb%3A%2F%2F%2Fq1"),
    "sr is a name": made(sr="q1"),
    "se negative": made(se="-1"),
    "se with a sign": made(se=f"+{LATER_S}"),
    "se a fraction": made(se=f"{LATER_S}.5"),
    "se with underscores": made(se="1_800_000_000"),
    "se in hex": made(se="0x7fffffff"),
    "se with an exponent": made(se="1e10"),
    "se escaped": made(se=f"%31{str(LATER_S)[1:]}"),
    "se after all time": made(se=str(EXPIRY_S_MAX + 1)),
    "se of many digits": made(se="9" * 2000),
    "sig short": made(sig=SIG[4:]),
    "sig long": made(sig="A" + SIG),
    "sig no ASCII": made(sig="%C3%A4" * 44),
    "skn long": made(skn="x" * 257),
    "huge": made(sr=SR + "x" * 5000),
    "very huge": made(sr=SR + "%41" * 2_000_000),
    "many fields": made() + "&sr=x" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(Unauthorised) as refused:
        parse_token(text)
    told = str(refused.value)
    assert SIG[:20] not in told
    assert HOST not in told
    assert refused.value.__context__ is None


@pytest.mark.parametrize("field", ["sr", "sig", "se", "skn"])
def test_each_field_has_to_be_there_once_and_filled(field: str) -> None:
    pairs = made().removeprefix("SharedAccessSignature ").split("&")
    own = next(pair for pair in pairs if pair.startswith(f"{field}="))
    others = [pair for pair in pairs if pair != own]
    for wrong in (others, [*others, f"{field}="], [*pairs, own], [*pairs, f"{field}=x"], [f"{field}=", *pairs]):
        with pytest.raises(Unauthorised):
            parse_token("SharedAccessSignature " + "&".join(wrong))


def test_the_form_of_a_token_that_is_made() -> None:
    ours = make_token(f"sb://{HOST}/q 1/ä", "r", ROOT.primary_key, LATER_S)
    assert ours == signed_raw(f"sb%3A%2F%2F{HOST}%2Fq+1%2F%C3%A4", str(LATER_S), "r", ROOT.primary_key)


@pytest.mark.parametrize(
    ("resource", "name", "key", "expires_s"),
    [
        ("q1", "r", "k", 1),
        ("", "r", "k", 1),
        ("sb://h/q", "", "k", 1),
        ("sb://h/q", "r", "", 1),
        ("sb://h/q", "r", "k", 0),
        ("sb://h/q", "r", "k", -1),
        ("sb://h/q", "r", "k", EXPIRY_S_MAX + 1),
    ],
)
def test_no_token_is_made_that_nobody_would_take(resource: str, name: str, key: str, expires_s: int) -> None:
    with pytest.raises(UsageError):
        make_token(resource, name, key, expires_s)


def test_a_token_does_not_show_its_signature() -> None:
    read: SasToken = parse_token(token("q1"))
    for shown in (repr(read), str(read), f"{read}", repr([read])):
        assert "q1" in shown
        assert read.signature.decode() not in shown
