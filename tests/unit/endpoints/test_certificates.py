"""The development certificate: what it is good for, how long it is reused, and which users can read its key."""

import datetime
import ipaddress
import os
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from unibus.endpoints.transport.certificates import CertificateFiles, development_certificate
from unibus.errors import ConfigInvalid

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def read(path: Path | None) -> x509.Certificate:
    assert path is not None
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(files: CertificateFiles) -> set[object]:
    return set(read(files.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def test_names_keys_and_dates(tmp_path: Path) -> None:
    files = development_certificate(tmp_path / "new" / "folder", ("host.docker.internal", "10.0.0.7"), NOW)
    assert names_of(files) == {
        x509.DNSName("localhost"),
        x509.DNSName("host.docker.internal"),
        *[x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1", "10.0.0.7")],
    }
    leaf, authority = read(files.certificate), read(files.ca)
    for each in (leaf, authority):
        key = each.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
    leaf.verify_directly_issued_by(authority)
    assert leaf.not_valid_after_utc < authority.not_valid_after_utc
    assert leaf.not_valid_after_utc - NOW <= 397 * DAY
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    files.context()


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_private_files_are_their_owners(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = tmp_path / "certificates"
        files = development_certificate(folder, (), NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.pem")}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "server.pem": 0o644, "server-key.pem": 0o600}
    assert files.ca == folder / "ca.pem"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.pem")}


@pytest.mark.parametrize(
    ("days", "names", "made_again"),
    [
        (0, (), set()),
        (300, (), set()),
        (366, (), set()),
        (368, (), {"server.pem", "server-key.pem"}),
        (0, ("alias",), {"server.pem", "server-key.pem"}),
        (3_200, (), {"server.pem", "server-key.pem"}),
        (3_300, (), {"server.pem", "server-key.pem", "ca.pem", "ca-key.pem"}),
        (-300, (), {"server.pem", "server-key.pem", "ca.pem", "ca-key.pem"}),
    ],
)
def test_it_is_reused_until_it_expires_soon_or_does_not_fit(
    tmp_path: Path, days: int, names: tuple[str, ...], made_again: set[str]
) -> None:
    development_certificate(tmp_path, (), NOW)
    before = contents(tmp_path)
    files = development_certificate(tmp_path, names, NOW + days * DAY)
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} == made_again
    read(files.certificate).verify_directly_issued_by(read(files.ca))


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN nonsense"])
def test_what_is_missing_or_damaged_is_made_again(tmp_path: Path, name: str, content: bytes | None) -> None:
    development_certificate(tmp_path, (), NOW)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    files = development_certificate(tmp_path, (), NOW)
    read(files.certificate).verify_directly_issued_by(read(files.ca))
    files.context()


def test_a_key_of_another_certificate_is_not_used(tmp_path: Path) -> None:
    first, second = development_certificate(tmp_path / "a", (), NOW), development_certificate(tmp_path / "b", (), NOW)
    first.key.write_bytes(second.key.read_bytes())
    development_certificate(tmp_path / "a", (), NOW).context()
    with pytest.raises(ConfigInvalid, match="not a certificate with its key"):
        CertificateFiles(first.certificate, second.key).context()


def test_servers_that_start_together_share_one_authority(tmp_path: Path) -> None:
    threads = [threading.Thread(target=development_certificate, args=(tmp_path, (), NOW)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    files = CertificateFiles(tmp_path / "server.pem", tmp_path / "server-key.pem", tmp_path / "ca.pem")
    read(files.certificate).verify_directly_issued_by(read(files.ca))
    files.context()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_a_client_that_checks_strictly_accepts_it(tmp_path: Path) -> None:
    files = development_certificate(tmp_path, (), datetime.datetime.now(datetime.UTC))
    client = ssl.create_default_context(cafile=str(files.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # The default of Python 3.13.
    for name in ("localhost", "127.0.0.1", "::1"):
        _shake_hands(files.context(), client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(files.context(), client, "elsewhere")


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    ours = server.wrap_bio(pipes[0], pipes[1], server_side=True)
    theirs = client.wrap_bio(pipes[2], pipes[3], server_hostname=name)
    waiting = [theirs, ours]
    while waiting:
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
            pipes[0].write(pipes[3].read())
            pipes[2].write(pipes[1].read())


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match="--certificate-folder"):
        development_certificate(tmp_path / "file", (), NOW)
    with pytest.raises(ConfigInvalid, match="certificate_names contains"):
        development_certificate(tmp_path, ("ä" * 100,), NOW)
