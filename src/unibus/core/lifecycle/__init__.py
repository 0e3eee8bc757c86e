"""The life of a durable message, once: states, changes, entities and the commands that move messages through them.

    command + now ──▶ check ──▶ changes ──▶ state
                                   │
                                   └──▶ journal ──▶ after a crash: the same changes, the same state

Everything here is pure. Commands take the time and the lock tokens as arguments; whoever calls them writes the changes
down before telling anybody. Playing the changes again, in their order, rebuilds the state.
"""
