"""A store in the fewest words: what queues, topics, rules and sessions promise, without any thought of speed.

Random tests run a real store beside this one and compare the two after every step. So it shares no rule with
core/lifecycle: it looks through everything it has for every question, and works out what is due by trying all of it.
Locks get the tokens that the real store drew, and a message is known by its text.

    letters.py      a message, a session
    rules.py        conditions and statements of a rule, with their meaning and their text in SQL
    parts.py        an entity with its settings; what is sent
    admission.py    what is refused: by a full entity, and by the target of a forward
    boxes.py        where a message goes
    deadlines.py    what time does to it
    store.py        what can be asked for: `ModelStore`
"""

from unibus.testing.model.boxes import HOPS_MAX, Boxes, ModelCopy
from unibus.testing.model.letters import SECOND, Held, ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelRules, ModelSend
from unibus.testing.model.rules import (
    DEFAULT,
    Adds,
    Always,
    Both,
    Compares,
    Correlates,
    Divides,
    ModelCondition,
    ModelEither,
    ModelIsNull,
    ModelNot,
    ModelRule,
    ModelStatement,
    Never,
    NoAnswer,
    Removes,
    Sets,
    SetsCorrelation,
    SetsQuotient,
    SetsSession,
)
from unibus.testing.model.store import ModelStore, ReferenceModel

__all__ = [
    "DEFAULT",
    "HOPS_MAX",
    "SECOND",
    "Adds",
    "Always",
    "Both",
    "Boxes",
    "Compares",
    "Correlates",
    "Divides",
    "Held",
    "ModelCondition",
    "ModelCopy",
    "ModelEither",
    "ModelIsNull",
    "ModelMessage",
    "ModelNot",
    "ModelQueue",
    "ModelRule",
    "ModelRules",
    "ModelSend",
    "ModelStatement",
    "ModelStore",
    "Never",
    "NoAnswer",
    "ReferenceModel",
    "Removes",
    "Sets",
    "SetsCorrelation",
    "SetsQuotient",
    "SetsSession",
    "Value",
]
