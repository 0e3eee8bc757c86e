"""The management API of a running server, called from another process.

    address ──▶ Client (client) ──▶ Wire (wire): one kept-alive HTTP connection
                  │   signature (signature): a shared access signature, made again before it expires
                  │   answers: a body becomes a record or an error of the tree
                  └── EventStream (events): server-sent events, resumed where they ended

The invariant: what a caller gets back has happened, or it is an error. A lost answer to a call that changes something
is `OutcomeUnknown`, and is never repeated by itself.
"""
