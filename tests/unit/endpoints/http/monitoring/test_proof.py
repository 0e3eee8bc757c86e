"""The proof of the key in FILE.serve.json: open to all, given only where there is such a key, and only for a nonce."""

import pytest

from tests.unit.endpoints.http.namespace import Holding, Namespace, Silent, ask
from unibus.config.server_file import proof_of
from unibus.core.access.rules import key_of
from unibus.endpoints.http.application.app import front
from unibus.endpoints.http.authorization import SasAuthorization
from unibus.endpoints.http.service import Service
from unibus.endpoints.http.settings import HttpSettings

NONCE = "0123456789abcdef" * 2
KEY = key_of(bytes(32))


def application(**given: str) -> object:
    settings = HttpSettings(**given)  # type: ignore[arg-type]
    holding = Holding(Namespace())
    authorization = SasAuthorization(holding, settings)  # type: ignore[arg-type]
    return front(Service(holding, authorization, Silent(), 1_000, settings))  # type: ignore[arg-type]


async def test_a_server_proves_that_it_knows_the_key() -> None:
    app = application(local_rule_name="local-1", local_key=KEY)
    answer = await ask(app, "GET", f"/unibus/v1/proof?nonce={NONCE}")  # type: ignore[arg-type]
    assert (answer.status, answer.json()) == (200, {"proof": proof_of(KEY, NONCE)})


async def test_without_a_key_there_is_no_proof() -> None:
    answer = await ask(application(), "GET", f"/unibus/v1/proof?nonce={NONCE}")  # type: ignore[arg-type]
    assert answer.status == 404


@pytest.mark.parametrize("nonce", ["", "x" * 32, "0" * 31, "0" * 129, "00%0A11" * 10, NONCE.upper()])
async def test_only_digits_are_signed(nonce: str) -> None:
    """A token is a signature over a text with a line break: none can be had here."""
    app = application(local_rule_name="local-1", local_key=KEY)
    answer = await ask(app, "GET", f"/unibus/v1/proof?nonce={nonce}")  # type: ignore[arg-type]
    assert answer.status == 400
