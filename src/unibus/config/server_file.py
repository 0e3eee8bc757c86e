"""`FILE.serve.json`: the address of the server that owns FILE, and a key for commands of the same user.

    {"url": "http://127.0.0.1:5300", "pid": 4711, "rule": "local-…", "key": "…", "version": "…", "started_ns": …}

The server writes it when its ports listen and removes it when it stops. Only its user can read it, from the first byte
on: a new file of mode 0600 replaces the old one atomically. The key exists only in this file and in the memory of the
server process, so a file that a killed server left behind grants nothing.

A reader ignores a file that another user could have written: a symbolic link, another owner, a wider mode. It then
still checks that the process holds the store (`stores/files/lock_holder`), and that the server knows the key
(`proof_of`).
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass, field, fields
from typing import Final
from urllib.parse import urlsplit

from unibus.config.settings import is_loopback
from unibus.core.access.rights import Right
from unibus.core.access.rules import KEY_BYTES, AuthorizationRule, key_of

SUFFIX: Final = ".serve.json"
MODE: Final = 0o600
BYTES_MAX: Final = 10_000
_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)


class ServerFileIgnored(Exception):
    """The file exists and is not trusted. The text gives the reason, and quotes nothing from the file."""


@dataclass(frozen=True)
class ServerFile:
    url: str
    pid: int
    rule: str
    key: str = field(repr=False)
    version: str
    started_ns: int

    def proof(self, nonce: str) -> str:
        return proof_of(self.key, nonce)


def proof_of(key: str, nonce: str) -> str:
    """The answer to a nonce that only a holder of the key can give: HMAC-SHA256, in hexadecimal digits."""
    return hmac.new(key.encode("utf-8"), nonce.encode("utf-8"), hashlib.sha256).hexdigest()


def local_rule() -> AuthorizationRule:
    """A rule for commands of the server's own user: a new name and a new key at each start, stored nowhere else."""
    key = key_of(secrets.token_bytes(KEY_BYTES))
    return AuthorizationRule(f"local-{secrets.token_hex(8)}", frozenset(Right), key, key)


def server_file_of(path: str) -> str:
    """The path of the server file: beside the real file, as its lock file is."""
    return f"{os.path.realpath(path)}{SUFFIX}"


def write_server_file(path: str, found: ServerFile) -> None:
    """Write the file atomically, over an existing one. OSError if the folder is not writable."""
    name = server_file_of(path)
    part = f"{name}.{secrets.token_hex(8)}"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _NOFOLLOW, MODE)
    try:
        with open(file, "wb") as out:
            out.write(json.dumps(asdict(found)).encode("utf-8") + b"\n")
        os.replace(part, name)  # Replaces a symbolic link itself, not its target.
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def remove_server_file(path: str, key: str) -> None:
    """Remove the file if it has this key. The file of a later server stays."""
    with contextlib.suppress(OSError, ServerFileIgnored):
        found = read_server_file(path)
        if found is not None and found.key == key:
            os.unlink(server_file_of(path))


def read_server_file(path: str) -> ServerFile | None:
    """Read the file; None if it does not exist. ServerFileIgnored if another user could have written it, or if it is
    damaged."""
    try:
        file = os.open(server_file_of(path), os.O_RDONLY | _CLOEXEC | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServerFileIgnored(f"it cannot be opened: {error.strerror}") from error
    with open(file, "rb") as opened:
        _check_owner(os.fstat(file))
        text = opened.read(BYTES_MAX + 1)
    return _parsed(text)


def _check_owner(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ServerFileIgnored("it is not a regular file")
    if os.name != "posix":
        return  # Windows has no such modes: the access control list of the folder decides.
    if found.st_uid != os.geteuid():
        raise ServerFileIgnored("it belongs to another user")
    if found.st_mode & 0o077:
        raise ServerFileIgnored(f"its mode is {stat.S_IMODE(found.st_mode):04o}, so other users could read or write it")


def _parsed(text: bytes) -> ServerFile:
    try:
        found = json.loads(text) if len(text) <= BYTES_MAX else None
    except (ValueError, RecursionError):
        found = None
    kinds = {each.name: each.type for each in fields(ServerFile)}
    if not isinstance(found, dict) or not kinds.keys() <= found.keys():
        raise ServerFileIgnored("it is damaged")
    given = {name: found[name] for name in kinds}
    if any(type(value) is not kinds[name] for name, value in given.items()) or not _is_here(found["url"]):
        raise ServerFileIgnored("it is damaged")
    return ServerFile(**given)


def _is_here(url: str) -> bool:
    """Whether the URL is of this machine: a forged file could otherwise redirect messages to another host."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "") and parts.port is not None
    except ValueError:
        return False
