"""Safe file names for names that a user chose: a query, a batch, a domain.

Lower-case letters, digits, `_`, `@` and `-` are kept; every other byte becomes `%xx`. So a name cannot leave its
folder, and two names never become the same file, even on a file system that ignores case. A name that would be too long
ends with a digest.
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
