"""A reference model of a store: the rules of queues, topics, subscriptions and sessions, written as simply as possible.

Random tests run every operation on a real store and on this model, and compare the two after each step. So the model
shares no code with core/lifecycle, and has no index: it scans all messages for every operation, and finds expired
deadlines by looking at each of them. A lock has the token that the real store drew, and a message is identified by its
text.

    messages.py     a message, a session
    rules.py        conditions and statements of a rule: what they mean, and their text in SQL
    parts.py        an entity with its settings; the arguments of a send
    admission.py    what a full entity or the target of a forward rejects
    queues.py       where a message is stored: fan-out, forwarding, dead-lettering
    deadlines.py    what happens when a lock, a time-to-live or a delay ends
    store.py        the operations of a store: `ModelStore`
"""

from unibus.testing.model.messages import SECOND, Held, ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelRules, ModelSend
from unibus.testing.model.queues import HOPS_MAX, ModelCopy, ModelQueues
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
    "ModelQueues",
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
