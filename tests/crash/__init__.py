"""Crashes of a store, on purpose and by the thousand: what was answered is still true afterwards.

workload.py   random work from a seed: sends, claims, settlements, transactions, sessions, time that passes
ledger.py     what was asked and what was answered; nothing of the store's own view
audit.py      after a crash: the store's state, its history and the ledger have to agree
power.py      the campaign on a simulated disk: power cuts, in the middle of commits and of recoveries
kills.py      the campaign with processes that are killed; child.py is what runs in them
planted.py    journals with a bug each, which the audit must find
"""
