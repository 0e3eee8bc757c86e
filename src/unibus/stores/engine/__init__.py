"""The embedded store: decides in memory, writes groups to a journal, then acknowledges."""
