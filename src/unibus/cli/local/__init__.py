"""Commands on a store that this process opens itself."""
