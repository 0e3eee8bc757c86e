"""Checking and repairing the files of a store that no process owns: `unibus check` and `unibus repair`.

    files of a store ──▶ StoreFiles ──▶ salvage ──▶ state + findings ──▶ check    reports what is wrong
    (by its scheme)      read only                          └──────────▶ repair   writes a new store

Opening a store is strict: at the first wrong record it raises StoreDamaged and serves nothing. Salvage reads the same
files and continues: it keeps what the records prove, and reports everything else as a finding. It never changes the
files that it reads.

Nothing here knows a kind of store: its row in schemes.py has what reads and writes its files.
"""
