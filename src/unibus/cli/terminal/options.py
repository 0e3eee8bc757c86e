"""Commands with many options take them as one value: a dataclass whose fields are the options.

Typer reads options from the parameters of a function. A command that has a dozen would be called with a dozen
arguments; here it is shown to typer with the fields of the dataclass as its parameters, and called with one.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar

Options = TypeVar("Options")
Answer = TypeVar("Answer")


def with_options(kind: type[Options]) -> Callable[[Callable[[Options], Answer]], Callable[..., Answer]]:
    """Make a function of one dataclass a command that has its fields as arguments and options."""

    def decorate(command: Callable[[Options], Answer]) -> Callable[..., Answer]:
        @functools.wraps(command)
        def called(**given: object) -> Answer:
            return command(kind(**given))

        signature = inspect.signature(kind)
        # Both, because typer asks for both; and no way back to the function that takes one argument.
        vars(called)["__signature__"] = signature
        called.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
        del vars(called)["__wrapped__"]
        return called

    return decorate
