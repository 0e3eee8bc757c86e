"""Azure's administration client for Python in processes of their own: the version before, and trust by variables.

`azure_admin` itself runs in this process, with the version of the environment and the CA given by hand. A CA that a
variable names is read when the client is imported (REQUESTS_CA_BUNDLE by the synchronous one, SSL_CERT_FILE by the
asynchronous one), so both have to be there before the process starts.
"""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import CERTIFICATES
from tests.integration.namespace import Namespace

BEFORE = "7.14.3"
NOW = importlib.metadata.version("azure-servicebus")
PACKAGES = Path(f".build/azure-servicebus-{BEFORE}").resolve()
PROGRAM = Path(__file__).parent / "azure_admin" / "by_variables.py"
# Without the plugins of everything that is installed: importing them takes longer than the tests.
PYTEST = ("-m", "pytest", "-q", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider", str(PROGRAM.parent))


def run(arguments: tuple[str, ...], **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")}
    return subprocess.run(
        [sys.executable, *arguments], env=kept | variables, capture_output=True, text=True, timeout=300
    )


def trusting(namespace: Namespace) -> dict[str, str]:
    return {"REQUESTS_CA_BUNDLE": str(namespace.ca), "SSL_CERT_FILE": str(namespace.ca)}


def test_the_version_before_passes_every_test_of_azure_admin(namespace: Namespace, certificates: Path) -> None:
    assert PACKAGES.is_dir(), "the client is missing: python tools/prepare.py clients"
    path = os.pathsep.join([str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", CERTIFICATES: str(certificates)}
    done = run(PYTEST, **trusting(namespace), **variables)
    assert done.returncode == 0, done.stdout
    assert f"azure-servicebus {BEFORE}" in done.stdout


def test_the_version_of_the_environment_trusts_by_variables(namespace: Namespace) -> None:
    done = run((str(PROGRAM), namespace.connection_string), **trusting(namespace))
    assert done.stdout == f"{NOW} (['by-variables'], ['by-variables'])\n", done.stderr
    assert NOW != BEFORE


def test_without_the_variables_the_server_is_not_trusted(namespace: Namespace) -> None:
    done = run((str(PROGRAM), namespace.connection_string))
    assert done.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
