"""What every store has to do, one file per subject. `unibus.testing.store_contract` puts them together."""
