"""`FILE.serve.json`: where the server of a file can be reached, and the key that it made for commands of the same user.

    {"url": "http://127.0.0.1:5300", "pid": 4711, "rule": "local-…", "key": "…", "version": "…", "started_ns": …}

The server writes it when its ports listen and removes it when it stops. It is readable by its user only, from its first
byte: a new file of mode 0600 takes the place of the old one in one step. The key exists in this file and in the memory
of the server, and ends with that process, so a file that a killed server left behind opens nothing.

A reader believes nothing that another user could have written: a link, another owner, a wider mode. It still has to
find that the process holds the store (`stores/files/lock_holder`), and that the server knows the key (`proof_of`).
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
    """There is such a file, and it is not believed. The text says why, without anything that is in it."""


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
    """What only a holder of the key can answer to a random text: HMAC-SHA256, in hexadecimal digits."""
    return hmac.new(key.encode("utf-8"), nonce.encode("utf-8"), hashlib.sha256).hexdigest()


def local_rule() -> AuthorizationRule:
    """A rule for commands of the user who runs the server: a new name and a new key at each start, stored nowhere."""
    key = key_of(secrets.token_bytes(KEY_BYTES))
    return AuthorizationRule(f"local-{secrets.token_hex(8)}", frozenset(Right), key, key)


def server_file_of(path: str) -> str:
    """Beside the real file, as its lock is."""
    return f"{os.path.realpath(path)}{SUFFIX}"


def write_server_file(path: str, found: ServerFile) -> None:
    """Put it in the place of one that is there. OSError where the folder does not allow it."""
    name = server_file_of(path)
    part = f"{name}.{secrets.token_hex(8)}"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOEXEC | _NOFOLLOW, MODE)
    try:
        with open(file, "wb") as out:
            out.write(json.dumps(asdict(found)).encode("utf-8") + b"\n")
        os.replace(part, name)  # Replaces a link, and not what it leads to.
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def remove_server_file(path: str, key: str) -> None:
    """Remove the one with this key; that of a server which came after is left."""
    with contextlib.suppress(OSError, ServerFileIgnored):
        found = read_server_file(path)
        if found is not None and found.key == key:
            os.unlink(server_file_of(path))


def read_server_file(path: str) -> ServerFile | None:
    """None where there is none. ServerFileIgnored for one that another user could have written, or that is damaged."""
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
        raise ServerFileIgnored("it is no regular file")
    if os.name != "posix":
        return  # Modes mean nothing there; the access list of the folder decides.
    if found.st_uid != os.geteuid():
        raise ServerFileIgnored("it belongs to another user")
    if found.st_mode & 0o077:
        raise ServerFileIgnored(f"its mode is {stat.S_IMODE(found.st_mode):04o}, and others could read or write it")


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
    """Only this machine: a file could otherwise send messages elsewhere."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and is_loopback(parts.hostname or "") and parts.port is not None
    except ValueError:
        return False
