"""Who may do what: the decisions about access to the entities of a bus.

The HTTP endpoint asks here before every operation that needs a right; it is the only endpoint of this version, and has
no rules of its own. A bus inside a program asks nothing, nor does a command that opens the file of a store. `unibus
pipeline serve` has no entities: its socket is its user's alone.

    token or key ──▶ identify ──▶ Claims ──▶ permit(right, target) ──▶ Granted
                        │                        │
                        └──▶ Unauthorised        └──▶ Forbidden

What is not granted is refused. Everything here is pure: the time is an argument, and so are the random bytes that keys
are made of. The tokens are those of Azure Service Bus, so that its clients work unchanged. No key and no signature
stands in a repr, in an error or in what is given back.
"""
