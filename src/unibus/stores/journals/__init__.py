"""What an embedded store writes to: one file per kind of journal."""
