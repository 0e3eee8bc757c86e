"""What a reader of the API reference needs and the source says elsewhere: types of attributes, values of constants.

An extension of griffe, which reads the source for `make docs`; zensical.toml names it. `self.id = id` has no annotation,
so its type is that of the parameter. A default that is a constant is shown as its value: `timeout: float = 5.0`.
"""

from typing import Any

from griffe import Attribute, Class, Expr, ExprName, Extension, Function, GriffeLoader, Parameter


class ReadableSignatures(Extension):
    def on_class(self, *, cls: Class, loader: GriffeLoader, **kwargs: Any) -> None:
        init = cls.members.get("__init__")
        if not isinstance(init, Function):
            return
        types = {parameter.name: parameter.annotation for parameter in init.parameters}
        for attribute in cls.members.values():
            if isinstance(attribute, Attribute) and attribute.annotation is None and str(attribute.value) in types:
                attribute.annotation = types[str(attribute.value)]
                attribute.value = None

    def on_function(self, *, func: Function, loader: GriffeLoader, **kwargs: Any) -> None:
        for parameter in func.parameters:
            _show_value(parameter, loader)


def _show_value(parameter: Parameter, loader: GriffeLoader) -> None:
    default = parameter.default
    if not isinstance(default, ExprName) or not default.name.isupper():
        return
    try:
        constant = loader.modules_collection[default.canonical_path]
    except KeyError:
        return  # It is defined in another package.
    if isinstance(constant, Attribute) and constant.value is not None and not isinstance(constant.value, Expr):
        parameter.default = constant.value
