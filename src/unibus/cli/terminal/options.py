"""Commands with many options take them as one value: a dataclass whose fields are the options.

Typer reads options from the parameters of a function. `with_options` gives the function a signature with the fields
of the dataclass, collects what typer passes, and calls the command with one argument.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

Options = TypeVar("Options")
Answer = TypeVar("Answer")


def with_options(kind: type[Options]) -> Callable[[Callable[[Options], Answer]], Callable[..., Answer]]:
    """Makes a function of one dataclass a command with the fields of the dataclass as arguments and options."""

    def decorate(command: Callable[[Options], Answer]) -> Callable[..., Answer]:
        @functools.wraps(command)
        def called(**given: object) -> Answer:
            return command(kind(**given))

        signature = inspect.signature(kind)
        # Typer reads the signature and the annotations. `__wrapped__` would lead it to the original function.
        vars(called)["__signature__"] = signature
        called.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        del vars(called)["__wrapped__"]
        return called

    return decorate
