"""The client of the management API: calls a running server from another process.

    address ──▶ Client (client) ──▶ Wire (wire): one persistent HTTP connection
                  │   signature (signature): a shared access signature, renewed before it expires
                  │   answers: a body becomes a record, or an error class of `unibus.errors`
                  └── EventStream (events): server-sent events, resumed after a disconnect

The invariant: a call that returns has taken effect, else it raises. A lost answer to a call that changes something is
`OutcomeUnknown`, and the client never repeats such a call on its own.
"""
