"""The rules and the envelope: pure functions of their arguments, without I/O, clock or random numbers.

The caller passes the time and every random number, so a run can be replayed from a seed. The package is compiled with
mypyc when a C compiler is available at installation; `COMPILED` says whether it is.

    envelope/    one message: fields, properties, payload, id
    codec/       messages as bytes and back
    topics/      names, patterns, which subscribers a channel has
    flow/        queue, retry, expiry, rate limit, dedup, metrics of channels in memory
    filters/     filters and rule actions in SQL
    access/      tokens and rights
    lifecycle/   stored messages: commands, changes, state
"""

from unibus.core.atomic import COMPILED

__all__ = ["COMPILED"]
