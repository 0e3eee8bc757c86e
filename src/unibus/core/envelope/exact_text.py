"""Text without the subclass that it may have: encoders refuse subclasses, and a subclass may change what it says."""


def exact_text(value: object) -> str:
    assert isinstance(value, str)
    return str.__str__(value)
