"""A development certificate authority and the certificate of this server, created when a server first starts.

    folder/ca.pem           the CA certificate, which clients have to trust
    folder/ca-key.pem       private
    folder/server.pem       the server's certificate
    folder/server-key.pem   private

Later starts reuse them, so that what a client trusts stays valid. The server's certificate is renewed before it
expires, and when its names or the authority change; the authority is renewed about a year before it expires. Files are
written to a temporary name and renamed, and a file lock serialises starts that share a folder: none sees a key without
its certificate. Only the owner can read private files.
"""

import contextlib
import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from unibus.errors import ConfigInvalid

NAMES: Final = ("localhost", "127.0.0.1", "::1")
CA_DAYS: Final = 3_650
CA_RENEW_DAYS: Final = 400  # More than SERVER_DAYS: a server's certificate must not be valid for longer than its CA.
SERVER_DAYS: Final = 397  # The longest validity that browsers accept.
SERVER_RENEW_DAYS: Final = 30
_DAY: Final = datetime.timedelta(days=1)
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


@dataclass(frozen=True)
class Issued:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateFiles:
    """The files of a server's certificate. `ca` is None for a certificate from the settings."""

    certificate: Path
    key: Path
    ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """A context for TLS 1.2 or newer. ConfigInvalid if the files are not a certificate and its key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without this callback OpenSSL would prompt for a password at the terminal. An encrypted key is an error.
            context.load_cert_chain(self.certificate, self.key, password=lambda: b"")
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            raise ConfigInvalid(
                f"{self.certificate} and {self.key} are not a certificate with its key: {reason}",
                "use PEM files that belong together, and a key without a password",
            ) from error
        return context


def check_development_certificate(folder: Path, names: tuple[str, ...]) -> None:
    """ConfigInvalid if the certificate cannot be created, as far as that is visible without creating anything."""
    for name in names:
        _general_name(name)
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise _cannot_store(folder, f"{existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _cannot_store(folder, f"{existing} is not writable")


def development_certificate(folder: Path, names: tuple[str, ...], now: datetime.datetime) -> CertificateFiles:
    """The certificate for `names` and this machine. Creates what is missing, expires soon or does not match."""
    wanted = tuple(dict.fromkeys([*NAMES, *names]))
    subjects = [_general_name(name) for name in wanted]
    files = CertificateFiles(folder / "server.pem", folder / "server-key.pem", folder / "ca.pem")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            authority = _read(folder / "ca.pem", folder / "ca-key.pem")
            if authority is None or _expires_within(authority, CA_RENEW_DAYS, now):
                authority = _make_authority(now)
                _write(authority, folder / "ca.pem", folder / "ca-key.pem")
            server = _read(files.certificate, files.key)
            if server is None or _must_be_made_again(server, authority, subjects, now):
                _write(_make_server(authority, subjects, now), files.certificate, files.key)
    except OSError as error:
        raise _cannot_store(folder, error.strerror or str(error)) from error
    return files


def _cannot_store(folder: Path, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the development certificate cannot be stored in {folder}: {why}",
        "choose another folder: --certificate-folder DIR; or switch TLS off: --no-tls",
    )


def _must_be_made_again(
    server: Issued, authority: Issued, subjects: list[x509.GeneralName], now: datetime.datetime
) -> bool:
    if _expires_within(server, SERVER_RENEW_DAYS, now):
        return True
    try:
        server.certificate.verify_directly_issued_by(authority.certificate)
        found = server.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    return set(found) != set(subjects)


def _expires_within(issued: Issued, days: int, now: datetime.datetime) -> bool:
    return issued.certificate.not_valid_after_utc - now < days * _DAY or issued.certificate.not_valid_before_utc > now


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode("ascii") if not name.isascii() else name)
    except (ValueError, UnicodeError) as error:
        raise ConfigInvalid(
            f"certificate_names contains {name!r:.80}, which is no name", "use a host name or an IP address"
        ) from error


def _make_authority(now: datetime.datetime) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"unibus development CA {os.urandom(4).hex()}")])
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = _usage(signs_certificates=True)
    builder = (
        _builder(name, name, key, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identity, critical=False)
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def _make_server(authority: Issued, subjects: list[x509.GeneralName], now: datetime.datetime) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unibus development server")])
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(name, authority.certificate.subject, key, now, SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    return Issued(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)  # The clock of a client in a container may be behind.
        .not_valid_after(now + days * _DAY)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


# Files


def _read(certificate: Path, key: Path) -> Issued | None:
    """None if a file is missing or is not what was written: the certificate is then created again."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != found.public_key():
        return None
    return Issued(found, private)


def _write(issued: Issued, certificate: Path, key: Path) -> None:
    """The key first. A crash between the two leaves a key that does not match: `_read` then returns None."""
    private = issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_file(key, private, _PRIVATE)
    _write_file(certificate, issued.certificate.public_bytes(serialization.Encoding.PEM), _PUBLIC)


def _write_file(path: Path, content: bytes, mode: int) -> None:
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, mode)  # Independent of the umask.
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A file lock: servers that start at the same time and share a folder must not mix their keys."""
    try:
        import fcntl
    except ImportError:  # Windows.
        yield
        return
    with open(folder / ".lock", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
