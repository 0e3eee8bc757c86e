"""Who may do what: the one home of access decisions. Every door asks here, and none has rules of its own.

    token or key ──▶ identify ──▶ Claims ──▶ permit(right, target) ──▶ Granted
                        │                        │
                        └──▶ Unauthorised        └──▶ Forbidden

What is not granted is refused. Everything here is pure: the time is an argument, and so are the random bytes that keys
are made of. The tokens are those of Azure Service Bus, so that its clients work unchanged. No key and no signature
stands in a repr, in an error or in what is given back.
"""
