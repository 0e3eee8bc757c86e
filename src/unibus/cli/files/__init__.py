"""Commands on files: check, repair, export, import."""
