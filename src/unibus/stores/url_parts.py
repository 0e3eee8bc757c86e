"""The parts of a store's URL, read without opening anything: for those that need to know only what it names."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from unibus.errors import UsageError

MEMORY_SCHEMES: Final = ("memory", "in_memory", "inmemory")


def split_url(url: str) -> SplitResult:
    """UsageError for what is no URL at all. Python drops line breaks out of a URL, so they are refused too."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL: {error}", "write sqlite:///file.db, or memory://") from error
    if any(each in url for each in "\r\n\t"):
        raise UsageError(f"{url!r} has a line break or a tab in it", "write it as %0A or %09")
    return parts
