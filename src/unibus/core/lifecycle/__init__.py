"""The lifecycle of a stored message: states, changes, entities, and the commands that move messages between states.

    command + now ──▶ check ──▶ changes ──▶ state
                                   │
                                   └──▶ journal ──▶ after a crash: the same changes, the same state

Everything here is pure. Commands get the time and the lock tokens as arguments. The caller (a store) writes the changes
to its journal before it acknowledges the command. Replaying the changes in their order rebuilds the state.
"""
