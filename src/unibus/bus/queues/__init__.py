"""Durable queues: send, receive, settle, lock renewal, transactions.

send ──▶ operations.py ──▶ store ──claim──▶ receivers.py ──▶ received.py: complete, abandon, defer, dead_letter
                             ▲                                    │ lock_renewal.py keeps the lock meanwhile
                             └──────────────settle────────────────┘
"""
