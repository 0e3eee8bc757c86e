"""Access control: whether a caller may use a right on an entity.

The HTTP endpoint checks here before every operation that needs a right; it is the only endpoint of this version, and
has no rules of its own. A bus inside of a program is not checked, nor is a command that opens the file of a store.
`unibus pipeline serve` has no entities: only its user can open its socket.

    token or key ──▶ identify ──▶ Claims ──▶ permit(right, target) ──▶ Granted
                        │                        │
                        └──▶ Unauthorised        └──▶ Forbidden

What is not granted is refused. Everything here is pure: the time is an argument, and so are the random bytes for keys.
The tokens are those of Azure Service Bus, so that its clients work unchanged. No key and no signature is ever in a
repr, in an error or in a result.
"""
