"""The rules and the envelope: pure, without I/O, clock or chance. Compiled where a C compiler was there."""

from unibus.core.atomic import COMPILED

__all__ = ["COMPILED"]
