"""How to call a handler, read once from its signature when it is subscribed.

    parameters                            called with
    none                                  nothing
    one, without annotation               the Message
    one, annotated Message                the Message
    one, annotated BusMessage             a BusMessage, a view of the Message by other names (core/envelope/views.py)
    one, annotated with another type      the body, converted to that type if it has another
    two                                   the body (converted as above) and the Message

A body that already has the annotated type is never copied: the handler gets the published object itself.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from unibus.bus.pubsub.delivery import TAKES_BODY, TAKES_BOTH, TAKES_MESSAGE, TAKES_NOTHING, TAKES_VIEW
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import SerializationFormat, Serialized
from unibus.core.envelope.views import BusMessage
from unibus.errors import HandlerInvalid, PayloadMismatch

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class HandlerPlan:
    """How to call a handler: its arguments, the conversion of the body, and whether it is awaited."""

    shape: int
    convert: Callable[[object], object] | None
    is_async: bool
    name: str


def plan_for(handler: object) -> HandlerPlan:
    """Read the signature. Raises HandlerInvalid for a handler that cannot be called, before the first message."""
    if not callable(handler):
        raise HandlerInvalid(
            f"handler {handler!r:.80} is not callable", "pass a function, a method, or an object with __call__"
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise HandlerInvalid(
            f"handler {handler_name(handler)} is a generator function: calling it runs no code",
            "remove the yield: use a plain function or async def",
        )
    shape, convert = _shape(handler)
    return HandlerPlan(shape, convert, is_async(handler), handler_name(handler))


def is_async(handler: Callable[..., object]) -> bool:
    inner: object = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    # An object with an async __call__ is async, too.
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def handler_name(handler: object) -> str:
    """The default group in memory: the same for one handler, another one for another handler."""
    inner: object = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    owner = getattr(inner, "__self__", None)
    text = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    plain = inspect.isfunction(inner) and inner is handler and "<" not in text
    # Lambdas, closures, partials and methods of several objects share a name; the id of the object distinguishes them.
    return text if plain else f"{text}#{id(owner if owner is not None else handler):x}"


def durable_name(handler: object) -> str:
    """The default group on a persistent channel: a name that is the same after a restart."""
    inner: object = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner)
    name = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', '?')}"
    if "<lambda>" in name:
        raise HandlerInvalid(
            "a lambda on a persistent channel has no name to find its messages by after a restart", "pass group="
        )
    return name.replace("/", ".")


def _shape(handler: Callable[..., object]) -> tuple[int, Callable[[object], object] | None]:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return TAKES_MESSAGE, None  # A builtin such as list.append: it has no signature, and takes one argument.
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    needed = [parameter for parameter in positional if parameter.default is inspect.Parameter.empty]
    open_ended = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    missing = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(needed) > 2 or missing:
        name = handler_name(handler)
        raise HandlerInvalid(
            f"handler {name} requires {len(needed) + len(missing)} arguments, the bus passes at most two",
            "declare it as handler(message), handler(body: SomeType) or handler(body, message)",
        )
    wanted = positional[: max(len(needed), 1)]
    if not wanted:
        return (TAKES_MESSAGE if open_ended else TAKES_NOTHING), None
    return _shape_of(wanted, _hints(handler))


def _shape_of(
    wanted: list[inspect.Parameter], hints: dict[str, object]
) -> tuple[int, Callable[[object], object] | None]:
    annotation = hints.get(wanted[0].name, inspect.Parameter.empty)
    if len(wanted) == 2:
        second = hints.get(wanted[1].name, inspect.Parameter.empty)
        if annotation in (Message, BusMessage) or not (_is_open(second) and second is not BusMessage):
            raise HandlerInvalid(
                f"a handler with two parameters takes (body, message), not ({wanted[0]}, {wanted[1]})",
                "put the body first, and annotate the second with Message or not at all",
            )
    convert = None if _is_open(annotation) else converter(annotation)
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
        return dict(typing.get_type_hints(inner))
    except (NameError, TypeError, AttributeError) as error:
        if not getattr(inner, "__annotations__", None):
            return {}
        raise HandlerInvalid(
            f"the annotations of handler {handler_name(handler)} cannot be evaluated: {error}",
            "import the annotated types at run time, not only under TYPE_CHECKING",
        ) from error


def _is_open(annotation: object) -> bool:
    return annotation in (inspect.Parameter.empty, object, typing.Any, Message, BusMessage)


def converter(annotation: object) -> Callable[[object], object]:
    """A function that converts a body to the type, or raises PayloadMismatch."""
    exact = _classes(annotation)

    def convert(body: object) -> object:
        if isinstance(body, exact):
            return body
        try:
            converted = _converted(body, annotation)
            # If the conversion only validated the body (a dict as dict[str, int]), pass the original, not the copy.
            return body if type(converted) is type(body) and converted == body else converted
        except (msgspec.ValidationError, msgspec.DecodeError, TypeError, ValueError) as error:
            wanted = annotation.__name__ if type(annotation) is type else str(annotation)
            raise PayloadMismatch(
                f"the handler expects {wanted}, the body is {type(body).__name__}: {error}",
                "publish a body of the annotated type, or change the annotation of the handler",
            ) from error

    return convert


def _classes(annotation: object) -> tuple[type, ...]:
    """The classes whose instances need no conversion: a class itself, or the classes of a union."""
    parts = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    found = [_instances_of(part) for part in parts]
    return tuple(part for part in found if part is not None)


def _instances_of(part: object) -> type | None:
    """The class whose instances need no validation; None if each body has to be validated."""
    origin = typing.get_origin(part)
    if isinstance(origin, type) and all(argument in (object, typing.Any) for argument in typing.get_args(part)[1:]):
        # dict[str, object] and list[Any] restrict no item, so isinstance is enough.
        return origin if typing.get_args(part)[0] in (str, object, typing.Any) and origin in (dict, list, set) else None
    if not isinstance(part, type) or origin is not None or typing.is_typeddict(part):
        return None
    if getattr(part, "_is_protocol", False) and not getattr(part, "_is_runtime_protocol", False):
        raise HandlerInvalid(
            f"the Protocol {part.__name__} cannot be checked at run time", "mark it @runtime_checkable, or use a class"
        )
    return part


def _converted(body: object, annotation: typing.Any) -> object:
    if isinstance(body, Serialized):
        if body.format is SerializationFormat.JSON:
            return msgspec.json.decode(body.data, type=annotation)
        if body.format is SerializationFormat.MESSAGE_PACK:
            return msgspec.msgpack.decode(body.data, type=annotation)
        raise ValueError(f"data in the format {body.format.value} cannot be decoded")
    if isinstance(body, bytes) and annotation is not str:
        return msgspec.json.decode(body, type=annotation)
    wants_dict = annotation is dict or typing.get_origin(annotation) is dict
    if wants_dict and not isinstance(body, dict):
        return msgspec.convert(msgspec.to_builtins(body), annotation)
    return msgspec.convert(body, annotation, from_attributes=True)
