"""Pages of a list: reads `$skip` and `$top`, and gives the address of the next page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from unibus.endpoints.http.request import Request
from unibus.errors import UsageError

TOP_DEFAULT: Final = 100
TOP_MAX: Final = 1_000
"""The largest page. A larger `$top` gets a page of this size, with the address of the next one."""
SKIP_MAX: Final = 10_000_000

T = TypeVar("T")


@dataclass(frozen=True)
class PageWindow:
    skip: int
    top: int

    @classmethod
    def of(cls, request: Request) -> "PageWindow":
        top = _number(request, "$top", TOP_DEFAULT)
        if top < 1:
            raise UsageError(f"$top must be 1 or more, got {top}")
        return cls(_number(request, "$skip", 0), min(top, TOP_MAX))


@dataclass(frozen=True)
class AtomPage(Generic[T]):
    """`more`: whether another page follows."""

    window: PageWindow
    items: Sequence[T]
    more: bool

    @classmethod
    def of(cls, window: PageWindow, found: Sequence[T]) -> "AtomPage[T]":
        """`found` has one item more than the window if another page follows."""
        return cls(window, found[: window.top], len(found) > window.top)

    def following(self, request: Request) -> str:
        """The address of the next page, empty for the last."""
        if not self.more:
            return ""
        others = {name: value for name, value in request.query.items() if name not in ("$skip", "$top")}
        pairs = [f"{quote(name, safe='$')}={quote(value, safe='')}" for name, value in others.items()]
        pairs += [f"$skip={self.window.skip + self.window.top}", f"$top={self.window.top}"]
        return f"{request.base_url}{quote(str(request.scope['path']), safe='/$')}?{'&'.join(pairs)}"

    def as_json(self, request: Request, items: list[dict[str, object]]) -> dict[str, object]:
        return {"items": items, "next": self.following(request) or None}


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or int(text) > SKIP_MAX:
        raise UsageError(f"{name} must be a whole number from 0 to {SKIP_MAX}, got {text!r:.40}")
    return int(text)
