"""How to call a handler, read once from its signature when it is subscribed.

    parameters                            called with
    none                                  nothing
    one, without annotation               the Message
    one, annotated Message                the Message
    one, annotated BusMessage             a BusMessage, a view of the Message by other names (core/envelope/views.py)
    one, annotated with another type      the body, converted to that type if it has another (bus/bodies)
    two                                   the body (converted as above) and the Message

A body that already has the annotated type is never copied and not validated again: the handler gets the published
object itself.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass

from unibus.bus.bodies.annotations import unwrapped
from unibus.bus.bodies.conversion import converter
from unibus.bus.pubsub.delivery import TAKES_BODY, TAKES_BOTH, TAKES_MESSAGE, TAKES_NOTHING, TAKES_VIEW
from unibus.core.envelope.message import Message
from unibus.core.envelope.views import BusMessage
from unibus.errors import HandlerInvalid

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class HandlerPlan:
    """How to call a handler: its arguments, the conversion of the body, and whether it is awaited."""

    shape: int
    convert: Callable[[object], object] | None
    is_async: bool
    name: str


def plan_for(handler: object, in_memory: bool = True) -> HandlerPlan:
    """Read the signature. Raises HandlerInvalid for a handler that cannot be called, before the first message.

    `in_memory`: it gets the objects that are published. Otherwise it gets decoded bodies, and an annotation that these
    cannot be converted to is refused.
    """
    if not callable(handler):
        raise HandlerInvalid(
            f"handler {handler!r:.80} is not callable", "pass a function, a method, or an object with __call__"
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise HandlerInvalid(
            f"handler {handler_name(handler)} is a generator function: calling it runs no code",
            "remove the yield: use a plain function or async def",
        )
    shape, convert = _shape(handler, in_memory)
    return HandlerPlan(shape, convert, is_async(handler), handler_name(handler))


def is_async(handler: Callable[..., object]) -> bool:
    inner: object = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    # An object with an async __call__ is async, too.
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def handler_name(handler: object) -> str:
    """The name of a handler for people, and its default group in memory: `shop.bill`, `shop.main.lambda`.

    Several handlers may have the same one; DefaultGroups numbers their groups.
    """
    inner = _inner(handler)
    text = f"{getattr(inner, '__module__', None) or '?'}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    return _readable(text).replace("<lambda>", "lambda")


def durable_name(handler: object) -> str:
    """The default group on a persistent channel: a name that is the same after a restart."""
    return _readable(former_durable_name(handler))


def former_durable_name(handler: object) -> str:
    """The default group of the same handler in older stores, where a nested function has `<locals>` in its name."""
    inner = _inner(handler)
    if not inspect.isroutine(inner):
        inner = type(inner)
    name = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', '?')}"
    if "<lambda>" in name:
        raise HandlerInvalid(
            "a lambda on a persistent channel has no name to find its messages by after a restart", "pass group="
        )
    return name.replace("/", ".")


def _inner(handler: object) -> object:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _readable(name: str) -> str:
    return name.replace("<locals>.", "")


def _shape(handler: Callable[..., object], in_memory: bool) -> tuple[int, Callable[[object], object] | None]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return TAKES_MESSAGE, None  # A builtin such as list.append: it has no signature, and takes one argument.
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    needed = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    open_ended = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    missing = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if missing:
        raise HandlerInvalid(
            f"handler {handler_name(handler)} requires {missing[0]!r} as a keyword, which the bus does not pass",
            "give it a default, or bind it: functools.partial(handler, name=value)",
        )
    if len(needed) > 2:
        raise HandlerInvalid(
            f"handler {handler_name(handler)} requires {len(needed)} arguments, the bus passes at most two",
            "declare it as handler(message), handler(body: SomeType) or handler(body, message)",
        )
    wanted = positional[: max(len(needed), 1)]
    if not wanted:
        return (TAKES_MESSAGE if open_ended else TAKES_NOTHING), None
    return _shape_of(wanted, _hints(handler), in_memory)


def _shape_of(
    wanted: list[inspect.Parameter], hints: dict[str, object], in_memory: bool
) -> tuple[int, Callable[[object], object] | None]:
    annotation = hints.get(wanted[0].name, inspect.Parameter.empty)
    if len(wanted) == 2:
        second = hints.get(wanted[1].name, inspect.Parameter.empty)
        if annotation in (Message, BusMessage) or not (_is_open(second) and second is not BusMessage):
            raise HandlerInvalid(
                f"a handler with two parameters takes (body, message), not ({wanted[0]}, {wanted[1]})",
                "put the body first, and annotate the second with Message or not at all",
            )
    convert = None if _is_open(annotation) else converter(annotation, in_memory)
    if len(wanted) == 2:
        return TAKES_BOTH, convert
    if annotation is BusMessage:
        return TAKES_VIEW, _view
    if annotation is Message or annotation is inspect.Parameter.empty:
        return TAKES_MESSAGE, None
    return TAKES_BODY, convert


def _view(message: object) -> object:
    assert isinstance(message, Message)
    return BusMessage(message)


def _hints(handler: Callable[..., object]) -> dict[str, object]:
    inner: object = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__ if callable(inner) else inner
    try:
        hints = typing.get_type_hints(inner, None, _enclosing_names(inner), include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        if not getattr(inner, "__annotations__", None):
            return {}
        raise HandlerInvalid(
            f"the annotations of handler {handler_name(handler)} cannot be evaluated: {error}",
            "import the annotated types at run time, not only under TYPE_CHECKING",
        ) from error
    return {name: _without_metadata(hint) for name, hint in hints.items()}


def _enclosing_names(handler: object) -> dict[str, object] | None:
    """The local names that annotations written as text may use: those of the functions around the handler, as far as
    they are running, as they are when they subscribe a handler that they define."""
    function = inspect.unwrap(getattr(handler, "__func__", handler))  # type: ignore[arg-type]
    around = getattr(function, "__qualname__", "").rpartition(".<locals>.")[0]
    texts = [hint for hint in getattr(function, "__annotations__", {}).values() if isinstance(hint, str)]
    if not around or not texts or not isinstance(function, types.FunctionType):
        return None
    names: dict[str, object] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code.co_qualname
        if frame.f_globals is function.__globals__ and (around + ".").startswith(code + "."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**names, **{name: cell.cell_contents for name, cell in cells if _is_filled(cell)}}


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _without_metadata(hint: object) -> object:
    """Annotated[Message, …] is a Message: constraints matter for bodies only."""
    return unwrapped(hint) if _is_open(unwrapped(hint)) else hint


def _is_open(annotation: object) -> bool:
    return annotation in (inspect.Parameter.empty, object, typing.Any, Message, BusMessage)
