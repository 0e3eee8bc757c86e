"""Files of a store: one owner, private modes, reserved space, the disk itself."""
