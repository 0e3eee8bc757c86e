"""The files of a store: one owner, private modes, reserved space, and access to the disk."""
