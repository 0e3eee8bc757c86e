"""What a reader of the API reference needs and the source says elsewhere: types of attributes, values of constants.

An extension of griffe, which reads the source for `make docs`; zensical.toml names it. `self.id = id` has no
annotation, so its type is that of the parameter. A constant is shown as its value: `timeout: float = 5.0`. Members that
only other modules of the package use are left out.
"""

from typing import Any

from griffe import Attribute, Class, Expr, ExprName, Extension, Function, GriffeLoader

HIDDEN = {
    "unibus.core.envelope.message.Message": ("properties", "take", "release"),
    "unibus.integrations.bus_lifespan.BusLifespan": ("control", "interrupted"),
    "unibus.bus.pubsub.subscription.Subscription": ("consumer", "pattern"),
    "unibus.bus.queues.transactions.Transaction": (
        "add", "add_many", "afterwards", "when_stored", "otherwise", "owner", "parent", "state", "store",
    ),
    "unibus.bus.dead_letters.dead_letter_manager.Verbs": ("guard",),
}  # fmt: skip
"""Members for other modules of the package. Python has no word for them: `_` is for the own class only."""


class ReadableSignatures(Extension):
    def on_class(self, *, cls: Class, loader: GriffeLoader, **kwargs: Any) -> None:
        for name in HIDDEN.get(cls.path, ()):
            cls.members.pop(name, None)
        init = cls.members.get("__init__")
        if not isinstance(init, Function):
            return
        types = {parameter.name: parameter.annotation for parameter in init.parameters}
        for attribute in cls.members.values():
            if isinstance(attribute, Attribute) and attribute.annotation is None and str(attribute.value) in types:
                attribute.annotation = types[str(attribute.value)]
                attribute.value = None

    def on_attribute(self, *, attr: Attribute, loader: GriffeLoader, **kwargs: Any) -> None:
        attr.value = _value(attr.value, loader)

    def on_function(self, *, func: Function, loader: GriffeLoader, **kwargs: Any) -> None:
        for parameter in func.parameters:
            parameter.default = _value(parameter.default, loader)


def _value(shown: str | Expr | None, loader: GriffeLoader) -> str | Expr | None:
    """The value of a constant, or what was given: constants of other packages are not known here."""
    if not isinstance(shown, ExprName) or not shown.name.isupper():
        return shown
    try:
        constant = loader.modules_collection[shown.canonical_path]
    except KeyError:
        return shown
    is_literal = isinstance(constant, Attribute) and isinstance(constant.value, str)
    return constant.value if is_literal else shown
