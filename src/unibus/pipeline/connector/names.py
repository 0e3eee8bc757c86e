"""File names for names that somebody else chose: a query, a batch, a domain.

Small letters, digits, `_`, `@` and `-` stand for themselves; every other byte becomes `%xx`. So nothing leads out of a
folder, and two names are never one file, also where a file system does not tell capitals apart. What would be too long
for a file ends in a digest.
"""

import hashlib
import string
from typing import Final

CHARS_MAX: Final = 150
_PLAIN: Final = frozenset((string.ascii_lowercase + string.digits + "_@-").encode())
_BEGINNING: Final = 60


def file_name(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in data)
    return name if len(name) <= CHARS_MAX else f"{name[:_BEGINNING]}~{hashlib.sha256(data).hexdigest()}"
