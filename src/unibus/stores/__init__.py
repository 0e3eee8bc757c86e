"""Where messages live: `store` is the seam to the bus, `embedded` keeps them in this process over a journal."""
