"""What every integration test shares: a folder for the development CA, and a server that serves a namespace."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.namespace import Namespace, namespace_running

CERTIFICATES = "UNIBUS_TEST_CERTIFICATES"
"""The folder of a CA that exists already: tests in a process of their own trust it by a variable, from the start."""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get(CERTIFICATES)
    return Path(given) if given else tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="session")
def namespace(certificates: Path) -> Iterator[Namespace]:
    """One server for all tests: a test deletes the entities that it creates."""
    with namespace_running(certificates) as found:
        yield found
