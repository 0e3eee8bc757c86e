"""Checking and repairing the files of a store that no process owns: `unibus check` and `unibus repair`.

    files of a store ──▶ StoreFiles ──▶ salvage ──▶ state + findings ──▶ check    says what is wrong
    (sqlite, jsonfile)   read only                          └──────────▶ repair   writes a new store

Opening a store is strict: at the first record that cannot be right it raises StoreDamaged and serves nothing. Salvage
reads the same files and goes on: it keeps what the records prove, and each thing that it cannot prove is a finding. The
files that are read are never changed.
"""
